//! What is known when a configuration is loaded.

use serde_json::{Map, Value as Json};

/// Names that expressions may use besides the roots, with values that do not
/// change: the `properties` of a route file.
///
/// A name that is also a root (`request`, `env`, …) means the root.
#[derive(Debug, Clone, Default)]
pub struct Constants {
    names: Map<String, Json>,
    files: bool,
}

impl Constants {
    /// The values by their names.
    pub fn new(names: Map<String, Json>) -> Self {
        Self {
            names,
            files: false,
        }
    }

    /// Lets expressions read files with `read`, `readProperties` and
    /// `pemCertificate` while the configuration is loaded. For configuration
    /// that is itself a file of the operator; not for what comes by an API.
    #[must_use]
    pub fn with_files(mut self) -> Self {
        self.files = true;
        self
    }

    /// The value called `name`.
    pub fn get(&self, name: &str) -> Option<&Json> {
        self.names.get(name)
    }

    /// The names, in no particular order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// Whether files may be read.
    pub(super) fn may_read_files(&self) -> bool {
        self.files
    }
}
