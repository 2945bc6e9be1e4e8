//! What is known of a session's user: what the access token says, and what the ID
//! token says besides.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::held::{Held, Merged};
use crate::plugins::openid_connect::cache::Verified;
use crate::plugins::openid_connect::refusal::Refusal;
use crate::plugins::openid_connect::rules::Rules;
use crate::plugins::openid_connect::verifier::Checked;
use crate::plugins::openid_connect::word::Word;

/// Claims that say something of an ID token, and nothing of its user.
const OF_ID_TOKENS: &[&str] = &[
    "at_hash",
    "c_hash",
    "s_hash",
    "nonce",
    "exp",
    "iat",
    "nbf",
    "aud",
    "azp",
    "typ",
    "tokenName",
];

impl Held {
    /// What is known of the session's user at `now_ms`: what the access token says,
    /// and what the ID token says besides, which vouches for the login.
    ///
    /// # Errors
    /// The rule that is not met.
    pub(in super::super) fn with_id_token(
        &self,
        verified: Arc<Verified>,
        rules: &Rules,
        now_ms: i64,
    ) -> Result<Arc<Verified>, Refusal> {
        let Some(id_token) = &self.id_token else {
            return Ok(verified);
        };
        let with = self.merge(id_token, verified);
        rules.check_login(&with.token.claims, now_ms.div_euclid(1000))?;
        Ok(with)
    }

    fn merge(&self, id_token: &str, verified: Arc<Verified>) -> Arc<Verified> {
        let mut merged = self.merged.lock();
        if let Some(merged) = &*merged
            && Arc::ptr_eq(&merged.of, &verified)
        {
            return Arc::clone(&merged.with);
        }
        let said = verified.said.clone();
        let with = verified.with(identity(id_token), id_token.len(), said);
        *merged = Some(Merged {
            of: verified,
            with: Arc::clone(&with),
        });
        with
    }

    /// What is known of the user of a session whose access token only the
    /// provider can read.
    ///
    /// # Errors
    /// The rule that is not met.
    pub(in super::super) fn trusted(
        &self,
        rules: &Rules,
        now_ms: i64,
    ) -> Result<Arc<Verified>, Refusal> {
        let mut claims = self.id_token.as_deref().map(identity).unwrap_or_default();
        if let Some(scope) = &self.scope {
            claims.insert("scope".to_owned(), Value::from(scope.as_str()));
        }
        let issuer = claims.get("iss").and_then(Value::as_str);
        let issuer = issuer.unwrap_or_default().to_owned();
        let now = now_ms.div_euclid(1000);
        rules.check_untold(&claims, &issuer, now)?;
        if self.id_token.is_some() {
            rules.check_login(&claims, now)?;
        }
        let checked = Checked {
            scopes: rules.scopes(&claims),
            expires_at: self.ends_at.map(|end| end.div_euclid(1000)),
            ends_at: self.ends_at.unwrap_or(i64::MAX),
            ends_for_good: self.ends_at.is_some(),
            claims,
        };
        Ok(checked.verified(&self.access, 0, 0, Word::default()))
    }
}

/// What an ID token that was verified before says of its user.
pub(super) fn identity(id_token: &str) -> Map<String, Value> {
    let parsed = crate::jose::verify::Unverified::parse(id_token);
    let claims = parsed.and_then(|parsed| parsed.claims_of_anyone());
    of_user(claims.unwrap_or_default())
}

/// What the claims of an ID token say of its user.
pub(in super::super) fn of_user(mut claims: Map<String, Value>) -> Map<String, Value> {
    for name in OF_ID_TOKENS {
        claims.remove(*name);
    }
    claims
}
