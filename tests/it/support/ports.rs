//! Free ports for listeners of another process.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::net::TcpSocket;

/// A port of 127.0.0.1 that no other test can take while this value lives,
/// though nobody listens on it yet.
///
/// The socket is bound alone first, so that two reservations never meet, and
/// marked reusable afterwards: a server that sets `SO_REUSEADDR`, as ours does,
/// may then bind and listen beside it. The range lies below the ephemeral
/// ports, so no outgoing connection takes one either.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _held: TcpSocket,
}

impl Port {
    /// Reserves a port.
    pub(crate) fn reserve() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let seed = (std::process::id() % 311) as u16 * 64;
        for _ in 0..20_000 {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let number = 12_000 + seed.wrapping_add(step) % 20_000;
            let socket = TcpSocket::new_v4().expect("a socket");
            if socket
                .bind(SocketAddr::from((Ipv4Addr::LOCALHOST, number)))
                .is_ok()
            {
                socket.set_reuseaddr(true).expect("an option of a socket");
                return Self {
                    number,
                    _held: socket,
                };
            }
        }
        panic!("no free port");
    }

    /// The port's number.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn authority(&self) -> String {
        format!("127.0.0.1:{}", self.number)
    }
}
