//! Verifying ID tokens (OpenID Connect Core §3.1.3.7).

use serde_json::{Map, Value};

use crate::config::fields::Fields;
use crate::decide::refusal::Refusal;
use crate::provider::ProviderMetadata;
use crate::provider::hmac_keys::HmacKeys;
use crate::provider::issuers::AllowedIssuers;
use crate::provider::signature;
use crate::provider::signing_algs::ResponseAlg;
use doorward_core::jose::verify::Unverified;
use doorward_core::model::client::SignAlg;
use doorward_core::model::secret::Secret;
use doorward_oidc_client::id_token::{self, Issuer, Rules, may_be_id_token};
use doorward_plugin_api::ConfigError;

/// What ID tokens have to be.
#[derive(Debug)]
pub(crate) struct IdTokens {
    verify_claims: bool,
    verify_nonce: bool,
    verify_signature: bool,
    leeway: i64,
    max_age: Option<i64>,
    hmac_keys: HmacKeys,
    alg: ResponseAlg,
    issuers: AllowedIssuers,
}

/// What an ID token is checked against.
pub(crate) struct Expected<'a> {
    pub(crate) client: &'a str,
    /// The secret of that, where it is a caller and none of the gateway's.
    pub(crate) secret: Option<&'a Secret>,
    /// Of the login; a token that was refreshed has none.
    pub(crate) nonce: Option<&'a str>,
    /// The access token that came with it.
    pub(crate) access: &'a str,
    /// In seconds.
    pub(crate) now: i64,
}

impl IdTokens {
    pub(crate) fn new(fields: &Fields) -> Result<Self, ConfigError> {
        Ok(Self {
            verify_claims: fields.checks.verify_claims,
            verify_nonce: fields.checks.verify_nonce,
            verify_signature: fields.checks.verify_signature,
            leeway: fields.checks.leeway.0,
            max_age: fields.claims.max_age.map(|age| age.0),
            hmac_keys: HmacKeys::new(fields)?,
            alg: ResponseAlg::new(fields)?,
            issuers: AllowedIssuers::new(fields),
        })
    }

    /// The claims of an ID token; `Ok(None)`: newer keys may tell.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn verify(
        &self,
        token: &str,
        metadata: &ProviderMetadata,
        expected: &Expected<'_>,
        by_key: bool,
    ) -> Result<Option<Map<String, Value>>, Refusal> {
        let parsed = Unverified::parse(token)?;
        self.alg.check(&parsed)?;
        let claims = if self.verify_signature && by_key {
            signature::claims(&parsed, metadata, self.hmac_keys.for_token(expected))?
        } else {
            Some(parsed.claims_of_anyone()?)
        };
        let Some(claims) = claims else {
            return Ok(None);
        };
        if !may_be_id_token(&parsed) {
            return Err(Refusal::WrongIdToken);
        }
        let alg = parsed.algorithm().as_sign_alg();
        let checked = self.check(&claims, &metadata.issuer, alg, expected);
        checked.map_err(|refusal| metadata.undiscovered_or(refusal))?;
        Ok(Some(claims))
    }

    fn check(
        &self,
        claims: &Map<String, Value>,
        issuer: &str,
        alg: SignAlg,
        expected: &Expected<'_>,
    ) -> Result<(), Refusal> {
        let is_allowed = |named: &str| self.issuers.has(named, issuer);
        let rules = Rules {
            issuer: Issuer::Matching(&is_allowed),
            client_id: expected.client,
            acr: &[],
            leeway: self.leeway,
            checks_validity: self.verify_claims,
        };
        // Tokens that were refreshed have the login's time, which was good once.
        let max_age = self.max_age.filter(|_| expected.nonce.is_some());
        let context = id_token::IdTokenContext {
            nonce: expected.nonce.filter(|_| self.verify_nonce),
            access_token: Some(expected.access),
            signed_in_since: max_age.map(|max_age| expected.now.saturating_sub(max_age)),
        };
        id_token::check(claims, &rules, (alg, expected.now), &context).map_err(Refusal::from)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(config: Value, changes: Value) -> Result<(), Refusal> {
        let tokens = IdTokens::new(&Fields::of(&config).expect("valid")).expect("valid");
        let mut claims = json!({"iss": "https://id", "sub": "anna", "aud": "app",
            "exp": 200, "iat": 100, "nonce": "n"});
        for (name, value) in changes.as_object().expect("an object") {
            match value {
                Value::Null => {
                    claims.as_object_mut().expect("an object").remove(name);
                }
                other => claims[name] = other.clone(),
            }
        }
        let expected = Expected {
            client: "app",
            secret: None,
            nonce: Some("n"),
            access: "",
            now: 150,
        };
        tokens.check(
            claims.as_object().expect("an object"),
            "https://id",
            SignAlg::ES256,
            &expected,
        )
    }

    #[test]
    fn each_claim_that_is_wrong_is_refused_by_name() {
        assert_eq!(check(json!({}), json!({})), Ok(()));
        for (changes, refusal) in [
            (json!({"iss": "https://evil"}), Refusal::WrongIssuer),
            (json!({"iss": null}), Refusal::WrongIssuer),
            (json!({"aud": "other"}), Refusal::WrongAudience),
            (json!({"aud": ["app", "other"]}), Refusal::WrongAudience),
            (json!({"azp": "other"}), Refusal::WrongAudience),
            (json!({"azp": 1}), Refusal::WrongAudience),
            (json!({"exp": 150}), Refusal::TokenExpired),
            (json!({"exp": null}), Refusal::MalformedTimes),
            (json!({"iat": null}), Refusal::MalformedTimes),
            (json!({"iat": 170}), Refusal::TokenNotYetValid),
            (json!({"nonce": "m"}), Refusal::WrongNonce),
            (json!({"nonce": null}), Refusal::WrongNonce),
            (json!({"sub": null}), Refusal::WrongIdToken),
            (json!({"sub": ""}), Refusal::WrongIdToken),
        ] {
            assert_eq!(check(json!({}), changes.clone()), Err(refusal), "{changes}");
        }
        let several = json!({"aud": ["app", "other"], "azp": "app"});
        assert_eq!(check(json!({}), several), Ok(()));
    }

    #[test]
    fn the_issuers_that_are_named_hold_for_id_tokens_too() {
        let config = json!({"issuers_allowed": ["https://id/t1"]});
        let tenant = json!({"iss": "https://id/t1"});
        assert_eq!(check(config.clone(), tenant), Ok(()));
        for other in [json!({}), json!({"iss": "https://id/t2"})] {
            assert_eq!(check(config.clone(), other), Err(Refusal::WrongIssuer));
        }
    }

    #[test]
    fn a_login_that_is_too_old_is_refused() {
        let config = json!({"max_age": 20});
        assert_eq!(check(config.clone(), json!({"auth_time": 130})), Ok(()));
        for old in [json!({"auth_time": 129}), json!({})] {
            assert_eq!(check(config.clone(), old), Err(Refusal::LoginTooOld));
        }
    }
}
