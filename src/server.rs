//! Listeners and threads: one single-threaded worker for each core, each with
//! a socket of its own on every address, sharing everything else.

pub mod tls;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::IntoRawFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use axum::Router;
use futures_util::future::join_all;
use parking_lot::Mutex;
use pingora::apps::HttpServerOptions;
use pingora::listeners::{ListenerConfig, TcpSocketOptions};
use pingora::protocols::l4::stream::L4BufferSettings;
use pingora::proxy::{HttpProxy, http_proxy};
use pingora::server::configuration::ServerConf;
use pingora::server::{Fds, ListenFds, ShutdownWatch};
use pingora::services::listening::Service;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::TcpSocket;
use tokio::runtime::{Builder, Runtime};

use crate::config::ProxyConfig;
use crate::gateway::proxy::{Gateway, Settings};
use crate::gateway::snapshot::Snapshot;
use crate::gateway::tries::RetryBudget;
use crate::http::bridge::Bounds;
use crate::http::greeting::{Doorkeeper, Greeter, Limits};
use crate::http::listener::{Gate, RouterApp};
use crate::http::tls::TlsDoor;
use crate::telemetry::Gauge;
use crate::telemetry::listeners::ListenerCounters;

/// Bytes read from and gathered for a client at once: small enough for tens of
/// thousands of idle connections, large enough to send a common answer whole.
const READ_BUFFER: usize = 1 << 10;
const WRITE_BUFFER: usize = 8 << 10;
/// What the process exits with when a worker is lost (EX_SOFTWARE).
const WORKER_LOST: i32 = 70;
/// How long requests to the admin listener may finish after SIGTERM.
const ADMIN_DRAIN: Duration = Duration::from_secs(5);
/// Idle upstream connections of one worker. Fewer than busy ones would make
/// requests open new ones again and again.
const UPSTREAM_POOL: usize = 1024;
/// Most client connections where the system does not say how many files may
/// be open.
const DEFAULT_CONNECTIONS: usize = 1 << 16;

/// Why the listeners can't be started.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An address can't be listened on.
    #[error("can't listen on {address}: {source}")]
    Bind {
        /// The address.
        address: String,
        /// The system's word on it.
        source: std::io::Error,
    },
    /// Certificate or key can't be used.
    #[error("can't serve TLS with {certificate} and {key}: {reason}")]
    Tls {
        /// File of the certificate.
        certificate: String,
        /// File of the key.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// The authorities for upstreams can't be used.
    #[error("can't verify upstreams with {file}: {reason}")]
    Authorities {
        /// Their file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// A thread can't be started.
    #[error("can't start a worker: {0}")]
    Thread(#[from] std::io::Error),
}

/// The running threads.
pub struct Server {
    threads: Vec<JoinHandle<()>>,
}

/// Everything that a worker needs, shared by all of them.
#[derive(Clone)]
pub struct Shared {
    /// The snapshot in force.
    pub live: Arc<ArcSwap<Snapshot>>,
    /// Settings and counters of the data path.
    pub settings: Arc<Settings>,
    /// Handshakes of the TLS listeners.
    pub tls: Option<Arc<TlsDoor>>,
    /// Counts connections.
    pub counters: ListenerCounters,
}

/// A listener that serves one router.
pub struct RouterListener<'a> {
    /// What its thread is called.
    pub name: &'a str,
    /// Its addresses without TLS, and with it.
    pub addresses: [&'a [String]; 2],
    /// What it serves.
    pub router: Router,
    /// Which requests' bodies it reads; `None`: all.
    pub gate: Option<Gate>,
    /// Bounds on requests.
    pub bounds: Bounds,
    /// What comes before a request.
    pub keeper: Doorkeeper,
}

impl Server {
    /// Binds the proxy's addresses and starts its workers.
    ///
    /// # Errors
    /// [`ServerError`] before any thread is started.
    pub fn start_proxy(
        config: &ProxyConfig,
        shared: &Shared,
        shutdown: &ShutdownWatch,
    ) -> Result<Self, ServerError> {
        let workers = match config.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            workers => workers,
        };
        tls::check_authorities(config.upstream_ca.as_deref())?;
        let drain = Duration::from_secs(config.drain_seconds);
        let mut threads = Vec::new();
        check_free(config)?;
        for index in 0..workers {
            let runtime = runtime()?;
            let fds = bind_all(config, &runtime)?;
            let in_flight = Gauge::default();
            let services = proxy_services(config, shared, &in_flight);
            let watch = shutdown.clone();
            let thread = std::thread::Builder::new().name(format!("proxy-{index}"));
            threads.push(thread.spawn(move || {
                let _indispensable = Indispensable(watch.clone());
                runtime.block_on(serve(services, fds, watch, in_flight, drain));
                runtime.shutdown_background();
            })?);
        }
        Ok(Self { threads })
    }

    /// Serves a router from a thread of its own.
    ///
    /// # Errors
    /// [`ServerError`] if an address is not free.
    pub fn start_router(
        listener: RouterListener<'_>,
        shutdown: &ShutdownWatch,
    ) -> Result<Self, ServerError> {
        let runtime = runtime()?;
        let mut fds = Fds::new();
        for address in listener.addresses.into_iter().flatten() {
            free(address)?;
            bind(&mut fds, address, &runtime)?;
        }
        let name = listener.name.to_owned();
        let in_flight = Gauge::default();
        let services = router_services(listener, &in_flight);
        let watch = shutdown.clone();
        let thread = std::thread::Builder::new().name(name);
        let thread = thread.spawn(move || {
            let _indispensable = Indispensable(watch.clone());
            let fds = Arc::new(Mutex::new(fds));
            // A change is stored and then in force: it is not cut in two.
            runtime.block_on(serve(services, fds, watch, in_flight, ADMIN_DRAIN));
            runtime.shutdown_background();
        })?;
        Ok(Self {
            threads: vec![thread],
        })
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
        std::process::exit(WORKER_LOST);
    }
}

/// Runs `task`, without which the process is not to go on: if it ends before
/// `shutdown` says so, or panics, the process ends too.
pub async fn indispensable(shutdown: ShutdownWatch, task: impl Future<Output = ()>) {
    let _indispensable = Indispensable(shutdown);
    task.await;
}

fn runtime() -> Result<Runtime, ServerError> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Runs all `services` until the end is told, and then the requests in flight,
/// at most for `limit`.
async fn serve(
    mut services: Vec<impl pingora::services::Service>,
    fds: ListenFds,
    mut watch: ShutdownWatch,
    in_flight: Gauge,
    limit: Duration,
) {
    let started = services.iter_mut().map(async |service| {
        let _indispensable = Indispensable(watch.clone());
        let fds = Some(fds.clone());
        service.start_service(fds, watch.clone(), 1).await;
    });
    join_all(started).await;
    drained(&mut watch, &in_flight, limit).await;
}

/// Waits until no request is in flight, at most for `limit`.
async fn drained(watch: &mut ShutdownWatch, in_flight: &Gauge, limit: Duration) {
    // The watch fires, or its sender is gone: both mean the end.
    let _ = watch.wait_for(|over| *over).await;
    let deadline = Instant::now() + limit;
    while in_flight.get() > 0 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let left = in_flight.get();
    if left > 0 {
        tracing::warn!(requests = left, "ended before these requests were done");
    }
}

fn addresses(config: &ProxyConfig) -> impl Iterator<Item = &String> {
    let tls = config.tls.iter().flat_map(|tls| &tls.listen);
    config.listen.iter().chain(tls)
}

/// Sockets with `SO_REUSEPORT` share an address with any process of the same
/// user; a plain attempt first tells a second instance that it is one.
fn check_free(config: &ProxyConfig) -> Result<(), ServerError> {
    addresses(config).try_for_each(|address| free(address))
}

fn free(address: &str) -> Result<(), ServerError> {
    TcpListener::bind(address)
        .map(drop)
        .map_err(|source| ServerError::Bind {
            address: address.to_owned(),
            source,
        })
}

fn bind_all(config: &ProxyConfig, runtime: &Runtime) -> Result<ListenFds, ServerError> {
    let mut fds = Fds::new();
    for address in addresses(config) {
        bind(&mut fds, address, runtime)?;
    }
    Ok(Arc::new(Mutex::new(fds)))
}

/// Binds and listens here, so that errors are told before anything runs and
/// clients can connect from now on.
fn bind(fds: &mut Fds, address: &str, runtime: &Runtime) -> Result<(), ServerError> {
    let _in_runtime = runtime.enter();
    let listen = || {
        let parsed: SocketAddr = address
            .parse()
            .map_err(|_| std::io::Error::other("not ADDRESS:PORT"))?;
        let socket = match parsed {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(true)?;
        socket.bind(parsed)?;
        socket.listen(65_535)?.into_std()
    };
    let listener = listen().map_err(|source| ServerError::Bind {
        address: address.to_owned(),
        source,
    })?;
    fds.add(address.to_owned(), listener.into_raw_fd());
    Ok(())
}

type RouterGreeter = Greeter<RouterApp>;
type ProxyService = Service<Greeter<HttpProxy<Gateway>>>;

/// One worker's listeners: without TLS, and with it.
fn proxy_services(config: &ProxyConfig, shared: &Shared, in_flight: &Gauge) -> Vec<ProxyService> {
    let conf = ServerConf {
        threads: 1,
        work_stealing: false,
        upstream_keepalive_pool_size: UPSTREAM_POOL,
        // The service's own `retries` are what counts.
        max_retries: 1 << 15,
        ca_file: config
            .upstream_ca
            .as_ref()
            .map(|file| file.display().to_string()),
        ..ServerConf::default()
    };
    let conf = Arc::new(conf);
    let retry_budget = Arc::new(RetryBudget::default());
    let speaking = |h2c| {
        let gateway = Gateway {
            retry_budget: retry_budget.clone(),
            live: shared.live.clone(),
            settings: shared.settings.clone(),
            in_flight: in_flight.clone(),
        };
        let mut options = HttpServerOptions::default();
        options.h2c = h2c;
        options.h2_idle_timeout = Some(Duration::from_secs(75));
        let mut proxy = http_proxy(&conf, gateway);
        proxy.server_options = Some(options);
        Arc::new(proxy)
    };
    let (http1, http2) = (speaking(false), speaking(true));
    let greeter = |tls| Greeter {
        http1: http1.clone(),
        http2: http2.clone(),
        keeper: Doorkeeper {
            tls,
            limits: limits(config),
            counters: shared.counters.clone(),
        },
    };
    let mut services = vec![service("proxy", greeter(None), &config.listen)];
    if let (Some(section), Some(door)) = (&config.tls, &shared.tls) {
        let greeter = greeter(Some(door.clone()));
        services.push(service("proxy-tls", greeter, &section.listen));
    }
    services
}

/// Bounds on clients' connections.
fn limits(config: &ProxyConfig) -> Limits {
    let connections = match config.max_connections {
        0 => raise_open_files().map_or(DEFAULT_CONNECTIONS, |files| (files / 2).max(64)),
        connections => connections,
    };
    Limits {
        connections,
        handshake: Duration::from_secs(config.handshake_seconds),
        head: Duration::from_secs(config.head_seconds),
    }
}

/// Lets the process open as many files as it is allowed to, which is often far
/// more than it starts with: each connection is one.
///
/// Returns how many, or nothing if there is no bound.
pub fn raise_open_files() -> Option<usize> {
    let mut limit = getrlimit(Resource::Nofile);
    let before = limit.current;
    limit.current = limit.maximum;
    let raised = before != limit.maximum && setrlimit(Resource::Nofile, limit).is_ok();
    let files = if raised { limit.maximum } else { before };
    files.map(|files| usize::try_from(files).unwrap_or(usize::MAX))
}

fn router_services(listener: RouterListener<'_>, in_flight: &Gauge) -> Vec<Service<RouterGreeter>> {
    let [plain, encrypted] = listener.addresses;
    let greeter = |keeper| {
        let (router, gate) = (listener.router.clone(), listener.gate.clone());
        RouterApp::greeter(router, gate, listener.bounds, in_flight, keeper)
    };
    let without = Doorkeeper {
        tls: None,
        ..listener.keeper.clone()
    };
    let mut services = vec![service(listener.name, greeter(without), plain)];
    if listener.keeper.tls.is_some() {
        let name = format!("{}-tls", listener.name);
        services.push(service(&name, greeter(listener.keeper.clone()), encrypted));
    }
    services
}

fn service<A>(name: &str, app: A, addresses: &[String]) -> Service<A> {
    let mut service = Service::new(name.to_owned(), app);
    for address in addresses {
        let mut options = TcpSocketOptions::default();
        options.so_reuseport = Some(true);
        let listener = ListenerConfig::tcp(address)
            .tcp_socket_options(options)
            .l4_buffer(L4BufferSettings::new(READ_BUFFER, WRITE_BUFFER));
        service.add_listener(listener);
    }
    service
}
