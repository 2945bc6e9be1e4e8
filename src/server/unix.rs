//! Listeners on Unix sockets, for proxies in front on the same machine.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// What the name of a socket ends with until it has its mode.
const FRESH: &str = ".new";

/// The path at which clients find a listener that was bound at `bound`.
pub fn visible(bound: &Path) -> PathBuf {
    let name = bound.as_os_str().as_bytes();
    let name = name.strip_suffix(FRESH.as_bytes()).unwrap_or(name);
    PathBuf::from(OsStr::from_bytes(name))
}

/// Whether there is a socket at `path`.
pub fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// Listens at `path`; who may connect, the file's `mode` says from its beginning.
///
/// What a process that is gone has left there is replaced.
///
/// # Errors
/// The system's word; [`io::ErrorKind::AddrInUse`] where somebody listens, or the
/// file is no socket.
pub fn listen(path: &Path, mode: u32) -> io::Result<UnixListener> {
    check_free(path)?;
    // Under another name until it has its mode: nobody connects before.
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(FRESH);
    let fresh = PathBuf::from(fresh);
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&fresh)?;
    fs::set_permissions(&fresh, Permissions::from_mode(mode))?;
    fs::rename(&fresh, path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Whether nobody listens at `path`, and nothing else is there.
///
/// # Errors
/// As [`listen`].
pub fn check_free(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "there is a file that is no socket",
            ));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::from(io::ErrorKind::AddrInUse)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_socket_is_replaced_and_nothing_else_is() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("proxy.sock");
        let mode = |path: &Path| {
            let metadata = fs::metadata(path).expect("there");
            metadata.permissions().mode() & 0o777
        };
        let first = listen(&path, 0o600).expect("listening");
        assert_eq!(mode(&path), 0o600);
        let taken = listen(&path, 0o600).expect_err("somebody listens");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        let second = listen(&path, 0o660).expect("the stale one is replaced");
        let bound = second.local_addr().expect("an address");
        assert_eq!(bound.as_pathname().map(visible), Some(path.clone()));
        assert_eq!(mode(&path), 0o660);
        let file = directory.path().join("file");
        fs::write(&file, "precious").expect("written");
        listen(&file, 0o600).expect_err("no socket");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        listen(&link, 0o600).expect_err("no socket");
        assert_eq!(fs::read_to_string(&file).expect("there"), "precious");
    }
}
