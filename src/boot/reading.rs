//! The files that the configuration names: declared entities and route files.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use super::BootError;
use crate::config::{self, Config, ConfigError};
use doorward_core::model::service::{Protocol, Service};
use doorward_gateway::declarative::{self, Declared};
use doorward_gateway::route_files::{self, Content, Source, classify};

/// How long a thread that read files stays: what it freed is given back to the
/// system when it ends, unless that was freed only a moment ago.
const AFTERMATH: Duration = Duration::from_millis(100);

/// What is in the files.
pub(super) struct Read {
    /// The entities, all of them or none.
    pub(super) declared: Result<Declared, BootError>,
    /// The route files, each for itself.
    pub(super) routes: Vec<Source>,
    /// What the writer of the files should know.
    pub(super) warnings: Vec<String>,
}

/// What leads to the identity provider in this process.
const PROVIDER: &str = "identity";

impl Read {
    /// Whether a service or a route file leads to the identity provider.
    pub(super) fn leads_to_provider(&self) -> bool {
        let declared = self.declared.as_ref().ok();
        let mut services = declared
            .into_iter()
            .flat_map(|declared| declared.entities.of::<Service>())
            .map(|record| &record.value);
        let address = format!("internal://{PROVIDER}");
        let names = |source: &Source| {
            source
                .text
                .as_ref()
                .is_ok_and(|text| text.contains(&address))
        };
        services.any(is_provider) || self.routes.iter().any(names)
    }
}

/// Whether a service is the identity provider in this process.
pub(super) fn is_provider(service: &Service) -> bool {
    service.protocol == Protocol::Internal && service.host == PROVIDER
}

/// Reads the files of `config`; those of `known` were route files before.
///
/// They are read on a thread of its own: reading takes several times the memory
/// of what comes of it, which the allocator would keep for a thread that stays.
pub(super) fn read(
    config: &Config,
    now_ms: i64,
    known: HashSet<PathBuf>,
) -> Result<Read, BootError> {
    let entities = config.entities.clone();
    let again = known.clone();
    let (tell, told) = mpsc::sync_channel(1);
    let reader = std::thread::Builder::new().name("reader".to_owned());
    let spawned = reader.spawn(move || {
        // Who asked waits for the answer.
        let _ = tell.send(read_here(&entities, now_ms, &known));
        std::thread::sleep(AFTERMATH);
    });
    match spawned.ok().and_then(|_| told.recv().ok()) {
        Some(answer) => answer,
        None => read_here(&config.entities, now_ms, &again),
    }
}

fn read_here(
    entities: &[PathBuf],
    now_ms: i64,
    known: &HashSet<PathBuf>,
) -> Result<Read, BootError> {
    let (mut files, mut routes) = (Vec::new(), Vec::new());
    let (mut unread, mut warnings) = (Vec::new(), Vec::new());
    for file in entity_files(entities)? {
        let before = known.contains(&file);
        let text = match config::read(&file) {
            Ok(text) => text,
            Err(error) => {
                unread.push((file, error));
                continue;
            }
        };
        match classify(&text, &file, before) {
            Content::Entities => files.push((file, text)),
            Content::Route => {
                let text = Ok(text);
                routes.push(Source { file, text });
            }
            Content::Settings => warnings.push(format!(
                "{}: settings of another gateway's process have no effect here",
                file.display()
            )),
        }
    }
    let mut declared = declarative::load(&files, now_ms).map_err(BootError::Entities);
    for (file, error) in unread {
        let named = entities.contains(&file);
        if known.contains(&file) || !(named || may_declare(&file, &files)) {
            let text = Err(match error {
                ConfigError::Read { source, .. } => source.to_string(),
                error => error.to_string(),
            });
            routes.push(Source { file, text });
        } else {
            // Without it, what it declares would be gone, a guard for instance.
            declared = declared.and(Err(error.into()));
        }
    }
    Ok(Read {
        declared,
        routes,
        warnings,
    })
}

/// Whether a file that can't be read may be one of entities: it is marked as
/// one, or nothing of it can be seen and its directory holds others.
fn may_declare(file: &Path, entities: &[(PathBuf, String)]) -> bool {
    match std::fs::read(file) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).contains("_format_version"),
        Err(_) => entities
            .iter()
            .any(|(other, text)| other.parent() == file.parent() && !text.trim().is_empty()),
    }
}

/// The files that `entities` names: files as they are, of directories what
/// ends in `.yaml`, `.yml` or `.json`, by name.
pub(super) fn entity_files(entities: &[PathBuf]) -> Result<Vec<PathBuf>, ConfigError> {
    let mut files = Vec::new();
    for path in entities {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let found = route_files::documents(path).map_err(|source| ConfigError::Read {
            file: path.clone(),
            source,
        });
        files.append(&mut found?);
    }
    Ok(files)
}
