//! The access log: a line a request, as a JSON object or by a template.
//!
//! A worker only appends to its own buffer; one thread writes all buffers out
//! ten times a second. A reader that is too slow loses lines, never requests.

mod config;
mod selection;
mod template;

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt::{self, Display, Formatter, Write as _};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::thread::LocalKey;
use std::time::Duration;

use super::line_sink::LineSink;
use super::log_file::LogFile;
use super::log_socket::{Daemon, LogSocket};
use super::metrics::{Counter, STRIPES};
use super::spool::{Bounds, Spool};
use selection::Selection;
use template::Template;

pub use config::{AccessLogConfig, Finding};

/// What waits in the workers' buffers.
const BOUNDS: Bounds = Bounds {
    shards: STRIPES,
    lines: 1 << 15,
    bytes: 4 << 20,
    prompt: false,
};
/// Permissions of a new file, less the umask.
const MODE: u32 = 0o666;

/// One finished request. No query string, no header that may hold a secret.
#[derive(Debug)]
pub struct Entry<'a> {
    /// Milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// Identifier of the request, if it has one.
    pub request_id: Option<&'a str>,
    /// The client.
    pub client: IpAddr,
    /// The method.
    pub method: &'a str,
    /// Host header.
    pub host: &'a str,
    /// Path without query.
    pub path: &'a str,
    /// `1.0`, `1.1` or `2`.
    pub http: &'static str,
    /// Status of the answer; 0: none.
    pub status: u16,
    /// The route's label, if one matched.
    pub route: Option<&'a str>,
    /// The service's label.
    pub service: Option<&'a str>,
    /// The whole request in microseconds.
    pub total_us: u64,
    /// Wait for the upstream in microseconds.
    pub upstream_us: Option<u64>,
    /// Body bytes from the client.
    pub received: u64,
    /// Body bytes to the client.
    pub sent: u64,
    /// Name of the consumer.
    pub consumer: Option<&'a str>,
    /// Subject of the client's verified certificate.
    pub certificate: Option<&'a str>,
    /// Code of a refusal by a filter.
    pub refusal: Option<&'a str>,
    /// Method of a call of the Model Context Protocol, as the configuration knows it.
    pub mcp_method: Option<&'a str>,
    /// What it calls by name, likewise.
    pub mcp_name: Option<&'a str>,
    /// User-Agent header.
    pub user_agent: &'a str,
    /// What not every format has.
    pub more: More<'a>,
}

/// What not every format has: templates may ask for all of it.
#[derive(Debug, Default)]
pub struct More<'a> {
    /// Subject of the access token.
    pub subject: Option<&'a str>,
    /// Client of the access token.
    pub client_id: Option<&'a str>,
    /// Identifier of the trace.
    pub trace_id: Option<Cow<'a, str>>,
    /// The upstream that was tried last.
    pub upstream: Option<SocketAddr>,
    /// Further tries after the first.
    pub retries: usize,
    /// Version of TLS and cipher suite.
    pub tls: Option<(&'a str, &'a str)>,
    /// Referer header.
    pub referer: Option<&'a str>,
}

/// How a line is written.
#[derive(Debug)]
enum Format {
    Json,
    Template(Template),
}

/// Where requests are logged.
#[derive(Debug)]
pub struct AccessLog {
    spool: Spool,
    format: Format,
    selection: Selection,
}

impl AccessLog {
    /// A log whose lost lines are counted in `lost`.
    ///
    /// # Errors
    /// The key of `config` that can't be used, and why.
    pub fn new(config: &AccessLogConfig, lost: Counter) -> Result<Self, Finding> {
        let (format, selection) = config.compile()?;
        Ok(Self {
            spool: Spool::new("access_log", BOUNDS, lost),
            format,
            selection,
        })
    }

    /// Whether a request with this status and duration has a line; asked once for
    /// each request, before its entry is made. Status 0: there was no answer.
    pub fn takes(&self, status: u16, total: Duration) -> bool {
        self.selection.takes(status, total)
    }

    /// Whether lines may have [`More::trace_id`].
    pub fn wants_trace_id(&self) -> bool {
        match &self.format {
            Format::Json => true,
            Format::Template(template) => template.has_trace_id(),
        }
    }

    /// Notes a finished request.
    pub fn note(&self, entry: &Entry<'_>) {
        self.spool.append_with(0, |text| match &self.format {
            Format::Json => line(text, entry),
            Format::Template(template) => template.write(text, entry),
        });
    }

    /// Waits until what was noted so far is written, at most for `limit`.
    pub fn flush(&self, limit: Duration) {
        self.spool.flush(limit);
    }

    /// Has the file opened again.
    pub fn reopen(&self) {
        self.spool.reopen();
    }

    /// Writes to `outlet` until the process ends.
    pub fn run(&self, outlet: LineSink) {
        self.spool.run(outlet);
    }
}

/// What the setting names.
enum Place<'a> {
    Nowhere,
    Stdout,
    Daemon(Daemon, &'a Path),
    File(&'a Path),
}

impl<'a> Place<'a> {
    fn of(setting: &'a str) -> Self {
        let daemon = |daemon: Daemon, rest: &'a str| match rest.strip_prefix(':') {
            Some(path) => Some(Self::Daemon(daemon, Path::new(path))),
            None if rest.is_empty() => Some(Self::Daemon(daemon, daemon.usual_path())),
            None => None,
        };
        let syslog = setting.strip_prefix("syslog");
        let journal = setting.strip_prefix("journal");
        match setting {
            "off" => Self::Nowhere,
            "stdout" => Self::Stdout,
            file => syslog
                .and_then(|rest| daemon(Daemon::Syslog, rest))
                .or_else(|| journal.and_then(|rest| daemon(Daemon::Journal, rest)))
                .unwrap_or(Self::File(Path::new(file))),
        }
    }
}

/// What stands before the path in a setting, and the path that it names: that of a file,
/// or of the socket of a daemon.
pub fn split_path(setting: &str) -> Option<(&str, &str)> {
    let path = match Place::of(setting) {
        Place::File(path) | Place::Daemon(_, path) => path.to_str()?,
        Place::Nowhere | Place::Stdout => return None,
    };
    // The usual path of a daemon is not in the setting.
    setting.strip_suffix(path).map(|before| (before, path))
}

/// The place that `setting` names: `stdout`, `off`, a log daemon or a file.
///
/// # Errors
/// When the file can't be appended to, or the daemon is not there.
pub fn open(setting: &str) -> io::Result<Option<LineSink>> {
    Ok(match Place::of(setting) {
        Place::Nowhere => None,
        Place::Stdout => Some(LineSink::duplicate(&io::stdout())?),
        Place::Daemon(daemon, path) => Some(LineSink::socket(LogSocket::open(daemon, path)?)),
        Place::File(file) => Some(LineSink::file(LogFile::open(file, MODE)?)),
    })
}

/// Whether [`open`] would succeed; makes nothing.
///
/// # Errors
/// Those of [`open`].
pub fn check(setting: &str) -> io::Result<()> {
    match Place::of(setting) {
        Place::Nowhere | Place::Stdout => Ok(()),
        Place::Daemon(_, path) => LogSocket::check(path),
        Place::File(file) => LogFile::check(file),
    }
}

/// A client as lines name it. Peers on Unix sockets have no address, and no client has
/// the one that stands for them elsewhere (RFC 1122 §3.2.1.3).
struct ClientName(IpAddr);

impl Display for ClientName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 == IpAddr::V4(Ipv4Addr::UNSPECIFIED) {
            return f.write_str("unix:");
        }
        self.0.fmt(f)
    }
}

fn line(out: &mut String, entry: &Entry<'_>) {
    let us = entry.total_us;
    out.push_str("{\"time\":\"");
    timestamp(out, entry.time_ms);
    // Writing to a string can't fail.
    let _ = write!(
        out,
        "\",\"client\":\"{}\",\"method\":\"{}\",\"host\":",
        ClientName(entry.client),
        entry.method
    );
    text(out, entry.host);
    out.push_str(",\"path\":");
    text(out, entry.path);
    let _ = write!(
        out,
        ",\"http\":\"{}\",\"status\":{},\"total_ms\":{}.{:03}",
        entry.http,
        entry.status,
        us / 1000,
        us % 1000
    );
    if let Some(us) = entry.upstream_us {
        let _ = write!(out, ",\"upstream_ms\":{}.{:03}", us / 1000, us % 1000);
    }
    if let Some(address) = entry.more.upstream {
        let _ = write!(out, ",\"upstream_address\":\"{address}\"");
    }
    if entry.more.retries > 0 {
        let _ = write!(out, ",\"retries\":{}", entry.more.retries);
    }
    let _ = write!(
        out,
        ",\"received\":{},\"sent\":{}",
        entry.received, entry.sent
    );
    for (name, value) in [
        ("service", entry.service),
        ("route", entry.route),
        ("consumer", entry.consumer),
        ("certificate", entry.certificate),
        ("refusal", entry.refusal),
        ("mcp_method", entry.mcp_method),
        ("mcp_name", entry.mcp_name),
        ("request_id", entry.request_id),
        ("trace_id", entry.more.trace_id.as_deref()),
    ] {
        if let Some(value) = value {
            let _ = write!(out, ",\"{name}\":");
            text(out, value);
        }
    }
    out.push_str(",\"user_agent\":");
    text(out, entry.user_agent);
    out.push_str("}\n");
}

/// `value` as a JSON string, at most 1 KiB of it.
fn text(out: &mut String, value: &str) {
    out.push('"');
    let end = value.floor_char_boundary(1024);
    for c in value[..end].chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            // Some readers end lines at the latter two.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// A second as text, kept per thread: requests come many to the second.
type CachedSecond = RefCell<(i64, String)>;

/// Appends the second of `time_ms` in UTC by `format`, which `cache` is for alone.
fn second(out: &mut String, cache: &'static LocalKey<CachedSecond>, time_ms: i64, format: &str) {
    let second = time_ms.div_euclid(1000);
    cache.with_borrow_mut(|(cached, text)| {
        if *cached != second {
            *cached = second;
            text.clear();
            if let Some(time) = chrono::DateTime::from_timestamp(second, 0) {
                let _ = write!(text, "{}", time.format(format));
            }
        }
        out.push_str(text);
    });
}

/// RFC 3339 in UTC with milliseconds.
fn timestamp(out: &mut String, time_ms: i64) {
    thread_local! {
        static CACHE: CachedSecond = const { RefCell::new((i64::MIN, String::new())) };
    }
    second(out, &CACHE, time_ms, "%Y-%m-%dT%H:%M:%S");
    let _ = write!(out, ".{:03}Z", time_ms.rem_euclid(1000));
}

/// The time of the common log format, in UTC.
fn clf_time(out: &mut String, time_ms: i64) {
    thread_local! {
        static CACHE: CachedSecond = const { RefCell::new((i64::MIN, String::new())) };
    }
    second(out, &CACHE, time_ms, "%d/%b/%Y:%H:%M:%S +0000");
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn entry() -> Entry<'static> {
        Entry {
            time_ms: 1_700_000_000_123,
            request_id: None,
            client: IpAddr::from([127, 0, 0, 1]),
            method: "GET",
            host: "a\"b",
            path: "/x\n",
            http: "1.1",
            status: 200,
            route: Some("all"),
            service: None,
            total_us: 1_234,
            upstream_us: Some(987),
            received: 0,
            sent: 3,
            consumer: None,
            certificate: None,
            refusal: None,
            mcp_method: None,
            mcp_name: None,
            user_agent: "curl",
            more: More::default(),
        }
    }

    #[test]
    fn a_line_is_one_json_object() {
        let mut out = String::new();
        line(&mut out, &entry());
        let value: serde_json::Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(value["time"], "2023-11-14T22:13:20.123Z");
        assert_eq!(value["host"], "a\"b");
        assert_eq!(value["path"], "/x\n");
        assert_eq!(value["total_ms"], 1.234);
        for member in ["upstream_address", "retries", "trace_id"] {
            assert!(value.get(member).is_none(), "{member}");
        }
        assert_eq!(out.matches('\n').count(), 1);
    }

    #[test]
    fn a_client_on_a_unix_socket_is_named_as_in_the_configuration() {
        let mut entry = entry();
        entry.client = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let mut out = String::new();
        line(&mut out, &entry);
        let value: serde_json::Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(value["client"], "unix:");
    }

    #[test]
    fn a_reader_that_is_too_slow_loses_lines_not_memory() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("access.log");
        let lost = Counter::default();
        let log = std::sync::Arc::new(
            AccessLog::new(&AccessLogConfig::default(), lost.clone()).expect("a log"),
        );
        let noted = 40_000;
        for _ in 0..noted {
            log.note(&entry());
        }
        assert!(lost.get() > 0);
        let outlet = open(path.to_str().expect("UTF-8")).expect("a file");
        let writer = log.clone();
        std::thread::spawn(move || writer.run(outlet.expect("a file")));
        log.flush(Duration::from_secs(60));
        let text = std::fs::read_to_string(&path).expect("a file");
        assert_eq!(text.lines().count() as u64 + lost.get(), noted);
    }
}
