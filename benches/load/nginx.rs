//! nginx as a plain proxy, for comparison.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use crate::callgrind::Runner;
use crate::http;
use crate::process::{Port, Process};

/// The running nginx.
pub(crate) struct Nginx {
    process: Process,
    port: Port,
    _dir: TempDir,
}

impl Nginx {
    pub(crate) fn start(program: &Path, upstream: &Port, workers: usize) -> Result<Self> {
        Self::start_under(&Runner::Direct, program, upstream, workers)
    }

    pub(crate) fn start_under(
        runner: &Runner,
        program: &Path,
        upstream: &Port,
        workers: usize,
    ) -> Result<Self> {
        let (dir, port) = (TempDir::new()?, Port::free()?);
        let file = dir.path().join("nginx.conf");
        std::fs::write(&file, config(dir.path(), &port, upstream, workers))?;
        let mut command = runner.command(program);
        command.arg("-e").arg(dir.path().join("error.log"));
        command.arg("-c").arg(&file).stderr(Stdio::null());
        let process = Process::start("nginx", command)?;
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

    pub(crate) fn cpu(&self) -> Result<Duration> {
        self.process.cpu()
    }
}

/// Kept connections on both sides, no log: what the others do too.
fn config(dir: &Path, port: &Port, upstream: &Port, workers: usize) -> String {
    let dir = dir.display();
    // One worker needs nobody who starts others.
    let master = if workers == 1 { "off" } else { "on" };
    format!(
        "daemon off;\nmaster_process {master};\nworker_processes {workers};\npid {dir}/nginx.pid;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n access_log off;\n keepalive_requests 1000000000;\n\
         client_body_temp_path {dir}/body;\n proxy_temp_path {dir}/proxy;\n\
         fastcgi_temp_path {dir}/f;\n uwsgi_temp_path {dir}/u;\n scgi_temp_path {dir}/s;\n\
         upstream u {{ server {}; keepalive 1024; keepalive_requests 1000000000; }}\n\
         server {{ listen {} reuseport;\n location / {{ proxy_pass http://u;\n\
         proxy_http_version 1.1;\n proxy_set_header Connection \"\";\n\
         proxy_set_header Host $host;\n }} }} }}\n",
        upstream.address(),
        port.address()
    )
}
