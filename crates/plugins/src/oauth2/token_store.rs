//! Where tokens are kept, and those that were just looked up.

use std::sync::Arc;

use quick_cache::sync::Cache;
use uuid::Uuid;

use doorward_core::clock::{random_alphanumeric, random_uuid};
use doorward_core::model::grant::TokenHash;
use doorward_core::model::oauth2::{OAuth2Facts, StoredOAuth2Code, StoredOAuth2Token};
use doorward_store::{Store, StoreError};

/// Tokens that are remembered.
const REMEMBERED: usize = 65_536;
/// For how long, in milliseconds: what was revoked elsewhere is good no longer.
const FRESH_MS: i64 = 1000;
/// Letters and digits of codes and tokens: 190 bits.
const TOKEN: usize = 32;
/// How long a code is good, in milliseconds.
const CODE_MS: i64 = 300_000;

/// The tokens of a process; all nodes share them by the store.
pub struct TokenStore {
    store: Arc<Store>,
    looked_up: Cache<TokenHash, CachedToken>,
}

/// A token as it was a moment ago.
#[derive(Clone)]
struct CachedToken {
    at_ms: i64,
    /// What the store had ended by then.
    generation: u64,
    token: Arc<StoredOAuth2Token>,
}

/// A token that was just made, in clear.
pub(super) struct IssuedToken {
    pub(super) access: String,
    pub(super) refresh: Option<String>,
    pub(super) expires_in: i64,
}

/// What a token is to be.
pub(super) struct Wish {
    pub(super) credential: Uuid,
    pub(super) facts: OAuth2Facts,
    /// Whether it can be refreshed.
    pub(super) refreshes: bool,
    /// For how many seconds it can be; 0: for ever.
    pub(super) refresh_ttl: i64,
}

impl TokenStore {
    /// The tokens in `store`.
    pub fn of(store: Arc<Store>) -> Self {
        Self {
            store,
            looked_up: Cache::new(REMEMBERED),
        }
    }

    /// The token of this text, if it was looked up a moment ago.
    pub(super) fn at_hand(&self, access: &str, now_ms: i64) -> Option<Arc<StoredOAuth2Token>> {
        let known = self.looked_up.get(&TokenHash::of(access))?;
        let age_ms = now_ms.saturating_sub(known.at_ms);
        let current = known.generation == self.store.generation();
        (current && (0..FRESH_MS).contains(&age_ms)).then_some(known.token)
    }

    /// The token of this text.
    pub(super) async fn find(
        &self,
        access: &str,
        now_ms: i64,
    ) -> Result<Option<Arc<StoredOAuth2Token>>, StoreError> {
        let hash = TokenHash::of(access);
        let generation = self.store.generation();
        let Some(token) = self.store.oauth2_token(hash).await? else {
            self.looked_up.remove(&hash);
            return Ok(None);
        };
        let token = Arc::new(token);
        let known = CachedToken {
            at_ms: now_ms,
            generation,
            token: Arc::clone(&token),
        };
        self.looked_up.insert(hash, known);
        Ok(Some(token))
    }

    /// Makes a code.
    pub(super) async fn give_code(
        &self,
        credential: Uuid,
        facts: OAuth2Facts,
        now_ms: i64,
    ) -> Result<String, StoreError> {
        let code = random_alphanumeric::<TOKEN>();
        let stored = StoredOAuth2Code {
            hash: TokenHash::of(&code),
            credential,
            expires_ms: now_ms.saturating_add(CODE_MS),
            facts,
        };
        self.store.insert_oauth2_code(&stored).await?;
        Ok(code)
    }

    /// The code of this text, if it is good.
    pub(super) async fn code(
        &self,
        code: &str,
        now_ms: i64,
    ) -> Result<Option<StoredOAuth2Code>, StoreError> {
        let found = self.store.oauth2_code(TokenHash::of(code)).await?;
        Ok(found.filter(|code| code.expires_ms > now_ms))
    }

    /// Makes a token.
    pub(super) async fn give(&self, wish: Wish, now_ms: i64) -> Result<IssuedToken, StoreError> {
        let (issued, stored) = made(wish, now_ms);
        self.store.insert_oauth2_token(&stored, None).await?;
        Ok(issued)
    }

    /// Makes a token for a code, which is spent by that; `None`: it was spent before.
    pub(super) async fn redeem(
        &self,
        code: TokenHash,
        wish: Wish,
        now_ms: i64,
    ) -> Result<Option<IssuedToken>, StoreError> {
        let (issued, stored) = made(wish, now_ms);
        let spent = self.store.redeem_oauth2_code(code, &stored).await?;
        Ok(spent.then_some(issued))
    }

    /// The token that can be refreshed with this text.
    pub(super) async fn by_refresh(
        &self,
        refresh: &str,
        now_ms: i64,
    ) -> Result<Option<StoredOAuth2Token>, StoreError> {
        let found = self.store.oauth2_refresh(TokenHash::of(refresh)).await?;
        Ok(found.filter(|token| !token.is_over(now_ms)))
    }

    /// Makes a token in the place of `old`; `keeps`: with the same refresh token,
    /// until the same time. `None`: it was refreshed meanwhile.
    pub(super) async fn refresh(
        &self,
        old: &StoredOAuth2Token,
        shown: &str,
        wish: Wish,
        keeps: bool,
        now_ms: i64,
    ) -> Result<Option<IssuedToken>, StoreError> {
        let presented = TokenHash::of(shown);
        let (mut issued, mut stored) = made(wish, now_ms);
        if keeps {
            stored.id = old.id;
            stored.refresh = Some(presented);
            stored.ends_ms = old.ends_ms;
            issued.refresh = Some(shown.to_owned());
        }
        let replaced = self
            .store
            .replace_oauth2_token(old.id, presented, &stored)
            .await?;
        self.looked_up.remove(&old.access);
        Ok(replaced.then_some(issued))
    }
}

fn made(wish: Wish, now_ms: i64) -> (IssuedToken, StoredOAuth2Token) {
    let expires_in = wish.facts.expires_in;
    let refresh = (wish.refreshes && expires_in > 0).then(random_alphanumeric::<TOKEN>);
    let issued = IssuedToken {
        access: random_alphanumeric::<TOKEN>(),
        refresh,
        expires_in,
    };
    let after = |seconds: i64| now_ms.saturating_add(seconds.saturating_mul(1000));
    let ends_ms = match (expires_in, wish.refresh_ttl) {
        (0, _) => None,
        // Nothing is left of it then.
        (seconds, 0) if issued.refresh.is_none() => Some(after(seconds)),
        (_, 0) => None,
        (seconds, ttl) if issued.refresh.is_none() => Some(after(seconds.min(ttl))),
        (_, ttl) => Some(after(ttl)),
    };
    let stored = StoredOAuth2Token {
        id: random_uuid(),
        access: TokenHash::of(&issued.access),
        refresh: issued.refresh.as_deref().map(TokenHash::of),
        credential: wish.credential,
        created_ms: now_ms,
        ends_ms,
        facts: wish.facts,
    };
    (issued, stored)
}
