//! A log daemon of this machine, which takes a datagram a line: syslog, or the
//! journal of systemd.

use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How long a daemon that is too slow, or that is started anew, is waited for. What it has
/// not taken by then is lost, and counted.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a daemon that is gone is left alone.
const PAUSE: Duration = Duration::from_millis(20);

/// What a daemon understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Daemon {
    /// syslog: the facility is `daemon`, the severity `info`. The daemon writes the time.
    Syslog,
    /// The journal's own protocol, with the same facility and severity.
    Journal,
}

impl Daemon {
    /// Where it usually listens.
    pub fn usual_path(self) -> &'static Path {
        Path::new(match self {
            Self::Syslog => "/dev/log",
            Self::Journal => "/run/systemd/journal/socket",
        })
    }

    fn head(self) -> String {
        match self {
            // 3 * 8 + 6 (RFC 5424 §6.2.1).
            Self::Syslog => format!("<30>doorward[{}]: ", std::process::id()),
            Self::Journal => {
                "PRIORITY=6\nSYSLOG_FACILITY=3\nSYSLOG_IDENTIFIER=doorward\nMESSAGE=".to_owned()
            }
        }
    }
}

/// The way to a daemon. It may be started anew meanwhile.
#[derive(Debug)]
pub struct LogSocket {
    socket: UnixDatagram,
    path: PathBuf,
    daemon: Daemon,
    /// The message of a line, whose head stays.
    message: Vec<u8>,
    head: usize,
}

impl LogSocket {
    /// The way to the daemon that listens at `path`.
    ///
    /// # Errors
    /// Those of [`LogSocket::check`], and when there is no free descriptor.
    pub fn open(daemon: Daemon, path: &Path) -> io::Result<Self> {
        Self::check(path)?;
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let message = daemon.head().into_bytes();
        Ok(Self {
            socket,
            path: path.to_owned(),
            daemon,
            head: message.len(),
            message,
        })
    }

    /// Whether a daemon listens at `path`; it is sent nothing.
    ///
    /// # Errors
    /// When there is no socket, or nobody who takes datagrams.
    pub fn check(path: &Path) -> io::Result<()> {
        if !std::fs::metadata(path)?.file_type().is_socket() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "is no socket"));
        }
        UnixDatagram::unbound()?.connect(path)
    }

    /// Sends whole lines, a message each.
    ///
    /// # Errors
    /// How many bytes were sent, and why not more.
    pub fn send(&mut self, lines: &[u8]) -> Result<(), (usize, io::Error)> {
        let mut sent = 0;
        let until = Instant::now() + PATIENCE;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            self.message.truncate(self.head);
            self.message
                .extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
            if self.daemon == Daemon::Journal {
                self.message.push(b'\n');
            }
            let outcome = self.send_message(until);
            outcome.map_err(|error| (sent, error))?;
            sent += line.len();
        }
        Ok(())
    }

    /// Sends the message. A daemon that is gone may come back `until` then.
    fn send_message(&self, until: Instant) -> io::Result<()> {
        loop {
            let Err(error) = self.socket.send_to(&self.message, &self.path) else {
                return Ok(());
            };
            let is_gone = matches!(
                error.kind(),
                ErrorKind::ConnectionRefused | ErrorKind::NotFound
            );
            if error.kind() == ErrorKind::Interrupted {
                continue;
            }
            if !is_gone || Instant::now() >= until {
                return Err(error);
            }
            thread::sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_nobody_listens_at_is_no_daemon() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("daemon");
        let kind = || LogSocket::check(&path).map_err(|error| error.kind());
        assert_eq!(kind(), Err(ErrorKind::NotFound));
        let daemon = UnixDatagram::bind(&path).expect("a socket");
        assert_eq!(kind(), Ok(()));
        drop(daemon);
        assert_eq!(kind(), Err(ErrorKind::ConnectionRefused));
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, "").expect("a file");
        assert_eq!(kind(), Err(ErrorKind::InvalidInput));
    }

    #[test]
    fn a_daemon_that_is_started_anew_gets_the_line_that_waits_for_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("daemon");
        let old = UnixDatagram::bind(&path).expect("a socket");
        let mut socket = LogSocket::open(Daemon::Syslog, &path).expect("a daemon");
        drop(old);
        socket.message.extend_from_slice(b"a line");
        let expected = socket.message.clone();
        let message = thread::scope(|scope| {
            let far = Instant::now() + Duration::from_secs(3600);
            let sender = scope.spawn(move || socket.send_message(far));
            // The socket of the old one is there, then none, then the new one's.
            thread::sleep(PAUSE);
            std::fs::remove_file(&path).expect("removed");
            let new = UnixDatagram::bind(&path).expect("a socket");
            let mut message = vec![0; 100];
            let length = new.recv(&mut message).expect("a message");
            message.truncate(length);
            sender.join().expect("no panic").expect("sent");
            message
        });
        assert_eq!(message, expected);
    }
}
