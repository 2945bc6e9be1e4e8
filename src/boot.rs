//! From a configuration file to running parts, and from an edited file to
//! changed ones.

mod acme;
mod error;
mod reading;
mod reload;
mod tls;
mod warnings;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::config::Config;
use crate::upgrade::Handed;
use doorward_admin::ThisNode;
use doorward_audit::Audit;
use doorward_core::clock::{self, Clock};
use doorward_core::jose::vault::Vault;
use doorward_core::model::certificate::Certificate;
use doorward_core::x509;
use doorward_gateway::control::{ChangeError, Control, DeclaredError};
use doorward_gateway::declarative::Declared;
use doorward_gateway::entities::Entity as _;
use doorward_gateway::forward_auth;
use doorward_gateway::handler::Routes;
use doorward_gateway::resolve::Resolver;
use doorward_gateway::route_files::{RouteFiles, State};
use doorward_gateway::snapshot::{CompileContext, Snapshot};
use doorward_gateway::{internal, mount};
use doorward_identity::{Identity, IdentityError};
use doorward_net::http::outbound::{Authorities, Outbound};
use doorward_net::shared::Redis;
use doorward_net::telemetry::line_sink::LineSink;
use doorward_net::telemetry::{Telemetry, access_log};
use doorward_openid_connect::{Providers, Storages};
use doorward_plugin_api::Parts;
use doorward_plugins::delivery::Deliveries;
use doorward_plugins::oauth2::TokenStore;
use doorward_plugins::session::SessionStore;
use doorward_plugins::token_broker::Broker;
use doorward_store::{self as store, SharedSecretError, Store, shared_secret};
use reading::Read;

pub use acme::open as open_acme;
pub use error::BootError;
pub use reload::{FileDigests, Reloader, watch};
pub use tls::TlsSections;
pub use warnings::watch_certificates;

/// What an operator is told whose provider nobody can reach.
const NOT_MOUNTED: &str = "no service leads to the provider, so its addresses answer 404; \
    leave out `mount: false`, or declare a service with protocol `internal` and host `identity`, and a route to it (see \
    conf/demo-routes.yaml)";

/// The running parts, before anybody can connect.
pub struct Opened {
    /// Owner of the entities.
    pub control: Arc<Control>,
    /// The identity provider, if the file asks for one.
    pub identity: Option<Arc<Identity>>,
    /// The token broker.
    pub broker: Arc<Broker>,
    /// The queues of plugins that deliver.
    pub deliveries: Arc<Deliveries>,
    /// Finds the addresses of hosts.
    pub resolver: Arc<Resolver>,
    /// Sends requests to other servers.
    pub outbound: Arc<Outbound>,
    /// Every counter.
    pub telemetry: Telemetry,
    /// The durable store.
    pub store: Arc<Store>,
    /// The audit log.
    pub audit: Audit,
    /// The route files, with their last good versions.
    pub route_files: Arc<Mutex<RouteFiles>>,
    /// What the console seals changes with that it may undo, and versions of records are
    /// keyed with: the store's, so that they outlive the process and are known to all nodes.
    pub undo_secret: Vec<u8>,
    /// This process among those that serve the store.
    pub node: ThisNode,
    /// Time of the start: default for times of declared entities.
    pub started_ms: i64,
}

/// Opens the store; with `handed` another process works on it still.
async fn open_store(config: &Config, handed: Option<&mut Handed>) -> Result<Arc<Store>, BootError> {
    let url = &config.store.0;
    match handed {
        Some(handed) => store::open_for_successor(url, handed.lock.take())
            .await
            .map_err(BootError::Beside),
        None => Ok(store::open_for_server(url).await?),
    }
}

/// Opens the store, the identity provider and the gateway. `handed` is what the process
/// has left that this one succeeds.
///
/// # Errors
/// [`BootError`]: what in which file, or which part.
pub async fn open(
    config: &Config,
    clock: &Clock,
    handed: Option<&mut Handed>,
) -> Result<Opened, BootError> {
    let mut files = FileContent::default();
    let opened = Box::pin(open_parts(config, clock, handed, &mut files)).await;
    if opened.is_err() {
        let sources = warnings::Sources {
            config,
            files: files.warnings,
            declared: files.declared.as_ref(),
            snapshot: None,
            mount: None,
            now_secs: clock.now_secs(),
        };
        warnings::tell(&sources.find());
    }
    opened
}

/// What the files say, as far as they were read.
#[derive(Default)]
struct FileContent {
    warnings: Vec<String>,
    declared: Option<Declared>,
}

/// Opens all of it. What the writer of the files should know is told at the end: of a
/// start that fails the caller tells it.
async fn open_parts(
    config: &Config,
    clock: &Clock,
    handed: Option<&mut Handed>,
    content: &mut FileContent,
) -> Result<Opened, BootError> {
    let started_ms = clock.now_ms();
    let read = reading::read(config, started_ms, HashSet::new())?;
    let mut leads_to_provider = read.leads_to_provider();
    let routes = read.routes;
    content.warnings = read.warnings;
    let declared = &*content.declared.insert(read.declared?);
    let store = open_store(config, handed).await?;
    let authorities = config.proxy.upstream_ca.as_deref().map(Authorities::read);
    let authorities = authorities.transpose()?.unwrap_or_default();
    let outbound = Arc::new(Outbound::trusting(authorities));
    let mut internals = own_routers();
    let mut identity = None;
    let telemetry = Telemetry::default();
    if !config.telemetry.route_series {
        telemetry.traffic.count_by_service();
    }
    let section = config.audit.clone();
    let audit = Audit::open(section, store.clone(), clock.clone(), &telemetry.metrics)?;
    audit.start();
    if let Some(section) = &config.identity {
        let open =
            Identity::open(section.clone(), store.clone(), clock.clone(), audit.clone()).await?;
        open.report_to(telemetry.metrics.clone());
        let router = open.router();
        let base_url = section.base_url.parse()?;
        outbound.register_provider(&base_url, router.clone(), open.standing());
        internals.insert("identity", router);
        identity = Some(Arc::new(open));
    }
    let (metrics, section) = (telemetry.metrics.clone(), &config.broker);
    let (told, clock_of) = (audit.clone(), clock.clone());
    let broker = Broker::open(section, store.clone(), clock_of, metrics, told).await?;
    // The provider sweeps the store, where there is one.
    broker.tend(identity.is_none());
    let mut workshop = workshop(config, clock, outbound.clone(), &telemetry, internals);
    workshop.parts.slots.put(broker.clone());
    let resolver = workshop.resolver.clone();
    if let Some(section) = &config.redis {
        workshop.parts.redis = Some(Redis::open(section, &telemetry.metrics)?);
    }
    let slots = workshop.parts.slots.clone();
    let deliveries = slots.get_or_default::<Deliveries>();
    slots.put(providers(config, &store).await?);
    slots.put(Arc::new(TokenStore::of(store.clone())));
    slots.put(Arc::new(SessionStore::of(store.clone())));
    slots.put(Storages::on(store.clone(), clock.clone()).await);
    let mut route_files = route_files(&workshop);
    let control = Control::open(workshop, store.clone(), declared.entities.clone())
        .await
        .map_err(|error| refused(declared, &error))?;
    control.follow();
    leads_to_provider |= has_provider(&control);
    // A broken one is told, and does not keep the others from their work.
    control.replace_route_files(route_files.load(routes)).await;
    let snapshot = control.live().load_full();
    let is_mounted = snapshot.mounted().is_some();
    if is_mounted && !leads_to_provider {
        tell_of_mount(config, "");
    }
    let fine = count_route_files(&route_files, &telemetry);
    telemetry.config_current.set(i64::from(fine));
    let live = control.live();
    telemetry
        .targets
        .from(move || live.load().balancers.numbers(clock::monotonic_ns()));
    let undo_secret = undo_secret(config, &store).await?;
    let (own, tells, now) = (control.clone(), telemetry.clone(), clock.clone());
    let node = ThisNode::new(own, store.clone(), tells, now);
    let sources = warnings::Sources {
        config,
        files: content.warnings.clone(),
        declared: Some(declared),
        snapshot: Some(&snapshot),
        mount: unmounted(config, leads_to_provider || is_mounted, ""),
        now_secs: clock.now_secs(),
    };
    warnings::keep(&telemetry, sources.find());
    Ok(Opened {
        control,
        identity,
        broker,
        deliveries,
        resolver,
        outbound,
        telemetry,
        store,
        audit,
        route_files: Arc::new(Mutex::new(route_files)),
        undo_secret,
        node,
        started_ms,
    })
}

/// Whether a service that is in force leads to the identity provider.
fn has_provider(control: &Control) -> bool {
    let snapshot = control.live().load_full();
    let mut services = snapshot.entities().services.iter();
    services.any(|record| reading::is_provider(&record.value))
}

/// What the store calls the secret of login sessions.
const SESSIONS: &str = "login sessions";

/// The providers of plugins, none yet, with the secret that their sessions are
/// sealed with where no `session_secret` is set: the store's, so that a session
/// outlives the process and is known to all nodes.
async fn providers(config: &Config, store: &Store) -> Result<Arc<Providers>, BootError> {
    let vault = vault(config)?;
    match shared_secret(store, &vault, SESSIONS).await {
        Ok(secret) => Ok(Arc::new(Providers::with_secret(secret))),
        Err(SharedSecretError::Store(error)) => Err(error.into()),
        // Another node's file names the master key, and this one's does not.
        Err(SharedSecretError::Key(error)) => {
            tracing::warn!(
                %error,
                "login sessions without session_secret are of this process alone, and end with it"
            );
            Ok(Arc::default())
        }
    }
}

/// What the store calls the secret of changes that the console may undo.
const UNDOS: &str = "console undo";

/// The secret that the console seals them with.
async fn undo_secret(config: &Config, store: &Store) -> Result<Vec<u8>, BootError> {
    match shared_secret(store, &vault(config)?, UNDOS).await {
        Ok(secret) => Ok(secret),
        Err(SharedSecretError::Store(error)) => Err(error.into()),
        // Another node's file names the master key, and this one's does not.
        Err(SharedSecretError::Key(error)) => {
            tracing::warn!(%error, "changes in the console are undone by this process alone");
            Ok(clock::random_bytes::<32>().to_vec())
        }
    }
}

/// What secrets of the store are sealed with.
fn vault(config: &Config) -> Result<Vault, BootError> {
    let section = config.identity.as_ref();
    let vault = section.map_or_else(|| Ok(Vault::default()), |section| section.keys.vault());
    Ok(vault.map_err(IdentityError::Key)?)
}

/// The entities of files and store, with nothing running.
///
/// # Errors
/// As [`open`].
pub async fn entities(config: &Config, clock: &Clock) -> Result<Arc<Control>, BootError> {
    let declared = reading::read(config, clock.now_ms(), HashSet::new())?.declared?;
    let store = store::open(&config.store.0).await?;
    let workshop = bare_workshop(config, clock)?;
    Control::open(workshop, store, declared.entities.clone())
        .await
        .map_err(|error| refused(&declared, &error))
}

/// Where `config` has requests logged, if it does.
///
/// # Errors
/// [`BootError::AccessLog`] when nothing can be written there.
pub fn access_log(config: &Config) -> Result<Option<LineSink>, BootError> {
    on_access_log(config, access_log::open)
}

fn on_access_log<T>(
    config: &Config,
    act: impl FnOnce(&str) -> std::io::Result<T>,
) -> Result<T, BootError> {
    let setting = &config.telemetry.access_log.to;
    act(setting).map_err(|source| BootError::AccessLog {
        place: setting.clone(),
        source,
    })
}

/// Whether `config` could be started, without opening anything.
///
/// # Errors
/// What [`open`] would refuse, as far as the files alone tell.
pub fn check(config: &Config, clock: &Clock) -> Result<(), BootError> {
    let parts = [
        on_access_log(config, access_log::check),
        Audit::check(&config.audit).map_err(BootError::from),
        check_entities(config, clock),
    ];
    let findings = parts.into_iter().filter_map(Result::err);
    let findings: Vec<String> = findings.map(|error| error.located(config)).collect();
    if findings.is_empty() {
        return Ok(());
    }
    Err(BootError::Findings(findings))
}

/// Whether entities and route files of `config` could be in force.
fn check_entities(config: &Config, clock: &Clock) -> Result<(), BootError> {
    let read = reading::read(config, clock.now_ms(), HashSet::new())?;
    let unless = ", unless the store has such a service";
    let leads_to_provider = read.leads_to_provider();
    let is_mounted = mounted(config, &Telemetry::default()).is_some();
    if is_mounted && !leads_to_provider {
        tell_of_mount(config, unless);
    }
    let Read {
        declared,
        routes,
        warnings: files,
    } = read;
    let workshop = bare_workshop(config, clock)?;
    let mut route_files = route_files(&workshop);
    let (declared, snapshot) = match declared {
        Err(error) => (None, Err(error)),
        Ok(declared) => {
            let snapshot = Control::check(&workshop, declared.entities.clone());
            let snapshot = snapshot.map_err(|error| refused(&declared, &error));
            (Some(declared), snapshot)
        }
    };
    let sources = warnings::Sources {
        config,
        files,
        declared: declared.as_ref(),
        snapshot: snapshot.as_ref().ok(),
        mount: unmounted(config, leads_to_provider || is_mounted, unless),
        now_secs: clock.now_secs(),
    };
    route_files.load_quietly(routes);
    let report = route_files.board().read();
    let found = sources.find().warnings;
    for warning in found.iter().chain(report.warnings()) {
        tracing::warn!("{warning}");
    }
    let checked = snapshot.and_then(|_| {
        let mut declared = declared.iter();
        declared.try_for_each(|declared| certificates_are_valid(declared, clock.now_secs()))
    });
    let mut findings: Vec<String> = report.errors().cloned().collect();
    if findings.is_empty() {
        return checked;
    }
    if let Err(error) = checked {
        findings.insert(0, error.to_string());
    }
    Err(BootError::Findings(findings))
}

/// Whether no declared certificate has expired. One that has does not keep the
/// gateway from its work, but nobody wants to serve it.
fn certificates_are_valid(declared: &Declared, now_secs: i64) -> Result<(), BootError> {
    for record in declared.entities.of::<Certificate>() {
        let chain = x509::chain(record.value.cert.as_bytes()).unwrap_or_default();
        let leaf = chain.first().map(|der| x509::valid_at(der, now_secs));
        if let Some(Err(message)) = leaf {
            let error = ChangeError::Invalid {
                field: "cert".to_owned(),
                message,
            };
            let error = DeclaredError {
                kind: Certificate::KIND.plural(),
                id: record.value.id,
                error,
            };
            return Err(refused(declared, &error));
        }
    }
    Ok(())
}

/// No route files yet.
fn route_files(workshop: &CompileContext) -> RouteFiles {
    let internals = workshop.internals.keys().copied();
    let internals = internals
        .filter(|name| *name != forward_auth::NAME)
        .collect();
    RouteFiles::new(workshop.parts.clone(), workshop.traffic.clone()).with_internals(internals)
}

/// Counts the route files by what became of them; whether all are in force.
fn count_route_files(files: &RouteFiles, telemetry: &Telemetry) -> bool {
    let report = files.board().read();
    for (state, gauge) in State::ALL.into_iter().zip(&telemetry.route_files) {
        gauge.set(i64::try_from(report.count(state)).unwrap_or(i64::MAX));
    }
    report.errors().next().is_none()
}

/// For entities that no request will meet.
fn bare_workshop(config: &Config, clock: &Clock) -> Result<CompileContext, BootError> {
    let mut internals = own_routers();
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
    let read = reading::read(config, clock.now_ms(), HashSet::new())?;
    let (declared, routes) = (read.declared, read.routes);
    let declared = declared?;
    let mut internals = own_routers();
    if config.identity.is_some() {
        internals.insert("identity", axum::Router::new());
    }
    let outbound = Arc::new(Outbound::new());
    let workshop = workshop(config, clock, outbound, &Telemetry::default(), internals);
    let store = store::open_existing(&config.store.0).await?;
    let mut route_files = route_files(&workshop);
    let snapshot = Control::compile(&workshop, store.as_deref(), declared.entities.clone())
        .await
        .map_err(|error| refused(&declared, &error))?;
    Ok(snapshot.with_files(route_files.load(routes)))
}

fn workshop(
    config: &Config,
    clock: &Clock,
    outbound: Arc<Outbound>,
    telemetry: &Telemetry,
    internals: HashMap<&'static str, axum::Router>,
) -> CompileContext {
    CompileContext {
        parts: Parts::new(clock.clone(), outbound, telemetry.metrics.clone()),
        internals,
        traffic: telemetry.traffic.clone(),
        resolver: Resolver::new(&config.proxy.dns, telemetry.dns.clone()),
        upstream_verify: config.proxy.upstream_verify,
        mount: mounted(config, telemetry),
    }
}

/// The route to the provider where nothing else leads there.
fn mounted(config: &Config, telemetry: &Telemetry) -> Option<Arc<Routes>> {
    let section = config.identity.as_ref().filter(|section| section.mount)?;
    mount::mount(&section.base_url.parse().ok()?, &telemetry.traffic)
}

/// What is told of a provider that no service leads to and that is mounted nowhere.
fn unmounted(config: &Config, is_reachable: bool, unless: &str) -> Option<String> {
    let is_nowhere = config.identity.is_some() && !is_reachable;
    is_nowhere.then(|| format!("{NOT_MOUNTED}{unless}"))
}

/// Says where the provider is that no service leads to.
fn tell_of_mount(config: &Config, unless: &str) {
    if let Some(section) = &config.identity {
        let base_url = &section.base_url;
        tracing::info!(
            base_url,
            "identity: no service leads to the provider, so it answers below its base_url what \
             no route takes{unless}; `identity.mount: false` switches that off"
        );
    }
}

fn refused(declared: &Declared, error: &DeclaredError) -> BootError {
    BootError::Refused(match declared.locate(error) {
        Some(located) => located.to_string(),
        None => error.to_string(),
    })
}

/// The routers of this process that any configuration may name. `forward-auth`
/// answers before a router is asked.
fn own_routers() -> HashMap<&'static str, axum::Router> {
    let answers = axum::Router::new();
    HashMap::from([("echo", internal::echo()), (forward_auth::NAME, answers)])
}
