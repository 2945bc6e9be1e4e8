//! Listeners and threads: one single-threaded worker for each core, each with
//! a socket of its own on every address, sharing everything else.

pub mod descriptors;
pub mod places;
pub mod tls;
pub mod unix;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use axum::Router;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use pingora::apps::HttpServerOptions;
use pingora::connectors::ConnectorOptions;
use pingora::listeners::{ListenerConfig, TcpSocketOptions};
use pingora::protocols::http::v2::server::{H2Options, default_h2_options};
use pingora::protocols::l4::stream::L4BufferSettings;
use pingora::proxy::http_proxy;
use pingora::server::configuration::ServerConf;
use pingora::server::{ListenFds, ShutdownWatch};
use pingora::services::listening::Service;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::config::{Config, ProxyConfig, unix_path};
use crate::systemd::{InheritedError, Watchdog};
use crate::upgrade::UpgradeError;
use descriptors::Shares;
use doorward_gateway::forwarder::Forwarder;
use doorward_gateway::proxy::Gateway;
use doorward_gateway::settings::Settings;
use doorward_gateway::snapshot::Snapshot;
use doorward_gateway::stopping::{Linger, Stopping};
use doorward_gateway::tries::{MAX_TRIES, RetryBudget};
use doorward_gateway::upload::Uploads;
use doorward_net::http::accept::{ConnectionAcceptor, Limits, ProtocolDispatcher};
use doorward_net::http::bridge::Bounds;
use doorward_net::http::listener::{Gate, RefusalAnswer, RouterApp};
use doorward_net::http::proxy_protocol::ProxyNetworks;
use doorward_net::http::system_authorities;
use doorward_net::http::tls::TlsAcceptor;
use doorward_net::telemetry::listeners::ListenerCounters;
use doorward_net::telemetry::{Gauge, process_log};
use places::Place;

/// Bytes read at once of the header that a proxy sends: the common ones are shorter.
const PROXY_HEADER: usize = 256;
/// Most bytes of an answer that wait in a stream of HTTP/2 until they are sent. A client
/// can let a hundred streams of a connection wait; the engine would take 400 KiB for each.
const STREAM_BUFFER: usize = 64 << 10;
/// Which part of a worker's idle upstream connections is for long request bodies, and
/// which for what else the engine serves; the others are the forwarding loop's.
const UPLOAD_PART: usize = 8;
const ENGINE_PART: usize = 4;
/// What the process exits with when a worker is lost (EX_SOFTWARE).
const WORKER_LOST: i32 = 70;
/// How long requests to the admin listener may finish after SIGTERM.
const ADMIN_DRAIN: Duration = Duration::from_secs(5);

/// Why the listeners can't be started.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An address can't be listened on.
    #[error("{key}: can't listen on {address}: {source}")]
    Bind {
        /// Its key in the configuration file.
        key: &'static str,
        /// The address.
        address: String,
        /// The system's word on it.
        source: std::io::Error,
    },
    /// A file of TLS can't be used.
    #[error("{key}: {reason}")]
    Tls {
        /// The key in the configuration file that names it, or its section.
        key: String,
        /// The file, and what is wrong with it.
        reason: String,
    },
    /// A socket of the service manager can't be used.
    #[error(transparent)]
    Inherited(#[from] InheritedError),
    /// The process that serves already does not hand its sockets over.
    #[error(transparent)]
    Upgrade(#[from] UpgradeError),
    /// A thread can't be started.
    #[error("can't start a worker: {0}")]
    Thread(#[from] std::io::Error),
}

impl ServerError {
    /// The error with file and line of the key that it is about.
    pub fn located(&self, config: &Config) -> String {
        let located = match self {
            Self::Bind {
                key,
                address,
                source,
            } => {
                let message = format!("can't listen on {address}: {source}");
                config.wrong(key, message)
            }
            Self::Tls { key, reason } => config.wrong(key, reason.clone()),
            Self::Inherited(_) | Self::Upgrade(_) | Self::Thread(_) => return self.to_string(),
        };
        located.to_string()
    }
}

/// The running threads.
pub struct Server {
    threads: Vec<JoinHandle<()>>,
    /// Hears of each thread whose listeners are open.
    opened: UnboundedReceiver<()>,
}

/// Everything that a worker needs, shared by all of them.
#[derive(Clone)]
pub struct Shared {
    /// The snapshot in force.
    pub live: Arc<ArcSwap<Snapshot>>,
    /// Settings and counters of the data path.
    pub settings: Arc<Settings>,
    /// Handshakes of the TLS listeners.
    pub tls: Option<Arc<TlsAcceptor>>,
    /// Counts connections.
    pub counters: ListenerCounters,
    /// How long idle connections outlive the word to stop.
    pub linger: Linger,
    /// Hears that the workers turn, where a service manager wants to know.
    pub watchdog: Option<Watchdog>,
}

/// A listener that serves one router.
pub struct RouterListener<'a> {
    /// What its thread is called.
    pub name: &'a str,
    /// Its addresses without TLS, and with it.
    pub addresses: [&'a [String]; 2],
    /// Who may connect to those that are Unix sockets.
    pub socket_mode: u32,
    /// What it serves.
    pub router: Router,
    /// What answers malformed requests in its place.
    pub refusal: RefusalAnswer,
    /// Which requests' bodies it reads; `None`: all.
    pub gate: Option<Gate>,
    /// Bounds on requests.
    pub bounds: Bounds,
    /// What comes before a request.
    pub keeper: ConnectionAcceptor,
}

impl Server {
    fn start_proxy(
        places: Vec<Place>,
        config: &ProxyConfig,
        shared: &Shared,
        shares: Shares,
        shutdown: &ShutdownWatch,
    ) -> Result<Self, ServerError> {
        let limit = Duration::from_secs(config.drain_seconds);
        let mut threads = Vec::new();
        // Once for all workers: it may read what the system has.
        let authorities = system_authorities::of_engine(config.upstream_ca.as_deref());
        let (opens, opened) = unbounded_channel();
        for (index, place) in places.into_iter().enumerate() {
            let drain = Drain {
                in_flight: Gauge::default(),
                open: Gauge::default(),
                // One for all listeners of the worker: whoever is told first tells
                // the others.
                stopping: Stopping::new(shared.linger.clone()),
                limit,
            };
            let services = proxy_services(config, authorities.as_deref(), shared, shares, &drain);
            let watch = shutdown.clone();
            let opens = opens.clone();
            let watchdog = shared.watchdog.clone();
            let thread = std::thread::Builder::new().name(format!("proxy-{index}"));
            threads.push(thread.spawn(move || {
                let _indispensable = Indispensable(watch.clone());
                place.run(|fds| async move {
                    if let Some(watchdog) = watchdog {
                        tokio::spawn(watchdog.beat());
                    }
                    serve(services, fds, watch, drain, opens).await;
                });
            })?);
        }
        Ok(Self { threads, opened })
    }

    fn start_router(
        place: Place,
        listener: RouterListener<'_>,
        shutdown: &ShutdownWatch,
    ) -> Result<Self, ServerError> {
        let name = listener.name.to_owned();
        let drain = Drain {
            in_flight: Gauge::default(),
            // Operators' programs ask again.
            open: Gauge::default(),
            stopping: Stopping::default(),
            // A change is stored and then in force: it is not cut in two.
            limit: ADMIN_DRAIN,
        };
        let services = router_services(listener, &drain.in_flight);
        let watch = shutdown.clone();
        let (opens, opened) = unbounded_channel();
        let thread = std::thread::Builder::new().name(name);
        let thread = thread.spawn(move || {
            let _indispensable = Indispensable(watch.clone());
            place.run(|fds| serve(services, fds, watch, drain, opens));
        })?;
        Ok(Self {
            threads: vec![thread],
            opened,
        })
    }

    /// Waits until the listeners of all threads are open. If those of one can't be, the
    /// process ends meanwhile.
    pub async fn accepts(&mut self) {
        for _ in &self.threads {
            self.opened.recv().await;
        }
    }

    /// Waits for all threads to end.
    pub fn join(self) {
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
    }
}

/// Ends the process when what holds it ends before it was asked to: without
/// one of its workers it would leave connections unanswered in the socket that
/// nobody accepts from any more. Whoever started the process starts it again.
struct Indispensable(ShutdownWatch);

impl Drop for Indispensable {
    fn drop(&mut self) {
        // Closed: the process is ending in another way.
        if *self.0.borrow() || self.0.has_changed().is_err() {
            return;
        }
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("");
        tracing::error!(thread = name, "a worker ended: ending the process");
        process_log::flush();
        std::process::exit(WORKER_LOST);
    }
}

/// Runs `task`, without which the process is not to go on: if it ends before
/// `shutdown` says so, or panics, the process ends too.
pub async fn indispensable(shutdown: ShutdownWatch, task: impl Future<Output = ()>) {
    let _indispensable = Indispensable(shutdown);
    task.await;
}

/// Threads that serve the proxy.
fn workers(config: &ProxyConfig) -> usize {
    match config.workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        workers => workers,
    }
}

/// What a worker waits for before it ends.
struct Drain {
    /// Requests in flight.
    in_flight: Gauge,
    /// Connections, each of which may bring a last request.
    open: Gauge,
    /// How long they may take for that.
    stopping: Stopping,
    /// Most time for both.
    limit: Duration,
}

/// Runs all `services` until the end is told, and then what `drain` waits for.
async fn serve(
    mut services: Vec<impl pingora::services::Service>,
    fds: ListenFds,
    mut watch: ShutdownWatch,
    drain: Drain,
    opens: UnboundedSender<()>,
) {
    let told = watch.clone();
    let started = services.iter_mut().map(async |service| {
        let _indispensable = Indispensable(told.clone());
        let fds = Some(fds.clone());
        service.start_service(fds, told.clone(), 1).await;
    });
    let mut started = std::pin::pin!(join_all(started));
    // The first turn opens the listeners, or panics: the engine waits for nothing before.
    if started.as_mut().now_or_never().is_none() {
        // Whoever does not hear it waits no more.
        let _ = opens.send(());
        started.await;
    }
    // The watch fires, or its sender is gone: both mean the end.
    let _ = watch.wait_for(|over| *over).await;
    drain.wait().await;
}

impl Drain {
    /// Waits until no request is in flight and no connection may bring one: one that
    /// was accepted before the stop, is in its handshake, idle, or speaks HTTP/2.
    async fn wait(&self) {
        let begun = Instant::now();
        let linger = self.stopping.linger_limit();
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let left = self.in_flight.get();
            let waits = self.open.get() > 0 && begun.elapsed() < linger;
            if left == 0 && !waits {
                return;
            }
            if begun.elapsed() >= self.limit {
                if left > 0 {
                    tracing::warn!(requests = left, "ended before these requests were done");
                }
                return;
            }
        }
    }
}

type RouterGreeter = ProtocolDispatcher<RouterApp>;
type ProxyService = Service<ProtocolDispatcher<Forwarder>>;

/// What the streams of a client's connection of HTTP/2 may take.
fn streams() -> H2Options {
    let mut options = default_h2_options();
    options.max_send_buffer_size(STREAM_BUFFER);
    options
}

/// One worker's listeners: without TLS, and with it.
fn proxy_services(
    config: &ProxyConfig,
    authorities: Option<&str>,
    shared: &Shared,
    shares: Shares,
    drain: &Drain,
) -> Vec<ProxyService> {
    // All pools together keep the worker's share.
    let upload_pool = shares.pool / UPLOAD_PART;
    let engine_pool = shares.pool / ENGINE_PART;
    let conf = ServerConf {
        threads: 1,
        work_stealing: false,
        upstream_keepalive_pool_size: engine_pool,
        max_retries: MAX_TRIES,
        ca_file: authorities.map(str::to_owned),
        ..ServerConf::default()
    };
    let conf = Arc::new(conf);
    let retry_budget = Arc::new(RetryBudget::default());
    let uploads = Arc::new(Uploads::new(config.upstream_ca.as_deref(), upload_pool));
    let speaking = |h2c| {
        let gateway = Gateway {
            stopping: drain.stopping.clone(),
            retry_budget: retry_budget.clone(),
            uploads: uploads.clone(),
            live: shared.live.clone(),
            settings: shared.settings.clone(),
            in_flight: drain.in_flight.clone(),
        };
        let mut options = HttpServerOptions::default();
        options.h2c = h2c;
        options.h2_idle_timeout = Some(Duration::from_secs(75));
        // They reach the gateway, which refuses them in its own words.
        options.allow_connect_method_proxying = true;
        let mut engine = http_proxy(&conf, gateway.clone());
        engine.server_options = Some(options);
        engine.h2_options = Some(streams());
        let mut connections = ConnectorOptions::from_server_conf(&conf);
        connections.keepalive_pool_size = shares.pool - upload_pool - engine_pool;
        Arc::new(Forwarder::new(gateway, engine, connections))
    };
    let (http1, http2) = (speaking(false), speaking(true));
    let greeter = |tls| ProtocolDispatcher {
        http1: http1.clone(),
        http2: http2.clone(),
        keeper: ConnectionAcceptor {
            proxies: ProxyNetworks(config.proxy_protocol_from.as_slice().into()),
            tls,
            limits: limits(config, shares),
            counters: shared.counters.clone(),
            open: drain.open.clone(),
        },
    };
    let mode = config.socket_mode.0;
    let proxies = !config.proxy_protocol_from.is_empty();
    let place = |addresses| ListenerPlace {
        addresses,
        mode,
        proxies,
    };
    let mut services = vec![service("proxy", greeter(None), place(&config.listen))];
    if let (Some(section), Some(door)) = (&config.tls, &shared.tls) {
        let greeter = greeter(Some(door.clone()));
        services.push(service("proxy-tls", greeter, place(&section.listen)));
    }
    services
}

/// Bounds on clients' connections.
fn limits(config: &ProxyConfig, shares: Shares) -> Limits {
    Limits {
        connections: shares.clients,
        handshake: Duration::from_secs(config.handshake_seconds),
        head: Duration::from_secs(config.head_seconds),
    }
}

fn router_services(listener: RouterListener<'_>, in_flight: &Gauge) -> Vec<Service<RouterGreeter>> {
    let ([plain, encrypted], mode) = (listener.addresses, listener.socket_mode);
    let greeter = |keeper| {
        let (router, gate) = (listener.router.clone(), listener.gate.clone());
        let bounds = listener.bounds;
        RouterApp::greeter(router, listener.refusal, gate, bounds, in_flight, keeper)
    };
    let without = ConnectionAcceptor {
        tls: None,
        ..listener.keeper.clone()
    };
    let proxies = !listener.keeper.proxies.is_empty();
    let place = |addresses| ListenerPlace {
        addresses,
        mode,
        proxies,
    };
    let mut services = vec![service(listener.name, greeter(without), place(plain))];
    if listener.keeper.tls.is_some() {
        let name = format!("{}-tls", listener.name);
        services.push(service(
            &name,
            greeter(listener.keeper.clone()),
            place(encrypted),
        ));
    }
    services
}

/// Where a service listens.
struct ListenerPlace<'a> {
    addresses: &'a [String],
    /// The mode of sockets that are files.
    mode: u32,
    /// Whether proxies may send headers before a connection begins.
    proxies: bool,
}

fn service<A>(name: &str, app: A, place: ListenerPlace<'_>) -> Service<A> {
    // A connection gathers by itself what is written, and reads as much as has come:
    // buffers of the engine would last as long as it is idle. Headers of proxies alone
    // are read by the byte.
    let header = if place.proxies { PROXY_HEADER } else { 0 };
    let buffers = L4BufferSettings::new(header, 0);
    let mut service = Service::new(name.to_owned(), app);
    for address in place.addresses {
        let listener = if let Some(path) = unix_path(address) {
            let mode = Permissions::from_mode(place.mode);
            ListenerConfig::uds(path.display().to_string()).permissions(mode)
        } else {
            let mut options = TcpSocketOptions::default();
            options.so_reuseport = Some(true);
            ListenerConfig::tcp(address).tcp_socket_options(options)
        };
        let listener = listener.l4_buffer(buffers);
        service.add_listener(listener);
    }
    service
}
