//! The relying party: everything that speaks to the provider, and what is verified
//! with its keys. This module has its metadata and keys.
//!
//! Nothing is fetched before traffic needs it. One fetch is under way at a time; it
//! runs in a task of its own, so clients that hang up can't make it start over. What
//! was fetched last stays in force until something newer is complete.

pub(crate) mod client;
pub(crate) mod client_auth;
mod discovery;
pub(crate) mod distributed_claims;
pub(crate) mod endpoints;
pub(crate) mod extras;
mod health;
pub(crate) mod hmac_keys;
pub(crate) mod id_token;
pub(crate) mod id_token_verification;
pub(crate) mod introspection;
pub(crate) mod issuers;
pub(crate) mod merged_claims;
pub(crate) mod mutual_tls;
pub(crate) mod opaque_token;
pub(crate) mod par;
pub(crate) mod proof_of_possession;
pub mod revocation;
pub(crate) mod signature;
pub(crate) mod signature_exemptions;
pub(crate) mod signing_algs;
pub mod single_flight;
pub mod token_cache;
pub(crate) mod token_endpoint;
pub(crate) mod token_exchange;
pub(crate) mod userinfo;
pub mod verifier;
mod worker_copies;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use serde_json::{Map, Value};
use tokio::sync::watch;
use url::Url;

use doorward_core::clock::Clock;
use doorward_core::jose::jwks::KeySet;
use doorward_core::jose::verify::Unverified;
use doorward_net::http::outbound::{Options, Outbound, TokenStatus};
use doorward_oidc_client::metadata::issuer_of;
use doorward_plugin_api::Parts;

use crate::decide::refusal::Refusal;
use discovery::FetchError;
use health::Health;

pub use health::IssuerReport;

/// Least pause after a failed fetch, in milliseconds.
const PAUSE_AFTER_FAILURE: i64 = 5_000;
/// Pause between fetches that tokens with unknown keys may cause, in
/// milliseconds: a stranger can't make us hammer the provider, and a second
/// rotation right after the first is still seen.
const PAUSE_AFTER_UNKNOWN: i64 = 1_000;
/// Pause between tries in the background to hear of a provider that can't be
/// asked, in milliseconds.
const PAUSE_UNDISCOVERED: i64 = 30_000;
/// Least age of keys that are refreshed in the background, in milliseconds.
const REFRESH_MIN: i64 = 60_000;
/// Longest time that a request waits for keys.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Every provider in use, shared by the plugins that name it.
#[derive(Debug, Default)]
pub struct Providers {
    providers: Mutex<HashMap<ProviderConfig, Weak<Provider>>>,
    secret: CommonSecret,
}

/// What sessions are sealed with where no secret is configured. By default it is
/// random, and the same for the life of the process, whatever is reloaded.
struct CommonSecret(Box<[u8]>);

impl Default for CommonSecret {
    fn default() -> Self {
        Self(Box::new(doorward_core::clock::random_bytes::<32>()))
    }
}

impl std::fmt::Debug for CommonSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CommonSecret")
    }
}

impl Providers {
    /// Those of the process that `parts` belongs to.
    pub fn of(parts: &Parts) -> Arc<Self> {
        parts.slots.get_or_default()
    }

    /// No providers yet; sessions are sealed with `secret` where no plugin's
    /// configuration names one.
    pub fn with_secret(secret: Vec<u8>) -> Self {
        Self {
            providers: Mutex::default(),
            secret: CommonSecret(secret.into()),
        }
    }

    /// What is sealed with where no secret is configured.
    pub fn secret(&self) -> &[u8] {
        &self.secret.0
    }

    /// The provider of this configuration: an existing one, with its keys, if
    /// a plugin holds one.
    pub fn provider(&self, config: ProviderConfig, parts: &Parts) -> Arc<Provider> {
        let mut providers = lock(&self.providers);
        if let Some(provider) = providers.get(&config).and_then(Weak::upgrade) {
            return provider;
        }
        providers.retain(|_, provider| provider.strong_count() > 0);
        let provider = Arc::new(Provider {
            config: config.clone(),
            outbound: Arc::clone(&parts.outbound),
            clock: parts.clock.clone(),
            health: Health::new(config.issuer.as_str(), parts),
            metadata: ArcSwapOption::empty(),
            generation: AtomicU64::new(0),
            flight: Mutex::new(None),
            not_before: AtomicI64::new(i64::MIN),
            refresh_at: AtomicI64::new(i64::MAX),
            is_malformed: AtomicBool::new(false),
        });
        providers.insert(config, Arc::downgrade(&provider));
        provider
    }
}

/// What makes a provider one of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProviderConfig {
    /// Issuer, or the URL of its discovery document.
    pub issuer: Url,
    /// Whether `issuer` is only a name: nothing is discovered from it.
    pub pseudo: bool,
    /// Key set to use instead of the discovered one.
    pub jwks_endpoint: Option<Url>,
    /// Further trusted key sets.
    pub extra_jwks: Vec<Url>,
    /// Extra headers of discovery requests.
    pub discovery_headers: Vec<(String, String)>,
    /// How it is reached.
    pub options: Options,
    /// Least age of a discovery document that is fetched again, in seconds.
    pub rediscovery_lifetime: i64,
    /// Issuers that its discovery document may name besides its own.
    pub issuers_allowed: Vec<String>,
}

impl ProviderConfig {
    /// A provider whose discovery document says everything.
    pub fn discovered(issuer: Url, options: Options) -> Self {
        Self {
            issuer,
            pseudo: false,
            jwks_endpoint: None,
            extra_jwks: Vec::new(),
            discovery_headers: Vec::new(),
            options,
            rediscovery_lifetime: 300,
            issuers_allowed: Vec::new(),
        }
    }
}

/// A provider.
#[derive(Debug)]
pub struct Provider {
    config: ProviderConfig,
    outbound: Arc<Outbound>,
    clock: Clock,
    health: Health,
    metadata: ArcSwapOption<ProviderMetadata>,
    /// Of `metadata`, readable without touching it.
    generation: AtomicU64,
    flight: Mutex<Option<PendingFetch>>,
    /// No request causes a fetch before this, in milliseconds.
    not_before: AtomicI64,
    /// When the next request starts a refresh, in milliseconds.
    refresh_at: AtomicI64,
    /// Whether the last discovery document was refused for what it says.
    is_malformed: AtomicBool,
}

/// What is known of a provider.
#[derive(Clone, Debug)]
pub struct ProviderMetadata {
    /// The `iss` of its tokens.
    pub issuer: String,
    /// The keys of its tokens.
    pub keys: KeySet,
    /// Tells when its tokens end early, if it is in this process.
    pub token_status: Option<Arc<dyn TokenStatus>>,
    /// Higher than before when a key is gone: what it verified is void.
    pub generation: u64,
    /// When it was asked for the last time, in milliseconds.
    asked_ms: i64,
    /// The discovery document and when it was fetched, in milliseconds.
    discovered: Option<(Arc<Map<String, Value>>, i64)>,
    /// Where the keys came from.
    sets: Vec<(Url, KeySet)>,
    /// Whether it should say more, and can't be asked.
    undiscovered: bool,
}

impl ProviderMetadata {
    /// What is known of a provider that can't be asked: what is configured.
    pub fn undiscovered(issuer: &Url) -> Self {
        Self {
            issuer: issuer_of(issuer),
            keys: KeySet::default(),
            token_status: None,
            generation: 0,
            asked_ms: i64::MIN,
            discovered: None,
            sets: Vec::new(),
            undiscovered: true,
        }
    }

    /// Whether there is a discovery document.
    pub fn is_discovered(&self) -> bool {
        self.discovered.is_some()
    }

    /// The refusal of what none of the keys has signed.
    pub fn no_matching_key(&self) -> Refusal {
        let should_have_some = self.undiscovered || self.is_discovered();
        if self.sets.is_empty() && should_have_some {
            Refusal::ProviderUnavailable
        } else {
            Refusal::UnknownKey
        }
    }

    /// What a refusal of a token is worth that the provider itself has given: one
    /// that is younger than the keys may be signed with a key that came after
    /// them, where nobody may ask for newer ones now.
    pub fn stale_keys_or(&self, refusal: Refusal, token: &str) -> Refusal {
        let claims = || Unverified::parse(token).ok()?.claims_of_anyone().ok();
        let issued = || claims()?.get("iat")?.as_i64()?.checked_mul(1000);
        match refusal {
            Refusal::UnknownKey if issued() > Some(self.asked_ms) => Refusal::ProviderUnavailable,
            other => other,
        }
    }

    /// What a refusal is worth while nothing has been heard: the issuer is a guess
    /// then, and a token of another one may be good.
    pub fn undiscovered_or(&self, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::WrongIssuer if self.undiscovered => Refusal::ProviderUnavailable,
            other => other,
        }
    }

    /// The refusal of what needs an endpoint that is not known: one that can't
    /// be asked may have it.
    pub fn no_such_endpoint(&self) -> Refusal {
        if self.undiscovered {
            Refusal::ProviderUnavailable
        } else {
            Refusal::NoEndpoint
        }
    }

    /// A member of the discovery document.
    pub fn member(&self, name: &str) -> Option<&Value> {
        let (document, _) = self.discovered.as_ref()?;
        document.get(name)
    }

    fn set(&self, url: &Url) -> Option<&KeySet> {
        self.sets
            .iter()
            .find(|(from, _)| from == url)
            .map(|(_, set)| set)
    }
}

/// A fetch under way.
#[derive(Clone, Debug)]
struct PendingFetch {
    reason: Reason,
    landed: watch::Receiver<()>,
}

/// Why keys are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// There are none.
    First,
    /// A token names one that is not there.
    UnknownKey,
    /// They are old.
    Age,
}

impl Provider {
    /// What is known now; `None` until the first fetch has succeeded.
    pub fn metadata(&self) -> Option<Arc<ProviderMetadata>> {
        self.metadata.load_full()
    }

    /// What is known, fetched first if nothing is; `None`: it can't be had.
    pub async fn metadata_or_fetch(self: &Arc<Self>) -> Option<Arc<ProviderMetadata>> {
        if let Some(metadata) = self.metadata() {
            return Some(metadata);
        }
        self.wait_for_newer(self.clock.now_ms()).await;
        self.metadata()
    }

    /// As [`Self::metadata_or_fetch`], but waits for the first fetch alone: where
    /// that has failed, the next ones are in the background.
    pub async fn metadata_after_first_fetch(self: &Arc<Self>) -> Option<Arc<ProviderMetadata>> {
        if self.not_before.load(Ordering::Relaxed) == i64::MIN {
            return self.metadata_or_fetch().await;
        }
        let metadata = self.metadata();
        if metadata.is_none() {
            self.start(Reason::First, self.clock.now_ms());
        }
        metadata
    }

    /// Whether the last discovery document was refused for what it says.
    pub fn is_malformed(&self) -> bool {
        self.is_malformed.load(Ordering::Relaxed)
    }

    /// The refusal of what needs a provider of which nothing is known.
    pub fn unavailable(&self) -> Refusal {
        if self.is_malformed() {
            Refusal::ProviderMalformed
        } else {
            Refusal::ProviderUnavailable
        }
    }

    /// [`ProviderMetadata::generation`] of what is known now.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Forgets what was fetched: the next request that needs it fetches.
    fn forget(&self) {
        use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
        let _no_fetch_lands = lock(&self.flight);
        // First of all: who finds nothing known may fetch.
        self.not_before.store(i64::MIN, Release);
        self.refresh_at.store(i64::MAX, Relaxed);
        self.metadata.store(None);
        self.generation.fetch_add(1, AcqRel);
    }

    /// Whether no request causes a fetch now. What is known later than this was
    /// asked is the newest there is.
    pub fn is_paused(&self, now_ms: i64) -> bool {
        now_ms < self.not_before.load(Ordering::Acquire)
    }

    /// Waits for keys newer than the present ones: for the fetch under way,
    /// or for a new one if none started too recently. Gives up after a while.
    /// Whether it is worth waiting once more: what was under way was not begun for
    /// a key, but perhaps before there were tokens of the newest.
    pub async fn wait_for_newer(self: &Arc<Self>, now_ms: i64) -> bool {
        let reason = if self.metadata.load().is_some() {
            Reason::UnknownKey
        } else {
            Reason::First
        };
        let Some((mut flight, joined)) = self.start(reason, now_ms) else {
            return false;
        };
        let patience = self.config.options.timeout.min(WAIT_MAX);
        // Either way the caller looks at what is known then.
        let landing = tokio::time::timeout(patience, flight.landed.changed()).await;
        landing.is_ok() && joined && flight.reason != Reason::UnknownKey
    }

    /// Starts a refresh in the background if it is time for one: one atomic
    /// load if not.
    pub fn refresh_if_old(self: &Arc<Self>, now_ms: i64) {
        let due = self.refresh_at.load(Ordering::Relaxed);
        if now_ms < due {
            return;
        }
        // One of many requests wins and starts it.
        let next = now_ms.saturating_add(PAUSE_AFTER_FAILURE);
        let (set, fail) = (Ordering::Relaxed, Ordering::Relaxed);
        if self
            .refresh_at
            .compare_exchange(due, next, set, fail)
            .is_ok()
        {
            self.start(Reason::Age, now_ms);
        }
    }

    /// Joins the fetch under way (`true`) or starts one; `None`: not now.
    fn start(self: &Arc<Self>, reason: Reason, now_ms: i64) -> Option<(PendingFetch, bool)> {
        let mut flight = lock(&self.flight);
        if let Some(under_way) = flight.as_ref() {
            return Some((under_way.clone(), true));
        }
        if self.is_paused(now_ms) {
            return None;
        }
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        let (landing, landed) = watch::channel(());
        let started = flight.insert(PendingFetch { reason, landed }).clone();
        let guard = FetchGuard {
            provider: Arc::clone(self),
            _landing: landing,
        };
        runtime.spawn(async move {
            guard.provider.fetch(reason).await;
            drop(guard);
        });
        Some((started, false))
    }

    async fn fetch(&self, reason: Reason) {
        loop {
            let generation = self.generation();
            let previous = self.metadata();
            let outcome = discovery::fetch(self, previous.as_deref()).await;
            let _nobody_forgets = lock(&self.flight);
            if self.generation() == generation {
                return self.finish_fetch(reason, outcome, previous.as_deref());
            }
            // It was forgotten meanwhile, perhaps for what was fetched.
        }
    }

    /// Puts in force what a fetch has come to.
    fn finish_fetch(
        &self,
        reason: Reason,
        outcome: Result<ProviderMetadata, FetchError>,
        previous: Option<&ProviderMetadata>,
    ) {
        let now = self.clock.now_ms();
        let is_malformed = outcome.as_ref().is_err_and(FetchError::is_of_issuer);
        self.is_malformed.store(is_malformed, Ordering::Relaxed);
        match outcome {
            Ok(fetched) => {
                self.health.record_success(now);
                let next = now.saturating_add(self.refresh_after(&fetched));
                self.install(fetched, previous);
                self.refresh_at.store(next, Ordering::Relaxed);
                if reason == Reason::UnknownKey {
                    let next = now.saturating_add(PAUSE_AFTER_UNKNOWN);
                    self.not_before.store(next, Ordering::Release);
                }
            }
            Err(error) => {
                // Once a minute is enough of what goes on.
                if self.health.record_failure(now, &error.to_string()) {
                    tracing::warn!(
                        issuer = %self.config.issuer,
                        error = %error,
                        keys_held = previous.map_or(0, |metadata| metadata.keys.len()),
                        "can't fetch the provider's keys"
                    );
                }
                let next = now + PAUSE_AFTER_FAILURE;
                self.not_before.store(next, Ordering::Release);
                self.refresh_at.fetch_max(next, Ordering::Relaxed);
            }
        }
    }

    fn install(&self, mut fetched: ProviderMetadata, previous: Option<&ProviderMetadata>) {
        fetched.generation = match previous {
            Some(old) if fetched.keys.holds_all(&old.keys) && fetched.issuer == old.issuer => {
                old.generation
            }
            Some(old) => old.generation + 1,
            None => self.generation.load(Ordering::Acquire) + 1,
        };
        let generation = fetched.generation;
        if previous.is_none_or(|old| old.generation != generation) {
            tracing::info!(
                issuer = %fetched.issuer,
                keys = fetched.keys.len(),
                "provider's keys are in force"
            );
        }
        self.metadata.store(Some(Arc::new(fetched)));
        self.generation.store(generation, Ordering::Release);
    }

    fn refresh_after(&self, metadata: &ProviderMetadata) -> i64 {
        if metadata.undiscovered {
            return PAUSE_UNDISCOVERED;
        }
        (self.config.rediscovery_lifetime.saturating_mul(1000)).max(REFRESH_MIN)
    }
}

/// Ends the fetch for those who wait, also when its task is cancelled.
struct FetchGuard {
    provider: Arc<Provider>,
    _landing: watch::Sender<()>,
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        *lock(&self.provider.flight) = None;
    }
}

/// Nothing here can panic half-way through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
