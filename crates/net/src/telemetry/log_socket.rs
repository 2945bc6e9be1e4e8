//! A log daemon of this machine, which takes a datagram a line: syslog, or the
//! journal of systemd.

use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a daemon that is too slow is waited for. What it has not taken by then is
/// lost, and counted.
const PATIENCE: Duration = Duration::from_secs(1);

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

    /// Whether there is a socket.
    ///
    /// # Errors
    /// When there is none.
    pub fn check(path: &Path) -> io::Result<()> {
        if std::fs::metadata(path)?.file_type().is_socket() {
            return Ok(());
        }
        Err(io::Error::new(ErrorKind::InvalidInput, "is no socket"))
    }

    /// Sends whole lines, a message each.
    ///
    /// # Errors
    /// How many bytes were sent, and why not more.
    pub fn send(&mut self, lines: &[u8]) -> Result<(), (usize, io::Error)> {
        let mut sent = 0;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            self.message.truncate(self.head);
            self.message
                .extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
            if self.daemon == Daemon::Journal {
                self.message.push(b'\n');
            }
            let outcome = self.socket.send_to(&self.message, &self.path);
            outcome.map_err(|error| (sent, error))?;
            sent += line.len();
        }
        Ok(())
    }
}
