//! The floor: the least that a proxy on Pingora can do, built as the program
//! is and with the same workers, buffers, pools and allocator.

use std::net::SocketAddr;
use std::os::fd::IntoRawFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::listeners::{ListenerConfig, TcpSocketOptions};
use pingora::prelude::{HttpPeer, ProxyHttp, Session};
use pingora::protocols::l4::stream::L4BufferSettings;
use pingora::proxy::ProxyServiceBuilder;
use pingora::server::Fds;
use pingora::server::configuration::ServerConf;
use pingora::services::listening::Service;
use tokio::net::TcpSocket;

use crate::callgrind::Runner;
use crate::forwarder::{Forwarder, Keeping};
use crate::http;
use crate::process::{Port, Process};

/// The running floor.
pub(crate) struct Floor {
    process: Process,
    port: Port,
}

impl Floor {
    pub(crate) fn start(upstream: &Port, workers: usize) -> Result<Self> {
        Self::start_under(&Runner::Direct, upstream, workers)
    }

    pub(crate) fn start_under(runner: &Runner, upstream: &Port, workers: usize) -> Result<Self> {
        Self::start_as("floor", runner, upstream, workers)
    }

    /// Starts the part of this program that is called `part`.
    pub(crate) fn start_as(
        part: &str,
        runner: &Runner,
        upstream: &Port,
        workers: usize,
    ) -> Result<Self> {
        let port = Port::free()?;
        let arguments = [
            part,
            &port.address(),
            &upstream.address(),
            &workers.to_string(),
        ];
        let process = Process::own_under(runner, "floor", &arguments)?;
        http::await_answer(&port, "/", runner.patience())?;
        Ok(Self { process, port })
    }

    pub(crate) fn port(&self) -> &Port {
        &self.port
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn cpu(&self) -> Result<Duration> {
        self.process.cpu()
    }

    pub(crate) fn resident(&self) -> Result<u64> {
        self.process.resident()
    }
}

struct PassThrough {
    upstream: SocketAddr,
}

#[async_trait]
impl ProxyHttp for PassThrough {
    type CTX = ();

    fn new_ctx(&self) -> Self::CTX {}

    async fn upstream_peer(
        &self,
        _session: &mut Session,
        (): &mut Self::CTX,
    ) -> pingora::Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }
}

/// A part of this program: the floor's process.
pub(crate) fn serve(address: SocketAddr, upstream: SocketAddr, workers: usize) -> Result<()> {
    serve_with(address, workers, |conf| {
        let mut service = ProxyServiceBuilder::new(&conf, PassThrough { upstream }).build();
        service.add_listener(listener(address));
        service
    })
}

/// A part of this program: the forwarding loop's process.
pub(crate) fn serve_forwarder(
    address: SocketAddr,
    upstream: SocketAddr,
    workers: usize,
    keeping: Keeping,
) -> Result<()> {
    serve_with(address, workers, |_| {
        let forwarder = Forwarder::new(upstream, keeping);
        let mut service = Service::new("forwarder".to_owned(), forwarder);
        service.add_listener(listener(address));
        service
    })
}

/// Runs a service a worker for ever.
fn serve_with<S: pingora::services::Service + 'static>(
    address: SocketAddr,
    workers: usize,
    service: impl Fn(Arc<ServerConf>) -> S,
) -> Result<()> {
    let mut threads = Vec::new();
    let (_keep, shutdown) = tokio::sync::watch::channel(false);
    for _ in 0..workers {
        let shutdown = shutdown.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let mut fds = Fds::new();
        {
            let _in_runtime = runtime.enter();
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseaddr(true)?;
            socket.set_reuseport(true)?;
            socket.bind(address)?;
            let listener = socket.listen(65_535)?.into_std()?;
            fds.add(address.to_string(), listener.into_raw_fd());
        }
        let conf = ServerConf {
            threads: 1,
            work_stealing: false,
            upstream_keepalive_pool_size: 1024,
            ..ServerConf::default()
        };
        let mut service = service(Arc::new(conf));
        threads.push(std::thread::spawn(move || {
            let fds = Some(Arc::new(Mutex::new(fds)));
            runtime.block_on(service.start_service(fds, shutdown, 1));
        }));
    }
    for thread in threads {
        thread.join().ok().context("a worker panicked")?;
    }
    Ok(())
}

fn listener(address: SocketAddr) -> ListenerConfig {
    let mut options = TcpSocketOptions::default();
    options.so_reuseport = Some(true);
    ListenerConfig::tcp(address.to_string())
        .tcp_socket_options(options)
        .l4_buffer(L4BufferSettings::new(1 << 10, 8 << 10))
}
