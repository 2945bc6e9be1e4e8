//! Tokens of values whose names mean something besides the environment.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::PathSegment;
use super::tokens::{Properties, Tokens};

/// Where the tokens of a value get what they stand for: names are looked up
/// among properties, then in the environment (`a.b` is `A_B`). Values that
/// are coercions (`{"$int": "&{n|6}"}`) become what they say.
pub struct Sources<'a>(Tokens<'a>);

impl<'a> Sources<'a> {
    /// Sources for a file of `directory`, from which `&{file:…}` starts.
    /// `properties` answers a text, nothing, or what is wrong with a property.
    pub fn new(
        directory: &'a Path,
        properties: Properties<'a>,
        environment: &'a dyn Fn(&str) -> Option<String>,
    ) -> Self {
        Self(Tokens {
            keeps_vaults: false,
            properties: Some(properties),
            environment: Some(environment),
            directory,
            coerces: true,
            met: RefCell::default(),
        })
    }

    /// Resolves the tokens of every text in `value`, which is found at `path`;
    /// what can't be resolved stays as it is and is told, by its path.
    pub fn resolve(
        &self,
        value: &mut Value,
        path: &[PathSegment],
    ) -> Vec<(Vec<PathSegment>, String)> {
        let mut errors = Vec::new();
        self.0.resolve_all(value, &mut path.to_vec(), &mut errors);
        let told = errors.into_iter();
        told.map(|(path, error)| (path, error.to_string()))
            .collect()
    }

    /// The texts that came from outside of the document, which no message may
    /// quote, and the files that were looked at.
    pub fn met(self) -> (Vec<String>, Vec<PathBuf>) {
        let met = self.0.met.into_inner();
        (met.secrets, met.files)
    }
}
