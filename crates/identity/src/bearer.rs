//! Access tokens that come back: whether they are (still) good.

use std::fmt::Write;
use std::sync::{Arc, OnceLock};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use serde_json::{Map, Value, json};

use super::audit;
use super::clients::LiveClient;
use super::context::{NO_CLASS, PASSWORD};
use super::error::Fault;
use super::realm::Realm;
use super::revocations::TokenDigests;
use super::{State, token_id};
use doorward_core::jose::claims::check_times;
use doorward_core::jose::verify::{TOKEN_MAX, Unverified};
use doorward_core::model::grant::TokenHash;
use doorward_core::model::user::User;

/// Longest opaque token that is looked up.
const HANDLE_MAX: usize = 64;

/// The grants whose users sign in.
const BY_PASSWORD: [&str; 4] = [
    "authorization_code",
    "implicit",
    "password",
    "urn:ietf:params:oauth:grant-type:device_code",
];

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
    /// What revocations name it by.
    digests: TokenDigests,
    /// What `tokeninfo` and `introspect` say of it at any time: JSON up to the
    /// number of seconds that are left.
    pub(super) info: OnceLock<Box<str>>,
    pub(super) introspection: OnceLock<Box<str>>,
}

fn text<'a>(claims: &'a Map<String, Value>, name: &str) -> &'a str {
    let claim = claims.get(name).and_then(Value::as_str);
    claim.unwrap_or_default()
}

/// The client that a token of these claims was issued to.
pub(super) fn client_id(claims: &Map<String, Value>) -> &str {
    match text(claims, "client_id") {
        "" => text(claims, "aud"),
        named => named,
    }
}

/// What revocations name a token of these claims by.
pub(super) fn digests(claims: &Map<String, Value>) -> TokenDigests {
    TokenDigests::of(text(claims, "authGrantId"), text(claims, "jti"))
}

/// A JSON object with its end left open for the seconds that are left.
pub(super) fn open_ended(mut object: Map<String, Value>) -> Box<str> {
    object.remove("expires_in");
    let mut text = Value::Object(object).to_string();
    text.pop();
    text.push_str(",\"expires_in\":");
    text.into_boxed_str()
}

/// The object with the seconds that are left.
pub(super) fn ended(open: &str, seconds: i64) -> String {
    let mut text = String::with_capacity(open.len() + 24);
    text.push_str(open);
    // Writing to a string can't fail.
    let _ = write!(text, "{seconds}}}");
    text
}

impl Issued {
    fn new(claims: Map<String, Value>, opaque: bool, generation: u64) -> Self {
        Self {
            digests: digests(&claims),
            claims,
            opaque,
            generation,
            info: OnceLock::new(),
            introspection: OnceLock::new(),
        }
    }

    fn text(&self, name: &str) -> &str {
        text(&self.claims, name)
    }

    /// Whether it is an access token of this realm, and this its time. Any token
    /// of ours verifies; only an access token counts as one.
    fn is_access_token(&self, realm: &Realm, now_ms: i64) -> bool {
        let now = now_ms.div_euclid(1000);
        self.text("tokenName") == "access_token"
            && self.text("iss") == realm.issuer
            && check_times(&self.claims, now, 0).is_ok()
    }

    /// The client that it was issued to.
    pub(super) fn client_id(&self) -> &str {
        client_id(&self.claims)
    }

    /// What it says of how its user signed in: `acr`, `amr` and `auth_time`.
    /// Tokens of plain sign-ins leave it out.
    pub(super) fn sign_in(&self) -> Map<String, Value> {
        let mut told = Map::new();
        for name in ["acr", "amr", "auth_time"] {
            if let Some(value) = self.claims.get(name) {
                told.insert(name.to_owned(), value.clone());
            }
        }
        if !self.claims.contains_key("auth_level") {
            // Nobody signed in.
            told.clear();
        } else if BY_PASSWORD.contains(&self.text("grant_type")) {
            told.entry("acr").or_insert_with(|| NO_CLASS.into());
            told.entry("amr").or_insert_with(|| json!([PASSWORD]));
        }
        told
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
        let scope = self.claims.get("scope");
        let list = scope.and_then(Value::as_array).into_iter().flatten();
        // As RFC 9068 has them.
        let text = scope.and_then(Value::as_str).unwrap_or_default();
        let words = text.split(' ').filter(|word| !word.is_empty());
        list.filter_map(Value::as_str).chain(words)
    }
}

/// Tokens that were met before, by their text: no two are ever mixed up.
pub(super) struct Tokens(Cache<Box<str>, Arc<Issued>, Weight, ahash::RandomState>);

impl Tokens {
    pub(super) fn new() -> Self {
        Self(Cache::with(
            KEPT,
            KEPT_BYTES,
            Weight,
            ahash::RandomState::new(),
            DefaultLifecycle::default(),
        ))
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<Box<str>, Arc<Issued>> for Weight {
    /// Parsed claims of an ordinary token take about two KiB, what is said of
    /// it as much again.
    fn weight(&self, token: &Box<str>, issued: &Arc<Issued>) -> u64 {
        let claims = 64 * issued.claims.len() + 32 * issued.scopes().count();
        (2048 + claims + 3 * token.len()) as u64
    }
}

/// An access token of this provider that is good now.
#[derive(Debug)]
pub(super) struct ValidToken {
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
    if let Some(known) = state.tokens.0.get(token)
        && known.generation == keys.generation
    {
        return Ok(Some(known));
    }
    let claims = if opaque {
        let stored = Box::pin(state.store.access_token(TokenHash::of(token))).await?;
        stored.map(|stored| stored.claims)
    } else {
        let parsed = Unverified::parse(token).ok();
        parsed.and_then(|parsed| parsed.verify(&keys.verifiers).ok())
    };
    let Some(claims) = claims else {
        return Ok(None);
    };
    let issued = Arc::new(Issued::new(claims, opaque, keys.generation));
    state.tokens.0.insert(token.into(), Arc::clone(&issued));
    Ok(Some(issued))
}

/// The token, if this provider issued it as an access token and it is neither
/// expired nor revoked, its client exists, and its user may sign in.
pub(super) async fn check(
    state: &State,
    token: &str,
    now_ms: i64,
) -> Result<Option<ValidToken>, Fault> {
    let Some(issued) = issued(state, token).await? else {
        return Ok(None);
    };
    let Some(realm) = state.live().realm(issued.text("realm")).cloned() else {
        return Ok(None);
    };
    if !issued.is_access_token(&realm, now_ms) {
        return Ok(None);
    }
    let holder = holder(state, &realm, &issued.claims, &issued.digests).await?;
    let good = holder.map(|TokenHolder { user }| ValidToken {
        realm,
        issued,
        user,
    });
    if let Some(good) = &good {
        audit::bearer(good);
    }
    Ok(good)
}

/// Who holds a token that still stands.
pub(super) struct TokenHolder {
    /// `None`: a client that acts for itself.
    pub(super) user: Option<Arc<User>>,
}

/// Whose token this is; `None`: nobody's any more.
pub(super) async fn holder(
    state: &State,
    realm: &Arc<Realm>,
    claims: &Map<String, Value>,
    digests: &TokenDigests,
) -> Result<Option<TokenHolder>, Fault> {
    if state.revocations.has(digests) {
        return Ok(None);
    }
    let store = &*state.store;
    let client = state.clients.find(store, realm, client_id(claims)).await?;
    let Some(client) = client else {
        return Ok(None);
    };
    // Only users' tokens carry a level.
    let user = if claims.contains_key("auth_level") {
        let user = state.user_called(realm, &client, text(claims, "sub"));
        match user.await?.filter(|user| user.active) {
            Some(user) => Some(user),
            None => return Ok(None),
        }
    } else {
        None
    };
    // Names are given again: to another user, whose mark is another one, and to
    // a client made anew.
    let made_ms = client.client.created_ms;
    let user_id = user.as_ref().map(|user| user.id);
    if !token_id::fits(text(claims, "jti"), user_id, made_ms) {
        return Ok(None);
    }
    Ok(Some(TokenHolder { user }))
}
