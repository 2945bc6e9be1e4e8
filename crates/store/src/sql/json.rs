//! Documents and identifiers in columns of text.

use uuid::Uuid;

use crate::{Cause, StoreError};

pub(super) fn parse_id(text: &str) -> Result<Uuid, StoreError> {
    text.parse().map_err(|error| {
        StoreError::Damaged(format!("`{text}` is no UUID"), Some(Cause::new(error)))
    })
}

pub(super) fn parse_doc<T: serde::de::DeserializeOwned>(doc: &str) -> Result<T, StoreError> {
    serde_json::from_str(doc).map_err(StoreError::damaged)
}

pub(super) fn write_doc<T: serde::Serialize>(doc: &T) -> Result<String, StoreError> {
    serde_json::to_string(doc).map_err(StoreError::damaged)
}

/// As [`write_doc`], for a record that statements look into: PostgreSQL takes no
/// JSON with U+0000 apart.
pub(super) fn write_searched_doc<T: serde::Serialize>(doc: &T) -> Result<String, StoreError> {
    let doc = write_doc(doc)?;
    // An even number of backslashes before it are characters of their own.
    let nul = doc.match_indices("\\u0000").any(|(at, _)| {
        let before = doc[..at].bytes().rev();
        before.take_while(|byte| *byte == b'\\').count() % 2 == 0
    });
    if nul {
        return Err(StoreError::Unfit);
    }
    Ok(doc)
}
