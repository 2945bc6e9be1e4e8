//! What is written to a client.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use pingora::protocols::Stream;
use tokio::io::AsyncWrite;

use super::FramedStream;
use crate::http::cork::Cork;

/// Most bytes that are held back, which is what a record of TLS holds (RFC 8446 §5.1).
const HELD_BACK: usize = 16 << 10;

/// Most bytes that are gathered for one write: a head and a common body together.
const GATHERED: usize = 8 << 10;

/// What is gathered until it is flushed. It has room of its own only while something
/// waits: a buffer below would keep it for as long as the connection is idle.
#[derive(Debug, Default)]
pub(super) struct GatheredWrites(Vec<u8>);

impl GatheredWrites {
    /// Gathers `pieces` of `count` bytes; whether there was room for them.
    fn gather<'a>(&mut self, count: usize, pieces: impl Iterator<Item = &'a [u8]>) -> bool {
        if self.0.len() + count > GATHERED {
            return false;
        }
        if self.0.is_empty() {
            self.0.reserve_exact(GATHERED);
        }
        pieces.for_each(|piece| self.0.extend_from_slice(piece));
        true
    }

    /// Writes what was gathered to `inner`.
    fn write(&mut self, inner: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.0.is_empty() {
            return Poll::Ready(Ok(()));
        }
        poll_write_all(&mut self.0, inner, cx)
    }
}

/// Writes all of `bytes` to `inner`, and then holds no room for them.
fn poll_write_all(
    bytes: &mut Vec<u8>,
    inner: &mut Stream,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    let mut written = 0;
    let outcome = loop {
        let rest = &bytes[written..];
        if rest.is_empty() {
            // An idle connection holds nothing.
            *bytes = Vec::new();
            return Poll::Ready(Ok(()));
        }
        match Pin::new(&mut *inner).poll_write(cx, rest) {
            Poll::Ready(Ok(0)) => break Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(count)) => written += count,
            Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
            Poll::Pending => break Poll::Pending,
        }
    };
    bytes.drain(..written);
    outcome
}

/// What is written under a [`Cork`].
#[derive(Debug)]
pub(super) struct CorkedWrites {
    cork: Arc<Cork>,
    bytes: Vec<u8>,
    /// Whether bytes that were held back are not flushed yet.
    due: bool,
}

impl CorkedWrites {
    fn new(cork: Arc<Cork>) -> Self {
        Self {
            cork,
            bytes: Vec::new(),
            due: false,
        }
    }

    /// Whether `count` bytes are to be held back.
    fn holds(&self, count: usize) -> bool {
        self.cork.holds() && count <= HELD_BACK - self.bytes.len()
    }

    fn hold_back(&mut self, bytes: &[u8]) {
        if self.bytes.is_empty() {
            self.bytes.reserve(HELD_BACK);
            self.cork.set_waiting(true);
            self.due = true;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether a flush is left for later.
    fn waits(&self) -> bool {
        self.cork.holds() && !self.bytes.is_empty()
    }

    /// Writes what was held back to `inner`.
    fn write(&mut self, inner: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(poll_write_all(&mut self.bytes, inner, cx))?;
        self.cork.set_waiting(false);
        Poll::Ready(Ok(()))
    }
}

impl FramedStream {
    /// Holds back what is written while `cork` says so.
    pub fn cork(&mut self, cork: Arc<Cork>) {
        self.corked = Some(Box::new(CorkedWrites::new(cork)));
    }

    /// Sends what was held back, if its turn has come, as far as the client takes it.
    pub(super) fn send_corked(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(corked) = &mut self.corked else {
            return Ok(());
        };
        if corked.due && !corked.cork.holds() {
            // A flush follows every turn of the connection, and goes on from here.
            let _ = self.poll_send(cx)?;
        }
        Ok(())
    }

    /// Writes what was held back, behind what was gathered: nothing is gathered while
    /// something is held back, so what was gathered came before.
    fn poll_corked(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.corked {
            Some(corked) if !corked.bytes.is_empty() => {
                ready!(self.gathered.write(&mut self.inner, cx))?;
                corked.write(&mut self.inner, cx)
            }
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Writes what was held back, and flushes it.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_corked(cx))?;
        ready!(self.poll_sent(cx))?;
        if let Some(corked) = &mut self.corked {
            corked.due = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what was gathered, and flushes it.
    pub(super) fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.gathered.write(&mut self.inner, cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    /// Writes `bytes` that whoever has them gathered by himself.
    pub(in crate::http) fn poll_write_through(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.gathered.write(&mut self.inner, cx))?;
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    /// Holds `pieces` of `count` bytes back, if their turn has not come; whether that is
    /// so.
    fn hold_back<'a>(&mut self, count: usize, pieces: impl Iterator<Item = &'a [u8]>) -> bool {
        match &mut self.corked {
            Some(corked) if count > 0 && corked.holds(count) => {
                pieces.for_each(|piece| corked.hold_back(piece));
                true
            }
            _ => false,
        }
    }

    /// Sends what was written, where that may not wait.
    fn send(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.prompt.load(Ordering::Relaxed) {
            let flushed = self.poll_sent(cx)?;
            // The engine reads all the while, and so sends the rest.
            self.flushing = flushed.is_pending();
        }
        Ok(())
    }
}

impl AsyncWrite for FramedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.hold_back(bytes.len(), std::iter::once(bytes)) {
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(this.poll_corked(cx))?;
        let bytes = this.date.apply(bytes);
        let count = if this.gathered.gather(bytes.len(), std::iter::once(bytes)) {
            bytes.len()
        } else {
            ready!(this.gathered.write(&mut this.inner, cx))?;
            ready!(Pin::new(&mut this.inner).poll_write(cx, bytes))?
        };
        this.date.wrote(count);
        this.send(cx)?;
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.corked.as_ref().is_some_and(|corked| corked.waits()) {
            return Poll::Ready(Ok(()));
        }
        this.poll_send(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_corked(cx))?;
        ready!(this.gathered.write(&mut this.inner, cx))?;
        Pin::new(&mut this.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let count = pieces.iter().map(|piece| piece.len()).sum();
        let each = || pieces.iter().map(|piece| &**piece);
        if this.hold_back(count, each()) {
            return Poll::Ready(Ok(count));
        }
        ready!(this.poll_corked(cx))?;
        this.date.forget();
        let count = if this.gathered.gather(count, each()) {
            count
        } else {
            ready!(this.gathered.write(&mut this.inner, cx))?;
            ready!(Pin::new(&mut this.inner).poll_write_vectored(cx, pieces))?
        };
        this.send(cx)?;
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
