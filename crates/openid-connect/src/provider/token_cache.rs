//! Verified tokens, so that a token's second use costs one look-up.
//!
//! Workers that share an entry would write to the count of its holders with each request.
//! So each worker has copies of its own of the tokens that it meets most (`worker_copies`).
//!
//! The key is the whole token: found by a hash of its end, which is its
//! signature, then compared in full, so no two tokens are ever mixed up. Only
//! tokens whose signature was checked come in, so nobody can choose ends that
//! collide.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{Equivalent, Weighter};
use serde_json::{Map, Value};

use crate::provider::revocation::RevocationStatus;
use crate::provider::worker_copies;
use doorward_core::model::token::AccessToken;
use doorward_plugin_api::consumers::ConsumerMemo;

/// Most tokens held, about.
const TOKENS: usize = 16 * 1024;
/// Most memory held, in bytes, about.
const BYTES: u64 = 32 * 1024 * 1024;

/// A token that has passed every check.
#[derive(Debug)]
pub struct VerifiedToken {
    /// Which verification it came from: copies have the same.
    pub verification: VerificationId,
    /// The token.
    pub token: Arc<AccessToken>,
    /// It must no longer pass from then on, in milliseconds.
    pub ends_at: i64,
    /// Whether that is the token's own end, so that it never passes again.
    pub ends_for_good: bool,
    /// Of the keys that verified it.
    pub generation: u64,
    /// The consumer it stands for.
    pub consumer: ConsumerMemo,
    /// What its provider says of it, if that is in this process.
    pub revocation: Arc<RevocationStatus>,
    /// About the memory it takes, in bytes.
    pub weight: u64,
    /// What the provider has said of it besides.
    pub responses: ProviderResponses,
}

impl VerifiedToken {
    /// With what else is said of the same user, in a document of `length` bytes:
    /// what the token says itself counts, and what ends it still does.
    pub fn with(
        &self,
        more: impl IntoIterator<Item = (String, Value)>,
        length: usize,
        responses: ProviderResponses,
    ) -> Arc<Self> {
        let token = &self.token;
        let mut claims = token.claims.clone();
        for (name, value) in more {
            claims.entry(name).or_insert(value);
        }
        Arc::new(Self {
            verification: VerificationId::next(),
            token: Arc::new(AccessToken {
                token: token.token.clone(),
                scopes: token.scopes.clone(),
                expires_at: token.expires_at,
                claims,
            }),
            ends_at: self.ends_at,
            ends_for_good: self.ends_for_good,
            generation: self.generation,
            consumer: ConsumerMemo::default(),
            revocation: Arc::clone(&self.revocation),
            weight: self.weight + 4 * length as u64,
            responses,
        })
    }
}

impl VerifiedToken {
    /// Whether both came from one verification.
    pub fn is_same(&self, other: &Self) -> bool {
        self.verification == other.verification
    }

    /// The same for one worker: only what ends the token is shared.
    pub(super) fn copy(&self) -> Arc<Self> {
        Arc::new(Self {
            verification: self.verification,
            token: Arc::new((*self.token).clone()),
            ends_at: self.ends_at,
            ends_for_good: self.ends_for_good,
            generation: self.generation,
            consumer: ConsumerMemo::default(),
            revocation: Arc::clone(&self.revocation),
            weight: self.weight,
            responses: self.responses.clone(),
        })
    }
}

/// Tells verifications apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerificationId(u64);

impl VerificationId {
    /// One that no other verification has.
    pub fn next() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Self(COUNT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What a provider has said of a token or its user, kept where headers tell it.
#[derive(Clone, Debug, Default)]
pub struct ProviderResponses {
    /// At its introspection endpoint.
    pub introspection: Option<Arc<Document>>,
    /// At userinfo.
    pub user_info: Option<Arc<Document>>,
}

impl ProviderResponses {
    /// About the memory it takes, in bytes.
    pub fn weight(&self) -> u64 {
        let documents = [&self.introspection, &self.user_info].into_iter().flatten();
        documents.map(|document| document.weight()).sum()
    }
}

/// An answer of a provider.
#[derive(Debug)]
pub struct Document {
    /// Its claims.
    pub claims: Map<String, Value>,
    /// The token that it came in, if it was signed.
    pub jwt: Option<String>,
    /// Of the answer, in bytes.
    pub length: usize,
}

impl Document {
    fn weight(&self) -> u64 {
        let jwt = self.jwt.as_ref().map_or(0, String::len);
        (jwt + 4 * self.length) as u64
    }
}

/// A bounded set of verified tokens.
pub struct TokenCache {
    shared: Cache<TokenKey, Arc<VerifiedToken>, Weight, ahash::RandomState>,
    owner: worker_copies::Owner,
}

impl Default for TokenCache {
    fn default() -> Self {
        Self::new()
    }
}

impl TokenCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self {
            shared: Cache::with(
                TOKENS,
                BYTES,
                Weight,
                ahash::RandomState::new(),
                DefaultLifecycle::default(),
            ),
            owner: worker_copies::Owner::next(),
        }
    }

    /// What is known of `token`; the caller checks that it is still true. A worker's own
    /// copy counts only where `is_current` says so: what is shared may be newer.
    pub fn get(
        &self,
        token: &str,
        is_current: impl Fn(&VerifiedToken) -> bool,
    ) -> Option<Arc<VerifiedToken>> {
        worker_copies::get(self.owner, token, &is_current, || {
            self.shared.get(&TokenText(token))
        })
    }

    /// Adds a token that was verified.
    pub fn insert(&self, verified: &Arc<VerifiedToken>) {
        let key = TokenKey(Arc::clone(&verified.token));
        self.shared.insert(key, Arc::clone(verified));
    }
}

#[derive(Clone)]
struct TokenKey(Arc<AccessToken>);

/// A token that is looked for.
struct TokenText<'a>(&'a str);

impl TokenText<'_> {
    /// 64 characters of a signature are 384 bits that look random.
    fn end(&self) -> &[u8] {
        let bytes = self.0.as_bytes();
        bytes.last_chunk::<64>().map_or(bytes, |end| end)
    }
}

impl Hash for TokenText<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.end().hash(state);
    }
}

impl Hash for TokenKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        TokenText(&self.0.token).hash(state);
    }
}

impl PartialEq for TokenKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.token == other.0.token
    }
}

impl Eq for TokenKey {}

impl Equivalent<TokenKey> for TokenText<'_> {
    fn equivalent(&self, key: &TokenKey) -> bool {
        self.0 == key.0.token
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<TokenKey, Arc<VerifiedToken>> for Weight {
    fn weight(&self, _: &TokenKey, verified: &Arc<VerifiedToken>) -> u64 {
        verified.weight
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::Map;

    use super::*;

    /// A token of this text, which takes about this much memory.
    pub(in crate::provider) fn verified(token: String, weight: u64) -> Arc<VerifiedToken> {
        Arc::new(VerifiedToken {
            verification: VerificationId::next(),
            responses: ProviderResponses::default(),
            weight,
            token: Arc::new(AccessToken {
                token,
                claims: Map::new(),
                scopes: Vec::new(),
                expires_at: None,
            }),
            ends_at: 0,
            ends_for_good: true,
            generation: 0,
            consumer: ConsumerMemo::default(),
            revocation: Arc::default(),
        })
    }

    /// The same, with the memory that such a token takes.
    fn cached(token: String) -> Arc<VerifiedToken> {
        let weight = 512 + 5 * token.len() as u64;
        verified(token, weight)
    }

    fn known(cache: &TokenCache, token: &str) -> Option<Arc<VerifiedToken>> {
        cache.get(token, |_| true)
    }

    #[test]
    fn a_token_is_found_by_its_text_alone() {
        let cache = TokenCache::new();
        cache.insert(&cached("abc".into()));
        assert!(known(&cache, "abc").is_some());
        let long = format!("{}{}", "x".repeat(200), "y".repeat(64));
        cache.insert(&cached(long.clone()));
        assert!(known(&cache, &long).is_some());
        let twin = long.replacen('x', "z", 1);
        for other in ["ab", "abcd", "ABC", "", &twin, &long[1..]] {
            assert!(known(&cache, other).is_none(), "{other}");
        }
    }

    #[test]
    fn a_flood_of_tokens_stays_within_the_bound() {
        let cache = TokenCache::new();
        for n in 0..20_000 {
            cache.insert(&cached(format!("{n:01000}")));
        }
        assert!(cache.shared.len() <= TOKENS);
        assert!(cache.shared.weight() <= BYTES + BYTES / 8);
    }

    #[test]
    fn the_longest_token_is_kept() {
        let cache = TokenCache::new();
        let longest = "x".repeat(doorward_core::jose::verify::TOKEN_MAX);
        cache.insert(&cached(longest.clone()));
        assert!(known(&cache, &longest).is_some());
    }
}
