//! Rows of either database.

use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Postgres, Row as _, Sqlite, Type};
use uuid::Uuid;

use super::{damaged, parse_doc, parse_id};
use crate::StoreError;
use doorward_core::model::grant::TokenHash;

/// A row; its columns are asked for by name.
#[derive(Debug)]
pub(super) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl Row {
    pub(super) fn text(&self, column: &str) -> Result<String, StoreError> {
        self.get(column)
    }

    pub(super) fn opt_text(&self, column: &str) -> Result<Option<String>, StoreError> {
        self.get(column)
    }

    pub(super) fn int(&self, column: &str) -> Result<i64, StoreError> {
        self.get(column)
    }

    pub(super) fn opt_int(&self, column: &str) -> Result<Option<i64>, StoreError> {
        self.get(column)
    }

    pub(super) fn bytes(&self, column: &str) -> Result<Vec<u8>, StoreError> {
        self.get(column)
    }

    pub(super) fn opt_bytes(&self, column: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.get(column)
    }

    /// An integer other than 0.
    pub(super) fn flag(&self, column: &str) -> Result<bool, StoreError> {
        Ok(self.int(column)? != 0)
    }

    pub(super) fn id(&self, column: &str) -> Result<Uuid, StoreError> {
        parse_id(&self.text(column)?)
    }

    pub(super) fn hash(&self, column: &str) -> Result<TokenHash, StoreError> {
        hash(&self.bytes(column)?)
    }

    pub(super) fn opt_hash(&self, column: &str) -> Result<Option<TokenHash>, StoreError> {
        self.opt_bytes(column)?.as_deref().map(hash).transpose()
    }

    /// A count that fits 32 bits.
    pub(super) fn count(&self, column: &str) -> Result<u32, StoreError> {
        u32::try_from(self.int(column)?).map_err(StoreError::damaged)
    }

    /// A column that holds JSON.
    pub(super) fn doc<T: serde::de::DeserializeOwned>(
        &self,
        column: &str,
    ) -> Result<T, StoreError> {
        parse_doc(&self.text(column)?)
    }

    fn get<T>(&self, column: &str) -> Result<T, StoreError>
    where
        T: for<'r> Decode<'r, Sqlite> + Type<Sqlite>,
        T: for<'r> Decode<'r, Postgres> + Type<Postgres>,
    {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        }
        .map_err(StoreError::damaged)
    }
}

pub(super) fn hash(bytes: &[u8]) -> Result<TokenHash, StoreError> {
    let bytes = bytes.try_into();
    bytes
        .map(TokenHash)
        .map_err(|_| damaged("a hash of another length"))
}
