//! Configuration documents: YAML (or JSON) text to JSON values, with every
//! error told as `FILE:LINE: key.path: message`.
//!
//! The only module that knows the YAML library. Whatever the text, parsing is
//! bounded in depth, in size and in what aliases may expand to; duplicate keys
//! are refused. Configuration tokens (`&{orders.secret}`) are resolved here,
//! once, and always to text: typing is the business of whoever reads the value.

mod coerce;
mod findings;
mod parse;
mod record_lines;
mod relaxed;
mod sources;
mod tokens;

pub use record_lines::RecordFile;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;

pub use crate::model::key_path::PathSegment;
use crate::model::key_path::render;
use crate::model::secret;
use crate::model::serde_message;
use findings::Findings;
use parse::Syntax;
pub use sources::Sources;
use tokens::Tokens;

/// Longest text of a document, in bytes.
pub const MAX_TEXT: usize = 64 << 20;

/// Most errors of a document that are told at once.
const MAX_ERRORS: usize = 50;

/// A document that was read from a file.
#[derive(Clone)]
pub struct Document {
    file: PathBuf,
    text: String,
    syntax: Syntax,
    value: Value,
    /// Paths of the values that came out of tokens and so may be secret.
    resolved: HashSet<Vec<PathSegment>>,
}

/// What is wrong with a document, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct DocumentError {
    /// The document's file.
    pub file: PathBuf,
    /// The line, counted from one; `None` when it can't be told.
    pub line: Option<usize>,
    /// The value that is wrong; empty: the document as a whole.
    pub path: Vec<PathSegment>,
    /// What is wrong with it.
    pub message: String,
}

impl Document {
    /// Parses the text of `file` and resolves its configuration tokens from
    /// the environment and from files beside it.
    ///
    /// A file name ending in `.json` makes it JSON, anything else YAML. An
    /// empty document is an empty mapping.
    ///
    /// # Errors
    /// The first thing that is wrong with the text, the first secret that is a
    /// template of another program, or the first token that can't be resolved.
    pub fn parse(text: &str, file: &Path) -> Result<Self, DocumentError> {
        Self::parse_with(text, file, &|name| std::env::var(name).ok())
    }

    /// [`Document::parse`] with `environment` in place of the process's own.
    ///
    /// # Errors
    /// As [`Document::parse`].
    pub fn parse_with(
        text: &str,
        file: &Path,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, DocumentError> {
        Self::parse_keeping(text, file, environment, false)
    }

    /// [`Document::parse`] of a file of records: references to vaults stay as they
    /// are, for whoever knows which fields may have them.
    ///
    /// # Errors
    /// As [`Document::parse`].
    pub fn parse_records(text: &str, file: &Path) -> Result<Self, DocumentError> {
        Self::parse_keeping(text, file, &|name| std::env::var(name).ok(), true)
    }

    fn parse_keeping(
        text: &str,
        file: &Path,
        environment: &dyn Fn(&str) -> Option<String>,
        keeps_vaults: bool,
    ) -> Result<Self, DocumentError> {
        let mut document = Self::parse_unresolved(text, file)?;
        document.refuse_templates()?;
        document.resolve(&Tokens {
            keeps_vaults,
            properties: None,
            environment: Some(environment),
            directory: file.parent().unwrap_or(Path::new("")),
            coerces: false,
            met: RefCell::default(),
        })?;
        Ok(document)
    }

    /// Parses a text of records that came from elsewhere: it may not ask for what this
    /// machine holds, so a configuration token in it is an error. References to vaults
    /// stay as they are.
    ///
    /// # Errors
    /// As [`Document::parse`].
    pub fn parse_foreign(text: &str, name: &Path) -> Result<Self, DocumentError> {
        let mut document = Self::parse_unresolved(text, name)?;
        document.resolve(&Tokens {
            keeps_vaults: true,
            properties: None,
            environment: None,
            directory: Path::new(""),
            coerces: false,
            met: RefCell::default(),
        })?;
        Ok(document)
    }

    /// Parses the text of `file` and leaves its configuration tokens as they
    /// are, for [`Sources::resolve`].
    ///
    /// # Errors
    /// The first thing that is wrong with the text.
    pub fn parse_unresolved(text: &str, file: &Path) -> Result<Self, DocumentError> {
        let syntax = Syntax::of(file);
        // A byte order mark that some editors write is not part of the document.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let fail = |line, message| DocumentError {
            file: file.to_owned(),
            line,
            path: Vec::new(),
            message,
        };
        if text.len() > MAX_TEXT {
            return Err(fail(None, format!("longer than {MAX_TEXT} bytes")));
        }
        let value = parse::value(text, syntax).map_err(|error| fail(error.line, error.message))?;
        Ok(Self {
            file: file.to_owned(),
            text: text.to_owned(),
            syntax,
            value,
            resolved: HashSet::new(),
        })
    }

    /// As [`Document::parse_unresolved`]; JSON may have comments, texts over
    /// several lines and single quotes.
    ///
    /// # Errors
    /// The first thing that is wrong with the text.
    pub fn parse_relaxed(text: &str, file: &Path) -> Result<Self, DocumentError> {
        match Self::parse_unresolved(text, file) {
            Err(_) if Syntax::of(file) == Syntax::Json && text.len() <= MAX_TEXT => {
                Self::parse_unresolved(&relaxed::strict(text), file)
            }
            outcome => outcome,
        }
    }

    /// Whether the text at `path` is not what stands in the file: it came from a token,
    /// or was marked as none.
    pub fn is_substituted(&self, path: &[PathSegment]) -> bool {
        self.resolved.contains(path)
    }

    /// What a reference to a vault stands for in a file, or why it may not be there.
    ///
    /// # Errors
    /// Words for who has written it.
    pub fn resolve_reference(text: &str, is_foreign: bool) -> Result<String, String> {
        let environment = |name: &str| std::env::var(name).ok();
        let tokens = Tokens {
            keeps_vaults: false,
            properties: None,
            environment: (!is_foreign).then_some(&environment),
            directory: Path::new(""),
            coerces: false,
            met: RefCell::default(),
        };
        tokens.reference(text).map_err(|error| error.to_string())
    }

    /// The document, tokens resolved.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Takes the value out, to read it without a copy; lines can still be told.
    pub fn take_value(&mut self) -> Value {
        std::mem::take(&mut self.value)
    }

    /// The file it came from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The line on which the value at `path` begins (for a mapping's entry:
    /// the line of its key), counted from one. Of a path that leads nowhere,
    /// the line of its nearest existing parent.
    ///
    /// Reads the text again, which is fine for errors and nothing else.
    pub fn line_of(&self, path: &[PathSegment]) -> Option<usize> {
        (0..=path.len())
            .rev()
            .find_map(|depth| parse::line_of(&self.text, self.syntax, &path[..depth]))
    }

    /// The lines of all mappings in lists and of the realms, by their paths; reads the text
    /// again, once.
    pub fn record_lines(&self) -> HashMap<Vec<PathSegment>, usize> {
        record_lines::of(&self.text)
    }

    /// An error about the value at `path`.
    pub fn error(&self, path: &[PathSegment], message: impl Into<String>) -> DocumentError {
        DocumentError {
            file: self.file.clone(),
            line: self.line_of(path),
            path: path.to_vec(),
            message: message.into(),
        }
    }

    /// Reads the document as a `T`.
    ///
    /// # Errors
    /// The first value that does not fit, with its line and key path. A value
    /// that came from a token is never quoted.
    pub fn deserialize<T: DeserializeOwned>(&self) -> Result<T, DocumentError> {
        serde_path_to_error::deserialize(&self.value)
            .map_err(|error| self.misfit(&segments(error.path()), &error.inner().to_string()))
    }

    /// As [`Document::deserialize`], but tells all that does not fit, as far as
    /// one mistake does not hide another.
    ///
    /// # Errors
    /// The values that do not fit, by their lines.
    pub fn deserialize_whole<T: DeserializeOwned>(&self) -> Result<T, Vec<DocumentError>> {
        self.deserialize_checked(|_| Vec::new())
    }

    /// As [`Document::deserialize_whole`], and tells what `check` finds wrong in
    /// a value that fits: where, and what. It is asked again about the value
    /// without what it has told of, until it finds nothing.
    ///
    /// # Errors
    /// The values that do not fit or were found wrong, by their lines.
    pub fn deserialize_checked<T: DeserializeOwned>(
        &self,
        mut check: impl FnMut(&mut T) -> Vec<(Vec<PathSegment>, String)>,
    ) -> Result<T, Vec<DocumentError>> {
        let mut findings = Findings::of(&self.value);
        let mut errors: Vec<DocumentError> = Vec::new();
        while errors.len() < MAX_ERRORS {
            let wrong = match serde_path_to_error::deserialize::<_, T>(&findings.rest) {
                Ok(mut value) => {
                    let wrong = check(&mut value);
                    if wrong.is_empty() && errors.is_empty() {
                        return Ok(value);
                    }
                    let wrong = wrong.into_iter().map(|(path, message)| {
                        let path = findings.written(&path);
                        let is_new = !findings.may_be_consequence(&path, &message);
                        let error = is_new.then(|| self.error(&path, message));
                        (path, error)
                    });
                    wrong.collect::<Vec<_>>()
                }
                Err(error) => {
                    let path = findings.written(&segments(error.path()));
                    let message = error.inner().to_string();
                    let is_new = !findings.is_consequence(&path, &message);
                    let error = is_new.then(|| self.misfit(&path, &message));
                    vec![(path, error)]
                }
            };
            let mut is_less = false;
            for (path, error) in wrong {
                errors.extend(error);
                is_less |= findings.leave_out(&path);
            }
            if !is_less {
                break;
            }
        }
        errors.sort_by_key(|error| error.line);
        Err(errors)
    }

    /// An error about the value at `path`, from what the deserializer says.
    fn misfit(&self, path: &[PathSegment], message: &str) -> DocumentError {
        // Messages of its own quote no value; others may.
        let quotes = ![
            "invalid type: ",
            "invalid value: ",
            "missing field ",
            "unknown field ",
        ]
        .iter()
        .any(|own| message.starts_with(own));
        if quotes && self.resolved.contains(path) {
            return self.error(path, "invalid value");
        }
        self.error(path, serde_message::plain(message))
    }

    /// The value, to be changed before it is read; lines can still be told.
    pub fn value_mut(&mut self) -> &mut Value {
        &mut self.value
    }

    /// Refuses secrets that are written as variables of another program: what
    /// stands in the file would be the secret. What tokens stand for is not
    /// looked at.
    fn refuse_templates(&self) -> Result<(), DocumentError> {
        match template(&self.value, false, &mut Vec::new()) {
            None => Ok(()),
            Some(path) => Err(self.error(&path, secret::TEMPLATE)),
        }
    }

    fn resolve(&mut self, tokens: &Tokens<'_>) -> Result<(), DocumentError> {
        let mut value = std::mem::take(&mut self.value);
        let mut errors = Vec::new();
        tokens.resolve_all(&mut value, &mut Vec::new(), &mut errors);
        self.value = value;
        self.resolved = tokens.met.take().resolved.into_iter().collect();
        match errors.first() {
            None => Ok(()),
            Some((path, error)) => Err(self.error(path, error.to_string())),
        }
    }
}

/// A value as a YAML document that [`Document`] reads back as it is: what looks
/// like a configuration token is marked as none.
pub fn write(value: &Value) -> String {
    let mut value = value.clone();
    tokens::escape_all(&mut value);
    // JSON values have nothing that YAML can't say.
    serde_yaml::to_string(&value).unwrap_or_default()
}

impl fmt::Debug for Document {
    /// Without the values: they may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        if !self.path.is_empty() {
            write!(f, " {}:", render(&self.path))?;
        }
        write!(f, " {}", self.message)
    }
}

/// The path of the first secret in `value` that is a template; `secret`: whether
/// `value` is one.
fn template(value: &Value, secret: bool, path: &mut Vec<PathSegment>) -> Option<Vec<PathSegment>> {
    match value {
        Value::String(text) if secret && secret::is_template(text) => Some(path.clone()),
        Value::Array(list) => list.iter().enumerate().find_map(|(index, item)| {
            path.push(index.into());
            let found = template(item, secret, path);
            path.pop();
            found
        }),
        Value::Object(map) => map.iter().find_map(|(key, item)| {
            path.push(key.as_str().into());
            // Of addresses, those with a user may have a password.
            let address = key == "url" && item.as_str().is_some_and(|text| text.contains('@'));
            let found = template(item, address || secret::names_secret(key), path);
            path.pop();
            found
        }),
        _ => None,
    }
}

fn segments(path: &serde_path_to_error::Path) -> Vec<PathSegment> {
    use serde_path_to_error::Segment;
    path.iter()
        .filter_map(|segment| match segment {
            Segment::Seq { index } => Some(PathSegment::Index(*index)),
            Segment::Map { key } => Some(PathSegment::Key(key.clone())),
            Segment::Enum { .. } | Segment::Unknown => None,
        })
        .collect()
}
