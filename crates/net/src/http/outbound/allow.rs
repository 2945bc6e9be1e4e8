//! Which addresses may be reached on behalf of strangers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use url::{Host, Url};

/// Addresses that are nobody's on the public internet (RFC 6890 and its
/// registry), and multicast.
const SPECIAL_V4: &[(Ipv4Addr, u8)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // What a cloud tells its machines, though it looks public.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];

/// What is none of the public internet within 2000::/3: protocol assignments
/// with Teredo, documentation, 6to4.
const SPECIAL_V6: &[(Ipv6Addr, u8)] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// The addresses that translators give to those of IPv4 (RFC 6052 §2.1).
const TRANSLATED: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];

/// Hosts and networks that strangers may name though they are not public.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow {
    hosts: Vec<String>,
    networks: Vec<IpNet>,
}

/// Something in a list of allowed hosts and networks is neither.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no host name, IP address or network")]
pub struct AllowError {
    /// Which entry, from 0 on.
    pub index: usize,
    /// The entry.
    pub text: String,
}

impl Allow {
    /// Reads a list of host names, addresses and networks. A name means that
    /// host and no host below it, at whatever address it is.
    ///
    /// # Errors
    /// The first entry that is none of them.
    pub fn parse<T: AsRef<str>>(entries: &[T]) -> Result<Self, AllowError> {
        let mut allow = Self::default();
        for (index, text) in entries.iter().enumerate() {
            let text = text.as_ref();
            let bare = text.trim_start_matches('[').trim_end_matches(']');
            let network = bare.parse::<IpAddr>().map(IpNet::from);
            if let Ok(network) = network.or_else(|_| bare.parse()) {
                allow.networks.push(network.trunc());
            } else if let Some(name) = host_name(text) {
                allow.hosts.push(name);
            } else {
                let text = text.to_owned();
                return Err(AllowError { index, text });
            }
        }
        Ok(allow)
    }

    /// Whether a stranger may name `url`, as far as that can be told without
    /// asking for the addresses of its host: https, or http to what is allowed
    /// by name or address; no user, no address that is not public.
    pub(super) fn admits(&self, url: &Url) -> bool {
        let plain = match url.scheme() {
            "https" => false,
            "http" => true,
            _ => return false,
        };
        if !url.username().is_empty() || url.password().is_some() {
            return false;
        }
        match url.host() {
            None => false,
            Some(Host::Ipv4(address)) => self.admits_address(address.into(), plain),
            Some(Host::Ipv6(address)) => self.admits_address(address.into(), plain),
            // Over http, addresses decide unless the name is allowed.
            Some(Host::Domain(name)) => {
                !plain || self.admits_host(name) || !self.networks.is_empty()
            }
        }
    }

    /// Whether this host is allowed by name.
    pub(super) fn admits_host(&self, name: &str) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name);
        self.hosts
            .iter()
            .any(|host| host.eq_ignore_ascii_case(name))
    }

    /// Whether a connection to `address` may be made: it is allowed, or public
    /// and the connection is encrypted.
    pub(super) fn admits_address(&self, address: IpAddr, plain: bool) -> bool {
        let canonical = address.to_canonical();
        let listed = self.networks.iter().any(|net| net.contains(&canonical));
        listed || (!plain && is_public(address))
    }
}

fn host_name(text: &str) -> Option<String> {
    let parsed = Host::parse(text.strip_suffix('.').unwrap_or(text)).ok()?;
    match parsed {
        Host::Domain(name) if !name.is_empty() && !name.contains('*') => Some(name),
        // Other spellings of addresses, such as `127.1`.
        _ => None,
    }
}

/// Whether an address is one of the public internet.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !SPECIAL_V4.iter().any(|(network, bits)| {
            Ipv4Net::new(*network, *bits).is_ok_and(|network| network.contains(&address))
        }),
        IpAddr::V6(address) => {
            let parts = address.segments();
            if parts[..6] == TRANSLATED {
                let [.., a, b, c, d] = address.octets();
                return is_public(Ipv4Addr::new(a, b, c, d).into());
            }
            parts[0] & 0xe000 == 0x2000
                && !SPECIAL_V6.iter().any(|(network, bits)| {
                    Ipv6Net::new(*network, *bits).is_ok_and(|network| network.contains(&address))
                })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(allow: &Allow, url: &str) -> bool {
        allow.admits(&Url::parse(url).expect("a URL"))
    }

    #[test]
    fn only_public_addresses_are_public() {
        for public in [
            "1.1.1.1",
            "100.128.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "64:ff9b::1.1.1.1",
        ] {
            assert!(is_public(public.parse().expect("an address")), "{public}");
        }
        for not in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "198.19.0.1",
            "203.0.113.7",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:1.1.1.1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b:1::1.1.1.1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "3fff::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(not.parse().expect("an address")), "{not}");
        }
    }

    #[test]
    fn addresses_are_known_in_every_spelling() {
        let none = Allow::default();
        for url in [
            "https://127.0.0.1/",
            "https://127.1/",
            "https://2130706433/",
            "https://0x7f.0.0.1/",
            "https://0177.0.0.1/",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://169.254.169.254/latest",
            "http://1.1.1.1/",
            "http://example.com/",
            "https://me@example.com/",
            "https://:secret@example.com/",
            "ftp://example.com/",
            "file:///etc/passwd",
        ] {
            assert!(!admits(&none, url), "{url}");
        }
        assert!(admits(&none, "https://1.1.1.1/"));
        assert!(admits(&none, "https://example.com:8443/x?y"));
    }

    #[test]
    fn what_is_listed_is_allowed_over_http_too() {
        let allow = Allow::parse(&["localhost", "10.1.0.0/16", "::1", "[fd00::]/8"]);
        assert_eq!(
            allow,
            Err(AllowError {
                index: 3,
                text: "[fd00::]/8".to_owned()
            })
        );
        let allow = Allow::parse(&["Keys.Example", "10.1.2.3/16", "[::1]"]).expect("a list");
        for url in [
            "http://keys.example/",
            "https://keys.example./",
            "http://10.1.255.1/",
            "https://10.1.0.1/",
            "http://[::1]:80/",
        ] {
            assert!(admits(&allow, url), "{url}");
        }
        for url in ["http://10.2.0.1/", "https://127.0.0.1/"] {
            assert!(!admits(&allow, url), "{url}");
        }
        assert!(allow.admits_host("KEYS.example."));
        assert!(!allow.admits_host("a.keys.example"));
        assert!(allow.admits_address("::ffff:10.1.0.1".parse().expect("an address"), true));
    }

    #[test]
    fn entries_that_are_neither_host_nor_network_are_refused() {
        for text in [
            "",
            "*",
            "*.example",
            "https://x",
            "a b",
            "10.0.0.0/33",
            "127.1",
            "x:80",
        ] {
            assert!(Allow::parse(&[text]).is_err(), "{text}");
        }
    }
}
