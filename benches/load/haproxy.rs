//! haproxy as a plain proxy, for comparison.

use std::path::Path;
use std::process::Stdio;

use anyhow::Result;
use tempfile::TempDir;

use crate::callgrind::Runner;
use crate::http;
use crate::process::{Port, Process};

/// The running haproxy, of one thread.
pub(crate) struct Haproxy {
    process: Process,
    port: Port,
    _dir: TempDir,
}

impl Haproxy {
    pub(crate) fn start(program: &Path, upstream: &Port, runner: &Runner) -> Result<Self> {
        let (dir, port) = (TempDir::new()?, Port::free()?);
        let file = dir.path().join("haproxy.cfg");
        std::fs::write(&file, config(&port, upstream))?;
        let mut command = runner.command(program);
        command.arg("-db").arg("-f").arg(&file);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::start("haproxy", command)?;
        http::await_answer(&port, "/", runner.patience())?;
        Ok(Self {
            process,
            port,
            _dir: dir,
        })
    }

    pub(crate) fn port(&self) -> &Port {
        &self.port
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }
}

fn config(port: &Port, upstream: &Port) -> String {
    format!(
        "global\n nbthread 1\n maxconn 4096\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n \
         option http-keep-alive\n http-reuse always\n\
         frontend f\n bind {}\n default_backend b\n\
         backend b\n server u {}\n",
        port.address(),
        upstream.address()
    )
}
