//! Plain requests of HTTP/1.1, one after the other on a client's connection.
//!
//! [`FramedStream`] has read the head of such a request strictly, and knows where its
//! body ends. So little is left to do here that the engine's session for it, which is
//! made for every kind of request, costs several times as much.

mod answer;
mod head;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::poll_fn;
use std::sync::LazyLock;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Version, header};
use pingora::Result;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::prelude::{Error, ErrorType};
use pingora::protocols::http::HttpTask;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::protocols::{
    Digest, GetProxyDigest as _, GetSocketDigest as _, Shutdown as _, Ssl as _,
};
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use self::answer::Answer;
use super::framing::FramedStream;
use super::session::{self, HttpSession, RelaySession};

/// How much of a body is read at once.
const PIECE: usize = 16 << 10;

/// What stands for a request where there is none.
static NO_REQUEST: LazyLock<RequestHeader> =
    LazyLock::new(|| RequestHeader::from(http::Request::new(()).into_parts().0));

/// A client's connection, and the plain request on it that is served.
pub struct PlainSession {
    stream: Box<FramedStream>,
    digest: Digest,
    /// The head of the request, while there is one: it holds the bytes that were read.
    request: Option<Box<RequestHeader>>,
    /// The head of the request as it was read.
    raw: Bytes,
    body: RequestBody,
    keepalive: Option<u64>,
    /// Longest time for the rest of a body that nobody wants.
    drain_limit: Option<Duration>,
    answer: Answer,
}

/// What is known of a request's body.
#[derive(Default)]
struct RequestBody {
    length: usize,
    read: usize,
    kept: KeptBody,
}

/// What is kept of a request's body, to be sent on.
#[derive(Default)]
enum KeptBody {
    #[default]
    Nothing,
    /// What was read so far.
    Pieces(BytesMut),
    /// All of it, as it came with its head.
    Whole(Bytes),
}

impl RequestBody {
    fn is_done(&self) -> bool {
        self.read >= self.length
    }
}

impl KeptBody {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Nothing => &[],
            Self::Pieces(pieces) => pieces,
            Self::Whole(whole) => whole,
        }
    }
}

impl fmt::Debug for PlainSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Heads hold secrets.
        f.debug_struct("PlainSession").finish_non_exhaustive()
    }
}

impl PlainSession {
    /// A session on a connection; it has no request yet.
    pub fn new(stream: Box<FramedStream>) -> Self {
        let digest = Digest {
            ssl_digest: stream.get_ssl_digest(),
            timing_digest: Vec::new(),
            proxy_digest: stream.get_proxy_digest(),
            socket_digest: stream.get_socket_digest(),
        };
        Self {
            stream,
            digest,
            request: None,
            raw: Bytes::new(),
            body: RequestBody::default(),
            keepalive: None,
            drain_limit: None,
            answer: Answer::default(),
        }
    }

    /// The connection.
    pub fn stream(&mut self) -> &mut FramedStream {
        &mut self.stream
    }

    /// Takes the plain request that waits on the connection; whether it is sound. One
    /// that is not is left where it is.
    pub fn take_request(&mut self) -> bool {
        let (raw, length) = self.stream.take_head();
        let Some(head) = head::parse(&raw) else {
            self.stream.put_back(&raw);
            return false;
        };
        self.raw = raw;
        self.request = Some(head.request);
        // What is else known of a request went when the last one ended.
        self.body.length = length;
        self.keepalive = head.keep.then_some(0);
        true
    }

    /// The connection, and what was read of its request: the head, and the body where it
    /// was read and kept.
    pub fn into_parts(self) -> (Box<FramedStream>, BytesMut) {
        let mut read = BytesMut::from(&self.raw[..]);
        read.extend_from_slice(self.body.kept.bytes());
        (self.stream, read)
    }

    fn queue_head(&mut self, head: Box<ResponseHeader>) -> Result<()> {
        if !head.status.is_informational() && !self.body.is_done() {
            // What the client still sends is no request.
            self.keepalive = None;
        }
        let is_head = self.req_header().method == http::Method::HEAD;
        self.answer.head(head, is_head, &mut self.keepalive)
    }

    /// Ends the request; whether the connection may have another one.
    pub async fn finish(&mut self) -> bool {
        if HttpSession::finish_body(self).await.is_err() {
            return false;
        }
        if self.keepalive.is_none() {
            self.stream.shutdown().await;
            return false;
        }
        let limit = self.drain_limit.unwrap_or(Duration::MAX);
        if !self.body.is_done() && !matches!(timeout(limit, self.drain()).await, Ok(Ok(()))) {
            return false;
        }
        // An idle connection holds nothing.
        self.request = None;
        self.raw = Bytes::new();
        self.body = RequestBody::default();
        self.answer = Answer::default();
        true
    }

    async fn drain(&mut self) -> Result<()> {
        self.body.kept = KeptBody::Nothing;
        while HttpSession::read_request_body(self).await?.is_some() {}
        Ok(())
    }
}

#[async_trait]
impl HttpSession for PlainSession {
    fn req_header(&self) -> &RequestHeader {
        self.request.as_deref().unwrap_or(&NO_REQUEST)
    }

    fn req_header_mut(&mut self) -> &mut RequestHeader {
        self.request
            .get_or_insert_with(|| Box::new(NO_REQUEST.clone()))
    }

    fn is_http2(&self) -> bool {
        false
    }

    fn digest(&self) -> Option<&Digest> {
        Some(&self.digest)
    }

    fn client_addr(&self) -> Option<&SocketAddr> {
        self.digest.socket_digest.as_ref()?.peer_addr()
    }

    fn server_addr(&self) -> Option<&SocketAddr> {
        self.digest.socket_digest.as_ref()?.local_addr()
    }

    fn framed(&self) -> Option<&FramedStream> {
        Some(&self.stream)
    }

    fn get_keepalive(&self) -> Option<u64> {
        self.keepalive
    }

    fn set_keepalive(&mut self, seconds: Option<u64>) {
        self.keepalive = seconds;
    }

    fn set_write_timeout(&mut self, limit: Option<Duration>) {
        self.answer.set_limit(limit);
    }

    fn set_total_drain_timeout(&mut self, limit: Option<Duration>) {
        self.drain_limit = limit;
    }

    fn set_pipelining_enabled(&mut self, _enabled: bool) {
        // They always wait.
    }

    fn set_ignore_info_resp(&mut self, ignore: bool) {
        self.answer.leave_out_interim(ignore);
    }

    fn is_body_done(&mut self) -> bool {
        self.body.is_done()
    }

    fn is_body_empty(&mut self) -> bool {
        self.body.length == 0
    }

    fn body_bytes_read(&self) -> usize {
        self.body.read
    }

    fn take_ready_body(&mut self, most: usize) -> Option<Bytes> {
        let length = self.body.length;
        if length == 0 || self.body.read > 0 || length > most {
            return None;
        }
        let whole = self.stream.take_body(length)?;
        self.body.read = length;
        self.body.kept = KeptBody::Whole(whole.clone());
        Some(whole)
    }

    async fn read_request_body(&mut self) -> Result<Option<Bytes>> {
        let left = self.body.length - self.body.read;
        if left == 0 {
            return Ok(None);
        }
        let mut piece = BytesMut::with_capacity(left.min(PIECE));
        match self.stream.read_buf(&mut piece).await {
            Ok(0) => {
                let why = "the body is not as long as announced";
                Error::e_explain(ErrorType::ConnectionClosed, why)
            }
            Ok(count) => {
                self.body.read += count.min(left);
                if let KeptBody::Pieces(kept) = &mut self.body.kept {
                    kept.extend_from_slice(&piece);
                }
                Ok(Some(piece.freeze()))
            }
            Err(error) => Error::e_because(ErrorType::ReadError, "while reading the body", error),
        }
    }

    fn enable_retry_buffering(&mut self) {
        if matches!(self.body.kept, KeptBody::Nothing) {
            self.body.kept = KeptBody::Pieces(BytesMut::new());
        }
    }

    fn retry_buffer_truncated(&self) -> bool {
        // The body of a plain request is short.
        false
    }

    fn get_retry_buffer(&self) -> Option<Bytes> {
        match &self.body.kept {
            KeptBody::Whole(whole) => Some(whole.clone()),
            KeptBody::Pieces(pieces) if !pieces.is_empty() => Some(Bytes::copy_from_slice(pieces)),
            _ => None,
        }
    }

    fn take_fields(&mut self, fields: &mut Vec<(HeaderName, HeaderValue)>) {
        self.answer.take_fields(fields);
    }

    fn keep_date(&self, _date: &[u8]) {
        // No head loses the one it has.
    }

    fn send_at_once(&self) {
        // Every piece is.
    }

    fn response_written(&self) -> Option<&ResponseHeader> {
        self.answer.written()
    }

    fn was_upgraded(&self) -> bool {
        false
    }

    fn body_bytes_sent(&self) -> usize {
        self.answer.sent()
    }

    async fn write_continue_response(&mut self) -> Result<()> {
        // A plain request waits for none.
        Ok(())
    }

    async fn write_response_header(&mut self, head: Box<ResponseHeader>) -> Result<()> {
        // One without a length may be followed by what comes late.
        let waits = !head.status.is_informational()
            && head.version == Version::HTTP_11
            && head.headers.contains_key(header::CONTENT_LENGTH);
        self.queue_head(head)?;
        if waits && !self.answer.is_complete() {
            return Ok(());
        }
        self.send().await
    }

    async fn write_only_header(&mut self, head: Box<ResponseHeader>) -> Result<()> {
        HttpSession::write_response_header(self, head).await
    }

    async fn write_response_body(&mut self, piece: Bytes, end: bool) -> Result<()> {
        self.answer.piece(piece);
        if end {
            self.answer.end()?;
        }
        self.send().await
    }

    async fn finish_body(&mut self) -> Result<()> {
        self.answer.end()?;
        self.send().await
    }

    fn may_keep(&self) -> bool {
        self.keepalive.is_some()
    }

    async fn close_write(&mut self) {
        self.stream.shutdown().await;
    }
}

impl RelaySession for PlainSession {
    /// What the client sends early waits for its turn (RFC 9112 §9.3.2).
    async fn left(&mut self) -> Box<Error> {
        let gone = poll_fn(|cx| self.stream.poll_left(cx)).await;
        let context = if self.answer.written().is_none() {
            "Prematurely before response header is sent"
        } else {
            "Prematurely before response body is complete"
        };
        match gone {
            Ok(()) => Error::explain(ErrorType::ConnectionClosed, context),
            Err(error) => Error::because(ErrorType::ReadError, context, error),
        }
    }

    async fn queue(&mut self, part: HttpTask) -> Result<bool> {
        let end = match part {
            HttpTask::Header(head, end) => {
                self.queue_head(head)?;
                end
            }
            HttpTask::Body(piece, end) => {
                self.answer.piece(piece.unwrap_or_default());
                end
            }
            // HTTP/1 has no place for trailers that were not announced.
            HttpTask::Trailer(_) | HttpTask::Done => true,
            HttpTask::UpgradedBody(..) => return session::no_tunnel(),
            HttpTask::Failed(error) => return Err(error),
        };
        if end {
            self.answer.end()?;
        }
        Ok(end || self.answer.is_complete())
    }

    async fn send(&mut self) -> Result<()> {
        self.answer.send(&mut self.stream).await
    }
}
