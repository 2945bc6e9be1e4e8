//! Hashing passwords, a bounded number at a time.
//!
//! Each Argon2id hash takes 19 MiB and tens of milliseconds of a core. Hashes
//! run on the blocking pool, as many at once as there are permits; a short
//! queue waits, whoever comes later is told to come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ahash::RandomState;
use arc_swap::ArcSwapOption;
use argon2::password_hash::PasswordHasher;
use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::IdentityError;
use super::config::HashingConfig;
use super::password_policy::{Rules, Violation, prepared_secret, refusal_text};
use super::stored_hash::StoredHash;
use doorward_core::clock::random_bytes;
use doorward_core::model::secret::Secret;

/// Longest password, in bytes.
pub(super) const PASSWORD_MAX: usize = 1024;

/// Longest wait for a turn. Who is told to come back is told soon: the answer
/// is sent within two seconds, whatever a hash costs.
const WAIT: Duration = Duration::from_millis(1500);

/// The queue is full, or did not move on in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many passwords are being checked")]
pub(super) struct Busy;

/// Why there is no hash of a new password.
#[derive(Debug, thiserror::Error)]
pub(super) enum NewPasswordError {
    /// The rules of the realm don't allow it.
    #[error("{}", refusal_text(.0))]
    Refused(Vec<Violation>),
    /// It could not be judged.
    #[error(transparent)]
    Busy(#[from] Busy),
}

/// The bounded pool.
#[derive(Debug)]
pub(super) struct Hasher {
    permits: Arc<Semaphore>,
    /// Requests that hash or wait to.
    inside: AtomicUsize,
    room: usize,
    /// How long a request waits for its turn.
    wait: Duration,
    params: Params,
    /// How hashes of this cost begin.
    prefix: String,
    /// A hash that no password has, as costly to check as the real ones.
    dummy: StoredHash,
    /// What else hashes of users cost.
    costs: Costs,
}

/// A place inside, given back on drop, also when the request goes away.
#[derive(Debug)]
pub(super) struct QueueSlot<'a> {
    inside: &'a AtomicUsize,
    /// When its request stops waiting for a turn.
    until: Instant,
}

impl QueueSlot<'_> {
    /// What `waited` gives, if that comes before the place's time is over.
    pub(super) async fn wait<T>(&self, waited: impl Future<Output = T>) -> Result<T, Busy> {
        timeout_at(self.until, waited).await.map_err(|_| Busy)
    }
}

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        self.inside.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Hasher {
    /// The pool that `config` describes.
    pub(super) fn new(config: &HashingConfig) -> Result<Self, IdentityError> {
        let params = Params::new(config.memory_kib, config.passes, config.lanes, None)
            .map_err(|error| IdentityError::config("hashing", error.to_string()))?;
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let parallel = if config.parallel == 0 {
            cores()
        } else {
            config.parallel
        };
        let encode = |bytes: &[u8]| STANDARD_NO_PAD.encode(bytes);
        let prefix = format!(
            "$argon2id$v=19$m={},t={},p={}$",
            config.memory_kib, config.passes, config.lanes,
        );
        let dummy = format!(
            "{prefix}{}${}",
            encode(&random_bytes::<16>()),
            encode(&random_bytes::<32>()),
        );
        Ok(Self {
            permits: Arc::new(Semaphore::new(parallel)),
            inside: AtomicUsize::new(0),
            room: parallel.saturating_mul(config.queue.saturating_add(1)),
            wait: WAIT,
            params,
            prefix,
            dummy: StoredHash::read(&Secret::new(dummy))
                .map_err(|error| IdentityError::config("hashing", error.to_string()))?,
            costs: Costs::new(),
        })
    }

    /// Takes a place inside, for any number of hashes one after the other.
    pub(super) fn enter(&self) -> Result<QueueSlot<'_>, Busy> {
        let inside = self.inside.fetch_add(1, Ordering::AcqRel);
        let slot = QueueSlot {
            inside: &self.inside,
            until: Instant::now() + self.wait,
        };
        (inside < self.room).then_some(slot).ok_or(Busy)
    }

    /// Hashes a new password, in PHC form, if the rules allow it.
    pub(super) async fn hash_new(
        &self,
        slot: &QueueSlot<'_>,
        password: &Secret,
        rules: Arc<Rules>,
        own: Vec<String>,
    ) -> Result<Secret, NewPasswordError> {
        let length = rules.check_length(password.expose());
        length.map_err(|wrong| NewPasswordError::Refused(vec![wrong]))?;
        let (argon2, password) = (self.argon2(), password.clone());
        let judged = self.run(slot, move || {
            rules.check(password.expose(), &own)?;
            Ok(hash_now(&argon2, &prepared_secret(&password)))
        });
        let hash = judged.await?.map_err(NewPasswordError::Refused)?;
        hash.ok_or(NewPasswordError::Busy(Busy))
    }

    /// Hashes a password, in PHC form.
    pub(super) async fn hash(
        &self,
        slot: &QueueSlot<'_>,
        password: &Secret,
    ) -> Result<Secret, Busy> {
        let (argon2, password) = (self.argon2(), password.clone());
        let hash = self.run(slot, move || hash_now(&argon2, &password)).await?;
        hash.ok_or(Busy)
    }

    /// Whether `password` has this hash. Without a hash the answer is no, and
    /// takes as long.
    pub(super) async fn verify(
        &self,
        slot: &QueueSlot<'_>,
        password: Secret,
        hash: Option<Secret>,
    ) -> Result<bool, Busy> {
        let hash = hash.and_then(|hash| StoredHash::read(&hash).ok());
        let known = hash.is_some();
        let hash = Arc::new(hash.unwrap_or_else(|| self.dummy.clone()));
        let fits = self.fits(slot, password, hash).await?;
        Ok(known && fits)
    }

    /// Whether `password` is that of the user `key` of `realm`, who has this
    /// hash. Without one the answer is no, and takes as long as for users whose
    /// names are as near.
    pub(super) async fn verify_user(
        &self,
        slot: &QueueSlot<'_>,
        (realm, key): (&str, &str),
        password: Secret,
        hash: Option<Secret>,
    ) -> Result<bool, Busy> {
        let hash = hash.and_then(|hash| {
            let current = self.is_current(&hash);
            Some((StoredHash::read(&hash).ok()?, current))
        });
        match hash {
            Some((hash, current)) => {
                let usual = (!current).then(|| hash.of_nobody());
                self.costs.learn(realm, key, usual);
                self.fits(slot, password, Arc::new(hash)).await
            }
            None => {
                let usual = self.costs.usual(realm, key);
                let hash = usual.unwrap_or_else(|| Arc::new(self.dummy.clone()));
                self.fits(slot, password, hash).await.map(|_| false)
            }
        }
    }

    async fn fits(
        &self,
        slot: &QueueSlot<'_>,
        password: Secret,
        hash: Arc<StoredHash>,
    ) -> Result<bool, Busy> {
        let also = hash.is_cheap().then(|| self.dummy.clone());
        let work = move || {
            // Hashes from elsewhere, and older ones, are of what was typed.
            let prepared = prepared_secret(&password);
            let fits = hash.fits(&prepared) || (prepared != password && hash.fits(&password));
            // To guess at a weak hash takes as long as at any other.
            let dearer = also.is_some_and(|dummy| dummy.fits(&prepared));
            fits && !dearer
        };
        self.run(slot, work).await
    }

    /// Whether a hash costs what new ones do. Checking one that does not
    /// takes another time than the dummy, and so tells who exists.
    pub(super) fn is_current(&self, hash: &Secret) -> bool {
        hash.expose().starts_with(&self.prefix)
    }

    fn argon2(&self) -> Argon2<'static> {
        Argon2::new(Algorithm::Argon2id, Version::V0x13, self.params.clone())
    }

    async fn run<T: Send + 'static>(
        &self,
        slot: &QueueSlot<'_>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Busy> {
        let permit = slot.wait(Arc::clone(&self.permits).acquire_owned());
        let permit = permit.await?.map_err(|_| Busy)?;
        let work = move || {
            // Held by the work itself: a request that goes away does not make
            // room for another before its hash is done.
            let _permit = permit;
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| Busy)
    }
}

/// Buckets of names.
const BUCKETS: usize = 64;

/// What hashes cost that are not of the usual cost, by buckets of names.
///
/// Where hashes of another kind were imported, names that nobody has must cost
/// what those of users do, or the time tells who exists. Each name falls into a
/// bucket, always the same one, which costs what the last known name in it did.
#[derive(Debug)]
struct Costs {
    keys: RandomState,
    buckets: [ArcSwapOption<StoredHash>; BUCKETS],
}

impl Costs {
    fn new() -> Self {
        Self {
            keys: RandomState::new(),
            buckets: std::array::from_fn(|_| ArcSwapOption::empty()),
        }
    }

    fn bucket(&self, realm: &str, key: &str) -> &ArcSwapOption<StoredHash> {
        let buckets = u64::try_from(BUCKETS).unwrap_or(u64::MAX);
        let hash = self.keys.hash_one((realm, key)) % buckets;
        &self.buckets[usize::try_from(hash).unwrap_or_default()]
    }

    /// A user's hash costs as much as this; `None`: the usual.
    fn learn(&self, realm: &str, key: &str, cost: Option<StoredHash>) {
        let bucket = self.bucket(realm, key);
        if cost.is_some() || bucket.load().is_some() {
            bucket.store(cost.map(Arc::new));
        }
    }

    /// What the hash of a name costs that nobody has, unless the usual.
    fn usual(&self, realm: &str, key: &str) -> Option<Arc<StoredHash>> {
        self.bucket(realm, key).load_full()
    }
}

fn hash_now(argon2: &Argon2<'_>, password: &Secret) -> Option<Secret> {
    let salt = random_bytes::<16>();
    let hash: PasswordHash = argon2
        .hash_password_with_salt(password.expose().as_bytes(), &salt)
        .ok()?;
    Some(Secret::new(hash.to_string()))
}

/// Hashes a password here and now, at the cost that the server checks at: for
/// the command line.
///
/// # Errors
/// When the cost can't be met.
pub fn hash_blocking(password: &Secret, config: &HashingConfig) -> Result<Secret, IdentityError> {
    let hasher = Hasher::new(config)?;
    let hash = hash_now(&hasher.argon2(), password);
    hash.ok_or_else(|| IdentityError::config("hashing", "the password could not be hashed"))
}

/// The same for a new password: in the form in which new ones are hashed.
///
/// # Errors
/// When the cost can't be met.
pub fn hash_new_blocking(
    password: &Secret,
    config: &HashingConfig,
) -> Result<Secret, IdentityError> {
    hash_blocking(&prepared_secret(password), config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cheap(parallel: usize, queue: usize) -> Hasher {
        let config = HashingConfig {
            memory_kib: 8,
            passes: 1,
            lanes: 1,
            parallel,
            queue,
        };
        Hasher::new(&config).expect("a pool")
    }

    async fn verify(hasher: &Hasher, text: &str, hash: Option<Secret>) -> Result<bool, Busy> {
        let slot = hasher.enter()?;
        hasher.verify(&slot, Secret::new(text), hash).await
    }

    #[tokio::test]
    async fn only_the_right_password_fits() {
        let hasher = cheap(1, 4);
        let slot = hasher.enter().expect("a place");
        let hash = hasher.hash(&slot, &Secret::new("correct")).await;
        let hash = hash.expect("a hash");
        assert!(hash.expose().starts_with("$argon2id$v=19$m=8,t=1,p=1$"));
        assert_eq!(
            verify(&hasher, "correct", Some(hash.clone())).await,
            Ok(true)
        );
        assert_eq!(verify(&hasher, "wrong", Some(hash)).await, Ok(false));
        assert_eq!(verify(&hasher, "correct", None).await, Ok(false));
    }

    #[tokio::test]
    async fn a_full_queue_sheds() {
        let hasher = cheap(1, 1);
        let permit = hasher.permits.acquire().await.expect("a permit");
        let mut first = Box::pin(verify(&hasher, "x", None));
        let mut second = Box::pin(verify(&hasher, "x", None));
        assert!(futures_util::poll!(&mut first).is_pending());
        assert!(futures_util::poll!(&mut second).is_pending());
        assert_eq!(verify(&hasher, "x", None).await, Err(Busy));
        drop(permit);
        // A request that went away has given its place back.
        drop(first);
        assert_eq!(second.await, Ok(false));
        assert_eq!(verify(&hasher, "x", None).await, Ok(false));
    }

    #[test]
    fn a_name_that_nobody_has_costs_what_its_neighbours_do() {
        let hasher = cheap(1, 1);
        let costs = &hasher.costs;
        let names: Vec<_> = (0..500).map(|n| format!("user-{n}")).collect();
        let unusual = || names.iter().filter(|name| costs.usual("/", name).is_some());
        assert_eq!(unusual().count(), 0);
        costs.learn("/", "demo", Some(hasher.dummy.clone()));
        let near = unusual().count();
        assert!((1..100).contains(&near), "{near} of 500");
        costs.learn("/", "demo", None);
        assert_eq!(unusual().count(), 0);
    }

    #[tokio::test]
    async fn who_waits_too_long_for_a_turn_is_told_to_come_back() {
        let mut hasher = cheap(1, 4);
        hasher.wait = Duration::ZERO;
        let permit = hasher.permits.acquire().await.expect("a permit");
        assert_eq!(verify(&hasher, "x", None).await, Err(Busy));
        drop(permit);
        assert_eq!(verify(&hasher, "x", None).await, Ok(false));
    }

    #[tokio::test]
    async fn a_new_password_is_judged_before_it_is_hashed() {
        let hasher = cheap(1, 4);
        let rules = Arc::<Rules>::default();
        let slot = hasher.enter().expect("a place");
        let new = async |text: &str| {
            let password = Secret::new(text);
            let rules = Arc::clone(&rules);
            hasher.hash_new(&slot, &password, rules, Vec::new()).await
        };
        let refused = new("password").await;
        assert!(matches!(refused, Err(NewPasswordError::Refused(_))));
        let hash = new("vexing a\u{308} umbrella").await.expect("a hash");
        let composed = verify(&hasher, "vexing \u{e4} umbrella", Some(hash.clone()));
        assert_eq!(composed.await, Ok(true));
        let decomposed = verify(&hasher, "vexing a\u{308} umbrella", Some(hash));
        assert_eq!(decomposed.await, Ok(true));
    }

    #[tokio::test]
    async fn a_damaged_hash_fits_no_password() {
        let verdict = verify(&cheap(1, 1), "", Some(Secret::new("junk"))).await;
        assert_eq!(verdict, Ok(false));
    }
}
