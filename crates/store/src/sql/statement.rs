//! Statements in the words that SQLite and PostgreSQL share.
//!
//! The text comes from the program alone; every value is bound.

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};
use uuid::Uuid;

use super::database::Database;
use super::dialect::Dialect;
use super::row::Row;
use super::tx::Tx;
use super::{taken, unavailable};
use crate::StoreError;
use doorward_core::model::grant::TokenHash;

/// A value that is bound to a statement; without one it is null.
#[derive(Clone)]
pub(super) enum Value {
    Text(Option<String>),
    Int(Option<i64>),
    Bytes(Option<Vec<u8>>),
}

/// A statement and its values: `$1` is the first one that was bound.
pub(super) struct Statement {
    text: SqlStr,
    values: Vec<Value>,
}

/// A statement of this text.
pub(super) fn sql(text: &'static str) -> Statement {
    Statement {
        text: text.into_sql_str(),
        values: Vec::new(),
    }
}

/// Where a statement reads: in a transaction, or on a connection for readers.
pub(super) enum ReadSource<'a> {
    Tx(&'a mut Tx),
    Readers(&'a Database),
}

impl<'a> From<&'a mut Tx> for ReadSource<'a> {
    fn from(tx: &'a mut Tx) -> Self {
        Self::Tx(tx)
    }
}

impl<'a> From<&'a Database> for ReadSource<'a> {
    fn from(readers: &'a Database) -> Self {
        Self::Readers(readers)
    }
}

impl Statement {
    /// Binds the next value.
    pub(super) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Runs it; how many rows it made, changed or removed.
    pub(super) async fn run(self, tx: &mut Tx) -> Result<u64, StoreError> {
        #[cfg(any(test, feature = "testing"))]
        super::plans::note(&self.text, &self.values);
        self.refuse_nul()?;
        tx.run(self.text, &self.values).await.map_err(unavailable)
    }

    /// As [`Statement::run`]; a name that has to be unique is `what`.
    pub(super) async fn run_unless_taken(self, tx: &mut Tx, what: &str) -> Result<u64, StoreError> {
        self.refuse_nul()?;
        let done = tx.run(self.text, &self.values).await;
        done.map_err(|error| taken(error, what))
    }

    /// The first row, if there is one.
    pub(super) async fn one(
        self,
        on: impl Into<ReadSource<'_>>,
    ) -> Result<Option<Row>, StoreError> {
        #[cfg(any(test, feature = "testing"))]
        super::plans::note(&self.text, &self.values);
        match on.into() {
            ReadSource::Tx(tx) => tx.one(self.text, &self.values).await.map_err(unavailable),
            ReadSource::Readers(database) => database.one(self.text, &self.values).await,
        }
    }

    /// All rows.
    pub(super) async fn all(self, on: impl Into<ReadSource<'_>>) -> Result<Vec<Row>, StoreError> {
        #[cfg(any(test, feature = "testing"))]
        super::plans::note(&self.text, &self.values);
        match on.into() {
            ReadSource::Tx(tx) => tx.all(self.text, &self.values).await.map_err(unavailable),
            ReadSource::Readers(database) => database.all(self.text, &self.values).await,
        }
    }

    /// PostgreSQL holds no such text, and SQLite's functions see its end there.
    fn refuse_nul(&self) -> Result<(), StoreError> {
        let holds = |value: &Value| matches!(value, Value::Text(Some(text)) if text.contains('\0'));
        if self.values.iter().any(holds) {
            return Err(StoreError::Unfit);
        }
        Ok(())
    }
}

/// A statement that is put together while the program runs.
pub(super) struct Builder {
    text: String,
    values: Vec<Value>,
    /// Whether a value's place is told by its number, or by its turn.
    numbered: bool,
}

impl Builder {
    pub(super) fn new(text: &'static str) -> Self {
        Self {
            text: text.to_owned(),
            values: Vec::new(),
            numbered: true,
        }
    }

    /// For a statement with thousands of values: SQLite looks for each numbered
    /// one among all of them.
    pub(super) fn with_many_values(text: &'static str, dialect: Dialect) -> Self {
        Self {
            numbered: dialect == Dialect::Postgres,
            ..Self::new(text)
        }
    }

    /// Appends text.
    pub(super) fn push(&mut self, text: &'static str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// Appends a value.
    pub(super) fn push_bind(&mut self, value: impl Into<Value>) -> &mut Self {
        self.values.push(value.into());
        if self.numbered {
            self.text.push('$');
            self.text.push_str(&self.values.len().to_string());
        } else {
            self.text.push('?');
        }
        self
    }

    pub(super) fn build(self) -> Statement {
        Statement {
            // Texts of the program and places of values; see `push`.
            text: AssertSqlSafe(self.text).into_sql_str(),
            values: self.values,
        }
    }
}

macro_rules! into_value {
    ($($variant:ident: $($from:ty => $made:expr),+;)+) => { $($(
        impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$variant(Some($made(value)))
            }
        }

        impl From<Option<$from>> for Value {
            fn from(value: Option<$from>) -> Self {
                Self::$variant(value.map($made))
            }
        }
    )+)+ };
}

into_value! {
    Text: &str => str::to_owned, &String => String::clone, String => std::convert::identity,
        Uuid => |id: Uuid| id.to_string();
    Int: i64 => std::convert::identity, u32 => i64::from, bool => i64::from;
    Bytes: &[u8] => <[u8]>::to_vec, &Vec<u8> => Vec::clone, Vec<u8> => std::convert::identity,
        TokenHash => |hash: TokenHash| hash.0.to_vec();
}
