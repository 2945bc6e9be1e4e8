//! The answer to a plain request, on its way to the client.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, header};
use pingora::Result;
use pingora::http::ResponseHeader;
use pingora::prelude::{Error, ErrorType};
use pingora::protocols::http::date::get_cached_date;
use tokio::io::AsyncWrite;
use tokio::time::sleep;

use crate::http::framing::{self, FramedStream};

/// How many bytes a head has at most, nearly always.
const HEAD: usize = 1 << 10;
/// Pieces that are longer are sent from where they are; shorter ones are copied, so that
/// they are sent with what is before them.
const COPIED: usize = 16 << 10;

/// How the body of the answer ends (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Framing {
    /// It is not known yet: there was no head.
    #[default]
    Unknown,
    /// After so many more bytes.
    Length(u64),
    /// With the last chunk.
    Chunked,
    /// With the connection.
    UntilClose,
    /// It has ended.
    Complete,
}

/// An answer.
#[derive(Default)]
pub(super) struct Answer {
    head: Option<Box<ResponseHeader>>,
    framing: Framing,
    no_interim: bool,
    /// Fields for the end of the head that have no place in its map.
    behind: Vec<(HeaderName, HeaderValue)>,
    /// How long the client may take nothing.
    limit: Option<Duration>,
    /// What waits to be sent first,
    first: BytesMut,
    /// then,
    piece: Bytes,
    /// and last.
    last: &'static [u8],
    /// Bytes of the body that wait.
    waiting: usize,
    /// Bytes of the body that were sent.
    sent: usize,
}

impl Answer {
    pub(super) fn set_limit(&mut self, limit: Option<Duration>) {
        self.limit = limit;
    }

    pub(super) fn leave_out_interim(&mut self, leave_out: bool) {
        self.no_interim = leave_out;
    }

    /// Takes fields for the end of the answer's head, unless one of them would have its
    /// name written in another way there.
    pub(super) fn take_fields(&mut self, fields: &mut Vec<(HeaderName, HeaderValue)>) {
        if self.behind.is_empty() && fields.iter().all(|(name, _)| is_written_as_is(name)) {
            self.behind = std::mem::take(fields);
        }
    }

    /// The last head.
    pub(super) fn written(&self) -> Option<&ResponseHeader> {
        self.head.as_deref()
    }

    /// Bytes of the body that were sent, without what chunks add.
    pub(super) fn sent(&self) -> usize {
        self.sent
    }

    /// Whether there is no more to come.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.framing, Framing::Complete | Framing::Length(0))
    }

    /// Puts a head behind what waits. It is told whether the connection is kept
    /// afterwards, and settles it where the body ends with the connection.
    pub(super) fn head(
        &mut self,
        mut head: Box<ResponseHeader>,
        answers_head: bool,
        keepalive: &mut Option<u64>,
    ) -> Result<()> {
        let interim = head.status.is_informational();
        let is_late = |before: &ResponseHeader| !before.status.is_informational();
        if interim && self.no_interim || self.written().is_some_and(is_late) {
            return Ok(());
        }
        let (mut behind, mut past) = (Vec::new(), None);
        if !interim {
            self.framing = framing_of(&head, answers_head)?;
            if self.framing == Framing::UntilClose {
                *keepalive = None;
            }
            let options = options(&head, keepalive.is_some());
            behind = std::mem::take(&mut self.behind);
            if behind.is_empty() || head.headers.contains_key(header::CONNECTION) {
                complete(&mut head, &behind, options)?;
            } else {
                past = Some(options);
            }
        }
        self.gather();
        write_start(&head, &mut self.first);
        if let Some(options) = past {
            write_past(&head, &behind, options, &mut self.first);
        }
        self.first.put_slice(b"\r\n");
        self.head = Some(head);
        Ok(())
    }

    /// Puts a piece of the body behind what waits. What is beyond the length that the
    /// head names is dropped.
    pub(super) fn piece(&mut self, mut piece: Bytes) {
        match &mut self.framing {
            Framing::Length(left) => {
                let taken = (*left).min(piece.len() as u64);
                *left -= taken;
                // No more than the length of the piece.
                piece.truncate(taken as usize);
            }
            Framing::Chunked | Framing::UntilClose => {}
            Framing::Unknown | Framing::Complete => return,
        }
        if piece.is_empty() {
            return;
        }
        self.gather();
        self.waiting += piece.len();
        let chunked = self.framing == Framing::Chunked;
        if chunked {
            write_chunk_size(piece.len(), &mut self.first);
        }
        if piece.len() > COPIED {
            self.piece = piece;
            self.last = if chunked { b"\r\n" } else { b"" };
            return;
        }
        self.first.extend_from_slice(&piece);
        if chunked {
            self.first.extend_from_slice(b"\r\n");
        }
    }

    /// Ends the body.
    pub(super) fn end(&mut self) -> Result<()> {
        let framing = std::mem::replace(&mut self.framing, Framing::Complete);
        match framing {
            Framing::Chunked if self.piece.is_empty() => {
                self.first.extend_from_slice(b"0\r\n\r\n");
            }
            Framing::Chunked => self.last = b"\r\n0\r\n\r\n",
            Framing::Length(left) if left > 0 => {
                let why = "the body is shorter than its Content-Length";
                return Error::e_explain(ErrorType::WriteError, why);
            }
            Framing::Unknown => self.framing = Framing::Unknown,
            Framing::Length(_) | Framing::UntilClose | Framing::Complete => {}
        }
        Ok(())
    }

    /// Makes room for more behind what waits.
    fn gather(&mut self) {
        if !self.piece.is_empty() {
            self.first.extend_from_slice(&self.piece);
            self.piece = Bytes::new();
        }
        self.first.extend_from_slice(self.last);
        self.last = b"";
    }

    /// Sends what waits.
    pub(super) async fn send(&mut self, stream: &mut FramedStream) -> Result<()> {
        let mut first = std::mem::take(&mut self.first);
        let mut piece = std::mem::take(&mut self.piece);
        let mut last = std::mem::take(&mut self.last);
        if first.is_empty() && piece.is_empty() && last.is_empty() {
            return Ok(());
        }
        self.write(stream, &mut first).await?;
        self.write(stream, &mut piece).await?;
        self.write(stream, &mut last).await?;
        let flushed = self.within(poll_fn(|cx| Pin::new(&mut *stream).poll_flush(cx)));
        flushed.await?;
        self.sent += std::mem::take(&mut self.waiting);
        Ok(())
    }

    async fn write(&self, stream: &mut FramedStream, bytes: &mut impl bytes::Buf) -> Result<()> {
        while bytes.has_remaining() {
            let written = poll_fn(|cx| stream.poll_write_through(cx, bytes.chunk()));
            match self.within(written).await? {
                0 => return Err(failed(io::ErrorKind::WriteZero.into())),
                count => bytes.advance(count),
            }
        }
        Ok(())
    }

    /// Waits for the client for as long as it may take nothing. A timer is set only
    /// where it does not take it at once.
    async fn within<T>(&self, step: impl Future<Output = io::Result<T>>) -> Result<T> {
        let mut step = pin!(step);
        let mut late = None;
        let done = poll_fn(|cx| {
            if let Poll::Ready(done) = step.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
            let Some(limit) = self.limit else {
                return Poll::Pending;
            };
            let late = late.get_or_insert_with(|| Box::pin(sleep(limit)));
            late.as_mut().poll(cx).map(|()| None)
        });
        match done.await {
            Some(done) => done.map_err(failed),
            None => Error::e_explain(ErrorType::WriteTimedout, "the client takes nothing"),
        }
    }
}

fn failed(error: io::Error) -> Box<Error> {
    Error::because(ErrorType::WriteError, "writing the answer", error)
}

/// What the client is told of the connection. One that is to speak another protocol is
/// told so by an option as well (RFC 9110 §7.8).
fn options(head: &ResponseHeader, kept: bool) -> &'static str {
    let upgrade =
        head.status == StatusCode::UPGRADE_REQUIRED && head.headers.contains_key(header::UPGRADE);
    match (kept, upgrade) {
        (true, false) => "keep-alive",
        (false, false) => "close",
        (true, true) => "Upgrade",
        (false, true) => "close, Upgrade",
    }
}

/// How the body ends that follows `head`.
fn framing_of(head: &ResponseHeader, answers_head: bool) -> Result<Framing> {
    let headers = &head.headers;
    if answers_head
        || matches!(
            head.status,
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
        )
    {
        return Ok(Framing::Length(0));
    }
    if is_chunked(headers) {
        return Ok(Framing::Chunked);
    }
    let Some(length) = headers.get(header::CONTENT_LENGTH) else {
        return Ok(Framing::UntilClose);
    };
    match framing::content_length(length.as_bytes()) {
        Some(length) => Ok(Framing::Length(length)),
        None => Error::e_explain(ErrorType::InvalidHTTPHeader, "Content-Length is no number"),
    }
}

fn is_chunked(headers: &HeaderMap) -> bool {
    let coding = headers.get(header::TRANSFER_ENCODING);
    coding.is_some_and(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
}

/// Puts the last fields into an answer's head: those that were taken, its date, and what
/// it says of the connection.
fn complete(
    head: &mut ResponseHeader,
    behind: &[(HeaderName, HeaderValue)],
    options: &'static str,
) -> Result<()> {
    for (name, value) in behind {
        head.append_header(name.clone(), value.clone())?;
    }
    if !head.headers.contains_key(header::DATE) {
        head.insert_header(header::DATE, get_cached_date())?;
    }
    head.insert_header(header::CONNECTION, options)
}

/// Writes a head as it is sent (RFC 9112 §4), without its end.
fn write_start(head: &ResponseHeader, out: &mut BytesMut) {
    out.reserve(HEAD);
    out.put_slice(match head.version {
        Version::HTTP_10 => b"HTTP/1.0 ",
        _ => b"HTTP/1.1 ",
    });
    out.put_slice(head.status.as_str().as_bytes());
    out.put_u8(b' ');
    out.put_slice(head.get_reason_phrase().unwrap_or_default().as_bytes());
    out.put_slice(b"\r\n");
    head.header_to_h1_wire(out);
}

/// Writes the last fields of an answer past its head, in the order that they have in one.
fn write_past(
    head: &ResponseHeader,
    behind: &[(HeaderName, HeaderValue)],
    options: &'static str,
    out: &mut BytesMut,
) {
    let mut write = |name: &str, value: &[u8]| {
        out.reserve(name.len() + value.len() + 4);
        out.put_slice(name.as_bytes());
        out.put_slice(b": ");
        out.put_slice(value);
        out.put_slice(b"\r\n");
    };
    for (name, value) in behind {
        write(name.as_str(), value.as_bytes());
    }
    if !head.headers.contains_key(header::DATE) {
        write("Date", get_cached_date().as_bytes());
    }
    write("Connection", options.as_bytes());
}

/// Whether a name is written in lower case. The engine writes some in another way, all of
/// which begin with one of these letters.
fn is_written_as_is(name: &HeaderName) -> bool {
    let first = name.as_str().as_bytes().first();
    !matches!(first, None | Some(b'a' | b'c' | b'd' | b'h' | b's' | b't'))
}

/// Writes how long a chunk is (RFC 9112 §7.1).
fn write_chunk_size(size: usize, out: &mut BytesMut) {
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    for at in (0..digits).rev() {
        let digit = (size >> (4 * at)) & 0xf;
        out.put_u8(b"0123456789ABCDEF"[digit]);
    }
    out.put_slice(b"\r\n");
}
