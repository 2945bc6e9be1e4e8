//! The chunked transfer coding (RFC 9112 §7.1), to the letter: whoever reads a
//! line of it in another way takes the rest for another request.

use bytes::{Buf as _, Bytes};

/// Most hexadecimal digits of a chunk's size.
const DIGITS: u8 = 15;
/// Longest line with a size, extensions included.
const LINE: u16 = 4 << 10;
/// Longest trailer section.
const TRAILERS: u16 = 32 << 10;

/// What comes next of a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// A digit of the size, or what ends it.
    Size,
    /// A blank before an extension.
    Blank,
    /// Extensions.
    Extension,
    /// LF of the line with the size.
    SizeEnd,
    /// So many bytes of data.
    Data(u64),
    /// CR after the data.
    DataCr,
    /// LF after the data.
    DataLf,
    /// A trailer field, or the end.
    Trailer,
    /// The rest of a trailer field's name.
    Name,
    /// A trailer field's value.
    Value,
    /// LF of a trailer field.
    ValueEnd,
    /// LF of the end.
    End,
}

/// Reads a chunked body, piece by piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    next: Next,
    size: u64,
    digits: u8,
    /// Length of the line, or of the trailer section, so far.
    line: u16,
}

/// How far a body was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// All of the bytes belong to it, and it goes on.
    All,
    /// It ended after so many bytes.
    Ended(usize),
    /// After so many bytes comes what may not come there.
    Broken(usize),
}

/// What stands next in a chunked body.
#[derive(Debug, PartialEq, Eq)]
pub enum ChunkPart {
    /// Data, as much of the chunk as has come.
    Data(Bytes),
    /// Nothing more has come.
    Partial,
    /// The body has ended. Its trailer fields were left out.
    End,
    /// What may not come there.
    Broken,
}

impl Default for Chunks {
    fn default() -> Self {
        Self::new()
    }
}

impl Chunks {
    /// At the beginning of a body.
    pub fn new() -> Self {
        Self {
            next: Next::Size,
            size: 0,
            digits: 0,
            line: 0,
        }
    }

    /// Takes the next part from the beginning of `bytes`.
    pub fn take(&mut self, bytes: &mut Bytes) -> ChunkPart {
        if let Some(part) = self.skip(bytes) {
            return part;
        }
        let here = match self.next {
            Next::Data(left) => self.data(left, bytes.len()),
            _ => 0,
        };
        ChunkPart::Data(bytes.split_to(here))
    }

    /// Takes what stands before the next data, and says what is there if it is no data.
    pub fn skip(&mut self, bytes: &mut Bytes) -> Option<ChunkPart> {
        while let Some(&byte) = bytes.first() {
            if matches!(self.next, Next::Data(_)) {
                return None;
            }
            let end = self.next == Next::End && byte == b'\n';
            match self.after(byte) {
                Some(next) => self.next = next,
                None if end => {
                    bytes.advance(1);
                    return Some(ChunkPart::End);
                }
                None => return Some(ChunkPart::Broken),
            }
            bytes.advance(1);
        }
        Some(ChunkPart::Partial)
    }

    /// Reads on.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Read {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if let Next::Data(left) = self.next {
                at += self.data(left, bytes.len() - at);
                continue;
            }
            match self.after(byte) {
                Some(next) => self.next = next,
                None if self.next == Next::End && byte == b'\n' => return Read::Ended(at + 1),
                None => return Read::Broken(at),
            }
            at += 1;
        }
        Read::All
    }

    /// Counts what has come of the `left` bytes of a chunk.
    fn data(&mut self, left: u64, come: usize) -> usize {
        let here = left.min(come as u64);
        self.next = match left - here {
            0 => Next::DataCr,
            left => Next::Data(left),
        };
        // No more than the length of a slice.
        here as usize
    }

    /// What comes after `byte`; nothing at the end, and after what may not come
    /// here.
    fn after(&mut self, byte: u8) -> Option<Next> {
        match (self.next, byte) {
            (Next::Size, _) if byte.is_ascii_hexdigit() && self.digits < DIGITS => {
                let digit = char::from(byte).to_digit(16)?;
                self.size = self.size << 4 | u64::from(digit);
                self.digits += 1;
                Some(Next::Size)
            }
            // An empty line would count as the last chunk with some readers.
            (Next::Size, _) if self.digits == 0 => None,
            (Next::Size | Next::Blank, b';') => self.longer(LINE, Next::Extension),
            (Next::Size | Next::Blank, b' ' | b'\t') => self.longer(LINE, Next::Blank),
            (Next::Size | Next::Blank | Next::Extension, b'\r') => Some(Next::SizeEnd),
            (Next::Extension, _) if is_text(byte) => self.longer(LINE, Next::Extension),
            (Next::SizeEnd, b'\n') => Some(self.sized()),
            (Next::DataCr, b'\r') => Some(Next::DataLf),
            (Next::DataLf, b'\n') => {
                *self = Self::new();
                Some(Next::Size)
            }
            (Next::Trailer, b'\r') => Some(Next::End),
            (Next::Trailer | Next::Name, _) if is_token(byte) => self.longer(TRAILERS, Next::Name),
            (Next::Name, b':') => self.longer(TRAILERS, Next::Value),
            (Next::Value, b'\r') => Some(Next::ValueEnd),
            (Next::Value, _) if is_text(byte) => self.longer(TRAILERS, Next::Value),
            (Next::ValueEnd, b'\n') => Some(Next::Trailer),
            _ => None,
        }
    }

    /// Counts a byte of a line that may be so long.
    fn longer(&mut self, limit: u16, next: Next) -> Option<Next> {
        self.line += 1;
        (self.line <= limit).then_some(next)
    }

    fn sized(&mut self) -> Next {
        self.line = 0;
        match self.size {
            0 => Next::Trailer,
            size => Next::Data(size),
        }
    }
}

/// Whether `byte` may be in a name (RFC 9110 §5.6.2).
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether `byte` may be in a value (RFC 9110 §5.5).
pub(super) fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How `body` is read in one piece; byte by byte it must come to the same.
    fn read(body: &[u8]) -> Read {
        let whole = Chunks::new().read(body);
        let mut chunks = Chunks::new();
        let mut pieces = Read::All;
        for (at, byte) in body.iter().enumerate() {
            match chunks.read(&[*byte]) {
                Read::All => {}
                Read::Ended(n) => pieces = Read::Ended(at + n),
                Read::Broken(n) => pieces = Read::Broken(at + n),
            }
            if pieces != Read::All {
                break;
            }
        }
        assert_eq!(whole, pieces, "{}", body.escape_ascii());
        whole
    }

    /// The data of `body`, and how it ended, where so many bytes come at a time.
    fn data(body: &[u8], at_a_time: usize) -> (Vec<u8>, ChunkPart) {
        let mut chunks = Chunks::new();
        let mut data = Vec::new();
        for piece in body.chunks(at_a_time) {
            let mut piece = Bytes::copy_from_slice(piece);
            loop {
                match chunks.take(&mut piece) {
                    ChunkPart::Data(part) => data.extend_from_slice(&part),
                    ChunkPart::Partial => break,
                    end => return (data, end),
                }
            }
        }
        (data, ChunkPart::Partial)
    }

    #[test]
    fn the_data_of_all_chunks_is_the_body_however_it_comes() {
        let body = b"4;a=b\r\nbody\r\n00002\r\n\r\n\r\n0\r\nDigest: x\r\n\r\n";
        for at_a_time in 1..=body.len() {
            let (read, end) = data(body, at_a_time);
            assert_eq!(read, b"body\r\n", "{at_a_time}");
            assert_eq!(end, ChunkPart::End, "{at_a_time}");
        }
        assert_eq!(data(b"4\r\nbo", 3).1, ChunkPart::Partial);
        assert_eq!(data(b"4\r\nbody0\r\n\r\n", 3).1, ChunkPart::Broken);
        let mut more = Bytes::from_static(b"0\r\n\r\nHTTP/1.1 200 OK");
        assert_eq!(Chunks::new().take(&mut more), ChunkPart::End);
        assert_eq!(&more[..], b"HTTP/1.1 200 OK");
    }

    #[test]
    fn bodies_end_where_their_last_chunk_does() {
        for body in [
            "0\r\n\r\n",
            "4\r\nbody\r\n0\r\n\r\n",
            "00004\r\nbody\r\n000\r\n\r\n",
            "a\r\n0123456789\r\n0\r\n\r\n",
            "4;a=b;c=\"d e\"\r\nbody\r\n0;last\r\n\r\n",
            "4 ;a\r\nbody\r\n0 \r\n\r\n",
            "2\r\n\r\n\r\n0\r\n\r\n",
            "1\r\na\r\n0\r\nDigest: x\r\nX-Empty:\r\n\r\n",
        ] {
            assert_eq!(read(body.as_bytes()), Read::Ended(body.len()), "{body:?}");
            let more = format!("{body}GET / HTTP/1.1");
            assert_eq!(read(more.as_bytes()), Read::Ended(body.len()), "{body:?}");
        }
        assert_eq!(read(b"4\r\nbo"), Read::All);
    }

    #[test]
    fn smuggling_by_lines_that_others_read_differently_is_seen() {
        let long = format!("1;{}\r\na\r\n", "x".repeat(5000));
        let trailers = format!("0\r\n{}\r\n", "A: b\r\n".repeat(9000));
        for body in [
            "\r\n",
            "\r\nGET /smuggled HTTP/1.1\r\n",
            "4\r\nbody\r\n\r\n",
            "4\nbody\r\n0\r\n\r\n",
            "4\r\nbody\n0\r\n\r\n",
            "4\r\nbody0\r\n\r\n",
            "4;a\nb\r\nbody\r\n0\r\n\r\n",
            "4;a\rb\r\nbody\r\n0\r\n\r\n",
            "4;a\0\r\nbody\r\n0\r\n\r\n",
            "4 4\r\nbody\r\n0\r\n\r\n",
            " 4\r\nbody\r\n0\r\n\r\n",
            "+4\r\nbody\r\n0\r\n\r\n",
            "-1\r\n",
            "0x4\r\nbody\r\n0\r\n\r\n",
            "g\r\n",
            ";a\r\n",
            "1000000000000000\r\n",
            "ffffffffffffffffffffff\r\n",
            "0\r\n\n",
            "0\n\r\n",
            "0\r\n\rX",
            "0\r\n: a\r\n\r\n",
            "0\r\nA : b\r\n\r\n",
            "0\r\n A: b\r\n\r\n",
            "0\r\nA\r\n\r\n",
            "0\r\nA: b\n\r\n",
            "0\r\nA: b\0\r\n\r\n",
            "0\r\nGET / HTTP/1.1\r\n\r\n",
            &long,
            &trailers,
        ] {
            let read = read(body.as_bytes());
            assert!(matches!(read, Read::Broken(_)), "{body:.60}: {read:?}");
        }
    }
}
