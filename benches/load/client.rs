//! A connection that is used for many requests, and one that is a WebSocket.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::http::connect;
use crate::process::Port;

/// Longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(20);

/// A connection that stays open.
pub(crate) struct Client {
    address: String,
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(port: &Port) -> Result<Self> {
        let address = port.address();
        let stream = connect(&address, LIMIT)?;
        Ok(Self {
            address,
            stream,
            buffer: Vec::new(),
        })
    }

    /// Status of a GET.
    pub(crate) fn get(&mut self, path: &str) -> Result<u16> {
        let head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        self.exchange(head.as_bytes()).map(|(status, _)| status)
    }

    /// Status and text of a GET.
    pub(crate) fn page(&mut self, path: &str) -> Result<(u16, String)> {
        let head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        let (status, body) = self.exchange(head.as_bytes())?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    /// The whole head of the answer to a GET that sends these header lines.
    pub(crate) fn shown(&mut self, path: &str, lines: &str) -> Result<String> {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\n{lines}\r\n",
            self.address
        );
        self.exchange(request.as_bytes())?;
        let end = self.buffer.windows(4).position(|w| w == b"\r\n\r\n");
        Ok(String::from_utf8_lossy(&self.buffer[..end.unwrap_or_default()]).into_owned())
    }

    /// Status of a GET with a token.
    pub(crate) fn with_token(&mut self, path: &str, token: &str) -> Result<u16> {
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n\r\n",
            self.address
        );
        self.exchange(head.as_bytes()).map(|(status, _)| status)
    }

    /// Status of the answer to a request, written out.
    pub(crate) fn status(&mut self, request: &str) -> Result<u16> {
        self.exchange(request.as_bytes()).map(|(status, _)| status)
    }

    /// The token of a new session of the user at the provider.
    pub(crate) fn authenticate(&mut self) -> Result<String> {
        let request = format!(
            "POST /json/authenticate HTTP/1.1\r\nHost: {}\r\nX-OpenAM-Username: demo\r\n\
             X-OpenAM-Password: bench-password\r\nAccept-API-Version: resource=2.1\r\n\
             Content-Type: application/json\r\nContent-Length: 0\r\n\r\n",
            self.address
        );
        let (status, body) = self.exchange(request.as_bytes())?;
        let body = String::from_utf8_lossy(&body);
        let token = body.split_once("\"tokenId\":\"");
        let token = token.and_then(|(_, rest)| rest.split_once('"'));
        let (token, _) = token.with_context(|| format!("sign-in: {status} {body}"))?;
        Ok(token.to_owned())
    }

    /// A request to the Admin API; an answer that is no success is an error.
    pub(crate) fn admin(&mut self, method: &str, path: &str, body: &Value) -> Result<Vec<u8>> {
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        self.send(method, path, "application/json", &text)
    }

    /// The same with a body of any type.
    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &str,
    ) -> Result<Vec<u8>> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: {content_type}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let (status, answer) = self.exchange(request.as_bytes())?;
        if !(200..300).contains(&status) {
            let answer = String::from_utf8_lossy(&answer);
            bail!("{method} {path}: {status}: {answer:.500}");
        }
        Ok(answer)
    }

    fn exchange(&mut self, request: &[u8]) -> Result<(u16, Vec<u8>)> {
        self.stream.write_all(request)?;
        self.buffer.clear();
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            self.more()?;
        };
        let head = String::from_utf8_lossy(&self.buffer[..end]).to_ascii_lowercase();
        let status: u16 = head
            .get(9..12)
            .and_then(|status| status.parse().ok())
            .context("no status line")?;
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
        if let Some(length) = field("content-length:") {
            let length: usize = length.trim().parse()?;
            while self.buffer.len() < end + length {
                self.more()?;
            }
        } else if field("transfer-encoding:").is_some() {
            while !self.buffer.ends_with(b"0\r\n\r\n") {
                self.more()?;
            }
        }
        Ok((status, self.buffer[end..].to_vec()))
    }

    fn more(&mut self) -> Result<()> {
        let mut piece = [0; 16 << 10];
        match self.stream.read(&mut piece)? {
            0 => bail!("the connection was closed"),
            read => self.buffer.extend_from_slice(&piece[..read]),
        }
        Ok(())
    }
}

/// The value of a field in a head.
pub(crate) fn header(head: &str, name: &str) -> Option<String> {
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    let mut fields = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
    fields.next().map(|(_, value)| value.to_owned())
}

/// An open WebSocket to the echoing upstream.
pub(crate) struct WebSocket {
    stream: TcpStream,
    /// Messages that came back.
    pub(crate) echoed: u64,
}

impl WebSocket {
    pub(crate) fn open(port: &Port, path: &str) -> Result<Self> {
        let mut client = Client::connect(port)?;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            client.address
        );
        let (status, _) = client.exchange(request.as_bytes())?;
        if status != 101 {
            bail!("the WebSocket was answered with {status}");
        }
        Ok(Self {
            stream: client.stream,
            echoed: 0,
        })
    }

    /// Sends a message and waits until it is back.
    pub(crate) fn echo(&mut self) -> Result<()> {
        // A masked text frame of four bytes; the mask is zero.
        let sent = *b"\x81\x84\0\0\0\0ping";
        self.stream.write_all(&sent)?;
        let mut back = [0; 10];
        self.stream.read_exact(&mut back)?;
        if back != sent {
            bail!("the WebSocket brought back something else");
        }
        self.echoed += 1;
        Ok(())
    }
}
