//! A memcached, in its text protocol.
//!
//! A bounded number of connections, kept for whoever comes next. Nothing waits
//! longer than the deadline; after a failure nobody asks for a moment, so that a
//! server that is gone costs those who wait for it nothing.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufStream};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::Unavailable;
use crate::telemetry::Metrics;
use crate::telemetry::metrics::{Counter, Gauge};
use doorward_core::clock::monotonic_ns;

/// Most connections at a time; whoever comes then waits, no longer than the
/// deadline.
const CONNECTIONS: usize = 64;
/// Most connections that are kept for later.
const IDLE: usize = 16;
/// Longest line and longest value that are read, in bytes: memcached keeps none
/// above 1 MiB by itself.
const LINE_MAX: u64 = 1024;
const VALUE_MAX: usize = 1024 * 1024;
/// How often a number is tried to be raised that others change, too.
const TRIES: u32 = 64;
/// For how long nobody asks after a failure, in nanoseconds.
const PAUSE_NS: u64 = 500_000_000;

/// Where it listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// A host and a port.
    Tcp(String, u16),
    /// A socket of the file system.
    Unix(PathBuf),
}

/// How a value is put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// Whatever is there.
    Always,
    /// Where nothing is.
    New,
    /// Where something is.
    Existing,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Connection = BufStream<Box<dyn Stream>>;

/// A memcached.
pub struct Memcached {
    address: Address,
    deadline: Duration,
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
    /// Until when nobody asks, on the monotonic clock.
    pause_ns: AtomicU64,
    is_down: AtomicBool,
    up: Gauge,
    failures: Counter,
}

impl std::fmt::Debug for Memcached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memcached({:?})", self.address)
    }
}

impl Memcached {
    /// The one at `address`, asked when there is something to ask; `deadline` is
    /// the longest wait for an answer, a connection included.
    pub fn new(address: Address, deadline: Duration, metrics: &Metrics) -> Self {
        let up = metrics.session_store_up();
        up.set(1);
        Self {
            address,
            deadline,
            idle: Mutex::default(),
            permits: Semaphore::new(CONNECTIONS),
            pause_ns: AtomicU64::new(0),
            is_down: AtomicBool::new(false),
            up,
            failures: metrics.session_store_failures(),
        }
    }

    /// The value of each of `keys`, which are texts of the program: without
    /// spaces, at most 250 bytes long.
    ///
    /// # Errors
    /// [`Unavailable`] where no answer comes within the deadline.
    pub async fn get(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, Unavailable> {
        let command = format!("get {}\r\n", keys.join(" ")).into_bytes();
        let found = self.ask(&command, ReplyKind::Values).await?;
        let Answer::Values(found) = found else {
            return Err(self.gone("another answer than values"));
        };
        let of = |key: &String| {
            let mut all = found.iter();
            all.find(|item| item.key == *key)
                .map(|item| item.value.clone())
        };
        Ok(keys.iter().map(of).collect())
    }

    /// Puts a value in until `until_secs` (of the epoch); says whether it was.
    ///
    /// # Errors
    /// As [`Memcached::get`].
    pub async fn put(
        &self,
        put: Put,
        key: &str,
        value: &[u8],
        until_secs: i64,
    ) -> Result<bool, Unavailable> {
        let verb = match put {
            Put::Always => "set",
            Put::New => "add",
            Put::Existing => "replace",
        };
        let mut command = format!("{verb} {key} 0 {until_secs} {}\r\n", value.len()).into_bytes();
        command.extend_from_slice(value);
        command.extend_from_slice(b"\r\n");
        match self.line(&command).await?.as_str() {
            "STORED" => Ok(true),
            "NOT_STORED" => Ok(false),
            other => Err(self.gone(other)),
        }
    }

    /// Removes a key, if it is there.
    ///
    /// # Errors
    /// As [`Memcached::get`].
    pub async fn remove(&self, key: &str) -> Result<(), Unavailable> {
        let command = format!("delete {key}\r\n").into_bytes();
        match self.line(&command).await?.as_str() {
            "DELETED" | "NOT_FOUND" => Ok(()),
            other => Err(self.gone(other)),
        }
    }

    /// Removes a key if its value is `value`, whoever else changes it at this
    /// moment; says whether it was.
    ///
    /// # Errors
    /// As [`Memcached::get`].
    pub async fn remove_if(&self, key: &str, value: &[u8]) -> Result<bool, Unavailable> {
        let found = self.changeable(key).await?;
        let Some((_, unique)) = found.filter(|(found, _)| found == value) else {
            return Ok(false);
        };
        // Put in as over, if it is still what was seen.
        self.replace(key, b"", -1, unique).await
    }

    /// Raises the number at a key to `value`, whoever else does at this moment, and
    /// keeps it until `until_secs` (of the epoch).
    ///
    /// # Errors
    /// As [`Memcached::get`], and where others change it all the time.
    pub async fn raise(&self, key: &str, value: i64, until_secs: i64) -> Result<(), Unavailable> {
        for _ in 0..TRIES {
            let raised = match self.changeable(key).await? {
                None => {
                    let value = value.to_string();
                    self.put(Put::New, key, value.as_bytes(), until_secs)
                        .await?
                }
                Some((known, unique)) => {
                    let known = std::str::from_utf8(&known).ok();
                    let known = known.and_then(|text| text.parse().ok());
                    let most = known.map_or(value, |known: i64| known.max(value));
                    let most = most.to_string();
                    self.replace(key, most.as_bytes(), until_secs, unique)
                        .await?
                }
            };
            if raised {
                return Ok(());
            }
        }
        Err(Unavailable)
    }

    /// The value of a key, with what says whether it has changed since.
    async fn changeable(&self, key: &str) -> Result<Option<(Vec<u8>, u64)>, Unavailable> {
        let command = format!("gets {key}\r\n").into_bytes();
        let Answer::Values(found) = self.ask(&command, ReplyKind::Values).await? else {
            return Err(self.gone("another answer than values"));
        };
        let found = found.into_iter().find(|item| item.key == key);
        Ok(found.and_then(|item| Some((item.value, item.unique?))))
    }

    /// Puts a value in the place of the one that was seen; says whether that was
    /// still there.
    async fn replace(
        &self,
        key: &str,
        value: &[u8],
        until_secs: i64,
        unique: u64,
    ) -> Result<bool, Unavailable> {
        let length = value.len();
        let mut command = format!("cas {key} 0 {until_secs} {length} {unique}\r\n").into_bytes();
        command.extend_from_slice(value);
        command.extend_from_slice(b"\r\n");
        match self.line(&command).await?.as_str() {
            "STORED" => Ok(true),
            "EXISTS" | "NOT_FOUND" => Ok(false),
            other => Err(self.gone(other)),
        }
    }

    async fn line(&self, command: &[u8]) -> Result<String, Unavailable> {
        match self.ask(command, ReplyKind::Line).await? {
            Answer::Line(line) => Ok(line),
            Answer::Values(_) => Err(self.gone("values that nobody asked for")),
        }
    }

    async fn ask(&self, command: &[u8], reading: ReplyKind) -> Result<Answer, Unavailable> {
        if monotonic_ns() < self.pause_ns.load(Ordering::Relaxed) {
            return Err(Unavailable);
        }
        match timeout(self.deadline, self.send_command(command, reading)).await {
            Ok(Ok(answer)) => {
                if self.is_down.swap(false, Ordering::Relaxed) {
                    tracing::info!("the memcached of login sessions answers again");
                }
                self.up.set(1);
                Ok(answer)
            }
            Ok(Err(error)) => Err(self.gone(&error.to_string())),
            Err(_) => Err(self.gone("no answer within the deadline")),
        }
    }

    async fn send_command(&self, command: &[u8], reading: ReplyKind) -> std::io::Result<Answer> {
        let closed = |_| std::io::Error::other("closed");
        let _permit = self.permits.acquire().await.map_err(closed)?;
        let known = self.idle.lock().pop();
        if let Some(mut connection) = known
            && let Ok(answer) = exchange(&mut connection, command, reading).await
        {
            self.keep(connection);
            return Ok(answer);
        }
        // It was closed meanwhile, like all that are as old.
        self.idle.lock().clear();
        let mut connection = self.connect().await?;
        let answer = exchange(&mut connection, command, reading).await?;
        self.keep(connection);
        Ok(answer)
    }

    async fn connect(&self) -> std::io::Result<Connection> {
        let stream: Box<dyn Stream> = match &self.address {
            Address::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            Address::Unix(path) => Box::new(UnixStream::connect(path).await?),
        };
        Ok(BufStream::new(stream))
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE {
            idle.push(connection);
        }
    }

    fn gone(&self, why: &str) -> Unavailable {
        self.failures.inc();
        self.up.set(0);
        self.pause_ns
            .store(monotonic_ns().saturating_add(PAUSE_NS), Ordering::Relaxed);
        if !self.is_down.swap(true, Ordering::Relaxed) {
            let why: String = why.chars().take(120).collect();
            tracing::warn!(
                why = ?why,
                "the memcached of login sessions gives no answer: requests with a session are refused"
            );
        }
        Unavailable
    }
}

/// What kind of answer a command has.
#[derive(Clone, Copy)]
enum ReplyKind {
    Line,
    Values,
}

enum Answer {
    Line(String),
    Values(Vec<Item>),
}

/// A value as it is there.
struct Item {
    key: String,
    value: Vec<u8>,
    /// Another one with every change, where it is asked for.
    unique: Option<u64>,
}

async fn exchange(
    connection: &mut Connection,
    command: &[u8],
    reading: ReplyKind,
) -> std::io::Result<Answer> {
    connection.write_all(command).await?;
    connection.flush().await?;
    let mut values = Vec::new();
    loop {
        let line = read_line(connection).await?;
        match reading {
            ReplyKind::Line => return Ok(Answer::Line(line)),
            ReplyKind::Values if line == "END" => return Ok(Answer::Values(values)),
            ReplyKind::Values => {}
        }
        let malformed = || std::io::Error::other(format!("unexpected answer {line:?}"));
        let mut words = line.split(' ');
        let (verb, key) = (words.next(), words.next());
        let length = words.nth(1).and_then(|text| text.parse::<usize>().ok());
        let unique = words.next().and_then(|text| text.parse().ok());
        let (Some("VALUE"), Some(key), Some(length)) = (verb, key, length) else {
            return Err(malformed());
        };
        if length > VALUE_MAX {
            return Err(malformed());
        }
        let mut value = vec![0; length + 2];
        connection.read_exact(&mut value).await?;
        value.truncate(length);
        values.push(Item {
            key: key.to_owned(),
            value,
            unique,
        });
    }
}

async fn read_line(connection: &mut Connection) -> std::io::Result<String> {
    let mut line = Vec::new();
    let mut bounded = connection.take(LINE_MAX);
    bounded.read_until(b'\n', &mut line).await?;
    if !line.ends_with(b"\r\n") {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    line.truncate(line.len() - 2);
    String::from_utf8(line).map_err(std::io::Error::other)
}
