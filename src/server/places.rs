//! The workers' sockets: bound before any listener is served, so that an
//! address that can't be had is told before anything runs.

use std::collections::HashSet;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use pingora::server::{Fds, ListenFds, ShutdownWatch};
use tokio::net::TcpSocket;
use tokio::runtime::{Builder, Runtime};

use super::descriptors::Shares;
use super::{RouterListener, Server, ServerError, Shared, tls, unix, workers};
use crate::config::{ProxyConfig, unix_path};
use crate::systemd::InheritedSockets;

/// Clients' connections that may wait to be accepted.
const BACKLOG: u32 = 65_535;
/// Operators' connections that may wait to be accepted: a burst of them is
/// accepted before any is counted, and each takes a file meanwhile.
const ROUTER_BACKLOG: u32 = 32;

/// An address to listen on, and the key that it stands under.
#[derive(Clone, Copy, Debug)]
pub struct Address<'a> {
    key: &'static str,
    address: &'a str,
}

impl<'a> Address<'a> {
    /// The address that `key` names.
    pub fn new(key: &'static str, address: &'a str) -> Self {
        Self { key, address }
    }

    fn error(self, source: io::Error) -> ServerError {
        ServerError::Bind {
            key: self.key,
            address: self.address.to_owned(),
            source,
        }
    }
}

/// The places of the proxy's workers.
pub struct ProxyPlaces(Vec<Place>);

impl ProxyPlaces {
    /// Binds all addresses of `config` for each worker, but for those that were handed
    /// over.
    ///
    /// # Errors
    /// [`ServerError`]: the address that can't be had.
    pub fn bind(
        config: &ProxyConfig,
        inherited: &mut InheritedSockets,
    ) -> Result<Self, ServerError> {
        tls::check_authorities(config.upstream_ca.as_deref())?;
        let plain = config.listen.iter();
        let encrypted = config.tls.iter().flat_map(|tls| &tls.listen);
        let addresses: Vec<Address<'_>> = plain
            .map(|address| Address::new("proxy.listen", address))
            .chain(encrypted.map(|address| Address::new("proxy.tls.listen", address)))
            .collect();
        check_free(&addresses, inherited)?;
        let workers = workers(config);
        // A socket without a worker would never be accepted from.
        for &address in &addresses {
            let sockets = inherited.count(address.address);
            if sockets > workers {
                let reason = format!("{sockets} sockets were handed over, for {workers} workers");
                return Err(address.error(io::Error::other(reason)));
            }
        }
        let unix = unix_listeners(&addresses, config.socket_mode.0, inherited)?;
        let places =
            (0..workers).map(|worker| Place::bind(&addresses, BACKLOG, worker, (inherited, &unix)));
        let mut places = Self(places.collect::<Result<_, _>>()?);
        let own = unix.into_iter().map(|(_, listener)| listener.into());
        if let Some(first) = places.0.first_mut() {
            first.spare.extend(own);
        }
        Ok(places)
    }

    /// Further handles of all sockets, for a process that succeeds this one. As long
    /// as they are held, no socket closes.
    pub fn take_sockets(&mut self) -> Vec<OwnedFd> {
        let spare = |place: &mut Place| std::mem::take(&mut place.spare);
        self.0.iter_mut().flat_map(spare).collect()
    }

    /// Starts a worker at each place.
    ///
    /// # Errors
    /// [`ServerError::Thread`].
    pub fn start(
        self,
        config: &ProxyConfig,
        shared: &Shared,
        shares: Shares,
        shutdown: &ShutdownWatch,
    ) -> Result<Server, ServerError> {
        Server::start_proxy(self.0, config, shared, shares, shutdown)
    }
}

/// The place of a listener that serves one router.
pub struct RouterPlace(Place);

impl RouterPlace {
    /// Binds `addresses`, but for those that were handed over; `socket_mode` says who may
    /// connect to Unix sockets.
    ///
    /// # Errors
    /// [`ServerError`]: the address that can't be had.
    pub fn bind(
        addresses: &[Address<'_>],
        socket_mode: u32,
        inherited: &mut InheritedSockets,
    ) -> Result<Self, ServerError> {
        check_free(addresses, inherited)?;
        let unix = unix_listeners(addresses, socket_mode, inherited)?;
        let mut place = Place::bind(addresses, ROUTER_BACKLOG, 0, (inherited, &unix))?;
        let own = unix.into_iter().map(|(_, listener)| listener.into());
        place.spare.extend(own);
        Ok(Self(place))
    }

    /// As [`ProxyPlaces::take_sockets`].
    pub fn take_sockets(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.0.spare)
    }

    /// Serves `listener` from a thread of its own.
    ///
    /// # Errors
    /// [`ServerError::Thread`].
    pub fn start(
        self,
        listener: RouterListener<'_>,
        shutdown: &ShutdownWatch,
    ) -> Result<Server, ServerError> {
        Server::start_router(self.0, listener, shutdown)
    }
}

/// A listener on a Unix socket, by its path.
type UnixSocket = (PathBuf, UnixListener);

/// The listeners of all `addresses` that are Unix sockets.
fn unix_listeners(
    addresses: &[Address<'_>],
    mode: u32,
    inherited: &mut InheritedSockets,
) -> Result<Vec<UnixSocket>, ServerError> {
    let mut listeners = Vec::new();
    for &address in addresses {
        if let Some(path) = unix_path(address.address) {
            let taken = inherited.take_unix(path).map(Ok);
            let listener = taken.unwrap_or_else(|| unix::listen(path, mode));
            let listener = listener.map_err(|source| address.error(source))?;
            listeners.push((path.to_owned(), listener));
        }
    }
    Ok(listeners)
}

/// A thread's runtime, and its sockets.
pub(super) struct Place {
    runtime: Option<Runtime>,
    sockets: ListenFds,
    /// Further handles of the same sockets.
    spare: Vec<OwnedFd>,
}

impl Place {
    fn bind(
        addresses: &[Address<'_>],
        backlog: u32,
        worker: usize,
        (inherited, unix): (&mut InheritedSockets, &[UnixSocket]),
    ) -> Result<Self, ServerError> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let mut place = Self {
            runtime: Some(runtime),
            sockets: Arc::new(Mutex::new(Fds::new())),
            spare: Vec::new(),
        };
        let mut sockets = Fds::new();
        for &address in addresses {
            if let Some(path) = unix_path(address.address) {
                // All workers accept from the one that there can be.
                let mut of_path = unix.iter().filter(|(other, _)| other == path);
                if let Some((_, listener)) = of_path.next() {
                    let shared = listener.try_clone();
                    let shared = shared.map_err(|source| address.error(source))?;
                    sockets.add(path.display().to_string(), shared.into_raw_fd());
                }
                continue;
            }
            let shared = inherited.share(address.address, worker);
            let listener = shared.unwrap_or_else(|| place.listen(address.address, backlog));
            let listener = listener.map_err(|source| address.error(source))?;
            let spare = listener.try_clone();
            let spare = spare.map_err(|source| address.error(source))?;
            place.spare.push(spare.into());
            sockets.add(address.address.to_owned(), listener.into_raw_fd());
        }
        place.sockets = Arc::new(Mutex::new(sockets));
        Ok(place)
    }

    /// Binds and listens here, so that clients can connect from now on.
    fn listen(&self, address: &str, backlog: u32) -> io::Result<TcpListener> {
        let _in_runtime = self.runtime.as_ref().map(Runtime::enter);
        let parsed: SocketAddr = address
            .parse()
            .map_err(|_| io::Error::other("not ADDRESS:PORT"))?;
        let socket = match parsed {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(true)?;
        socket.bind(parsed)?;
        socket.listen(backlog)?.into_std()
    }

    /// Runs what `task` makes of the sockets, on this thread, to its end.
    pub(super) fn run<T: Future<Output = ()>>(mut self, task: impl FnOnce(ListenFds) -> T) {
        // A socket closes with its listener.
        self.spare.clear();
        if let Some(runtime) = &self.runtime {
            runtime.block_on(task(self.sockets.clone()));
        }
    }
}

impl Drop for Place {
    /// A runtime that is dropped where another one runs would panic.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Sockets with `SO_REUSEPORT` share an address with any process of the same
/// user; a plain attempt first tells a second instance that it is one. Of two
/// sockets of one place on the same address, one would never be accepted from.
fn check_free(addresses: &[Address<'_>], inherited: &InheritedSockets) -> Result<(), ServerError> {
    let mut seen = HashSet::new();
    for &address in addresses {
        let free = if !seen.insert(address.address) {
            Err(io::Error::from(io::ErrorKind::AddrInUse))
        } else if let Some(path) = unix_path(address.address) {
            if inherited.has_unix(path) {
                Ok(())
            } else {
                unix::check_free(path)
            }
        } else if inherited.has(address.address) {
            Ok(())
        } else {
            TcpListener::bind(address.address).map(drop)
        };
        free.map_err(|source| address.error(source))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(addresses: &[Address<'_>]) -> String {
        let refused = RouterPlace::bind(addresses, 0o600, &mut InheritedSockets::default());
        let refused = refused.err().expect("refused");
        refused.to_string()
    }

    /// Within a runtime, as the program binds them.
    #[tokio::test]
    async fn an_address_that_can_not_be_had_is_an_error_with_its_key() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let taken = taken.local_addr().map(|own| own.to_string());
        let taken = taken.expect("an address");
        for address in [
            taken.as_str(),
            "192.0.2.1:1",
            "[2001:db8::1]:1",
            "nowhere",
            "127.0.0.1:99999",
        ] {
            let said = refused(&[Address::new("admin.listen", address)]);
            let expected = format!("admin.listen: can't listen on {address}: ");
            assert!(said.starts_with(&expected), "{said}");
        }
    }

    #[tokio::test]
    async fn one_address_is_not_listened_on_twice() {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr());
        let free = free.expect("an address").to_string();
        let once = Address::new("admin.listen", &free);
        let again = Address::new("admin.tls.listen", &free);
        assert!(refused(&[once, again]).starts_with("admin.tls.listen: can't"));
    }
}
