//! Request heads: where one ends, what it says of the body, and what of it no
//! two readers would agree on.

use std::mem::MaybeUninit;

use http::StatusCode;
use http::uri::Authority;
use httparse::{Header, Request};

use super::chunked::is_token;
use crate::http::bridge::BUFFERED_MAX;

/// Longest head; the gateway's own bound on what it holds is lower.
const LONGEST: usize = 64 << 10;
/// Longest target after encoding, within what a `Uri` holds.
const LONGEST_TARGET: usize = 32 << 10;
/// Most header fields: as many as the engine reads.
pub const MAX_FIELDS: usize = 256;
/// The longest method that is told from noise before a whole line has come.
pub(super) const METHOD: usize = 64;

/// Why a request is refused before it has reached anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What it is answered with.
    pub status: StatusCode,
    /// What is told to the client.
    pub message: &'static str,
}

/// How the body of a request ends (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// After so many bytes.
    Length(u64),
    /// With the last chunk.
    Chunked,
}

/// A head that was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Its length.
    pub(super) length: usize,
    /// What to read in its place.
    pub(super) instead: Option<Vec<u8>>,
    /// How its body ends.
    pub(super) body: Body,
    /// Whether the client asks for another protocol.
    pub(super) upgrade: bool,
    /// Whether it is as nearly all are; see [`Fields::plain`].
    pub(super) plain: bool,
}

/// The bytes where a request begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeadScan {
    /// A head.
    Head(Head),
    /// The beginning of one.
    Part,
    /// Empty lines of so many bytes.
    Blank(usize),
    /// A request that is refused, and what stands for it.
    Refused(Refusal, Vec<u8>),
}

const fn bad(message: &'static str) -> Refusal {
    Refusal {
        status: StatusCode::BAD_REQUEST,
        message,
    }
}

const LINE: Refusal = bad("Invalid request line");
pub(super) const TARGET: Refusal = bad("Invalid request target");
const HOST: Refusal = bad("Invalid Host header");
pub(super) const FIELD: Refusal = bad("Invalid request header");
pub(super) const TOO_LARGE: Refusal = bad("Request header or cookie too large");
const TLS: Refusal = bad("TLS was spoken to a port without it");
const VERSION: Refusal = Refusal {
    status: StatusCode::HTTP_VERSION_NOT_SUPPORTED,
    message: "HTTP version not supported",
};
const CONNECT: Refusal = Refusal {
    status: StatusCode::METHOD_NOT_ALLOWED,
    message: "Method not allowed",
};

/// Reads the head at the beginning of `bytes`, of which `seen` were looked at
/// before without finding its end.
pub(super) fn read(bytes: &[u8], seen: usize) -> HeadScan {
    let blank = blank_lines(bytes);
    if blank > 0 {
        return HeadScan::Blank(blank);
    }
    if seen == 0
        && let Some(found) = quick(bytes)
    {
        return found;
    }
    let Some(length) = end(bytes, seen) else {
        if bytes.len() > LONGEST {
            return refused(TOO_LARGE, bytes);
        }
        return match begins(bytes) {
            Ok(()) => HeadScan::Part,
            Err(refusal) => refused(refusal, bytes),
        };
    };
    let head = &bytes[..length];
    judge(head).unwrap_or_else(|refusal| refused(refusal, head))
}

/// Reads a head that is whole and has nothing to mend, as nearly all are.
fn quick(bytes: &[u8]) -> Option<HeadScan> {
    let mut space = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_FIELDS];
    let mut request = Request::new(&mut []);
    let parsed = request.parse_with_uninit_headers(bytes, &mut space);
    let (Ok(httparse::Status::Complete(length)), Some(target)) = (parsed, request.path) else {
        return None;
    };
    let target = target.as_bytes();
    let stays = target.iter().all(|byte| fate(*byte) == Fate::Stays);
    if !stays || target.len() > LONGEST_TARGET || length > LONGEST || request.method? == "CONNECT" {
        return None;
    }
    let newest = request.version == Some(1);
    Some(match fields(request.headers, target, newest) {
        Ok(fields) => HeadScan::Head(Head {
            length,
            instead: None,
            body: fields.body,
            upgrade: fields.upgrade,
            plain: fields.plain,
        }),
        Err(refusal) => refused(refusal, &bytes[..length]),
    })
}

/// Length of the empty lines before a request, which are skipped (RFC 9112
/// §2.2).
fn blank_lines(bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        at += match &bytes[at..] {
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            _ => return at,
        };
    }
}

/// Where the head ends: after its empty line.
fn end(bytes: &[u8], seen: usize) -> Option<usize> {
    // The empty line may have begun in what was looked at.
    let from = seen.saturating_sub(2);
    for line_end in memchr::memchr_iter(b'\n', &bytes[from..]) {
        let after = from + line_end + 1;
        match &bytes[after..] {
            [b'\n', ..] => return Some(after + 1),
            [b'\r', b'\n', ..] => return Some(after + 2),
            _ => {}
        }
    }
    None
}

/// Whether an incomplete head can become one at all: noise gets its answer at
/// once.
fn begins(bytes: &[u8]) -> Result<(), Refusal> {
    if bytes == b"\r" {
        return Ok(());
    }
    let method = bytes.iter().take_while(|byte| is_token(**byte)).count();
    match bytes.get(method) {
        _ if method > METHOD => Err(LINE),
        None => Ok(()),
        Some(b' ') if method > 0 && memchr::memchr(b'\n', bytes).is_none() => Ok(()),
        Some(b' ') if method > 0 => good_line(bytes).map(|_| ()),
        Some(0x16) if method == 0 => Err(TLS),
        Some(_) => Err(LINE),
    }
}

/// The parts of a request line.
struct Line<'a> {
    method: &'a [u8],
    target: &'a [u8],
    version: &'a [u8],
}

/// Splits the first line of `head`.
fn line(head: &[u8]) -> Option<Line<'_>> {
    let end = memchr::memchr(b'\n', head)?;
    let line = &head[..end];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let first = memchr::memchr(b' ', line)?;
    let last = memchr::memrchr(b' ', line)?;
    if first == last {
        return None;
    }
    Some(Line {
        method: &line[..first],
        target: &line[first + 1..last],
        version: &line[last + 1..],
    })
}

/// What is to become of one byte of a target.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It stays.
    Stays,
    /// It is percent-encoded: the engine takes it for none of a URI, and others
    /// do as they like.
    Encoded,
    /// A control byte, a blank, or the beginning of a fragment (RFC 9112 §3).
    Refused,
}

const fn fates() -> [Fate; 256] {
    let mut fates = [Fate::Stays; 256];
    let mut byte = 0;
    while byte < 256 {
        fates[byte] = match byte as u8 {
            0..=b' ' | b'#' | 0x7f => Fate::Refused,
            b'"' | b'<' | b'>' | b'`' | 0x80.. => Fate::Encoded,
            _ => Fate::Stays,
        };
        byte += 1;
    }
    fates
}

static FATES: [Fate; 256] = fates();

fn fate(byte: u8) -> Fate {
    FATES[usize::from(byte)]
}

/// The request line of `head`, and how many bytes of its target are to be encoded.
fn good_line(head: &[u8]) -> Result<(Line<'_>, usize), Refusal> {
    let line = line(head).ok_or(LINE)?;
    if line.method.is_empty() || !line.method.iter().all(|byte| is_token(*byte)) {
        return Err(LINE);
    }
    match line.version {
        b"HTTP/1.1" | b"HTTP/1.0" => {}
        [b'H', b'T', b'T', b'P', b'/', major, rest @ ..]
            if major.is_ascii_digit() && matches!(rest, [] | [b'.', b'0'..=b'9']) =>
        {
            return Err(VERSION);
        }
        _ => return Err(LINE),
    }
    if line.method == b"CONNECT" {
        return Err(CONNECT);
    }
    let mut encoded = 0;
    for byte in line.target {
        match fate(*byte) {
            Fate::Stays => {}
            Fate::Encoded => encoded += 1,
            Fate::Refused => return Err(TARGET),
        }
    }
    if line.target.is_empty() {
        return Err(TARGET);
    }
    if line.target.len() + 2 * encoded > LONGEST_TARGET {
        return Err(TOO_LARGE);
    }
    Ok((line, encoded))
}

/// Judges a whole head.
fn judge(head: &[u8]) -> Result<HeadScan, Refusal> {
    if head.len() > LONGEST {
        return Err(TOO_LARGE);
    }
    begins(head)?;
    let (line, encoded) = good_line(head)?;
    let target = encode(line.target, encoded);
    let mut instead = Vec::with_capacity(head.len() + 2 * encoded);
    instead.extend_from_slice(line.method);
    instead.push(b' ');
    instead.extend_from_slice(&target);
    instead.extend_from_slice(&head[line.method.len() + 1 + line.target.len()..]);
    let mut space = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_FIELDS];
    let mut request = Request::new(&mut []);
    match request.parse_with_uninit_headers(&instead, &mut space) {
        Ok(httparse::Status::Complete(length)) if length == instead.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(TOO_LARGE),
        Err(httparse::Error::Token | httparse::Error::Version) => return Err(LINE),
        _ => return Err(FIELD),
    }
    let newest = request.version == Some(1);
    let fields = fields(request.headers, &target, newest)?;
    Ok(HeadScan::Head(Head {
        length: head.len(),
        instead: (encoded > 0).then_some(instead),
        body: fields.body,
        upgrade: fields.upgrade,
        plain: fields.plain,
    }))
}

/// Whether `target` has a fragment. Readers cut it off before or after they look at
/// the path, so none is taken (RFC 9112 §3.2).
pub(super) fn has_fragment(target: &[u8]) -> bool {
    memchr::memchr(b'#', target).is_some()
}

/// Whether `target` has bytes that belong in no URI.
pub(super) fn is_to_be_encoded(target: &[u8]) -> bool {
    target.iter().any(|byte| fate(*byte) == Fate::Encoded)
}

/// `target` with the bytes percent-encoded that belong in no URI, if there are any.
pub(super) fn encoded(target: &[u8]) -> Option<Vec<u8>> {
    let encoded = target.iter().filter(|byte| fate(**byte) == Fate::Encoded);
    match encoded.count() {
        0 => None,
        count => Some(encode(target, count)),
    }
}

fn encode(target: &[u8], encoded: usize) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = Vec::with_capacity(target.len() + 2 * encoded);
    for &byte in target {
        match fate(byte) {
            Fate::Encoded => {
                let [high, low] = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
                out.extend([b'%', high, low]);
            }
            _ => out.push(byte),
        }
    }
    out
}

/// Longest body of a plain request: as much as is gathered before it is sent on.
const SHORT: u64 = BUFFERED_MAX as u64;

/// What the header fields say of a request.
struct Fields {
    body: Body,
    upgrade: bool,
    /// Whether the request has the newest version, a path for a target, a short body of
    /// a known length or none, no expectation and no hop-by-hop field but a `Connection`
    /// that names none.
    plain: bool,
}

/// Whether a field has a meaning for one connection alone, or asks for an interim
/// answer. `Connection` is not among them.
pub(in crate::http) fn is_special(name: &str) -> bool {
    let names: &[&str] = match name.len() {
        2 => &["te"],
        6 => &["expect"],
        7 => &["trailer"],
        10 => &["keep-alive"],
        14 => &["http2-settings"],
        16 => &["proxy-connection"],
        18 => &["proxy-authenticate"],
        19 => &["proxy-authorization"],
        _ => return false,
    };
    names
        .iter()
        .any(|special| name.eq_ignore_ascii_case(special))
}

/// Whether a `Connection` says no more than whether it is kept.
fn names_no_field(connection: &[u8]) -> bool {
    connection.eq_ignore_ascii_case(b"keep-alive") || connection.eq_ignore_ascii_case(b"close")
}

/// What the header fields say of the body and of an upgrade; `newest`: of
/// HTTP/1.1.
fn fields(fields: &[Header<'_>], target: &[u8], newest: bool) -> Result<Fields, Refusal> {
    let (mut host, mut length, mut coding, mut upgrade) = (None, None, None, false);
    let mut plain = newest && target.starts_with(b"/");
    for Header { name, value } in fields {
        plain &= !is_special(name);
        // Most names are told apart by their length.
        match name.len() {
            10 if name.eq_ignore_ascii_case("connection") => plain &= names_no_field(value),
            4 if name.eq_ignore_ascii_case("host") && host.replace(*value).is_some() => {
                return Err(HOST);
            }
            7 => upgrade |= name.eq_ignore_ascii_case("upgrade"),
            14 if name.eq_ignore_ascii_case("content-length")
                && length.replace(*value).is_some() =>
            {
                return Err(bad("Invalid Content-Length"));
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding")
                && coding.replace(*value).is_some() =>
            {
                return Err(bad("Unsupported Transfer-Encoding"));
            }
            _ => {}
        }
    }
    if newest && host.is_none() {
        return Err(bad("Missing Host header"));
    }
    authority(target, host)?;
    let body = body(length, coding, newest)?;
    Ok(Fields {
        body,
        upgrade: upgrade && newest,
        plain: plain && !upgrade && matches!(body, Body::Length(..=SHORT)),
    })
}

/// How the body ends, if nobody could read that differently (RFC 9112 §6.1).
fn body(length: Option<&[u8]>, coding: Option<&[u8]>, newest: bool) -> Result<Body, Refusal> {
    match (length, coding) {
        (None, None) => Ok(Body::Length(0)),
        (Some(_), Some(_)) => Err(bad("Both Transfer-Encoding and Content-Length")),
        (None, Some(coding)) if newest && coding.eq_ignore_ascii_case(b"chunked") => {
            Ok(Body::Chunked)
        }
        (None, Some(_)) => Err(bad("Unsupported Transfer-Encoding")),
        (Some(digits), None) => content_length(digits)
            .map(Body::Length)
            .ok_or(bad("Invalid Content-Length")),
    }
}

/// The length that a `Content-Length` names: digits alone (RFC 9110 §8.6).
pub fn content_length(digits: &[u8]) -> Option<u64> {
    // 18 of them are below what any of the readers behind can hold.
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
    digits
        .iter()
        .try_fold(0, |n, byte| Some(n * 10 + digit(byte)?))
}

/// Whether the target is a path, `*` or a URL of http(s) whose authority is that
/// of `Host` (RFC 9112 §3.2).
fn authority(target: &[u8], host: Option<&[u8]>) -> Result<(), Refusal> {
    if host.is_some_and(|host| memchr::memchr(b'@', host).is_some()) {
        return Err(HOST);
    }
    match target {
        [b'/', ..] | [b'*'] => return Ok(()),
        _ => {}
    }
    let schemes = [(&b"http://"[..], &b":80"[..]), (b"https://", b":443")];
    let found = schemes.iter().find_map(|(scheme, port)| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        let is_it = start.eq_ignore_ascii_case(scheme);
        is_it.then_some((rest, *port))
    });
    let (rest, port) = found.ok_or(TARGET)?;
    let end = rest.iter().position(|byte| b"/?#".contains(byte));
    let named = &rest[..end.unwrap_or(rest.len())];
    if named.is_empty() || named.contains(&b'@') || named.contains(&b'\\') {
        return Err(TARGET);
    }
    Authority::try_from(named).map_err(|_| TARGET)?;
    let bare = |authority: &[u8]| authority.strip_suffix(port).unwrap_or(authority).to_vec();
    if bare(named).is_empty() {
        return Err(TARGET);
    }
    match host {
        Some(host) if !bare(host).eq_ignore_ascii_case(&bare(named)) => Err(HOST),
        _ => Ok(()),
    }
}

/// What stands for a request that is refused: whatever of it can be told, and a
/// body without an end, so that what still comes is none of the next request.
fn refused(refusal: Refusal, head: &[u8]) -> HeadScan {
    let told = line(head).filter(|line| {
        let method = line.method.len() <= METHOD && line.method.iter().all(|b| is_token(*b));
        method && !line.method.is_empty()
    });
    let told = told.filter(|line| line.method != b"CONNECT" && !line.target.is_empty());
    let method = told.as_ref().map_or(&b"-"[..], |line| line.method);
    let target = told.as_ref().map_or(&b"/"[..], |line| line.target);
    let plain = target.len() <= 1024
        && target[0] == b'/'
        && target.iter().all(|byte| fate(*byte) == Fate::Stays);
    let mut out = Vec::with_capacity(256 + target.len());
    out.extend_from_slice(method);
    out.push(b' ');
    out.extend_from_slice(if plain { target } else { b"/" });
    out.extend_from_slice(b" HTTP/1.1\r\n");
    kept(head, &mut out);
    out.extend_from_slice(b"Connection: close\r\nContent-Length: 9223372036854775807\r\n\r\n");
    HeadScan::Refused(refusal, out)
}

/// Keeps those fields of a refused head that its answer and the log go by.
fn kept(head: &[u8], out: &mut Vec<u8>) {
    let Some(line) = memchr::memchr(b'\n', head) else {
        return;
    };
    let mut space = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let Ok(httparse::Status::Complete((_, fields))) =
        httparse::parse_headers(&head[line + 1..], &mut space)
    else {
        return;
    };
    for name in ["Host", "Accept", "User-Agent"] {
        let mut named = fields
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case(name));
        let is_host = name == "Host";
        let fits = |value: &[u8]| {
            let of_host = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(byte);
            value.len() <= 1024 && (!is_host || value.iter().all(of_host))
        };
        if let (Some(field), None) = (named.next(), named.next())
            && fits(field.value)
        {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(field.value);
            out.extend_from_slice(b"\r\n");
        }
    }
}
