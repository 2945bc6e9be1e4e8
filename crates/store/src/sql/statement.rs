//! Statements in the words that SQLite and PostgreSQL share.
//!
//! The text comes from the program alone; every value is bound.

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use super::bind::Value;
use super::dialect::Dialect;
use super::tx::Tx;
use crate::StoreError;

/// A statement and its values: `$1` is the first one that was bound.
pub(super) struct Statement {
    pub(super) text: SqlStr,
    pub(super) values: Vec<Value>,
}

/// A statement of this text.
pub(super) fn sql(text: &'static str) -> Statement {
    Statement {
        text: text.into_sql_str(),
        values: Vec::new(),
    }
}

impl Statement {
    /// Binds the next value.
    pub(super) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
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

/// How many rows go into one statement: few texts, which stay prepared.
const ROWS: [usize; 4] = [64, 16, 4, 1];

/// Inserts `rows`, many a statement: `head` ends with `VALUES`, `row` gives the
/// values of a row, and `tail` follows the last one.
pub(super) async fn insert_all<R, const N: usize>(
    tx: &mut Tx,
    head: &'static str,
    rows: &[R],
    row: impl Fn(&R) -> Result<[Value; N], StoreError>,
    tail: &'static str,
) -> Result<(), StoreError> {
    let mut rest = rows;
    while let Some(&count) = ROWS.iter().find(|count| **count <= rest.len()) {
        let (chunk, behind) = rest.split_at(count);
        rest = behind;
        let mut insert = Builder::with_many_values(head, tx.dialect());
        for (position, values) in chunk.iter().map(&row).enumerate() {
            insert.push(if position == 0 { " (" } else { ", (" });
            for (column, value) in values?.into_iter().enumerate() {
                if column > 0 {
                    insert.push(", ");
                }
                insert.push_bind(value);
            }
            insert.push(")");
        }
        insert.push(tail);
        insert.build().run(tx).await?;
    }
    Ok(())
}
