//! `doorward run`: start, serve, reload, drain.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderValue;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::{USAGE, complain, init_log};
use crate::admin::{self, AdminState};
use crate::boot::{self, Opened, Reloader, Seen};
use crate::clock::Clock;
use crate::config::Config;
use crate::gateway::proxy::Settings;
use crate::http::bridge::Bounds;
use crate::server::{Server, ServerError, Shared};
use crate::telemetry::access_log::AccessLog;

/// Longest body of a request to the admin listener.
const ADMIN_BODY: usize = admin::MAX_BODY;

pub(super) fn run(file: &Path) -> ExitCode {
    let began = Instant::now();
    let config = match Config::load(file) {
        Ok(config) => config,
        Err(error) => {
            complain(&error);
            return ExitCode::from(USAGE);
        }
    };
    init_log();
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
    let seen = Seen::now(file, &config);
    let parts = match background.block_on(boot::open(&config, &clock)) {
        Ok(parts) => Arc::new(parts),
        Err(error) => {
            complain(&error);
            return ExitCode::from(USAGE);
        }
    };
    let reloader = Reloader::new(file, &config, parts.clone(), seen);
    background.block_on(serve(reloader, &config, &clock, parts, began))
}

async fn serve(
    reloader: Reloader,
    config: &Config,
    clock: &Clock,
    parts: Arc<Opened>,
    began: Instant,
) -> ExitCode {
    // Before anybody can know that it runs: an early signal would end it.
    let mut signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => {
            complain(&error);
            return ExitCode::FAILURE;
        }
    };
    let (stop, stopped) = watch::channel(false);
    let log = access_log(config, &parts);
    let shared = Shared {
        live: parts.control.live(),
        settings: Arc::new(settings(config, clock, &parts, log.clone())),
    };
    let started = Server::start_proxy(&config.proxy, &shared, &stopped)
        .and_then(|proxy| Ok((proxy, start_admin(config, clock, &parts, &stopped)?)));
    let (proxy, admin) = match started {
        Ok(servers) => servers,
        Err(error) => {
            complain(&error);
            return ExitCode::from(USAGE);
        }
    };
    let (force, forced) = mpsc::channel(1);
    tokio::spawn(boot::watch(reloader, forced));
    tracing::info!(
        proxy = %config.proxy.listen.join(" "),
        admin = %config.admin.listen,
        milliseconds = began.elapsed().as_millis(),
        "ready"
    );
    signals.until_stopped(&force).await;
    tracing::info!("stopping: requests in flight may finish");
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
    if let Some((log, mut out)) = log.zip(log_target(config)) {
        let _ = log.flush(&mut out);
    }
    tracing::info!("stopped");
    std::process::exit(0)
}

/// The signals that mean something here.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for SIGTERM or SIGINT.
    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Waits for SIGTERM or SIGINT; SIGHUP reloads.
    async fn until_stopped(&mut self, force: &mpsc::Sender<()>) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                // A full channel already asks for a reload.
                _ = self.hangup.recv() => { let _ = force.try_send(()); }
            }
        }
    }
}

fn start_admin(
    config: &Config,
    clock: &Clock,
    parts: &Opened,
    stopped: &watch::Receiver<bool>,
) -> Result<Server, ServerError> {
    let router = admin::router(AdminState {
        control: parts.control.clone(),
        store: parts.store.clone(),
        telemetry: parts.telemetry.clone(),
        clock: clock.clone(),
        token: config.admin.token.clone(),
        hosts: config.admin.hosts.clone(),
        metrics: config.telemetry.metrics,
    });
    let bounds = Bounds {
        body: ADMIN_BODY,
        time: Duration::from_secs(60),
    };
    Server::start_router("admin", &config.admin.listen, router, bounds, stopped)
}

fn settings(
    config: &Config,
    clock: &Clock,
    parts: &Opened,
    access_log: Option<Arc<AccessLog>>,
) -> Settings {
    let port = |addresses: &[String]| {
        let first = addresses.first().and_then(|a| a.rsplit(':').next());
        first.and_then(|port| port.parse().ok()).unwrap_or(0)
    };
    let (plain, tls) = (
        port(&config.proxy.listen),
        config.proxy.tls.as_ref().map_or(0, |tls| port(&tls.listen)),
    );
    Settings {
        clock: clock.clone(),
        trusted: config.proxy.trusted_ips.clone().into(),
        port: plain,
        tls_port: tls,
        port_texts: [plain, tls].map(HeaderValue::from),
        request_ids: config.proxy.request_ids,
        access_log,
        unrouted: parts.telemetry.traffic.route("", ""),
        connections: parts.telemetry.connections.clone(),
    }
}

fn access_log(config: &Config, parts: &Opened) -> Option<Arc<AccessLog>> {
    let out = log_target(config)?;
    let log = Arc::new(AccessLog::new(parts.telemetry.log_lines_lost.clone()));
    let writer = log.clone();
    let thread = std::thread::Builder::new().name("access-log".to_owned());
    match thread.spawn(move || writer.run(out)) {
        Ok(_) => Some(log),
        Err(error) => {
            tracing::error!(%error, "no access log");
            None
        }
    }
}

fn log_target(config: &Config) -> Option<Box<dyn Write + Send>> {
    match config.telemetry.access_log.as_str() {
        "off" => None,
        "stdout" => Some(Box::new(std::io::stdout())),
        file => {
            let opened = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(file);
            match opened {
                Ok(file) => Some(Box::new(file)),
                Err(error) => {
                    tracing::error!(file, %error, "access log can't be opened");
                    None
                }
            }
        }
    }
}
