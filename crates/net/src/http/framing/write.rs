//! What is written to a client.

use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

use super::FramedStream;

impl AsyncWrite for FramedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let bytes = this.date.apply(bytes);
        let count = ready!(Pin::new(&mut this.inner).poll_write(cx, bytes))?;
        this.date.wrote(count);
        this.send(cx)?;
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.date.forget();
        let count = ready!(Pin::new(&mut this.inner).poll_write_vectored(cx, pieces))?;
        this.send(cx)?;
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

impl FramedStream {
    /// Sends what was written, where that may not wait.
    fn send(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.prompt.load(Ordering::Relaxed) {
            let flushed = Pin::new(&mut self.inner).poll_flush(cx)?;
            // The engine reads all the while, and so sends the rest.
            self.flushing = flushed.is_pending();
        }
        Ok(())
    }
}
