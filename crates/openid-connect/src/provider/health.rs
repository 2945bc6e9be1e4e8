//! How providers are doing, for operators.

use std::sync::{Mutex, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::provider::{Provider, Providers, lock};
use doorward_net::telemetry::{Counter, Gauge};
use doorward_plugin_api::Parts;

/// Pause between lines of the log about one provider, in milliseconds.
const PAUSE: i64 = 60_000;

/// What is noted of fetches.
#[derive(Debug)]
pub(crate) struct Health {
    created_ms: i64,
    state: Mutex<State>,
    up: Gauge,
    fetched: Counter,
    failed: Counter,
}

#[derive(Clone, Debug, Default)]
struct State {
    fetched_ms: Option<i64>,
    failed_ms: Option<i64>,
    said_ms: Option<i64>,
    /// Since it was heard last.
    failures: u64,
    error: Option<String>,
}

impl Health {
    pub(crate) fn new(issuer: &str, parts: &Parts) -> Self {
        Self {
            created_ms: parts.clock.now_ms(),
            state: Mutex::default(),
            up: parts.metrics.issuer_up(issuer),
            fetched: parts.metrics.issuer_fetches(issuer, "fetched"),
            failed: parts.metrics.issuer_fetches(issuer, "failed"),
        }
    }

    /// Notes that everything was fetched.
    pub(crate) fn record_success(&self, now_ms: i64) {
        self.up.set(1);
        self.fetched.inc();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = State {
            fetched_ms: Some(now_ms),
            failed_ms: state.failed_ms,
            ..State::default()
        };
    }

    /// Notes a failure; whether it is worth a line in the log.
    pub(crate) fn record_failure(&self, now_ms: i64, error: &str) -> bool {
        self.up.set(0);
        self.failed.inc();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failed_ms = Some(now_ms);
        state.failures += 1;
        state.error = Some(error.chars().take(300).collect());
        let due = state.said_ms.is_none_or(|said| now_ms - said >= PAUSE);
        if due {
            state.said_ms = Some(now_ms);
        }
        due
    }
}

/// A provider as operators see it. Times are milliseconds since the epoch.
#[derive(Clone, Debug)]
pub struct IssuerReport {
    /// Made of its configuration: the same on every node.
    pub id: Uuid,
    /// As configured.
    pub issuer: String,
    /// When a plugin named it first.
    pub created_ms: i64,
    /// Its metadata; empty as long as nothing was fetched.
    pub configuration: Map<String, Value>,
    /// Its public keys.
    pub keys: Vec<Map<String, Value>>,
    /// Whether it answered the last time; `None`: it was not asked yet.
    pub up: Option<bool>,
    /// When everything was fetched last.
    pub fetched_ms: Option<i64>,
    /// When a fetch failed last.
    pub failed_ms: Option<i64>,
    /// Failures since it answered last.
    pub failures: u64,
    /// What the last failure was.
    pub error: Option<String>,
}

impl Providers {
    /// Every provider that a running plugin names, by issuer.
    pub fn reports(&self) -> Vec<IssuerReport> {
        let providers: Vec<_> = lock(&self.providers).values().cloned().collect();
        let alive = providers.iter().filter_map(std::sync::Weak::upgrade);
        let mut reports: Vec<_> = alive.map(|provider| provider.report()).collect();
        reports.sort_by(|one, other| (&one.issuer, one.id).cmp(&(&other.issuer, other.id)));
        reports
    }

    /// Forgets what was fetched of the providers with this id or issuer, of all
    /// if `None`: it is fetched again when traffic needs it. Whether there was
    /// one.
    pub fn forget(&self, named: Option<&str>) -> bool {
        let providers: Vec<_> = lock(&self.providers).values().cloned().collect();
        let mut found = false;
        for provider in providers.iter().filter_map(std::sync::Weak::upgrade) {
            let meant = named.is_none_or(|named| {
                provider.config.issuer.as_str() == named || provider.id().to_string() == named
            });
            if meant {
                found = true;
                provider.forget();
            }
        }
        found
    }
}

impl Provider {
    fn id(&self) -> Uuid {
        let config = format!("{:?}", self.config);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest(&SHA256, config.as_bytes()).as_ref()[..16]);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    fn report(&self) -> IssuerReport {
        let state = self.health.state.lock();
        let state = state.unwrap_or_else(PoisonError::into_inner).clone();
        let metadata = self.metadata();
        let discovered = metadata
            .as_ref()
            .and_then(|metadata| metadata.discovered.as_ref());
        let keys = metadata
            .iter()
            .flat_map(|metadata| metadata.keys.published());
        IssuerReport {
            id: self.id(),
            issuer: self.config.issuer.to_string(),
            created_ms: self.health.created_ms,
            configuration: discovered.map_or_else(Map::new, |(found, _)| (**found).clone()),
            keys: keys.cloned().collect(),
            up: match (state.failures, state.fetched_ms) {
                (0, None) => None,
                (failures, _) => Some(failures == 0),
            },
            fetched_ms: state.fetched_ms,
            failed_ms: state.failed_ms,
            failures: state.failures,
            error: state.error,
        }
    }
}
