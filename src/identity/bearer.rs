//! Access tokens that come back: whether they are (still) good.

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde_json::{Map, Value};

use super::clients::LiveClient;
use super::error::Fault;
use super::realm::Realm;
use super::{State, token_id};
use crate::jose::verify::{TOKEN_MAX, Unverified};
use crate::model::grant::TokenHash;
use crate::model::user::User;

/// Longest opaque token that is looked up.
const HANDLE_MAX: usize = 64;

/// Most tokens kept in memory.
const KEPT: usize = 16 * 1024;

/// Most memory that they take, in bytes, about.
const KEPT_BYTES: u64 = 32 * 1024 * 1024;

/// A token that we issued: its signature was checked, or it is in the store.
/// Whether it is still good is another question.
#[derive(Debug)]
pub(super) struct Issued {
    pub(super) claims: Map<String, Value>,
    /// Whether it is a handle rather than a JWT.
    pub(super) opaque: bool,
    /// Of the keys that verified it.
    generation: u64,
}

impl Issued {
    fn text(&self, name: &str) -> &str {
        let claim = self.claims.get(name).and_then(Value::as_str);
        claim.unwrap_or_default()
    }

    /// Whether it is an access token of this realm, and this its time. Any token
    /// of ours verifies; only an access token counts as one.
    fn is_access_token(&self, realm: &Realm, now_ms: i64) -> bool {
        let now = now_ms.div_euclid(1000);
        let begins_s = self.claims.get("nbf").and_then(Value::as_i64);
        self.text("tokenName") == "access_token"
            && self.text("iss") == realm.issuer
            && now < self.ends_s()
            && begins_s.is_none_or(|begins_s| now >= begins_s)
    }

    /// The client that it was issued to.
    pub(super) fn client_id(&self) -> &str {
        match self.text("client_id") {
            "" => self.text("aud"),
            named => named,
        }
    }

    /// Its identifier.
    pub(super) fn id(&self) -> &str {
        self.text("jti")
    }

    /// The grant it belongs to.
    pub(super) fn grant_id(&self) -> &str {
        self.text("authGrantId")
    }

    /// Whether it was given to this client, or is for it.
    pub(super) fn concerns(&self, client: &LiveClient) -> bool {
        self.is_for(client) || self.client_id() == client.id()
    }

    /// Whether this client is (among) its audience.
    pub(super) fn is_for(&self, client: &LiveClient) -> bool {
        let others = &client.client.metadata.audiences;
        self.audiences()
            .any(|one| one == client.id() || others.iter().any(|other| other == one))
    }

    /// Whom it is for.
    pub(super) fn audiences(&self) -> impl Iterator<Item = &str> {
        let several = match self.claims.get("aud") {
            Some(Value::Array(several)) => several.as_slice(),
            Some(one) => std::slice::from_ref(one),
            None => &[],
        };
        several.iter().filter_map(Value::as_str)
    }

    /// The key (RFC 7638 thumbprint) that it is bound to.
    pub(super) fn bound_to(&self) -> Option<&str> {
        self.claims.get("cnf")?.get("jkt")?.as_str()
    }

    /// When it ends, in seconds since the epoch.
    pub(super) fn ends_s(&self) -> i64 {
        let exp = self.claims.get("exp").and_then(Value::as_i64);
        exp.unwrap_or_default()
    }

    /// Seconds left, rounded down.
    pub(super) fn seconds_left(&self, now_ms: i64) -> i64 {
        (self.ends_s().saturating_mul(1000) - now_ms).div_euclid(1000)
    }

    /// The names of its scopes.
    pub(super) fn scopes(&self) -> impl Iterator<Item = &str> {
        let scopes = self.claims.get("scope").and_then(Value::as_array);
        scopes.into_iter().flatten().filter_map(Value::as_str)
    }
}

/// Tokens that were met before.
pub(super) struct Tokens(Cache<TokenHash, Arc<Issued>, Weight>);

impl Tokens {
    pub(super) fn new() -> Self {
        Self(Cache::with_weighter(KEPT, KEPT_BYTES, Weight))
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<TokenHash, Arc<Issued>> for Weight {
    /// Parsed claims of an ordinary token take about two KiB.
    fn weight(&self, _: &TokenHash, issued: &Arc<Issued>) -> u64 {
        1024 + 64 * issued.claims.len() as u64 + 32 * issued.scopes().count() as u64
    }
}

/// An access token of this provider that is good now.
#[derive(Debug)]
pub(super) struct GoodToken {
    /// The realm that issued it.
    pub(super) realm: Arc<Realm>,
    pub(super) issued: Arc<Issued>,
    /// The user it stands for, unless a client acts for itself.
    pub(super) user: Option<Arc<User>>,
}

/// The token of the `Authorization` header; `None` unless there is exactly one
/// such header and it is a Bearer.
pub(super) fn from_header(headers: &HeaderMap) -> Option<&str> {
    by_scheme(headers, "bearer")
}

/// The token that is shown together with a proof of possession (RFC 9449 §7.1).
pub(super) fn with_proof(headers: &HeaderMap) -> Option<&str> {
    by_scheme(headers, "dpop")
}

fn by_scheme<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (scheme, token) = values.next()?.to_str().ok()?.split_once(' ')?;
    let alone = values.next().is_none();
    let token = token.trim();
    (alone && scheme.eq_ignore_ascii_case(wanted) && !token.is_empty()).then_some(token)
}

/// The token, if this provider issued it, whatever has become of it since.
pub(super) async fn issued(state: &State, token: &str) -> Result<Option<Arc<Issued>>, Fault> {
    let opaque = !token.contains('.');
    if token.len() > if opaque { HANDLE_MAX } else { TOKEN_MAX } {
        return Ok(None);
    }
    let keys = state.keys.current();
    let hash = TokenHash::of(token);
    if let Some(known) = state.tokens.0.get(&hash)
        && known.generation == keys.generation
    {
        return Ok(Some(known));
    }
    let claims = if opaque {
        let stored = state.store.access_token(hash).await?;
        stored.map(|stored| stored.claims)
    } else {
        let parsed = Unverified::parse(token).ok();
        parsed.and_then(|parsed| parsed.verify(&keys.verifiers).ok())
    };
    let Some(claims) = claims else {
        return Ok(None);
    };
    let issued = Arc::new(Issued {
        claims,
        opaque,
        generation: keys.generation,
    });
    state.tokens.0.insert(hash, Arc::clone(&issued));
    Ok(Some(issued))
}

/// The token, if this provider issued it as an access token and it is neither
/// expired nor revoked, its client exists, and its user may sign in.
pub(super) async fn check(
    state: &State,
    token: &str,
    now_ms: i64,
) -> Result<Option<GoodToken>, Fault> {
    let Some(issued) = issued(state, token).await? else {
        return Ok(None);
    };
    let Some(realm) = state.live().realm(issued.text("realm")).cloned() else {
        return Ok(None);
    };
    if !issued.is_access_token(&realm, now_ms) || state.revoked.has(issued.grant_id(), issued.id())
    {
        return Ok(None);
    }
    let store = &*state.store;
    let client = state
        .clients
        .find(store, &realm, issued.client_id())
        .await?;
    let Some(client) = client else {
        return Ok(None);
    };
    // Only users' tokens carry a level.
    let user = match issued.claims.contains_key("auth_level") {
        false => None,
        true => {
            let user = state.users.by_name(store, &realm.path, issued.text("sub"));
            match user.await?.filter(|user| user.active) {
                Some(user) => Some(user),
                None => return Ok(None),
            }
        }
    };
    // Names are given again: to another user, to a client made anew.
    let user_made_ms = user.as_ref().map_or(0, |user| user.created_ms);
    let made_ms = client.client.created_ms.max(user_made_ms);
    let user_id = user.as_ref().map(|user| user.id);
    if !token_id::fits(issued.id(), user_id, made_ms) {
        return Ok(None);
    }
    Ok(Some(GoodToken {
        realm,
        issued,
        user,
    }))
}
