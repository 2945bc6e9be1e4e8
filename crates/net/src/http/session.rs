//! A client's request and the way back to that client.
//!
//! The steps of a request and all filters work on a [`Session`], whoever reads its
//! connection: the engine, for HTTP/2 and for requests that are not plain, or the
//! forwarding loop.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use pingora::Result;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::prelude::{Error, ErrorType};
use pingora::protocols::Digest;
use pingora::protocols::http::{HttpTask, ServerSession};
use pingora::protocols::l4::socket::SocketAddr;

use super::framing::FramedStream;

/// Whether an answer follows a head of this status (RFC 9110 §15.2). Of 101 it is the
/// answer itself.
pub fn is_interim(status: StatusCode) -> bool {
    status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS
}

/// A client's request and the way back to that client.
pub type Session = dyn HttpSession;

/// A request whose answer is handed on part by part as it comes from an upstream.
pub trait RelaySession: HttpSession + 'static {
    /// Puts a part of the answer behind those that wait to be sent; whether the answer
    /// ends with it.
    ///
    /// # Errors
    /// The error that the part is, or that it can't be written.
    fn queue(&mut self, part: HttpTask) -> impl Future<Output = Result<bool>> + Send;
    /// Sends what waits to be sent.
    ///
    /// # Errors
    /// When the client does not take it.
    fn send(&mut self) -> impl Future<Output = Result<()>> + Send;
    /// Ends when the client has left.
    fn left(&mut self) -> impl Future<Output = Box<Error>> + Send;
}

/// What comes of relaying an answer that changes the protocol: a plain request becomes no
/// tunnel.
pub(super) fn no_tunnel<T>() -> Result<T> {
    let why = "a plain request becomes no tunnel";
    Error::e_explain(ErrorType::InternalError, why)
}

/// What a reader of a client's connection offers for one request.
#[async_trait]
pub trait HttpSession: Send + Sync {
    /// The head of the request.
    fn req_header(&self) -> &RequestHeader;
    /// The head of the request, for filters to change.
    fn req_header_mut(&mut self) -> &mut RequestHeader;
    /// Whether the request came as a stream of HTTP/2.
    fn is_http2(&self) -> bool;
    /// What is known of the connection: its sockets, its TLS.
    fn digest(&self) -> Option<&Digest>;
    /// The address of the client.
    fn client_addr(&self) -> Option<&SocketAddr>;
    /// The address that the client has asked.
    fn server_addr(&self) -> Option<&SocketAddr>;
    /// The connection, where one request after the other is read from it.
    fn framed(&self) -> Option<&FramedStream>;

    /// For how many seconds the connection is kept after the answer: nothing where it
    /// ends with it, 0 where it is kept without a limit.
    fn get_keepalive(&self) -> Option<u64>;
    /// Keeps the connection after the answer for so many seconds, or ends it.
    fn set_keepalive(&mut self, seconds: Option<u64>);
    /// Longest time for which the client may take nothing of the answer.
    fn set_write_timeout(&mut self, limit: Option<Duration>);
    /// Longest time for the rest of a body that nobody wants.
    fn set_total_drain_timeout(&mut self, limit: Option<Duration>);
    /// Lets requests that come early wait for their turn (RFC 9112 §9.3.2).
    fn set_pipelining_enabled(&mut self, enabled: bool);
    /// Leaves out interim answers (RFC 9110 §15.2).
    fn set_ignore_info_resp(&mut self, ignore: bool);

    /// Whether the whole body of the request was read.
    fn is_body_done(&mut self) -> bool;
    /// Whether the request has no body.
    fn is_body_empty(&mut self) -> bool;
    /// So many bytes of the body were read.
    fn body_bytes_read(&self) -> usize;
    /// Reads on in the body; nothing at its end.
    async fn read_request_body(&mut self) -> Result<Option<Bytes>>;
    /// Takes the whole body of the request, if it has come with the head, nobody has read
    /// of it, and it has at most so many bytes. It is kept, as after
    /// [`Self::enable_retry_buffering`].
    fn take_ready_body(&mut self, _most: usize) -> Option<Bytes> {
        None
    }
    /// Keeps what is read of the body from now on, so that it can be read again.
    fn enable_retry_buffering(&mut self);
    /// Whether more was read than is kept.
    fn retry_buffer_truncated(&self) -> bool;
    /// What was read of the body and kept; nothing where that is not all of it.
    fn get_retry_buffer(&self) -> Option<Bytes>;

    /// Takes fields that belong at the end of the next answer's head, and need no place in
    /// its map: nobody looks for them there. A session that can't write them so leaves
    /// them.
    fn take_fields(&mut self, _fields: &mut Vec<(HeaderName, HeaderValue)>) {}
    /// Leaves the next answer's head the `Date` that its upstream gave it.
    fn keep_date(&self, date: &[u8]);
    /// Sends every piece of the answer as soon as it is written.
    fn send_at_once(&self);
    /// The head that was written last, interim ones among them.
    fn response_written(&self) -> Option<&ResponseHeader>;
    /// The head of the answer, once it was written. An interim one is none (RFC 9110 §15.2).
    fn answer_written(&self) -> Option<&ResponseHeader> {
        self.response_written()
            .filter(|head| !is_interim(head.status))
    }
    /// Whether the connection speaks another protocol since the answer.
    fn was_upgraded(&self) -> bool;
    /// So many bytes of the answer's body were written.
    fn body_bytes_sent(&self) -> usize;
    /// Tells the client to send the body that it holds back (RFC 9110 §15.2.1).
    async fn write_continue_response(&mut self) -> Result<()>;
    /// Writes the head of the answer.
    async fn write_response_header(&mut self, head: Box<ResponseHeader>) -> Result<()>;
    /// Writes a head that is the whole answer. In HTTP/2 the stream ends with it.
    async fn write_only_header(&mut self, head: Box<ResponseHeader>) -> Result<()>;
    /// Writes a piece of the answer's body.
    async fn write_response_body(&mut self, piece: Bytes, end: bool) -> Result<()>;
    /// Ends the body of the answer, and sends what was not sent.
    async fn finish_body(&mut self) -> Result<()>;
    /// Whether another request may follow on the connection: HTTP/1 alone has an order.
    fn may_keep(&self) -> bool;
    /// Tells the client that nothing follows, and still reads what it sends.
    async fn close_write(&mut self);
}

#[async_trait]
impl HttpSession for ServerSession {
    fn req_header(&self) -> &RequestHeader {
        self.req_header()
    }

    fn req_header_mut(&mut self) -> &mut RequestHeader {
        self.req_header_mut()
    }

    fn is_http2(&self) -> bool {
        self.is_http2()
    }

    fn digest(&self) -> Option<&Digest> {
        self.digest()
    }

    fn client_addr(&self) -> Option<&SocketAddr> {
        self.client_addr()
    }

    fn server_addr(&self) -> Option<&SocketAddr> {
        self.server_addr()
    }

    fn framed(&self) -> Option<&FramedStream> {
        let stream = self.as_http1()?.stream();
        (**stream).as_any().downcast_ref()
    }

    fn get_keepalive(&self) -> Option<u64> {
        self.get_keepalive()
    }

    fn set_keepalive(&mut self, seconds: Option<u64>) {
        self.set_keepalive(seconds);
    }

    fn set_write_timeout(&mut self, limit: Option<Duration>) {
        self.set_write_timeout(limit);
    }

    fn set_total_drain_timeout(&mut self, limit: Option<Duration>) {
        self.set_total_drain_timeout(limit);
    }

    fn set_pipelining_enabled(&mut self, enabled: bool) {
        self.set_pipelining_enabled(enabled);
    }

    fn set_ignore_info_resp(&mut self, ignore: bool) {
        self.set_ignore_info_resp(ignore);
    }

    fn is_body_done(&mut self) -> bool {
        self.is_body_done()
    }

    fn is_body_empty(&mut self) -> bool {
        self.is_body_empty()
    }

    fn body_bytes_read(&self) -> usize {
        self.body_bytes_read()
    }

    async fn read_request_body(&mut self) -> Result<Option<Bytes>> {
        self.read_request_body().await
    }

    fn enable_retry_buffering(&mut self) {
        self.enable_retry_buffering();
    }

    fn retry_buffer_truncated(&self) -> bool {
        self.retry_buffer_truncated()
    }

    fn get_retry_buffer(&self) -> Option<Bytes> {
        self.get_retry_buffer()
    }

    fn keep_date(&self, date: &[u8]) {
        if let Some(stream) = self.framed() {
            stream.keep_date(date);
        }
    }

    fn send_at_once(&self) {
        if let Some(stream) = self.framed() {
            stream.send_at_once();
        }
    }

    fn response_written(&self) -> Option<&ResponseHeader> {
        self.response_written()
    }

    fn was_upgraded(&self) -> bool {
        self.was_upgraded()
    }

    fn body_bytes_sent(&self) -> usize {
        self.body_bytes_sent()
    }

    async fn write_continue_response(&mut self) -> Result<()> {
        self.write_continue_response().await
    }

    async fn write_response_header(&mut self, head: Box<ResponseHeader>) -> Result<()> {
        self.write_response_header(head).await
    }

    async fn write_only_header(&mut self, head: Box<ResponseHeader>) -> Result<()> {
        match self {
            ServerSession::H2(stream) => stream.write_response_header(head, true),
            session => session.write_response_header(head).await,
        }
    }

    async fn write_response_body(&mut self, piece: Bytes, end: bool) -> Result<()> {
        self.write_response_body(piece, end).await
    }

    async fn finish_body(&mut self) -> Result<()> {
        self.finish_body().await
    }

    fn may_keep(&self) -> bool {
        self.as_http1().is_some_and(|http1| http1.will_keepalive())
    }

    async fn close_write(&mut self) {
        if let ServerSession::H1(http1) = self {
            http1.shutdown().await;
        }
    }
}
