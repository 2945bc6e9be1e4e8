//! A real Redis.

use std::process::{Child, Command, Stdio};

use super::ports::Port;

/// A `redis-server` on this machine that keeps nothing, ended when dropped.
pub(crate) struct RedisServer {
    pub(crate) port: Port,
    process: Child,
    _directory: tempfile::TempDir,
}

impl RedisServer {
    /// One whose files are in `directory`, with these further arguments; the port is
    /// among them.
    pub(crate) fn start(port: Port, directory: tempfile::TempDir, arguments: &[&str]) -> Self {
        let process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(directory.path())
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is installed (make deps)");
        Self {
            port,
            process,
            _directory: directory,
        }
    }

    /// Ends it; another one may take its place.
    pub(crate) fn stop(mut self) -> Port {
        self.process.kill().expect("our own process can be killed");
        self.process
            .wait()
            .expect("our own process can be waited for");
        std::mem::replace(&mut self.port, Port::reserve())
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
