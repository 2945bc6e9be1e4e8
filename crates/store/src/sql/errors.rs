//! What errors of the drivers and damaged rows are to callers of the store.

use crate::StoreError;

pub(super) fn unavailable(error: sqlx::Error) -> StoreError {
    // PostgreSQL's `program_limit_exceeded`: a row is longer than its index takes.
    let code = error.as_database_error().and_then(|error| error.code());
    match code.as_deref() {
        Some("54000") => return StoreError::Unfit,
        // `SQLITE_INTERRUPT`, `query_canceled`: see `Database::listing`.
        Some("9" | "57014") => return StoreError::TooLong,
        _ => {}
    }
    StoreError::unavailable(error)
}

pub(super) fn silent() -> StoreError {
    StoreError::Unavailable("the database does not answer".to_owned(), None)
}

pub(super) fn damaged(what: impl std::fmt::Display) -> StoreError {
    StoreError::Damaged(what.to_string(), None)
}

/// A failed write: the name `what` is taken, or the database is ill.
pub(super) fn taken(error: sqlx::Error, what: &str) -> StoreError {
    match error.as_database_error() {
        Some(refused) if refused.is_unique_violation() => StoreError::Taken(what.to_owned()),
        _ => unavailable(error),
    }
}
