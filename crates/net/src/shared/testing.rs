//! A Redis of a test's own.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Redis, RedisConfig};
use crate::telemetry::Metrics;
use doorward_core::model::secret::Secret;

/// A `redis-server` on a port of its own, ended when dropped.
pub struct Server {
    process: Child,
    /// Where it listens on 127.0.0.1.
    pub port: u16,
    directory: tempfile::TempDir,
}

impl Server {
    /// Starts one on a port that is free.
    pub fn start() -> Self {
        Self::start_on(free_port())
    }

    /// Starts one on this port.
    pub fn start_on(port: u16) -> Self {
        Self::start_with(port, &["--port", &port.to_string()])
    }

    /// One that listens on `port` as `options` say.
    pub fn start_with(port: u16, options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(options)
            .arg("--dir")
            .arg(directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is installed (make deps)");
        Self {
            process,
            port,
            directory,
        }
    }

    /// The section that leads to it.
    pub fn config(&self, deadline: &str) -> RedisConfig {
        config(&format!("redis://127.0.0.1:{}", self.port), deadline)
    }

    /// A connection in use. Its deadline is beyond what a busy machine takes.
    pub fn connect(&self, metrics: &Metrics) -> Redis {
        let redis = Redis::open(&self.config("10 s"), metrics).expect("a Redis");
        wait_until(|| redis.is_up());
        redis
    }

    /// Stops it without a word to its clients, or lets it go on.
    pub fn freeze(&self, frozen: bool) {
        let signal = if frozen { "-STOP" } else { "-CONT" };
        let id = self.process.id().to_string();
        let done = Command::new("kill").args([signal, &id]).status();
        assert!(done.expect("kill runs").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = self.directory.path();
    }
}

/// The address and a deadline, nothing else.
pub fn config(url: &str, deadline: &str) -> RedisConfig {
    RedisConfig {
        url: Secret::new(url),
        username: None,
        password: None,
        ca: None,
        deadline: deadline.to_owned(),
    }
}

/// A port of 127.0.0.1 that nobody listens on.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Waits for what happens on other threads.
pub fn wait_until(happened: impl Fn() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "it never happened"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}
