//! A new program takes the place of a running one on the same sockets, so that no
//! connection is refused.
//!
//! A process that serves waits at an [`UpgradeListener`] for its successor, which comes
//! by [`Predecessor::connect`]. The successor gets the listening sockets and starts with
//! them. Only when it says that it is ready, the predecessor stops accepting and lets
//! its requests finish. A successor that fails before has changed nothing.
//!
//! Both sides meet at a socket in the abstract namespace of Linux, which is named after
//! the configuration file. Anybody on the machine can connect to such a name or take it:
//! each side asks the system for the other's user, and speaks with its own only.

mod listener;
mod predecessor;
mod transfer;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::net::UCred;
use rustix::net::sockopt::socket_peercred;
use uuid::Uuid;

pub use listener::{Succession, UpgradeListener};
pub use predecessor::Predecessor;

/// Longest wait for a word that the other side has at hand.
const WORD: Duration = Duration::from_secs(10);
/// What a successor says when it serves.
const READY: u8 = b'R';
/// What its predecessor says to that, when its name is free again.
const LEAVING: u8 = b'L';

/// Why no program can take the place of another.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    /// The system's word on the conversation.
    #[error("the running process can't be succeeded: {0}")]
    Io(#[from] io::Error),
    /// Somebody else is at the other end.
    #[error("the process at the other end belongs to another user (uid {0})")]
    Stranger(u32),
    /// The running process is about to end, or hands over to another.
    #[error("the running process hands its sockets over to nobody now: it stops")]
    Stopping,
}

/// What a process hands over to its successor.
#[derive(Debug, Default)]
pub struct Handed {
    /// Its listening sockets.
    pub sockets: Vec<OwnedFd>,
    /// What keeps other servers from its store, if something does.
    pub lock: Option<File>,
}

impl Handed {
    fn try_clone(&self) -> io::Result<Self> {
        let sockets = self.sockets.iter().map(OwnedFd::try_clone);
        Ok(Self {
            sockets: sockets.collect::<io::Result<_>>()?,
            lock: self.lock.as_ref().map(File::try_clone).transpose()?,
        })
    }
}

/// The name at which the process that serves `file` waits, without the leading zero:
/// that of the path as it is called.
fn name(file: &Path) -> Vec<u8> {
    // Links are not followed: releases and mounted configurations replace them.
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let file = Uuid::new_v5(&Uuid::NAMESPACE_URL, file.as_os_str().as_encoded_bytes());
    let user = rustix::process::geteuid().as_raw();
    format!("doorward/{user}/{}", file.simple()).into_bytes()
}

/// The address at which the process that serves `file` waits.
fn address(file: &Path) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name(file))
}

/// The process at the other end, which is this process's user's.
fn own_peer(stream: &UnixStream) -> Result<UCred, UpgradeError> {
    let peer = socket_peercred(stream).map_err(io::Error::from)?;
    if peer.uid == rustix::process::geteuid() {
        Ok(peer)
    } else {
        Err(UpgradeError::Stranger(peer.uid.as_raw()))
    }
}

#[cfg(test)]
mod tests;
