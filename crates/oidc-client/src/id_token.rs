//! Claims of ID tokens that answer requests of ours (OpenID Connect Core
//! §3.1.3.7).

use serde_json::{Map, Value};
use subtle::ConstantTimeEq;

use doorward_core::jose::claims::{check_times, time};
use doorward_core::jose::sign::half_hash;
use doorward_core::model::client::SignAlg;

/// How far the provider's clock and ours may differ, in seconds.
const SKEW: i64 = 60;

/// Longest subject, in bytes (§2).
const SUBJECT_MAX: usize = 255;

/// What was sent, and came back with the token.
pub struct Expected<'a> {
    /// The nonce of the request.
    pub nonce: &'a str,
    /// The access token of the same answer.
    pub access_token: Option<&'a str>,
    /// The user must have signed in there since then, in seconds.
    pub signed_in_since: Option<i64>,
}

/// Who issues the tokens, and for whom.
pub struct Parties<'a> {
    /// The issuer, as its metadata name it.
    pub issuer: &'a str,
    /// The client that asked.
    pub client_id: &'a str,
    /// The classes of authentication that will do; none: any.
    pub acr: &'a [String],
}

/// What is wrong with the claims of an ID token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// `iss` is of somebody else.
    #[error("its iss is not the provider's")]
    Issuer,
    /// `aud` or `azp` names another client.
    #[error("it is not for us")]
    Audience,
    /// `exp`, `nbf` or `iat`.
    #[error("it has expired, is not valid yet, or says not when")]
    Times,
    /// `nonce` is of another request.
    #[error("its nonce is not the one that was sent")]
    Nonce,
    /// `at_hash` is of another token.
    #[error("it belongs to another access token")]
    AccessToken,
    /// `sub` is absent, empty, too long or no text for people.
    #[error("it has no usable sub")]
    Subject,
    /// `acr` is of another class.
    #[error("its acr is none of those that are required")]
    Context,
    /// `auth_time` is absent or too long ago.
    #[error("the user signed in there too long ago, or it does not say when")]
    Age,
}

/// Checks claims whose signature is good.
///
/// # Errors
/// What is wrong with them.
pub fn check(
    claims: &Map<String, Value>,
    parties: &Parties<'_>,
    (alg, now): (SignAlg, i64),
    expected: &Expected<'_>,
) -> Result<(), ClaimError> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    if text("iss") != Some(parties.issuer) {
        return Err(ClaimError::Issuer);
    }
    if !is_for(claims, parties.client_id) {
        return Err(ClaimError::Audience);
    }
    let issued = time(claims, "iat").map_err(|_| ClaimError::Times)?;
    check_times(claims, now, SKEW).map_err(|_| ClaimError::Times)?;
    issued.ok_or(ClaimError::Times)?;
    let nonce = text("nonce").unwrap_or_default();
    if !bool::from(nonce.as_bytes().ct_eq(expected.nonce.as_bytes())) {
        return Err(ClaimError::Nonce);
    }
    if let (Some(hash), Some(token)) = (claims.get("at_hash"), expected.access_token)
        && hash.as_str() != Some(&half_hash(alg, token))
    {
        return Err(ClaimError::AccessToken);
    }
    let subject = text("sub").unwrap_or_default();
    let legal = !subject.is_empty() && subject.len() <= SUBJECT_MAX;
    if !legal || subject.chars().any(char::is_control) {
        return Err(ClaimError::Subject);
    }
    let wanted = parties.acr;
    let fits = |acr: &str| wanted.iter().any(|one| one == acr);
    if !wanted.is_empty() && !text("acr").is_some_and(fits) {
        return Err(ClaimError::Context);
    }
    if let Some(since) = expected.signed_in_since {
        let at = time(claims, "auth_time").ok().flatten();
        if at.is_none_or(|at| at < since.saturating_sub(SKEW)) {
            return Err(ClaimError::Age);
        }
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
