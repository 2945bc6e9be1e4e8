//! Route files, in the format of the imitated gateway: from directories to the
//! tree of [`super::handler`].
//!
//! Each file stands for itself: one that is broken is reported by line and
//! key, and its last good version stays in force until it is mended or
//! removed. Filters whose declaration has not changed keep running, whatever
//! else has. Start with [`RouteFiles::load`]; `reading` has what a file says,
//! `objects` the types of objects, `loader` the last good versions.

mod authentication;
mod build_context;
mod builder;
mod classify;
mod evaluated;
mod fields;
mod filters;
mod handlers;
mod loader;
mod objects;
mod properties;
mod reading;
mod report;
mod router;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::handler::INTERNALS;
use crate::handler::{FileRoute, Routes};
use build_context::BuildContext;
use doorward_net::telemetry::traffic::Traffic;
use doorward_plugin_api::Parts;
use loader::{FileSet, Site};

pub use build_context::documents;
pub use classify::{Content, classify};
pub use loader::Source;
pub use report::{Board, FileReport, Report, State};

/// Longest text of a route file, in bytes.
pub const MAX_TEXT: usize = 4 << 20;

/// The route files of a process.
pub struct RouteFiles {
    parts: Parts,
    traffic: Arc<Traffic>,
    environment: fn(&str) -> Option<String>,
    internals: Vec<&'static str>,
    file_set: FileSet,
    board: Board,
}

impl RouteFiles {
    /// No files yet; `parts` are for their filters, `traffic` for counters.
    pub fn new(parts: Parts, traffic: Arc<Traffic>) -> Self {
        Self {
            parts,
            traffic,
            environment: |name| std::env::var(name).ok(),
            internals: INTERNALS.to_vec(),
            file_set: FileSet::default(),
            board: Board::default(),
        }
    }

    /// Where only these routers of the process are there to be asked.
    #[must_use]
    pub fn with_internals(mut self, internals: Vec<&'static str>) -> Self {
        self.internals = internals;
        self
    }

    /// Takes over `sources`, in the order in which they were named, and says
    /// in the log what has become of those that changed. A file that is not
    /// among them any more has no route any more.
    pub fn load(&mut self, sources: Vec<Source>) -> Arc<Routes> {
        let before = self.board.read();
        let routes = self.load_quietly(sources);
        let now = self.board.read();
        tell(&before, &now);
        if *before != *now {
            let [loaded, stale, refused] = State::ALL.map(|state| now.count(state));
            tracing::info!(loaded, stale, refused, "route files read");
        }
        routes
    }

    /// [`RouteFiles::load`] without a word in the log.
    pub fn load_quietly(&mut self, sources: Vec<Source>) -> Arc<Routes> {
        let mut context = BuildContext::new(&self.parts, &self.traffic, &self.environment);
        context.internals = &self.internals;
        let site = Site {
            context: &context,
            outer: None,
            prefix: String::new(),
            directories: Vec::new(),
        };
        self.file_set.load(sources, &site);
        let mut report = Report::default();
        self.file_set.report(None, &mut report.files);
        self.board.post(report);
        Arc::new(Routes::new(self.file_set.routes(), None))
    }

    /// What has become of the files.
    pub fn board(&self) -> Board {
        self.board.clone()
    }

    /// The files that were route files when they were last read.
    pub fn known(&self) -> HashSet<PathBuf> {
        self.file_set.files().cloned().collect()
    }

    /// Makes the next load read every file again, changed or not.
    pub fn distrust(&mut self) {
        self.file_set.distrust();
    }

    /// Whether what the files refer to (files, directories of routers) is as
    /// it was when they were read.
    pub fn is_current(&self) -> bool {
        self.file_set.prints().all(loader::is_current)
    }

    /// The directories in which something may change that the files refer to.
    pub fn directories(&self) -> BTreeSet<PathBuf> {
        let paths = self.file_set.prints().flat_map(|prints| prints.keys());
        paths.filter_map(|path| watched(path)).collect()
    }
}

/// The directory to watch for changes of `path`.
fn watched(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        return Some(path.to_owned());
    }
    let parent = path.parent()?;
    let parent = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    };
    parent.is_dir().then(|| parent.to_owned())
}

/// Says in the log what differs between two reports.
fn tell(before: &Report, now: &Report) {
    let known = before.files.iter();
    let known: HashMap<_, _> = known.map(|old| ((&old.id, &old.file), old)).collect();
    for file in &now.files {
        let old = known.get(&(&file.id, &file.file)).copied();
        if old == Some(file) {
            continue;
        }
        for warning in &file.warnings {
            if !old.is_some_and(|old| old.warnings.contains(warning)) {
                tracing::warn!("{warning}");
            }
        }
        for error in &file.errors {
            match file.state {
                State::Stale => tracing::error!(
                    "route file not loaded, its last good version stays in force: {error}"
                ),
                _ => tracing::error!("route file not loaded: {error}"),
            }
        }
        let mended = old.is_some_and(|old| old.state != State::Loaded);
        if mended && file.state == State::Loaded {
            tracing::info!(file = %file.file.display(), "route file is in force again");
        }
    }
}
