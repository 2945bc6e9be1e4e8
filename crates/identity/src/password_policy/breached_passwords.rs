//! Passwords that nobody may choose: a file of them.
//!
//! Short files are held in memory, as the first eight bytes of each SHA-1
//! digest, sorted. Long ones must be lists of digests in ascending order, as
//! the well-known download is, and are searched where they are: some forty
//! reads of a few bytes for a thousand million lines.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// Longest file that is held in memory, in bytes.
const HELD: u64 = 256 << 20;

/// Longest line: a digest and its count, or a password.
const LINE: usize = 1100;

/// How many places of a long list are looked at when it is opened.
const PROBES: u64 = 64;

/// What is wrong with a list.
#[derive(Debug, thiserror::Error)]
pub(super) enum BreachedError {
    #[error("{}: {error}", file.display())]
    Unreadable { file: PathBuf, error: io::Error },
    #[error("{}:{line}: {text}", file.display())]
    Line {
        file: PathBuf,
        line: u64,
        text: &'static str,
    },
    #[error("{} at byte {at}: {text}", file.display())]
    Place {
        file: PathBuf,
        at: u64,
        text: &'static str,
    },
}

/// The list.
#[derive(Debug)]
pub(super) enum BreachedPasswords {
    /// In memory.
    Held(Vec<u64>),
    /// In a file of ascending digests.
    Searched(File),
}

impl BreachedPasswords {
    /// Opens the list at `path`.
    pub(super) fn open(path: &Path) -> Result<Self, BreachedError> {
        Self::open_within(path, HELD)
    }

    fn open_within(path: &Path, held: u64) -> Result<Self, BreachedError> {
        let unreadable = |error| BreachedError::Unreadable {
            file: path.to_owned(),
            error,
        };
        let file = File::open(path).map_err(unreadable)?;
        let about = file.metadata().map_err(unreadable)?;
        if !about.is_file() {
            return Err(unreadable(io::Error::other("is no file")));
        }
        if about.len() > held {
            probe(&file, about.len(), path)?;
            return Ok(Self::Searched(file));
        }
        hold(file, path).map(Self::Held)
    }

    /// Whether the password is in the list.
    pub(super) fn has(&self, password: &str) -> io::Result<bool> {
        let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, password.as_bytes());
        match self {
            Self::Held(all) => Ok(all.binary_search(&head(digest.as_ref())).is_ok()),
            Self::Searched(file) => search(file, digest.as_ref()),
        }
    }
}

/// The first eight bytes of a digest: of a thousand million others, none has
/// the same but by a chance of 1 in 10^10.
fn head(digest: &[u8]) -> u64 {
    let bytes = digest.first_chunk::<8>().copied();
    u64::from_be_bytes(bytes.unwrap_or_default())
}

/// Reads a short list: digests if its first line is one, else passwords.
fn hold(file: File, path: &Path) -> Result<Vec<u64>, BreachedError> {
    let mut reader = BufReader::new(file);
    let mut all = Vec::new();
    let mut digests = None;
    let mut line = Vec::new();
    for number in 1.. {
        let wrong = |text| BreachedError::Line {
            file: path.to_owned(),
            line: number,
            text,
        };
        line.clear();
        let most = u64::try_from(LINE).unwrap_or(u64::MAX) + 1;
        let read = io::Read::take(&mut reader, most).read_until(b'\n', &mut line);
        let read = read.map_err(|error| BreachedError::Unreadable {
            file: path.to_owned(),
            error,
        })?;
        if read == 0 {
            break;
        }
        if read > LINE {
            return Err(wrong("the line is too long for a password"));
        }
        let text = std::str::from_utf8(&line).map_err(|_| wrong("the line is no UTF-8"))?;
        let text = text.trim_end_matches(['\r', '\n']);
        if text.is_empty() {
            continue;
        }
        let found = digest_of(text.as_bytes());
        let digests = *digests.get_or_insert(found.is_some());
        all.push(match (digests, found) {
            (true, Some(digest)) => head(&digest),
            (true, None) => return Err(wrong("expected a SHA-1 digest, as in the lines before")),
            (false, _) => {
                let text = super::prepared(text);
                head(digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()).as_ref())
            }
        });
    }
    all.sort_unstable();
    all.dedup();
    all.shrink_to_fit();
    Ok(all)
}

/// The digest that a line names: `HASH` or `HASH:COUNT`.
fn digest_of(line: &[u8]) -> Option<[u8; 20]> {
    let (hex, rest) = line.split_at_checked(40)?;
    let counted = match rest {
        [] => true,
        [b':', count @ ..] => !count.is_empty() && count.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !counted {
        return None;
    }
    let mut digest = [0; 20];
    for (byte, pair) in digest.iter_mut().zip(hex.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = u8::try_from(digit(0)? << 4 | digit(1)?).ok()?;
    }
    Some(digest)
}

/// The first line that begins at `at` or later: where, and what it names.
fn line_from(file: &File, at: u64) -> io::Result<Option<(u64, Option<[u8; 20]>)>> {
    // Two lines of digests, so that one is whole.
    let mut buffer = [0; 160];
    let mut filled = 0;
    // From the byte before: `at` itself may begin a line.
    let from = at.saturating_sub(1);
    while filled < buffer.len() {
        let offset = from + u64::try_from(filled).unwrap_or_default();
        match file.read_at(&mut buffer[filled..], offset)? {
            0 => break,
            read => filled += read,
        }
    }
    let read = &buffer[..filled];
    let begin = match at {
        0 => 0,
        _ => match read.iter().position(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None => return Ok(None),
        },
    };
    let rest = &read[begin..];
    if rest.is_empty() {
        return Ok(None);
    }
    let end = rest.iter().position(|byte| *byte == b'\n');
    let line = &rest[..end.unwrap_or(rest.len())];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let begin = from + u64::try_from(begin).unwrap_or_default();
    Ok(Some((begin, digest_of(line))))
}

/// Whether a file of ascending digests has this one.
fn search(file: &File, wanted: &[u8]) -> io::Result<bool> {
    let damaged = || io::Error::other("the list has a line that is no SHA-1 digest");
    let (mut low, mut high) = (0, file.metadata()?.len());
    while low < high {
        let middle = low + (high - low) / 2;
        match line_from(file, middle)? {
            Some((begin, found)) if begin < high => {
                let found = found.ok_or_else(damaged)?;
                match found.as_slice().cmp(wanted) {
                    std::cmp::Ordering::Equal => return Ok(true),
                    // What follows begins behind this line.
                    std::cmp::Ordering::Less => low = begin + 1,
                    std::cmp::Ordering::Greater => high = middle,
                }
            }
            _ => high = middle,
        }
    }
    Ok(false)
}

/// Looks at some lines of a long list: digests, in ascending order?
fn probe(file: &File, length: u64, path: &Path) -> Result<(), BreachedError> {
    let mut last = None;
    for step in 0..PROBES {
        let at = length / PROBES * step;
        let line = line_from(file, at).map_err(|error| BreachedError::Unreadable {
            file: path.to_owned(),
            error,
        })?;
        let wrong = |text| BreachedError::Place {
            file: path.to_owned(),
            at,
            text,
        };
        let Some((_, found)) = line else {
            return Err(wrong("expected lines of SHA-1 digests"));
        };
        let found = found.ok_or_else(|| {
            wrong("expected a SHA-1 digest: a list of this length can't be of passwords")
        })?;
        if last.is_some_and(|last| last > found) {
            return Err(wrong("the digests must be in ascending order"));
        }
        last = Some(found);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    fn file(content: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), content).expect("written");
        file
    }

    fn hex(password: &str) -> String {
        let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, password.as_bytes());
        digest
            .as_ref()
            .iter()
            .fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02X}");
                text
            })
    }

    fn sorted(count: usize, end: &str) -> String {
        let mut all: Vec<_> = (0..count).map(|n| hex(&format!("word-{n}"))).collect();
        all.sort_unstable();
        let counts = (1..).map(|n: usize| n * n * n);
        let all = all.iter().zip(counts);
        all.map(|(hex, count)| format!("{hex}:{count}{end}"))
            .collect()
    }

    #[test]
    fn a_list_of_words_and_one_of_digests_say_the_same() {
        let words = file(b"hunter2\r\nletmein\n\ncorrect horse");
        let digests = format!("{}:17\n{}\n", hex("letmein"), hex("hunter2").to_lowercase());
        let digests = file(digests.as_bytes());
        for list in [&words, &digests] {
            let list = BreachedPasswords::open(list.path()).expect("a list");
            assert!(list.has("hunter2").expect("read"));
            assert!(list.has("letmein").expect("read"));
            assert!(!list.has("Hunter2").expect("read"));
        }
    }

    #[test]
    fn every_line_of_a_long_list_is_found_where_it_is() {
        for (count, end) in [(1, "\n"), (2, "\n"), (999, "\r\n"), (1000, "\n")] {
            let list = file(sorted(count, end).as_bytes());
            let list = match count {
                1 | 2 => BreachedPasswords::Searched(File::open(list.path()).expect("a file")),
                _ => BreachedPasswords::open_within(list.path(), 10).expect("a list"),
            };
            assert!(matches!(list, BreachedPasswords::Searched(_)));
            for n in 0..count {
                assert!(
                    list.has(&format!("word-{n}")).expect("read"),
                    "{n} of {count}"
                );
            }
            for n in count..count + 50 {
                assert!(!list.has(&format!("word-{n}")).expect("read"), "{n}");
            }
        }
    }

    #[test]
    fn what_is_wrong_with_a_list_is_said_with_its_line() {
        let mixed = file(format!("{}\nhunter2\n", hex("letmein")).as_bytes());
        let error = BreachedPasswords::open(mixed.path()).expect_err("mixed");
        assert!(
            error.to_string().contains(":2: expected a SHA-1"),
            "{error}"
        );
        let long = file("x".repeat(5000).as_bytes());
        let error = BreachedPasswords::open(long.path()).expect_err("a long line");
        assert!(
            error.to_string().contains(":1: the line is too long"),
            "{error}"
        );
        let bytes = file(b"good\n\xff\xfe\n");
        let error = BreachedPasswords::open(bytes.path()).expect_err("no text");
        assert!(
            error.to_string().contains(":2: the line is no UTF-8"),
            "{error}"
        );
        let error = BreachedPasswords::open(Path::new("/nowhere")).expect_err("no file");
        assert!(error.to_string().starts_with("/nowhere: "), "{error}");
    }

    #[test]
    fn a_long_list_that_cannot_be_searched_is_refused() {
        let words = file("some words of people\n".repeat(500).as_bytes());
        assert!(BreachedPasswords::open_within(words.path(), 10).is_err());
        let mut lines: Vec<_> = sorted(500, "\n").lines().map(str::to_owned).collect();
        lines.reverse();
        let list = file(lines.join("\n").as_bytes());
        let error = BreachedPasswords::open_within(list.path(), 10).expect_err("descending");
        assert!(error.to_string().contains("ascending"), "{error}");
    }
}
