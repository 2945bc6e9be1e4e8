//! One round of wrk.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::CONNECTIONS;
use crate::process::Port;

/// What a round came to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Round {
    pub(crate) requests: u64,
    pub(crate) per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) not_2xx: u64,
    pub(crate) socket_errors: u64,
    /// CPU time of the proxy per request.
    pub(crate) cpu_us: f64,
    /// Answers with another status than the case is about.
    pub(crate) unexpected: u64,
}

/// Drives `path` for a second; each request has this header line besides.
pub(crate) fn run(port: &Port, path: &str, line: Option<&str>) -> Result<Round> {
    let mut command = command(1);
    if let Some(line) = line {
        command.args(["-H", line]);
    }
    finish(command, port, path)
}

/// Drives `path` for a second as a script says.
pub(crate) fn run_script(port: &Port, path: &str, script: &Path) -> Result<Round> {
    run_script_for(1, port, path, script)
}

/// The same for so many seconds.
pub(crate) fn run_script_for(
    seconds: u32,
    port: &Port,
    path: &str,
    script: &Path,
) -> Result<Round> {
    let mut command = command(seconds);
    command.arg("-s").arg(script);
    finish(command, port, path)
}

fn command(seconds: u32) -> Command {
    let mut command = Command::new("wrk");
    command
        .args(["-t1", "--latency"])
        .arg(format!("-d{seconds}s"))
        .arg(format!("-c{CONNECTIONS}"));
    command
}

fn finish(mut command: Command, port: &Port, path: &str) -> Result<Round> {
    command.arg(format!("http://{}{path}", port.address()));
    let output = command.output().context("can't run wrk")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("wrk: {}", String::from_utf8_lossy(&output.stderr));
    }
    read(&text).with_context(|| format!("unexpected output of wrk:\n{text}"))
}

fn read(text: &str) -> Option<Round> {
    let mut round = Round::default();
    for line in text.lines().map(str::trim) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["50%", time] => round.p50_ms = milliseconds(time)?,
            ["99%", time] => round.p99_ms = milliseconds(time)?,
            ["Requests/sec:", rate] => round.per_second = rate.parse().ok()?,
            [count, "requests", "in", ..] => round.requests = count.parse().ok()?,
            ["Non-2xx", .., count] => round.not_2xx = count.parse().ok()?,
            ["Socket", "errors:", rest @ ..] => {
                let count = |word: &&str| word.trim_end_matches(',').parse::<u64>().ok();
                round.socket_errors = rest.iter().filter_map(count).sum();
            }
            _ => {}
        }
    }
    (round.requests > 0).then_some(round)
}

/// `1.23ms`, `456.00us`, `1.02s`.
fn milliseconds(text: &str) -> Option<f64> {
    let split = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().ok()?;
    match unit {
        "us" => Some(number / 1000.0),
        "ms" => Some(number),
        "s" => Some(number * 1000.0),
        "m" => Some(number * 60_000.0),
        _ => None,
    }
}
