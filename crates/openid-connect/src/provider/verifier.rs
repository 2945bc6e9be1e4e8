//! From the text of a token to what is believed of it: out of the cache, or by
//! the provider's keys, with newer keys fetched where they may tell.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::Providers;
use crate::decide::refusal::Refusal;
use crate::provider::revocation::{RevocationStatus, Status};
use crate::provider::token_cache::{ProviderResponses, TokenCache, VerificationId, VerifiedToken};
use crate::provider::{Provider, ProviderConfig, ProviderMetadata};
use doorward_core::clock::Clock;
use doorward_core::jose::verify::Unverified;
use doorward_core::model::token::AccessToken;
use doorward_net::telemetry::Counter;
use doorward_plugin_api::Parts;
use doorward_plugin_api::consumers::ConsumerMemo;

/// What a token has to be.
pub trait TokenCheck {
    /// Checks a token at `now_ms` with what is known of its provider;
    /// `Ok(None)`: newer keys may tell.
    fn check(
        &self,
        parsed: &Unverified<'_>,
        metadata: Option<&ProviderMetadata>,
        now_ms: i64,
    ) -> Result<Option<CheckedClaims>, Refusal>;

    /// Whether tokens that pass may be remembered: nobody but the issuer can
    /// have made them.
    fn remembers(&self) -> bool;
}

/// What is believed of a token.
#[derive(Debug)]
pub struct CheckedClaims {
    /// Its claims.
    pub claims: Map<String, Value>,
    /// The scopes that it grants.
    pub scopes: Vec<String>,
    /// In seconds.
    pub expires_at: Option<i64>,
    /// It must no longer pass from then on, in milliseconds.
    pub ends_at: i64,
    /// Whether that is the token's own end.
    pub ends_for_good: bool,
}

impl CheckedClaims {
    /// What is known of `token`, by keys of `generation` and by the `revocation` of
    /// its provider; the claims were read from a document of `length` bytes.
    pub fn verified(
        self,
        token: &str,
        length: usize,
        generation: u64,
        revocation: impl Into<Arc<RevocationStatus>>,
    ) -> Arc<VerifiedToken> {
        let responses = ProviderResponses::default();
        self.verified_with(token, length, generation, revocation, responses)
    }

    /// As [`Self::verified`], with what the provider has said besides.
    pub fn verified_with(
        self,
        token: &str,
        length: usize,
        generation: u64,
        revocation: impl Into<Arc<RevocationStatus>>,
        responses: ProviderResponses,
    ) -> Arc<VerifiedToken> {
        // Parsed JSON takes a few times its length.
        let weight = 768 + token.len() as u64 + 4 * length as u64 + responses.weight();
        Arc::new(VerifiedToken {
            verification: VerificationId::next(),
            responses,
            weight,
            ends_at: self.ends_at,
            ends_for_good: self.ends_for_good,
            generation,
            consumer: ConsumerMemo::default(),
            revocation: revocation.into(),
            token: Arc::new(AccessToken {
                token: token.to_owned(),
                scopes: self.scopes,
                expires_at: self.expires_at,
                claims: self.claims,
            }),
        })
    }
}

/// What is to be done with a token.
pub enum Verification {
    /// The token is good.
    Valid(Arc<VerifiedToken>),
    /// The token is refused.
    Refused(Refusal),
    /// Somebody has to be asked first.
    Pending,
}

/// Verifies the tokens of one provider.
pub struct Verifier<C> {
    /// The checks beyond signature and issuer.
    pub check: C,
    provider: Arc<Provider>,
    cache: TokenCache,
    clock: Clock,
    hits: Counter,
    misses: Counter,
}

/// What the keys at hand say of a token.
enum CacheLookup {
    Valid(Arc<VerifiedToken>),
    Refused(Refusal),
    NeedsKeys,
    /// Its provider has to be asked whether it still stands.
    NeedsRevocationCheck(Arc<VerifiedToken>),
}

impl CacheLookup {
    /// At a token that is good as far as its text goes.
    fn at(verified: Arc<VerifiedToken>) -> Self {
        match verified.revocation.status() {
            Status::Active => Self::Valid(verified),
            Status::Revoked => Self::Refused(Refusal::InactiveToken),
            Status::Unknown => Self::NeedsRevocationCheck(verified),
        }
    }
}

impl<C: TokenCheck> Verifier<C> {
    /// A verifier of the tokens that the provider of `config` signs.
    pub fn new(check: C, config: ProviderConfig, parts: &Parts) -> Self {
        Self {
            check,
            provider: Providers::of(parts).provider(config, parts),
            cache: TokenCache::new(),
            clock: parts.clock.clone(),
            hits: parts.metrics.token_cache("hit"),
            misses: parts.metrics.token_cache("miss"),
        }
    }

    /// What is known of the provider at this moment.
    pub fn metadata(&self) -> Option<Arc<ProviderMetadata>> {
        self.provider.metadata()
    }

    /// Judges a token with what is at hand.
    pub fn verify_now(&self, token: &str) -> Verification {
        let now_ms = self.clock.now_ms();
        self.provider.refresh_if_old(now_ms);
        // Keys may come and go at any time: asked only once, before or after, this
        // might tell of others than those that are looked at.
        let paused = self.provider.is_paused(now_ms);
        match self.lookup(token, now_ms) {
            CacheLookup::Valid(verified) => Verification::Valid(verified),
            CacheLookup::Refused(refusal) => Verification::Refused(refusal),
            CacheLookup::NeedsRevocationCheck(_) => Verification::Pending,
            CacheLookup::NeedsKeys => {
                let refusal = self.no_matching_key();
                if paused && self.provider.is_paused(now_ms) {
                    Verification::Refused(refusal)
                } else {
                    Verification::Pending
                }
            }
        }
    }

    /// As [`Self::verify_now`], waiting for newer keys where they may tell.
    pub async fn verify_or_fetch(&self, token: &str) -> Result<Arc<VerifiedToken>, Refusal> {
        self.provider.refresh_if_old(self.clock.now_ms());
        let mut last = false;
        loop {
            let now_ms = self.clock.now_ms();
            match self.lookup(token, now_ms) {
                CacheLookup::Valid(verified) => return Ok(verified),
                CacheLookup::Refused(refusal) => return Err(refusal),
                CacheLookup::NeedsRevocationCheck(verified) => {
                    verified.revocation.check(&verified.token.claims).await?;
                    return Ok(verified);
                }
                CacheLookup::NeedsKeys if last => return Err(self.no_matching_key()),
                CacheLookup::NeedsKeys => last = !self.provider.wait_for_newer(now_ms).await,
            }
        }
    }

    /// Looks a token up in the cache, or verifies it.
    fn lookup(&self, token: &str, now_ms: i64) -> CacheLookup {
        let generation = self.provider.generation();
        let is_current =
            |held: &VerifiedToken| now_ms < held.ends_at && held.generation == generation;
        if let Some(held) = self.cache.get(token, is_current) {
            if now_ms >= held.ends_at && held.ends_for_good {
                return CacheLookup::Refused(Refusal::TokenExpired);
            }
            if is_current(&held) {
                self.hits.inc();
                return CacheLookup::at(held);
            }
        }
        let lookup = match self.verify_with_keys(token, now_ms) {
            Ok(Some(verified)) => CacheLookup::at(verified),
            Ok(None) => return CacheLookup::NeedsKeys,
            Err(refusal) => CacheLookup::Refused(refusal),
        };
        self.misses.inc();
        lookup
    }

    /// Verifies a token with the keys at hand; `None`: they do not suffice.
    fn verify_with_keys(
        &self,
        token: &str,
        now_ms: i64,
    ) -> Result<Option<Arc<VerifiedToken>>, Refusal> {
        let parsed = Unverified::parse(token)?;
        let metadata = self.provider.metadata();
        let checked = self.check.check(&parsed, metadata.as_deref(), now_ms)?;
        let (Some(checked), Some(metadata)) = (checked, metadata) else {
            return Ok(None);
        };
        let revocation = RevocationStatus::new(metadata.token_status.clone());
        let verified = checked.verified(token, token.len(), metadata.generation, revocation);
        if self.check.remembers() {
            self.cache.insert(&verified);
        }
        Ok(Some(verified))
    }

    /// The refusal of a token that the keys at hand can't verify.
    fn no_matching_key(&self) -> Refusal {
        match self.provider.metadata() {
            Some(metadata) => metadata.no_matching_key(),
            None => self.provider.unavailable(),
        }
    }
}
