//! What the next request of a connection is, before anybody reads it.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite as _;

use super::{FramedStream, Reader, State};

impl FramedStream {
    /// Whether the connection speaks HTTP/2.
    pub fn is_http2(&self) -> bool {
        matches!(self.reader, Reader::Http2(_))
    }

    /// Waits for the head of the next request of HTTP/1, and hands on nothing.
    ///
    /// Whether that request is plain: of HTTP/1.1, with a path for a target, and with a
    /// body of [`BUFFERED_MAX`](crate::http::bridge::BUFFERED_MAX) bytes at most whose
    /// length it says. It has no expectation, no change of protocol and no hop-by-hop
    /// field other than `Connection: keep-alive` or `close`. What ends or breaks the
    /// rules is not. Of a plain request the head is read alone.
    ///
    /// # Errors
    /// What reading from the client gives.
    pub async fn awaits_plain_request(&mut self) -> io::Result<bool> {
        poll_fn(|cx| self.poll_head(cx)).await
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.flushing {
            let flushed = Pin::new(&mut self.inner).poll_flush(cx)?;
            self.flushing = flushed.is_pending();
        }
        loop {
            self.settle();
            let Reader::Http1(requests) = &self.reader else {
                return Poll::Ready(Ok(false));
            };
            if self.ready > 0 {
                return Poll::Ready(Ok(requests.at_head && requests.plain));
            }
            if !matches!(requests.state, State::Head(_)) {
                return Poll::Ready(Ok(false));
            }
            if !self.held.is_empty() && !self.stale {
                self.look();
            } else if !ready!(self.read_aside(cx))? {
                return Poll::Ready(Ok(false));
            }
        }
    }
}
