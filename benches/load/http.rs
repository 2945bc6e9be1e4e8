//! As much of an HTTP client as the benchmark needs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::{Port, Process};

/// Status and body of a GET on a connection of its own.
pub(crate) fn get(
    port: &Port,
    path: &str,
    bearer: Option<&str>,
    limit: Duration,
) -> Result<(u16, String)> {
    let line = bearer.map(|token| format!("Authorization: Bearer {token}"));
    get_with(port, path, line.as_deref(), limit)
}

/// The same with a header line.
pub(crate) fn get_with(
    port: &Port,
    path: &str,
    line: Option<&str>,
    limit: Duration,
) -> Result<(u16, String)> {
    let line = line.map_or(String::new(), |line| format!("{line}\r\n"));
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\n{line}Connection: close\r\n\r\n",
        port.address()
    );
    exchange(port, &head, limit)
}

/// Status and body of a form POST.
pub(crate) fn post_form(port: &Port, path: &str, form: &str) -> Result<(u16, String)> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{form}",
        port.address(),
        form.len()
    );
    exchange(port, &head, Duration::from_secs(5))
}

fn exchange(port: &Port, request: &str, limit: Duration) -> Result<(u16, String)> {
    let mut stream = connect(&port.address(), limit)?;
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    while !is_whole(&bytes) {
        match stream.read(&mut piece)? {
            0 => break,
            read => bytes.extend_from_slice(&piece[..read]),
        }
    }
    let answer = String::from_utf8_lossy(&bytes).into_owned();
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .context("no status line")?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status, body.to_owned()))
}

/// Whether an answer has come to its end, as far as its head tells: without a
/// length it ends with the connection.
fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
    if let Some(length) = field("content-length:") {
        return length
            .trim()
            .parse()
            .is_ok_and(|length: usize| body.len() >= length);
    }
    field("transfer-encoding:").is_some() && body.ends_with("0\r\n\r\n")
}

pub(crate) fn connect(address: &str, limit: Duration) -> Result<TcpStream> {
    let address: SocketAddr = address.parse()?;
    let stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Waits until any answer comes; returns how long that took.
pub(crate) fn await_answer(port: &Port, path: &str, limit: Duration) -> Result<Duration> {
    let start = Instant::now();
    loop {
        match get(port, path, None, Duration::from_secs(1)) {
            Ok(_) => return Ok(start.elapsed()),
            Err(error) if start.elapsed() > limit => {
                return Err(
                    error.context(format!("no answer from {} in {limit:?}", port.address()))
                );
            }
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// A part of this program: opens `count` connections, sends one request on
/// each, reads the answer, says how many are open, and holds them.
pub(crate) fn hold_idle(address: String, path: String, count: usize) -> Result<()> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let mut held = Vec::new();
    for _ in 0..count {
        let Ok(mut stream) = connect(&address, Duration::from_secs(5)) else {
            break;
        };
        stream.write_all(request.as_bytes())?;
        let mut answer = [0; 4096];
        if stream.read(&mut answer)? == 0 {
            break;
        }
        held.push(stream);
    }
    std::fs::write(ready_file(std::process::id()), held.len().to_string())?;
    std::thread::sleep(Duration::from_secs(60));
    Ok(())
}

/// How many connections [`hold_idle`] in `process` holds, once it is ready.
pub(crate) fn await_ready(process: &Process, limit: Duration) -> Result<u64> {
    let file = ready_file(process.id());
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if let Ok(text) = std::fs::read_to_string(&file)
            && let Ok(count) = text.parse()
        {
            std::fs::remove_file(&file)?;
            return Ok(count);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    bail!("the idle connections were not opened in {limit:?}")
}

fn ready_file(pid: u32) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("doorward-load-idle-{pid}"))
}
