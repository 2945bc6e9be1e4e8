//! How a command reaches the admin listener of the running process.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::config::unix_path;

/// How long a listener may take to take a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// What stands in `Host` where the listener has no name: no name server is asked for it.
const LOCAL: &str = "localhost";

/// A connection over TCP or a Unix socket.
pub(super) trait Connection: Read + Write {}

impl<T: Read + Write> Connection for T {}

/// A connection to the listener on `listen`, whose answers may take `patience`, and what
/// stands in `Host` of requests over it.
pub(super) fn connect(
    listen: &str,
    patience: Duration,
) -> io::Result<(Box<dyn Connection>, String)> {
    if let Some(path) = unix_path(listen) {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        return Ok((Box::new(stream), LOCAL.to_owned()));
    }
    let mut last = io::Error::other("no address");
    for address in listen.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => {
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                return Ok((Box::new(stream), listen.to_owned()));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
