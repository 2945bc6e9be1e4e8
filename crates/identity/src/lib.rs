//! The identity provider: every endpoint in one table.
//!
//! A request to [`Identity::router`] meets the table in `endpoints`: its path
//! names a surface, a realm and an endpoint. The realm is resolved, the body
//! read up to a bound, and the endpoint's function answers.

mod account;
mod api_version;
mod audit;
mod authenticate;
mod authorize;
mod backchannel_logout;
mod bearer;
mod change_password;
mod client_address;
mod client_auth;
mod client_documents;
mod clients;
pub mod config;
mod consent_entry;
mod context;
mod cookies;
mod cors;
mod describe;
mod device;
mod discovery;
mod dpop;
mod endpoints;
mod error;
mod factors;
mod federation;
mod forbidden_page;
mod form;
mod goto_url;
mod grant;
mod hosts;
mod id_token_hint;
mod id_token_info;
pub mod import;
mod inherit;
mod introspect;
mod issue;
mod json_users;
mod json_view;
mod keys;
mod ldap;
mod lockout;
mod locks;
mod login;
mod logout;
mod mail;
mod maintain;
mod manage;
mod membership;
mod network;
mod operations;
mod own_client;
mod own_settings;
mod pages;
mod pairwise;
mod par;
mod password;
mod password_policy;
mod password_reset;
pub mod probe;
mod profile;
mod provider_description;
mod realm;
mod records;
mod refresh;
mod register;
pub mod registry;
mod request_path;
mod resource;
mod respond;
mod rest;
mod revocations;
mod revoke;
mod scim;
mod serve;
mod sessions;
mod settings;
mod sign_in;
mod stored_hash;
mod token;
mod token_id;
mod token_status;
mod tokeninfo;
mod userinfo;
mod users;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use axum::Router;
use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::Mutex;
use uuid::Uuid;

use authorize::References;
use backchannel_logout::BackchannelLogout;
use bearer::Tokens;
use client_auth::ClientKeys;
use client_documents::ClientDocuments;
use clients::{Clients, LiveClient};
use config::IdentityConfig;
use describe::RealmVersions;
use dpop::Dpop;
use error::{Fault, OAuthError};
use federation::Federation;
use keys::Keys;
use lockout::Lockout;
use mail::Mailer;
use pages::Frame;
use pairwise::Salt;
use password::Hasher;
use realm::{Live, Realm};
use revocations::Revocations;
use users::Users;

use doorward_audit::Audit;
use doorward_core::clock::{Clock, random_uuid};
use doorward_core::jose::vault::Vault;
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::grant::{MAX_TOKEN_LIFE_MS, Revocation};
use doorward_core::model::lockout::LockKind;
use doorward_core::model::registration::StoredRealm;
use doorward_core::openapi::Document;
use doorward_net::http::guess_limit::GuessLimiter;
use doorward_net::http::outbound::{Allow, Authorities, GuardedClient, TokenStatus};
use doorward_net::telemetry::Metrics;
use doorward_store::{Store, StoreError};

pub use clients::stored_secret;
pub use error::IdentityError;
pub use inherit::check_settings;
pub use keys::{AHEAD_MS, state_of};
pub use manage::{client_members, session_record};
pub use manage::{factor_record, identity_record, lock_record, retired_name_record};
pub use own_client::{CodeExchange, ExchangeError, Member, OwnClient, SignIn, SignInRequest};
pub use password::hash_blocking;
pub use password::hash_new_blocking;
pub use password_policy::{
    Rules as PasswordRules, own_texts, refusal_text as password_refusal_text,
};
pub use records::{check_metadata, new_user};
pub use register::check_redirects;
pub use scim::{parse_filter, user_record};
pub use stored_hash::StoredHash;

/// The identity provider.
#[derive(Clone)]
pub struct Identity {
    state: Arc<State>,
}

/// What requests share.
struct State {
    store: Arc<Store>,
    audit: Audit,
    clock: Clock,
    live: ArcSwap<Live>,
    /// Held while another [`Live`] is made.
    changing: Mutex<()>,
    keys: Keys,
    clients: Clients,
    realm_versions: RealmVersions,
    client_keys: ClientKeys,
    references: References,
    documents: ClientDocuments,
    /// For every address that a client names.
    outbound: Arc<GuardedClient>,
    users: Users,
    tokens: Tokens,
    revocations: Revocations,
    dpop: Dpop,
    hasher: Hasher,
    /// Wrong passwords, by name and by address.
    lockout: Lockout,
    addresses: Lockout,
    /// Up to when locks of other nodes were read.
    locks_read_ms: AtomicI64,
    metrics: OnceLock<Arc<Metrics>>,
    mailer: Mailer,
    /// Tests of operators.
    probes: probe::Pace,
    /// Wrong secrets of clients.
    secrets: GuessLimiter,
    /// Links for new passwords that were asked for.
    resets: Lockout,
    /// Wrong codes of devices.
    guesses: Lockout,
    /// What second factors are sealed with.
    factors: factors::Factors,
    registrations: register::Rate,
    backchannel_logout: BackchannelLogout,
    federation: Federation,
    origins: cors::Origins,
    /// First part of every `auditTrackingId`.
    process: Uuid,
    issued: AtomicU64,
}

impl State {
    fn live(&self) -> arc_swap::Guard<Arc<Live>> {
        self.live.load()
    }

    /// Clients or users changed: what is held of them is not believed again.
    fn forget(&self) {
        self.clients.forget();
        self.users.forget();
    }

    /// Takes in the realms as the store has them now; when it returns, they are
    /// in force.
    async fn read_realms(&self) -> Result<(), StoreError> {
        let _changing = self.changing.lock().await;
        let previous = self.live.load_full();
        let stored = self.store.realms().await?;
        if previous.stored == stored {
            return Ok(());
        }
        match Live::compile(previous.config.clone()) {
            Ok((mut live, _)) => {
                live.complete(stored, Some(&previous));
                self.live.store(Arc::new(live));
                self.forget();
            }
            Err(error) => tracing::error!(%error, "realms could not be read again"),
        }
        Ok(())
    }

    /// Learns what is revoked, also by other processes.
    async fn read_revocations(&self) -> Result<(), StoreError> {
        for (what, until_ms) in self.store.revocations().await? {
            self.revocations.add(&what, until_ms);
        }
        Ok(())
    }

    /// Revokes every token of a grant; when it returns, no endpoint takes one.
    async fn revoke_grant(
        &self,
        grant_id: &str,
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        // No token of it is made any more, so the last one dies by then.
        let until_ms = now_ms.saturating_add(MAX_TOKEN_LIFE_MS);
        self.store.revoke_grant(grant_id, until_ms, audit).await?;
        self.revocations
            .add(&Revocation::Grant(grant_id.to_owned()), until_ms);
        Ok(())
    }

    /// Learns that these grants were revoked in the store.
    fn mark_revoked(&self, grants: &[String], now_ms: i64) {
        let until_ms = now_ms.saturating_add(MAX_TOKEN_LIFE_MS);
        for grant in grants {
            self.revocations
                .add(&Revocation::Grant(grant.clone()), until_ms);
        }
    }

    /// A new `auditTrackingId`.
    fn audit_id(&self) -> String {
        let number = self.issued.fetch_add(1, Ordering::Relaxed);
        format!("{}-{number}", self.process)
    }
}

/// A request that found its endpoint.
struct Call {
    state: Arc<State>,
    /// The realms as they were when the request came: one answer is of one
    /// configuration.
    live: Arc<Live>,
    realm: Arc<Realm>,
    parts: http::request::Parts,
    body: Bytes,
    now_ms: i64,
    realm_source: RealmSource,
}

/// What names the realm of a request.
enum RealmSource {
    /// Its path.
    Path,
    /// The host that it came to.
    Host,
    /// Its query. This is the path that names it.
    Query(String),
}

impl Call {
    /// The last part of the path, as sent; a slash behind it is none.
    fn last_segment(&self) -> &str {
        let path = self.parts.uri.path();
        let path = path.strip_suffix('/').unwrap_or(path);
        path.rsplit('/').next().unwrap_or_default()
    }

    fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// The client of this identifier, which may be the address of a document.
    async fn client(&self, id: &str) -> Result<Option<Arc<LiveClient>>, OAuthError> {
        client_documents::find(self, id).await
    }

    /// What pages for the sender of the request have in common.
    fn frame(&self, ui_locales: Option<&str>) -> Frame {
        Frame::of(&self.live.appearance, self.headers(), ui_locales)
    }
}

impl Identity {
    /// Opens the provider on `store`: declared users and clients are brought
    /// there, missing keys made. The RSA key is made in the background; only a
    /// request that needs it waits.
    ///
    /// Call it inside the runtime that lives as long as the process: it starts
    /// the provider's background task there, which ends with the provider.
    ///
    /// # Errors
    /// [`IdentityError::Config`] names what is wrong in `config`;
    /// [`IdentityError::Owned`] when a declared name belongs to a record that
    /// was not declared.
    pub async fn open(
        config: IdentityConfig,
        store: Arc<Store>,
        clock: Clock,
        audit: Audit,
    ) -> Result<Self, IdentityError> {
        let hasher = Hasher::new(&config.hashing)?;
        let live = compile(config, &store, &clock, None).await?;
        let factors = factors::Factors::new(vault(&live.config)?);
        let vault = vault(&live.config)?;
        let (allow, authorities) = outbound(&live.config)?;
        let outbound = Arc::new(GuardedClient::new(allow, authorities));
        let salt = Salt::open(&store, &vault).await.map_err(not_opened)?;
        let dpop = Dpop::new(salt.key_for("DPoP nonces"));
        let realm_versions = RealmVersions::new(salt.key_for("versions of realms"));
        let keys = Keys::open(Arc::clone(&store), clock.clone(), vault).await;
        let keys = keys.map_err(not_opened)?;
        let state = Arc::new(State {
            store,
            audit,
            clock,
            live: ArcSwap::from_pointee(live),
            changing: Mutex::new(()),
            keys,
            clients: Clients::new(salt),
            realm_versions,
            client_keys: ClientKeys::new(Arc::clone(&outbound)),
            references: References::new(),
            documents: ClientDocuments::new(),
            federation: Federation::new(Arc::clone(&outbound)),
            outbound,
            users: Users::new(),
            tokens: Tokens::new(),
            revocations: Revocations::default(),
            dpop,
            hasher,
            lockout: Lockout::new(),
            addresses: Lockout::of(LockKind::Address),
            locks_read_ms: AtomicI64::new(0),
            metrics: OnceLock::new(),
            guesses: Lockout::new(),
            factors,
            mailer: Mailer::new(),
            probes: probe::Pace::default(),
            resets: Lockout::new(),
            secrets: GuessLimiter::default(),
            registrations: register::Rate::new(),
            backchannel_logout: BackchannelLogout::new(),
            origins: cors::Origins::new(),
            process: random_uuid(),
            issued: AtomicU64::new(1),
        });
        state.read_revocations().await?;
        state.read_locks().await?;
        warn_of_directories(&state.live());
        scim::tell_who_reads(&state.live());
        maintain::start(&state);
        backchannel_logout::start(&state);
        Ok(Self { state })
    }

    /// Checks `config` as far as that goes without a store.
    ///
    /// # Errors
    /// [`IdentityError::Config`] names what is wrong.
    pub fn check(config: IdentityConfig) -> Result<(), IdentityError> {
        Hasher::new(&config.hashing)?;
        vault(&config)?;
        outbound(&config)?;
        Live::compile(config).map(drop)
    }

    /// Puts `config` in the place of the one in force, or changes nothing.
    /// `base_url`, `session.cookie_name` and `hashing` keep the values that the
    /// provider was opened with: issuers and sessions must not change under
    /// running clients.
    ///
    /// # Errors
    /// As [`Identity::open`].
    pub async fn reload(&self, mut config: IdentityConfig) -> Result<(), IdentityError> {
        let state = &self.state;
        let _changing = state.changing.lock().await;
        let previous = state.live.load_full();
        config.base_url.clone_from(&previous.config.base_url);
        let cookie_name = &previous.config.session.cookie_name;
        config.session.cookie_name.clone_from(cookie_name);
        let (allow, authorities) = outbound(&config)?;
        let live = compile(config, &state.store, &state.clock, Some(&previous)).await?;
        warn_of_directories(&live);
        state.live.store(Arc::new(live));
        state.outbound.replace(allow, authorities);
        state.forget();
        // Declared users may have gone, or may not sign in any more.
        state.read_revocations().await?;
        state.backchannel_logout.wake();
        maintain::hash_declared(state);
        maintain::make_keys(state);
        Ok(())
    }

    /// Counts from now on in these metrics.
    pub fn report_to(&self, metrics: Arc<Metrics>) {
        self.state.federation.report_to(Arc::clone(&metrics));
        // Only the first ones count.
        let _ = self.state.metrics.set(Arc::clone(&metrics));
        self.state.backchannel_logout.report_to(metrics);
    }

    /// Tells verifiers in this process when a token has ended.
    pub fn standing(&self) -> Arc<dyn TokenStatus> {
        Arc::clone(&self.state) as _
    }

    /// The names of the cookies that the provider gives to browsers; one with a
    /// dot at its end stands for all that begin so. They are for nobody else.
    pub fn cookie_names(&self) -> Vec<String> {
        let live = self.state.live();
        let names = [
            &live.config.session.cookie_name,
            authorize::COOKIE,
            sign_in::TRUSTED_COOKIE,
        ];
        // Also the other form: one from before TLS is as good as the session.
        let both = |name: &str| [name.to_owned(), format!("__Host-{name}")];
        let names = names.into_iter().flat_map(both);
        let own = both(&format!("{}.", authorize::COOKIE));
        names.chain(own).collect()
    }

    /// The provider as a `Router`. Requests may carry a
    /// [`doorward_net::http::ClientInfo`] extension.
    pub fn router(&self) -> Router {
        Router::new()
            .fallback(serve::serve)
            .with_state(Arc::clone(&self.state))
    }

    /// The client of this identifier in the realm at `realm`, as a part of this
    /// process.
    pub fn own_client(&self, realm: &str, client_id: &str) -> OwnClient {
        OwnClient::new(&self.state, realm, client_id)
    }

    /// The provider's administration as a `Router`, to be served below
    /// `/identity` to whoever may administer it: it asks nobody who they are.
    pub fn admin_router(&self) -> Router {
        let state = Arc::clone(&self.state);
        Router::new().fallback(move |request| manage::serve(Arc::clone(&state), request))
    }
}

impl Identity {
    /// What the provider serves at its own address, in OpenAPI 3.1.
    pub fn description(&self) -> serde_json::Value {
        provider_description::describe(&self.state.live().base_url)
    }
}

/// Adds the endpoints of [`Identity::admin_router`] to a description, below
/// `/identity`. `refusals` gives the statuses of refusals, by method, open parts of the
/// path, and body.
pub fn describe_administration(
    document: &mut Document,
    refusals: fn(&str, bool, bool) -> Vec<&'static str>,
) {
    manage::describe(document, refusals);
}

/// The rules for new passwords of the realm at `path`, as the file and the
/// realms of the store have them.
///
/// # Errors
/// [`IdentityError::Config`] names what is wrong in `config`.
pub fn password_rules(
    config: IdentityConfig,
    stored: Vec<StoredRealm>,
    path: &str,
) -> Result<Arc<PasswordRules>, IdentityError> {
    Live::rules_of(config, stored, path)
}

fn not_opened(fault: Fault) -> IdentityError {
    match fault {
        Fault::Store(error) => IdentityError::Store(error),
        Fault::Key(error) => IdentityError::Key(error),
        Fault::Busy(_) | Fault::Directory | Fault::ScopesDenied => {
            IdentityError::Key(doorward_core::jose::keys::KeyError::Generation)
        }
    }
}

/// Tells the operator of directories whose passwords others can read.
fn warn_of_directories(live: &Live) {
    let mut told: Vec<&Arc<ldap::Directory>> = Vec::new();
    for realm in live.realms() {
        if let Some(directory) = realm.directory()
            && !told.iter().any(|known| Arc::ptr_eq(known, directory))
        {
            directory.warn(&realm.path);
            told.push(directory);
        }
    }
}

fn vault(config: &IdentityConfig) -> Result<Vault, IdentityError> {
    let vault = config.keys.vault();
    vault.map_err(|error| IdentityError::config("keys", error.to_string()))
}

fn outbound(config: &IdentityConfig) -> Result<(Allow, Authorities), IdentityError> {
    let read = config.outbound.read();
    read.map_err(|(name, message)| IdentityError::in_section("outbound", &name, message))
}

/// Validates, then persists; the caller swaps.
async fn compile(
    config: IdentityConfig,
    store: &Store,
    clock: &Clock,
    previous: Option<&Live>,
) -> Result<Live, IdentityError> {
    let (mut live, declared) = Live::compile(config)?;
    let synced = store.sync_declared(declared, clock.now_ms()).await;
    synced.map_err(|error| match error {
        StoreError::Taken(name) => IdentityError::Owned(name),
        error => IdentityError::Store(error),
    })?;
    live.complete(store.realms().await?, previous);
    Ok(live)
}
