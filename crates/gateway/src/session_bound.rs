//! Answers that end with the session that they belong to: WebSockets with a word
//! to the client, streams of events without.
//!
//! Such an answer has an upstream connection of its own, which is looked at while
//! nothing comes: when the session is over, nothing more does. Over TLS it is looked
//! at above the encryption, where the frames of a WebSocket can be told apart.

use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use http::header::UPGRADE;
use pingora::connectors::TransportConnector;
use pingora::connectors::l4::Connect;
use pingora::http::RequestHeader;
use pingora::prelude::{Error, ErrorType, HttpPeer};
use pingora::protocols::l4::socket::SocketAddr;
use pingora::protocols::l4::stream::Stream;
use pingora::protocols::l4::virt::{VirtualSockOpt, VirtualSocket, VirtualSocketStream};
use pingora::upstreams::peer::Scheme;
use pingora::{Result, protocols};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::upload::transport;
use doorward_core::clock::random_bytes;
use doorward_net::http::quality;
use doorward_plugin_api::filter::{AwaitedEvents, Exchange, SessionLiveness};

/// How often is looked whether the session is over.
const LOOK: Duration = Duration::from_secs(1);
/// Looks until a WebSocket in the middle of a frame is cut.
const CUT: u8 = 10;
/// What the client of a WebSocket is told: 1008, a policy is violated (RFC 6455
/// §7.4.1), and why.
const CLOSE: &[u8] = b"\x88\x13\x03\xf0session has ended";

/// Makes connections that end with a session.
pub struct SessionBoundConnector {
    authorities: Option<PathBuf>,
    connector: OnceLock<Arc<TransportConnector>>,
}

impl fmt::Debug for SessionBoundConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionBoundConnector")
            .finish_non_exhaustive()
    }
}

impl SessionBoundConnector {
    /// Over TLS the authorities in the file `ca` are trusted, without one those of
    /// the system.
    #[must_use]
    pub fn new(ca: Option<&Path>) -> Self {
        Self {
            authorities: ca.map(Path::to_owned),
            connector: OnceLock::new(),
        }
    }

    /// Gives a request whose answer may last a connection that ends with its session;
    /// whether it has done so.
    pub(super) fn bind(
        &self,
        peer: &mut HttpPeer,
        request: &RequestHeader,
        exchange: &Exchange,
    ) -> bool {
        let Some(lasting) = &exchange.lasting else {
            return false;
        };
        let is_socket = request.headers.contains_key(UPGRADE);
        if !is_socket && !may_be_silent(request, exchange) {
            return false;
        }
        // Its own: nobody else's answer ends with this session.
        peer.group_key = u64::from_be_bytes(random_bytes());
        peer.options.idle_timeout = Some(Duration::ZERO);
        let mut inner = peer.clone();
        let is_http1 = peer.options.alpn.get_max_http_version() == 1;
        // One of both speaks TLS. In HTTP/2 that is the engine, which agrees on the
        // protocol by it, and there are no WebSockets.
        let plain = if is_http1 { &mut *peer } else { &mut inner };
        plain.scheme = Scheme::HTTP;
        peer.options.custom_l4 = Some(Arc::new(Connector {
            inner,
            transport: self.connector(),
            lasting: Arc::clone(lasting),
            frames: is_socket && is_http1,
        }));
        true
    }

    /// Made when the first one is wanted: it reads the system's authorities.
    fn connector(&self) -> Arc<TransportConnector> {
        let made = self
            .connector
            .get_or_init(|| transport(self.authorities.as_deref(), 1));
        Arc::clone(made)
    }
}

/// Whether nothing may come for long after the session is over. An answer to one
/// call is looked at as it comes, and shares connections.
fn may_be_silent(request: &RequestHeader, exchange: &Exchange) -> bool {
    match exchange.awaits_events {
        Some(events) => events == AwaitedEvents::OfSubscription,
        None => quality::accepts_events(&request.headers),
    }
}

/// Refuses to go on with an answer whose session is over.
///
/// # Errors
/// When it is.
pub(super) fn check(exchange: &Exchange, upgraded: bool) -> Result<()> {
    match &exchange.lasting {
        Some(lasting) if !upgraded && lasting.is_over() => Err(Error::explain(
            ErrorType::Custom("SessionOver"),
            "the session has ended, and so does the answer",
        )),
        _ => Ok(()),
    }
}

/// Connects as the engine would, to what is behind a [`SessionBoundStream`].
struct Connector {
    inner: HttpPeer,
    transport: Arc<TransportConnector>,
    lasting: Arc<dyn SessionLiveness>,
    frames: bool,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connector({})", self.inner)
    }
}

#[async_trait]
impl Connect for Connector {
    async fn connect(&self, _: &SocketAddr) -> Result<Stream> {
        let stream = self.transport.new_stream(&self.inner).await?;
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let bound = SessionBoundStream {
            stream,
            lasting: Arc::clone(&self.lasting),
            looks,
            frames: self.frames.then(Frames::default),
            late: 0,
            over: false,
            left: &[],
        };
        Ok(VirtualSocketStream::new(Box::new(bound)).into())
    }
}

/// A connection that ends with a session.
#[derive(Debug)]
struct SessionBoundStream {
    stream: protocols::Stream,
    lasting: Arc<dyn SessionLiveness>,
    looks: Interval,
    /// Where a WebSocket is.
    frames: Option<Frames>,
    /// Looks since the session has ended in the middle of a frame.
    late: u8,
    over: bool,
    /// What is still to be said of the end.
    left: &'static [u8],
}

impl SessionBoundStream {
    /// Looks whether it ends now.
    fn look(&mut self) {
        if self.over || !self.lasting.is_over() {
            return;
        }
        match &self.frames {
            Some(frames) if frames.is_between() => {
                (self.over, self.left) = (true, CLOSE);
            }
            // The answer has not begun, or the rest of a frame is to come.
            Some(_) if self.late < CUT => self.late += 1,
            _ => self.over = true,
        }
    }
}

impl AsyncRead for SessionBoundStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        while this.looks.poll_tick(cx).is_ready() {
            this.look();
        }
        if this.over {
            let length = this.left.len().min(buf.remaining());
            let (now, later) = this.left.split_at(length);
            buf.put_slice(now);
            this.left = later;
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        if let Some(frames) = &mut this.frames {
            frames.pass(&buf.filled()[before..]);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SessionBoundStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl VirtualSocket for SessionBoundStream {
    fn set_socket_option(&self, _: VirtualSockOpt) -> std::io::Result<()> {
        Ok(())
    }
}

/// Where in its frames (RFC 6455 §5.2) an upstream is.
#[derive(Debug, Default)]
struct Frames {
    /// How much of the end of the answer's head has come; 4: all.
    head: usize,
    /// The beginning of a frame, until its length is known.
    begun: Vec<u8>,
    /// What is missing of a frame.
    missing: u64,
}

impl Frames {
    const END: &[u8; 4] = b"\r\n\r\n";

    /// Whether the last frame is whole and the next one has not begun.
    fn is_between(&self) -> bool {
        self.head == Self::END.len() && self.begun.is_empty() && self.missing == 0
    }

    fn pass(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.head < Self::END.len() {
                self.head = match *first {
                    byte if byte == Self::END[self.head] => self.head + 1,
                    b'\r' => 1,
                    _ => 0,
                };
                bytes = rest;
            } else if self.missing > 0 {
                let now = self.missing.min(bytes.len() as u64);
                self.missing -= now;
                bytes = bytes
                    .get(usize::try_from(now).unwrap_or(bytes.len())..)
                    .unwrap_or_default();
            } else {
                self.begun.push(*first);
                if let Some(length) = self.length() {
                    self.missing = length;
                    self.begun.clear();
                }
                bytes = rest;
            }
        }
    }

    /// What follows the head of a frame, once that is whole.
    fn length(&self) -> Option<u64> {
        let second = *self.begun.get(1)?;
        let masked = if second & 0x80 == 0 { 0 } else { 4 };
        let extended = match second & 0x7f {
            126 => 2,
            127 => 8,
            short => return Some(u64::from(short) + masked),
        };
        let length = self.begun.get(2..2 + extended)?;
        let length = length
            .iter()
            .fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
        Some(length.saturating_add(masked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_client_is_told_is_one_whole_frame() {
        assert_eq!(CLOSE[0], 0x88);
        assert_eq!(usize::from(CLOSE[1]), CLOSE.len() - 2);
        assert_eq!(u16::from_be_bytes([CLOSE[2], CLOSE[3]]), 1008);
    }

    #[test]
    fn the_place_between_two_frames_is_found_however_they_are_cut() {
        let mut all = b"HTTP/1.1 101 x\r\nA: b\r\n\r\n".to_vec();
        let mut between = vec![all.len()];
        for length in [0_usize, 5, 125, 126, 70_000] {
            all.push(0x82);
            match length {
                0..126 => all.push(u8::try_from(length).expect("short")),
                126..65_536 => {
                    all.push(126);
                    all.extend(u16::try_from(length).expect("longer").to_be_bytes());
                }
                _ => {
                    all.push(127);
                    all.extend((length as u64).to_be_bytes());
                }
            }
            all.extend(std::iter::repeat_n(0x88, length));
            between.push(all.len());
        }
        for step in [1, 2, 7, 4096, all.len()] {
            let (mut frames, mut at) = (Frames::default(), 0);
            for piece in all.chunks(step) {
                frames.pass(piece);
                at += piece.len();
                assert_eq!(frames.is_between(), between.contains(&at), "{step} {at}");
            }
        }
    }
}
