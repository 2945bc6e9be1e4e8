//! A log file that others rotate: renamed, replaced, emptied or removed while
//! it is written.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, OFlags, access};

/// Permission bits of a mode.
const BITS: u32 = 0o7777;

/// A file that is only ever appended to.
///
/// A file that is no longer at its path is left for the one that is there, or
/// for a new one with the permissions of the old one. Each write goes to where
/// the end is then, so a file may be emptied.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    file: File,
    mode: u32,
}

impl LogFile {
    /// Opens `path`, made with `mode` (less the umask) when it is missing.
    ///
    /// # Errors
    /// When it can't be appended to.
    pub fn open(path: &Path, mode: u32) -> io::Result<Self> {
        let file = options().create(true).mode(mode).open(path)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            mode,
        })
    }

    /// Whether [`LogFile::open`] would succeed now; makes nothing.
    ///
    /// # Errors
    /// Those of [`LogFile::open`].
    pub fn check(path: &Path) -> io::Result<()> {
        match options().open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other.map(drop),
        }
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if !std::fs::metadata(directory)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(access(directory, Access::WRITE_OK | Access::EXEC_OK)?)
    }

    /// Where the next bytes go.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Goes on with the file that is at the path now; whether that is another
    /// one. If there is none and none can be made, the old one is written on as
    /// long as it has a name.
    ///
    /// # Errors
    /// When what is written now would be lost.
    pub fn follow(&mut self) -> io::Result<bool> {
        let own = self.file.metadata()?;
        if is_at(&own, &self.path) {
            return Ok(false);
        }
        match self.reopened(&own) {
            Ok(file) => {
                self.file = file;
                Ok(true)
            }
            Err(error) if own.nlink() == 0 => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// As [`LogFile::follow`], for somebody who asked for it.
    ///
    /// # Errors
    /// When there is another file that can't be appended to, or none can be made.
    pub fn reopen(&mut self) -> io::Result<bool> {
        let own = self.file.metadata()?;
        if is_at(&own, &self.path) {
            return Ok(false);
        }
        self.file = self.reopened(&own)?;
        Ok(true)
    }

    fn reopened(&self, old: &Metadata) -> io::Result<File> {
        match options().open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        let mode = if old.is_file() {
            old.mode() & BITS
        } else {
            self.mode
        };
        let made = options().create_new(true).mode(mode).open(&self.path);
        match made {
            Ok(file) => {
                keep_permissions(&file, old);
                Ok(file)
            }
            // Whoever rotates was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                options().open(&self.path)
            }
            Err(error) => Err(error),
        }
    }
}

/// Without waiting for the reader of a named pipe.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true);
    options.custom_flags(i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0));
    options
}

/// Gives a new file the mode and owner of the one before. What the process may
/// not do stays as the system made it.
fn keep_permissions(file: &File, old: &Metadata) {
    if old.file_type().is_fifo() || !old.is_file() {
        return;
    }
    let Ok(new) = file.metadata() else { return };
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        let _ = fchown(file, Some(old.uid()), Some(old.gid()));
    }
    if new.mode() & BITS != old.mode() & BITS {
        let _ = file.set_permissions(Permissions::from_mode(old.mode() & BITS));
    }
}

/// Whether the file of `own` is the one at `path`.
fn is_at(own: &Metadata, path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|there| (own.dev(), own.ino()) == (there.dev(), there.ino()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir().expect("a directory")
    }

    fn write(file: &mut LogFile, text: &str) {
        file.follow().expect("a file");
        file.file().write_all(text.as_bytes()).expect("written");
    }

    fn text(path: &Path) -> String {
        std::fs::read_to_string(path).expect("a file")
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("a file").mode() & BITS
    }

    #[test]
    fn a_renamed_file_is_replaced_by_one_with_its_permissions() {
        let directory = directory();
        let (path, old) = (directory.path().join("a.log"), directory.path().join("a.1"));
        let mut file = LogFile::open(&path, 0o644).expect("a file");
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("permissions");
        write(&mut file, "1\n");
        std::fs::rename(&path, &old).expect("renamed");
        write(&mut file, "2\n");
        assert_eq!((text(&old), text(&path)), ("1\n".into(), "2\n".into()));
        assert_eq!(mode(&path), 0o666, "whatever the umask says");
    }

    #[test]
    fn a_file_that_was_put_in_its_place_is_written_as_it_is() {
        let directory = directory();
        let (path, old) = (directory.path().join("a.log"), directory.path().join("a.1"));
        let mut file = LogFile::open(&path, 0o644).expect("a file");
        write(&mut file, "1\n");
        std::fs::rename(&path, &old).expect("renamed");
        std::fs::write(&path, "").expect("made");
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("permissions");
        write(&mut file, "2\n");
        assert_eq!((text(&path), mode(&path)), ("2\n".into(), 0o600));
    }

    #[test]
    fn an_emptied_file_is_written_from_its_start() {
        let directory = directory();
        let path = directory.path().join("a.log");
        let mut file = LogFile::open(&path, 0o644).expect("a file");
        write(&mut file, "1\n");
        File::create(&path).expect("emptied");
        write(&mut file, "2\n");
        assert_eq!(text(&path), "2\n");
    }

    #[test]
    fn a_renamed_file_is_written_on_while_its_successor_can_not_be_made() {
        let directory = directory();
        let inner = directory.path().join("inner");
        std::fs::create_dir(&inner).expect("a directory");
        let (path, old) = (inner.join("a.log"), directory.path().join("a.1"));
        let mut file = LogFile::open(&path, 0o644).expect("a file");
        std::fs::rename(&path, &old).expect("renamed");
        std::fs::remove_dir(&inner).expect("removed");
        write(&mut file, "1\n");
        assert_eq!(text(&old), "1\n");
        assert!(file.reopen().is_err(), "whoever asks is told");
        std::fs::remove_file(&old).expect("removed");
        assert!(
            file.follow().is_err(),
            "a file without a name takes nothing"
        );
    }

    #[test]
    fn a_check_says_what_opening_would_say_and_makes_nothing() {
        let directory = directory();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("there"), "").expect("a file");
        LogFile::check(&path("there")).expect("it can be appended to");
        LogFile::check(&path("new")).expect("it can be made");
        assert!(!path("new").exists());
        for wrong in ["no/such", "there/below", "."] {
            let checked = LogFile::check(&path(wrong)).map_err(|error| error.kind());
            let opened = LogFile::open(&path(wrong), 0o644).map_err(|error| error.kind());
            assert!(checked.is_err(), "{wrong}");
            assert_eq!(checked.err(), opened.err(), "{wrong}");
        }
    }
}
