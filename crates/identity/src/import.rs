//! Users from files of other systems: CSV with SCIM names in its first line,
//! and LDIF of a directory.
//!
//! A file is read record by record in bounded memory. What is wrong with one
//! is said with its line, and keeps no other from being taken; no message
//! repeats a password.

mod attributes;
mod csv;
mod ldif;

use std::io::{self, BufRead};

use serde_json::{Map, Value};

use super::stored_hash::StoredHash;
use doorward_core::model::secret::Secret;
use doorward_core::model::user::import::Import;

pub use self::csv::CsvRecords;
pub use self::ldif::LdifRecords;

/// Longest record, in bytes.
const RECORD_MAX: usize = 1 << 20;

/// Why a file can't be read on.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It can't be read.
    #[error("line {line}: {error}")]
    Unreadable {
        /// The line.
        line: u64,
        /// Why not.
        error: io::Error,
    },
    /// It is no file of its kind.
    #[error("line {line}: {text}")]
    Format {
        /// The line.
        line: u64,
        /// What is wrong there.
        text: String,
    },
}

/// How a record says that its user signs in.
#[derive(Clone, Debug)]
pub enum ImportedPassword {
    /// The password itself.
    Plain(Secret),
    /// A hash of it.
    Hash(Secret),
}

/// A user of a file, as the file has it.
#[derive(Debug)]
pub struct ImportedUser {
    /// The record, by the names of SCIM.
    pub record: Map<String, Value>,
    /// How the user signs in.
    pub password: Option<ImportedPassword>,
}

/// A record of a file.
#[derive(Debug)]
pub struct Record {
    /// The line that it begins in.
    pub line: u64,
    /// The user; none if it is of something else than a person.
    pub found: Result<Option<ImportedUser>, String>,
}

/// A file of either kind, record by record. It ends with an error, if there is
/// one.
pub enum Records<R> {
    /// Comma-separated values.
    Csv(Box<CsvRecords<R>>),
    /// An export of a directory.
    Ldif(LdifRecords<R>),
}

impl<R: BufRead> Iterator for Records<R> {
    type Item = Result<Record, ImportError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Csv(records) => records.next(),
            Self::Ldif(records) => records.next(),
        }
    }
}

/// A user ready for the store, but for a password that is to be hashed.
#[derive(Debug)]
pub struct Ready {
    /// The user.
    pub import: Import,
    /// The password.
    pub password: Option<Secret>,
}

impl ImportedUser {
    /// The user of `realm`, made at `now_ms`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn ready(self, realm: &str, now_ms: i64) -> Result<Ready, String> {
        let says = |name: &str| self.record.contains_key(name);
        let says_active = says("active") || says("accountStatus");
        let user = super::new_user(realm, &self.record);
        let mut user = user.map_err(|error| error.to_string())?;
        // No database holds it, and one such user would stop all beside it.
        if members_hold_nul(&user.profile) {
            return Err("a value has the character U+0000".to_owned());
        }
        (user.created_ms, user.updated_ms) = (now_ms, now_ms);
        let mut password = None;
        match self.password {
            None => {}
            Some(ImportedPassword::Plain(plain)) => password = Some(plain),
            Some(ImportedPassword::Hash(hash)) => {
                let read = StoredHash::foreign(&hash);
                read.map_err(|error| format!("passwordHash: {error}"))?;
                user.password_hash = Some(Secret::new(hash.expose().trim()));
            }
        }
        Ok(Ready {
            import: Import { user, says_active },
            password,
        })
    }
}

fn holds_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(values) => values.iter().any(holds_nul),
        Value::Object(members) => members_hold_nul(members),
        _ => false,
    }
}

fn members_hold_nul(members: &Map<String, Value>) -> bool {
    let mut members = members.iter();
    members.any(|(name, value)| name.contains('\0') || holds_nul(value))
}

#[cfg(test)]
mod tests;
