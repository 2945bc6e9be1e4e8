//! Reads where a chunked body ends, as strictly as RFC 9112 7.1 spells it.

use anyhow::{Result, bail, ensure};

/// Longest line of a size, an extension or a trailer field, in bytes.
const LINE_MAX: usize = 4096;
/// Most lines of trailer fields.
const TRAILERS_MAX: usize = 64;

/// What comes next in the body.
#[derive(Default)]
enum State {
    #[default]
    Size,
    Data(u64),
    DataEnd,
    Trailer(usize),
}

/// How far a chunked body was read. Its bytes are forwarded as they are.
#[derive(Default)]
pub(crate) struct Chunks(State);

impl Chunks {
    /// How many bytes of `buffer` are of the body, and whether they are its last.
    pub(crate) fn take(&mut self, buffer: &[u8]) -> Result<(usize, bool)> {
        let mut taken = 0;
        loop {
            let rest = &buffer[taken..];
            match self.0 {
                State::Size => {
                    let Some(line) = line(rest)? else {
                        return Ok((taken, false));
                    };
                    let size = size(line)?;
                    taken += line.len() + 2;
                    self.0 = if size == 0 {
                        State::Trailer(0)
                    } else {
                        State::Data(size)
                    };
                }
                State::Data(left) => {
                    let here = left.min(rest.len() as u64);
                    taken += here as usize;
                    if here < left {
                        self.0 = State::Data(left - here);
                        return Ok((taken, false));
                    }
                    self.0 = State::DataEnd;
                }
                State::DataEnd => {
                    if rest.len() < 2 {
                        return Ok((taken, false));
                    }
                    ensure!(rest.starts_with(b"\r\n"), "a chunk does not end");
                    taken += 2;
                    self.0 = State::Size;
                }
                State::Trailer(lines) => {
                    ensure!(lines < TRAILERS_MAX, "too many trailer fields");
                    let Some(line) = line(rest)? else {
                        return Ok((taken, false));
                    };
                    taken += line.len() + 2;
                    if line.is_empty() {
                        return Ok((taken, true));
                    }
                    self.0 = State::Trailer(lines + 1);
                }
            }
        }
    }
}

/// The line at the beginning of `bytes`, without its CRLF, if it is whole.
fn line(bytes: &[u8]) -> Result<Option<&[u8]>> {
    let Some(end) = memchr::memchr(b'\n', bytes) else {
        ensure!(bytes.len() <= LINE_MAX, "a line is too long");
        return Ok(None);
    };
    let Some(line) = bytes[..end].strip_suffix(b"\r") else {
        bail!("a line ends with LF alone");
    };
    ensure!(line.len() <= LINE_MAX, "a line is too long");
    ensure!(!line.contains(&b'\r'), "a CR in a line");
    Ok(Some(line))
}

/// The size that a chunk's first line tells.
fn size(line: &[u8]) -> Result<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit());
    let digits = digits.count();
    ensure!((1..=15).contains(&digits), "no size of a chunk");
    let (size, extension) = line.split_at(digits);
    let is_extension = extension.is_empty() || extension.trim_ascii_start().starts_with(b";");
    ensure!(is_extension, "no size of a chunk");
    Ok(u64::from_str_radix(std::str::from_utf8(size)?, 16)?)
}
