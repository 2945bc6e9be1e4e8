//! Where a spool's lines go: a descriptor of the process, a file, or a log daemon.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use super::log_file::LogFile;
use super::log_socket::LogSocket;

/// How long a full pipe that does not block is left alone.
const PAUSE: Duration = Duration::from_millis(20);

/// Takes lines.
#[derive(Debug)]
pub struct LineSink {
    target: Target,
    /// Whether the last write ended within a line.
    torn: bool,
}

#[derive(Debug)]
enum Target {
    Descriptor(File),
    Path(LogFile),
    Socket(LogSocket),
}

impl LineSink {
    /// A duplicate of a descriptor, such as standard error. Whoever else writes
    /// there waits for no lock that this one holds while a pipe is full.
    ///
    /// # Errors
    /// When there is no free descriptor.
    pub fn duplicate(stream: &impl AsFd) -> io::Result<Self> {
        let duplicate = stream.as_fd().try_clone_to_owned()?;
        Ok(Self::new(Target::Descriptor(File::from(duplicate))))
    }

    /// A file.
    pub fn file(file: LogFile) -> Self {
        Self::new(Target::Path(file))
    }

    /// A log daemon.
    pub fn socket(socket: LogSocket) -> Self {
        Self::new(Target::Socket(socket))
    }

    fn new(target: Target) -> Self {
        Self {
            target,
            torn: false,
        }
    }

    /// Opens the file at its path again, if it is one.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        let Target::Path(file) = &mut self.target else {
            return Ok(());
        };
        if file.reopen()? {
            self.torn = false;
        }
        Ok(())
    }

    /// Writes whole lines.
    ///
    /// # Errors
    /// How many bytes were written, and why not more.
    pub(super) fn write(&mut self, lines: &[u8]) -> Result<(), (usize, io::Error)> {
        let file = match &mut self.target {
            Target::Descriptor(file) => file,
            Target::Path(path) => {
                if path.follow().map_err(|error| (0, error))? {
                    self.torn = false;
                }
                path.file()
            }
            Target::Socket(socket) => return socket.send(lines),
        };
        if self.torn {
            write_whole(file, b"\n").map_err(|(_, error)| (0, error))?;
            self.torn = false;
        }
        let outcome = write_whole(file, lines);
        if let Err((written, _)) = &outcome {
            self.torn = lines[..*written].last().is_some_and(|&byte| byte != b'\n');
        }
        outcome
    }
}

/// As [`Write::write_all`], and says how much was written. A pipe that is full
/// and does not block is waited for.
fn write_whole(file: &mut File, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
                _ => return Err((written, error)),
            },
        }
    }
    Ok(())
}
