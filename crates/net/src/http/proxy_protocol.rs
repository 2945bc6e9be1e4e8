//! The PROXY protocol, versions 1 and 2: a proxy that forwards bytes says first
//! whose they are.
//!
//! The header is believed from the networks of the configuration alone, and they
//! have to send it: otherwise a client could claim any address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use ipnet::IpNet;
use pingora::protocols::GetSocketDigest as _;
use pingora::protocols::l4::stream::Stream as Socket;
use pingora::protocols::{SocketDigest, UniqueID as _};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::networks;

/// How a header of version 2 begins.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Longest header of version 1, with its end.
const LINE_MAX: usize = 107;
/// Longest rest of a header of version 2: addresses, and what is said beside them.
const REST_MAX: u16 = 4096;

/// Networks of proxies that begin each connection with a header.
#[derive(Clone, Debug, Default)]
pub struct ProxyNetworks(pub Arc<[IpNet]>);

/// Why a header is not taken.
#[derive(Debug, thiserror::Error)]
pub enum ProxyHeaderError {
    /// The connection ended within it.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// What comes first is no header.
    #[error("the connection does not begin with a PROXY header")]
    Missing,
    /// The header contradicts the protocol.
    #[error("the PROXY header is malformed: {0}")]
    Malformed(&'static str),
}

impl ProxyNetworks {
    /// Reads the header of a connection from one of the networks. The peer's address
    /// is from then on the one that the header names.
    ///
    /// # Errors
    /// [`ProxyHeaderError`] for a connection that is to be closed.
    pub async fn greet(&self, socket: &mut Socket) -> Result<(), ProxyHeaderError> {
        let digest = socket.get_socket_digest();
        let peer = digest.as_ref().and_then(|digest| digest.peer_addr());
        let peer = peer.and_then(|address| address.as_inet());
        if !peer.is_some_and(|peer| self.include(peer.ip())) {
            return Ok(());
        }
        if let Some(client) = read(socket).await? {
            let digest = SocketDigest::from_raw_fd(socket.id());
            // A new digest has no address yet.
            let _ = digest.peer_addr.set(Some(client.into()));
            socket.set_socket_digest(digest);
        }
        Ok(())
    }

    /// Whether no proxy sends headers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn include(&self, address: IpAddr) -> bool {
        networks::include(&self.0, address)
    }
}

/// Reads a header, and nothing behind it; the client's address, unless the proxy
/// speaks for itself or does not know.
async fn read(from: &mut (impl AsyncRead + Unpin)) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    // No header is shorter, whatever its version.
    let mut start = [0; SIGNATURE.len()];
    from.read_exact(&mut start).await?;
    if start == SIGNATURE {
        return read_binary(from).await;
    }
    if !start.starts_with(b"PROXY ") {
        return Err(ProxyHeaderError::Missing);
    }
    read_line(from, start.to_vec()).await
}

/// Version 1: `PROXY TCP4 192.0.2.1 192.0.2.2 40000 443`.
async fn read_line(
    from: &mut (impl AsyncRead + Unpin),
    mut line: Vec<u8>,
) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    // The bytes come from the buffer of the socket.
    while !line.ends_with(b"\r\n") {
        if line.len() == LINE_MAX {
            return Err(ProxyHeaderError::Malformed("the line is too long"));
        }
        line.push(from.read_u8().await?);
    }
    let text = std::str::from_utf8(&line[..line.len() - 2]);
    let text = text.map_err(|_| ProxyHeaderError::Malformed("the line is no text"))?;
    let mut words = text.split(' ').skip(1);
    let client = match words.next() {
        Some("UNKNOWN") => return Ok(None),
        Some("TCP4") => addresses::<Ipv4Addr>(&mut words)?.into(),
        Some("TCP6") => addresses::<Ipv6Addr>(&mut words)?.into(),
        _ => return Err(ProxyHeaderError::Malformed("another protocol than TCP")),
    };
    let client_port = port(words.next())?;
    port(words.next())?;
    if words.next().is_some() {
        return Err(ProxyHeaderError::Malformed("too many words"));
    }
    Ok(Some(SocketAddr::new(client, client_port)))
}

/// The client's address; the other one has to be of the same family.
fn addresses<'a, A: FromStr>(
    words: &mut impl Iterator<Item = &'a str>,
) -> Result<A, ProxyHeaderError> {
    let mut address = || words.next().and_then(|word| word.parse().ok());
    let (client, own): (Option<A>, Option<A>) = (address(), address());
    match (client, own) {
        (Some(client), Some(_)) => Ok(client),
        _ => Err(ProxyHeaderError::Malformed("an address is none")),
    }
}

fn port(word: Option<&str>) -> Result<u16, ProxyHeaderError> {
    let digits = word.filter(|word| {
        let plain = word.bytes().all(|byte| byte.is_ascii_digit());
        plain && (*word == "0" || !word.starts_with('0'))
    });
    let port = digits.and_then(|digits| digits.parse().ok());
    port.ok_or(ProxyHeaderError::Malformed("a port is none"))
}

/// Version 2, behind its signature.
async fn read_binary(
    from: &mut (impl AsyncRead + Unpin),
) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    let (version_and_command, family) = (from.read_u8().await?, from.read_u8().await?);
    let length = from.read_u16().await?;
    if length > REST_MAX {
        return Err(ProxyHeaderError::Malformed("it is too long"));
    }
    let mut rest = vec![0; usize::from(length)];
    from.read_exact(&mut rest).await?;
    match version_and_command {
        // The proxy's own connection, for instance to ask for health.
        0x20 => return Ok(None),
        0x21 => {}
        _ => return Err(ProxyHeaderError::Malformed("another version or command")),
    }
    match family {
        // Not known, or a socket of its machine.
        0x00 | 0x31 => Ok(None),
        0x11 => Ok(Some(v4(&rest)?)),
        0x21 => Ok(Some(v6(&rest)?)),
        _ => Err(ProxyHeaderError::Malformed("another protocol than TCP")),
    }
}

/// The addresses of both ends, then their ports.
fn v4(rest: &[u8]) -> Result<SocketAddr, ProxyHeaderError> {
    let Some(&[a, b, c, d, _, _, _, _, high, low, _, _]) = rest.first_chunk::<12>() else {
        return Err(ProxyHeaderError::Malformed("it has no room for addresses"));
    };
    let port = u16::from_be_bytes([high, low]);
    Ok(SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), port))
}

fn v6(rest: &[u8]) -> Result<SocketAddr, ProxyHeaderError> {
    let short = ProxyHeaderError::Malformed("it has no room for addresses");
    let Some((client, rest)) = rest.split_first_chunk::<16>() else {
        return Err(short);
    };
    let Some(&[high, low, _, _]) = rest.get(16..).and_then(|ports| ports.first_chunk::<4>()) else {
        return Err(short);
    };
    let port = u16::from_be_bytes([high, low]);
    Ok(SocketAddr::new(Ipv6Addr::from(*client).into(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn client(header: &[u8]) -> Result<Option<String>, String> {
        let mut bytes: &[u8] = &[header, b"GET / "].concat();
        let client = read(&mut bytes).await.map_err(|error| error.to_string())?;
        assert_eq!(bytes, b"GET / ", "nothing behind the header is read");
        Ok(client.map(|address| address.to_string()))
    }

    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).expect("short").to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, rest].concat()
    }

    #[tokio::test]
    async fn a_line_names_the_client() {
        for (line, expected) in [
            (
                "TCP4 192.0.2.1 192.0.2.2 40000 443",
                Some("192.0.2.1:40000"),
            ),
            (
                "TCP6 2001:db8::1 2001:db8::2 1 65535",
                Some("[2001:db8::1]:1"),
            ),
            ("UNKNOWN", None),
            ("UNKNOWN ffff::1 ffff::2 1 2", None),
        ] {
            let header = format!("PROXY {line}\r\n");
            let named = client(header.as_bytes()).await.expect("taken");
            assert_eq!(named.as_deref(), expected, "{line}");
        }
    }

    #[tokio::test]
    async fn a_binary_header_names_the_client() {
        let v4 = [192, 0, 2, 1, 192, 0, 2, 2, 0x9c, 0x40, 1, 187];
        let more = [&v4[..], &[4, 0, 1, 0]].concat();
        let mut v6 = [0; 36];
        v6[..16].copy_from_slice(&Ipv6Addr::LOCALHOST.octets());
        v6[33] = 80;
        for (header, expected) in [
            (binary(0x21, 0x11, &v4), Some("192.0.2.1:40000")),
            (binary(0x21, 0x11, &more), Some("192.0.2.1:40000")),
            (binary(0x21, 0x21, &v6), Some("[::1]:80")),
            (binary(0x20, 0x00, &[]), None),
            (binary(0x20, 0x11, &v4), None),
            (binary(0x21, 0x00, &[]), None),
            (binary(0x21, 0x31, &[0; 216]), None),
        ] {
            let named = client(&header).await.expect("taken");
            assert_eq!(named.as_deref(), expected, "{header:?}");
        }
    }

    #[tokio::test]
    async fn what_is_no_header_is_refused() {
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(LINE_MAX));
        let lines = [
            "GET / HTTP/1.1\r\nHost: a\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 40000\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 40000 443 1\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 040000 443\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 +1 443\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 65536 443\r\n",
            "PROXY TCP4 ::1 192.0.2.2 1 443\r\n",
            "PROXY TCP4  192.0.2.1 192.0.2.2 1 443\r\n",
            "PROXY TCP6 192.0.2.1 192.0.2.2 1 443\r\n",
            "PROXY UDP4 192.0.2.1 192.0.2.2 1 443\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 443\n\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1",
            &long,
        ];
        for line in lines {
            let mut bytes = line.as_bytes();
            assert!(read(&mut bytes).await.is_err(), "{line:?}");
        }
        for header in [
            binary(0x11, 0x11, &[0; 12]),
            binary(0x22, 0x11, &[0; 12]),
            binary(0x21, 0x12, &[0; 12]),
            binary(0x21, 0x11, &[0; 11]),
            binary(0x21, 0x21, &[0; 35]),
            binary(0x21, 0x11, &[0; 5000]),
            binary(0x21, 0x11, &[0; 12])[..20].to_vec(),
        ] {
            assert!(read(&mut &header[..]).await.is_err(), "{header:?}");
        }
    }
}
