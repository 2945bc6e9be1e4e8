//! `doorward run`: start, serve, reload, drain.

mod exports;
mod settings;
mod signals;
mod succession;

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use exports::Exports;
use settings::settings;
use signals::{End, Signals};
use succession::{bind, find, offer, relieve};

use super::{USAGE, complain, listeners};
use crate::boot::{self, BootError, FileDigests, Opened, Reloader, TlsSections};
use crate::config::{Config, TlsConfig};
use crate::server::descriptors::Shares;
use crate::server::places::Address;
use crate::server::tls::Tls;
use crate::server::{RouterListener, ServerError, Shared, indispensable};
use crate::systemd::{self, Watchdog};
use crate::upgrade::{Handed, Predecessor};
use doorward_acme::Acme;
use doorward_admin::{self as admin, AdminService, AdminState, IdentityApi};
use doorward_console::{Console, ConsoleState, ProviderParts};
use doorward_core::clock::Clock;
use doorward_core::model::audit::{Actor, Event, Kind, Trace};
use doorward_gateway::balance::background::BackgroundTasks;
use doorward_gateway::own_headers::OwnHeaders;
use doorward_gateway::resolve::TargetNames;
use doorward_gateway::stopping::Linger;
use doorward_net::http::accept::{ConnectionAcceptor, Limits};
use doorward_net::http::bridge::Bounds;
use doorward_net::http::proxy_protocol::ProxyNetworks;
use doorward_net::telemetry::access_log::AccessLog;
use doorward_net::telemetry::{Gauge, process_log};

/// Longest body of a request to the admin listener.
const ADMIN_BODY: usize = admin::MAX_CONFIG;
/// Longest time for the first request head of an admin connection: there are
/// few of them, and operators' programs do not dawdle.
const ADMIN_HEAD: Duration = Duration::from_secs(15);
/// Modules whose lines only operators bring about, many at a time: what is wrong
/// with edited files.
const OPERATORS: [&str; 2] = ["doorward::boot", "doorward_gateway::route_files"];
/// How long the last audit records may take to be written.
const LAST_RECORDS: Duration = Duration::from_secs(5);
/// Longest time for the end of this node's entry in the list of nodes.
const LAST_HEARTBEAT: Duration = Duration::from_secs(1);
/// Longest time at the end to take back what an order has put into the DNS.
const LAST_ORDER: Duration = Duration::from_secs(5);
/// Longest time that idle connections wait for their last request after an upgrade.
const LAST_REQUESTS: Duration = Duration::from_secs(10);
/// How long the queues of plugins may take to be emptied.
const LAST_DELIVERIES: Duration = Duration::from_secs(5);

/// Runs what `file` says. With `upgrade` the process that serves it is relieved.
pub(super) fn run(file: &Path, upgrade: bool) -> ExitCode {
    start(file, None, Upgrade::of(upgrade))
}

/// Runs, and prints `hints` once the listeners are served.
pub(super) fn run_with_hints(file: &Path, hints: String) -> ExitCode {
    start(file, Some(hints), Upgrade::Never)
}

/// How a process comes to serve.
struct Start<'a> {
    began: Instant,
    /// What is printed once the listeners are served.
    hints: Option<String>,
    file: &'a Path,
    /// The process that it relieves, and what that one hands over.
    predecessor: Option<(Predecessor, Handed)>,
    may_be_succeeded: bool,
}

/// How a process takes part in upgrades.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Upgrade {
    /// It neither relieves another one, nor is relieved.
    Never,
    /// It may be relieved later.
    Later,
    /// It relieves another one, and may be relieved later.
    Now,
}

impl Upgrade {
    fn of(flag: bool) -> Self {
        if flag { Self::Now } else { Self::Later }
    }
}

fn start(file: &Path, hints: Option<String>, upgrade: Upgrade) -> ExitCode {
    let mut start = Start {
        began: Instant::now(),
        hints,
        file,
        predecessor: None,
        may_be_succeeded: upgrade != Upgrade::Never,
    };
    let seen = FileDigests::before_reading(file);
    let config = match Config::load(file) {
        Ok(config) => config,
        Err(error) => {
            complain(&error);
            return ExitCode::from(USAGE);
        }
    };
    if let Err(error) = process_log::serve(&OPERATORS) {
        complain(&error);
        return ExitCode::FAILURE;
    }
    // For everything that is not a request: signals, files, keys, the store.
    let background = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("background")
        .enable_all()
        .build();
    let background = match background {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&error);
            return ExitCode::FAILURE;
        }
    };
    let clock = Clock::system();
    let seen = seen.with_named(&config);
    if upgrade == Upgrade::Now {
        start.predecessor = match find(file) {
            Ok(predecessor) => predecessor,
            Err(error) => {
                complain(&error);
                return ExitCode::FAILURE;
            }
        };
    }
    let handed = start.predecessor.as_mut().map(|(_, handed)| handed);
    let parts = match background.block_on(boot::open(&config, &clock, handed)) {
        Ok(parts) => Arc::new(parts),
        Err(error) => {
            complain(&error.located(&config));
            return ExitCode::from(USAGE);
        }
    };
    let reloader = Reloader::new(file, &config, parts.clone(), seen, clock.clone());
    background.block_on(serve(reloader, &config, &clock, parts, start))
}

async fn serve(
    reloader: Reloader,
    config: &Config,
    clock: &Clock,
    parts: Arc<Opened>,
    mut start: Start<'_>,
) -> ExitCode {
    // Before anybody can know that it runs: an early signal would end it.
    let mut signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => {
            complain(&error);
            return ExitCode::FAILURE;
        }
    };
    let tls = match open_tls(config, clock, &parts).await {
        Ok(tls) => tls,
        Err(code) => return code,
    };
    let (stop, stopped) = watch::channel(false);
    let observers =
        access_log(config, &parts).and_then(|log| Ok((log, Exports::new(config, clock, &parts)?)));
    let (log, mut exports) = match observers {
        Ok(observers) => observers,
        Err(error) => {
            complain(&error.located(config));
            return ExitCode::from(USAGE);
        }
    };
    let watchdog = Watchdog::from_environment();
    let linger = Linger::default();
    let shared = Shared {
        live: parts.control.live(),
        settings: Arc::new(settings(
            config,
            clock,
            &parts,
            log.clone(),
            tls.acme.clone(),
        )),
        tls: tls.proxy.as_deref().map(Tls::door),
        counters: parts.telemetry.proxy_listener.clone(),
        watchdog: watchdog.clone(),
        linger: linger.clone(),
    };
    // All addresses before any of them is served.
    let shares = Shares::of(config);
    let started = bind(config, &mut start).and_then(|mut places| {
        let sockets = places.take_sockets();
        // Before the first request: whoever sees that this process serves may succeed it.
        // Beside a predecessor the name is free only later.
        let (succession, sockets) = match start.predecessor {
            None => (offer(&start, &parts.store, sockets), None),
            Some(_) => (None, Some(sockets)),
        };
        let proxy = places
            .proxy
            .start(&config.proxy, &shared, shares, &stopped)?;
        let admin = places.admin.start(
            admin_listener(config, clock, &parts, &tls, shares, &stopped),
            &stopped,
        )?;
        Ok((proxy, admin, succession, sockets))
    });
    let (mut proxy, mut admin, mut succession, sockets) = match started {
        Ok(started) => started,
        Err(error) => {
            complain(&error.located(config));
            return ExitCode::from(USAGE);
        }
    };
    let (force, forced) = mpsc::channel(1);
    parts
        .telemetry
        .watch_certificates(tls.expiries(&parts.control.live(), clock));
    let ordering = tls.acme.clone().map(|acme| {
        // Without it certificates would expire unnoticed.
        let ordering = indispensable(stopped.clone(), acme.run(stopped.clone()));
        tokio::spawn(ordering)
    });
    tokio::spawn(boot::watch_certificates(
        parts.telemetry.clone(),
        clock.clone(),
    ));
    exports.start();
    let heartbeat = tokio::spawn(parts.node.clone().run(stopped.clone()));
    tokio::spawn(boot::watch(reloader.with_tls(tls), forced));
    let control = &parts.control;
    let background_tasks = BackgroundTasks::new(
        control.live(),
        Arc::new(TargetNames(parts.resolver.clone())),
        config.proxy.upstream_ca.as_deref(),
    );
    // Without it nobody would notice that targets die and names move.
    let checking = background_tasks.run(control.changes());
    tokio::spawn(indispensable(stopped.clone(), checking));
    proxy.accepts().await;
    admin.accepts().await;
    tracing::info!(
        proxy = %config.proxy.listen.join(" "),
        admin = %config.admin.listen,
        milliseconds = start.began.elapsed().as_millis(),
        "ready"
    );
    systemd::ready("serving");
    if let Some(sockets) = sockets {
        relieve(&mut start, &parts.store).await;
        succession = offer(&start, &parts.store, sockets);
    }
    if let Some(watchdog) = watchdog {
        tokio::spawn(watchdog.run());
    }
    if let Some(hints) = &start.hints {
        process_log::say(hints);
    }
    let started = Event::new(Kind::ProcessStart, Actor::System);
    let started = started.with("version", env!("CARGO_PKG_VERSION"));
    let now_ms = clock.now_ms();
    parts.audit.note(started, Trace::default(), now_ms);
    let reopen = || reopen(log.as_deref(), &parts);
    let drain = Duration::from_secs(config.proxy.drain_seconds);
    match signals.until_end(&force, reopen, succession.as_mut()).await {
        End::Stop => {
            tracing::info!("stopping: requests in flight may finish");
            systemd::stopping(drain);
            if let Some(succession) = &succession {
                succession.stop_successor();
            }
        }
        End::Successor(pid) => {
            tracing::info!(pid, "a successor serves: requests in flight may finish");
            systemd::succeeded(pid);
            // Nobody waits for this process: clients may take their time.
            linger.set(drain.min(LAST_REQUESTS));
        }
    }
    if let Some(succession) = &succession {
        succession.end();
    }
    // Nobody listening any more is what is wanted.
    let _ = stop.send(true);
    let joined = tokio::task::spawn_blocking(move || {
        proxy.join();
        admin.join();
    });
    tokio::select! {
        _ = joined => {}
        // Asked twice: now.
        _ = signals.stop() => {}
    }
    // Other nodes list it for a while where the store does not answer.
    let _ = timeout(LAST_HEARTBEAT, heartbeat).await;
    finish(&parts, clock, log.as_deref(), ordering).await;
    exports.end().await;
    tracing::info!("stopped");
    process_log::flush();
    std::process::exit(0)
}

/// What is left to do when nobody is served any more.
async fn finish(
    parts: &Opened,
    clock: &Clock,
    log: Option<&AccessLog>,
    ordering: Option<JoinHandle<()>>,
) {
    let stopped = Event::new(Kind::ProcessStop, Actor::System);
    let now_ms = clock.now_ms();
    parts.audit.note(stopped, Trace::default(), now_ms);
    if let Some(ordering) = ordering
        && timeout(LAST_ORDER, ordering).await.is_err()
    {
        tracing::warn!("answers to challenges were not taken back before the end");
    }
    // Neither a store nor a disk that does not answer holds up the end.
    if timeout(LAST_RECORDS, parts.audit.flush()).await.is_err() {
        tracing::error!("audit records were not written before the end");
    }
    if !parts.deliveries.flush(LAST_DELIVERIES).await {
        tracing::warn!("entries of log plugins were not delivered before the end");
    }
    if let Some(log) = log {
        log.flush(process_log::LAST_WORDS);
    }
}

/// Has the log files opened again.
fn reopen(log: Option<&AccessLog>, parts: &Opened) {
    if let Some(log) = log {
        log.reopen();
    }
    let audit = parts.audit.clone();
    tokio::spawn(async move { audit.reopen().await });
}

/// Opens the certificates of the listeners. What is wrong with them is told, and the
/// program ends with the code.
async fn open_tls(config: &Config, clock: &Clock, parts: &Opened) -> Result<TlsSections, ExitCode> {
    let acme = boot::open_acme(config, clock, parts)
        .await
        .map_err(|error| {
            complain(&error);
            ExitCode::from(USAGE)
        })?;
    open_sections(config, clock, parts, acme).map_err(|error| {
        complain(&error.located(config));
        ExitCode::from(USAGE)
    })
}

fn open_sections(
    config: &Config,
    clock: &Clock,
    parts: &Opened,
    acme: Option<Arc<Acme>>,
) -> Result<TlsSections, ServerError> {
    let open = |name, section: Option<&TlsConfig>, live, acme| {
        let opened = section.map(|section| Tls::open(name, section, live, acme, clock));
        opened.map(|opened| opened.map(Arc::new)).transpose()
    };
    let live = Some(parts.control.live());
    Ok(TlsSections {
        proxy: open("proxy.tls", config.proxy.tls.as_ref(), live, acme.clone())?,
        admin: open("admin.tls", config.admin.tls.as_ref(), None, None)?,
        acme,
    })
}

/// The addresses of the admin listener, each with its key.
fn admin_addresses(config: &Config) -> Vec<Address<'_>> {
    let encrypted = config.admin.tls.iter().flat_map(|tls| &tls.listen);
    let plain = std::iter::once(Address::new("admin.listen", &config.admin.listen));
    plain
        .chain(encrypted.map(|address| Address::new("admin.tls.listen", address)))
        .collect()
}

/// The addresses of a section, for the Admin API.
fn addresses(plain: &[String], tls: Option<&TlsConfig>) -> Vec<admin::Listener> {
    let parsed = |texts: &[String], tls| -> Vec<admin::Listener> {
        let addresses = texts.iter().filter_map(|text| text.parse().ok());
        addresses
            .map(|address| admin::Listener { address, tls })
            .collect()
    };
    let encrypted = tls.map_or(&[][..], |tls| &tls.listen);
    [parsed(plain, false), parsed(encrypted, true)].concat()
}

fn admin_listener<'a>(
    config: &'a Config,
    clock: &Clock,
    parts: &Opened,
    tls: &TlsSections,
    shares: Shares,
    stopped: &watch::Receiver<bool>,
) -> RouterListener<'a> {
    let state = AdminState {
        control: parts.control.clone(),
        store: parts.store.clone(),
        audit: parts.audit.clone(),
        telemetry: parts.telemetry.clone(),
        clock: clock.clone(),
        token: config.admin.token.clone(),
        hosts: config.admin.hosts.clone(),
        cors_origins: config.admin.cors_origins.clone(),
        latency: config.proxy.headers.has(OwnHeaders::ADMIN_LATENCY),
        metrics: config.telemetry.metrics,
        show_credentials: config.admin.show_credentials,
        listeners: listeners(config),
        proxy_listeners: addresses(&config.proxy.listen, config.proxy.tls.as_ref()),
        admin_listeners: addresses(
            std::slice::from_ref(&config.admin.listen),
            config.admin.tls.as_ref(),
        ),
        route_files: parts.route_files.lock().board(),
        identity: parts.identity.as_ref().map(|identity| IdentityApi {
            router: identity.admin_router(),
            describe: doorward_identity::describe_administration,
            provider: {
                let identity = identity.clone();
                Box::new(move || identity.description())
            },
        }),
        broker: Some(parts.broker.clone()),
        acme: tls
            .acme
            .clone()
            .map(|acme| -> admin::Report { Box::new(move || acme.status()) }),
        node: parts.node.clone(),
        version_secret: parts.undo_secret.clone(),
    };
    let gate = admin::gate(&state);
    let service = admin::service(state);
    let (router, gate) = match console(config, clock, parts, &service, stopped) {
        Some(console) => (console.router().merge(service.router()), console.gate(gate)),
        None => (service.router(), gate),
    };
    let bounds = Bounds {
        body: ADMIN_BODY,
        time: Duration::from_secs(60),
    };
    let keeper = ConnectionAcceptor {
        proxies: ProxyNetworks::default(),
        tls: tls.admin.as_deref().map(Tls::door),
        limits: Limits {
            connections: shares.operators,
            head: ADMIN_HEAD,
            ..Limits::default()
        },
        counters: parts.telemetry.admin_listener.clone(),
        open: Gauge::default(),
    };
    let encrypted = config.admin.tls.as_ref();
    RouterListener {
        name: "admin",
        addresses: [
            std::slice::from_ref(&config.admin.listen),
            encrypted.map_or(&[], |tls| &tls.listen),
        ],
        socket_mode: config.admin.socket_mode.0,
        router,
        refusal: doorward_admin::refusal,
        gate: Some(gate),
        bounds,
        keeper,
    }
}

/// The console, unless the configuration switches it off.
fn console(
    config: &Config,
    clock: &Clock,
    parts: &Opened,
    admin: &AdminService,
    stopped: &watch::Receiver<bool>,
) -> Option<Console> {
    let section = &config.admin.console;
    if !section.is_on {
        return None;
    }
    let settings = &section.settings;
    let provider = match (&parts.identity, &settings.roles) {
        (Some(identity), Some(roles)) => Some(ProviderParts {
            client: identity.own_client(settings.realm(), settings.client_id()),
            roles: roles.clone(),
            origins: config.console_origins(),
            step_up_age: section.settings.step_up_age,
            has_address: settings.address.is_some(),
        }),
        _ => None,
    };
    let listen = config.admin.listen.parse::<SocketAddr>();
    let console = Console::new(ConsoleState {
        admin: admin.clone(),
        telemetry: parts.telemetry.clone(),
        clock: clock.clone(),
        stopping: stopped.clone(),
        undo_secret: parts.undo_secret.clone(),
        port: listen.map_or(0, |address| address.port()),
        provider,
        token: settings.token,
    });
    console
        .inspect_err(|error| tracing::error!(%error, "there is no console"))
        .ok()
}

fn access_log(config: &Config, parts: &Opened) -> Result<Option<Arc<AccessLog>>, BootError> {
    let Some(outlet) = boot::access_log(config)? else {
        return Ok(None);
    };
    let (section, lost) = (
        &config.telemetry.access_log,
        parts.telemetry.log_lines_lost.clone(),
    );
    let log = AccessLog::new(section, lost).map_err(|(key, message)| {
        let key = format!("telemetry.access_log.{key}");
        BootError::Refused(config.wrong(&key, message).to_string())
    })?;
    let log = Arc::new(log);
    let writer = log.clone();
    let thread = std::thread::Builder::new().name("access-log".to_owned());
    let started = thread.spawn(move || writer.run(outlet));
    started.map_err(|error| BootError::Tls(error.into()))?;
    Ok(Some(log))
}
