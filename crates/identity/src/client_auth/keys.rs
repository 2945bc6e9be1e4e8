//! The public keys of clients: from their record, or fetched from where the
//! record says.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use quick_cache::sync::Cache;
use serde_json::{Map, Value};
use url::Url;

use crate::clients::LiveClient;
use doorward_core::jose::jwks::KeySet;
use doorward_core::jose::verify::{Unverified, VerifyError};
use doorward_net::http::outbound::{Bounds, ChosenBy, GuardedClient, OutboundError};

/// Key sets kept.
const SETS: usize = 1_000;

/// How long a set is believed, in milliseconds: a key that its owner withdrew
/// is not good for longer, unless its source is silent.
const LIFE_MS: i64 = 5 * 60 * 1000;

/// How long a set is believed whose source does not answer, in milliseconds: an
/// hour without its keys must not shut a client out.
const KEPT_MS: i64 = 3600 * 1000;

/// The shortest time between two fetches of one set, in milliseconds: a flood
/// of unknown key names must not become a flood of requests, the less so to an
/// address that a stranger chose.
fn pause_ms(by: ChosenBy) -> i64 {
    match by {
        ChosenBy::Operator => 1_000,
        ChosenBy::Stranger => 10_000,
    }
}

/// Fetched key sets, by address and who chose it: what may not be fetched for
/// a stranger is not taken from what was fetched for the operator either.
pub(crate) struct ClientKeys {
    outbound: Arc<GuardedClient>,
    sets: Cache<(ChosenBy, String), Arc<Source>>,
}

/// An address with keys.
#[derive(Default)]
struct Source {
    held: Mutex<CachedKeys>,
    /// Held while fetching: the others wait for that answer.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Clone, Default)]
struct CachedKeys {
    keys: Arc<KeySet>,
    /// When they were fetched.
    fetched_ms: Option<i64>,
    /// When they were last fetched again before their time.
    retried_ms: Option<i64>,
}

impl ClientKeys {
    pub(crate) fn new(outbound: Arc<GuardedClient>) -> Self {
        Self {
            outbound,
            sets: Cache::new(SETS),
        }
    }

    /// The claims of `token`, if a key of the client signed it. An unknown key
    /// makes the set be fetched again, once.
    pub(crate) async fn verify(
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
    pub(crate) async fn verify_with(
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
        if held.is_younger(LIFE_MS, now_ms) {
            match token.verify(&held.keys) {
                Err(VerifyError::UnknownKey) => {}
                verdict => return verdict,
            }
        }
        let fresh = self.fetch(&source, (by, &url), &held, now_ms).await;
        if fresh.is_younger(KEPT_MS, now_ms) {
            token.verify(&fresh.keys)
        } else {
            Err(VerifyError::UnknownKey)
        }
    }

    /// The set as the address has it now, or as it was when that was just
    /// asked. A set that can't be fetched leaves the old one.
    async fn fetch(
        &self,
        source: &Source,
        (by, url): (ChosenBy, &Url),
        seen: &CachedKeys,
        now_ms: i64,
    ) -> CachedKeys {
        let _fetching = source.fetching.lock().await;
        let held = source.held();
        let paused = |retried: i64| now_ms < retried + pause_ms(by);
        if held.fetched_ms != seen.fetched_ms || held.retried_ms.is_some_and(paused) {
            return held;
        }
        let answer = self.outbound.document(url, by, Bounds::default()).await;
        // The first fetch is none of them: its owner may rotate right after.
        let first = !held.is_younger(LIFE_MS, now_ms);
        let mut next = held;
        match read(answer) {
            Ok(keys) => {
                next.retried_ms = (!first).then_some(now_ms);
                next.keys = Arc::new(keys);
                next.fetched_ms = Some(now_ms);
            }
            Err(error) => {
                doorward_net::telemetry::warn_limited!(%url, error, "keys of a client could not be fetched");
                next.retried_ms = Some(now_ms);
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

impl CachedKeys {
    /// Whether the keys were fetched less than this ago.
    fn is_younger(&self, age_ms: i64, now_ms: i64) -> bool {
        self.fetched_ms.is_some_and(|at| now_ms < at + age_ms)
    }
}

impl Source {
    fn held(&self) -> CachedKeys {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use doorward_core::jose::testing::TestKey;
    use doorward_net::http::outbound::{Allow, Authorities};

    /// Answers every connection with this; ends with the test.
    async fn serve(answer: Arc<Mutex<String>>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4096]).await;
                let text = answer.lock().expect("the answer").clone();
                let _ = stream.write_all(text.as_bytes()).await;
            }
        });
        format!("http://{address}/keys")
    }

    #[tokio::test]
    async fn a_source_of_keys_that_falls_silent_shuts_nobody_out_for_an_hour() {
        let key = TestKey::es256("one");
        let set = json!({"keys": [key.jwk()]}).to_string();
        let good = format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{set}",
            set.len()
        );
        let answer = Arc::new(Mutex::new(good.clone()));
        let uri = serve(Arc::clone(&answer)).await;
        let say = |text: &str| text.clone_into(&mut answer.lock().expect("the answer"));
        let outbound = GuardedClient::new(Allow::default(), Authorities::default());
        let keys = ClientKeys::new(Arc::new(outbound));
        let token = key.token(&json!({"sub": "app"}));
        let token = Unverified::parse(&token).expect("a token");
        let at = async |now_ms| {
            let source = Some((ChosenBy::Operator, uri.as_str()));
            let verdict = keys.verify_with(None, source, &token, now_ms);
            verdict.await.map(drop)
        };
        assert_eq!(at(0).await, Ok(()));
        say("HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(at(LIFE_MS).await, Ok(()));
        assert_eq!(at(KEPT_MS - 1).await, Ok(()));
        assert_eq!(at(KEPT_MS).await, Err(VerifyError::UnknownKey));
        say(&good);
        // Not before the pause is over.
        assert_eq!(at(KEPT_MS).await, Err(VerifyError::UnknownKey));
        assert_eq!(at(KEPT_MS + pause_ms(ChosenBy::Operator)).await, Ok(()));
    }
}
