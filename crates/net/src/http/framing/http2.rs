//! Field blocks of HTTP/2, read before the engine reads them: what it takes for
//! the end of a connection concerns a stream alone (RFC 9113 §8.1.1), and what it
//! takes for no URI is percent-encoded.
//!
//! In the place of a request with a malformed value, or with more fields than are
//! taken, comes one that says so, as with HTTP/1. A malformed name and other malformed
//! blocks are the error of their stream.
//!
//! Frames pass as they are until a block needs mending. From then on every block of
//! the connection is written anew, without a table, for the engine's no longer is
//! that of the client.

use std::sync::OnceLock;

use http::{HeaderMap, HeaderName};
use smallvec::SmallVec;

use super::Outcome;
use super::chunked::{is_text, is_token};
use super::head;
use super::head::Refusal;
use super::hpack::{Decoder, Fields, encode};
use doorward_core::clock::random_bytes;

/// Length of the preface (RFC 9113 §3.4).
const PREFACE: usize = 24;
/// Length of a frame's head.
const FRAME: usize = 9;
/// Longest frame that is sent without asking (RFC 9113 §6.5.2).
const PAYLOAD: usize = 16 << 10;
/// Most frames and bytes of one block: twice as much as is taken, so that what is not
/// gets an answer. The engine answers to more with a bare 431, or ends the connection.
const FRAMES: usize = 16;
const BLOCK: usize = 128 << 10;
/// Most refused requests of one connection; later ones are errors of their streams,
/// of which the engine bears a bounded number.
const REFUSED: u32 = 100;
/// Longest path, authority and other field of a refused request that is told.
const SHOWN: usize = 1024;
/// Why requests are refused here, and what says so after the [`mark`].
const REFUSALS: [(Refusal, &[u8]); 3] = [
    (head::FIELD, b""),
    (head::TARGET, b"-target"),
    (head::TOO_LARGE, b"-large"),
];
/// The field of a request that stands for a refused one.
const MARK: HeaderName = HeaderName::from_static("doorward-refused");
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// So many bytes that pass unseen.
    Passing(usize),
    /// A frame.
    Frame,
    /// Whatever the engine makes of it: it will end the connection.
    Unseen,
    /// Nothing.
    Broken,
}

/// Reads the frames of a client.
#[derive(Debug)]
pub(super) struct FieldBlocks {
    next: Next,
    decoder: Decoder,
    fields: Fields,
    /// Whether blocks are written anew.
    anew: bool,
    /// What the engine is to read in the place of so many bytes that come next.
    instead: Option<(usize, Vec<u8>)>,
    /// The newest stream: a later block of it is none of a request.
    newest: u32,
    /// Requests that were refused.
    refused: u32,
}

/// What becomes of a block.
enum Fate {
    /// It stays.
    Stays,
    /// It is written anew.
    Mended,
    /// A request that says so stands in its place.
    Refused(Refusal),
    /// Its stream comes to an end.
    Malformed,
}

/// A block of one frame or several.
struct Block {
    /// Length of the frames.
    length: usize,
    stream: [u8; 4],
    end_stream: bool,
    /// Where in the frames its pieces are.
    pieces: SmallVec<[(usize, usize); 2]>,
}

/// The bytes at a HEADERS frame.
enum BlockScan {
    Block(Block),
    /// The beginning of one.
    Part,
    /// What is none.
    Wrong,
}

impl FieldBlocks {
    pub(super) fn new() -> Self {
        Self {
            next: Next::Passing(PREFACE),
            decoder: Decoder::new(),
            fields: Fields::default(),
            anew: false,
            instead: None,
            newest: 0,
            refused: 0,
        }
    }

    /// Whether nothing more is read.
    pub(super) fn is_broken(&self) -> bool {
        self.next == Next::Broken
    }

    /// Reads on. `bytes` are some.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Outcome {
        if let Some((length, instead)) = self.instead.take() {
            return Outcome::Instead(length, instead);
        }
        let mut at = 0;
        while at < bytes.len() && self.instead.is_none() {
            let rest = &bytes[at..];
            match self.next {
                Next::Passing(left) => {
                    let here = left.min(rest.len());
                    at += here;
                    self.next = match left - here {
                        0 => Next::Frame,
                        left => Next::Passing(left),
                    };
                }
                Next::Frame => match rest {
                    [a, b, c, kind, ..] if rest.len() >= FRAME => {
                        let length = length(*a, *b, *c);
                        if *kind == HEADERS {
                            match self.block(rest) {
                                Some(0) => break,
                                Some(length) => at += length,
                                None => {}
                            }
                        } else {
                            self.next = Next::Passing(FRAME + length);
                        }
                    }
                    _ => break,
                },
                Next::Unseen => at = bytes.len(),
                Next::Broken => break,
            }
        }
        match at {
            0 if self.is_broken() => Outcome::Broken,
            0 => match self.instead.take() {
                Some((length, instead)) => Outcome::Instead(length, instead),
                None => Outcome::More,
            },
            passes => Outcome::Passes(passes),
        }
    }

    /// Reads the block at the beginning of `bytes`: how much of them passes, if it
    /// is known; zero while there is more to come.
    fn block(&mut self, bytes: &[u8]) -> Option<usize> {
        let block = match find(bytes) {
            BlockScan::Block(block) => block,
            BlockScan::Part => return Some(0),
            BlockScan::Wrong => return self.give_up(),
        };
        let joined: Vec<u8>;
        let fragment = match &*block.pieces {
            [(from, to)] => &bytes[*from..*to],
            pieces => {
                let pieces = pieces.iter().map(|&(from, to)| &bytes[from..to]);
                joined = pieces.collect::<Vec<_>>().concat();
                &joined
            }
        };
        if self.decoder.decode(fragment, &mut self.fields).is_err() {
            return self.give_up();
        }
        let fate = if self.fields.too_many {
            Fate::Refused(head::TOO_LARGE)
        } else {
            judge(&self.fields)
        };
        let stream = u32::from_be_bytes(block.stream);
        let begins = stream > self.newest;
        self.newest = self.newest.max(stream);
        if matches!(fate, Fate::Stays) && !self.anew {
            return Some(block.length);
        }
        self.anew = true;
        let fragment = match fate {
            Fate::Refused(refusal) if begins && self.refused < REFUSED => {
                self.refused += 1;
                refused(&self.fields, refusal)
            }
            Fate::Refused(_) | Fate::Malformed => malformed(),
            Fate::Stays | Fate::Mended => anew(&self.fields),
        };
        self.instead = Some((block.length, frames(&block, &fragment)));
        None
    }

    /// Leaves the rest to the engine, if it can still read it.
    fn give_up(&mut self) -> Option<usize> {
        self.next = if self.anew {
            Next::Broken
        } else {
            Next::Unseen
        };
        None
    }
}

fn length(a: u8, b: u8, c: u8) -> usize {
    usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c)
}

/// Finds the block that begins with the HEADERS frame at the beginning of `bytes`.
fn find(bytes: &[u8]) -> BlockScan {
    let mut block = Block {
        length: 0,
        stream: [0; 4],
        end_stream: false,
        pieces: SmallVec::new(),
    };
    let mut total = 0;
    loop {
        let [a, b, c, kind, flags, s1, s2, s3, s4, ..] = bytes[block.length..] else {
            return BlockScan::Part;
        };
        let is_first = block.length == 0;
        let stream = [s1, s2, s3, s4];
        let length = length(a, b, c);
        let expected = if is_first { HEADERS } else { CONTINUATION };
        if is_first {
            block.stream = stream;
            block.end_stream = flags & END_STREAM != 0;
        }
        total += length;
        if kind != expected
            || stream != block.stream
            || length > PAYLOAD
            || total > BLOCK
            || block.pieces.len() == FRAMES
        {
            return BlockScan::Wrong;
        }
        let (mut from, mut to) = (block.length + FRAME, block.length + FRAME + length);
        if bytes.len() < to {
            return BlockScan::Part;
        }
        block.length = to;
        if is_first && flags & PADDED != 0 {
            let Some(padding) = bytes[from..to].first() else {
                return BlockScan::Wrong;
            };
            from += 1;
            to = to.saturating_sub(usize::from(*padding));
        }
        if is_first && flags & PRIORITY != 0 {
            from += 5;
        }
        if from > to {
            return BlockScan::Wrong;
        }
        block.pieces.push((from, to));
        if flags & END_HEADERS != 0 {
            return BlockScan::Block(block);
        }
    }
}

/// Judges a block by what the engine can't read.
fn judge(fields: &Fields) -> Fate {
    let mut fate = Fate::Stays;
    for (name, value) in fields.iter() {
        let is_sound = match name {
            b":path" if head::has_fragment(value) => {
                fate = Fate::Refused(head::TARGET);
                true
            }
            b":path" => {
                if head::is_to_be_encoded(value) && !matches!(fate, Fate::Refused(_)) {
                    fate = Fate::Mended;
                }
                true
            }
            b":method" => !value.is_empty() && value.iter().all(|byte| is_token(*byte)),
            b":scheme" | b":authority" | b":protocol" => std::str::from_utf8(value).is_ok(),
            _ if !is_name(name) => return Fate::Malformed,
            _ => is_value(value),
        };
        if !is_sound {
            fate = Fate::Refused(head::FIELD);
        }
    }
    fate
}

/// Whether `name` is one of a field, in lower case (RFC 9113 §8.2.1).
fn is_name(name: &[u8]) -> bool {
    let fits = |byte: &u8| is_token(*byte) && !byte.is_ascii_uppercase();
    !name.is_empty() && name.iter().all(fits)
}

/// Whether `value` is one of a field (RFC 9113 §8.2.1): no blank stands at its ends.
fn is_value(value: &[u8]) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !is_blank(value.first()) && !is_blank(value.last()) && value.iter().all(|byte| is_text(*byte))
}

/// The fields, with a path that is a URI's.
fn anew(fields: &Fields) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields.iter() {
        match head::encoded(value).filter(|_| name == b":path") {
            Some(path) => encode(name, &path, &mut out),
            None => encode(name, value, &mut out),
        }
    }
    out
}

/// A block that the engine takes for the error of its stream: it names what
/// belongs to a connection of HTTP/1 (RFC 9113 §8.2.2).
fn malformed() -> Vec<u8> {
    let mut out = Vec::new();
    encode(b"connection", b"close", &mut out);
    out
}

/// Why the request with these fields is refused, if it stands for one that is.
pub(super) fn refusal(headers: &HeaderMap) -> Option<Refusal> {
    let value = headers.get(MARK)?.as_bytes().strip_prefix(mark())?;
    let is_named = |(_, name): &&(Refusal, &[u8])| *name == value;
    REFUSALS.iter().find(is_named).map(|(refusal, _)| *refusal)
}

/// How the value of [`MARK`] begins, which no client knows.
fn mark() -> &'static [u8] {
    static VALUE: OnceLock<String> = OnceLock::new();
    let value = VALUE.get_or_init(|| format!("{:032x}", u128::from_be_bytes(random_bytes())));
    value.as_bytes()
}

/// What stands for a request that is refused: whatever of it can be told.
fn refused(fields: &Fields, refusal: Refusal) -> Vec<u8> {
    let only = |wanted: &[u8]| {
        let mut named = fields.iter().filter(|(name, _)| *name == wanted);
        let value = named.next().map(|(_, value)| value);
        value.filter(|value| value.len() <= SHOWN && named.next().is_none())
    };
    let of_host = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(byte);
    let of_path = |byte: &u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}#".contains(byte);
    let method = only(b":method").filter(|method| {
        let is_method = !method.is_empty() && method.len() <= head::METHOD;
        is_method && *method != b"CONNECT" && method.iter().all(|byte| is_token(*byte))
    });
    let authority = [&b":authority"[..], b"host"].into_iter().find_map(only);
    let authority = authority.filter(|host| !host.is_empty() && host.iter().all(of_host));
    let path = only(b":path").filter(|path| path.starts_with(b"/") && path.iter().all(of_path));
    let mut out = Vec::new();
    encode(b":method", method.unwrap_or(b"-"), &mut out);
    encode(b":scheme", b"http", &mut out);
    encode(
        b":authority",
        authority.unwrap_or(b"malformed.invalid"),
        &mut out,
    );
    encode(b":path", path.unwrap_or(b"/"), &mut out);
    for name in [&b"accept"[..], b"user-agent"] {
        let value = only(name).filter(|value| value.iter().all(|byte| is_text(*byte)));
        if let Some(value) = value {
            encode(name, value, &mut out);
        }
    }
    let named = REFUSALS.iter().find(|(known, _)| *known == refusal);
    let name = named.map_or(&b""[..], |(_, name)| name);
    encode(MARK.as_str().as_bytes(), &[mark(), name].concat(), &mut out);
    out
}

/// The frames of a block.
fn frames(block: &Block, fragment: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(fragment.len() + FRAME);
    let count = fragment.len().div_ceil(PAYLOAD).max(1);
    for at in 0..count {
        let piece = &fragment[at * PAYLOAD..fragment.len().min((at + 1) * PAYLOAD)];
        let (kind, mut flags) = match at {
            0 => (HEADERS, u8::from(block.end_stream) * END_STREAM),
            _ => (CONTINUATION, 0),
        };
        if at + 1 == count {
            flags |= END_HEADERS;
        }
        // A payload's length has three bytes at most.
        let [.., a, b, c] = piece.len().to_be_bytes();
        out.extend([a, b, c, kind, flags]);
        out.extend(block.stream);
        out.extend_from_slice(piece);
    }
    out
}

#[cfg(test)]
mod tests;
