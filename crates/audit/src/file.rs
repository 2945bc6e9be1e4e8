//! Records as JSON lines in a file.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::Path;

use doorward_core::model::audit::AuditRecord;
use doorward_net::telemetry::log_file::LogFile;

/// Permissions of a new file: its owner's alone.
const MODE: u32 = 0o600;

/// A file that is only ever appended to, and the lines that it did not take
/// yet.
///
/// Whoever rotates it may rename it, or copy and truncate it.
#[derive(Debug)]
pub(super) struct LinesFile {
    file: LogFile,
    waiting: VecDeque<Vec<u8>>,
    torn: Option<PartialWrite>,
}

/// A write that ended within the first line that waits.
#[derive(Debug)]
struct PartialWrite {
    /// Bytes of the line that the file has.
    written: usize,
    /// The file's length after that.
    length: u64,
}

impl LinesFile {
    /// Opens the file, made for its owner alone when it is missing.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: LogFile::open(path, MODE)?,
            waiting: VecDeque::new(),
            torn: None,
        })
    }

    /// Whether the file could be opened; makes nothing.
    pub(super) fn check(path: &Path) -> io::Result<()> {
        LogFile::check(path)
    }

    /// Goes on with the file that is at the path now.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        if self.file.reopen()? {
            self.torn = None;
        }
        Ok(())
    }

    /// Whether lines wait for the next write.
    pub(super) fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Appends what waits and `records`, a line each. What the file does not
    /// take waits for the next write, at most `most` lines: says how many were
    /// lost beyond that.
    pub(super) fn write(&mut self, records: &[AuditRecord], most: usize) -> (u64, io::Result<()>) {
        for record in records {
            match serde_json::to_vec(&record.doc) {
                Ok(mut line) => {
                    line.push(b'\n');
                    self.waiting.push_back(line);
                }
                Err(error) => return (1, Err(error.into())),
            }
        }
        let outcome = self.write_waiting();
        let lost = self.waiting.len().saturating_sub(most);
        self.waiting.truncate(most);
        (lost as u64, outcome)
    }

    fn write_waiting(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        if self.file.follow()? {
            self.torn = None;
        }
        let mut text = Vec::new();
        // Bytes of `text` that belong to no line, or lines' bytes that are not in it.
        let (mut extra, mut skipped) = (0, 0);
        if let Some(torn) = &self.torn {
            if self.file.file().metadata()?.len() == torn.length {
                skipped = torn.written;
            } else {
                // Somebody else has written, or emptied the file.
                text.push(b'\n');
                extra = 1;
            }
        }
        let lines = self.waiting.iter().flatten();
        text.extend(lines.skip(skipped));
        // At once: the lines of two processes do not mix.
        let (written, outcome) = write_all(self.file.file(), &text);
        if outcome.is_ok() || written > 0 {
            self.forget((written + skipped).saturating_sub(extra));
        }
        if outcome.is_err() && self.torn.is_some() {
            match self.file.file().metadata() {
                Ok(now) => self
                    .torn
                    .iter_mut()
                    .for_each(|torn| torn.length = now.len()),
                Err(_) => self.torn = None,
            }
        }
        outcome
    }

    /// Takes the first `written` bytes from what waits.
    fn forget(&mut self, mut written: usize) {
        while let Some(line) = self.waiting.front()
            && line.len() <= written
        {
            written -= line.len();
            self.waiting.pop_front();
        }
        self.torn = (written > 0).then_some(PartialWrite { written, length: 0 });
    }
}

/// Writes as much as there is room for; says how much that was.
fn write_all(file: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use doorward_core::model::audit::{Actor, Event, Kind, Occurrence, Trace, audit_id};

    const MOST: usize = 10;

    fn record(at_ms: i64) -> AuditRecord {
        Event::new(Kind::ProcessStart, Actor::System).record(&Occurrence {
            id: audit_id(at_ms, 0, [0; 8]),
            at_ms,
            last_ms: at_ms,
            count: 1,
            trace: Trace::default(),
        })
    }

    fn lines(path: &Path) -> usize {
        let text = std::fs::read_to_string(path).expect("a file");
        let all = text.lines().map(serde_json::from_str::<serde_json::Value>);
        all.filter(Result::is_ok).count()
    }

    fn write(file: &mut LinesFile, records: &[AuditRecord]) {
        let (lost, outcome) = file.write(records, MOST);
        outcome.expect("written");
        assert_eq!(lost, 0);
    }

    #[test]
    fn a_file_that_was_renamed_or_emptied_is_gone_on_with() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("audit.jsonl");
        let mut file = LinesFile::open(&path).expect("a file");
        write(&mut file, &[record(1), record(2)]);
        let old = directory.path().join("audit.jsonl.1");
        std::fs::rename(&path, &old).expect("renamed");
        write(&mut file, &[record(3)]);
        assert_eq!((lines(&old), lines(&path)), (2, 1));
        File::create(&path).expect("emptied");
        write(&mut file, &[record(4)]);
        assert_eq!(lines(&path), 1);
        let mode = std::fs::metadata(&path).expect("a file").mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn records_wait_while_the_file_takes_none_and_are_written_after_that() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("audit.jsonl");
        std::os::unix::fs::symlink("/dev/full", &path).expect("a link");
        let mut file = LinesFile::open(&path).expect("a device");
        for at in 1..=12 {
            let (lost, outcome) = file.write(&[record(at)], MOST);
            assert!(outcome.is_err());
            assert_eq!(lost, u64::from(at > 10));
        }
        assert!(file.is_behind());
        std::fs::remove_file(&path).expect("removed");
        write(&mut file, &[]);
        assert_eq!(lines(&path), MOST);
        assert!(!file.is_behind());
    }

    #[test]
    fn a_line_that_was_written_in_part_is_completed_or_begun_anew() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("audit.jsonl");
        for emptied in [false, true] {
            let mut file = LinesFile::open(&path).expect("a file");
            file.write(&[record(1)], MOST).1.expect("written");
            let whole = std::fs::read(&path).expect("a file");
            // As a full disk leaves it.
            File::options()
                .write(true)
                .open(&path)
                .and_then(|file| file.set_len(7))
                .expect("cut");
            file.waiting.push_back(whole);
            file.torn = Some(PartialWrite {
                written: 7,
                length: 7,
            });
            if emptied {
                File::create(&path).expect("emptied");
            }
            write(&mut file, &[record(2)]);
            assert_eq!(lines(&path), 2, "emptied: {emptied}");
            std::fs::remove_file(&path).expect("removed");
        }
    }
}
