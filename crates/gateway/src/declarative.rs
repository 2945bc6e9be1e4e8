//! Declarative files (`_format_version: "3.0"`): documents to records.
//!
//! All files are read together, so that a record of one may refer to a record
//! of another by name. Whatever is wrong is told with file, line and key path,
//! all of it at once; a file with a mistake declares nothing.

mod collect;
mod export;
mod header;
mod link;
mod unsupported;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use uuid::Uuid;

use super::control::{ChangeError, DeclaredEntities, DeclaredError};
use super::entities::{Entities, Kind, Lines};
use doorward_core::model::schema::as_position;
use doorward_core::yaml::{Document, DocumentError, PathSegment};

pub use export::{document, export};

/// Most errors that are told at once.
const MAX_ERRORS: usize = 50;
/// Most of what is left out that is told.
const MAX_SKIPPED: usize = 1000;

/// What a set of files declares, and where.
#[derive(Debug)]
pub struct Declared {
    /// The records, owned by their files.
    pub entities: DeclaredEntities,
    documents: Vec<Document>,
    places: HashMap<(Kind, Uuid), Place>,
    warnings: Vec<collect::Finding>,
}

/// Where a record is declared.
#[derive(Clone, Debug)]
struct Place {
    /// Position of its document.
    document: usize,
    path: Vec<PathSegment>,
}

/// For whom documents are read.
#[derive(Clone, Copy)]
enum Reading<'a> {
    /// The files own what they declare.
    Files,
    /// The store is to own it; what is in force already keeps its ids and
    /// times.
    Store(&'a Entities),
}

/// Reads files, given as name and text.
///
/// `now_ms` becomes the records' times where the files do not give them. Pass
/// the same value each time in one process: a record that has not changed
/// then is equal to the one in force and keeps what was built from it.
///
/// # Errors
/// What is wrong, at most 50 findings, in the order of files and lines.
pub fn load(files: &[(PathBuf, String)], now_ms: i64) -> Result<Declared, Vec<DocumentError>> {
    let mut documents = Vec::new();
    let mut errors = Vec::new();
    for (file, text) in files {
        match Document::parse_records(text, file) {
            Ok(document) => documents.push(document),
            Err(error) => errors.push(error),
        }
    }
    read(documents, errors, now_ms, Reading::Files, false)
}

/// Reads a document that is to take the place of all that is stored. A record
/// without id that is in `current` under the same name or at the same place is
/// that one; one that says nothing new is left as it is. What nobody runs here is
/// left out if `skips`, and is an error otherwise.
///
/// # Errors
/// What is wrong, at most 50 findings, in the order of lines.
pub fn load_stored(
    document: Document,
    current: &Entities,
    now_ms: i64,
    skips: bool,
) -> Result<Declared, Vec<DocumentError>> {
    let reading = Reading::Store(current);
    let declared = read(vec![document], Vec::new(), now_ms, reading, skips)?;
    for warning in declared.warnings() {
        tracing::warn!("{warning}");
    }
    Ok(declared)
}

/// The plugins and lists of a document that nobody runs or serves here, at most
/// 1000: what [`load_stored`] leaves out if it may.
pub fn unsupported(mut document: Document) -> Vec<DocumentError> {
    let (mut pending, mut findings, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
    let value = document.take_value();
    collect::records(0, value, &mut pending, &mut findings, Some(&mut skipped));
    told(&[document], skipped, MAX_SKIPPED)
}

/// Findings with their lines, in the order of files and lines.
fn told(
    documents: &[Document],
    findings: Vec<collect::Finding>,
    most: usize,
) -> Vec<DocumentError> {
    let findings = findings.into_iter().take(most).map(|finding| {
        let Place { document, path } = finding.place;
        documents[document].error(&path, finding.message)
    });
    let mut errors: Vec<_> = findings.collect();
    errors.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    errors
}

fn read(
    mut documents: Vec<Document>,
    mut errors: Vec<DocumentError>,
    now_ms: i64,
    reading: Reading<'_>,
    skips: bool,
) -> Result<Declared, Vec<DocumentError>> {
    let mut findings = Vec::new();
    let (mut pending, mut skipped) = (Vec::new(), Vec::new());
    for (index, document) in documents.iter_mut().enumerate() {
        let value = document.take_value();
        let skipped = skips.then_some(&mut skipped);
        collect::records(index, value, &mut pending, &mut findings, skipped);
    }
    let link::Linked {
        mut entities,
        places,
        warnings,
    } = link::records(&documents, pending, now_ms, reading, &mut findings);
    let room = MAX_ERRORS.saturating_sub(errors.len());
    errors.extend(told(&documents, findings, room));
    if errors.is_empty() {
        if matches!(reading, Reading::Files) {
            entities.lines = Arc::new(lines(&documents, &places));
        }
        return Ok(Declared {
            entities,
            documents,
            places,
            warnings,
        });
    }
    errors.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    Err(errors)
}

/// The lines on which records begin.
fn lines(documents: &[Document], places: &HashMap<(Kind, Uuid), Place>) -> Lines {
    let of_documents: Vec<_> = documents.iter().map(Document::record_lines).collect();
    let lines = places.iter().filter_map(|(key, place)| {
        let line = of_documents[place.document].get(&place.path)?;
        Some((*key, *line))
    });
    lines.collect()
}

impl Declared {
    /// What the writer of the documents should know, though they are right.
    pub fn warnings(&self) -> Vec<DocumentError> {
        let located = self.warnings.iter().map(|finding| {
            let Place { document, path } = &finding.place;
            self.documents[*document].error(path, finding.message.clone())
        });
        located.collect()
    }

    /// A message about a member of a record, or of the whole if `member` is empty, with
    /// its place; `None` if no document declares the record.
    pub fn located(
        &self,
        kind: Kind,
        id: Uuid,
        member: &str,
        message: String,
    ) -> Option<DocumentError> {
        let place = self.places.get(&(kind, id))?;
        let mut path = place.path.clone();
        path.extend((!member.is_empty()).then(|| member.into()));
        Some(self.documents[place.document].error(&path, message))
    }

    /// Where in the files an entity is wrong, `None` if no file declares it.
    pub fn locate(&self, error: &DeclaredError) -> Option<DocumentError> {
        let kind = Kind::of_plural(error.kind)?;
        let place = self.places.get(&(kind, error.id))?;
        let document = &self.documents[place.document];
        let (field, message) = match &error.error {
            ChangeError::Invalid { field, message } => (field.clone(), message.clone()),
            ChangeError::ForeignKey { field, .. } => ((*field).to_owned(), error.error.to_string()),
            ChangeError::Unique { detail, .. } if detail.len() == 1 => (
                detail.keys().next().cloned().unwrap_or_default(),
                error.error.to_string(),
            ),
            ChangeError::Unique { .. }
            | ChangeError::Referenced { .. }
            | ChangeError::FileOwned { .. }
            | ChangeError::Store(_) => (String::new(), error.error.to_string()),
        };
        let mut path = place.path.clone();
        // In a dotted field positions count from one.
        path.extend(field.split('.').filter(|part| !part.is_empty()).map(
            |part| match as_position(part) {
                Some(position) => PathSegment::Index(position - 1),
                None => part.into(),
            },
        ));
        Some(document.error(&path, message))
    }
}
