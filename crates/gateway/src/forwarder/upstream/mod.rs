//! A request and its answer over a connection to an upstream that speaks HTTP/1.1.
//!
//! The engine's session for this reads each head twice, copies each piece of a body, and
//! sets up timers for each read. This one hands on the bytes as they were read.

mod body;
mod head;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use doorward_net::http::framing;
use doorward_net::http::session::is_interim;
use futures_util::FutureExt as _;
use http::{Method, header};
use pingora::Result;
use pingora::RetryType;
use pingora::http::RequestHeader;
use pingora::prelude::{Error, ErrorType, HttpPeer};
use pingora::protocols::Stream;
use pingora::protocols::http::HttpTask;
use pingora::protocols::http::v1::client::http_req_header_to_wire;
use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};
use tokio::task::unconstrained;

use self::body::BodyReader;
use super::timer::{Expired, Timer};

/// Longest head of an answer.
const LONGEST_HEAD: usize = 256 << 10;
/// How much is read at once to begin with: most answers fit.
const FIRST_READ: usize = 4 << 10;
/// How much is read at once where much comes, and so held of an answer that its client
/// does not take.
const LARGEST_READ: usize = 32 << 10;

/// What is read next of an answer.
enum Stage {
    Head,
    Body(BodyReader),
}

/// One request and its answer.
pub(super) struct UpstreamSession<'t> {
    stream: Stream,
    timer: &'t mut Timer,
    /// How long the upstream may take for the next bytes.
    read_timeout: Option<Duration>,
    /// How long it may take none of ours.
    write_timeout: Option<Duration>,
    /// The request's method, once it was sent.
    method: Method,
    stage: Stage,
    /// Whether something was sent.
    sent: bool,
    /// Bytes that were read and belong to the next stage or piece.
    read: Bytes,
    /// Where bytes are read into.
    buffer: BytesMut,
    /// How many bytes it has room for.
    room: usize,
    /// Whether both sides let the connection have another request.
    persistent: bool,
    /// For how long the upstream keeps an idle connection.
    idle: Option<Duration>,
}

impl<'t> UpstreamSession<'t> {
    pub(super) fn new(stream: Stream, peer: &HttpPeer, timer: &'t mut Timer) -> Self {
        Self {
            stream,
            timer,
            read_timeout: peer.options.read_timeout,
            write_timeout: peer.options.write_timeout,
            method: Method::GET,
            stage: Stage::Head,
            sent: false,
            read: Bytes::new(),
            buffer: BytesMut::new(),
            room: FIRST_READ,
            persistent: true,
            idle: None,
        }
    }

    /// Sends a request with all of its body.
    ///
    /// # Errors
    ///
    /// `InternalError` if the head can't be sent or does not fit the body, before anything was;
    /// `WriteError` and `WriteTimedout` if the upstream does not take it.
    pub(super) async fn send(&mut self, head: &RequestHeader, body: Option<Bytes>) -> Result<()> {
        let mut bytes = to_wire(head, body.as_deref().unwrap_or_default())?;
        self.persistent = !head::has_option(&head.headers, b"close");
        self.method = head.method.clone();
        self.sent = true;
        let Self { stream, timer, .. } = self;
        while !bytes.is_empty() {
            timer.start(self.write_timeout);
            match timer.bound(stream.write(&bytes)).await {
                Ok(Ok(0)) => return Err(not_written(io::ErrorKind::WriteZero.into())),
                Ok(Ok(count)) => bytes.advance(count),
                Ok(Err(error)) => return Err(not_written(error)),
                Err(Expired) => return Err(write_timeout()),
            }
        }
        match timer.bound(stream.flush()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(not_written(error)),
            Err(Expired) => Err(write_timeout()),
        }
    }

    /// The next part of the answer. Nothing is lost if the future is dropped.
    pub(super) async fn next(&mut self) -> Result<HttpTask> {
        self.timer.start(self.read_timeout);
        poll_fn(|cx| match self.poll_part(cx) {
            Poll::Pending => {
                let expired = self.timer.poll_expired(cx);
                expired.map(|Expired| Err(self.read_late()))
            }
            part => part,
        })
        .await
    }

    /// The next part of the answer, if it has come.
    pub(super) fn ready(&mut self) -> Option<Result<HttpTask>> {
        // A task that has used up its turn would see nothing.
        unconstrained(poll_fn(|cx| self.poll_part(cx))).now_or_never()
    }

    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<HttpTask>> {
        loop {
            if let Some(task) = self.take()? {
                return Poll::Ready(Ok(task));
            }
            match ready!(self.poll_read(cx)) {
                Ok(0) => return Poll::Ready(self.end()),
                Ok(_) => self.timer.start(self.read_timeout),
                Err(error) => return Poll::Ready(Err(self.not_read(error))),
            }
        }
    }

    /// The next part, if it has been read.
    fn take(&mut self) -> Result<Option<HttpTask>> {
        match &mut self.stage {
            Stage::Head => self.take_head(),
            Stage::Body(body) if body.is_done() => Ok(Some(HttpTask::Done)),
            Stage::Body(body) => {
                let piece = body.take(&mut self.read)?;
                let end = body.is_done();
                Ok((piece.is_some() || end).then_some(HttpTask::Body(piece, end)))
            }
        }
    }

    fn take_head(&mut self) -> Result<Option<HttpTask>> {
        if self.read.is_empty() {
            return Ok(None);
        }
        let Some(head::Head {
            mut response,
            length,
        }) = head::parse(&self.read)?
        else {
            if self.read.len() > LONGEST_HEAD {
                return head::unsound(format!("the answer's head is over {LONGEST_HEAD} bytes"));
            }
            return Ok(None);
        };
        self.read.advance(length);
        // Others than 101 come before the answer (RFC 9110 §15.2).
        if is_interim(response.status) {
            return Ok(Some(HttpTask::Header(response, false)));
        }
        self.persistent &= head::is_persistent(&response);
        self.persistent &= !head::has_two_lengths(&response.headers);
        self.idle = head::idle_seconds(&response.headers).map(Duration::from_secs);
        let body = head::body(&mut response, &self.method)?;
        self.persistent &= !matches!(body, BodyReader::UntilClose);
        let end = body.is_done();
        self.stage = Stage::Body(body);
        Ok(Some(HttpTask::Header(response, end)))
    }

    /// Reads on; how many bytes came.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if let Stage::Body(BodyReader::Length(left)) = self.stage {
            let left = usize::try_from(left).unwrap_or(LARGEST_READ);
            self.room = left.clamp(FIRST_READ, LARGEST_READ);
        }
        if self.room <= FIRST_READ {
            return self.poll_read_little(cx);
        }
        if self.buffer.capacity() < self.room {
            self.buffer.reserve(self.room);
        }
        let read = pin!(self.stream.read_buf(&mut self.buffer)).poll(cx);
        if read.is_pending() {
            // What is waited for needs no room yet.
            self.buffer = BytesMut::new();
        }
        let count = ready!(read)?;
        if count >= self.room {
            self.room = (self.room * 2).min(LARGEST_READ);
        }
        let piece = self.buffer.split().freeze();
        self.keep(piece);
        Poll::Ready(Ok(count))
    }

    /// Puts what was read behind what waits.
    fn keep(&mut self, piece: Bytes) {
        if self.read.is_empty() {
            self.read = piece;
            return;
        }
        // The first part of a head, or of a line with a chunk's size.
        let mut joined = BytesMut::with_capacity(self.read.len() + piece.len());
        joined.put_slice(&self.read);
        joined.put_slice(&piece);
        self.read = joined.freeze();
    }

    /// Reads what may be an event of a stream that is silent afterwards: it holds no
    /// more than has come.
    fn poll_read_little(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut space = [const { MaybeUninit::<u8>::uninit() }; FIRST_READ];
        let mut piece = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut piece))?;
        let piece = piece.filled();
        if piece.len() >= self.room {
            self.room = (self.room * 2).min(LARGEST_READ);
        }
        self.keep(Bytes::copy_from_slice(piece));
        Poll::Ready(Ok(piece.len()))
    }

    /// What the end of the connection means.
    fn end(&mut self) -> Result<HttpTask> {
        self.persistent = false;
        match &mut self.stage {
            Stage::Head => Err(self.closed()),
            Stage::Body(body) => {
                body.end()?;
                Ok(HttpTask::Body(None, true))
            }
        }
    }

    /// The connection, and for how long the upstream keeps it, if it may have another request:
    /// the whole answer was read, and nothing more, or nothing was sent.
    pub(super) fn finish(mut self) -> Option<(Stream, Option<Duration>)> {
        let is_done = matches!(&self.stage, Stage::Body(body) if body.is_done());
        if self.persistent && (is_done || !self.sent) && self.read.is_empty() {
            return Some((self.stream, self.idle));
        }
        // TLS says farewell; nobody waits for it.
        let _ = unconstrained(self.stream.shutdown()).now_or_never();
        None
    }

    /// The upstream closed the connection instead of an answer. That it closed one that
    /// was idle, and did not see the request, is likely if nothing has come.
    fn closed(&self) -> Box<Error> {
        let count = self.read.len();
        let reason = format!("the connection was closed after {count} bytes of a head");
        let mut error = Error::explain(ErrorType::ConnectionClosed, reason);
        if count == 0 {
            error.retry = RetryType::ReusedOnly;
        }
        error
    }

    fn not_read(&self, error: io::Error) -> Box<Error> {
        // TLS has errors of its own: what was read may be somebody else's.
        let by_system = error.raw_os_error().is_some();
        let mut error = Error::because(ErrorType::ReadError, "the answer can't be read", error);
        if by_system && self.read.is_empty() && matches!(self.stage, Stage::Head) {
            error.retry = RetryType::ReusedOnly;
        }
        error
    }

    fn read_late(&self) -> Box<Error> {
        let what = match self.stage {
            Stage::Head => "the answer's head",
            Stage::Body(_) => "the answer's body",
        };
        Error::explain(
            ErrorType::ReadTimedout,
            format!("{what} did not come in time"),
        )
    }
}

/// The bytes of a request.
fn to_wire(head: &RequestHeader, body: &[u8]) -> Result<BytesMut> {
    let unsendable = |reason| Error::explain(ErrorType::InternalError, reason);
    let mut bytes = http_req_header_to_wire(head)
        .ok_or_else(|| unsendable("the request line can't be sent"))?;
    if head.headers.contains_key(header::TRANSFER_ENCODING) {
        // What the gateway sends itself knows no other coding (RFC 9112 §7.1).
        if !body.is_empty() {
            bytes.put_slice(format!("{:x}\r\n", body.len()).as_bytes());
            bytes.put_slice(body);
            bytes.put_slice(b"\r\n");
        }
        bytes.put_slice(b"0\r\n\r\n");
        return Ok(bytes);
    }
    let length = head.headers.get(header::CONTENT_LENGTH);
    let length = length.map_or(Some(0), |value| framing::content_length(value.as_bytes()));
    // The rest of it would be another request, or the next request a part of it.
    if length != Some(body.len() as u64) {
        return Err(unsendable("the request's Content-Length is not its body's"));
    }
    bytes.put_slice(body);
    Ok(bytes)
}

fn not_written(error: io::Error) -> Box<Error> {
    Error::because(ErrorType::WriteError, "the request can't be sent", error)
}

fn write_timeout() -> Box<Error> {
    let reason = "the upstream did not take the request in time";
    Error::explain(ErrorType::WriteTimedout, reason)
}
