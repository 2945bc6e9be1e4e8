//! Clients as requests see them: compiled, cached, authenticated.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use quick_cache::sync::Cache;
use subtle::ConstantTimeEq;

use super::error::OAuthError;
use super::form::{self, Form};
use super::realm::Realm;
use crate::clock::random_bytes;
use crate::jose::sign::Signer;
use crate::model::client::{AuthMethod, Client, ClientMetadata, ClientSecret, SignAlg};
use crate::model::secret::Secret;
use crate::store::{Store, StoreError};

/// Clients kept in memory.
const CACHED: usize = 10_000;

const FAILED: &str = "Client authentication failed";

/// A client, ready for requests.
#[derive(Debug)]
pub(super) struct LiveClient {
    pub(super) client: Client,
    /// The scopes it may ask for.
    pub(super) scopes: Vec<String>,
    /// What it gets when it asks for none.
    pub(super) default_scopes: Vec<String>,
    /// The secret that the file declares.
    declared: Option<Secret>,
    /// Signs with the client's secret, where tokens of it are to be so signed.
    pub(super) hmac: Option<Signer>,
}

impl LiveClient {
    fn new(client: Client, realm: &Realm) -> Self {
        let words = |text: &str| text.split_ascii_whitespace().map(str::to_owned).collect();
        let metadata = &client.metadata;
        let default = metadata.default_scope.as_deref();
        let declared = realm.secret(&metadata.client_id).cloned();
        let plain = match &client.secret {
            ClientSecret::Plain(secret) => Some(secret),
            ClientSecret::Digest { .. } | ClientSecret::None => declared.as_ref(),
        };
        let wants_hmac = metadata.id_token_signed_response_alg == Some(SignAlg::HS256);
        Self {
            scopes: words(&metadata.scope),
            default_scopes: words(default.unwrap_or(&realm.settings.default_scope)),
            hmac: plain
                .filter(|_| wants_hmac)
                .map(|secret| Signer::from_secret(secret.expose())),
            declared,
            client,
        }
    }

    /// Its identifier.
    pub(super) fn id(&self) -> &str {
        &self.client.metadata.client_id
    }

    /// Whether it may use this grant type.
    pub(super) fn may(&self, grant_type: &str) -> bool {
        let grants = &self.client.metadata.grant_types;
        let listed = |name: &str| grants.iter().any(|grant| grant == name);
        // What the password grant gave must be of use.
        listed(grant_type) || (grant_type == "refresh_token" && listed("password"))
    }

    fn knows(&self, candidate: &str) -> bool {
        if let Some(declared) = &self.declared {
            return declared.matches(candidate);
        }
        match &self.client.secret {
            ClientSecret::None => false,
            ClientSecret::Plain(secret) => secret.matches(candidate),
            ClientSecret::Digest { salt, digest } => {
                digest_of(salt, candidate).as_ref().ct_eq(digest).into()
            }
        }
    }
}

fn digest_of(salt: &[u8], secret: &str) -> digest::Digest {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(salt);
    context.update(secret.as_bytes());
    context.finish()
}

/// What the store keeps of `secret` for a client with this metadata.
pub fn stored_secret(metadata: &ClientMetadata, secret: Option<&Secret>) -> ClientSecret {
    let Some(secret) = secret else {
        return ClientSecret::None;
    };
    if metadata.id_token_signed_response_alg == Some(SignAlg::HS256) {
        return ClientSecret::Plain(secret.clone());
    }
    let salt = random_bytes::<16>().to_vec();
    let digest = digest_of(&salt, secret.expose()).as_ref().to_vec();
    ClientSecret::Digest { salt, digest }
}

/// A client, and what it was compiled from.
#[derive(Clone, Debug)]
struct Cached {
    generation: u64,
    /// A reload makes new realms: what belongs to an old one is not believed.
    realm: Arc<Realm>,
    client: Arc<LiveClient>,
}

/// Clients in memory. Steady traffic never reads the store.
#[derive(Debug)]
pub(super) struct Clients {
    cache: Cache<(String, String), Cached>,
    /// Grows with every change: older entries are not believed.
    generation: AtomicU64,
}

impl Clients {
    pub(super) fn new() -> Self {
        Self {
            cache: Cache::new(CACHED),
            generation: AtomicU64::new(0),
        }
    }

    /// Forgets all: the store or the configuration changed.
    pub(super) fn forget(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// The client of this identifier.
    pub(super) async fn find(
        &self,
        store: &dyn Store,
        realm: &Arc<Realm>,
        client_id: &str,
    ) -> Result<Option<Arc<LiveClient>>, StoreError> {
        let generation = self.generation.load(Ordering::Acquire);
        let key = (realm.path.clone(), client_id.to_owned());
        let cached = self
            .cache
            .get(&key)
            .filter(|cached| cached.generation == generation && Arc::ptr_eq(&cached.realm, realm));
        if let Some(cached) = cached {
            return Ok(Some(cached.client));
        }
        let Some(client) = store.client(&realm.path, client_id).await? else {
            return Ok(None);
        };
        let client = Arc::new(LiveClient::new(client, realm));
        // The generation from before the look-up: a change meanwhile makes
        // this entry stale at once.
        let cached = Cached {
            generation,
            realm: Arc::clone(realm),
            client: Arc::clone(&client),
        };
        self.cache.insert(key, cached);
        Ok(Some(client))
    }
}

/// What a request says about who sends it.
struct Claimed {
    id: String,
    secret: Option<String>,
    method: AuthMethod,
}

/// The authenticated client of a request to the token endpoint.
///
/// # Errors
/// The responses of RFC 6749 §5.2.
pub(super) async fn authenticate(
    clients: &Clients,
    store: &dyn Store,
    realm: &Arc<Realm>,
    headers: &HeaderMap,
    form: &Form<'_>,
) -> Result<Arc<LiveClient>, OAuthError> {
    let failed = || OAuthError::invalid_client(&realm.path, FAILED);
    let claimed = claimed(realm, headers, form)?;
    if claimed.id.len() > 255 {
        return Err(failed());
    }
    let client = clients.find(store, realm, &claimed.id).await?;
    let client = client.ok_or_else(failed)?;
    let proven = match &claimed.secret {
        Some(secret) => client.knows(secret),
        None => client.client.is_public(),
    };
    if !proven {
        return Err(failed());
    }
    match client.client.metadata.token_endpoint_auth_method {
        Some(registered) if registered != claimed.method => Err(OAuthError::invalid_client(
            &realm.path,
            "Invalid authentication method for accessing this endpoint.",
        )),
        _ => Ok(client),
    }
}

fn claimed(realm: &Realm, headers: &HeaderMap, form: &Form<'_>) -> Result<Claimed, OAuthError> {
    let failed = || OAuthError::invalid_client(&realm.path, FAILED);
    let mut authorizations = headers.get_all(AUTHORIZATION).iter();
    let Some(header) = authorizations.next() else {
        let id = form.get("client_id").ok_or_else(failed)?.to_owned();
        let secret = form.get("client_secret").map(str::to_owned);
        let method = match secret {
            Some(_) => AuthMethod::ClientSecretPost,
            None => AuthMethod::None,
        };
        return Ok(Claimed { id, secret, method });
    };
    let two_ways = || OAuthError::bad("invalid_request", FAILED);
    if authorizations.next().is_some() || form.get("client_secret").is_some() {
        return Err(two_ways());
    }
    let (id, secret) =
        basic(header.to_str().unwrap_or_default()).map_err(|broken| match broken {
            BrokenBasic::Header => failed(),
            BrokenBasic::Escape => OAuthError::bad(
                "invalid_request",
                "URLDecoder: Illegal hex characters in escape (%) pattern",
            ),
        })?;
    if form.get("client_id").is_some_and(|other| other != id) {
        return Err(two_ways());
    }
    Ok(Claimed {
        id,
        secret: Some(secret),
        method: AuthMethod::ClientSecretBasic,
    })
}

enum BrokenBasic {
    /// Another scheme, no base64, no colon.
    Header,
    /// A half is not form-encoded.
    Escape,
}

/// Identifier and secret of a Basic header; each half is form-encoded
/// (RFC 6749 §2.3.1), so the first colon divides them.
fn basic(header: &str) -> Result<(String, String), BrokenBasic> {
    let (scheme, credentials) = header.split_once(' ').ok_or(BrokenBasic::Header)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(BrokenBasic::Header);
    }
    let decoded = STANDARD
        .decode(credentials.trim())
        .map_err(|_| BrokenBasic::Header)?;
    let colon = decoded
        .iter()
        .position(|byte| *byte == b':')
        .ok_or(BrokenBasic::Header)?;
    let half = |bytes| {
        form::decode(bytes)
            .map(std::borrow::Cow::into_owned)
            .ok_or(BrokenBasic::Escape)
    };
    Ok((half(&decoded[..colon])?, half(&decoded[colon + 1..])?))
}
