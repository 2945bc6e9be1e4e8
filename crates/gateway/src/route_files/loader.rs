//! The route files of one place, each with its last good version.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::build_context::{self, BuildContext, Prints};
use super::builder::{Findings, RouteFileBuilder};
use super::filters::{RunningFilter, RunningFilters};
use super::reading;
use super::report::{FileReport, State};
use crate::handler::FileRoute;
use doorward_core::yaml::{DocumentError, PathSegment};
#[cfg(test)]
use doorward_plugin_api::filter::Filter;

/// Most route files that are read.
const MAX_FILES: usize = 20_000;

/// A file and what was read of it.
pub struct Source {
    /// The file.
    pub file: PathBuf,
    /// Its text, or why it can't be read.
    pub text: Result<String, String>,
}

/// Where route files are.
pub(super) struct Site<'a> {
    pub(super) context: &'a BuildContext<'a>,
    /// The file of the router that they belong to.
    pub(super) outer: Option<&'a RouteFileBuilder<'a>>,
    /// Put in front of their ids.
    pub(super) prefix: String,
    /// Directories whose files are being read.
    pub(super) directories: Vec<PathBuf>,
}

/// The route files of one place.
#[derive(Default, Clone)]
pub(super) struct FileSet {
    entries: BTreeMap<PathBuf, Entry>,
}

/// The shelves of a file's routers.
#[derive(Default, Clone)]
pub(super) struct FileSets {
    before: HashMap<(PathBuf, usize), FileSet>,
    now: HashMap<(PathBuf, usize), FileSet>,
}

/// A route file.
#[derive(Clone)]
struct Entry {
    id: String,
    /// The version in force.
    good: Option<Good>,
    findings: Findings,
    /// Whether the version in force is that of the file as it is.
    current: bool,
    /// What its routers hold, as last looked at.
    file_sets: FileSets,
    /// What was read; `None`: it must be read again in any case.
    read: Option<([u8; 32], Prints)>,
}

/// A version of a route file that could be built.
#[derive(Clone)]
pub(super) struct Good {
    pub(super) route: Arc<FileRoute>,
    pub(super) height: usize,
    pub(super) weight: usize,
    /// The line of its name, if it says one.
    pub(super) named: Option<usize>,
    pub(super) filters: HashMap<String, RunningFilter>,
    pub(super) file_sets: FileSets,
    /// Its text, if it has routers: what they hold is read by it.
    pub(super) text: Option<Arc<str>>,
}

/// What has come of a text.
pub(super) struct Attempt {
    pub(super) id: String,
    pub(super) good: Option<Good>,
    pub(super) findings: Findings,
    pub(super) file_sets: FileSets,
}

impl FileSets {
    /// For a file whose last good version has these.
    pub(super) fn after(before: &FileSets) -> Self {
        Self {
            before: before.now.clone(),
            now: HashMap::new(),
        }
    }

    pub(super) fn before(&self, key: &(PathBuf, usize)) -> Option<FileSet> {
        self.before.get(key).cloned()
    }

    pub(super) fn put(&mut self, key: (PathBuf, usize), file_set: FileSet) {
        self.now.insert(key, file_set);
    }

    /// Forgets what was there before.
    pub(super) fn settled(mut self) -> Self {
        self.before.clear();
        self
    }
}

impl FileSet {
    /// Takes over `sources`: what is there no more goes, what is broken keeps
    /// its last good version.
    pub(super) fn load(&mut self, sources: Vec<Source>, site: &Site<'_>) {
        let mut before = std::mem::take(&mut self.entries);
        let mut pending = Vec::new();
        for source in sources {
            let old = before.remove(&source.file);
            let digest = source.text.as_ref().ok();
            let digest = digest.map(|text| build_context::digest(text.as_bytes()));
            if let Some(same) = old.as_ref().filter(|old| old.is_same(digest, site)) {
                pending.push(Pending::unchanged(source.file, same.clone()));
                continue;
            }
            let attempt = attempt(&source, old.as_ref(), site);
            let mut old = old;
            if attempt.good.is_none()
                && let Some(old) = &mut old
            {
                old.look_below(&source.file, site);
            }
            let prints = match site.outer {
                // Only what stands by itself is ever taken over unread.
                None => Some(site.context.take_prints()),
                Some(_) => None,
            };
            pending.push(Pending {
                file: source.file,
                attempt,
                old: old.and_then(|old| old.good),
                read: digest.zip(prints),
            });
        }
        self.settle(pending);
    }

    /// Gives every name and id to one file: who has it in force keeps it.
    fn settle(&mut self, pending: Vec<Pending>) {
        let mut reserved = ReservedNames::default();
        let stays = |pending: &Pending| match (&pending.attempt.good, &pending.old) {
            (Some(new), Some(old)) => new.route.name() == old.route.name(),
            (None, old) => old.is_some(),
            (Some(_), None) => false,
        };
        for pending in pending.iter().filter(|pending| stays(pending)) {
            let good = pending.attempt.good.as_ref().or(pending.old.as_ref());
            reserved.add(good.map(|good| &*good.route), &pending.file);
        }
        for mut pending in pending {
            if !stays(&pending)
                && let Some(good) = &pending.attempt.good
            {
                match reserved.conflict(good, &pending.file) {
                    None => reserved.add(Some(&good.route), &pending.file),
                    Some(error) => {
                        pending.attempt.findings.errors.push(error);
                        pending.attempt.good = None;
                        // Another file may give the name back.
                        pending.read = None;
                        let old = pending.old.take();
                        pending.old =
                            old.filter(|old| reserved.conflict(old, &pending.file).is_none());
                        reserved.add(pending.old.as_ref().map(|old| &*old.route), &pending.file);
                    }
                }
            }
            let (file, entry) = pending.entry();
            self.entries.insert(file, entry);
        }
    }

    /// The routes in force.
    pub(super) fn routes(&self) -> Vec<Arc<FileRoute>> {
        self.good().map(|good| good.route.clone()).collect()
    }

    /// Height and weight of the greatest route.
    pub(super) fn extent(&self) -> (usize, usize) {
        self.good().fold((0, 0), |(height, weight), good| {
            (height.max(good.height), weight.max(good.weight))
        })
    }

    fn good(&self) -> impl Iterator<Item = &Good> {
        self.entries
            .values()
            .filter_map(|entry| entry.good.as_ref())
    }

    /// The files that were last read.
    pub(super) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.entries.keys()
    }

    /// Everything that was looked at while these files were read.
    pub(super) fn prints(&self) -> impl Iterator<Item = &Prints> {
        let read = self
            .entries
            .values()
            .filter_map(|entry| entry.read.as_ref());
        read.map(|(_, prints)| prints)
    }

    /// The filters of a file, by its name.
    #[cfg(test)]
    pub(super) fn filters_of(&self, file: &str) -> Vec<Arc<dyn Filter>> {
        let mut entries = self.entries.iter();
        let found = entries.find(|(path, _)| path.ends_with(file));
        let good = found.and_then(|(_, entry)| entry.good.as_ref());
        good.map_or_else(Vec::new, |good| {
            good.filters
                .values()
                .map(|kept| kept.filter.clone())
                .collect()
        })
    }

    /// The filters of the route of this name in one of the routers.
    #[cfg(test)]
    pub(super) fn filters_of_nested(&self, name: &str) -> Vec<Arc<dyn Filter>> {
        let file_sets = self.good().flat_map(|good| good.file_sets.now.values());
        let good =
            file_sets.flat_map(|file_set| file_set.good().filter(|good| good.route.name() == name));
        good.flat_map(|good| good.filters.values().map(|kept| kept.filter.clone()))
            .collect()
    }

    /// Makes the next load read every file again.
    pub(super) fn distrust(&mut self) {
        self.entries
            .values_mut()
            .for_each(|entry| entry.read = None);
    }

    /// Appends what is to be said of the files, those of routers included.
    pub(super) fn report(&self, router: Option<&str>, out: &mut Vec<FileReport>) {
        let mut entries: Vec<(&PathBuf, &Entry)> = self.entries.iter().collect();
        entries.sort_by_key(|(_, entry)| (entry.name().to_owned(), entry.id.clone()));
        for (file, entry) in entries {
            out.push(FileReport {
                id: entry.id.clone(),
                name: entry.name().to_owned(),
                file: file.clone(),
                state: match (&entry.good, entry.current) {
                    (Some(_), true) => State::Loaded,
                    (Some(_), false) => State::Stale,
                    (None, _) => State::Refused,
                },
                router: router.map(str::to_owned),
                errors: entry.findings.errors.clone(),
                warnings: entry.findings.warnings.clone(),
            });
            let in_force = entry.good.as_ref().map(|good| &good.file_sets);
            let file_sets = &in_force.unwrap_or(&entry.file_sets).now;
            let mut file_sets: Vec<_> = file_sets.iter().collect();
            file_sets.sort_by_key(|(key, _)| (*key).clone());
            for (_, file_set) in file_sets {
                file_set.report(Some(&entry.id), out);
            }
        }
    }
}

impl Entry {
    fn name(&self) -> &str {
        let stem = || self.id.rsplit('/').next().unwrap_or_default();
        self.good
            .as_ref()
            .map_or_else(stem, |good| good.route.name())
    }

    /// Brings the routers of the version in force up to date, while the file
    /// itself is broken.
    fn look_below(&mut self, file: &Path, site: &Site<'_>) {
        let Some(text) = self.good.as_ref().and_then(|good| good.text.clone()) else {
            return;
        };
        let source = Source {
            file: file.to_owned(),
            text: Ok(text.to_string()),
        };
        let counted = site.context.files.get();
        let again = attempt(&source, Some(self), site);
        site.context.files.set(counted);
        // It may depend on what has changed meanwhile: then it stays as it is.
        if let Some(good) = again.good {
            self.good = Some(good);
        }
    }

    /// Whether reading the file again would come to the same.
    fn is_same(&self, digest: Option<[u8; 32]>, site: &Site<'_>) -> bool {
        let Some((read, prints)) = &self.read else {
            return false;
        };
        site.outer.is_none() && digest == Some(*read) && is_current(prints)
    }
}

/// Whether files and directories are as they were.
pub(super) fn is_current(prints: &Prints) -> bool {
    prints
        .iter()
        .all(|(path, was)| build_context::print(path) == *was)
}

/// A file between reading and settling.
struct Pending {
    file: PathBuf,
    attempt: Attempt,
    /// Its last good version.
    old: Option<Good>,
    read: Option<([u8; 32], Prints)>,
}

impl Pending {
    fn unchanged(file: PathBuf, entry: Entry) -> Self {
        Self {
            file,
            attempt: Attempt {
                id: entry.id,
                good: entry.good.clone().filter(|_| entry.current),
                findings: entry.findings,
                file_sets: entry.file_sets,
            },
            old: entry.good,
            read: entry.read,
        }
    }

    fn entry(self) -> (PathBuf, Entry) {
        let current = self.attempt.good.is_some();
        let entry = Entry {
            id: self.attempt.id,
            good: self.attempt.good.or(self.old),
            findings: self.attempt.findings,
            current,
            file_sets: self.attempt.file_sets,
            read: self.read,
        };
        (self.file, entry)
    }
}

/// Names and ids, and whose they are.
#[derive(Default)]
struct ReservedNames {
    names: HashMap<String, PathBuf>,
    ids: HashMap<String, PathBuf>,
}

impl ReservedNames {
    fn add(&mut self, route: Option<&FileRoute>, file: &Path) {
        if let Some(route) = route {
            self.names.insert(route.name().to_owned(), file.to_owned());
            self.ids.insert(route.id().to_owned(), file.to_owned());
        }
    }

    /// Why `file` can't have its name and id, if it can't.
    fn conflict(&self, good: &Good, file: &Path) -> Option<String> {
        let (name, id) = (good.route.name(), good.route.id());
        let (path, line, message) = if let Some(first) = self.names.get(name) {
            let message = format!("'{name}' is the name of {} already", first.display());
            (vec![PathSegment::from("name")], good.named, message)
        } else {
            let first = self.ids.get(id)?;
            let message = format!(
                "'{id}' is the id of {} already: rename one of the files",
                first.display()
            );
            (Vec::new(), None, message)
        };
        let error = DocumentError {
            file: file.to_owned(),
            line: line.or(Some(1)),
            path,
            message,
        };
        Some(error.to_string())
    }
}

fn attempt(source: &Source, old: Option<&Entry>, site: &Site<'_>) -> Attempt {
    let stem = source
        .file
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy();
    let id = format!("{}{stem}", site.prefix);
    let wrong = |message: String| Attempt {
        id: id.clone(),
        good: None,
        findings: Findings {
            errors: vec![format!("{}: {message}", source.file.display())],
            warnings: Vec::new(),
        },
        file_sets: FileSets::default(),
    };
    let files = &site.context.files;
    if files.get() >= MAX_FILES {
        return wrong(format!("more than {MAX_FILES} route files"));
    }
    files.set(files.get() + 1);
    let good = old.and_then(|old| old.good.as_ref());
    let text = match &source.text {
        Ok(text) => text,
        Err(message) => return wrong(message.clone()),
    };
    reading::read(
        text,
        &source.file,
        id.clone(),
        site,
        RunningFilters::after(good.map(|good| good.filters.clone()).unwrap_or_default()),
        good.map(|good| FileSets::after(&good.file_sets))
            .unwrap_or_default(),
    )
}
