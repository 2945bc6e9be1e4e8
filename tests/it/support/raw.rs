//! HTTP/1.1 byte by byte, for what a well-behaved client would never send, and
//! for bodies too large to hold.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::DEADLINE;

/// A response, as read from the wire.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    /// Status code.
    pub(crate) status: u16,
    /// Header lines, names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The body.
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// The first value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One connection.
pub(crate) struct Connection {
    stream: TcpStream,
    pending: Vec<u8>,
}

impl Connection {
    /// Connects to `authority`.
    pub(crate) async fn open(authority: &str) -> Self {
        Self::of(TcpStream::connect(authority).await.expect("a connection"))
    }

    /// The connection that `stream` is.
    pub(crate) fn of(stream: TcpStream) -> Self {
        Self {
            stream,
            pending: Vec::new(),
        }
    }

    /// Sends bytes as they are.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("sent");
    }

    /// Sends bytes; the other side may have hung up.
    pub(crate) async fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// Reads the head of a response.
    pub(crate) async fn head(&mut self) -> Response {
        self.try_head().await.expect("a response before the end")
    }

    /// Reads the head of a response, or `None` at the end of the connection.
    pub(crate) async fn try_head(&mut self) -> Option<Response> {
        let end = loop {
            let found = self.pending.windows(4).position(|w| w == b"\r\n\r\n");
            if let Some(at) = found {
                break at;
            }
            if !self.fill().await {
                return None;
            }
        };
        let text = String::from_utf8_lossy(&self.pending[..end]).into_owned();
        self.pending.drain(..end + 4);
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let headers = lines.filter_map(|line| line.split_once(':'));
        Some(Response {
            status: status.and_then(|code| code.parse().ok())?,
            headers: headers
                .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
                .collect(),
            body: Vec::new(),
        })
    }

    /// Reads a whole response.
    pub(crate) async fn response(&mut self) -> Response {
        self.try_response()
            .await
            .expect("a response before the end")
    }

    /// Reads a whole response, or `None` at the end of the connection.
    pub(crate) async fn try_response(&mut self) -> Option<Response> {
        let mut response = self.try_head().await?;
        let length = response.header("content-length").map(str::parse::<usize>);
        let chunked = response.header("transfer-encoding") == Some("chunked");
        response.body = match (length, chunked) {
            (_, true) => self.chunks().await,
            (Some(Ok(length)), _) => self.take(length).await,
            _ if matches!(response.status, 100..=199 | 204 | 304) => Vec::new(),
            _ => self.until_silence(DEADLINE).await,
        };
        Some(response)
    }

    /// Reads `length` bytes without keeping them.
    pub(crate) async fn skip(&mut self, length: u64) {
        let mut left = length;
        loop {
            let here = (self.pending.len() as u64).min(left);
            self.pending.drain(..here as usize);
            left -= here;
            if left == 0 {
                return;
            }
            assert!(self.fill().await, "{left} bytes of the body are missing");
        }
    }

    /// Everything until the other side closes; nothing more is expected after
    /// a silence of half a second.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        self.until_silence(Duration::from_millis(500)).await
    }

    async fn until_silence(&mut self, silence: Duration) -> Vec<u8> {
        while let Ok(true) = timeout(silence, self.fill()).await {}
        std::mem::take(&mut self.pending)
    }

    /// Whether the other side closes the connection, within the deadline.
    pub(crate) async fn is_closed(&mut self) -> bool {
        loop {
            match timeout(DEADLINE, self.fill()).await {
                Ok(true) => {}
                Ok(false) => return true,
                Err(_) => return false,
            }
        }
    }

    async fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let line = self.line().await;
            let size = usize::from_str_radix(line.trim(), 16).expect("a chunk size");
            body.extend(self.take(size).await);
            self.take(2).await;
            if size == 0 {
                return body;
            }
        }
    }

    async fn line(&mut self) -> String {
        loop {
            if let Some(at) = self.pending.windows(2).position(|w| w == b"\r\n") {
                let line = String::from_utf8_lossy(&self.pending[..at]).into_owned();
                self.pending.drain(..at + 2);
                return line;
            }
            assert!(self.fill().await, "the connection ended inside a line");
        }
    }

    async fn take(&mut self, length: usize) -> Vec<u8> {
        while self.pending.len() < length {
            assert!(self.fill().await, "the connection ended inside a body");
        }
        self.pending.drain(..length).collect()
    }

    /// Reads some more; `false` at the end.
    async fn fill(&mut self) -> bool {
        let mut buffer = vec![0; 256 * 1024];
        let read = timeout(DEADLINE, self.stream.read(&mut buffer)).await;
        let count = read.expect("bytes before the deadline").unwrap_or(0);
        self.pending.extend_from_slice(&buffer[..count]);
        count > 0
    }
}

/// Sends one request as it stands on a connection of its own and reads the
/// first response; `None` when the connection was closed without one.
pub(crate) async fn exchange(authority: &str, request: &[u8]) -> Option<Response> {
    let mut connection = Connection::open(authority).await;
    connection.try_send(request).await;
    connection.try_response().await
}
