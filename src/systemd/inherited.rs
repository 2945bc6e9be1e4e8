//! Sockets that are listened on already, and handed over by the service manager
//! (`LISTEN_FDS`) or by the process that this one succeeds: they stay open while the
//! process is replaced, so that no connection is refused.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use listenfd::ListenFd;
use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;

use crate::server::unix;

/// Why a socket that was handed over can't be used.
#[derive(Debug, thiserror::Error)]
pub enum InheritedError {
    /// It is no TCP listener.
    #[error("the socket {place} that the service manager hands over is no TCP listener: {source}")]
    Unusable {
        /// Its place among them, counted from one.
        place: usize,
        /// The system's word on it.
        source: io::Error,
    },
    /// Nothing would accept its connections.
    #[error(
        "the service manager hands over a socket on {0}, which no `listen` of the configuration names"
    )]
    Unclaimed(SocketAddr),
}

/// Listening sockets that another process has opened.
#[derive(Default)]
pub struct InheritedSockets {
    tcp: Vec<Inherited>,
    /// Those on files, by their paths.
    unix: Vec<(PathBuf, UnixListener)>,
    /// Whether one that the configuration does not name is let go.
    spares: bool,
}

struct Inherited {
    address: SocketAddr,
    listener: TcpListener,
    is_claimed: bool,
}

impl InheritedSockets {
    /// Those that the environment tells of.
    ///
    /// # Errors
    /// [`InheritedError::Unusable`].
    pub fn from_environment() -> Result<Self, InheritedError> {
        let mut handed_over = ListenFd::from_env();
        let mut sockets = Vec::new();
        for index in 0..handed_over.len() {
            let unusable = |source| InheritedError::Unusable {
                place: index + 1,
                source,
            };
            let taken = handed_over.take_tcp_listener(index).map_err(unusable)?;
            let Some(listener) = taken else { continue };
            sockets.push(Inherited {
                address: listener.local_addr().map_err(unusable)?,
                listener,
                is_claimed: false,
            });
        }
        Ok(Self {
            tcp: sockets,
            ..Self::default()
        })
    }

    /// Those of the process that this one succeeds. The configuration may have changed:
    /// what it does not name any more is let go.
    ///
    /// # Errors
    /// The system's word on one of them.
    pub fn of_predecessor(sockets: Vec<OwnedFd>) -> io::Result<Self> {
        let mut inherited = Self {
            spares: true,
            ..Self::default()
        };
        for socket in sockets {
            if socket_domain(&socket)? == AddressFamily::UNIX {
                let listener = UnixListener::from(socket);
                let path = listener.local_addr()?.as_pathname().map(unix::visible);
                // Without its file no client finds it.
                if let Some(path) = path.filter(|path| unix::is_socket(path)) {
                    inherited.unix.push((path, listener));
                }
                continue;
            }
            let listener = TcpListener::from(socket);
            inherited.tcp.push(Inherited {
                address: listener.local_addr()?,
                listener,
                is_claimed: false,
            });
        }
        Ok(inherited)
    }

    /// The listener on the file `path`, which is nobody else's afterwards.
    pub fn take_unix(&mut self, path: &Path) -> Option<UnixListener> {
        let place = self.unix.iter().position(|(own, _)| own == path)?;
        Some(self.unix.swap_remove(place).1)
    }

    /// Whether there is a listener on the file `path`.
    pub fn has_unix(&self, path: &Path) -> bool {
        self.unix.iter().any(|(own, _)| own == path)
    }

    /// Whether there is a socket on `address`.
    pub fn has(&self, address: &str) -> bool {
        self.count(address) > 0
    }

    /// Another handle of a socket on `address`: `worker` takes turns where there are
    /// several, and shares the one otherwise.
    pub fn share(&mut self, address: &str, worker: usize) -> Option<io::Result<TcpListener>> {
        let is_exact = self.has_exactly(address);
        let mut fitting: Vec<_> = self
            .tcp
            .iter_mut()
            .filter(|one| one.is_for(address, is_exact))
            .collect();
        // More sockets than workers: each of them needs one who accepts.
        fitting
            .iter_mut()
            .for_each(|socket| socket.is_claimed = true);
        let socket = fitting.get(worker.checked_rem(fitting.len())?)?;
        Some(socket.listener.try_clone().and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        }))
    }

    /// How many sockets there are on `address`.
    pub fn count(&self, address: &str) -> usize {
        let is_exact = self.has_exactly(address);
        let fitting = self.tcp.iter();
        fitting.filter(|one| one.is_for(address, is_exact)).count()
    }

    /// Whether there is a socket on this very address: then no other one stands for it.
    fn has_exactly(&self, address: &str) -> bool {
        self.tcp.iter().any(|socket| socket.is_for(address, true))
    }

    /// Whether somebody accepts from each.
    ///
    /// # Errors
    /// [`InheritedError::Unclaimed`]: connections to it would wait for ever.
    pub fn all_claimed(&self) -> Result<(), InheritedError> {
        let mut left = self.tcp.iter().filter(|socket| !socket.is_claimed);
        let left = left.next().filter(|_| !self.spares);
        left.map_or(Ok(()), |socket| {
            Err(InheritedError::Unclaimed(socket.address))
        })
    }
}

impl Inherited {
    /// Whether the address of the configuration is this one's. But for `is_exact`, `[::]`
    /// takes connections of both families, as `ListenStream=8000` means it.
    fn is_for(&self, address: &str, is_exact: bool) -> bool {
        let Ok(wanted) = address.parse::<SocketAddr>() else {
            return false;
        };
        let is_wild = self.address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let both = is_wild && wanted.ip().is_unspecified() && wanted.port() == self.address.port();
        wanted == self.address || (both && !is_exact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sockets(addresses: &[&str]) -> InheritedSockets {
        let sockets = addresses.iter().map(|address| {
            let listener = TcpListener::bind(address).expect("a port");
            Inherited {
                address: listener.local_addr().expect("bound"),
                listener,
                is_claimed: false,
            }
        });
        InheritedSockets {
            tcp: sockets.collect(),
            ..InheritedSockets::default()
        }
    }

    #[test]
    fn a_socket_is_found_by_its_address_and_shared_by_workers() {
        let mut sockets = sockets(&["127.0.0.1:0", "[::]:0"]);
        let [own, wild] = [0, 1].map(|index| sockets.tcp[index].address);
        assert!(sockets.share("127.0.0.1:1", 0).is_none());
        for worker in 0..3 {
            let shared = sockets.share(&own.to_string(), worker).expect("there");
            assert_eq!(shared.and_then(|it| it.local_addr()).ok(), Some(own));
        }
        let refused = sockets.all_claimed().expect_err("one is left");
        assert!(refused.to_string().contains(&wild.to_string()), "{refused}");
        let both = format!("0.0.0.0:{}", wild.port());
        assert!(sockets.has(&both) && !sockets.has(&format!("127.0.0.1:{}", wild.port())));
        sockets.share(&both, 0).expect("there").expect("shared");
        sockets.all_claimed().expect("all are taken");
        // With a socket of its own an address needs no other one.
        let own = TcpListener::bind("127.0.0.1:0").expect("a port");
        sockets.tcp.push(Inherited {
            address: SocketAddr::from(([0, 0, 0, 0], wild.port())),
            listener: own,
            is_claimed: false,
        });
        assert_eq!(sockets.count(&both), 1);
    }
}
