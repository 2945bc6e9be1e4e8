//! From a configuration file to running parts, and from an edited file to
//! changed ones.

mod reload;
mod tls;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::clock::{self, Clock};
use crate::config::{self, Config, ConfigError};
use crate::gateway::control::{Control, DeclaredError};
use crate::gateway::declarative::{self, Declared};
use crate::gateway::internal;
use crate::gateway::resolve::Resolver;
use crate::gateway::snapshot::{Snapshot, Workshop};
use crate::http::outbound::Outbound;
use crate::identity::{Identity, IdentityError};
use crate::plugins::Parts;
use crate::server::ServerError;
use crate::shared::{Redis, RedisConfigError};
use crate::store::{self, Store, StoreError};
use crate::telemetry::Telemetry;
use crate::yaml::DocumentError;

pub use reload::{Reloader, Seen, watch};
pub use tls::TlsSections;

/// Why nothing could be started.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The configuration file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Declared entities, one finding a line.
    #[error("{}", lines(.0))]
    Entities(Vec<DocumentError>),
    /// An entity that can't be in force.
    #[error("{0}")]
    Refused(String),
    /// Certificate files.
    #[error(transparent)]
    Tls(#[from] ServerError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The identity provider.
    #[error("identity: {0}")]
    Identity(#[from] IdentityError),
    /// The shared Redis.
    #[error("redis: {0}")]
    Redis(#[from] RedisConfigError),
    /// The base address of the identity provider.
    #[error("identity.base_url: {0}")]
    BaseUrl(#[from] url::ParseError),
}

impl From<DeclaredError> for BootError {
    fn from(error: DeclaredError) -> Self {
        Self::Refused(error.to_string())
    }
}

fn lines(errors: &[DocumentError]) -> String {
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// The running parts, before anybody can connect.
pub struct Opened {
    /// Owner of the entities.
    pub control: Arc<Control>,
    /// The identity provider, if the file asks for one.
    pub identity: Option<Arc<Identity>>,
    /// Finds the addresses of hosts.
    pub resolver: Arc<Resolver>,
    /// Every counter.
    pub telemetry: Telemetry,
    /// The durable store.
    pub store: Arc<dyn Store>,
    /// Time of the start: default for times of declared entities.
    pub started_ms: i64,
}

/// Opens the store, the identity provider and the gateway.
///
/// # Errors
/// [`BootError`]: what in which file, or which part.
pub async fn open(config: &Config, clock: &Clock) -> Result<Opened, BootError> {
    let started_ms = clock.now_ms();
    let declared = declared(config, started_ms)?;
    let store = store::open(&config.store.0).await?;
    let outbound = Arc::new(Outbound::new());
    let mut internals = HashMap::from([("echo", internal::echo())]);
    let mut identity = None;
    if let Some(section) = &config.identity {
        let open = Identity::open(section.clone(), store.clone(), clock.clone()).await?;
        let router = open.router();
        outbound.register_local(&section.base_url.parse()?, router.clone());
        internals.insert("identity", router);
        identity = Some(Arc::new(open));
    }
    let telemetry = Telemetry::default();
    telemetry.config_current.set(1);
    let mut workshop = workshop(config, clock, outbound, &telemetry, internals);
    let resolver = workshop.resolver.clone();
    if let Some(section) = &config.redis {
        workshop.parts.redis = Some(Redis::open(section, &telemetry.metrics)?);
    }
    let control = Control::open(workshop, store.clone(), declared.entities.clone())
        .await
        .map_err(|error| refused(&declared, &error))?;
    let live = control.live();
    telemetry
        .targets
        .from(move || live.load().balancers.numbers(clock::monotonic_ns()));
    Ok(Opened {
        control,
        identity,
        resolver,
        telemetry,
        store,
        started_ms,
    })
}

/// The entities of files and store, with nothing running.
///
/// # Errors
/// As [`open`].
pub async fn entities(config: &Config, clock: &Clock) -> Result<Arc<Control>, BootError> {
    let declared = declared(config, clock.now_ms())?;
    let store = store::open(&config.store.0).await?;
    let workshop = bare_workshop(config, clock)?;
    Control::open(workshop, store, declared.entities.clone())
        .await
        .map_err(|error| refused(&declared, &error))
}

/// Whether `config` could be started, without opening anything.
///
/// # Errors
/// What [`open`] would refuse, as far as the files alone tell.
pub fn check(config: &Config, clock: &Clock) -> Result<(), BootError> {
    let declared = declared(config, clock.now_ms())?;
    let workshop = bare_workshop(config, clock)?;
    Control::check(&workshop, declared.entities.clone()).map_err(|e| refused(&declared, &e))
}

/// For entities that no request will meet.
fn bare_workshop(config: &Config, clock: &Clock) -> Result<Workshop, BootError> {
    let mut internals = HashMap::from([("echo", internal::echo())]);
    if let Some(section) = &config.identity {
        Identity::check(section.clone())?;
        internals.insert("identity", axum::Router::new());
    }
    let outbound = Arc::new(Outbound::new());
    Ok(workshop(
        config,
        clock,
        outbound,
        &Telemetry::default(),
        internals,
    ))
}

/// The snapshot that an instance started with `config` now would run on.
/// Nothing is opened for writing, and nothing is created.
///
/// # Errors
/// What [`open`] would refuse.
pub async fn compile(config: &Config, clock: &Clock) -> Result<Snapshot, BootError> {
    let declared = declared(config, clock.now_ms())?;
    let mut internals = HashMap::from([("echo", internal::echo())]);
    if config.identity.is_some() {
        internals.insert("identity", axum::Router::new());
    }
    let outbound = Arc::new(Outbound::new());
    let workshop = workshop(config, clock, outbound, &Telemetry::default(), internals);
    let store = store::open_existing(&config.store.0).await?;
    Control::compile(&workshop, store.as_deref(), declared.entities.clone())
        .await
        .map_err(|error| refused(&declared, &error))
}

fn workshop(
    config: &Config,
    clock: &Clock,
    outbound: Arc<Outbound>,
    telemetry: &Telemetry,
    internals: HashMap<&'static str, axum::Router>,
) -> Workshop {
    Workshop {
        parts: Parts::new(clock.clone(), outbound, telemetry.metrics.clone()),
        internals,
        traffic: telemetry.traffic.clone(),
        resolver: Resolver::new(&config.proxy.dns, telemetry.dns.clone()),
    }
}

fn refused(declared: &Declared, error: &DeclaredError) -> BootError {
    BootError::Refused(match declared.locate(error) {
        Some(located) => located.to_string(),
        None => error.to_string(),
    })
}

/// How long a thread that read files stays: what it freed is given back to the
/// system when it ends, unless that was freed only a moment ago.
const AFTERMATH: Duration = Duration::from_millis(100);

/// What the files of `config` declare.
///
/// They are read on a thread of its own: reading takes several times the memory
/// of what comes of it, which the allocator would keep for a thread that stays.
fn declared(config: &Config, now_ms: i64) -> Result<Declared, BootError> {
    let entities = config.entities.clone();
    let (tell, told) = mpsc::sync_channel(1);
    let reader = std::thread::Builder::new().name("reader".to_owned());
    let spawned = reader.spawn(move || {
        // Who asked waits for the answer.
        let _ = tell.send(read_declared(&entities, now_ms));
        std::thread::sleep(AFTERMATH);
    });
    match spawned.ok().and_then(|_| told.recv().ok()) {
        Some(answer) => answer,
        None => read_declared(&config.entities, now_ms),
    }
}

fn read_declared(entities: &[PathBuf], now_ms: i64) -> Result<Declared, BootError> {
    let mut files = Vec::new();
    for file in entity_files(entities)? {
        let text = config::read(&file)?;
        files.push((file, text));
    }
    declarative::load(&files, now_ms).map_err(BootError::Entities)
}

/// The files that `entities` names: files as they are, of directories what
/// ends in `.yaml`, `.yml` or `.json`, by name.
fn entity_files(entities: &[PathBuf]) -> Result<Vec<PathBuf>, ConfigError> {
    let mut files = Vec::new();
    for path in entities {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let error = |source| ConfigError::Read {
            file: path.clone(),
            source,
        };
        let mut found = Vec::new();
        for entry in std::fs::read_dir(path).map_err(error)? {
            let file = entry.map_err(error)?.path();
            if is_document(&file) && file.is_file() {
                found.push(file);
            }
        }
        found.sort();
        files.append(&mut found);
    }
    Ok(files)
}

/// Whether a directory's file is meant for us: neither hidden nor a backup.
fn is_document(file: &Path) -> bool {
    let hidden = file
        .file_name()
        .is_none_or(|name| name.to_string_lossy().starts_with('.'));
    let extension = file.extension().and_then(|e| e.to_str());
    !hidden && matches!(extension, Some("yaml" | "yml" | "json"))
}
