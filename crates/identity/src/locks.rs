//! Locks that are set, told to other nodes, and lifted.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use super::config::LockoutConfig;
use super::lockout::{Attempt, LockedOut, NewLock};
use super::network::network;
use super::{Call, State, audit};
use doorward_core::model::audit::{Kind, PendingAudit};
use doorward_core::model::lockout::{LockKind, StoredLock};
use doorward_net::http::ClientInfo;
use doorward_store::StoreError;

/// Addresses are locked for every realm: who tries names of one tries those of
/// the others.
pub(super) const EVERYWHERE: &str = "";

/// How far clocks of nodes may differ, in milliseconds.
const SKEW_MS: i64 = 120_000;

/// Attempts under way for one request: of its name, and of its address.
#[derive(Debug)]
pub(super) struct Attempts {
    realm: String,
    names: LockoutConfig,
    addresses: LockoutConfig,
    name: Attempt,
    address: Option<(String, Attempt)>,
}

/// The address that failures of this request count for; none where that is not
/// counted.
pub(super) fn counted_address(call: &Call) -> Option<IpAddr> {
    let info = call.parts.extensions.get::<ClientInfo>()?;
    let address = info.addr.ip().to_canonical();
    // Parts of this process that ask for nobody have none.
    if address.is_unspecified() {
        return None;
    }
    let live = &call.live;
    let exempt = live.exempt.iter().any(|network| network.contains(&address));
    (!exempt).then_some(address)
}

impl State {
    /// Whether this name of a realm, or this address, is locked; counts nothing.
    pub(super) fn is_locked(
        &self,
        (realm, key): (&str, &str),
        address: Option<IpAddr>,
        now_ms: i64,
    ) -> bool {
        let address = address.map(network);
        let by_address = |address: &String| self.addresses.is_locked(EVERYWHERE, address, now_ms);
        address.as_ref().is_some_and(by_address) || self.lockout.is_locked(realm, key, now_ms)
    }

    /// Begins an attempt when both the name and the address have one free.
    pub(super) async fn begin_attempts(
        &self,
        (realm, key): (&str, &str),
        address: Option<IpAddr>,
        now_ms: i64,
    ) -> Result<Attempts, LockedOut> {
        let (names, addresses) = {
            let live = self.live();
            let section = &live.config.lockout;
            (section.into(), (&section.per_address).into())
        };
        let address = match address.map(network) {
            None => None,
            Some(address) => {
                let begun = self
                    .addresses
                    .begin(&addresses, EVERYWHERE, &address, now_ms);
                let begun = begun.await?;
                Some((address, begun))
            }
        };
        let name = self.lockout.begin(&names, realm, key, now_ms).await?;
        Ok(Attempts {
            realm: realm.to_owned(),
            names,
            addresses,
            name,
            address,
        })
    }

    /// Notes that the password was wrong; `user` is who has the name.
    pub(super) async fn failed(&self, attempts: Attempts, user: Option<String>, now_ms: i64) {
        let by_name = attempts.name.failed(&attempts.names, now_ms);
        let by_address = attempts.address.and_then(|(address, attempt)| {
            let locking = attempt.failed(&attempts.addresses, now_ms)?;
            Some((address, locking))
        });
        if let Some(locking) = by_name {
            let realm = attempts.realm;
            let lock = stored(LockKind::Name, realm, user, locking, now_ms);
            self.tell_lock(lock).await;
        }
        if let Some((address, locking)) = by_address {
            let realm = EVERYWHERE.to_owned();
            let lock = stored(LockKind::Address, realm, Some(address), locking, now_ms);
            self.tell_lock(lock).await;
        }
    }

    /// Tells other nodes, and this one after a restart, of a lock. It holds
    /// here, whether that works or not.
    pub(super) async fn tell_lock(&self, lock: StoredLock) {
        let kind = lock.kind.as_str();
        doorward_net::telemetry::warn_limited!(
            kind,
            realm = lock.realm,
            subject = lock.subject.as_deref().unwrap_or("nobody"),
            seconds = (lock.until_ms - lock.set_ms) / 1000,
            "locked or slowed down after wrong passwords or secrets"
        );
        if let Some(metrics) = self.metrics.get() {
            metrics.locks(kind).inc();
        }
        audit::note(self, Kind::LockoutBegin, |event| event.with("cause", kind));
        if let Err(error) = self.store.put_lock(&lock, None).await {
            doorward_net::telemetry::warn_limited!(%error, "other nodes are not told of a lock");
        }
    }

    /// Learns of locks that other nodes set or lifted.
    pub(super) async fn read_locks(&self) -> Result<(), StoreError> {
        let now_ms = self.clock.now_ms();
        let since_ms = self.locks_read_ms.load(Ordering::Acquire);
        for lock in self.store.locks(since_ms, now_ms).await? {
            self.take_in(&lock);
        }
        self.locks_read_ms
            .store(now_ms - SKEW_MS, Ordering::Release);
        Ok(())
    }

    /// Lifts these locks, everywhere: those of a realm, or that of one name or
    /// address. Says how many there were.
    pub(super) async fn lift_locks(
        &self,
        locks: &[StoredLock],
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        for lock in locks {
            let lifted = StoredLock {
                until_ms: 0,
                locks: 0,
                set_ms: now_ms.max(lock.set_ms + 1),
                ..lock.clone()
            };
            self.store.put_lock(&lifted, audit).await?;
            self.take_in(&lifted);
        }
        Ok(())
    }

    fn take_in(&self, lock: &StoredLock) {
        match lock.kind {
            LockKind::Name => self.lockout.take_in(lock),
            LockKind::Address => self.addresses.take_in(lock),
            LockKind::Client => self.take_in_brake(lock),
        }
    }
}

impl Attempts {
    /// The password was right: the failures of the name are forgotten. Those of
    /// the address are not: who guesses may have an account, too.
    pub(super) fn succeeded(self) {
        self.name.succeeded();
    }
}

fn stored(
    kind: LockKind,
    realm: String,
    subject: Option<String>,
    locking: NewLock,
    now_ms: i64,
) -> StoredLock {
    StoredLock {
        id: locking.id,
        kind,
        realm,
        subject,
        until_ms: locking.until_ms,
        locks: locking.locks,
        set_ms: now_ms,
    }
}
