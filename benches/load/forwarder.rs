//! A study, kept out of the product: a plain HTTP/1.1 forwarding loop on the
//! engine's listeners and connection pools, with the strict parse of heads and
//! chunks. Its count says what the engine's proxy costs beyond the work itself.
//!
//! It sends a request's body before it reads the answer, and knows neither
//! upgrades nor retries nor filters.

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use async_trait::async_trait;
use bytes::{Buf, BytesMut};
use pingora::apps::ServerApp;
use pingora::connectors::{ConnectorOptions, TransportConnector};
use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;
use pingora::upstreams::peer::{BasicPeer, Peer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::chunks::Chunks;

/// Longest head, in bytes.
const HEAD_MAX: usize = 64 << 10;
/// Most fields of a head.
const FIELDS_MAX: usize = 128;
/// Longest wait for the other side.
const PATIENCE: Duration = Duration::from_secs(60);
/// What is written at once at most.
const PIECE: usize = 64 << 10;

/// Where the connection to the upstream waits for its next request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// In the engine's pool.
    Pool,
    /// With the client's connection: what a pool costs is left out.
    Client,
}

/// The loop's application, one a worker.
pub(crate) struct Forwarder {
    connector: TransportConnector,
    peer: BasicPeer,
    keeping: Keeping,
}

impl Forwarder {
    pub(crate) fn new(upstream: SocketAddr, keeping: Keeping) -> Self {
        Self {
            connector: TransportConnector::new(Some(ConnectorOptions::new(1024))),
            peer: BasicPeer::new(&upstream.to_string()),
            keeping,
        }
    }
}

#[async_trait]
impl ServerApp for Forwarder {
    async fn process_new(
        self: &Arc<Self>,
        client: Stream,
        _shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let mut connection = Connection {
            client,
            received: BytesMut::with_capacity(8 << 10),
            upstream: None,
            answered: BytesMut::with_capacity(8 << 10),
            out: Vec::with_capacity(8 << 10),
        };
        // A client that is refused is cut off; the study tells nobody why.
        while let Ok(true) = connection.exchange(self).await {}
        None
    }
}

/// A client's connection, with buffers that its requests share.
struct Connection {
    client: Stream,
    received: BytesMut,
    upstream: Option<Stream>,
    answered: BytesMut,
    out: Vec<u8>,
}

impl Connection {
    /// Forwards one request and its answer; whether another may follow.
    async fn exchange(&mut self, app: &Forwarder) -> Result<bool> {
        let Some(request) = self.request_head().await? else {
            return Ok(false);
        };
        let mut upstream = match self.upstream.take() {
            Some(stream) => stream,
            None => app.connector.get_stream(&app.peer).await?.0,
        };
        let body = request.body;
        send(
            &mut self.client,
            &mut self.received,
            &mut upstream,
            &mut self.out,
            body,
        )
        .await?;
        let answer = self.answer_head(&mut upstream, &request).await?;
        let body = answer.body;
        send(
            &mut upstream,
            &mut self.answered,
            &mut self.client,
            &mut self.out,
            body,
        )
        .await?;
        if answer.keeps && self.answered.is_empty() {
            match app.keeping {
                Keeping::Client => self.upstream = Some(upstream),
                Keeping::Pool => {
                    let hash = app.peer.reuse_hash();
                    app.connector.release_stream(upstream, hash, Some(PATIENCE));
                }
            }
        }
        Ok(request.keeps && body != Body::UntilClose)
    }

    /// Reads the next request's head and writes the forwarded one to `out`.
    async fn request_head(&mut self) -> Result<Option<RequestHead>> {
        loop {
            let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
            let mut head = httparse::Request::new(&mut []);
            let parsed = head.parse_with_uninit_headers(&self.received, &mut fields)?;
            if let httparse::Status::Complete(length) = parsed {
                check_line_ends(&self.received[..length])?;
                let request = forward_request(&head, &mut self.out)?;
                self.received.advance(length);
                return Ok(Some(request));
            }
            if !fill(&mut self.client, &mut self.received).await? {
                return Ok(None);
            }
        }
    }

    /// Reads the answer's head and writes the forwarded one to `out`, interim
    /// ones before it.
    async fn answer_head(
        &mut self,
        upstream: &mut Stream,
        request: &RequestHead,
    ) -> Result<AnswerHead> {
        loop {
            let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
            let mut head = httparse::Response::new(&mut []);
            let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
                &mut head,
                &self.answered,
                &mut fields,
            )?;
            if let httparse::Status::Complete(length) = parsed {
                check_line_ends(&self.answered[..length])?;
                let answer = forward_answer(&head, request, &mut self.out)?;
                self.answered.advance(length);
                if !answer.is_interim {
                    return Ok(answer);
                }
                continue;
            }
            let more = fill(upstream, &mut self.answered).await?;
            ensure!(more, "the upstream closed before its answer");
        }
    }
}

/// Reads what comes next; false at the end.
async fn fill(from: &mut Stream, buffer: &mut BytesMut) -> Result<bool> {
    ensure!(buffer.len() < HEAD_MAX, "a head is too long");
    buffer.reserve(4 << 10);
    let read = timeout(PATIENCE, from.read_buf(buffer)).await;
    Ok(read.context("nothing came")?? > 0)
}

/// How a body ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    None,
    Length(u64),
    Chunked,
    UntilClose,
}

struct RequestHead {
    is_head: bool,
    is_http_1_0: bool,
    keeps: bool,
    body: Body,
}

struct AnswerHead {
    is_interim: bool,
    keeps: bool,
    body: Body,
}

/// What the fields of a head say about the message.
#[derive(Default)]
struct Framing<'a> {
    length: Option<u64>,
    is_chunked: bool,
    hosts: u32,
    connection: Option<&'a [u8]>,
}

impl<'a> Framing<'a> {
    /// Reads the fields once; refuses what two readers could read differently.
    fn of(fields: &[httparse::Header<'a>]) -> Result<Self> {
        let mut framing = Self::default();
        for field in fields {
            match kind(field.name.as_bytes()) {
                Kind::Host => framing.hosts += 1,
                Kind::Connection => {
                    ensure!(framing.connection.is_none(), "Connection twice");
                    framing.connection = Some(field.value);
                }
                Kind::Length => {
                    ensure!(framing.length.is_none(), "Content-Length twice");
                    framing.length = Some(length(field.value)?);
                }
                Kind::Coding => {
                    let value = field.value;
                    ensure!(!framing.is_chunked, "Transfer-Encoding twice");
                    ensure!(value.eq_ignore_ascii_case(b"chunked"), "a coding");
                    framing.is_chunked = true;
                }
                Kind::HopByHop | Kind::Other => {}
            }
        }
        let is_ambiguous = framing.is_chunked && framing.length.is_some();
        ensure!(!is_ambiguous, "two ways to end a body");
        Ok(framing)
    }

    /// Whether the connection's options name this one.
    fn names(&self, option: &[u8]) -> bool {
        self.connection.is_some_and(|options| {
            let mut options = options.split(|byte| *byte == b',');
            options.any(|one| one.trim_ascii().eq_ignore_ascii_case(option))
        })
    }

    /// Writes the fields that go on to the other side.
    fn write(&self, fields: &[httparse::Header<'_>], out: &mut Vec<u8>) {
        let nominates = self.connection.is_some();
        for field in fields {
            let name = field.name.as_bytes();
            match kind(name) {
                Kind::Connection | Kind::HopByHop => continue,
                Kind::Other if nominates && self.names(name) => continue,
                _ => {}
            }
            for part in [name, b": ", field.value, b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
    }
}

/// What a field is to a proxy.
enum Kind {
    Host,
    Connection,
    Length,
    Coding,
    HopByHop,
    Other,
}

fn kind(name: &[u8]) -> Kind {
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    match name.len() {
        2 if is(b"te") => Kind::HopByHop,
        4 if is(b"host") => Kind::Host,
        7 if is(b"upgrade") => Kind::HopByHop,
        10 if is(b"connection") => Kind::Connection,
        10 if is(b"keep-alive") => Kind::HopByHop,
        14 if is(b"content-length") => Kind::Length,
        16 if is(b"proxy-connection") => Kind::HopByHop,
        17 if is(b"transfer-encoding") => Kind::Coding,
        _ => Kind::Other,
    }
}

fn length(value: &[u8]) -> Result<u64> {
    let is_number = !value.is_empty() && value.len() < 19 && value.iter().all(u8::is_ascii_digit);
    ensure!(is_number, "Content-Length is no number");
    Ok(std::str::from_utf8(value)?.parse()?)
}

/// The parser takes a lone LF for the end of a line; the next hop may not.
fn check_line_ends(head: &[u8]) -> Result<()> {
    let mut rest = head;
    while let Some(at) = memchr::memchr(b'\n', rest) {
        ensure!(at > 0 && rest[at - 1] == b'\r', "a line ends with LF alone");
        rest = &rest[at + 1..];
    }
    Ok(())
}

fn forward_request(head: &httparse::Request<'_, '_>, out: &mut Vec<u8>) -> Result<RequestHead> {
    let (Some(method), Some(target), Some(version)) = (head.method, head.path, head.version) else {
        bail!("no request line");
    };
    let framing = Framing::of(head.headers)?;
    let is_http_1_0 = version == 0;
    ensure!(
        framing.hosts == 1 || (is_http_1_0 && framing.hosts == 0),
        "no single Host"
    );
    ensure!(!(is_http_1_0 && framing.is_chunked), "chunks in HTTP/1.0");
    ensure!(
        target.starts_with('/') || target == "*",
        "a target of another form"
    );
    for part in [method, " ", target, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    framing.write(head.headers, out);
    out.extend_from_slice(b"Via: 1.1 forwarder\r\n\r\n");
    Ok(RequestHead {
        is_head: method == "HEAD",
        is_http_1_0,
        keeps: keeps(&framing, is_http_1_0),
        body: match framing.length {
            _ if framing.is_chunked => Body::Chunked,
            None | Some(0) => Body::None,
            Some(length) => Body::Length(length),
        },
    })
}

fn forward_answer(
    head: &httparse::Response<'_, '_>,
    request: &RequestHead,
    out: &mut Vec<u8>,
) -> Result<AnswerHead> {
    let (Some(status), Some(version)) = (head.code, head.version) else {
        bail!("no status line");
    };
    ensure!(status != 101, "an upgrade that nobody asked for");
    let framing = Framing::of(head.headers)?;
    let is_interim = status < 200;
    let body = match framing.length {
        _ if is_interim || request.is_head || matches!(status, 204 | 304) => Body::None,
        _ if framing.is_chunked => Body::Chunked,
        Some(0) => Body::None,
        Some(length) => Body::Length(length),
        None => Body::UntilClose,
    };
    let takes_chunks = !request.is_http_1_0 || body != Body::Chunked;
    ensure!(takes_chunks, "the client does not know chunks");
    out.extend_from_slice(b"HTTP/1.1 ");
    let digits = [status / 100, status / 10 % 10, status % 10];
    out.extend(digits.map(|digit| b'0' + digit as u8));
    for part in [" ", head.reason.unwrap_or_default(), "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    framing.write(head.headers, out);
    if !is_interim && (!request.keeps || body == Body::UntilClose) {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    out.extend_from_slice(b"Via: 1.1 forwarder\r\n\r\n");
    Ok(AnswerHead {
        is_interim,
        keeps: keeps(&framing, version == 0) && body != Body::UntilClose,
        body,
    })
}

fn keeps(framing: &Framing<'_>, is_http_1_0: bool) -> bool {
    if is_http_1_0 {
        framing.names(b"keep-alive")
    } else {
        !framing.names(b"close")
    }
}

/// Sends the head in `out` and the body that follows it: both at once where
/// what is there already is all.
async fn send(
    from: &mut Stream,
    buffer: &mut BytesMut,
    to: &mut Stream,
    out: &mut Vec<u8>,
    body: Body,
) -> Result<()> {
    let mut left = match body {
        Body::Length(length) => length,
        _ => 0,
    };
    let mut chunks = Chunks::default();
    loop {
        let (taken, is_last) = match body {
            Body::None => (0, true),
            Body::Length(_) => {
                let taken = left.min(buffer.len() as u64);
                left -= taken;
                (taken as usize, left == 0)
            }
            Body::Chunked => chunks.take(buffer)?,
            Body::UntilClose => (buffer.len(), false),
        };
        out.extend_from_slice(&buffer[..taken]);
        buffer.advance(taken);
        if !out.is_empty() {
            to.write_all(out).await?;
            out.clear();
        }
        if is_last {
            to.flush().await?;
            return Ok(());
        }
        to.flush().await?;
        buffer.reserve(PIECE);
        let read = timeout(PATIENCE, from.read_buf(buffer)).await;
        if read.context("nothing came")?? == 0 {
            ensure!(body == Body::UntilClose, "a body broke off");
            return Ok(());
        }
    }
}
