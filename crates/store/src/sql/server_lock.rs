//! One server for a file.
//!
//! Servers keep in memory what they have read, and answer from that. The lock is
//! the operating system's, on a file of its own: it goes with its process,
//! however that ends, and tools that administer the store never ask for it.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::sqlite::{cannot_open, failed_to_open};
use crate::StoreError;

/// The lock of the server that has the file.
#[derive(Debug)]
pub(super) struct ServerLock(File);

impl ServerLock {
    /// Takes the lock of the database at `path`, which exists.
    pub(super) fn take(path: &Path) -> Result<Self, StoreError> {
        let failed = |error: std::io::Error| failed_to_open(path, error);
        let name = name(path).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.mode(0o600).open(name).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(refused(path, &mut file)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let lock = Self(file);
        lock.note().map_err(failed)?;
        Ok(lock)
    }

    /// Shares the lock of the server that this one succeeds, if `lock` is that of the
    /// database at `path`: it stays taken until both have ended. It is the other one's
    /// until [`ServerLock::note`].
    pub(super) fn share(path: &Path, lock: File) -> Result<Self, StoreError> {
        let same = |file: &Metadata, other: &Metadata| {
            (file.dev(), file.ino()) == (other.dev(), other.ino())
        };
        let own = name(path).and_then(std::fs::metadata);
        let is_own = match (own, lock.metadata()) {
            (Ok(own), Ok(lock)) => same(&own, &lock),
            _ => false,
        };
        if !is_own {
            return Self::take(path);
        }
        Ok(Self(lock))
    }

    /// Says that it is this process's.
    pub(super) fn note(&self) -> std::io::Result<()> {
        let mut file = &self.0;
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    }

    /// Another handle of it, for a successor.
    pub(super) fn handle(&self) -> std::io::Result<File> {
        self.0.try_clone()
    }
}

/// Beside the file itself, whatever links led there.
fn name(path: &Path) -> std::io::Result<PathBuf> {
    let mut name = std::fs::canonicalize(path)?.into_os_string();
    name.push("-server");
    Ok(name.into())
}

fn refused(path: &Path, file: &mut File) -> StoreError {
    let mut text = String::new();
    // A number and a line's end; whose lock is new has not said it yet.
    let read = file.take(16).read_to_string(&mut text);
    let who = match read.is_ok().then(|| text.trim().parse::<u32>()) {
        Some(Ok(pid)) => format!("another server has it, process {pid}"),
        _ => "another server has it".to_owned(),
    };
    cannot_open(path, &format!("{who}; a SQLite file is for one server"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_is_of_the_file_and_not_of_its_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        std::fs::write(&path, "").expect("written");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        let lock = ServerLock::take(&link).expect("it is free");
        let refused = ServerLock::take(&path)
            .expect_err("it is taken")
            .to_string();
        let pid = format!("process {};", std::process::id());
        assert!(refused.contains(&pid), "{refused}");
        // A successor shares it, and that of another file is of no use.
        let shared = ServerLock::share(&path, lock.handle().expect("a handle"));
        let shared = shared.expect("it is the file's");
        drop(lock);
        ServerLock::take(&path).expect_err("the successor has it");
        let other = directory.path().join("other");
        std::fs::write(&other, "").expect("written");
        let _other = ServerLock::take(&other).expect("it is free");
        let wrong = shared.handle().expect("a handle");
        ServerLock::share(&other, wrong).expect_err("it is taken");
        drop(shared);
        ServerLock::take(&path).expect("it is free again");
    }
}
