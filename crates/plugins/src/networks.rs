//! Addresses and networks in configurations, and whether one has an address.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use serde_json::Value;

use crate::settings::wrong;
use doorward_core::model::schema::Type;
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::config::FieldValue;

/// An address or a network. One of IPv4 written as one of IPv6 is the former,
/// as clients' addresses are.
pub(crate) fn network(text: &str) -> Result<IpNet, String> {
    let address = text.parse::<IpAddr>().map(IpNet::from);
    let network: Result<IpNet, _> = address.or_else(|_| text.parse());
    let network = network.map_err(|_| format!("invalid ip or cidr range: '{text}'"))?;
    let IpNet::V6(v6) = network else {
        return Ok(network);
    };
    let mapped = v6
        .addr()
        .to_ipv4_mapped()
        .zip(v6.prefix_len().checked_sub(96));
    let v4 = mapped.and_then(|(address, length)| Ipv4Net::new(address, length).ok());
    Ok(v4.map_or(network, IpNet::V4))
}

/// The check of a text that names an address or a network.
pub(crate) fn check(text: &str) -> Result<(), String> {
    network(text).map(drop)
}

/// Any number of networks: finding an address takes a few comparisons.
#[derive(Debug, Default)]
pub(crate) struct Networks {
    /// First and last address of each range. They are in order and do not overlap.
    ranges: Box<[(Place, Place)]>,
}

impl Networks {
    /// The networks that these texts name.
    ///
    /// # Errors
    /// The first text that names none.
    pub(crate) fn read<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let ranges = texts.map(|text| network(text).map(range));
        let mut ranges: Vec<_> = ranges.collect::<Result<_, _>>()?;
        ranges.sort_unstable();
        let mut merged: Vec<(Place, Place)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(before) if first <= before.1 => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Ok(Self {
            ranges: merged.into(),
        })
    }

    /// Whether it has no address at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether one of the networks has the address.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let place = place(address.to_canonical());
        let after = self.ranges.partition_point(|(first, _)| *first <= place);
        let before = after.checked_sub(1).and_then(|at| self.ranges.get(at));
        before.is_some_and(|(_, last)| place <= *last)
    }
}

/// A list of texts. Null is an empty one.
impl FieldValue for Networks {
    fn kind() -> Type {
        Type::array(Type::checked(check))
    }

    fn of_null(_default: Option<&Value>) -> Option<Self> {
        Some(Self::default())
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let texts = <Vec<String> as FieldValue>::read(value)?;
        let networks = Self::read(texts.iter().map(String::as_str));
        networks.map_err(|message| wrong("", message))
    }
}

/// Where an address stands among all: those of IPv4 come first, and no network of IPv6
/// has one, however short its prefix is. `::/0` says nothing of clients that come by IPv4.
type Place = (IpVersion, u128);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum IpVersion {
    V4,
    V6,
}

fn place(address: IpAddr) -> Place {
    match address {
        IpAddr::V4(v4) => (IpVersion::V4, v4.to_bits().into()),
        IpAddr::V6(v6) => (IpVersion::V6, v6.to_bits()),
    }
}

fn range(network: IpNet) -> (Place, Place) {
    (place(network.network()), place(network.broadcast()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Networks {
        Networks::read(texts.iter().copied()).expect("networks")
    }

    fn has(networks: &Networks, address: &str) -> bool {
        networks.contains(address.parse().expect("an address"))
    }

    #[test]
    fn addresses_and_networks_of_both_families_are_read() {
        for (text, network) in [
            ("10.0.0.1", "10.0.0.1/32"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("::1", "::1/128"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::ffff:10.0.0.1", "10.0.0.1/32"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(super::network(text).expect(text).to_string(), network);
        }
    }

    #[test]
    fn both_ends_of_a_network_belong_to_it() {
        let networks = networks(&["10.1.0.0/16", "2001:db8::/32", "192.0.2.7"]);
        for address in [
            "10.1.0.0",
            "10.1.255.255",
            "2001:db8::",
            "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
            "192.0.2.7",
            "::ffff:10.1.2.3",
        ] {
            assert!(has(&networks, address), "{address}");
        }
        for address in [
            "10.0.255.255",
            "10.2.0.0",
            "2001:db7:ffff::",
            "2001:db9::",
            "192.0.2.6",
            "192.0.2.8",
        ] {
            assert!(!has(&networks, address), "{address}");
        }
    }

    #[test]
    fn networks_inside_others_hide_nothing() {
        let networks = networks(&["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "0.0.0.0/32"]);
        assert!(has(&networks, "10.200.0.1"));
        assert!(has(&networks, "0.0.0.0"));
        assert!(!has(&networks, "11.0.0.0"));
        assert!(!has(&Networks::default(), "10.0.0.1"));
    }

    #[test]
    fn the_whole_of_one_version_holds_none_of_the_other() {
        for all in ["::/0", "::/80"] {
            assert!(!has(&networks(&[all]), "10.0.0.1"));
            assert!(!has(&networks(&[all]), "::ffff:10.0.0.1"));
            assert!(has(&networks(&[all]), "::1"));
        }
        assert!(has(&networks(&["::/0"]), "2001:db8::1"));
        assert!(has(&networks(&["::ffff:0:0/96"]), "10.0.0.1"));
        assert!(!has(&networks(&["0.0.0.0/0"]), "2001:db8::1"));
        assert!(has(&networks(&["0.0.0.0/0", "::/0"]), "10.0.0.1"));
    }
}
