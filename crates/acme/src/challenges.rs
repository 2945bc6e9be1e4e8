//! Answers to challenges that wait for the authority. It may ask any node, so they lie in
//! the store; a node reads them when it is asked.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use parking_lot::Mutex;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use doorward_core::clock::{self, Clock};
use doorward_core::model::acme::StoredAcmeChallenge;
use doorward_core::x509;
use doorward_net::http::challenges::ACME_TLS;
use doorward_store::{Store, StoreError};

/// How long an answer is kept if nobody takes it back.
const LIFE_MS: i64 = 3_600_000;
/// The least time between two looks into the store: whoever asks for tokens that are
/// none costs no more.
const PAUSE: Duration = Duration::from_millis(200);
/// Longest token that is looked up, in bytes.
const TOKEN_MAX: usize = 256;

/// Answers to challenges.
pub(crate) struct Challenges {
    store: Arc<Store>,
    clock: Clock,
    /// Whether other nodes share the store.
    is_shared: bool,
    known: Mutex<Answers>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Answers {
    /// Answers of this node's own orders.
    own: HashMap<String, String>,
    /// Those of other nodes, as of `read_ns`.
    others: HashMap<String, String>,
    read_ns: u64,
}

/// How the store knows the challenge of a name: no token has a colon.
pub(crate) fn name_key(name: &str) -> String {
    format!("name:{name}")
}

impl Challenges {
    pub(crate) fn new(store: Arc<Store>, clock: Clock, is_shared: bool) -> Self {
        Self {
            store,
            clock,
            is_shared,
            known: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Has every node answer these.
    pub(crate) async fn put(&self, all: Vec<(String, String)>) -> Result<(), StoreError> {
        if self.is_shared {
            let expires_ms = self.clock.now_ms() + LIFE_MS;
            let rows = all.iter().map(|(key, answer)| StoredAcmeChallenge {
                key: key.clone(),
                answer: answer.clone(),
                expires_ms,
            });
            let rows: Vec<_> = rows.collect();
            self.store.put_acme_challenges(&rows).await?;
        }
        self.known.lock().own.extend(all);
        Ok(())
    }

    /// Nobody is to answer these any more.
    pub(crate) async fn remove(&self, keys: &[String]) {
        for key in keys {
            self.known.lock().own.remove(key);
            if self.is_shared
                && let Err(error) = self.store.delete_acme_challenge(key).await
            {
                // It goes with the next sweep.
                tracing::debug!(%error, "an answer to a challenge stays for an hour");
            }
        }
    }

    /// The answer to this challenge; `None`: no order waits for it.
    pub(crate) async fn answer(&self, key: &str) -> Option<String> {
        if key.len() > TOKEN_MAX {
            return None;
        }
        if let Some(answer) = self.known.lock().own.get(key) {
            return Some(answer.clone());
        }
        if !self.is_shared {
            return None;
        }
        self.read_since(clock::monotonic_ns()).await;
        self.known.lock().others.get(key).cloned()
    }

    /// Reads the store, unless somebody has since `asked_ns`. All who wait share one look.
    async fn read_since(&self, asked_ns: u64) {
        let _turn = self.turn.lock().await;
        let read_ns = self.known.lock().read_ns;
        if read_ns >= asked_ns {
            return;
        }
        let rest = Duration::from_nanos(clock::monotonic_ns().saturating_sub(read_ns));
        tokio::time::sleep(PAUSE.saturating_sub(rest)).await;
        let began_ns = clock::monotonic_ns();
        match self.store.acme_challenges(self.clock.now_ms()).await {
            Ok(rows) => {
                let others = rows.into_iter().map(|row| (row.key, row.answer));
                let mut known = self.known.lock();
                known.others = others.collect();
                known.read_ns = began_ns;
            }
            Err(error) => {
                self.known.lock().read_ns = began_ns;
                tracing::warn!(%error, "answers to challenges can't be read");
            }
        }
    }
}

/// What a handshake is made with that only answers the challenge of `name`: a
/// certificate that has the digest of the key authorization (RFC 8737 §3).
pub(crate) fn handshake(name: &str, authorization: &str) -> Result<Arc<ServerConfig>, String> {
    let digest = digest(&SHA256, authorization.as_bytes());
    let made = KeyPair::generate().and_then(|key| {
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest.as_ref())];
        let certificate = params.self_signed(&key)?;
        Ok((certificate.der().clone(), key.serialize_der()))
    });
    let (certificate, key) = made.map_err(|error| error.to_string())?;
    let key = PrivatePkcs8KeyDer::from(key);
    let provider = x509::provider();
    let key = provider.key_provider.load_private_key(key.into());
    let key = key.map_err(|error| error.to_string())?;
    // Nothing else here reads certificates with the critical extension.
    let certified = CertifiedKey::new(vec![certificate], key);
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = builder.with_no_client_auth();
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![ACME_TLS.to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_for_a_challenge_can_be_made() {
        let config = handshake("a.test", "token.thumbprint").expect("a configuration");
        assert_eq!(config.alpn_protocols, [ACME_TLS]);
    }
}
