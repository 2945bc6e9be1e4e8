//! Where the SQLite file is, and whether it is still there.
//!
//! A file that was deleted, replaced, or whose directory was renamed is open all
//! the same: SQLite writes on, and nobody finds at the next start what it wrote.
//! So the file of this name has to be the one that is open, before something is
//! written and before it is acknowledged. The same goes for the files beside it:
//! what was committed last is in the log.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Device and number of a file.
type Identity = (u64, u64);

/// The file and those beside it, by their names.
#[derive(Debug)]
pub(super) struct FileLocation {
    names: [PathBuf; 3],
    /// What they were when they were opened; before that nothing is compared.
    opened: OnceLock<[Option<Identity>; 3]>,
    gone: AtomicBool,
}

/// What is no longer where it was.
#[derive(Debug, thiserror::Error)]
pub(super) enum LocationError {
    #[error("{} was deleted while it was open; nothing is written until it is back, or \
             until a restart", .0.display())]
    Deleted(PathBuf),
    #[error("another file is in the place of {}, which is open; nothing is written until \
             it is back, or until a restart", .0.display())]
    Replaced(PathBuf),
}

impl FileLocation {
    pub(super) fn new(path: &Path) -> Self {
        let beside = |suffix: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            PathBuf::from(name)
        };
        Self {
            names: ["", "-wal", "-shm"].map(beside),
            opened: OnceLock::new(),
            gone: AtomicBool::new(false),
        }
    }

    /// From now on the files have to be those that they are now. A connection
    /// has to stay open: the last one takes the files beside it away.
    pub(super) fn settle(&self) {
        let _ = self
            .opened
            .set(self.names.each_ref().map(|name| identity(name)));
    }

    /// Looks whether the files are those that were opened. It costs three
    /// microseconds.
    pub(super) fn check(&self) -> Result<(), LocationError> {
        let looked = self.look();
        if self.gone.swap(looked.is_err(), Ordering::AcqRel) != looked.is_err() {
            match &looked {
                Ok(()) => tracing::info!("the store's file is back"),
                Err(error) => tracing::error!(%error, "the store's file is gone"),
            }
        }
        looked
    }

    /// Whether the last look found them; each write looks, and who follows the
    /// changes of others does several times a second.
    pub(super) fn was_there(&self) -> Result<(), LocationError> {
        if self.gone.load(Ordering::Acquire) {
            self.check()
        } else {
            Ok(())
        }
    }

    fn look(&self) -> Result<(), LocationError> {
        let Some(opened) = self.opened.get() else {
            return Ok(());
        };
        for (name, opened) in self.names.iter().zip(opened) {
            match (opened, identity(name)) {
                (Some(opened), Some(there)) if *opened == there => {}
                (None, _) => {}
                (Some(_), Some(_)) => return Err(LocationError::Replaced(name.clone())),
                (Some(_), None) => return Err(LocationError::Deleted(name.clone())),
            }
        }
        Ok(())
    }
}

fn identity(name: &Path) -> Option<Identity> {
    let about = std::fs::metadata(name).ok()?;
    Some((about.dev(), about.ino()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_that_go_or_change_places_are_missed_until_they_are_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("data/db");
        fs::create_dir(directory.path().join("data")).expect("made");
        let place = FileLocation::new(&path);
        assert!(place.check().is_ok(), "nothing is open yet");
        for name in &place.names {
            fs::write(name, "").expect("written");
        }
        place.settle();
        assert!(place.check().is_ok());
        for name in &place.names {
            let away = directory.path().join("away");
            fs::rename(name, &away).expect("renamed");
            assert!(matches!(place.check(), Err(LocationError::Deleted(gone)) if gone == *name));
            fs::write(name, "").expect("written");
            assert!(matches!(place.check(), Err(LocationError::Replaced(gone)) if gone == *name));
            assert!(place.was_there().is_err());
            fs::rename(&away, name).expect("renamed");
            assert!(place.was_there().is_ok(), "it looks again");
        }
        let other = directory.path().join("other");
        fs::rename(directory.path().join("data"), &other).expect("renamed");
        assert!(place.check().is_err());
        fs::rename(&other, directory.path().join("data")).expect("renamed");
        assert!(place.check().is_ok());
    }
}
