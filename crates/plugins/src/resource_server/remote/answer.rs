//! What an endpoint says of a token.

use serde_json::{Map, Value};

use super::{Protocol, refuses};
use doorward_core::jose::claims::{CLOCK_SKEW, time, words};
use doorward_core::jose::json;
use doorward_net::http::outbound::Answer;
use doorward_openid_connect::provider::verifier::CheckedClaims;
use doorward_openid_connect::refusal::Refusal;
use doorward_openid_connect::rules::{denies, is_access_token};

/// Longest answer that is believed, in bytes.
const ANSWER_MAX: usize = 64 * 1024;

/// An endpoint's word on a token.
pub(super) enum ProviderResponses {
    Good(Box<CheckedClaims>),
    Bad(Refusal),
    /// It lacks this member, without which it says nothing of any token.
    Incomplete(&'static str),
}

/// Reads an answer that came at `now_ms`.
///
/// # Errors
/// Why it says nothing about the token: the endpoint is broken, or does not
/// take the gateway's credentials.
pub(super) fn read(
    protocol: Protocol,
    answer: &Answer,
    now_ms: i64,
) -> Result<ProviderResponses, String> {
    let status = answer.status.as_u16();
    if answer.body.len() > ANSWER_MAX {
        return Err(format!("answered with more than {ANSWER_MAX} bytes"));
    }
    let body = json::object(&answer.body).ok();
    let claims = match (protocol, status, body) {
        (_, 200, Some(claims)) => claims,
        // What it says of the gateway's own credentials comes with the same
        // statuses from an introspection endpoint (RFC 7662 §2.3).
        (Protocol::TokenInfo, _, Some(error))
            if refuses(answer.status) && error.contains_key("error") =>
        {
            return Ok(ProviderResponses::Bad(Refusal::InactiveToken));
        }
        (_, 200, None) => return Err("answered with something else than a JSON object".into()),
        _ => return Err(format!("answered with status {status}")),
    };
    match protocol {
        Protocol::Introspection if claims.get("active") != Some(&Value::Bool(true)) => {
            return Ok(ProviderResponses::Bad(Refusal::InactiveToken));
        }
        Protocol::TokenInfo if denies(&without_scopes(&claims)) => {
            return Ok(ProviderResponses::Bad(Refusal::InactiveToken));
        }
        Protocol::TokenInfo => {
            if let Some(member) = lacking(&claims) {
                return Ok(ProviderResponses::Incomplete(member));
            }
        }
        Protocol::Introspection => {}
    }
    Ok(match check(protocol, claims, now_ms) {
        Ok(checked) => ProviderResponses::Good(Box::new(checked)),
        Err(refusal) => ProviderResponses::Bad(refusal),
    })
}

/// The members that may say that the token is none: `/tokeninfo` also has each
/// scope as a member, which is an empty text.
fn without_scopes(claims: &Map<String, Value>) -> Map<String, Value> {
    let scopes = claims.get("scope").and_then(Value::as_array);
    let is_scope = |name: &str| scopes.is_some_and(|all| all.iter().any(|scope| scope == name));
    let mut others = Map::new();
    for name in ["error", "active"] {
        if let Some(value) = claims.get(name)
            && !(value == "" && is_scope(name))
        {
            others.insert(name.to_owned(), value.clone());
        }
    }
    others
}

/// The member that an answer of `/tokeninfo` about a good token would have.
fn lacking(claims: &Map<String, Value>) -> Option<&'static str> {
    let token = claims.get("access_token").and_then(Value::as_str);
    let scopes = claims.get("scope").and_then(Value::as_array);
    let is_text = |scope: &Value| scope.is_string();
    let tells_end = ["expires_in", "exp"]
        .iter()
        .any(|name| claims.contains_key(*name));
    if token.is_none_or(str::is_empty) {
        Some("access_token")
    } else if !scopes.is_some_and(|scopes| scopes.iter().all(is_text)) {
        Some("scope")
    } else if !tells_end {
        Some("expires_in")
    } else {
        None
    }
}

fn check(
    protocol: Protocol,
    claims: Map<String, Value>,
    now_ms: i64,
) -> Result<CheckedClaims, Refusal> {
    if !is_access_token(None, &claims, false) || is_another(&claims) {
        return Err(Refusal::WrongType);
    }
    let now = now_ms.div_euclid(1000);
    let mut expires_at = time(&claims, "exp")?;
    if protocol == Protocol::TokenInfo
        && let Some(seconds) = time(&claims, "expires_in")?
    {
        expires_at = Some(now.saturating_add(seconds));
    }
    if expires_at.is_some_and(|end| now >= end) {
        return Err(Refusal::TokenExpired);
    }
    if time(&claims, "nbf")?.is_some_and(|start| start > now + CLOCK_SKEW) {
        return Err(Refusal::TokenNotYetValid);
    }
    let scopes = claims.get("scope").map(words).unwrap_or_default();
    Ok(CheckedClaims {
        scopes: scopes.into_iter().map(Into::into).collect(),
        expires_at,
        ends_at: expires_at.map_or(i64::MAX, |end| end.saturating_mul(1000)),
        ends_for_good: expires_at.is_some(),
        claims,
    })
}

/// Whether the endpoint, which may know tokens of every kind, says that this
/// is one of another kind.
fn is_another(claims: &Map<String, Value>) -> bool {
    let kind = |name: &str| claims.get(name).and_then(Value::as_str);
    [kind("token_type"), kind("token_use")]
        .into_iter()
        .flatten()
        .any(|kind| {
            let other = ["refresh_token", "id_token", "refresh", "id"];
            other.iter().any(|one| kind.eq_ignore_ascii_case(one))
        })
}
