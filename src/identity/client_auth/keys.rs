//! The public keys of clients: from their record, or fetched from where the
//! record says.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use quick_cache::sync::Cache;
use serde_json::{Map, Value};
use url::Url;

use crate::http::outbound::{Bounds, ChosenBy, Guarded, OutboundError};
use crate::identity::clients::LiveClient;
use crate::jose::jwks::KeySet;
use crate::jose::verify::{Unverified, VerifyError};

/// Key sets kept.
const SETS: usize = 1_000;

/// How long a set is believed, in milliseconds: a key that its owner withdrew
/// is not good for longer.
const LIFE_MS: i64 = 5 * 60 * 1000;

/// The shortest time between two fetches of one set, in milliseconds: a flood
/// of unknown key names must not become a flood of requests.
const PAUSE_MS: i64 = 10 * 1000;

/// Fetched key sets, by address and who chose it: what may not be fetched for
/// a stranger is not taken from what was fetched for the operator either.
pub(in crate::identity) struct ClientKeys {
    outbound: Arc<Guarded>,
    sets: Cache<(ChosenBy, String), Arc<Source>>,
}

/// An address with keys.
#[derive(Default)]
struct Source {
    held: Mutex<Held>,
    /// Held while fetching: the others wait for that answer.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Clone, Default)]
struct Held {
    keys: Arc<KeySet>,
    /// When they were fetched.
    fetched_ms: Option<i64>,
    /// When they were last fetched again before their time.
    retried_ms: Option<i64>,
}

impl ClientKeys {
    pub(in crate::identity) fn new(outbound: Arc<Guarded>) -> Self {
        Self {
            outbound,
            sets: Cache::new(SETS),
        }
    }

    /// The claims of `token`, if a key of the client signed it. An unknown key
    /// makes the set be fetched again, once.
    pub(in crate::identity) async fn verify(
        &self,
        client: &LiveClient,
        token: &Unverified<'_>,
        now_ms: i64,
    ) -> Result<Map<String, Value>, VerifyError> {
        let uri = client.client.metadata.jwks_uri.as_deref();
        let by = client.chosen_by();
        self.verify_with(client.keys(), uri.map(|uri| (by, uri)), token, now_ms)
            .await
    }

    /// As [`ClientKeys::verify`], with keys at hand or at an address that
    /// somebody chose.
    pub(in crate::identity) async fn verify_with(
        &self,
        keys: Option<&KeySet>,
        uri: Option<(ChosenBy, &str)>,
        token: &Unverified<'_>,
        now_ms: i64,
    ) -> Result<Map<String, Value>, VerifyError> {
        if let Some(keys) = keys {
            return token.verify(keys);
        }
        let url = uri.and_then(|(by, uri)| Some((by, Url::parse(uri).ok()?)));
        let (by, url) = url.ok_or(VerifyError::UnknownKey)?;
        let source = self
            .sets
            .get_or_insert_with(&(by, url.to_string()), || {
                Ok::<_, std::convert::Infallible>(Arc::default())
            })
            .unwrap_or_default();
        let held = source.held();
        let current = held
            .fetched_ms
            .is_some_and(|fetched| now_ms < fetched + LIFE_MS);
        if current {
            match token.verify(&held.keys) {
                Err(VerifyError::UnknownKey) => {}
                verdict => return verdict,
            }
        }
        let fresh = self.fetch(&source, (by, &url), &held, now_ms).await;
        token.verify(&fresh.keys)
    }

    /// The set as the address has it now, or as it was when that was just
    /// asked. A set that can't be fetched leaves the old one, for as long as
    /// that is believed.
    async fn fetch(
        &self,
        source: &Source,
        (by, url): (ChosenBy, &Url),
        seen: &Held,
        now_ms: i64,
    ) -> Held {
        let _fetching = source.fetching.lock().await;
        let held = source.held();
        let paused = |retried: i64| now_ms < retried + PAUSE_MS;
        if held.fetched_ms != seen.fetched_ms || held.retried_ms.is_some_and(paused) {
            return held;
        }
        let answer = self.outbound.document(url, by, Bounds::default()).await;
        // The first fetch is none of them: its owner may rotate right after.
        let first = held.fetched_ms.is_none_or(|at| now_ms >= at + LIFE_MS);
        let mut next = held;
        match read(answer) {
            Ok(keys) => {
                next.retried_ms = (!first).then_some(now_ms);
                next.keys = Arc::new(keys);
                next.fetched_ms = Some(now_ms);
            }
            Err(error) => {
                tracing::warn!(%url, error, "keys of a client could not be fetched");
                next.retried_ms = Some(now_ms);
                if first {
                    next.keys = Arc::default();
                }
            }
        }
        *source.held.lock().unwrap_or_else(PoisonError::into_inner) = next.clone();
        next
    }
}

fn read(answer: Result<Bytes, OutboundError>) -> Result<KeySet, String> {
    let document = answer.map_err(|error| error.to_string())?;
    KeySet::parse(&document).map_err(|error| error.to_string())
}

impl Source {
    fn held(&self) -> Held {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.clone()
    }
}
