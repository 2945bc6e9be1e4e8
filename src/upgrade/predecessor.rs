//! The side of the new program.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::{Handed, LEAVING, READY, UpgradeError, WORD, address, own_peer, transfer};

/// A process that serves, and is to be relieved.
pub struct Predecessor(UnixStream);

impl Predecessor {
    /// The process that serves `file`, if there is one.
    ///
    /// # Errors
    /// [`UpgradeError::Stranger`] where another user has taken its name, and the
    /// system's word.
    pub fn connect(file: &Path) -> Result<Option<Self>, UpgradeError> {
        let stream = match UnixStream::connect_addr(&address(file)?) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
            stream => stream?,
        };
        stream.set_read_timeout(Some(WORD))?;
        stream.set_write_timeout(Some(WORD))?;
        own_peer(&stream)?;
        Ok(Some(Self(stream)))
    }

    /// What it hands over.
    ///
    /// # Errors
    /// [`UpgradeError::Stopping`] where it has nothing any more, and the system's word.
    pub fn receive(&self) -> Result<Handed, UpgradeError> {
        transfer::receive(&self.0)
    }

    /// Says that this process serves, so that the other one leaves.
    ///
    /// # Errors
    /// The other one did not hear it, or has not left the name yet. It may have ended by
    /// itself, so this is no reason not to serve.
    pub fn relieve(mut self) -> io::Result<()> {
        self.0.write_all(&[READY])?;
        let mut word = [0];
        self.0.read_exact(&mut word)?;
        if word == [LEAVING] {
            Ok(())
        } else {
            Err(io::Error::from(io::ErrorKind::InvalidData))
        }
    }
}
