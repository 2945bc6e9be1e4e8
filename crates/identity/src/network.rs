//! What strangers are counted by.

use std::net::IpAddr;

/// The network of an address that belongs to one subscriber: who has one
/// address of IPv6 has all of its /64.
pub(super) fn network(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}")
        }
    }
}
