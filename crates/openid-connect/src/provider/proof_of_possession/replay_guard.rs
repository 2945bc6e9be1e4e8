//! Where proofs that were used are remembered (RFC 9449 §11.1): in this process,
//! and in the state that nodes share, which outlives the process.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::decide::refusal::Refusal;
use crate::provider::proof_of_possession::replay_cache::ReplayCache;
use crate::session::storage::Storages;
use doorward_core::jose::algorithm::Algorithm;
use doorward_core::jose::claims::CLOCK_SKEW;
use doorward_core::model::grant::TokenHash;
use doorward_net::shared::Redis;
use doorward_plugin_api::Parts;

/// Longest life of a key in a Redis, in seconds: about a century.
const LIFE_MAX: u64 = 100 * 365 * 86_400;

/// A proof of this request and token. It counts once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValidProof {
    /// The thumbprint of its key.
    pub(crate) key: String,
    /// Its `jti`.
    pub(crate) id: String,
    /// How it is signed.
    pub(crate) algorithm: Algorithm,
    /// When it is no longer taken, in seconds.
    pub(crate) until: i64,
}

/// Remembers proofs for as long as they would be taken again.
pub(crate) struct ReplayGuard {
    /// Keeps floods of one proof from the shared state, and bounds what goes there.
    here: ReplayCache,
    shared: Shared,
    /// What tells the plugin from every other, on all nodes.
    scope: Arc<str>,
}

/// What the nodes of a gateway share.
enum Shared {
    /// The Redis, where one is configured.
    Redis(Redis),
    /// The process's own store: several nodes may share one.
    Store(Arc<Storages>),
}

impl ReplayGuard {
    /// For proofs that are taken for `lifetime` seconds.
    pub(crate) fn new(lifetime: i64, parts: &Parts) -> Self {
        let store = || Shared::Store(Storages::of(parts));
        Self {
            here: ReplayCache::new(lifetime),
            shared: parts.redis.clone().map_or_else(store, Shared::Redis),
            scope: Arc::clone(&parts.scope),
        }
    }

    /// Uses a proof. Of two requests that bring the same proof at once, at any
    /// nodes, one passes.
    ///
    /// # Errors
    /// [`Refusal::ProofRepeated`], [`Refusal::TooManyProofs`] where it could not be
    /// remembered, and [`Refusal::ProofsUnavailable`] where nobody can tell.
    pub(crate) async fn use_up(&self, proof: &ValidProof, now: i64) -> Result<(), Refusal> {
        let ValidProof { key, id, until, .. } = proof;
        self.here.use_up(key, id, *until, now)?;
        let scope = &self.scope;
        let what = TokenHash::of(&format!("dpop proof of a request\n{scope}\n{key}\n{id}"));
        // The clocks of other nodes may be behind.
        let until = until.saturating_add(CLOCK_SKEW);
        let is_new = match &self.shared {
            Shared::Redis(redis) => {
                let seconds = until.saturating_sub(now).max(1);
                let life_ms = seconds.unsigned_abs().min(LIFE_MAX).saturating_mul(1000);
                let key = format!("doorward:proof:{}", URL_SAFE_NO_PAD.encode(what.0));
                redis.remember(&key, life_ms).await.ok()
            }
            Shared::Store(storages) => {
                let [until_ms, now_ms] = [until, now].map(|one| one.saturating_mul(1000));
                storages.remember(what, until_ms, now_ms).await.ok()
            }
        };
        match is_new {
            Some(true) => Ok(()),
            Some(false) => Err(Refusal::ProofRepeated),
            None => Err(Refusal::ProofsUnavailable),
        }
    }
}
