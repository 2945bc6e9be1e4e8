//! What route files are read with, and what was looked at meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::MAX_TEXT;
use super::properties::Properties;
use crate::handler::INTERNALS;
use doorward_core::yaml::Sources;
use doorward_net::telemetry::traffic::Traffic;
use doorward_plugin_api::Parts;

/// Longest part of a secret that a message may happen to contain, in bytes.
const COINCIDENCE: usize = 12;

/// What reading needs, and what it has come across.
pub(super) struct BuildContext<'a> {
    pub(super) parts: &'a Parts,
    pub(super) traffic: &'a Traffic,
    pub(super) environment: &'a dyn Fn(&str) -> Option<String>,
    /// The routers of this process that are there to be asked.
    pub(super) internals: &'a [&'static str],
    /// Depth of the object that is being built.
    pub(super) depth: Cell<usize>,
    /// Names of the objects that are being built.
    pub(super) trail: RefCell<Vec<String>>,
    /// Files read so far.
    pub(super) files: Cell<usize>,
    prints: Arc<Mutex<Prints>>,
    /// What no message may quote.
    secrets: RefCell<Vec<String>>,
}

/// Files and directories as they were.
pub(super) type Prints = BTreeMap<PathBuf, Print>;

/// What a file or directory looks like; `None`: it can't be read.
pub(super) type Print = Option<[u8; 32]>;

impl<'a> BuildContext<'a> {
    pub(super) fn new(
        parts: &'a Parts,
        traffic: &'a Traffic,
        environment: &'a dyn Fn(&str) -> Option<String>,
    ) -> Self {
        Self {
            parts,
            traffic,
            environment,
            internals: &INTERNALS,
            depth: Cell::new(0),
            trail: RefCell::default(),
            files: Cell::new(0),
            prints: Arc::default(),
            secrets: RefCell::default(),
        }
    }

    /// Takes in what `sources` have met.
    pub(super) fn met(&self, sources: Sources<'_>) {
        let (secrets, files) = sources.met();
        let secrets = secrets.into_iter().filter(|secret| !secret.is_empty());
        self.secrets.borrow_mut().extend(secrets);
        for file in files {
            let print = print(&file);
            self.prints.lock().insert(file, print);
        }
    }

    /// The text of a file.
    pub(super) fn read(&self, file: &Path) -> Result<String, String> {
        let bytes = bytes(file);
        let print = bytes.as_ref().ok().map(|bytes| digest(bytes));
        self.prints.lock().insert(file.to_owned(), print);
        text(bytes?)
    }

    /// The documents of a directory, by name.
    pub(super) fn list(&self, directory: &Path) -> Result<Vec<PathBuf>, String> {
        let found = documents(directory).map_err(|error| error.to_string());
        let print = found.as_ref().ok().map(|found| digest_of_names(found));
        self.prints.lock().insert(directory.to_owned(), print);
        found
    }

    /// What was looked at since this was asked before.
    pub(super) fn take_prints(&self) -> Prints {
        std::mem::take(&mut self.prints.lock())
    }

    /// Adds what was looked at at another time.
    pub(super) fn add_prints(&self, prints: Prints) {
        self.prints.lock().extend(prints);
    }

    /// Who takes down what is looked at beside the files themselves: secrets,
    /// and what expressions read.
    pub(super) fn witness(&self) -> Arc<dyn Fn(&Path) + Send + Sync> {
        let prints = self.prints.clone();
        Arc::new(move |file| {
            // Before it is read: what changes in between is a change.
            let print = print(file);
            prints.lock().insert(file.to_owned(), print);
        })
    }

    /// A message without what may be secret in it.
    pub(super) fn redacted(&self, message: &str) -> String {
        redacted(message, &self.secrets.borrow())
    }
}

/// The directory that holds `config/`, if `file` is somewhere in one.
pub(super) fn instance(file: &Path, environment: &dyn Fn(&str) -> Option<String>) -> Properties {
    let set = ["IG_INSTANCE_DIR", "OPENIG_BASE"];
    let set = set.iter().find_map(|name| environment(name));
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let mut around = absolute.ancestors().skip(1);
    let config = around.find(|directory| directory.file_name().is_some_and(|n| n == "config"));
    let found = config.and_then(Path::parent).map(Path::to_owned);
    let Some(base) = set.map(PathBuf::from).or(found) else {
        return Properties::default();
    };
    let below = |name: &str| base.join(name).display().to_string();
    let base = base.display().to_string();
    let names = json!({
        "ig": {"instance": {"dir": base}},
        "openig": {
            "base": base,
            "instanceDirectory": base,
            "baseDirectory": base,
            "configDirectory": below("config"),
            "logDirectory": below("logs"),
            "tempDirectory": below("tmp"),
        },
    });
    match names {
        Value::Object(names) => Properties::of_process(names),
        _ => Properties::of_process(Map::new()),
    }
}

/// What a file or directory looks like now.
pub(super) fn print(path: &Path) -> Print {
    if path.is_dir() {
        return documents(path).ok().map(|found| digest_of_names(&found));
    }
    bytes(path).ok().map(|bytes| digest(&bytes))
}

pub(super) fn read(file: &Path) -> Result<String, String> {
    text(bytes(file)?)
}

fn text(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|_| "is not a text in UTF-8".to_owned())
}

fn bytes(file: &Path) -> Result<Vec<u8>, String> {
    let about = std::fs::metadata(file).map_err(|error| error.to_string())?;
    if !about.is_file() {
        return Err("is not a regular file".to_owned());
    }
    if about.len() > MAX_TEXT as u64 {
        return Err(format!("is longer than {MAX_TEXT} bytes"));
    }
    std::fs::read(file).map_err(|error| error.to_string())
}

/// The regular files directly in `directory` that end in `.json`, `.yaml` or
/// `.yml`, neither hidden nor a backup, by name.
///
/// # Errors
/// If the directory can't be read.
pub fn documents(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let file = entry?.path();
        if is_document(&file) && file.is_file() {
            found.push(file);
        }
    }
    found.sort();
    Ok(found)
}

fn is_document(file: &Path) -> bool {
    let hidden = file
        .file_name()
        .is_none_or(|name| name.to_string_lossy().starts_with('.'));
    let extension = file.extension().and_then(|extension| extension.to_str());
    !hidden && matches!(extension, Some("yaml" | "yml" | "json"))
}

pub(super) fn digest(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    out
}

fn digest_of_names(files: &[PathBuf]) -> [u8; 32] {
    let names: Vec<_> = files.iter().map(|file| file.to_string_lossy()).collect();
    digest(names.join("\n").as_bytes())
}

fn redacted(message: &str, secrets: &[String]) -> String {
    let mut message = message.to_owned();
    for secret in secrets {
        if secret.len() >= 4 {
            let escaped = secret.escape_debug().to_string();
            for form in [secret.clone(), secret.trim().to_owned(), escaped] {
                message = without(&message, &form);
            }
        } else {
            // So short a text may stand in a message by chance.
            for quote in ['\'', '"', '`'] {
                let quoted = format!("{quote}{secret}{quote}");
                message = message.replace(&quoted, &format!("{quote}…{quote}"));
            }
        }
    }
    let lower = message.to_lowercase();
    let shows = |secret: &String| {
        let secret: Vec<char> = secret.to_lowercase().chars().collect();
        let mut parts = secret.windows(COINCIDENCE);
        parts.any(|part| lower.contains(&part.iter().collect::<String>()))
    };
    if secrets.iter().any(shows) {
        return "is not valid: what its configuration token gives is not shown".to_owned();
    }
    message
}

/// `message` without `secret`, in whatever case.
fn without(message: &str, secret: &str) -> String {
    if secret.is_empty() || !secret.is_ascii() || !message.is_ascii() {
        return message.replace(secret, "…");
    }
    let (lower, wanted) = (message.to_ascii_lowercase(), secret.to_ascii_lowercase());
    let mut out = String::with_capacity(message.len());
    let mut from = 0;
    while let Some(at) = lower[from..].find(&wanted) {
        out.push_str(&message[from..from + at]);
        out.push('…');
        from += at + wanted.len();
    }
    out.push_str(&message[from..]);
    out
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use doorward_core::clock::Clock;
    use doorward_net::http::outbound::Outbound;
    use doorward_net::telemetry::Metrics;
    use std::sync::Arc;

    /// Parts of a process that ends with the test.
    pub(crate) fn parts() -> Parts {
        let outbound = Arc::new(Outbound::new());
        Parts::new(Clock::system(), outbound, Arc::new(Metrics::default()))
    }

    pub(crate) fn context(
        environment: &'static dyn Fn(&str) -> Option<String>,
    ) -> BuildContext<'static> {
        let parts = Box::leak(Box::new(parts()));
        let traffic = Box::leak(Box::new(Traffic::default()));
        BuildContext::new(parts, traffic, environment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_shows_what_came_from_a_token() {
        let secrets = ["S3cret-value-of-a-token".to_owned(), "six".to_owned()];
        for (message, shown) in [
            (
                "'s3cret-VALUE-of-a-token' is no duration",
                "'…' is no duration",
            ),
            ("`six` is no number, sixty is", "`…` is no number, sixty is"),
            (
                "unknown unit \"cret-value-of\"",
                "is not valid: what its configuration token gives is not shown",
            ),
            ("expected a number", "expected a number"),
        ] {
            assert_eq!(redacted(message, &secrets), shown);
        }
    }

    #[test]
    fn the_instance_is_the_directory_around_config() {
        let file = Path::new("/srv/ig/config/routes/a.json");
        let found = instance(file, &|_| None);
        assert_eq!(found.text("ig.instance.dir").as_deref(), Some("/srv/ig"));
        assert_eq!(found.text("openig.base").as_deref(), Some("/srv/ig"));
        let set = instance(file, &|name| {
            (name == "OPENIG_BASE").then(|| "/x".to_owned())
        });
        assert_eq!(set.text("ig.instance.dir").as_deref(), Some("/x"));
        let elsewhere = instance(Path::new("/srv/routes/a.json"), &|_| None);
        assert_eq!(elsewhere.text("ig.instance.dir"), None);
    }
}
