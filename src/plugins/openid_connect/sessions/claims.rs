//! What is known of a session's user: what the access token says, and what the ID
//! token says besides.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::LoginSession;
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

impl LoginSession {
    /// What its ID tokens have said of its user: what the last one says counts.
    pub(super) fn identity(&self) -> Map<String, Value> {
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
    pub(in super::super) fn take_id_token(&mut self, next: &str) {
        self.earlier = self.identity();
        for (name, value) in identity(next) {
            if !value.is_null() {
                self.earlier.remove(&name);
            }
        }
        self.id_token = Some(next.to_owned());
    }
}

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
        if self.id_token.is_none() {
            return Ok(verified);
        }
        let with = self.merge(verified);
        rules.check_login(&with.token.claims, now_ms.div_euclid(1000))?;
        Ok(with)
    }

    fn merge(&self, verified: Arc<Verified>) -> Arc<Verified> {
        let mut merged = self.merged.lock();
        if let Some(merged) = &*merged
            && Arc::ptr_eq(&merged.of, &verified)
        {
            return Arc::clone(&merged.with);
        }
        let said = verified.said.clone();
        let length = self.id_token.as_ref().map_or(0, String::len);
        let with = verified.with(self.identity(), length, said);
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
        let mut claims = self.identity();
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
