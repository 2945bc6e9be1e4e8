//! Sockets that the service manager listens on and hands over (`LISTEN_FDS`): they
//! stay open while the process is replaced, so that no connection is refused.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};

use listenfd::ListenFd;

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

/// Listening sockets of the service manager.
#[derive(Default)]
pub struct InheritedSockets(Vec<Inherited>);

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
        Ok(Self(sockets))
    }

    /// Whether there is a socket on `address`.
    pub fn has(&self, address: &str) -> bool {
        self.0.iter().any(|socket| socket.is_for(address))
    }

    /// Another handle of a socket on `address`: `worker` takes turns where there are
    /// several, and shares the one otherwise.
    pub fn share(&mut self, address: &str, worker: usize) -> Option<io::Result<TcpListener>> {
        let mut fitting: Vec<_> = self
            .0
            .iter_mut()
            .filter(|one| one.is_for(address))
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
        self.0
            .iter()
            .filter(|socket| socket.is_for(address))
            .count()
    }

    /// Whether somebody accepts from each.
    ///
    /// # Errors
    /// [`InheritedError::Unclaimed`]: connections to it would wait for ever.
    pub fn all_claimed(&self) -> Result<(), InheritedError> {
        let left = self.0.iter().find(|socket| !socket.is_claimed);
        left.map_or(Ok(()), |socket| {
            Err(InheritedError::Unclaimed(socket.address))
        })
    }
}

impl Inherited {
    /// Whether the address of the configuration is this one's. `[::]` takes
    /// connections of both families, as `ListenStream=8000` means it.
    fn is_for(&self, address: &str) -> bool {
        let Ok(wanted) = address.parse::<SocketAddr>() else {
            return false;
        };
        let is_wild = self.address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let both = is_wild && wanted.ip().is_unspecified() && wanted.port() == self.address.port();
        wanted == self.address || both
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
        InheritedSockets(sockets.collect())
    }

    #[test]
    fn a_socket_is_found_by_its_address_and_shared_by_workers() {
        let mut sockets = sockets(&["127.0.0.1:0", "[::]:0"]);
        let [own, wild] = [0, 1].map(|index| sockets.0[index].address);
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
    }
}
