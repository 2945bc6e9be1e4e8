//! Ranges of addresses.

use std::net::IpAddr;

use ipnet::IpNet;

use super::value::Value;

/// Addresses that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Range {
    Network(IpNet),
    /// From the first to the last, both included, of one family.
    Between(IpAddr, IpAddr),
}

impl Range {
    /// A network (`10.0.0.0/8`), a range (`10.0.0.1-10.0.0.9`), or one address.
    pub(super) fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Ok(network) = text.parse::<IpNet>() {
            return Some(Self::Network(network));
        }
        if let Some((first, last)) = text.split_once('-') {
            let (first, last) = (address(first.trim())?, address(last.trim())?);
            return (first.is_ipv4() == last.is_ipv4()).then_some(Self::Between(first, last));
        }
        let one = address(text)?;
        Some(Self::Between(one, one))
    }

    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        match self {
            Self::Network(network) => network.contains(&ip),
            Self::Between(first, last) => {
                first.is_ipv4() == ip.is_ipv4() && (*first..=*last).contains(&ip)
            }
        }
    }

    /// Whether the text is an address in the range.
    pub(super) fn contains_text(&self, value: &Value<'_>) -> bool {
        match value {
            Value::Text(text) => address(text.trim()).is_some_and(|ip| self.contains(ip)),
            _ => false,
        }
    }
}

/// An address as a number-only form that is the same for both spellings of an
/// IPv4 client.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}
