//! The provider's keys at run time: made when missing, rotated when due.

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use super::config::KeysConfig;
use super::error::Fault;
use doorward_core::clock::Clock;
use doorward_core::jose::jwks::KeySet;
use doorward_core::jose::keys::{self, KeyError, KeyRing};
use doorward_core::jose::sign::Signer;
use doorward_core::jose::vault::Vault;
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::client::SignAlg;
use doorward_core::model::grant::{MAX_TOKEN_LIFE_MS, StoredKey};
use doorward_store::Store;

/// How long a successor made by command is published before it signs, in
/// milliseconds: four times what caches may keep the key set for.
pub const AHEAD_MS: i64 = 3600 * 1000;

/// The keys.
pub(super) struct Keys {
    store: Arc<Store>,
    clock: Clock,
    vault: Vault,
    current: ArcSwap<Current>,
    /// Algorithms of which there must be a key before one is asked for.
    wanted: Mutex<BTreeSet<SignAlg>>,
    /// Held while a key is made: the others wait for that one.
    making: AsyncMutex<()>,
    /// Held from a reading to its installation: what was read earlier must not
    /// take the place of what was read later.
    reading: AsyncMutex<()>,
}

/// What was read from the store last.
#[derive(Default)]
pub(super) struct Current {
    pub(super) ring: KeyRing,
    /// The published keys, to verify with.
    pub(super) verifiers: KeySet,
    /// Grows each time that they are read.
    pub(super) generation: u64,
}

impl Keys {
    /// Reads the keys, and makes the one for access tokens if there is none;
    /// that takes no noticeable time.
    pub(super) async fn open(store: Arc<Store>, clock: Clock, vault: Vault) -> Result<Self, Fault> {
        let keys = Self {
            store,
            clock,
            vault,
            current: ArcSwap::default(),
            wanted: Mutex::default(),
            making: AsyncMutex::new(()),
            reading: AsyncMutex::new(()),
        };
        keys.seal_all().await?;
        keys.reload().await?;
        keys.signer(SignAlg::ES256).await?;
        Ok(keys)
    }

    /// Brings the stored keys under the master key of now.
    async fn seal_all(&self) -> Result<(), Fault> {
        for key in self.store.signing_keys().await? {
            if let Some(sealed) = self.vault.seal(&key)? {
                let store = &self.store;
                store
                    .replace_private_key(&key.kid, &key.pkcs8, &sealed)
                    .await?;
            }
        }
        Ok(())
    }

    /// Reads the keys again.
    pub(super) async fn reload(&self) -> Result<(), Fault> {
        let _reading = self.reading.lock().await;
        let stored = self.store.signing_keys().await?;
        let previous = self.current.load();
        let ring = KeyRing::parse(&stored, &self.vault, &previous.ring)?;
        let current = Current {
            verifiers: ring.verifiers(self.clock.now_ms()),
            generation: previous.generation + 1,
            ring,
        };
        self.current.store(Arc::new(current));
        Ok(())
    }

    /// The keys as last read.
    pub(super) fn current(&self) -> Arc<Current> {
        self.current.load_full()
    }

    /// The key that signs with `alg` now. The first use of an algorithm makes
    /// its first key and waits for it.
    pub(super) async fn signer(&self, alg: SignAlg) -> Result<Arc<Signer>, Fault> {
        let active = || {
            let now_ms = self.clock.now_ms();
            self.current.load().ring.signer(alg, now_ms).cloned()
        };
        if let Some(signer) = active() {
            return Ok(signer);
        }
        let _making = self.making.lock().await;
        if active().is_none() {
            self.add(alg, self.clock.now_ms()).await?;
        }
        active().ok_or(Fault::Key(KeyError::Generation))
    }

    /// From now on there are to be keys of these algorithms: clients hold the
    /// published ones for a while, and take no token whose key is not there.
    pub(super) fn want(&self, algs: impl IntoIterator<Item = SignAlg>) {
        let own = algs.into_iter().filter(|alg| !alg.is_shared());
        self.wanted.lock().extend(own);
    }

    /// Makes the wanted keys that are missing, or waits for those that are
    /// being made.
    pub(super) async fn make_wanted(&self) -> Result<(), Fault> {
        let wanted = self.wanted.lock().clone();
        for alg in wanted {
            self.signer(alg).await?;
        }
        Ok(())
    }

    async fn add(&self, alg: SignAlg, active_from_ms: i64) -> Result<(), Fault> {
        let key = self.made(alg, active_from_ms).await?;
        let others_expire_ms = active_from_ms.saturating_add(MAX_TOKEN_LIFE_MS);
        let added = self
            .store
            .add_signing_key(&key, others_expire_ms, false, None);
        if added.await? {
            tracing::info!(
                kid = key.kid,
                alg = alg.as_str(),
                active_from_ms,
                "signing key made"
            );
        }
        self.reload().await
    }

    /// Makes a successor by command: published at once, signing after
    /// [`AHEAD_MS`], or `now` in the place of all that were to come; with
    /// `drop_old` the older keys are withdrawn. `None`: there is one already that
    /// will sign as late.
    pub(super) async fn rotate(
        &self,
        alg: SignAlg,
        now: bool,
        drop_old: bool,
        audit: Option<&PendingAudit>,
    ) -> Result<Option<StoredKey>, Fault> {
        let _making = self.making.lock().await;
        let now_ms = self.clock.now_ms();
        let from_ms = if now { now_ms } else { now_ms + AHEAD_MS };
        let key = self.made(alg, from_ms).await?;
        let others_expire_ms = if drop_old {
            now_ms
        } else {
            from_ms.saturating_add(MAX_TOKEN_LIFE_MS)
        };
        let added = self
            .store
            .add_signing_key(&key, others_expire_ms, now, audit);
        let added = added.await?;
        self.reload().await?;
        if added {
            tracing::warn!(
                kid = key.kid,
                alg = alg.as_str(),
                active_from_ms = from_ms,
                drop_old,
                "signing key rotated by command"
            );
        }
        Ok(added.then_some(key))
    }

    /// A new key, sealed.
    async fn made(&self, alg: SignAlg, active_from_ms: i64) -> Result<StoredKey, Fault> {
        let now_ms = self.clock.now_ms();
        let made = tokio::task::spawn_blocking(move || keys::generate(alg, now_ms, active_from_ms));
        let mut key = made.await.map_err(|_| KeyError::Generation)??;
        if let Some(sealed) = self.vault.seal(&key)? {
            key.pkcs8 = sealed;
        }
        Ok(key)
    }

    /// Makes the successors that are due.
    pub(super) async fn rotate_due(&self, config: &KeysConfig) -> Result<(), Fault> {
        if config.rotate_days == 0 {
            return Ok(());
        }
        let period = i64::from(config.rotate_days) * 24 * 3600 * 1000;
        let ahead = i64::from(config.publish_ahead_hours) * 3600 * 1000;
        for alg in SignAlg::OWN {
            let now_ms = self.clock.now_ms();
            let newest = self.current.load().ring.newest_activation(alg);
            if let Some(newest) = newest.filter(|newest| newest + period - ahead <= now_ms) {
                let _making = self.making.lock().await;
                let from = (newest + period).max(now_ms + ahead);
                self.add(alg, from).await?;
            }
        }
        Ok(())
    }
}

/// `next` before a key signs, `active` while it does, `old` afterwards; `all`
/// are those of the store.
pub fn state_of(key: &StoredKey, all: &[StoredKey], now_ms: i64) -> &'static str {
    let follows = |other: &StoredKey| {
        other.alg == key.alg
            && other.active_from_ms > key.active_from_ms
            && other.active_from_ms <= now_ms
    };
    let ended = key.expires_ms.is_some_and(|end| end <= now_ms);
    if key.active_from_ms > now_ms && !ended {
        "next"
    } else if ended || all.iter().any(follows) {
        "old"
    } else {
        "active"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorward_core::model::secret::Secret;
    use doorward_store as store;

    #[tokio::test]
    async fn private_keys_are_brought_under_the_master_key() {
        let directory = tempfile::tempdir().expect("a directory");
        let url = format!("sqlite:{}", directory.path().join("db").display());
        let store = store::open(&url).await.expect("a store");
        let clock = Clock::manual(1_000_000);
        let open = |texts: &[&str]| {
            let texts: Vec<_> = texts.iter().map(|text| Secret::new(*text)).collect();
            let vault = Vault::new(&texts).expect("a vault");
            Keys::open(Arc::clone(&store), clock.clone(), vault)
        };
        let kid = async |keys: &Keys| {
            let signer = keys.signer(SignAlg::ES256).await.expect("a key");
            signer.kid().map(str::to_owned)
        };
        let plain = open(&[]).await.expect("keys");
        let (one, two) = ("1".repeat(32), "2".repeat(32));
        let sealed = open(&[&one]).await.expect("keys");
        assert_eq!(kid(&sealed).await, kid(&plain).await);
        sealed.signer(SignAlg::EdDSA).await.expect("a new key");
        for key in store.signing_keys().await.expect("keys") {
            assert!(key.pkcs8.expose().starts_with("sealed:"));
        }
        for wrong in [&[][..], &[two.as_str()]] {
            let refused = open(wrong).await;
            assert!(matches!(refused, Err(Fault::Key(KeyError::Sealed))));
        }
        let changed = open(&[&two, &one]).await.expect("keys");
        assert_eq!(kid(&changed).await, kid(&plain).await);
        assert!(open(&[&two]).await.is_ok());
    }

    async fn opened(directory: &tempfile::TempDir, clock: &Clock) -> Keys {
        let url = format!("sqlite:{}", directory.path().join("db").display());
        let store = store::open(&url).await.expect("a store");
        let keys = Keys::open(store, clock.clone(), Vault::default()).await;
        keys.expect("keys")
    }

    #[tokio::test]
    async fn a_leaked_successor_does_not_stand_in_the_way_of_another() {
        let directory = tempfile::tempdir().expect("a directory");
        let clock = Clock::manual(1_000_000);
        let keys = opened(&directory, &clock).await;
        let published = || {
            let jwks = keys.current().ring.jwks(clock.now_ms());
            jwks["keys"].as_array().cloned().unwrap_or_default()
        };
        clock.advance(1000);
        let ahead = keys.rotate(SignAlg::ES256, false, false, None).await;
        assert!(ahead.expect("rotated").is_some());
        assert_eq!(published().len(), 2);
        clock.advance(1000);
        let new = keys.rotate(SignAlg::ES256, true, true, None).await;
        let new = new.expect("rotated").expect("a key");
        assert_eq!(published().len(), 1, "nothing of what leaked is believed");
        assert_eq!(published()[0]["kid"], new.kid.as_str());
        clock.advance(2 * AHEAD_MS);
        let signer = keys.signer(SignAlg::ES256).await.expect("a key");
        assert_eq!(signer.kid(), Some(new.kid.as_str()));
    }

    #[tokio::test]
    async fn what_was_read_earlier_is_not_installed_later() {
        let directory = tempfile::tempdir().expect("a directory");
        let clock = Clock::manual(1_000_000);
        let keys = opened(&directory, &clock).await;
        let reading = keys.reading.lock().await;
        let change = async {
            let key = keys::generate(SignAlg::ES384, 1, 1).expect("a key");
            let added = keys.store.add_signing_key(&key, 0, false, None).await;
            assert!(added.expect("an answer"));
            drop(reading);
        };
        let (read, ()) = tokio::join!(keys.reload(), change);
        read.expect("read");
        let ring = &keys.current().ring;
        assert!(ring.signer(SignAlg::ES384, clock.now_ms()).is_some());
    }

    #[tokio::test]
    async fn a_due_successor_is_published_ahead_and_made_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let url = format!("sqlite:{}", directory.path().join("db").display());
        let store = store::open(&url).await.expect("a store");
        let clock = Clock::manual(1_000_000);
        let keys = Keys::open(store, clock.clone(), Vault::default());
        let keys = keys.await.expect("keys");
        let config = KeysConfig {
            rotate_days: 2,
            publish_ahead_hours: 24,
            ..KeysConfig::default()
        };
        let published = || {
            let jwks = keys.current().ring.jwks(clock.now_ms());
            jwks["keys"].as_array().map_or(0, Vec::len)
        };
        let kid = async || {
            let signer = keys.signer(SignAlg::ES256).await.expect("a key");
            signer.kid().map(str::to_owned)
        };
        let first = kid().await;
        let day = 24 * 3600 * 1000;
        keys.rotate_due(&config).await.expect("nothing due");
        assert_eq!(published(), 1);
        clock.advance(day);
        keys.rotate_due(&config).await.expect("rotated");
        keys.rotate_due(&config).await.expect("nothing due");
        assert_eq!(published(), 2);
        assert_eq!(kid().await, first, "the successor signs before its time");
        clock.advance(day);
        assert_ne!(kid().await, first);
        clock.advance(31 * day);
        assert_eq!(published(), 1, "the old key outlived its last token");
    }
}
