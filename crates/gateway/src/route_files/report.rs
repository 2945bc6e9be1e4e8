//! What has become of the route files, for operators.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// In force as it is.
    Loaded,
    /// It is broken, and its last good version is in force.
    Stale,
    /// It is broken, and there is no route of it.
    Refused,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Loaded, Self::Stale, Self::Refused];

    /// As it is shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::Stale => "stale",
            Self::Refused => "refused",
        }
    }
}

/// A route file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileReport {
    /// Name of the file without its extension, below that of its router.
    pub id: String,
    /// Name of the route in force; of none, that of the file without its
    /// extension.
    pub name: String,
    /// The file.
    pub file: PathBuf,
    /// What became of it.
    pub state: State,
    /// The id of the route in which its router stands, for a nested one.
    pub router: Option<String>,
    /// What is wrong with it, each with file, line and key.
    pub errors: Vec<String>,
    /// What has no effect in it, likewise.
    pub warnings: Vec<String>,
}

/// All route files, in the order in which they are asked; those of routers
/// after the file of the router.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The files.
    pub files: Vec<FileReport>,
}

impl Report {
    /// How many files are in a state.
    pub fn count(&self, state: State) -> usize {
        self.files.iter().filter(|file| file.state == state).count()
    }

    /// Everything that is wrong.
    pub fn errors(&self) -> impl Iterator<Item = &String> {
        self.files.iter().flat_map(|file| &file.errors)
    }

    /// What the writers of the files should know.
    pub fn warnings(&self) -> impl Iterator<Item = &String> {
        self.files.iter().flat_map(|file| &file.warnings)
    }

    /// The report on a file, by id, or by name where no id is meant.
    pub fn find(&self, id: &str) -> Option<&FileReport> {
        let by_id = self.files.iter().find(|file| file.id == id);
        by_id.or_else(|| self.files.iter().find(|file| file.name == id))
    }
}

/// Where the latest report hangs.
#[derive(Debug, Clone, Default)]
pub struct Board(Arc<ArcSwap<Report>>);

impl Board {
    /// The latest report.
    pub fn read(&self) -> Arc<Report> {
        self.0.load_full()
    }

    pub(super) fn post(&self, report: Report) {
        self.0.store(Arc::new(report));
    }
}
