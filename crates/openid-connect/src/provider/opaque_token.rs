//! Access tokens that only their provider can read: what came with them counts.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::authorize::rules::Rules;
use crate::decide::refusal::Refusal;
use crate::provider::revocation::RevocationStatus;
use crate::provider::token_cache::VerifiedToken;
use crate::provider::verifier::CheckedClaims;

/// An access token of which nobody can say anything.
pub(crate) struct OpaqueToken<'a> {
    pub(crate) access: &'a str,
    /// The scopes that were granted with it, where they are known.
    pub(crate) scope: Option<&'a str>,
    /// When it ends, in milliseconds, where that is known.
    pub(crate) ends_at: Option<i64>,
}

impl OpaqueToken<'_> {
    /// What is believed of it at `now_ms`, with what the ID token says of its user.
    ///
    /// # Errors
    /// The rule that is not met.
    pub(crate) fn trusted(
        &self,
        identity: Map<String, Value>,
        rules: &Rules,
        now_ms: i64,
    ) -> Result<Arc<VerifiedToken>, Refusal> {
        let mut claims = identity;
        if let Some(scope) = self.scope {
            rules.grant(scope, &mut claims);
        }
        let issuer = claims.get("iss").and_then(Value::as_str);
        let issuer = issuer.unwrap_or_default();
        rules.check_opaque(&claims, issuer, now_ms.div_euclid(1000))?;
        let checked = CheckedClaims {
            scopes: rules.scopes(&claims),
            expires_at: self.ends_at.map(|end| end.div_euclid(1000)),
            ends_at: self.ends_at.unwrap_or(i64::MAX),
            ends_for_good: self.ends_at.is_some(),
            claims,
        };
        Ok(checked.verified(self.access, 0, 0, RevocationStatus::default()))
    }
}
