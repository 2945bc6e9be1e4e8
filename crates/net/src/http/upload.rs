//! Connections to origins for long request bodies.
//!
//! The engine does not read an answer while it waits to write a piece of the body.
//! An origin that answers while the body comes, and takes no more of it until its
//! answer is taken, would wait for the engine, and the engine for it. Writes to an
//! [`UploadStream`] therefore end at once: what the origin does not take yet lies in
//! a buffer, which is sent with every later read, write or flush.
//!
//! The buffer is bounded. A client of HTTP/1 is not read while [`Upload::poll_room`]
//! waits. A stream of HTTP/2 can't be held back alone, so its writes wait at a limit,
//! and the answer is read ahead meanwhile.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf as _, BytesMut};
use parking_lot::Mutex;
use pingora::connectors::TransportConnector;
use pingora::connectors::l4::Connect;
use pingora::protocols::Stream;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::protocols::l4::stream::Stream as EngineStream;
use pingora::protocols::l4::virt::{VirtualSockOpt, VirtualSocket, VirtualSocketStream};
use pingora::upstreams::peer::{HttpPeer, Peer as _};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task;

/// Unsent bytes above which a client of HTTP/1 is not read.
const HELD_ABOVE: usize = 64 << 10;
/// Unsent bytes above which writes wait. The engine passes on up to six pieces of
/// 64 KiB after a client of HTTP/1 is held back: its writes never wait.
const HTTP1_LIMIT: usize = 512 << 10;
/// The same for a stream of HTTP/2, which is not held back.
const HTTP2_LIMIT: usize = 128 << 10;
/// Bytes of an answer that are read ahead while a write waits.
const AHEAD: usize = 256 << 10;
/// Bytes that are read ahead at once.
const PIECE: usize = 16 << 10;

/// A request with a long body, and its connection once there is one.
#[derive(Debug)]
pub struct Upload {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    stream: Option<Stream>,
    reused: bool,
    /// Whether the connection did not take everything that was written.
    stalled: bool,
    /// What the engine has written and the stream has not taken.
    unsent: BytesMut,
    /// Whether what the stream has taken is to be flushed.
    unflushed: bool,
    /// Why nothing more can be written.
    write_error: Option<io::ErrorKind>,
    /// Bytes of the answer that were read ahead.
    ahead: BytesMut,
    /// How the answer ended when it was read ahead.
    ahead_end: Option<io::Result<()>>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What was written may be secret.
        f.debug_struct("State")
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

impl Upload {
    /// An upload of a client that speaks HTTP/2, or else HTTP/1.
    #[must_use]
    pub fn new(http2: bool) -> Arc<Self> {
        let limit = if http2 { HTTP2_LIMIT } else { HTTP1_LIMIT };
        Arc::new(Self {
            limit,
            state: Mutex::default(),
        })
    }

    /// Whether the connection served another request before.
    pub fn is_reused(&self) -> bool {
        self.state.lock().reused
    }

    /// Whether the origin does not take, or did not, what the client has sent.
    pub fn is_stalled(&self) -> bool {
        let state = self.state.lock();
        state.stalled || !state.unsent.is_empty()
    }

    /// Sends what is unsent, and waits until a client may be read again.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        state.send(cx);
        if state.unsent.len() > HELD_ABOVE {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }
}

impl State {
    /// Sends what is unsent, as far as the stream takes it.
    fn send(&mut self, cx: &mut Context<'_>) {
        if self.unsent.is_empty() && !self.unflushed {
            return;
        }
        if let Poll::Ready(Err(error)) = self.poll_send(cx) {
            // The answer may still be there to read.
            self.write_error = Some(error.kind());
            self.stalled = true;
            self.unsent = BytesMut::new();
            self.unflushed = false;
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        while !self.unsent.is_empty() {
            match ready!(Pin::new(&mut *stream).poll_write(cx, &self.unsent))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.unsent.advance(count),
            }
            self.unflushed = true;
        }
        self.unsent = BytesMut::new();
        ready!(Pin::new(stream).poll_flush(cx))?;
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }

    fn connected(&mut self) -> io::Result<&mut Stream> {
        match self.write_error {
            Some(kind) => Err(kind.into()),
            None => self
                .stream
                .as_mut()
                .ok_or_else(|| io::ErrorKind::NotConnected.into()),
        }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        data: &[u8],
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        self.send(cx);
        let is_empty = self.unsent.is_empty();
        let stream = self.connected()?;
        if is_empty && let Poll::Ready(outcome) = Pin::new(stream).poll_write(cx, data) {
            self.stalled |= outcome.is_err();
            return Poll::Ready(outcome);
        }
        if self.unsent.len() >= limit {
            self.read_ahead(cx);
            return Poll::Pending;
        }
        self.unsent.extend_from_slice(data);
        Poll::Ready(Ok(data.len()))
    }

    /// Takes the answer off an origin that may be waiting for that.
    fn read_ahead(&mut self, cx: &mut Context<'_>) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        while self.ahead.len() < AHEAD && self.ahead_end.is_none() {
            let mut space = [const { MaybeUninit::<u8>::uninit() }; PIECE];
            let mut piece = ReadBuf::uninit(&mut space);
            match Pin::new(&mut *stream).poll_read(cx, &mut piece) {
                Poll::Ready(Ok(())) if piece.filled().is_empty() => {
                    self.ahead_end = Some(Ok(()));
                }
                Poll::Ready(Ok(())) => self.ahead.extend_from_slice(piece.filled()),
                Poll::Ready(Err(error)) => self.ahead_end = Some(Err(error)),
                Poll::Pending => return,
            }
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.send(cx);
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(out.remaining());
            out.put_slice(&self.ahead[..count]);
            self.ahead.advance(count);
            if self.ahead.is_empty() {
                self.ahead = BytesMut::new();
            }
            return Poll::Ready(Ok(()));
        }
        let before = out.filled().len();
        match (self.ahead_end.take(), &mut self.stream) {
            (Some(end), _) => end?,
            (None, Some(stream)) => ready!(Pin::new(stream).poll_read(cx, out))?,
            (None, None) => {}
        }
        // The system tells once that it has given up a connection, and then its end.
        if out.filled().len() == before && self.write_error == Some(io::ErrorKind::TimedOut) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Ready(Ok(()))
    }

    /// The stream, if another request may use it.
    fn take_reusable(&mut self) -> Option<Stream> {
        let clean = self.unsent.is_empty()
            && !self.unflushed
            && self.write_error.is_none()
            && self.ahead.is_empty()
            && self.ahead_end.is_none();
        let stream = self.stream.take();
        stream.filter(|_| clean)
    }
}

/// Opens the connection of an [`Upload`], or takes one that is kept.
pub struct UploadConnector {
    upload: Arc<Upload>,
    peer: HttpPeer,
    transport: Arc<TransportConnector>,
}

impl UploadConnector {
    /// Connects `upload` to `peer` by way of `transport`, which keeps its connection
    /// afterwards.
    pub fn new(upload: Arc<Upload>, peer: HttpPeer, transport: Arc<TransportConnector>) -> Self {
        Self {
            upload,
            peer,
            transport,
        }
    }
}

impl fmt::Debug for UploadConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UploadConnector({})", self.peer)
    }
}

#[async_trait]
impl Connect for UploadConnector {
    async fn connect(&self, _: &SocketAddr) -> pingora::Result<EngineStream> {
        let (stream, reused) = self.transport.get_stream(&self.peer).await?;
        *self.upload.state.lock() = State {
            stream: Some(stream),
            reused,
            ..State::default()
        };
        let stream = UploadStream {
            upload: Arc::clone(&self.upload),
            task: task::try_id(),
            transport: Arc::clone(&self.transport),
            pool: self.peer.reuse_hash(),
            idle: self.peer.idle_timeout(),
        };
        Ok(VirtualSocketStream::new(Box::new(stream)).into())
    }
}

/// The connection of an [`Upload`], for the engine.
struct UploadStream {
    upload: Arc<Upload>,
    /// The task of the request.
    task: Option<task::Id>,
    transport: Arc<TransportConnector>,
    /// Where connections to the same origin are kept, and for how long.
    pool: u64,
    idle: Option<Duration>,
}

impl fmt::Debug for UploadStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UploadStream").field(&self.upload).finish()
    }
}

impl UploadStream {
    /// Keeps the connection for another request. The engine can't: it knows a
    /// connection that it has kept by its socket, and this has none.
    fn keep(&self) {
        let stream = self.upload.state.lock().take_reusable();
        if let Some(stream) = stream {
            self.transport.release_stream(stream, self.pool, self.idle);
        }
    }
}

impl AsyncRead for UploadStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The engine watches a connection that it would use again in another task.
        if task::try_id() != self.task {
            self.keep();
            return Poll::Ready(Ok(()));
        }
        self.upload.state.lock().poll_read(cx, out)
    }
}

impl AsyncWrite for UploadStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let limit = self.upload.limit;
        self.upload.state.lock().poll_write(cx, data, limit)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.upload.state.lock();
        state.connected()?;
        state.unflushed = true;
        state.send(cx);
        // What is left is sent later.
        state.connected()?;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.upload.state.lock();
        state.send(cx);
        match &mut state.stream {
            Some(stream) => Pin::new(stream).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl Drop for UploadStream {
    fn drop(&mut self) {
        // The client's connection and the request may know the upload for longer.
        let mut state = self.upload.state.lock();
        *state = State {
            reused: state.reused,
            stalled: state.stalled || !state.unsent.is_empty(),
            ..State::default()
        };
    }
}

impl VirtualSocket for UploadStream {
    fn set_socket_option(&self, _: VirtualSockOpt) -> io::Result<()> {
        // The connection below has its own.
        Ok(())
    }
}
