//! Statements on their way to the database.

use super::bind::Value;
use super::database::Database;
use super::row::Row;
use super::statement::Statement;
use super::tx::Tx;
use super::{operation, taken, unavailable};
use crate::StoreError;

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
            ReadSource::Readers(database) => {
                let mut note = operation::begin(database.system(), self.origin, false);
                let row = database.one(self.text, &self.values).await;
                operation::settle(&mut note, &row);
                row
            }
        }
    }

    /// All rows.
    pub(super) async fn all(self, on: impl Into<ReadSource<'_>>) -> Result<Vec<Row>, StoreError> {
        #[cfg(any(test, feature = "testing"))]
        super::plans::note(&self.text, &self.values);
        match on.into() {
            ReadSource::Tx(tx) => tx.all(self.text, &self.values).await.map_err(unavailable),
            ReadSource::Readers(database) => {
                let mut note = operation::begin(database.system(), self.origin, false);
                let rows = database.all(self.text, &self.values).await;
                operation::settle(&mut note, &rows);
                rows
            }
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
