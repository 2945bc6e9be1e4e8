//! Statements in the words that SQLite and PostgreSQL share.
//!
//! The text comes from the program alone; every value is bound.

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use super::bind::Value;
use super::dialect::Dialect;
use super::operation::Origin;

/// A statement and its values: `$1` is the first one that was bound.
pub(super) struct Statement {
    pub(super) text: SqlStr,
    pub(super) values: Vec<Value>,
    pub(super) origin: Origin,
}

/// A statement of this text.
#[track_caller]
pub(super) fn sql(text: &'static str) -> Statement {
    Statement {
        text: text.into_sql_str(),
        values: Vec::new(),
        origin: Origin::here(),
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
    origin: Origin,
}

impl Builder {
    #[track_caller]
    pub(super) fn new(text: &'static str) -> Self {
        Self {
            text: text.to_owned(),
            values: Vec::new(),
            numbered: true,
            origin: Origin::here(),
        }
    }

    /// For a statement with thousands of values: SQLite looks for each numbered
    /// one among all of them.
    #[track_caller]
    pub(super) fn with_many_values(text: &'static str, dialect: Dialect) -> Self {
        Self {
            numbered: dialect == Dialect::Postgres,
            ..Self::new(text)
        }
    }

    /// Says which resource it is about, where its file does not.
    pub(super) fn about(&mut self, resource: &'static str) -> &mut Self {
        self.origin = Origin::Resource(resource);
        self
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
            origin: self.origin,
        }
    }
}
