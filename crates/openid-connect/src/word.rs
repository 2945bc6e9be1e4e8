//! What a provider in this process last said of a token: as long as nothing was
//! revoked since, that is still true.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value};

use super::refusal::Refusal;
use doorward_net::http::outbound::Standing;

/// The word of a token's provider. Of one elsewhere nothing is heard before
/// its token expires.
#[derive(Debug, Default)]
pub struct Word {
    provider: Option<Arc<dyn Standing>>,
    /// The version at which it was heard, and whether that was a no.
    heard: AtomicU64,
    /// Whether it was told of a token that says nothing itself: its claims are
    /// not enough to ask again.
    told: bool,
}

/// What is known without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The token is active.
    Stands,
    /// The token was revoked.
    Fell,
    /// The provider has to be asked (again).
    Nothing,
}

const NOTHING: u64 = u64::MAX;

fn mark(version: u64, fell: bool) -> u64 {
    version << 1 | u64::from(fell)
}

impl Word {
    /// Not heard yet.
    pub fn of(provider: Option<Arc<dyn Standing>>) -> Self {
        Self {
            provider,
            heard: AtomicU64::new(NOTHING),
            told: false,
        }
    }

    /// Heard while the provider was at `version`: the token stands.
    pub fn heard_at(provider: Option<Arc<dyn Standing>>, version: u64) -> Self {
        Self {
            provider,
            heard: AtomicU64::new(mark(version, false)),
            told: true,
        }
    }

    /// Whether the provider has to be asked by the token itself.
    pub fn is_told(&self) -> bool {
        self.told
    }

    /// The version that the provider is at, and what is asked from now on is
    /// answered at.
    pub fn version(&self) -> u64 {
        self.provider.as_ref().map_or(0, |one| one.version())
    }

    /// Notes what the provider said at `version`.
    pub fn note(&self, version: u64, stands: bool) {
        self.heard.store(mark(version, !stands), Ordering::Relaxed);
    }

    /// Takes over what was heard of the same token.
    pub fn hear(&self, other: &Self) {
        let heard = other.heard.load(Ordering::Relaxed);
        self.heard.store(heard, Ordering::Relaxed);
    }

    /// What is known now; costs next to nothing.
    pub fn heard(&self) -> Heard {
        let Some(provider) = &self.provider else {
            return Heard::Stands;
        };
        let (heard, version) = (self.heard.load(Ordering::Relaxed), provider.version());
        match heard {
            heard if heard == mark(version, false) => Heard::Stands,
            heard if heard == mark(version, true) => Heard::Fell,
            _ => Heard::Nothing,
        }
    }

    /// Asks the provider about the token of these claims; of one that says
    /// nothing itself they are not asked about.
    pub async fn ask(&self, claims: &Map<String, Value>) -> Result<(), Refusal> {
        let Some(provider) = &self.provider else {
            return Ok(());
        };
        if self.told {
            return Err(Refusal::ProviderUnavailable);
        }
        // From before the question: what ends meanwhile is asked about again.
        let version = provider.version();
        let stands = provider.stands(claims).await;
        let stands = stands.map_err(|_| Refusal::ProviderUnavailable)?;
        self.note(version, stands);
        stands.then_some(()).ok_or(Refusal::InactiveToken)
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use doorward_net::http::outbound::Untold;

    /// Its tokens stand until version 5.
    #[derive(Debug)]
    struct Provider(AtomicU64);

    #[async_trait]
    impl Standing for Provider {
        fn version(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        async fn stands(&self, _: &Map<String, Value>) -> Result<bool, Untold> {
            match self.version() {
                9 => Err(Untold),
                version => Ok(version < 5),
            }
        }

        async fn takes_proofs_by(
            &self,
            _: &Map<String, Value>,
            _: doorward_core::jose::algorithm::Algorithm,
        ) -> Result<bool, Untold> {
            Ok(true)
        }

        async fn recall(&self, _: &str) -> Result<Option<Map<String, Value>>, Untold> {
            Ok(None)
        }
    }

    #[tokio::test]
    async fn a_word_counts_until_something_ends() {
        let provider = Arc::new(Provider(AtomicU64::new(0)));
        let word = Word::of(Some(provider.clone()));
        let claims = Map::new();
        for (version, before, answer, after) in [
            (0, Heard::Nothing, Ok(()), Heard::Stands),
            (1, Heard::Nothing, Ok(()), Heard::Stands),
            (5, Heard::Nothing, Err(Refusal::InactiveToken), Heard::Fell),
            (
                9,
                Heard::Nothing,
                Err(Refusal::ProviderUnavailable),
                Heard::Nothing,
            ),
        ] {
            provider.0.store(version, Ordering::Relaxed);
            assert_eq!(word.heard(), before, "{version}");
            assert_eq!(word.ask(&claims).await, answer, "{version}");
            assert_eq!(word.heard(), after, "{version}");
        }
    }

    #[tokio::test]
    async fn the_claims_of_a_revoked_opaque_token_do_not_vouch_for_it() {
        let provider = Arc::new(Provider(AtomicU64::new(0)));
        let word = Word::heard_at(Some(provider.clone()), 0);
        assert_eq!(word.heard(), Heard::Stands);
        provider.0.store(1, Ordering::Relaxed);
        assert!(word.ask(&Map::new()).await.is_err());
        assert_eq!(word.heard(), Heard::Nothing);
        word.note(word.version(), false);
        assert_eq!(word.heard(), Heard::Fell);
    }

    #[tokio::test]
    async fn nothing_is_heard_of_a_provider_elsewhere() {
        let word = Word::of(None);
        assert_eq!(word.heard(), Heard::Stands);
        assert_eq!(word.ask(&Map::new()).await, Ok(()));
    }
}
