//! The header of the PROXY protocol that a connection to an upstream begins with: it
//! says whose the connection is.
//!
//! Such a connection belongs to one client. Whoever makes it must not share it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use async_trait::async_trait;
use pingora::Result;
use pingora::connectors::l4::Connect;
use pingora::prelude::{Error, ErrorType};
use pingora::protocols::l4::ext;
use pingora::protocols::l4::socket::SocketAddr as PeerAddress;
use pingora::protocols::l4::stream::Stream;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use doorward_core::model::service::ProxyProtocol;

/// How a header of version 2 begins.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Version 2: the sender speaks for itself, or for somebody else.
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;
/// TCP over IPv4, and over IPv6.
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;

/// Connects, and sends a header before anything else.
#[derive(Debug)]
pub struct ProxyHeaderConnector {
    header: Vec<u8>,
}

impl ProxyHeaderConnector {
    /// `client` has connected to `local`; `None`: the gateway speaks for itself, or has
    /// no addresses to tell.
    pub fn new(version: ProxyProtocol, addresses: Option<(SocketAddr, SocketAddr)>) -> Self {
        Self {
            header: header(version, addresses),
        }
    }

    /// What is sent. Connections with other headers are other clients'.
    pub fn header(&self) -> &[u8] {
        &self.header
    }
}

#[async_trait]
impl Connect for ProxyHeaderConnector {
    async fn connect(&self, address: &PeerAddress) -> Result<Stream> {
        match address {
            PeerAddress::Inet(address) => self.begin(ext::connect(address, None).await?).await,
            PeerAddress::Unix(address) => {
                let Some(path) = address.as_pathname() else {
                    return Err(Error::new(ErrorType::InternalError));
                };
                self.begin(ext::connect_uds(path).await?).await
            }
        }
    }
}

impl ProxyHeaderConnector {
    async fn begin<S: AsyncWrite + Unpin + Into<Stream>>(&self, mut stream: S) -> Result<Stream> {
        // One send: the buffer of a new connection is empty.
        let sent = stream.write_all(&self.header).await;
        sent.map_err(|error| {
            Error::because(ErrorType::ConnectError, "sending the PROXY header", error)
        })?;
        Ok(stream.into())
    }
}

fn header(version: ProxyProtocol, addresses: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
    let addresses = addresses.map(|(client, local)| alike(client, local));
    match version {
        ProxyProtocol::V1 => line(addresses),
        ProxyProtocol::V2 => binary(addresses),
    }
}

/// Both addresses in one family: the header has no other place for them.
fn alike(client: SocketAddr, local: SocketAddr) -> (SocketAddr, SocketAddr) {
    let plain = |one: SocketAddr| SocketAddr::new(one.ip().to_canonical(), one.port());
    let (client, local) = (plain(client), plain(local));
    if client.is_ipv4() == local.is_ipv4() {
        return (client, local);
    }
    let wide = |one: SocketAddr| {
        let ip: Ipv6Addr = match one.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        SocketAddr::new(ip.into(), one.port())
    };
    (wide(client), wide(local))
}

/// Version 1.
fn line(addresses: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
    let Some((client, local)) = addresses else {
        return b"PROXY UNKNOWN\r\n".to_vec();
    };
    let family = if client.is_ipv4() { "TCP4" } else { "TCP6" };
    let (from, to) = (client.ip(), local.ip());
    let (port, own) = (client.port(), local.port());
    format!("PROXY {family} {from} {to} {port} {own}\r\n").into_bytes()
}

/// Version 2.
fn binary(addresses: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    let Some((client, local)) = addresses else {
        header.extend([LOCAL, 0, 0, 0]);
        return header;
    };
    let mut body = Vec::with_capacity(36);
    let mut family = TCP4;
    for one in [client, local] {
        match one.ip() {
            IpAddr::V4(ip) => body.extend(ip.octets()),
            IpAddr::V6(ip) => {
                family = TCP6;
                body.extend(ip.octets());
            }
        }
    }
    body.extend(client.port().to_be_bytes());
    body.extend(local.port().to_be_bytes());
    // 12 or 36 bytes.
    let length = u16::try_from(body.len()).unwrap_or_default();
    header.extend([PROXY, family]);
    header.extend(length.to_be_bytes());
    header.extend(body);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(client: &str, local: &str) -> Option<(SocketAddr, SocketAddr)> {
        let parsed = |text: &str| text.parse().expect("an address");
        Some((parsed(client), parsed(local)))
    }

    fn text(client: &str, local: &str) -> String {
        let header = header(ProxyProtocol::V1, addresses(client, local));
        String::from_utf8(header).expect("text")
    }

    #[test]
    fn a_line_names_client_and_listener_in_one_family() {
        for (client, local, expected) in [
            (
                "192.0.2.1:40000",
                "192.0.2.2:443",
                "TCP4 192.0.2.1 192.0.2.2 40000 443",
            ),
            ("[2001:db8::1]:0", "[::1]:80", "TCP6 2001:db8::1 ::1 0 80"),
            // A socket for both families calls clients of IPv4 so.
            (
                "[::ffff:192.0.2.1]:1",
                "192.0.2.2:80",
                "TCP4 192.0.2.1 192.0.2.2 1 80",
            ),
            // A proxy in front speaks for a client of the other family.
            (
                "[2001:db8::1]:9",
                "192.0.2.2:80",
                "TCP6 2001:db8::1 ::ffff:192.0.2.2 9 80",
            ),
        ] {
            assert_eq!(text(client, local), format!("PROXY {expected}\r\n"));
        }
        let longest = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535";
        assert!(text(longest, longest).len() <= 107);
    }

    #[test]
    fn the_binary_form_has_addresses_and_ports_in_network_order() {
        let header = header(
            ProxyProtocol::V2,
            addresses("198.51.100.9:80", "192.0.2.2:443"),
        );
        let mut expected = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
        expected.extend([198, 51, 100, 9, 192, 0, 2, 2, 0, 80, 1, 187]);
        assert_eq!(header, expected);
        let wide = super::header(ProxyProtocol::V2, addresses("[::1]:1", "[::2]:2"));
        assert_eq!(wide[12..16], [0x21, 0x21, 0, 36]);
        assert_eq!(wide.len(), 16 + 36);
    }

    #[test]
    fn who_speaks_for_itself_names_no_address() {
        assert_eq!(header(ProxyProtocol::V1, None), b"PROXY UNKNOWN\r\n");
        let expected = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
        assert_eq!(header(ProxyProtocol::V2, None), expected);
    }
}
