//! Networks that the configuration lists.

use std::net::IpAddr;

use ipnet::IpNet;

/// Whether one of `networks` includes `address`; an IPv4 address in IPv6 is itself.
pub fn include(networks: &[IpNet], address: IpAddr) -> bool {
    // Most lists are empty.
    !networks.is_empty() && {
        let address = address.to_canonical();
        networks.iter().any(|network| network.contains(&address))
    }
}
