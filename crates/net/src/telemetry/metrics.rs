//! Metrics with bounded labels.
//!
//! What every request touches is striped over cache lines, one per worker
//! thread, and summed when it is read: two cores never write to one line.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use dashmap::DashMap;

use super::kong_metrics::KongMetrics;

/// How many parts a metric has, so that workers rarely write the same cache line.
pub const STRIPES: usize = 16;

/// A counter that many threads may increment at once.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<[Stripe; STRIPES]>);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0[stripe()].0.fetch_add(n, Ordering::Relaxed);
    }

    /// The sum over all threads.
    pub fn get(&self) -> u64 {
        self.0.iter().map(|s| s.0.load(Ordering::Relaxed)).sum()
    }
}

/// A value that goes up and down.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    /// Replaces the value.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds `n`, which may be negative.
    pub fn add(&self, n: i64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The value.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One of something that is under way: counts until it is dropped.
#[derive(Debug)]
pub struct InFlight(Gauge);

impl Gauge {
    /// Counts one more until the answer is dropped.
    pub fn enter(&self) -> InFlight {
        self.add(1);
        InFlight(self.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

/// The calling thread's stripe.
pub fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    MINE.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
        }
        mine.get()
    })
}

/// Every metric of the process. Handles are looked up once, when a filter or
/// route is built, and kept.
#[derive(Debug, Default)]
pub struct Metrics {
    decisions: DashMap<(&'static str, &'static str), Counter>,
    token_cache: DashMap<&'static str, Counter>,
    throttle_partitions: Gauge,
    throttle_overflow: Counter,
    throttle_alone: Counter,
    redis_up: OnceLock<Gauge>,
    redis_failures: Counter,
    session_store_up: OnceLock<Gauge>,
    session_store_failures: Counter,
    backchannel_logouts: DashMap<&'static str, Counter>,
    sign_ins: DashMap<&'static str, Counter>,
    locks: DashMap<&'static str, Counter>,
    audit_records: Counter,
    audit_dropped: Counter,
    audit_failures: Counter,
    federation: CountersByName,
    directories: CountersByName,
    issuers: DashMap<String, Gauge>,
    issuer_fetches: CountersByName,
    mcp_calls: DashMap<(String, String, &'static str), Counter>,
    deliveries: DashMap<(&'static str, &'static str), Counter>,
    deliveries_waiting: DashMap<&'static str, Gauge>,
    /// Series under the names of the imitated gateway.
    pub kong: KongMetrics,
}

/// Counters by a name of the settings and an outcome.
type CountersByName = DashMap<(String, &'static str), Counter>;

/// Most pairs of name and outcome that are counted apart.
const NAMED_MAX: usize = 1_000;

fn labelled_counter(all: &CountersByName, name: &str, outcome: &'static str) -> Counter {
    let key = (name.to_owned(), outcome);
    if let Some(known) = all.get(&key) {
        return known.clone();
    }
    let name = if all.len() < NAMED_MAX {
        key.0
    } else {
        "other".to_owned()
    };
    all.entry((name, outcome)).or_default().clone()
}

fn counted(all: &CountersByName) -> Vec<(String, &'static str, u64)> {
    let mut all: Vec<_> = all
        .iter()
        .map(|entry| (entry.key().0.clone(), entry.key().1, entry.value().get()))
        .collect();
    all.sort_unstable();
    all
}

impl Metrics {
    /// Records of the audit log that were written
    /// (`doorward_audit_records_total`).
    pub fn audit_records(&self) -> Counter {
        self.audit_records.clone()
    }

    /// Records of the audit log that were lost, because too many waited
    /// (`doorward_audit_dropped_total`).
    pub fn audit_dropped(&self) -> Counter {
        self.audit_dropped.clone()
    }

    /// Failed tries to write records of the audit log
    /// (`doorward_audit_failures_total`).
    pub fn audit_failures(&self) -> Counter {
        self.audit_failures.clone()
    }

    /// Tries to tell a client of a logout, by `outcome`: `delivered`, `failed`
    /// (it is tried again) or `dropped` (`doorward_backchannel_logouts_total`).
    pub fn backchannel_logouts(&self, outcome: &'static str) -> Counter {
        self.backchannel_logouts.entry(outcome).or_default().clone()
    }

    /// The same so far.
    pub(super) fn logout_notifications(&self) -> Vec<(&'static str, u64)> {
        let told = self.backchannel_logouts.iter();
        let mut all: Vec<_> = told
            .map(|entry| (*entry.key(), entry.value().get()))
            .collect();
        all.sort_unstable();
        all
    }

    /// Sign-ins through another provider, by its name in the settings and
    /// outcome (`doorward_federated_sign_ins_total`). Of names there are as many
    /// as the settings have had; beyond a bound they are counted as `other`.
    pub fn federation(&self, provider: &str, outcome: &'static str) -> Counter {
        labelled_counter(&self.federation, provider, outcome)
    }

    /// The same so far: provider, outcome, count.
    pub(super) fn federated(&self) -> Vec<(String, &'static str, u64)> {
        counted(&self.federation)
    }

    /// Whether the provider that plugins name by this issuer answered the last
    /// time (`doorward_openid_issuer_up`); bounded alike.
    pub fn issuer_up(&self, issuer: &str) -> Gauge {
        if let Some(known) = self.issuers.get(issuer) {
            return known.clone();
        }
        let issuer = if self.issuers.len() < NAMED_MAX {
            issuer.to_owned()
        } else {
            "other".to_owned()
        };
        self.issuers.entry(issuer).or_default().clone()
    }

    /// Fetches of a provider's metadata and keys, by issuer and outcome
    /// (`doorward_openid_issuer_fetches_total`); bounded alike.
    pub fn issuer_fetches(&self, issuer: &str, outcome: &'static str) -> Counter {
        labelled_counter(&self.issuer_fetches, issuer, outcome)
    }

    /// The issuers so far, and whether they are up.
    pub(super) fn issuers(&self) -> Vec<(String, i64)> {
        let all = self.issuers.iter();
        let mut all: Vec<_> = all
            .map(|one| (one.key().clone(), one.value().get()))
            .collect();
        all.sort_unstable();
        all
    }

    /// Their fetches so far: issuer, outcome, count.
    pub(super) fn issuers_fetched(&self) -> Vec<(String, &'static str, u64)> {
        counted(&self.issuer_fetches)
    }

    /// Verdicts of a directory on passwords, by its name in the settings and
    /// outcome (`doorward_directory_checks_total`); bounded alike.
    pub fn directory(&self, directory: &str, outcome: &'static str) -> Counter {
        labelled_counter(&self.directories, directory, outcome)
    }

    /// The same so far: directory, outcome, count.
    pub(super) fn directory_checks(&self) -> Vec<(String, &'static str, u64)> {
        counted(&self.directories)
    }

    /// Passwords that were checked, by `outcome`: `success`, `credentials`,
    /// `locked`, `address`, `deactivated`, `busy` or `server_error`
    /// (`doorward_identity_sign_ins_total`).
    pub fn sign_ins(&self, outcome: &'static str) -> Counter {
        self.sign_ins.entry(outcome).or_default().clone()
    }

    /// Locks after wrong passwords, by `kind`: `name` or `address`
    /// (`doorward_identity_locks_total`).
    pub fn locks(&self, kind: &'static str) -> Counter {
        self.locks.entry(kind).or_default().clone()
    }

    /// Checked passwords and locks so far.
    pub fn signed_in(&self) -> [Vec<(&'static str, u64)>; 2] {
        [&self.sign_ins, &self.locks].map(|counters| {
            let counters = counters.iter();
            let mut all: Vec<_> = counters
                .map(|entry| (*entry.key(), entry.value().get()))
                .collect();
            all.sort_unstable();
            all
        })
    }

    /// How often `plugin` came to `decision`
    /// (`doorward_plugin_decisions_total`).
    pub fn decision(&self, plugin: &'static str, decision: &'static str) -> Counter {
        self.decisions
            .entry((plugin, decision))
            .or_default()
            .clone()
    }

    /// Calls of the Model Context Protocol whose messages were read, by method, name
    /// and decision (`doorward_mcp_calls_total`). Methods and names are those of the
    /// configuration; beyond a bound they are counted as `other`.
    pub fn mcp_calls(&self, method: &str, name: &str, decision: &'static str) -> Counter {
        let key = (method.to_owned(), name.to_owned(), decision);
        if let Some(known) = self.mcp_calls.get(&key) {
            return known.clone();
        }
        let key = if self.mcp_calls.len() < NAMED_MAX {
            key
        } else {
            ("other".to_owned(), "other".to_owned(), decision)
        };
        self.mcp_calls.entry(key).or_default().clone()
    }

    /// The same so far: method, name, decision, count.
    pub(super) fn all_mcp_calls(&self) -> Vec<(String, String, &'static str, u64)> {
        let all = self.mcp_calls.iter();
        let mut all: Vec<_> = all
            .map(|entry| {
                let (method, name, decision) = entry.key().clone();
                (method, name, decision, entry.value().get())
            })
            .collect();
        all.sort_unstable();
        all
    }

    /// Entries of a plugin's queues, by `outcome`: `delivered`, `dropped` (the queue
    /// was full) or `failed` (`doorward_deliveries_total`).
    pub fn deliveries(&self, plugin: &'static str, outcome: &'static str) -> Counter {
        let key = (plugin, outcome);
        self.deliveries.entry(key).or_default().clone()
    }

    /// The same so far: plugin, outcome, count.
    pub(super) fn all_deliveries(&self) -> Vec<(&'static str, &'static str, u64)> {
        let mut all: Vec<_> = self
            .deliveries
            .iter()
            .map(|entry| (entry.key().0, entry.key().1, entry.value().get()))
            .collect();
        all.sort_unstable();
        all
    }

    /// Entries that wait in a plugin's queues (`doorward_deliveries_waiting`).
    pub fn deliveries_waiting(&self, plugin: &'static str) -> Gauge {
        self.deliveries_waiting.entry(plugin).or_default().clone()
    }

    /// The same now, for all plugins.
    pub(super) fn all_deliveries_waiting(&self) -> Vec<(&'static str, i64)> {
        let mut all: Vec<_> = self
            .deliveries_waiting
            .iter()
            .map(|entry| (*entry.key(), entry.value().get()))
            .collect();
        all.sort_unstable();
        all
    }

    /// Look-ups of verified tokens, by `result`: `hit` or `miss`
    /// (`doorward_token_cache_total`).
    pub fn token_cache(&self, result: &'static str) -> Counter {
        self.token_cache.entry(result).or_default().clone()
    }

    /// Decisions so far: plugin, decision, count.
    pub fn decisions(&self) -> Vec<(&'static str, &'static str, u64)> {
        let mut all: Vec<_> = self
            .decisions
            .iter()
            .map(|entry| (entry.key().0, entry.key().1, entry.value().get()))
            .collect();
        all.sort_unstable();
        all
    }

    /// Token look-ups so far, by result.
    pub(super) fn token_lookups(&self) -> Vec<(&'static str, u64)> {
        let mut all: Vec<_> = self
            .token_cache
            .iter()
            .map(|entry| (*entry.key(), entry.value().get()))
            .collect();
        all.sort_unstable();
        all
    }

    /// Partitions that throttling filters hold (`doorward_throttle_partitions`).
    pub fn throttle_partitions(&self) -> Gauge {
        self.throttle_partitions.clone()
    }

    /// Decisions of filters with shared counters that had to be made in this
    /// process alone (`doorward_throttle_local_total`).
    pub fn throttle_alone(&self) -> Counter {
        self.throttle_alone.clone()
    }

    /// Whether the shared Redis is in use (`doorward_redis_up`): shown once
    /// somebody asked for it.
    pub fn redis_up(&self) -> Gauge {
        self.redis_up.get_or_init(Gauge::default).clone()
    }

    /// The same, if there is a Redis.
    pub fn redis_is_up(&self) -> Option<i64> {
        self.redis_up.get().map(Gauge::get)
    }

    /// Answers of the shared Redis that were errors or did not come in time
    /// (`doorward_redis_failures_total`).
    pub fn redis_failures(&self) -> Counter {
        self.redis_failures.clone()
    }

    /// Whether the Redis or memcached of login sessions is in use
    /// (`doorward_session_store_up`): shown once somebody asked for it.
    pub fn session_store_up(&self) -> Gauge {
        self.session_store_up.get_or_init(Gauge::default).clone()
    }

    /// The same, if there is one.
    pub(super) fn session_store_is_up(&self) -> Option<i64> {
        self.session_store_up.get().map(Gauge::get)
    }

    /// Answers of the Redis or memcached of login sessions that were errors or
    /// did not come in time (`doorward_session_store_failures_total`).
    pub fn session_store_failures(&self) -> Counter {
        self.session_store_failures.clone()
    }

    /// Decisions on requests of partitions beyond the limit of their filter
    /// (`doorward_throttle_overflow_total`).
    pub fn throttle_overflow(&self) -> Counter {
        self.throttle_overflow.clone()
    }
}
