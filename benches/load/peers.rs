//! Proxies of other makers, as plain proxies, for comparison.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use crate::callgrind::Runner;
use crate::http;
use crate::process::{self, Port, Process};

/// A running proxy of another maker.
pub(crate) struct Peer {
    process: Process,
    port: Port,
    /// Where it speaks HTTP/2 alone.
    http2_port: Port,
    _dir: TempDir,
}

impl Peer {
    /// nginx, if it is installed.
    pub(crate) fn nginx(runner: &Runner, upstream: &Port, workers: usize) -> Result<Option<Self>> {
        Self::start("nginx", runner, |dir, ports| {
            let config = nginx_config(dir, ports, upstream, workers);
            let log = dir.join("error.log").display().to_string();
            (config, vec!["-e".to_owned(), log, "-c".to_owned()])
        })
    }

    /// haproxy of one thread, if it is installed.
    pub(crate) fn haproxy(runner: &Runner, upstream: &Port) -> Result<Option<Self>> {
        Self::start("haproxy", runner, |_, ports| {
            let config = haproxy_config(ports, upstream);
            (config, vec!["-db".to_owned(), "-f".to_owned()])
        })
    }

    /// Starts `name` with what `prepare` says: its configuration, and the arguments
    /// before the name of its file.
    fn start(
        name: &'static str,
        runner: &Runner,
        prepare: impl FnOnce(&Path, [&Port; 2]) -> (String, Vec<String>),
    ) -> Result<Option<Self>> {
        let Some(program) = process::find(name) else {
            return Ok(None);
        };
        let (dir, port, http2_port) = (TempDir::new()?, Port::free()?, Port::free()?);
        let (config, arguments) = prepare(dir.path(), [&port, &http2_port]);
        let file = dir.path().join("configuration");
        std::fs::write(&file, config)?;
        let mut command = runner.command(&program);
        command.args(arguments).arg(&file);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::start(name, command)?;
        http::await_answer(&port, "/", runner.patience())?;
        Ok(Some(Self {
            process,
            port,
            http2_port,
            _dir: dir,
        }))
    }

    pub(crate) fn port(&self) -> &Port {
        &self.port
    }

    pub(crate) fn http2_port(&self) -> &Port {
        &self.http2_port
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn cpu(&self) -> Result<Duration> {
        self.process.cpu()
    }
}

/// Kept connections on both sides, no log: what the others do too.
fn nginx_config(
    dir: &Path,
    [port, http2_port]: [&Port; 2],
    upstream: &Port,
    workers: usize,
) -> String {
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
         server {{ listen {} reuseport;\n listen {} http2;\n location / {{ proxy_pass http://u;\n\
         proxy_http_version 1.1;\n proxy_set_header Connection \"\";\n\
         proxy_set_header Host $host;\n }} }} }}\n",
        upstream.address(),
        port.address(),
        http2_port.address()
    )
}

fn haproxy_config([port, http2_port]: [&Port; 2], upstream: &Port) -> String {
    format!(
        "global\n nbthread 1\n maxconn 4096\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n \
         option http-keep-alive\n http-reuse always\n\
         frontend f\n bind {}\n bind {} proto h2\n default_backend b\n\
         backend b\n server u {}\n",
        port.address(),
        http2_port.address(),
        upstream.address()
    )
}
