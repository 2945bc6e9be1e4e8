//! Access tokens that come back: whether they are (still) good.

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde_json::{Map, Value};

use super::error::Fault;
use super::realm::Realm;
use super::{State, token_id};
use crate::jose::verify::Unverified;
use crate::model::grant::TokenHash;
use crate::model::user::User;

/// Longest opaque token that is looked up.
const HANDLE_MAX: usize = 64;

/// An access token of this provider that is good now.
#[derive(Debug)]
pub(super) struct GoodToken {
    /// The realm that issued it.
    pub(super) realm: Arc<Realm>,
    pub(super) claims: Map<String, Value>,
    /// Whether it is a handle rather than a JWT.
    pub(super) opaque: bool,
    /// The user it stands for, unless a client acts for itself.
    pub(super) user: Option<User>,
}

impl GoodToken {
    /// The names of its scopes.
    pub(super) fn scopes(&self) -> impl Iterator<Item = &str> {
        let scopes = self.claims.get("scope").and_then(Value::as_array);
        scopes.into_iter().flatten().filter_map(Value::as_str)
    }

    /// Seconds left, rounded down.
    pub(super) fn seconds_left(&self, now_ms: i64) -> i64 {
        let exp = self.claims.get("exp").and_then(Value::as_i64);
        (exp.unwrap_or_default().saturating_mul(1000) - now_ms).div_euclid(1000)
    }
}

/// The token of the `Authorization` header; `None` unless there is exactly one
/// such header and it is a Bearer.
pub(super) fn from_header(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (scheme, token) = values.next()?.to_str().ok()?.split_once(' ')?;
    let alone = values.next().is_none();
    let token = token.trim();
    (alone && scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// The token, if this provider issued it as an access token and it is neither
/// expired nor revoked, its client exists, and its user may sign in.
pub(super) async fn check(
    state: &State,
    token: &str,
    now_ms: i64,
) -> Result<Option<GoodToken>, Fault> {
    let opaque = !token.contains('.');
    let claims = if opaque {
        stored_claims(state, token).await?
    } else {
        signed_claims(state, token)
    };
    let Some(claims) = claims else {
        return Ok(None);
    };
    let text = |name: &str| claims.get(name).and_then(Value::as_str).unwrap_or_default();
    let live = state.live();
    let Some(realm) = live.realm(text("realm")).cloned() else {
        return Ok(None);
    };
    drop(live);
    // Any token of ours verifies; only an access token counts as one.
    if text("tokenName") != "access_token" || text("iss") != realm.issuer {
        return Ok(None);
    }
    let at = |name: &str| claims.get(name).and_then(Value::as_i64);
    let now = now_ms.div_euclid(1000);
    if at("exp").is_none_or(|exp| now >= exp) || at("nbf").is_some_and(|nbf| now < nbf) {
        return Ok(None);
    }
    let store = &*state.store;
    let client = state.clients.find(store, &realm, text("aud")).await?;
    let Some(client) = client else {
        return Ok(None);
    };
    if store.is_revoked(text("authGrantId")).await? {
        return Ok(None);
    }
    // Only users' tokens carry a level.
    let for_user = claims.contains_key("auth_level");
    let user = match for_user {
        true => store.user_by_name(&realm.path, text("sub")).await?,
        false => None,
    };
    if for_user && !user.as_ref().is_some_and(|user| user.active) {
        return Ok(None);
    }
    // Names are given again: to another user, to a client made anew.
    let user_made_ms = user.as_ref().map_or(0, |user| user.created_ms);
    let made_ms = client.client.created_ms.max(user_made_ms);
    let user_id = user.as_ref().map(|user| user.id);
    if !token_id::fits(text("jti"), user_id, made_ms) {
        return Ok(None);
    }
    Ok(Some(GoodToken {
        realm,
        claims,
        opaque,
        user,
    }))
}

fn signed_claims(state: &State, token: &str) -> Option<Map<String, Value>> {
    let keys = state.keys.current();
    Unverified::parse(token).ok()?.verify(&keys.verifiers).ok()
}

async fn stored_claims(state: &State, token: &str) -> Result<Option<Map<String, Value>>, Fault> {
    if token.len() > HANDLE_MAX {
        return Ok(None);
    }
    let stored = state.store.access_token(TokenHash::of(token)).await?;
    Ok(stored.map(|stored| stored.claims))
}
