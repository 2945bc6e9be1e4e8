//! The broker's records and tokens, in memory as far as requests ask for them.
//!
//! Its one invariant: what was acknowledged as changed or revoked is in force
//! for the next request. Entries of the caches carry the generation that they
//! were read in; a change makes it another one, so nobody who read before the
//! change can leave anything behind.

mod registry;

use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use dashmap::DashMap;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{Equivalent, Weighter};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use url::Url;

use super::client::{Client, LiveProduct};
use super::config::BrokerConfig;
use super::fault::Fault;
use super::issue::store;
use super::records;
use crate::throttling::quota::Quota;
use doorward_audit::Audit;
use doorward_core::clock::Clock;
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::broker::{
    PresentedRefreshToken, Product, Record, Refresh, RevocationTarget, StoredTokens,
    TokenInsertion, TokenKind,
};
use doorward_core::model::grant::TokenHash;
use doorward_core::model::token::AccessToken;
use doorward_net::http::guess_limit::{GuessLimitConfig, GuessLimiter};
use doorward_net::http::outbound::{Outbound, TokenStatus};
use doorward_net::telemetry::Metrics;
use doorward_openid_connect::provider::revocation::{RevocationStatus, Status};
use doorward_openid_connect::refusal::Refusal;
use doorward_store::{Store, StoreError};

/// Most memory that tokens are kept in, in bytes.
const TOKENS_BYTES: u64 = 32 << 20;
/// A token with what is known of it takes about so many bytes besides its text.
const TOKEN_BYTES: u64 = 1024;
/// For so long a token is believed without a look: another node may have
/// refreshed it, of which nobody is told.
const FRESH_MS: i64 = 5_000;
/// Applications kept in memory.
const CLIENTS: usize = 10_000;
/// How often another process's changes are looked for.
const POLL: Duration = Duration::from_millis(200);
/// Polls between two beginnings of sweeping: a minute.
const ROUND: u32 = 300;
/// Records swept of each kind at once.
const SWEPT: u32 = 5_000;

/// The token broker of a process.
pub struct Broker {
    store: Arc<Store>,
    clock: Clock,
    metrics: Arc<Metrics>,
    audit: Audit,
    names: ArcSwap<Names>,
    tokens: Cache<ByText, CachedToken, Weight, ahash::RandomState>,
    clients: Cache<String, (u64, Option<Arc<Client>>)>,
    /// Of records. Grows with every change of one.
    records: AtomicU64,
    /// Of tokens, by the first byte of their hashes.
    stripes: Box<[AtomicU64]>,
    /// The counters of products, by name.
    quotas: DashMap<String, Arc<Quota>>,
    /// Wrong secrets of applications.
    pub(super) secrets: GuessLimiter,
    /// Whether a plugin uses it.
    used: AtomicBool,
}

/// What the configuration calls things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) organization: String,
    pub(super) environment: String,
    pub(super) secret_guesses: GuessLimitConfig,
    file: PathBuf,
}

/// A token that was looked up, as of two generations and a time.
#[derive(Clone)]
struct CachedToken {
    generation: (u64, u64),
    read_ms: i64,
    token: Arc<Token>,
}

/// A token that the broker gave out.
pub(super) struct Token {
    pub(super) tokens: StoredTokens,
    /// Its application, if there is one.
    pub(super) client: Option<Arc<Client>>,
    /// As later filters see it.
    pub(super) access: Arc<AccessToken>,
    /// What the provider in this process last said of its own token, of which this
    /// one came.
    origin: RevocationStatus,
}

impl Token {
    /// Whether the provider's token stands, of which this one came.
    async fn is_active(&self) -> Result<bool, Fault> {
        match (self.origin.status(), &self.tokens.facts.origin) {
            (Status::Active, _) | (Status::Unknown, None) => Ok(true),
            (Status::Revoked, _) => Ok(false),
            (Status::Unknown, Some(claims)) => match self.origin.check(claims).await {
                Ok(()) => Ok(true),
                Err(Refusal::InactiveToken) => Ok(false),
                Err(_) => Err(Fault::store()),
            },
        }
    }

    /// The same, revoked.
    fn revoked(&self) -> Self {
        Self {
            tokens: StoredTokens {
                access_approved: false,
                ..self.tokens.clone()
            },
            client: self.client.clone(),
            access: Arc::clone(&self.access),
            origin: RevocationStatus::default(),
        }
    }
}

/// A token in memory is found by its text: requests that bring one again need
/// no hash of it.
#[derive(Clone)]
struct ByText(Arc<AccessToken>);

/// The text of a token that is looked for.
struct TokenText<'a>(&'a str);

impl Hash for TokenText<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Hash for ByText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        TokenText(&self.0.token).hash(state);
    }
}

impl PartialEq for ByText {
    fn eq(&self, other: &Self) -> bool {
        self.0.token == other.0.token
    }
}

impl Eq for ByText {}

impl Equivalent<ByText> for TokenText<'_> {
    fn equivalent(&self, key: &ByText) -> bool {
        self.0 == key.0.token
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<ByText, CachedToken> for Weight {
    fn weight(&self, _: &ByText, held: &CachedToken) -> u64 {
        TOKEN_BYTES + held.token.access.token.len() as u64
    }
}

impl Broker {
    /// The broker of these records, those that `config` declares among them.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when a declared name belongs to a record of the
    /// store.
    pub async fn open(
        config: &BrokerConfig,
        store: Arc<Store>,
        clock: Clock,
        metrics: Arc<Metrics>,
        audit: Audit,
    ) -> Result<Arc<Self>, StoreError> {
        let broker = Arc::new(Self {
            store,
            clock,
            metrics,
            audit,
            names: ArcSwap::from_pointee(names(config)),
            tokens: Cache::with(
                8 * 1024,
                TOKENS_BYTES,
                Weight,
                ahash::RandomState::new(),
                DefaultLifecycle::default(),
            ),
            clients: Cache::new(CLIENTS),
            records: AtomicU64::new(0),
            stripes: (0..256).map(|_| AtomicU64::new(0)).collect(),
            quotas: DashMap::new(),
            secrets: GuessLimiter::default(),
            used: AtomicBool::new(false),
        });
        broker.reload(config).await?;
        Ok(broker)
    }

    /// Puts another configuration in force.
    ///
    /// # Errors
    /// As [`Broker::open`]; then nothing has changed.
    pub async fn reload(&self, config: &BrokerConfig) -> Result<(), StoreError> {
        let records = config.records().unwrap_or_default();
        self.store.sync_broker(records, self.clock.now_ms()).await?;
        self.names.store(Arc::new(names(config)));
        self.forget();
        Ok(())
    }

    /// Looks for changes of other processes, and with `sweeps` removes what has
    /// expired, until the broker is gone.
    pub fn tend(self: &Arc<Self>, sweeps: bool) {
        let weak = Arc::downgrade(self);
        tokio::spawn(async move { tend(weak, sweeps).await });
    }

    /// Says that a plugin uses it.
    pub(super) fn is_used(&self) {
        self.used.store(true, Ordering::Relaxed);
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(super) fn names(&self) -> Guard<Arc<Names>> {
        self.names.load()
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    pub(super) fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Makes everything be read again.
    fn forget(&self) {
        self.records.fetch_add(1, Ordering::AcqRel);
    }

    fn stripe(&self, hash: TokenHash) -> &AtomicU64 {
        let TokenHash(bytes) = hash;
        &self.stripes[usize::from(bytes[0]) % self.stripes.len()]
    }

    /// Each only grows, so a sum changes when one does. With users who go in this
    /// process, what they began goes.
    fn generation(&self, hash: TokenHash) -> (u64, u64) {
        (
            self.records.load(Ordering::Acquire) + self.store.generation(),
            self.stripe(hash).load(Ordering::Acquire),
        )
    }

    /// The access token of this text, if it is at hand and nothing has changed.
    pub(super) fn held(&self, text: &str, now_ms: i64) -> Option<Arc<Token>> {
        self.held_unasked(text, now_ms)
            .filter(|token| token.origin.status() == Status::Active)
    }

    /// As [`Broker::held`], of which the provider may have to be asked.
    fn held_unasked(&self, text: &str, now_ms: i64) -> Option<Arc<Token>> {
        let held = self.tokens.get(&TokenText(text))?;
        let fresh = (0..FRESH_MS).contains(&(now_ms - held.read_ms));
        let generation = self.generation(held.token.tokens.access);
        (fresh && held.generation == generation).then_some(held.token)
    }

    /// The access token of this text; not approved if the provider's token, of which
    /// it came, is revoked there.
    ///
    /// # Errors
    /// The store or the provider does not answer.
    pub(super) async fn token(
        &self,
        text: &str,
        outbound: &Outbound,
    ) -> Result<Option<Arc<Token>>, Fault> {
        let token = match self.held_unasked(text, self.clock.now_ms()) {
            Some(token) => Some(token),
            None => self.read(text, outbound).await.map_err(|e| store(&e))?,
        };
        let Some(token) = token else {
            return Ok(None);
        };
        if token.is_active().await? {
            Ok(Some(token))
        } else {
            // The store knows that for good.
            self.tokens.remove(&TokenText(text));
            Ok(Some(Arc::new(token.revoked())))
        }
    }

    /// Reads the access token of this text.
    async fn read(
        &self,
        text: &str,
        outbound: &Outbound,
    ) -> Result<Option<Arc<Token>>, StoreError> {
        let hash = TokenHash::of(text);
        // As of before the look-up: a change meanwhile makes the entry stale.
        let generation = self.generation(hash);
        let read_ms = self.clock.now_ms();
        let Some(tokens) = self.store.broker_tokens(hash).await? else {
            return Ok(None);
        };
        let client = self.client(&tokens.client_id).await?;
        let access = Arc::new(self.as_seen(text, &tokens, client.as_deref()));
        let token = Arc::new(Token {
            origin: RevocationStatus::new(issuer_of_origin(&tokens, outbound)),
            tokens,
            client,
            access,
        });
        let held = CachedToken {
            generation,
            read_ms,
            token: Arc::clone(&token),
        };
        self.tokens.insert(ByText(Arc::clone(&token.access)), held);
        Ok(Some(token))
    }

    /// The tokens that this refresh token belongs to, or belonged to.
    pub(super) async fn refreshable(
        &self,
        shown: &PresentedRefreshToken,
    ) -> Result<Vec<StoredTokens>, StoreError> {
        self.store.broker_refresh(shown).await
    }

    /// The application of this consumer key.
    pub(super) async fn client(&self, key: &str) -> Result<Option<Arc<Client>>, StoreError> {
        let generation = self.records.load(Ordering::Acquire);
        if let Some((then, client)) = self.clients.get(key)
            && then == generation
        {
            return Ok(client);
        }
        let found = self.store.broker_client(key).await?;
        let client = match found {
            None => None,
            Some(found) => {
                let application =
                    read::<doorward_core::model::broker::Application>(&found.application)?;
                let developer = found.developer.as_ref().map(read).transpose()?;
                let mut products = Vec::new();
                for name in &application.products {
                    let record = found.products.iter().find(|record| record.id == *name);
                    if let Some(record) = record {
                        let product: Product = read(record)?;
                        let quota = self.quota(&product);
                        products.push(LiveProduct::new(product, quota));
                    }
                }
                Some(Arc::new(Client {
                    created_ms: found.application.created_ms,
                    secret: found.application.secret,
                    application,
                    developer,
                    products,
                }))
            }
        };
        // Strangers invent keys: what is not there is not kept.
        if client.is_some() {
            self.clients
                .insert(key.to_owned(), (generation, client.clone()));
        }
        Ok(client)
    }

    /// The counters of a product; those that run go on while its rate is the
    /// same.
    fn quota(&self, product: &Product) -> Option<Arc<Quota>> {
        let Ok(Some(rate)) = records::rate(product) else {
            self.quotas.remove(&product.name);
            return None;
        };
        let mut quota = self
            .quotas
            .entry(product.name.clone())
            .or_insert_with(|| Arc::new(Quota::new(rate, &self.metrics)));
        if *quota.rate() != rate {
            *quota = Arc::new(Quota::new(rate, &self.metrics));
        }
        Some(Arc::clone(&quota))
    }

    /// Keeps new tokens.
    pub(super) async fn keep(
        &self,
        tokens: &StoredTokens,
        audit: Option<&PendingAudit>,
    ) -> Result<TokenInsertion, StoreError> {
        let kept = self.store.keep_broker_tokens(tokens, audit).await;
        self.stripe(tokens.access).fetch_add(1, Ordering::AcqRel);
        kept
    }

    /// Puts other tokens in the place of `old`.
    pub(super) async fn refresh(
        &self,
        old: &StoredTokens,
        refresh: &Refresh,
        audit: Option<&PendingAudit>,
    ) -> Result<bool, StoreError> {
        let done = self.store.refresh_broker_tokens(refresh, audit).await;
        self.stripe(old.access).fetch_add(1, Ordering::AcqRel);
        done
    }

    /// Revokes the token of this text, whichever kind it is; says whether there
    /// was one.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn revoke(
        &self,
        token: &str,
        cascade: bool,
        audit: Option<&PendingAudit>,
    ) -> Result<bool, StoreError> {
        for which in [TokenKind::Access, TokenKind::Refresh] {
            let revoked = RevocationTarget::token(which, token);
            if self.revoke_one(&revoked, cascade, audit).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) async fn revoke_one(
        &self,
        revoked: &RevocationTarget,
        cascade: bool,
        audit: Option<&PendingAudit>,
    ) -> Result<Option<StoredTokens>, StoreError> {
        let revoked = self
            .store
            .revoke_broker_token(revoked, cascade, audit)
            .await;
        if let Ok(Some(tokens)) = &revoked {
            self.stripe(tokens.access).fetch_add(1, Ordering::AcqRel);
        }
        revoked
    }

    /// Ends all tokens that came of sign-ins up to now with this name: of users
    /// of any realm here, and of other providers' users.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn end_person(
        &self,
        end_user: &str,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        let now_ms = self.clock.now_ms();
        self.store.end_broker_person(end_user, now_ms, audit).await
    }

    /// What later filters see of a token.
    fn as_seen(&self, text: &str, tokens: &StoredTokens, client: Option<&Client>) -> AccessToken {
        let facts = &tokens.facts;
        let names = self.names.load();
        // A scope that was taken from its products is gone from it.
        let mut scopes = facts.scopes.clone();
        scopes.retain(|scope| client.is_some_and(|client| client.has_scope(scope)));
        let mut claims = Map::new();
        let mut add = |name: &str, value: Value| claims.insert(name.to_owned(), value);
        add("client_id", tokens.client_id.clone().into());
        add("scope", scopes.join(" ").into());
        add("grant_type", facts.grant_type.clone().into());
        add("token_type", "BearerToken".into());
        add("status", "approved".into());
        add("issued_at", facts.issued_ms.to_string().into());
        add("exp", tokens.expires_ms.div_euclid(1000).into());
        add("organization_name", names.organization.clone().into());
        if !facts.end_user.is_empty() {
            add("sub", facts.end_user.clone().into());
        }
        if let Some(client) = client {
            add("developer.app.name", client.application.name.clone().into());
            add("application_name", client.application.id.clone().into());
            if let Some(developer) = &client.developer {
                add("developer.id", developer.developer_id.clone().into());
                add("developer.email", developer.email.clone().into());
            }
            let products = client.products.iter();
            let products: Vec<_> = products.map(|one| one.product.name.clone()).collect();
            add("api_product_list", json!(products));
        }
        for (name, attribute) in &facts.attributes {
            claims.insert(
                format!("accesstoken.{name}"),
                attribute.value.clone().into(),
            );
        }
        AccessToken {
            token: text.to_owned(),
            claims,
            scopes,
            expires_at: Some(tokens.expires_ms.div_euclid(1000)),
        }
    }
}

/// Who can tell whether the provider's token stands of which these came.
pub(super) fn issuer_of_origin(
    tokens: &StoredTokens,
    outbound: &Outbound,
) -> Option<Arc<dyn TokenStatus>> {
    let issuer = tokens.facts.origin.as_ref()?.get("iss")?.as_str()?;
    outbound.token_status(&Url::parse(issuer).ok()?)
}

fn names(config: &BrokerConfig) -> Names {
    Names {
        organization: config.organization.clone(),
        environment: config.environment.clone(),
        secret_guesses: config.secret_guesses,
        file: config.file.clone(),
    }
}

fn read<T: DeserializeOwned>(record: &Record) -> Result<T, StoreError> {
    let doc = Value::Object(record.doc.clone());
    serde_json::from_value(doc).map_err(StoreError::damaged)
}

async fn tend(weak: Weak<Broker>, sweeps: bool) {
    let mut seen = None;
    let mut tick = 0_u32;
    let mut more = false;
    loop {
        let Some(broker) = weak.upgrade() else { return };
        // Nothing is held of what nobody asks for.
        if broker.used.load(Ordering::Relaxed)
            && let Ok(version) = broker.store.data_version().await
            && seen.replace(version) != Some(version)
        {
            broker.forget();
        }
        more |= sweeps && tick.is_multiple_of(ROUND);
        if more {
            let now_ms = broker.clock.now_ms();
            more = match broker.store.sweep(now_ms, SWEPT).await {
                Ok(gone) => gone >= u64::from(SWEPT),
                Err(error) => {
                    tracing::warn!(%error, "expired records stay for now");
                    false
                }
            };
        }
        drop(broker);
        tick = tick.wrapping_add(1);
        tokio::time::sleep(POLL).await;
    }
}
