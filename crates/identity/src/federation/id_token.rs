//! Checking ID tokens that answer requests of ours (OpenID Connect Core
//! §3.1.3.7).

use serde_json::{Map, Value};
use subtle::ConstantTimeEq;

use super::Provider;
use super::metadata::Metadata;
use super::refusal::IdTokenError;
use crate::Call;
use doorward_core::jose::claims::{check_times, time};
use doorward_core::jose::sign::half_hash;
use doorward_core::jose::verify::Unverified;
use doorward_core::model::client::SignAlg;
use doorward_net::http::outbound::ChosenBy;

/// How far the provider's clock and ours may differ, in seconds.
const SKEW: i64 = 60;

/// Longest subject, in bytes (§2).
const SUBJECT_MAX: usize = 255;

/// What was sent, and came back with the token.
pub(crate) struct Expected<'a> {
    pub(crate) nonce: &'a str,
    pub(crate) access_token: Option<&'a str>,
    /// The user must have signed in there since then, in seconds.
    pub(crate) signed_in_since: Option<i64>,
}

/// Who issues the tokens, and for whom.
pub(crate) struct Parties<'a> {
    pub(crate) issuer: &'a str,
    pub(crate) client_id: &'a str,
    /// The classes of authentication that will do; none: any.
    pub(crate) acr: &'a [String],
}

/// The claims of an ID token, if it is the provider's answer to our request.
pub(super) async fn verify(
    call: &Call,
    (provider, metadata): (&Provider, &Metadata),
    token: &str,
    expected: &Expected<'_>,
) -> Result<Map<String, Value>, IdTokenError> {
    let parsed = Unverified::parse(token)?;
    if parsed.typ().is_some_and(|typ| typ != "jwt") {
        return Err(IdTokenError::Kind);
    }
    let algorithm = parsed.algorithm();
    let allowed = match provider.written.id_token_signed_response_alg {
        Some(only) => algorithm.as_sign_alg() == only,
        // Who can read the secret could sign for the provider.
        None => !algorithm.is_symmetric() && metadata.algorithms.contains(&algorithm),
    };
    if !allowed {
        return Err(IdTokenError::Algorithm);
    }
    let claims = match (algorithm.is_symmetric(), provider.secret()) {
        (true, Some(secret)) => parsed.verify_hmac(secret.expose().as_bytes())?,
        (true, None) => return Err(IdTokenError::Algorithm),
        (false, _) => {
            let source = Some((ChosenBy::Operator, metadata.jwks_uri.as_str()));
            let keys = &call.state.client_keys;
            keys.verify_with(None, source, &parsed, call.now_ms).await?
        }
    };
    let now = call.now_ms.div_euclid(1000);
    let parties = Parties {
        issuer: &metadata.issuer,
        client_id: &provider.written.client_id,
        acr: &provider.written.require_acr,
    };
    let alg = algorithm.as_sign_alg();
    check(&claims, &parties, (alg, now), expected)?;
    Ok(claims)
}

/// Checks claims whose signature is good.
pub(crate) fn check(
    claims: &Map<String, Value>,
    parties: &Parties<'_>,
    (alg, now): (SignAlg, i64),
    expected: &Expected<'_>,
) -> Result<(), IdTokenError> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    if text("iss") != Some(parties.issuer) {
        return Err(IdTokenError::Issuer);
    }
    if !is_for(claims, parties.client_id) {
        return Err(IdTokenError::Audience);
    }
    let issued = time(claims, "iat").map_err(|_| IdTokenError::Times)?;
    check_times(claims, now, SKEW).map_err(|_| IdTokenError::Times)?;
    issued.ok_or(IdTokenError::Times)?;
    let nonce = text("nonce").unwrap_or_default();
    if !bool::from(nonce.as_bytes().ct_eq(expected.nonce.as_bytes())) {
        return Err(IdTokenError::Nonce);
    }
    if let (Some(hash), Some(token)) = (claims.get("at_hash"), expected.access_token)
        && hash.as_str() != Some(&half_hash(alg, token))
    {
        return Err(IdTokenError::AccessToken);
    }
    let subject = text("sub").unwrap_or_default();
    let legal = !subject.is_empty() && subject.len() <= SUBJECT_MAX;
    if !legal || subject.chars().any(char::is_control) {
        return Err(IdTokenError::Subject);
    }
    let wanted = parties.acr;
    let fits = |acr: &str| wanted.iter().any(|one| one == acr);
    if !wanted.is_empty() && !text("acr").is_some_and(fits) {
        return Err(IdTokenError::Context);
    }
    if let Some(since) = expected.signed_in_since {
        let at = time(claims, "auth_time").ok().flatten();
        if at.is_none_or(|at| at < since.saturating_sub(SKEW)) {
            return Err(IdTokenError::Age);
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
