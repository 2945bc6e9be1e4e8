//! Claims of ID tokens that answer requests of ours (OpenID Connect Core
//! §3.1.3.7).

use serde_json::{Map, Value};
use subtle::ConstantTimeEq;

use doorward_core::jose::claims::{TimeError, check_times, time};
use doorward_core::jose::sign::half_hash;
use doorward_core::jose::verify::Unverified;
use doorward_core::model::client::SignAlg;

/// Longest subject, in bytes (§2).
const SUBJECT_MAX: usize = 255;

/// Whose tokens count.
#[derive(Clone, Copy)]
pub enum Issuer<'a> {
    /// Those of this issuer, letter by letter.
    Exact(&'a str),
    /// Those of each issuer for which this is true.
    Matching(&'a dyn Fn(&str) -> bool),
}

/// What tokens have to be, whichever request they answer.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// Who issues them.
    pub issuer: Issuer<'a>,
    /// The client that asked.
    pub client_id: &'a str,
    /// The classes of authentication that will do; none: any.
    pub acr: &'a [String],
    /// How far the provider's clock and ours may differ, in seconds.
    pub leeway: i64,
    /// Whether the issuer and the times count. An operator may have turned that off.
    pub checks_validity: bool,
}

/// What was sent, and came back with the token.
#[derive(Clone, Copy, Default)]
pub struct IdTokenContext<'a> {
    /// The nonce of the request; `None`: no request is known, or it does not count.
    pub nonce: Option<&'a str>,
    /// The access token of the same answer.
    pub access_token: Option<&'a str>,
    /// The user must have signed in there since then, in seconds.
    pub signed_in_since: Option<i64>,
}

/// What is wrong with the claims of an ID token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// `iss` is of somebody else.
    #[error("its iss is not the provider's")]
    Issuer,
    /// `exp`, `nbf` or `iat`.
    #[error("it has expired, is not valid yet, or says not when")]
    Times(TimeError),
    /// `sub` is absent, empty, too long or no text for people.
    #[error("it has no usable sub")]
    Subject,
    /// `aud` or `azp` names another client.
    #[error("it is not for us")]
    Audience,
    /// `nonce` is of another request.
    #[error("its nonce is not the one that was sent")]
    Nonce,
    /// `acr` is of another class.
    #[error("its acr is none of those that are required")]
    Context,
    /// `auth_time` is absent or too long ago.
    #[error("the user signed in there too long ago, or it does not say when")]
    Age,
    /// `auth_time` is no time.
    #[error("the user signed in there too long ago, or it does not say when")]
    AuthTime(TimeError),
    /// `at_hash` is of another token.
    #[error("it belongs to another access token")]
    AccessToken,
}

/// Whether a token may be an ID token by its header: one of another kind says so
/// (RFC 8725 §3.11).
pub fn may_be_id_token(parsed: &Unverified<'_>) -> bool {
    parsed.typ().is_none_or(|typ| typ == "jwt")
}

/// Checks claims whose signature by `alg` is good, at `now` in seconds.
///
/// # Errors
/// What is wrong with them.
pub fn check(
    claims: &Map<String, Value>,
    rules: &Rules<'_>,
    (alg, now): (SignAlg, i64),
    context: &IdTokenContext<'_>,
) -> Result<(), ClaimError> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    if rules.checks_validity {
        let counts = |issuer: &str| match rules.issuer {
            Issuer::Exact(own) => issuer == own,
            Issuer::Matching(counts) => counts(issuer),
        };
        if !text("iss").is_some_and(counts) {
            return Err(ClaimError::Issuer);
        }
        check_times(claims, now, rules.leeway).map_err(ClaimError::Times)?;
        let issued = time(claims, "iat").map_err(ClaimError::Times)?;
        issued.ok_or(ClaimError::Times(TimeError::Malformed))?;
    }
    let subject = text("sub").unwrap_or_default();
    let legal = !subject.is_empty() && subject.len() <= SUBJECT_MAX;
    if !legal || subject.chars().any(char::is_control) {
        return Err(ClaimError::Subject);
    }
    if !is_for(claims, rules.client_id) {
        return Err(ClaimError::Audience);
    }
    if let Some(own) = context.nonce {
        let is_same = |nonce: &str| bool::from(nonce.as_bytes().ct_eq(own.as_bytes()));
        if !text("nonce").is_some_and(is_same) {
            return Err(ClaimError::Nonce);
        }
    }
    let fits = |acr: &str| rules.acr.iter().any(|one| one == acr);
    if !rules.acr.is_empty() && !text("acr").is_some_and(fits) {
        return Err(ClaimError::Context);
    }
    if let Some(since) = context.signed_in_since {
        let at = time(claims, "auth_time").map_err(ClaimError::AuthTime)?;
        if at.is_none_or(|at| at < since.saturating_sub(rules.leeway)) {
            return Err(ClaimError::Age);
        }
    }
    if let (Some(hash), Some(token)) = (claims.get("at_hash"), context.access_token)
        && hash.as_str() != Some(&half_hash(alg, token))
    {
        return Err(ClaimError::AccessToken);
    }
    Ok(())
}

/// Whether it is for this client: alone, or in its hands (`azp`).
fn is_for(claims: &Map<String, Value>, client_id: &str) -> bool {
    let party = claims.get("azp");
    if party.is_some_and(|party| party.as_str() != Some(client_id)) {
        return false;
    }
    match claims.get("aud") {
        Some(Value::String(one)) => one == client_id,
        Some(Value::Array(several)) => {
            let named = several.iter().any(|one| one.as_str() == Some(client_id));
            named && (several.len() == 1 || party.is_some())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RULES: Rules<'_> = Rules {
        issuer: Issuer::Exact("https://id"),
        client_id: "app",
        acr: &[],
        leeway: 5,
        checks_validity: true,
    };

    const CONTEXT: IdTokenContext<'_> = IdTokenContext {
        nonce: Some("n"),
        access_token: Some("at"),
        signed_in_since: None,
    };

    /// Claims of a good token with `changes`; null takes one away.
    fn claims(changes: &Value) -> Map<String, Value> {
        let good = json!({"iss": "https://id", "sub": "anna", "aud": "app", "exp": 200,
            "iat": 100, "nonce": "n"});
        let mut claims = good.as_object().cloned().expect("an object");
        for (name, value) in changes.as_object().expect("an object") {
            match value {
                Value::Null => claims.remove(name),
                value => claims.insert(name.clone(), value.clone()),
            };
        }
        claims
    }

    fn checked(
        rules: &Rules<'_>,
        context: &IdTokenContext<'_>,
        changes: &Value,
    ) -> Result<(), ClaimError> {
        check(&claims(changes), rules, (SignAlg::ES256, 150), context)
    }

    #[test]
    fn each_claim_that_is_wrong_has_its_own_error() {
        for (changes, error) in [
            (json!({"iss": "https://id/"}), ClaimError::Issuer),
            (json!({"iss": null}), ClaimError::Issuer),
            (json!({"exp": 145}), ClaimError::Times(TimeError::Expired)),
            (
                json!({"exp": null}),
                ClaimError::Times(TimeError::Malformed),
            ),
            (
                json!({"iat": null}),
                ClaimError::Times(TimeError::Malformed),
            ),
            (json!({"nbf": 170}), ClaimError::Times(TimeError::NotYet)),
            (json!({"sub": null}), ClaimError::Subject),
            (json!({"sub": ""}), ClaimError::Subject),
            (json!({"sub": 7}), ClaimError::Subject),
            (json!({"sub": "x".repeat(256)}), ClaimError::Subject),
            (json!({"sub": "a\nb"}), ClaimError::Subject),
            (json!({"aud": null}), ClaimError::Audience),
            (json!({"aud": "other"}), ClaimError::Audience),
            (
                json!({"aud": "app other", "azp": "app"}),
                ClaimError::Audience,
            ),
            (json!({"aud": ["app", "other"]}), ClaimError::Audience),
            (json!({"aud": ["app", {}]}), ClaimError::Audience),
            (json!({"azp": "other"}), ClaimError::Audience),
            (json!({"azp": 5}), ClaimError::Audience),
            (json!({"nonce": "m"}), ClaimError::Nonce),
            (json!({"nonce": null}), ClaimError::Nonce),
            (json!({"at_hash": "AAAA"}), ClaimError::AccessToken),
            (json!({"at_hash": 5}), ClaimError::AccessToken),
        ] {
            let outcome = checked(&RULES, &CONTEXT, &changes);
            assert_eq!(outcome, Err(error), "{changes}");
        }
        for good in [
            json!({}),
            json!({"aud": ["app"]}),
            json!({"aud": ["app", "other"], "azp": "app"}),
            json!({"at_hash": half_hash(SignAlg::ES256, "at")}),
        ] {
            assert_eq!(checked(&RULES, &CONTEXT, &good), Ok(()), "{good}");
        }
    }

    #[test]
    fn an_issuer_that_is_not_exact_is_a_question() {
        let is_tenant = |issuer: &str| issuer.starts_with("https://id/t");
        let rules = Rules {
            issuer: Issuer::Matching(&is_tenant),
            ..RULES
        };
        let of = |issuer: &str| checked(&rules, &CONTEXT, &json!({"iss": issuer}));
        assert_eq!(of("https://id/t1"), Ok(()));
        assert_eq!(of("https://id"), Err(ClaimError::Issuer));
    }

    #[test]
    fn without_validity_the_token_is_for_us_all_the_same() {
        let rules = Rules {
            checks_validity: false,
            ..RULES
        };
        let old = json!({"iss": "https://evil", "exp": 1, "iat": null});
        assert_eq!(checked(&rules, &CONTEXT, &old), Ok(()));
        for (changes, error) in [
            (json!({"aud": "other"}), ClaimError::Audience),
            (json!({"sub": ""}), ClaimError::Subject),
            (json!({"nonce": "m"}), ClaimError::Nonce),
        ] {
            assert_eq!(checked(&rules, &CONTEXT, &changes), Err(error));
        }
    }

    #[test]
    fn what_was_not_sent_is_not_compared() {
        let other = json!({"nonce": "m", "at_hash": "AAAA"});
        assert_eq!(checked(&RULES, &IdTokenContext::default(), &other), Ok(()));
    }

    #[test]
    fn a_sign_in_must_be_recent_and_of_a_class_that_will_do() {
        let gold = ["gold".to_owned()];
        let rules = Rules {
            acr: &gold,
            ..RULES
        };
        let context = IdTokenContext {
            signed_in_since: Some(130),
            ..CONTEXT
        };
        for (changes, outcome) in [
            (json!({"acr": "gold", "auth_time": 125}), Ok(())),
            (
                json!({"acr": "gold", "auth_time": 124}),
                Err(ClaimError::Age),
            ),
            (json!({"acr": "gold"}), Err(ClaimError::Age)),
            (
                json!({"acr": "gold", "auth_time": "now"}),
                Err(ClaimError::AuthTime(TimeError::Malformed)),
            ),
            (
                json!({"acr": "tin", "auth_time": 140}),
                Err(ClaimError::Context),
            ),
            (json!({"auth_time": 140}), Err(ClaimError::Context)),
        ] {
            assert_eq!(checked(&rules, &context, &changes), outcome, "{changes}");
        }
    }
}
