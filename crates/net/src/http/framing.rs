//! What clients send, read strictly before the engine's own parsers see it: where
//! requests of HTTP/1 begin and end (RFC 9112), and the fields of HTTP/2.
//!
//! That one mends what it can't read, takes lines that others read differently,
//! and refuses in words of its own. What passes here it reads in one way only.
//! A head is handed on when it is whole, and a body as it comes. In the place of
//! a request that is refused comes one that says so: [`refusal`] tells why, and
//! it is answered, logged and counted like any other.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use pingora::protocols::Stream;
use tokio::io::{AsyncRead, ReadBuf};

use super::accept;
use super::session::Session;
use super::upload::Upload;

mod chunked;
mod connection;
mod date;
mod head;
mod hpack;
mod http2;
mod next_request;
#[cfg(test)]
mod tests;
mod write;

use chunked::Read;
pub use chunked::{ChunkPart, Chunks};
use date::UpstreamDate;
pub(super) use head::is_special;
use head::{Body, Head, HeadScan};
pub use head::{MAX_FIELDS, Refusal, content_length};
use http2::FieldBlocks;
use write::{CorkedWrites, GatheredWrites};

/// Most bytes that wait until it is known whether the connection becomes a
/// tunnel.
const WAITING: usize = 16 << 10;
/// Bytes that are read at once where they can't go straight to the engine.
const PIECE: usize = 4 << 10;

/// Why the request that `session` has read is refused, if it is.
pub fn refusal(session: &Session) -> Option<Refusal> {
    if session.is_http2() {
        http2::refusal(&session.req_header().headers)
    } else {
        current(session)?.refusal
    }
}

/// Whether the body of the request in `session` breaks the rules of its coding.
pub fn is_broken(session: &Session) -> bool {
    let requests = session.framed().and_then(FramedStream::requests);
    requests.is_some_and(|requests| matches!(requests.state, State::Broken { .. }))
}

/// Whether the client of `session` asks for another protocol, and has not got
/// its answer.
pub fn asks_for_upgrade(session: &Session) -> bool {
    current(session).is_some_and(|requests| requests.upgrade)
}

/// Notes that the connection of `session` becomes a tunnel: what comes is no
/// HTTP any more.
pub fn open_tunnel(session: &Session) {
    if let Some(stream) = session.framed() {
        stream.tunnel.store(true, Ordering::Relaxed);
    }
}

/// Reads the body of the request in `session` no faster than `upload` has room for it.
pub fn hold_back(session: &Session, upload: &Arc<Upload>) {
    if let Some(stream) = session.framed() {
        *stream.upload.lock() = Some(Arc::downgrade(upload));
    }
}

/// Notes that the request in `session` has got its answer.
pub fn answered(session: &Session) {
    if let Some(stream) = session.framed() {
        stream.prompt.store(false, Ordering::Relaxed);
        stream.answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is read, if the last request of it is that of `session`.
fn current(session: &Session) -> Option<&Requests> {
    let stream = session.framed()?;
    let answered = stream.answered.load(Ordering::Relaxed);
    let is_next = |requests: &&Requests| requests.heads == answered.wrapping_add(1);
    stream.requests().filter(is_next)
}

/// What comes next on a connection.
#[derive(Debug)]
enum State {
    /// A request head, of which so many bytes were looked at.
    Head(usize),
    /// So many bytes of a body.
    Length(u64),
    /// A chunked body.
    Chunked(Chunks),
    /// A request, or what follows a change of protocol.
    Waiting,
    /// Whatever it is, it is no request.
    Open,
    /// Nothing: the body was not what it has to be.
    Broken {
        /// Whether the engine knows.
        told: bool,
    },
}

/// How bytes were read.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// So many may pass; after them it may be another one's turn.
    Passes(usize),
    /// Others are read in the place of so many.
    Instead(usize, Vec<u8>),
    /// More are needed first.
    More,
    /// They break the rules.
    Broken,
}

/// Reads requests of HTTP/1 one after the other.
#[derive(Debug)]
struct Requests {
    state: State,
    refusal: Option<Refusal>,
    /// Whether the last head asked for another protocol.
    upgrade: bool,
    /// Whether the last head is as nearly all are.
    plain: bool,
    /// Whether the last head is here as a whole, and nothing after it was read yet.
    at_head: bool,
    /// Heads so far.
    heads: u32,
}

impl Requests {
    fn new() -> Self {
        Self {
            state: State::Head(0),
            refusal: None,
            upgrade: false,
            plain: false,
            at_head: false,
            heads: 0,
        }
    }

    /// Reads on, not beyond the end of a request. `bytes` are some.
    fn read(&mut self, bytes: &[u8]) -> Outcome {
        let passed = match self.state {
            State::Head(seen) => match self.head(bytes, seen) {
                // Whoever serves it may leave its body to somebody else.
                Outcome::Passes(length) if self.plain => return Outcome::Passes(length),
                Outcome::Passes(length) => length,
                other => return other,
            },
            _ => 0,
        };
        self.at_head = false;
        let rest = &bytes[passed..];
        let more = match &mut self.state {
            State::Length(left) => {
                let here = (*left).min(rest.len() as u64);
                *left -= here;
                if *left == 0 {
                    self.ended();
                }
                // No more than the length of a slice.
                here as usize
            }
            State::Chunked(chunks) => match chunks.read(rest) {
                Read::All => rest.len(),
                Read::Ended(length) => {
                    self.ended();
                    length
                }
                Read::Broken(length) => {
                    self.state = State::Broken { told: false };
                    length
                }
            },
            State::Open => rest.len(),
            State::Head(_) | State::Waiting | State::Broken { .. } => 0,
        };
        match passed + more {
            0 => Outcome::Broken,
            passes => Outcome::Passes(passes),
        }
    }

    fn head(&mut self, bytes: &[u8], seen: usize) -> Outcome {
        match head::read(bytes, seen) {
            HeadScan::Head(head) => {
                self.begin(&head);
                match head.instead {
                    None => Outcome::Passes(head.length),
                    Some(instead) => Outcome::Instead(head.length, instead),
                }
            }
            HeadScan::Part => {
                self.state = State::Head(bytes.len());
                Outcome::More
            }
            HeadScan::Blank(length) => {
                self.state = State::Head(0);
                Outcome::Instead(length, Vec::new())
            }
            HeadScan::Refused(refusal, instead) => {
                self.heads = self.heads.wrapping_add(1);
                self.refusal = Some(refusal);
                self.upgrade = false;
                self.plain = false;
                self.state = State::Open;
                Outcome::Instead(bytes.len(), instead)
            }
        }
    }

    fn begin(&mut self, head: &Head) {
        self.heads = self.heads.wrapping_add(1);
        self.upgrade = head.upgrade;
        self.plain = head.plain;
        self.at_head = true;
        match head.body {
            Body::Length(0) => self.ended(),
            Body::Length(length) => self.state = State::Length(length),
            Body::Chunked => self.state = State::Chunked(Chunks::new()),
        }
    }

    /// After a whole request.
    fn ended(&mut self) {
        self.state = if self.upgrade {
            State::Waiting
        } else {
            State::Head(0)
        };
    }
}

/// What a connection speaks.
#[derive(Debug)]
enum Reader {
    Http1(Requests),
    Http2(Box<FieldBlocks>),
}

impl Reader {
    fn read(&mut self, bytes: &[u8]) -> Outcome {
        match self {
            Reader::Http1(requests) => requests.read(bytes),
            Reader::Http2(blocks) => blocks.read(bytes),
        }
    }
}

/// A client's connection, for the engine to read.
pub struct FramedStream {
    inner: Stream,
    reader: Reader,
    /// What was read and not handed on.
    held: Vec<u8>,
    /// How many of these bytes may be handed on.
    ready: usize,
    /// Whether the others were looked at, and are too few.
    stale: bool,
    /// A date that the next head is to have.
    date: UpstreamDate,
    /// Whether something written is still on its way.
    flushing: bool,
    /// Whether what is written is to be sent at once.
    prompt: AtomicBool,
    /// Whether the connection is a tunnel from here on.
    tunnel: AtomicBool,
    /// Requests that have got their answers.
    answered: AtomicU32,
    /// Where the body goes, if that may be slower than the client.
    upload: Mutex<Option<Weak<Upload>>>,
    /// What is written, until it is flushed.
    gathered: GatheredWrites,
    /// What is written under a cork, if the connection has one.
    corked: Option<Box<CorkedWrites>>,
}

impl fmt::Debug for FramedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What was read may be secret.
        f.debug_struct("FramedStream")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl FramedStream {
    /// Requests that come over `inner`, in HTTP/2 or else in HTTP/1.
    pub fn new(inner: Stream, http2: bool) -> Self {
        let reader = if http2 {
            Reader::Http2(Box::new(FieldBlocks::new()))
        } else {
            Reader::Http1(Requests::new())
        };
        Self {
            inner,
            reader,
            held: Vec::new(),
            ready: 0,
            stale: false,
            date: UpstreamDate::default(),
            flushing: false,
            prompt: AtomicBool::new(false),
            tunnel: AtomicBool::new(false),
            answered: AtomicU32::new(0),
            upload: Mutex::default(),
            gathered: GatheredWrites::default(),
            corked: None,
        }
    }

    /// Sends every piece of the engine's answer as soon as it is written.
    pub(super) fn send_at_once(&self) {
        self.prompt.store(true, Ordering::Relaxed);
    }

    /// Leaves the engine's next head the `Date` that its upstream gave it.
    pub(super) fn keep_date(&self, date: &[u8]) {
        self.date.keep(date);
    }

    /// Waits while the origin is to take more of a body before the client is read.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let slot = self.upload.get_mut();
        let Some(upload) = slot else {
            return Poll::Ready(());
        };
        let Some(upload) = upload.upgrade() else {
            *slot = None;
            return Poll::Ready(());
        };
        let in_body = match &self.reader {
            Reader::Http1(requests) => {
                matches!(requests.state, State::Length(_) | State::Chunked(_))
            }
            Reader::Http2(_) => false,
        };
        if in_body || self.ready > 0 {
            upload.poll_room(cx)
        } else {
            Poll::Ready(())
        }
    }

    fn requests(&self) -> Option<&Requests> {
        match &self.reader {
            Reader::Http1(requests) => Some(requests),
            Reader::Http2(_) => None,
        }
    }

    /// Hands on what is ready.
    fn give(&mut self, out: &mut ReadBuf<'_>) {
        let count = self.ready.min(out.remaining());
        out.put_slice(&self.held[..count]);
        self.ready -= count;
        self.held.drain(..count);
        self.set_at_head(false);
        if self.held.is_empty() {
            // An idle connection holds nothing.
            self.held = Vec::new();
        }
    }

    /// Notes whether the last head is here as a whole.
    fn set_at_head(&mut self, at_head: bool) {
        if let Reader::Http1(requests) = &mut self.reader {
            requests.at_head = at_head;
        }
    }

    /// Goes by what became of the last request.
    fn settle(&mut self) {
        let Reader::Http1(requests) = &mut self.reader else {
            return;
        };
        let open = match requests.state {
            State::Open | State::Broken { .. } => return,
            _ => self.tunnel.load(Ordering::Relaxed),
        };
        if open {
            requests.state = State::Open;
            self.ready = self.held.len();
        } else if matches!(requests.state, State::Waiting)
            && self.answered.load(Ordering::Relaxed) == requests.heads
        {
            requests.state = State::Head(0);
            self.stale = false;
        }
    }

    /// Looks at what is held.
    fn look(&mut self) {
        match self.reader.read(&self.held) {
            Outcome::Passes(count) => self.ready = count,
            Outcome::Instead(count, with) => {
                self.ready = with.len();
                self.held.splice(..count, with);
            }
            Outcome::More => {
                accept::head_begun();
                self.stale = true;
            }
            Outcome::Broken => {}
        }
    }

    /// Reads straight to the engine; whether there is something for it.
    fn read_through(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<bool>> {
        let before = out.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, out))?;
        let came = &out.filled()[before..];
        if came.is_empty() {
            return Poll::Ready(Ok(true));
        }
        let passes = match self.reader.read(came) {
            Outcome::Passes(count) => {
                self.held.extend_from_slice(&came[count..]);
                self.stale = false;
                count
            }
            Outcome::Instead(count, with) => {
                self.ready = with.len();
                self.held = with;
                self.held.extend_from_slice(&came[count..]);
                self.stale = false;
                0
            }
            Outcome::More => {
                accept::head_begun();
                self.held.extend_from_slice(came);
                self.stale = true;
                0
            }
            Outcome::Broken => 0,
        };
        out.set_filled(before + passes);
        Poll::Ready(Ok(passes > 0))
    }

    /// Reads more behind what is held; whether something came before the end.
    fn read_aside(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut space = [const { MaybeUninit::<u8>::uninit() }; PIECE];
        let mut piece = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut self.inner).poll_read(cx, &mut piece))?;
        self.held.extend_from_slice(piece.filled());
        self.stale = false;
        Poll::Ready(Ok(!piece.filled().is_empty()))
    }

    /// After what breaks the rules: says so once, and drops the rest, so that the
    /// answer is not cut off.
    fn read_broken(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Reader::Http1(requests) = &mut self.reader
            && matches!(requests.state, State::Broken { told: true })
        {
            loop {
                self.held.clear();
                if !ready!(self.read_aside(cx))? {
                    return Poll::Ready(Ok(()));
                }
            }
        }
        if let Reader::Http1(requests) = &mut self.reader {
            requests.state = State::Broken { told: true };
        }
        let why = "what the client sent is not framed as it has to be";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)))
    }
}

impl AsyncRead for FramedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.flushing {
            let flushed = this.poll_sent(cx)?;
            this.flushing = flushed.is_pending();
        }
        this.send_corked(cx)?;
        if out.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_upload(cx));
        loop {
            this.settle();
            if this.ready > 0 {
                this.give(out);
                return Poll::Ready(Ok(()));
            }
            let (broken, waiting) = match &this.reader {
                Reader::Http1(requests) => (
                    matches!(requests.state, State::Broken { .. }),
                    matches!(requests.state, State::Waiting),
                ),
                Reader::Http2(blocks) => (blocks.is_broken(), false),
            };
            if broken {
                return this.read_broken(cx);
            }
            if this.held.is_empty() && !waiting {
                if ready!(this.read_through(cx, out))? {
                    return Poll::Ready(Ok(()));
                }
            } else if !waiting && !this.stale {
                this.look();
            } else if waiting && this.held.len() >= WAITING {
                // Whoever settles what they are reads again.
                return Poll::Pending;
            } else if !ready!(this.read_aside(cx))? {
                return if waiting && !this.held.is_empty() {
                    Poll::Pending
                } else {
                    Poll::Ready(Ok(()))
                };
            }
        }
    }
}
