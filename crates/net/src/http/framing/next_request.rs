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
    /// Whether that request is plain: of HTTP/1.1, with a path for a target, without a
    /// body, an expectation, a change of protocol and hop-by-hop fields other than
    /// `Connection: keep-alive` or `close`. What ends or breaks the rules is not.
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
            let is_head = matches!(requests.state, State::Head(_));
            if self.ready > 0 {
                return Poll::Ready(Ok(is_head && requests.plain));
            }
            if !is_head {
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
