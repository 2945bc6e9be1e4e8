//! Open files on their way from one process to another (`SCM_RIGHTS`, unix(7)).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::{Handed, UpgradeError};

/// Most files that are taken over: far more than workers have addresses.
const FILES: u32 = 16_384;
/// What goes with each file, since one can't travel alone: what it is.
const SOCKET: u8 = b'S';
const LOCK: u8 = b'L';

/// Sends what `handed` has, after its number.
pub(super) fn send(stream: &UnixStream, handed: &Handed) -> io::Result<()> {
    let sockets = handed.sockets.iter().map(|socket| (SOCKET, socket.as_fd()));
    let lock = handed.lock.iter().map(|lock| (LOCK, lock.as_fd()));
    let all: Vec<_> = sockets.chain(lock).collect();
    let count = u32::try_from(all.len()).map_err(io::Error::other)?;
    io::Write::write_all(&mut &*stream, &count.to_be_bytes())?;
    for (kind, file) in all {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let files = [file];
        ancillary.push(SendAncillaryMessage::ScmRights(&files));
        let text = [IoSlice::new(std::slice::from_ref(&kind))];
        sendmsg(stream, &text, &mut ancillary, SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

/// Receives what [`send`] sends.
///
/// # Errors
/// The system's word, [`io::ErrorKind::InvalidData`] for anything else that comes, and
/// [`UpgradeError::Stopping`] where the other side ends before its number.
pub(super) fn receive(stream: &UnixStream) -> Result<Handed, UpgradeError> {
    let mut count = [0; 4];
    match io::Read::read_exact(&mut &*stream, &mut count) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(UpgradeError::Stopping);
        }
        read => read?,
    }
    let count = u32::from_be_bytes(count);
    if count > FILES {
        return Err(invalid().into());
    }
    let mut handed = Handed::default();
    for _ in 0..count {
        match receive_one(stream)? {
            (SOCKET, socket) => handed.sockets.push(socket),
            (LOCK, lock) if handed.lock.is_none() => handed.lock = Some(lock.into()),
            _ => return Err(invalid().into()),
        }
    }
    Ok(handed)
}

/// Receives one file, and what it is.
fn receive_one(stream: &UnixStream) -> io::Result<(u8, OwnedFd)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut text = [0];
    let into = &mut [IoSliceMut::new(&mut text)];
    // Programs that this process starts are not to inherit it.
    let received = recvmsg(stream, into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut files = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.collect(),
        _ => Vec::new(),
    });
    match (received.bytes, files.next()) {
        (1, Some(file)) => Ok((text[0], file)),
        _ => Err(invalid()),
    }
}

fn invalid() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the other process hands over what can't be used",
    )
}
