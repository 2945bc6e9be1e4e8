//! The whole store as one file, and back: into either database.

mod export;
mod format;
mod import;
pub(super) mod tables;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub(super) use export::piece;

#[cfg(test)]
use super::Database;
use super::{Builder, Row, Store, Tx, users};
use crate::StoreError;

/// Why the store was not exported or imported. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The file can't be read or written.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// The file is something else.
    #[error("this is no export of a store")]
    NotAnExport,
    /// The file is newer than this program.
    #[error("the export was made by a newer version ({0}); import it with that")]
    Newer(String),
    /// The file is older than this program.
    #[error(
        "the export was made by an older version ({0}), whose schema is another one: import it \
         with that version, and open the store with this one"
    )]
    Older(String),
    /// A line makes no sense.
    #[error("line {line}: {reason}")]
    Line {
        /// From 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The end is missing.
    #[error("the export is cut short: its last line is missing")]
    Truncated,
    /// The file is not as it was written.
    #[error("the export is damaged: it is not what its last line says")]
    Damaged,
    /// There is something in the store.
    #[error("the store is not empty: it has {0}")]
    NotEmpty(&'static str),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What was exported or imported: the number of rows by table.
pub type Rows = BTreeMap<String, u64>;
