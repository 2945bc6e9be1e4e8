//! What is known of a session's user: what the access token says, and what the ID
//! token says besides.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::authorize::rules::Rules;
use crate::config::methods::Method;
use crate::decide::refusal::Refusal;
use crate::provider::opaque_token::OpaqueToken;
use crate::provider::token_cache::VerifiedToken;
use crate::session::LoginSession;
use crate::session::open_session::OpenSession;

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

impl LoginSession {
    /// What its ID tokens have said of its user: what the last one says counts.
    pub(crate) fn identity(&self) -> Map<String, Value> {
        let mut claims = self.earlier.clone();
        for (name, value) in self.id_token.as_deref().map(identity).unwrap_or_default() {
            match value {
                Value::Null => {
                    claims.entry(name).or_insert(value);
                }
                value => {
                    claims.insert(name, value);
                }
            }
        }
        claims
    }

    /// Takes the next ID token, which was verified. Whose session it is at the
    /// provider, and who the user is, stays known where it says less.
    pub(crate) fn take_id_token(&mut self, next: &str) {
        self.earlier = self.identity();
        for (name, value) in identity(next) {
            if !value.is_null() {
                self.earlier.remove(&name);
            }
        }
        self.id_token = Some(next.to_owned());
    }
}

impl OpenSession {
    /// What is known of the session's user at `now_ms`: what the access token says,
    /// and what the ID token says besides, which vouches for the login.
    ///
    /// # Errors
    /// The rule that is not met.
    pub(crate) fn with_id_token(
        &self,
        verified: Arc<VerifiedToken>,
        rules: &Rules,
        now_ms: i64,
    ) -> Result<Arc<VerifiedToken>, Refusal> {
        if self.id_token.is_none() {
            return Ok(verified);
        }
        let length = self.id_token.as_ref().map_or(0, String::len);
        let with = self.merged.with(verified, || self.identity(), length);
        self.check_login(&with, rules, now_ms)?;
        Ok(with)
    }

    /// What is known of the user of a session whose access token only the
    /// provider can read.
    ///
    /// # Errors
    /// The rule that is not met.
    pub(crate) fn trusted(
        &self,
        rules: &Rules,
        now_ms: i64,
    ) -> Result<Arc<VerifiedToken>, Refusal> {
        let opaque = OpaqueToken {
            access: &self.access,
            scope: self.scope.as_deref(),
            ends_at: self.ends_at,
        };
        let verified = opaque.trusted(self.identity(), rules, now_ms)?;
        if self.id_token.is_some() {
            self.check_login(&verified, rules, now_ms)?;
        }
        Ok(verified)
    }

    /// Checks what the tokens say of the login, or of what was shown in its place.
    fn check_login(
        &self,
        verified: &VerifiedToken,
        rules: &Rules,
        now_ms: i64,
    ) -> Result<(), Refusal> {
        let (claims, now) = (&verified.token.claims, now_ms.div_euclid(1000));
        match self.by {
            Method::AuthorizationCode => rules.check_login(claims, now),
            _ => rules.check_age(claims, now),
        }
    }
}

/// What an ID token that was verified before says of its user.
pub(crate) fn identity(id_token: &str) -> Map<String, Value> {
    let parsed = doorward_core::jose::verify::Unverified::parse(id_token);
    let claims = parsed.and_then(|parsed| parsed.claims_of_anyone());
    of_user(claims.unwrap_or_default())
}

/// What the claims of an ID token say of its user.
pub(crate) fn of_user(mut claims: Map<String, Value>) -> Map<String, Value> {
    for name in OF_ID_TOKENS {
        claims.remove(*name);
    }
    claims
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use serde_json::json;

    use super::*;

    fn token(claims: Value) -> String {
        let text = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.AAAA", text(json!({"alg": "ES256"})), text(claims))
    }

    /// A session as it was kept before it could hold anything of earlier tokens.
    fn kept_before(claims: Value) -> LoginSession {
        let kept = json!({"s": "id", "c": "app", "a": "A", "i": token(claims), "b": 5, "n": 5});
        serde_json::from_value(kept).expect("it opens")
    }

    #[test]
    fn what_the_next_id_token_leaves_out_stays_known_and_what_it_says_counts() {
        let first = json!({"iss": "https://id", "sub": "anna", "sid": "s-1", "nonce": "n",
            "exp": 9, "email": "a@b.c", "groups": ["admins"], "hd": "b.c"});
        let mut login = kept_before(first);
        login.take_id_token(&token(
            json!({"iss": "https://id", "sub": "anna", "exp": 10, "groups": [], "hd": null}),
        ));
        let wanted = json!({"iss": "https://id", "sub": "anna", "sid": "s-1",
            "email": "a@b.c", "groups": [], "hd": "b.c"});
        assert_eq!(Value::from(login.identity()), wanted);
        let kept = json!({"sid": "s-1", "email": "a@b.c", "hd": "b.c"});
        assert_eq!(Value::from(login.earlier.clone()), kept, "nothing twice");
        // And so on, kept and read again.
        let text = serde_json::to_vec(&login).expect("it is kept");
        let mut login: LoginSession = serde_json::from_slice(&text).expect("it opens");
        login.take_id_token(&token(json!({"iss": "https://id", "sub": "anna"})));
        assert_eq!(Value::from(login.identity()), wanted);
    }
}
