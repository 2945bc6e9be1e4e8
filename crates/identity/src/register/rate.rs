//! How often strangers may register clients, by the network they come from.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use quick_cache::sync::Cache;

use crate::network::network;

/// Networks that are counted at once. When strangers come from more, those
/// longest without a registration are forgotten; the realm's `max_clients`
/// holds all the same.
const MOST: usize = 20_000;

/// One minute, in milliseconds.
const MINUTE_MS: i64 = 60 * 1000;

/// A network's registrations in the minute that began then.
#[derive(Clone, Copy, Debug, Default)]
struct Minute {
    began_ms: i64,
    registrations: u32,
}

/// Registrations of strangers.
#[derive(Debug)]
pub(crate) struct Rate(Cache<(String, String), Arc<Mutex<Minute>>>);

impl Rate {
    pub(crate) fn new() -> Self {
        Self(Cache::new(MOST))
    }

    /// Counts a registration in a realm; fails with the seconds to wait when
    /// there were `most` within a minute. 0: any number.
    pub(super) fn admit(
        &self,
        realm: &str,
        address: IpAddr,
        most: u32,
        now_ms: i64,
    ) -> Result<(), i64> {
        if most == 0 {
            return Ok(());
        }
        let key = (realm.to_owned(), network(address));
        let Ok(minute) = self
            .0
            .get_or_insert_with(&key, || Ok::<_, std::convert::Infallible>(Arc::default()));
        let mut minute = minute.lock().unwrap_or_else(PoisonError::into_inner);
        let since_ms = now_ms - minute.began_ms;
        if !(0..MINUTE_MS).contains(&since_ms) {
            *minute = Minute {
                began_ms: now_ms,
                registrations: 0,
            };
        } else if minute.registrations >= most {
            return Err((MINUTE_MS - since_ms + 999) / 1000);
        }
        minute.registrations += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_registers_so_often_in_a_minute() {
        let rate = Rate::new();
        let one: IpAddr = "192.0.2.1".parse().expect("an address");
        let admit = |address, now_ms| rate.admit("/", address, 2, now_ms);
        assert_eq!(admit(one, 1_000_000), Ok(()));
        assert_eq!(admit(one, 1_000_100), Ok(()));
        assert_eq!(admit(one, 1_000_200), Err(60));
        assert_eq!(rate.admit("/other", one, 2, 1_000_200), Ok(()));
        let mapped = "::ffff:192.0.2.1".parse().expect("an address");
        assert_eq!(admit(mapped, 1_059_500), Err(1));
        assert_eq!(admit(one, 1_060_000), Ok(()));
        assert_eq!(rate.admit("/", one, 0, 1_060_000), Ok(()));
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_together() {
        let rate = Rate::new();
        let admit = |address: &str| {
            let address = address.parse().expect("an address");
            rate.admit("/", address, 1, 1_000_000)
        };
        assert!(admit("2001:db8:1:2::1").is_ok());
        assert!(admit("2001:db8:1:2:ffff::9").is_err());
        assert!(admit("2001:db8:1:3::1").is_ok());
    }
}
