//! Where records come from, with the line.

use super::answer::From;
use crate::entities::{Entities, Entity, Origin, Record};

/// Where a record comes from.
pub(super) fn of<T: Entity>(entities: &Entities, record: &Record<T>) -> From {
    match &record.origin {
        Origin::Store => From::Api,
        Origin::File(file) => From::File {
            file: file.display().to_string(),
            line: entities.line(record),
        },
    }
}
