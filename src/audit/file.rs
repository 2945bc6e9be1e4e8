//! Records as JSON lines in a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::model::audit::AuditRecord;

/// A file that is only ever appended to.
///
/// Whoever rotates it may rename it, or copy and truncate it: a file that is no
/// longer at its path is left, and each line goes to where the end is then.
#[derive(Debug)]
pub(super) struct LinesFile {
    path: PathBuf,
    file: File,
}

impl LinesFile {
    /// Opens the file, made for its owner alone when it is missing.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            file: appended(path)?,
        })
    }

    /// Appends records, a line each.
    pub(super) fn write(&mut self, records: &[AuditRecord]) -> io::Result<()> {
        if !self.is_in_place() {
            self.file = appended(&self.path)?;
        }
        let mut text = Vec::new();
        for record in records {
            serde_json::to_writer(&mut text, &record.doc)?;
            text.push(b'\n');
        }
        // At once: the lines of two processes do not mix.
        self.file.write_all(&text)
    }

    fn is_in_place(&self) -> bool {
        let (Ok(own), Ok(there)) = (self.file.metadata(), std::fs::metadata(&self.path)) else {
            return false;
        };
        (own.dev(), own.ino()) == (there.dev(), there.ino())
    }
}

fn appended(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::audit::{Actor, Event, Kind, Told, Trace, audit_id};

    fn record(at_ms: i64) -> AuditRecord {
        Event::new(Kind::ProcessStart, Actor::System).record(&Told {
            id: audit_id(at_ms, 0, [0; 8]),
            at_ms,
            last_ms: at_ms,
            count: 1,
            trace: Trace::default(),
        })
    }

    #[test]
    fn a_file_that_was_renamed_or_emptied_is_gone_on_with() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("audit.jsonl");
        let mut file = LinesFile::open(&path).expect("a file");
        let lines = |path: &Path| {
            let text = std::fs::read_to_string(path).expect("a file");
            text.lines().count()
        };
        file.write(&[record(1), record(2)]).expect("written");
        let old = directory.path().join("audit.jsonl.1");
        std::fs::rename(&path, &old).expect("renamed");
        file.write(&[record(3)]).expect("written");
        assert_eq!((lines(&old), lines(&path)), (2, 1));
        File::create(&path).expect("emptied");
        file.write(&[record(4)]).expect("written");
        assert_eq!(lines(&path), 1);
        let mode = std::fs::metadata(&path).expect("a file").mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
