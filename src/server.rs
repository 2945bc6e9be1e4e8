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
use parking_lot::Mutex;
use pingora::apps::HttpServerOptions;
use pingora::listeners::tls::TlsSettings;
use pingora::listeners::{ListenerConfig, TcpSocketOptions};
use pingora::protocols::l4::stream::L4BufferSettings;
use pingora::proxy::{HttpProxy, http_proxy};
use pingora::server::configuration::ServerConf;
use pingora::server::{Fds, ListenFds, ShutdownWatch};
use pingora::services::Service as _;
use pingora::services::listening::Service;
use tokio::net::TcpSocket;
use tokio::runtime::{Builder, Runtime};

use crate::config::{ProxyConfig, TlsConfig};
use crate::gateway::proxy::{Gateway, Settings};
use crate::gateway::snapshot::Snapshot;
use crate::http::bridge::Bounds;
use crate::http::greeting::Greeter;
use crate::http::listener::RouterApp;
use crate::telemetry::Gauge;

/// Bytes read from and gathered for a client at once: small enough for tens of
/// thousands of idle connections, large enough to send a common answer whole.
const READ_BUFFER: usize = 1 << 10;
const WRITE_BUFFER: usize = 8 << 10;
/// How long requests to the admin listener may finish after SIGTERM.
const ADMIN_DRAIN: Duration = Duration::from_secs(5);
/// Idle upstream connections of one worker. Fewer than busy ones would make
/// requests open new ones again and again.
const UPSTREAM_POOL: usize = 1024;

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
        tls::check(config)?;
        let drain = Duration::from_secs(config.drain_seconds);
        let mut threads = Vec::new();
        check_free(config)?;
        for index in 0..workers {
            let runtime = runtime()?;
            let fds = bind_all(config, &runtime)?;
            let in_flight = Gauge::default();
            let mut service = proxy_service(config, shared, in_flight.clone())?;
            let mut watch = shutdown.clone();
            let thread = std::thread::Builder::new().name(format!("proxy-{index}"));
            threads.push(thread.spawn(move || {
                runtime.block_on(async move {
                    service.start_service(Some(fds), watch.clone(), 1).await;
                    drained(&mut watch, &in_flight, drain).await;
                });
                runtime.shutdown_background();
            })?);
        }
        Ok(Self { threads })
    }

    /// Serves `router` on `address` from a thread of its own.
    ///
    /// # Errors
    /// [`ServerError`] if the address is not free.
    pub fn start_router(
        name: &str,
        address: &str,
        router: Router,
        bounds: Bounds,
        shutdown: &ShutdownWatch,
    ) -> Result<Self, ServerError> {
        free(address)?;
        let runtime = runtime()?;
        let mut fds = Fds::new();
        bind(&mut fds, address, &runtime)?;
        let in_flight = Gauge::default();
        let greeter = RouterApp::greeter(router, bounds, &in_flight);
        let mut service = Service::new(name.to_owned(), greeter);
        service.add_tcp(address);
        let mut watch = shutdown.clone();
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || {
            let fds = Arc::new(Mutex::new(fds));
            runtime.block_on(async move {
                service.start_service(Some(fds), watch.clone(), 1).await;
                // A change is stored and then in force: it is not cut in two.
                drained(&mut watch, &in_flight, ADMIN_DRAIN).await;
            });
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

fn runtime() -> Result<Runtime, ServerError> {
    Ok(Builder::new_current_thread().enable_all().build()?)
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

type ProxyService = Service<Greeter<HttpProxy<Gateway>>>;

fn proxy_service(
    config: &ProxyConfig,
    shared: &Shared,
    in_flight: Gauge,
) -> Result<ProxyService, ServerError> {
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
    let speaking = |h2c| {
        let gateway = Gateway {
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
    let greeter = Greeter {
        http1: speaking(false),
        http2: speaking(true),
    };
    let mut service = Service::new("proxy".to_owned(), greeter);
    for address in &config.listen {
        service.add_listener(listener(address));
    }
    if let Some(tls) = &config.tls {
        for address in &tls.listen {
            service.add_listener(listener(address).tls(tls_settings(tls)?));
        }
    }
    Ok(service)
}

fn listener(address: &str) -> ListenerConfig {
    let mut options = TcpSocketOptions::default();
    options.so_reuseport = Some(true);
    ListenerConfig::tcp(address)
        .tcp_socket_options(options)
        .l4_buffer(L4BufferSettings::new(READ_BUFFER, WRITE_BUFFER))
}

fn tls_settings(config: &TlsConfig) -> Result<TlsSettings, ServerError> {
    let certificate = config.certificate.display().to_string();
    let key = config.key.display().to_string();
    match TlsSettings::intermediate(&certificate, &key) {
        Ok(mut settings) => {
            settings.enable_h2();
            Ok(settings)
        }
        Err(error) => Err(ServerError::Tls {
            certificate,
            key,
            reason: error.to_string(),
        }),
    }
}
