//! Tokens and codes of the `oauth2` plugin, as the store keeps them.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::grant::TokenHash;

/// Tokens of one credential that are kept at most: the oldest give way.
pub const OAUTH2_TOKENS_MAX: u32 = 10_000;

/// What a token or a code stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OAuth2Facts {
    /// The name of the credential, by which it is looked up.
    pub client_id: String,
    /// The service that it is for; `None`: any.
    pub service: Option<Uuid>,
    /// Who the credential's owner says has agreed.
    pub authenticated_userid: Option<String>,
    /// What was agreed to.
    pub scope: Option<String>,
    /// Seconds for which the access token is good; 0: as long as it is kept.
    pub expires_in: i64,
    /// Of a code: the plugin that gave it, where it is for no service.
    #[serde(default)]
    pub plugin: Option<String>,
    /// Of a code: what its exchange has to prove (RFC 7636).
    #[serde(default)]
    pub challenge: Option<String>,
}

/// An access token and its refresh token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOAuth2Token {
    /// Assigned identifier.
    pub id: Uuid,
    /// Hash of the access token.
    pub access: TokenHash,
    /// Hash of the refresh token.
    pub refresh: Option<TokenHash>,
    /// The credential that it belongs to.
    pub credential: Uuid,
    /// When the access token was made, in milliseconds since the epoch.
    pub created_ms: i64,
    /// When both are over, in milliseconds since the epoch; `None`: never.
    pub ends_ms: Option<i64>,
    /// What it stands for.
    pub facts: OAuth2Facts,
}

impl StoredOAuth2Token {
    /// Whether it is kept no longer.
    pub fn is_over(&self, now_ms: i64) -> bool {
        self.ends_ms.is_some_and(|end| end <= now_ms)
    }

    /// Whether the access token is good.
    pub fn is_good(&self, now_ms: i64) -> bool {
        let lasts_ms = self.facts.expires_in.saturating_mul(1000);
        let in_time = lasts_ms == 0 || now_ms < self.created_ms.saturating_add(lasts_ms);
        in_time && !self.is_over(now_ms)
    }
}

/// An authorization code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOAuth2Code {
    /// Hash of it.
    pub hash: TokenHash,
    /// The credential that it belongs to.
    pub credential: Uuid,
    /// When it is over, in milliseconds since the epoch.
    pub expires_ms: i64,
    /// What it stands for.
    pub facts: OAuth2Facts,
}
