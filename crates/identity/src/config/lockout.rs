//! What happens after wrong passwords, as written.

use serde::Deserialize;

use doorward_net::http::guess_limit::GuessLimitConfig;

/// Locking names and addresses after wrong passwords. Unknown names lock alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LockoutSection {
    /// Failures of a name within `window` that lock it; 0 switches that off.
    pub failures: u32,
    /// Seconds over which failures count.
    pub window: u32,
    /// Seconds of the first lock; each one that follows takes twice as long,
    /// up to an hour. No lock is for ever: strangers could lock anybody out.
    pub duration: u32,
    /// The same for addresses, whatever names are tried from there.
    pub per_address: AddressLockout,
    /// Slowing down guesses of a client's secret from an address.
    pub per_client: GuessLimitConfig,
}

impl Default for LockoutSection {
    fn default() -> Self {
        Self {
            failures: 10,
            window: 300,
            duration: 60,
            per_address: AddressLockout::default(),
            per_client: GuessLimitConfig::default(),
        }
    }
}

/// Locking addresses (of IPv6: networks of 64 bits) after wrong passwords.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AddressLockout {
    /// Failures within `window` that lock; 0 switches it off. Many people may
    /// share an address.
    pub failures: u32,
    /// Seconds over which failures count.
    pub window: u32,
    /// Seconds of the first lock, as for names.
    pub duration: u32,
    /// Addresses and networks that are not counted: applications that sign in
    /// people who come to them.
    pub exempt: Vec<String>,
}

impl Default for AddressLockout {
    fn default() -> Self {
        Self {
            failures: 300,
            window: 300,
            duration: 60,
            exempt: Vec::new(),
        }
    }
}

/// How many failures lock, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct LockoutConfig {
    /// Failures within `window` that lock; 0: nothing is counted.
    pub failures: u32,
    /// Seconds over which failures count.
    pub window: u32,
    /// Seconds of the first lock.
    pub duration: u32,
}

impl From<&LockoutSection> for LockoutConfig {
    fn from(section: &LockoutSection) -> Self {
        Self {
            failures: section.failures,
            window: section.window,
            duration: section.duration,
        }
    }
}

impl From<&AddressLockout> for LockoutConfig {
    fn from(section: &AddressLockout) -> Self {
        Self {
            failures: section.failures,
            window: section.window,
            duration: section.duration,
        }
    }
}
