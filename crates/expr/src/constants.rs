//! What is known when a configuration is loaded.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value as Json};

/// Names that expressions may use besides the roots, with values that do not
/// change: the `properties` of a route file.
///
/// A name that is also a root (`request`, `env`, …) means the root.
#[derive(Debug, Clone, Default)]
pub struct Constants {
    names: Map<String, Json>,
    files: bool,
    lenient: bool,
    witness: Option<Witness>,
}

/// Who is told of every file before it is read.
#[derive(Clone)]
struct Witness(Arc<dyn Fn(&Path) + Send + Sync>);

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Witness")
    }
}

impl Constants {
    /// The values by their names.
    pub fn new(names: Map<String, Json>) -> Self {
        Self {
            names,
            files: false,
            lenient: false,
            witness: None,
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

    /// Lets expressions name what there is not: it is null, and the expression
    /// tells of it ([`super::Expression::unknown`]).
    #[must_use]
    pub fn leniently(mut self) -> Self {
        self.lenient = true;
        self
    }

    /// Tells `witness` of every file that is read for the configuration, before
    /// it is read and whether or not it is there.
    #[must_use]
    pub fn witnessed(mut self, witness: Arc<dyn Fn(&Path) + Send + Sync>) -> Self {
        self.witness = Some(Witness(witness));
        self
    }

    /// Tells the witness that a file is about to be read.
    pub fn looks_at(&self, file: &Path) {
        if let Some(Witness(tell)) = &self.witness {
            tell(file);
        }
    }

    /// The value called `name`.
    pub fn get(&self, name: &str) -> Option<&Json> {
        self.names.get(name)
    }

    /// The names, in no particular order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// Whether what there is not is null.
    pub(super) fn is_lenient(&self) -> bool {
        self.lenient
    }

    /// Whether files may be read.
    pub(super) fn may_read_files(&self) -> bool {
        self.files
    }
}
