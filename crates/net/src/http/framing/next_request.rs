//! What the next request of a connection is, before anybody reads it.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::http2::FieldBlocks;
use super::{FramedStream, Reader, State, WAITING};

/// How a connection of HTTP/2 begins; no method of HTTP/1 does.
const HTTP2: &[u8] = b"PRI";
/// Length of the preface that it is the beginning of (RFC 9113 §3.4).
const PREFACE: usize = 24;

impl FramedStream {
    /// Tells by the first bytes of a connection in the clear whether it speaks HTTP/2:
    /// then its whole preface has come, for which the engine would wait without a limit.
    pub(in crate::http) async fn tell_protocol(&mut self) -> io::Result<()> {
        let http2 = poll_fn(|cx| self.poll_protocol(cx)).await?;
        if http2 {
            self.reader = Reader::Http2(Box::new(FieldBlocks::new()));
        }
        Ok(())
    }

    fn poll_protocol(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            let http2 = self.held.starts_with(HTTP2);
            if self.held.len() >= if http2 { PREFACE } else { HTTP2.len() } {
                return Poll::Ready(Ok(http2));
            }
            if !ready!(self.read_aside(cx))? {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

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

    /// Takes the head of the plain request that waits; with it comes the length of the
    /// body that follows.
    pub(in crate::http) fn take_head(&mut self) -> (Bytes, usize) {
        let body = match self.requests().map(|requests| &requests.state) {
            // No more than a plain request has.
            Some(State::Length(length)) => *length as usize,
            _ => 0,
        };
        let rest = self.held.split_off(self.ready);
        let head = std::mem::replace(&mut self.held, rest);
        self.ready = 0;
        self.set_at_head(false);
        (head.into(), body)
    }

    /// Takes the body of so many bytes that follows the head that was taken, if all of it
    /// has come and none of it was read.
    pub(in crate::http) fn take_body(&mut self, length: usize) -> Option<Bytes> {
        let Reader::Http1(requests) = &mut self.reader else {
            return None;
        };
        let is_whole = matches!(requests.state, State::Length(left) if left == length as u64)
            && self.ready == 0
            && self.held.len() >= length;
        if !is_whole {
            return None;
        }
        requests.ended();
        self.stale = false;
        let rest = if self.held.len() > length {
            self.held.split_off(length)
        } else {
            Vec::new()
        };
        Some(std::mem::replace(&mut self.held, rest).into())
    }

    /// Puts back a head that was taken.
    pub(in crate::http) fn put_back(&mut self, head: &Bytes) {
        self.held.splice(..0, head.iter().copied());
        self.ready = head.len();
        self.set_at_head(true);
    }

    /// Ends when the client has left, and has sent no other request before. What it sends
    /// is held, so far as it may wait.
    pub(in crate::http) fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.held.len() < WAITING {
            if !ready!(self.read_aside(cx))? {
                break;
            }
        }
        if self.held.is_empty() {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.flushing {
            let flushed = self.poll_sent(cx)?;
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
