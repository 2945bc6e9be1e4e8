//! Clients as requests see them: compiled and cached.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::hmac;
use quick_cache::sync::Cache;

use super::config::SubjectSource;
use super::device;
use super::pairwise::{Salt, Sector};
use super::realm::Realm;
use doorward_core::jose::jwks::KeySet;
use doorward_core::jose::sign::Signer;
use doorward_core::model::client::{Client, ClientMetadata, ClientSecret, SignAlg};
use doorward_core::model::secret::Secret;
use doorward_core::model::user::Owner;
use doorward_net::http::outbound::ChosenBy;
use doorward_store::{Store, StoreError};

/// Clients kept in memory.
const CACHED: usize = 10_000;

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
    /// They sign with the client's secret what is to be so signed.
    shared: Vec<Signer>,
    /// The keys that are part of its record.
    keys: Option<KeySet>,
    /// Whether its use is noted already; see [`Clients::take_used`].
    used: AtomicBool,
    /// Where its users have names of their own.
    pub(super) sector: Option<Sector>,
    /// What it calls users elsewhere.
    pub(super) subjects: SubjectSource,
}

/// The grants in which a user agrees to every scope, or did.
const GRANTS_BY_CONSENT: [&str; 5] = [
    "authorization_code",
    "implicit",
    "refresh_token",
    device::GRANT,
    device::EARLIER_GRANT,
];

/// The scopes that a client may ask for: those of its record. A client that registered
/// itself names those that it begins with, and asks for more of what its realm has for
/// such clients when a call needs it (RFC 7591 §2 leaves that to the server). It may do
/// so where a user agrees to every scope: a service has no user, and keeps its own.
fn scopes(client: &Client, realm: &Realm) -> Vec<String> {
    let metadata = &client.metadata;
    let by_consent = |grant: &String| GRANTS_BY_CONSENT.contains(&grant.as_str());
    let more = match client.owner {
        Owner::Client if metadata.grant_types.iter().all(by_consent) => {
            realm.settings.registration.scope.as_str()
        }
        _ => "",
    };
    let own = metadata.scope.split_ascii_whitespace();
    own.chain(more.split_ascii_whitespace())
        .map(str::to_owned)
        .collect()
}

impl LiveClient {
    fn new(client: Client, realm: &Realm, salt: &Salt) -> Self {
        let words = |text: &str| text.split_ascii_whitespace().map(str::to_owned).collect();
        let metadata = &client.metadata;
        let realm_default = realm.settings.default_scope.as_str();
        let default = match (&metadata.default_scope, client.owner) {
            (Some(own), _) => own.as_str(),
            // Nobody else chose for a client that registered itself, and many such
            // clients never name a scope.
            (None, Owner::Client) if realm_default.is_empty() => &metadata.scope,
            (None, _) => realm_default,
        };
        let declared = realm.secret(&metadata.client_id).cloned();
        let keys = metadata.jwks.as_ref();
        let keys = keys.and_then(|keys| KeySet::parse(keys.to_string().as_bytes()).ok());
        let secret = plain(&client, declared.as_ref());
        let signer = |alg| Signer::from_secret(alg, secret?.expose());
        Self {
            scopes: scopes(&client, realm),
            default_scopes: words(default),
            shared: metadata.shared_algs().filter_map(signer).collect(),
            keys,
            sector: salt.sector(realm, metadata),
            subjects: realm.settings.subject,
            declared,
            used: AtomicBool::new(false),
            client,
        }
    }

    /// Its identifier.
    pub(super) fn id(&self) -> &str {
        &self.client.metadata.client_id
    }

    /// Who chose the addresses in its record.
    pub(super) fn chosen_by(&self) -> ChosenBy {
        match self.client.owner {
            Owner::File | Owner::Store => ChosenBy::Operator,
            Owner::Client => ChosenBy::Stranger,
        }
    }

    /// Whether it may use this grant type.
    pub(super) fn may(&self, grant_type: &str) -> bool {
        let grants = &self.client.metadata.grant_types;
        let listed = |name: &str| grants.iter().any(|grant| grant == name);
        // What the password grant gave must be of use.
        listed(grant_type)
            || (grant_type == "refresh_token" && listed("password"))
            || (grant_type == device::GRANT && listed(device::EARLIER_GRANT))
    }

    /// Whether a code, or a device code, gives it a refresh token.
    pub(super) fn gets_refresh_tokens(&self, realm: &Realm) -> bool {
        let grants = &self.client.metadata.grant_types;
        realm.settings.issue_refresh_token && grants.iter().any(|grant| grant == "refresh_token")
    }

    /// The signer that uses the client's secret, if tokens of `alg` are so
    /// signed.
    pub(super) fn shared_signer(&self, alg: SignAlg) -> Option<&Signer> {
        self.shared.iter().find(|signer| signer.alg() == alg)
    }

    /// The keys that are part of its record.
    pub(super) fn keys(&self) -> Option<&KeySet> {
        self.keys.as_ref()
    }

    /// The secret itself, where it is kept.
    pub(super) fn plain_secret(&self) -> Option<&Secret> {
        plain(&self.client, self.declared.as_ref())
    }

    /// Whether this is its secret, in constant time.
    pub(super) fn knows(&self, candidate: &str) -> bool {
        if let Some(declared) = &self.declared {
            return declared.matches(candidate);
        }
        self.client.secret.matches(candidate)
    }
}

fn plain<'a>(client: &'a Client, declared: Option<&'a Secret>) -> Option<&'a Secret> {
    match &client.secret {
        ClientSecret::Plain(secret) => Some(secret),
        ClientSecret::Digest { .. } | ClientSecret::None => declared,
    }
}

/// What the store keeps of `secret` for a client with this metadata.
pub fn stored_secret(metadata: &ClientMetadata, secret: Option<&Secret>) -> ClientSecret {
    let Some(secret) = secret else {
        return ClientSecret::None;
    };
    if metadata.needs_plain_secret() {
        return ClientSecret::Plain(secret.clone());
    }
    ClientSecret::digested(secret)
}

/// A client, and what it was compiled from.
#[derive(Clone, Debug)]
struct CachedClient {
    generation: u64,
    /// A reload makes new realms: what belongs to an old one is not believed.
    realm: Arc<Realm>,
    client: Arc<LiveClient>,
}

/// Clients in memory. Steady traffic never reads the store.
#[derive(Debug)]
pub(super) struct Clients {
    cache: Cache<(String, String), CachedClient>,
    /// Grows with every change that the store does not count: older entries are
    /// not believed.
    generation: AtomicU64,
    /// Registered clients that were used since this was emptied: no more than
    /// there are.
    used: Mutex<BTreeSet<(String, String)>>,
    salt: Salt,
}

impl Clients {
    pub(super) fn new(salt: Salt) -> Self {
        Self {
            salt,
            cache: Cache::new(CACHED),
            generation: AtomicU64::new(0),
            used: Mutex::default(),
        }
    }

    /// The key of the digests in the forms of the browser with this secret.
    pub(super) fn browser_key(&self, secret: &str) -> hmac::Key {
        self.salt.browser_key(secret)
    }

    /// Forgets all: the store or the configuration changed.
    pub(super) fn forget(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Grows each time that all is forgotten.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The client of this identifier.
    pub(super) async fn find(
        &self,
        store: &Store,
        realm: &Arc<Realm>,
        client_id: &str,
    ) -> Result<Option<Arc<LiveClient>>, StoreError> {
        let generation = self.generation.load(Ordering::Acquire) + store.generation();
        let key = (realm.path.clone(), client_id.to_owned());
        let cached = self
            .cache
            .get(&key)
            .filter(|cached| cached.generation == generation && Arc::ptr_eq(&cached.realm, realm));
        let found = match cached {
            Some(cached) => Some(cached.client),
            None => Box::pin(self.read(store, realm, client_id)).await?,
        };
        // One of a document is a client only while the realm takes documents.
        let settings = &realm.settings.client_metadata_documents;
        let found = found.filter(|client| settings.keeps(&client.client));
        if let Some(client) = &found {
            self.note(client);
        }
        Ok(found)
    }

    /// Notes that a client is used, where somebody asks for that: of clients
    /// that registered themselves the unused ones are removed some day.
    fn note(&self, client: &LiveClient) {
        let registered = client.client.owner == Owner::Client;
        if registered && !client.used.load(Ordering::Relaxed) {
            client.used.store(true, Ordering::Relaxed);
            let key = (client.client.realm.clone(), client.id().to_owned());
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            used.insert(key);
        }
    }

    /// The registered clients (realm and identifier) that were used since the
    /// last call.
    pub(super) fn take_used(&self) -> Vec<(String, String)> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = std::mem::take(&mut *used);
        drop(used);
        for key in &taken {
            if let Some(cached) = self.cache.get(key) {
                cached.client.used.store(false, Ordering::Relaxed);
            }
        }
        taken.into_iter().collect()
    }

    /// The client of this identifier as the store has it now.
    pub(super) async fn read(
        &self,
        store: &Store,
        realm: &Arc<Realm>,
        client_id: &str,
    ) -> Result<Option<Arc<LiveClient>>, StoreError> {
        // The generation from before the look-up: a change meanwhile makes
        // this entry stale at once.
        let generation = self.generation.load(Ordering::Acquire) + store.generation();
        let Some(client) = store.client(&realm.path, client_id).await? else {
            return Ok(None);
        };
        let client = Arc::new(LiveClient::new(client, realm, &self.salt));
        let cached = CachedClient {
            generation,
            realm: Arc::clone(realm),
            client: Arc::clone(&client),
        };
        let key = (realm.path.clone(), client_id.to_owned());
        self.cache.insert(key, cached);
        Ok(Some(client))
    }
}
