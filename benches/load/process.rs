//! Processes of the benchmark: started here, ended here, and what the system
//! says of them.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::callgrind::Runner;

/// Open files a process may have: enough for a thousand idle connections with
/// an upstream connection each.
const FILES: u32 = 16_384;

/// A port of 127.0.0.1 that was free a moment ago.
#[derive(Debug, Clone)]
pub(crate) struct Port(pub(crate) u16);

impl Port {
    pub(crate) fn free() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        Ok(Self(listener.local_addr()?.port()))
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.0)
    }
}

/// A process that ends when this value is dropped.
pub(crate) struct Process {
    name: &'static str,
    child: Child,
}

impl Process {
    /// Starts another part of this very program.
    pub(crate) fn own(name: &'static str, arguments: &[&str]) -> Result<Self> {
        Self::own_under(&Runner::Direct, name, arguments)
    }

    /// The same by `runner`.
    pub(crate) fn own_under(
        runner: &Runner,
        name: &'static str,
        arguments: &[&str],
    ) -> Result<Self> {
        let mut command = runner.command(&std::env::current_exe()?);
        command.args(arguments);
        Self::start(name, command)
    }

    /// Starts `command`; what it writes goes nowhere unless piped before.
    pub(crate) fn start(name: &'static str, mut command: Command) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("can't start {name}"))?;
        Ok(Self { name, child })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to end, waits a little, then ends it and its children.
    pub(crate) fn stop(&mut self) {
        if self.has_ended() {
            return;
        }
        let children = children(self.id());
        signal("TERM", self.id());
        let deadline = Instant::now() + Duration::from_secs(2);
        while Instant::now() < deadline {
            if self.has_ended() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            eprintln!("{} (pid {}) can't be ended: {error}", self.name, self.id());
        }
        for child in children {
            signal("KILL", child);
        }
    }

    /// CPU time of all its threads and of its children's, so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let mut total = cpu_of(self.id())?;
        for child in children(self.id()) {
            total += cpu_of(child).unwrap_or_default();
        }
        Ok(total)
    }

    /// Resident memory in bytes.
    pub(crate) fn resident(&self) -> Result<u64> {
        self.memory("VmRSS:")
    }

    /// Most memory that was resident so far, in bytes.
    pub(crate) fn peak(&self) -> Result<u64> {
        self.memory("VmHWM:")
    }

    fn memory(&self, field: &str) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let kilobytes = status
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok())
            .with_context(|| format!("no {field}"))?;
        Ok(kilobytes * 1024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

/// `program`, with as many open files as the system allows it.
pub(crate) fn limited(program: &Path) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {FILES} 2>/dev/null; exec \"$0\" \"$@\"");
    command.arg("-c").arg(script).arg(program);
    command
}

/// Where `program` is installed.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

fn signal(name: &str, pid: u32) {
    let kill = Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .stderr(Stdio::null())
        .status();
    if let Err(error) = kill {
        eprintln!("no signal for {pid}: {error}");
    }
}

/// The processes that `pid` started.
fn children(pid: u32) -> Vec<u32> {
    let file = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|id| id.parse().ok())
        .collect()
}

/// Nanoseconds on a core from the scheduler where it tells them (all threads
/// that live), else clock ticks.
fn cpu_of(pid: u32) -> Result<Duration> {
    let mut nanos = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let file = task?.path().join("schedstat");
        let Ok(text) = std::fs::read_to_string(file) else {
            return ticks_of(pid);
        };
        let first = text.split(' ').next().unwrap_or_default();
        nanos += first.parse::<u64>().unwrap_or_default();
    }
    if nanos == 0 {
        return ticks_of(pid);
    }
    Ok(Duration::from_nanos(nanos))
}

/// `utime` and `stime` of `/proc/PID/stat`, in ticks of 10 ms.
fn ticks_of(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("a malformed stat file")?;
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|n| n.parse::<u64>().ok())
        .sum();
    Ok(Duration::from_millis(ticks * 10))
}
