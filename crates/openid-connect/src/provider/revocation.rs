//! The cached revocation state of a token whose provider is in this process. The
//! state holds as long as the provider has revoked nothing since.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value};

use crate::decide::refusal::Refusal;
use doorward_net::http::outbound::TokenStatus;

/// Whether a token was revoked, as its provider said last. A provider in another
/// process tells nothing before its token expires: the token counts as active.
#[derive(Debug, Default)]
pub struct RevocationStatus {
    provider: Option<Arc<dyn TokenStatus>>,
    /// The version of the provider's answer, and whether it was "revoked".
    state: AtomicU64,
    /// Whether the token is opaque: the provider can't be asked again by its
    /// claims.
    opaque: bool,
}

/// The state of a token as far as it is known without a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The token is active.
    Active,
    /// The token was revoked.
    Revoked,
    /// The provider has to be asked, or asked again.
    Unknown,
}

const UNKNOWN: u64 = u64::MAX;

fn encode(version: u64, revoked: bool) -> u64 {
    version << 1 | u64::from(revoked)
}

impl RevocationStatus {
    /// A state that the provider was not asked for yet.
    pub fn new(provider: Option<Arc<dyn TokenStatus>>) -> Self {
        Self {
            provider,
            state: AtomicU64::new(UNKNOWN),
            opaque: false,
        }
    }

    /// The state of an opaque token that the provider called active at `version`.
    pub fn active_at(provider: Option<Arc<dyn TokenStatus>>, version: u64) -> Self {
        Self {
            provider,
            state: AtomicU64::new(encode(version, false)),
            opaque: true,
        }
    }

    /// Whether only the token itself, by introspection, tells its state.
    pub fn is_of_opaque_token(&self) -> bool {
        self.opaque
    }

    /// The provider's present version. Its next answers are of this version or
    /// later.
    pub fn version(&self) -> u64 {
        self.provider.as_ref().map_or(0, |one| one.version())
    }

    /// Records the provider's answer at `version`.
    pub fn record(&self, version: u64, is_active: bool) {
        self.state
            .store(encode(version, !is_active), Ordering::Relaxed);
    }

    /// Copies the state from another record of the same token.
    pub fn adopt(&self, other: &Self) {
        let state = other.state.load(Ordering::Relaxed);
        self.state.store(state, Ordering::Relaxed);
    }

    /// The present state; costs a few atomic loads.
    pub fn status(&self) -> Status {
        let Some(provider) = &self.provider else {
            return Status::Active;
        };
        let (state, version) = (self.state.load(Ordering::Relaxed), provider.version());
        match state {
            state if state == encode(version, false) => Status::Active,
            state if state == encode(version, true) => Status::Revoked,
            _ => Status::Unknown,
        }
    }

    /// Asks the provider about the token of these claims. An opaque token can't be
    /// checked so.
    ///
    /// # Errors
    /// The token was revoked, or the provider can't tell.
    pub async fn check(&self, claims: &Map<String, Value>) -> Result<(), Refusal> {
        let Some(provider) = &self.provider else {
            return Ok(());
        };
        if self.opaque {
            return Err(Refusal::ProviderUnavailable);
        }
        // From before the question: what ends meanwhile is asked about again.
        let version = provider.version();
        let is_active = provider.is_active(claims).await;
        let is_active = is_active.map_err(|_| Refusal::ProviderUnavailable)?;
        self.record(version, is_active);
        is_active.then_some(()).ok_or(Refusal::InactiveToken)
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use doorward_net::http::outbound::StatusUnavailable;

    /// Its tokens stand until version 5.
    #[derive(Debug)]
    struct Provider(AtomicU64);

    #[async_trait]
    impl TokenStatus for Provider {
        fn version(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        async fn is_active(&self, _: &Map<String, Value>) -> Result<bool, StatusUnavailable> {
            match self.version() {
                9 => Err(StatusUnavailable),
                version => Ok(version < 5),
            }
        }

        async fn accepts_proofs_by(
            &self,
            _: &Map<String, Value>,
            _: doorward_core::jose::algorithm::Algorithm,
        ) -> Result<bool, StatusUnavailable> {
            Ok(true)
        }

        async fn claims_of(
            &self,
            _: &str,
        ) -> Result<Option<Map<String, Value>>, StatusUnavailable> {
            Ok(None)
        }
    }

    #[tokio::test]
    async fn a_word_counts_until_something_ends() {
        let provider = Arc::new(Provider(AtomicU64::new(0)));
        let revocation = RevocationStatus::new(Some(provider.clone()));
        let claims = Map::new();
        for (version, before, answer, after) in [
            (0, Status::Unknown, Ok(()), Status::Active),
            (1, Status::Unknown, Ok(()), Status::Active),
            (
                5,
                Status::Unknown,
                Err(Refusal::InactiveToken),
                Status::Revoked,
            ),
            (
                9,
                Status::Unknown,
                Err(Refusal::ProviderUnavailable),
                Status::Unknown,
            ),
        ] {
            provider.0.store(version, Ordering::Relaxed);
            assert_eq!(revocation.status(), before, "{version}");
            assert_eq!(revocation.check(&claims).await, answer, "{version}");
            assert_eq!(revocation.status(), after, "{version}");
        }
    }

    #[tokio::test]
    async fn the_claims_of_a_revoked_opaque_token_do_not_vouch_for_it() {
        let provider = Arc::new(Provider(AtomicU64::new(0)));
        let revocation = RevocationStatus::active_at(Some(provider.clone()), 0);
        assert_eq!(revocation.status(), Status::Active);
        provider.0.store(1, Ordering::Relaxed);
        assert!(revocation.check(&Map::new()).await.is_err());
        assert_eq!(revocation.status(), Status::Unknown);
        revocation.record(revocation.version(), false);
        assert_eq!(revocation.status(), Status::Revoked);
    }

    #[tokio::test]
    async fn nothing_is_heard_of_a_provider_elsewhere() {
        let revocation = RevocationStatus::new(None);
        assert_eq!(revocation.status(), Status::Active);
        assert_eq!(revocation.check(&Map::new()).await, Ok(()));
    }
}
