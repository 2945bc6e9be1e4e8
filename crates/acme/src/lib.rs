//! Certificates for the proxy's listeners from an authority, by ACME (RFC 8555).
//!
//! [`Acme::run`] orders what is missing or about to expire, and puts each certificate
//! into the store, where other nodes find it. One node at a time orders: the store has a
//! lease for that. An order that fails changes nothing that serves. [`schedule`] decides
//! when, [`order`] is one order from its beginning to the certificate.

mod challenges;
mod config;
mod dns_hook;
mod issued;
mod listeners;
mod name;
mod order;
mod probe;
mod problem;
mod schedule;
mod status;
mod transport;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use instant_acme::CertificateIdentifier;
use parking_lot::Mutex;
use rustls::sign::CertifiedKey;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::timeout;

use challenges::Challenges;
use issued::{Issued, KEY, Known};
use order::{Client, NewCertificate};
use problem::OrderError;
use schedule::Validity;
use transport::Transport;

use doorward_core::clock::{self, Clock};
use doorward_core::jose::vault::Vault;
use doorward_core::model::acme::{AcmeIssued, AcmeState, StoredAcmeCertificate};
use doorward_core::model::secret::Secret;
use doorward_net::http::outbound::{Authorities, AuthorityError, Outbound};
use doorward_net::telemetry::acme::AcmeMetrics;
use doorward_store::{Store, StoreError};

pub use config::{AcmeConfig, ChallengeKind, DnsHook, ExternalAccount, Names, RenewalPolicy};
pub use probe::probe;

/// The lease of the node that orders.
const LEASE: &str = "orders";
/// How long the lease lasts that nobody prolongs, in milliseconds.
const LEASE_MS: i64 = 90_000;
/// How often it is prolonged.
const PROLONG: Duration = Duration::from_secs(20);
/// How long another node's lease is left alone.
const OTHERS_LEASE: Duration = Duration::from_secs(10);
/// Longest time for an order.
const ORDER_LIMIT: Duration = Duration::from_secs(1800);
/// How often the store is looked at for what other nodes have ordered.
const LOOK: Duration = Duration::from_secs(15);
/// The least time between two rounds.
const BREATH: Duration = Duration::from_secs(1);
/// Between tries to keep a new certificate in a store that does not answer.
const KEEP_PAUSE: Duration = Duration::from_secs(5);
/// Most of those tries.
const KEEP_TRIES: usize = 60;
/// Most handshakes that wait.
const WAITING_MAX: usize = 256;

/// Whether a certificate may be ordered for a name because a client asks for it.
pub type Routed = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// Why ordering can't begin.
#[derive(Debug, thiserror::Error)]
pub enum AcmeError {
    /// The file of authorities.
    #[error("acme.ca: {0}")]
    Authorities(#[from] AuthorityError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What ordering works with.
pub struct Parts {
    /// The durable store.
    pub store: Arc<Store>,
    /// Whether other nodes have the same store.
    pub is_shared: bool,
    /// Seals private keys.
    pub vault: Vault,
    /// Wall time.
    pub clock: Clock,
    /// Counts orders.
    pub metrics: AcmeMetrics,
    /// The names that may be ordered on demand.
    pub routed: Routed,
}

/// Orders certificates, and has them at hand for handshakes.
pub struct Acme {
    client: Client,
    metrics: AcmeMetrics,
    routed: Routed,
    /// This process, as the holder of the lease.
    node: String,
    issued: Issued,
    known: Mutex<BTreeMap<String, Known>>,
    /// What the store had when it was read last.
    revision: Mutex<Option<(i64, i64)>>,
    /// Names whose first certificate a client waits for.
    requested: Mutex<BTreeSet<String>>,
    wake: Notify,
    waiting: Semaphore,
}

/// What is to be done for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    /// It is to be ordered.
    Order,
    /// The authority is to be asked when to renew it.
    Window,
}

impl Acme {
    /// Reads the certificates that the store has.
    ///
    /// # Errors
    /// [`AcmeError`]: the file of authorities, or the store.
    pub async fn open(config: AcmeConfig, parts: Parts) -> Result<Arc<Self>, AcmeError> {
        let authorities = config.ca.as_deref().map(Authorities::read).transpose()?;
        let outbound = Arc::new(Outbound::trusting(authorities.unwrap_or_default()));
        let (store, clock) = (parts.store.clone(), parts.clock.clone());
        let challenges = Challenges::new(store, clock, parts.is_shared);
        let acme = Arc::new(Self {
            client: Client {
                config,
                store: parts.store,
                vault: parts.vault,
                clock: parts.clock,
                outbound,
                challenges: Arc::new(challenges),
            },
            metrics: parts.metrics,
            routed: parts.routed,
            node: clock::random_uuid().to_string(),
            issued: Issued::default(),
            known: Mutex::default(),
            revision: Mutex::default(),
            requested: Mutex::default(),
            wake: Notify::default(),
            waiting: Semaphore::new(WAITING_MAX),
        });
        acme.refresh().await?;
        acme.seal_anew().await?;
        Ok(acme)
    }

    /// Has private keys sealed with the master key of now.
    async fn seal_anew(&self) -> Result<(), StoreError> {
        let known: Vec<Known> = self.known.lock().values().cloned().collect();
        for mut row in known.into_iter().map(|known| known.row) {
            let Some(issued) = &mut row.issued else {
                continue;
            };
            let sealed = self.client.vault.seal_own(KEY, &row.names, &issued.key);
            if let Ok(Some(sealed)) = sealed {
                issued.key = sealed;
                self.client.store.put_acme_certificate(&row).await?;
                self.take_in(row);
            }
        }
        Ok(())
    }

    /// The certificate for this server name, if one was issued.
    pub fn find(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.issued.find(name)
    }

    /// When certificates expire: label, and seconds since the epoch.
    pub fn expiries(&self) -> Vec<(String, i64)> {
        let known = self.known.lock();
        let serving = known.values().filter_map(|one| {
            let label = one.row.names.split(' ').next().unwrap_or_default();
            Some((label.to_owned(), one.validity()?.until_ms.div_euclid(1000)))
        });
        serving.collect()
    }

    /// Whether handshakes are to be looked at before they are made.
    pub fn guides(&self) -> bool {
        let config = &self.client.config;
        config.on_demand || config.challenge == ChallengeKind::TlsAlpn01
    }

    /// Orders what is due, until `stopped` says so. An order that has begun goes on.
    pub async fn run(self: Arc<Self>, mut stopped: watch::Receiver<bool>) {
        loop {
            let pause = Box::pin(self.round(&stopped)).await;
            tokio::select! {
                () = tokio::time::sleep(pause.clamp(BREATH, LOOK)) => {}
                () = self.wake.notified() => {}
                // Its sender is gone: the process ends.
                _ = stopped.wait_for(|over| *over) => return,
            }
        }
    }

    /// Does what is due; says how long nothing will be.
    async fn round(&self, stopped: &watch::Receiver<bool>) -> Duration {
        if let Err(error) = self.refresh().await {
            tracing::warn!(%error, "certificates of the store can't be read");
            return LOOK;
        }
        for (names, job) in self.due() {
            if *stopped.borrow() {
                return LOOK;
            }
            match self.lease().await {
                Ok(true) => {}
                Ok(false) => return OTHERS_LEASE,
                Err(error) => {
                    tracing::warn!(%error, "certificates can't be ordered now");
                    return LOOK;
                }
            }
            self.work(&names, job).await;
            if let Err(error) = self
                .client
                .store
                .release_acme_lease(LEASE, &self.node)
                .await
            {
                tracing::warn!(%error, "other nodes wait until the lease is over");
            }
        }
        self.rest()
    }

    /// Takes in what other nodes have put into the store.
    async fn refresh(&self) -> Result<(), StoreError> {
        let revision = self.client.store.acme_revision().await?;
        if *self.revision.lock() == Some(revision) {
            return Ok(());
        }
        let rows = self.client.store.acme_certificates().await?;
        let before = self.known.lock().clone();
        let read = rows.into_iter().map(|row| {
            let known = Known::read(&self.client.vault, row.clone(), before.get(&row.names));
            (row.names, known)
        });
        let mut known: BTreeMap<String, Known> = read.collect();
        known.retain(|_, one| !self.is_spent(one));
        self.put_in_force(known);
        *self.revision.lock() = Some(revision);
        Ok(())
    }

    fn put_in_force(&self, known: BTreeMap<String, Known>) {
        let failing = known.values().filter(|one| one.row.state.failures > 0);
        let failing = i64::try_from(failing.count()).unwrap_or(i64::MAX);
        self.metrics.failing.set(failing);
        self.issued.replace(&known);
        *self.known.lock() = known;
    }

    /// Whether it serves no name any more: expired, and nobody orders it again.
    fn is_spent(&self, known: &Known) -> bool {
        let now_ms = self.client.clock.now_ms();
        let is_over = known.validity().is_none_or(|it| it.until_ms <= now_ms);
        is_over && !self.is_wanted(&known.row.names)
    }

    /// Whether a certificate for exactly these names is to be had.
    fn is_wanted(&self, names: &str) -> bool {
        let config = &self.client.config;
        let is_configured = config.names.iter().any(|one| one.key() == names);
        is_configured || config.on_demand && !names.contains(' ') && (self.routed)(names)
    }

    /// What is to be done now, orders first.
    fn due(&self) -> Vec<(String, Job)> {
        let now_ms = self.client.clock.now_ms();
        let mut due: Vec<(String, Job)> = Vec::new();
        for names in self.wanted() {
            match self.job(&names, now_ms) {
                Some(Job::Order) => due.insert(0, (names, Job::Order)),
                Some(Job::Window) => due.push((names, Job::Window)),
                None => {}
            }
        }
        due
    }

    /// Every certificate that is to be had.
    fn wanted(&self) -> BTreeSet<String> {
        let config = &self.client.config;
        let mut wanted: BTreeSet<String> = config.names.iter().map(Names::key).collect();
        if config.on_demand {
            let requested = self.requested.lock().clone();
            let known: Vec<String> = self.known.lock().keys().cloned().collect();
            let all = requested.into_iter().chain(known);
            wanted.extend(all.filter(|names| self.is_wanted(names)));
        }
        wanted
    }

    fn job(&self, names: &str, now_ms: i64) -> Option<Job> {
        let config = &self.client.config;
        let known = self.known.lock();
        let Some(one) = known.get(names) else {
            return Some(Job::Order);
        };
        if self.order_ms(one) <= now_ms {
            return Some(Job::Order);
        }
        let window = one.row.state.window_ms.filter(|_| config.renew.ari);
        let asks = one.serving.is_some() && window.is_some_and(|at| at <= now_ms);
        asks.then_some(Job::Window)
    }

    fn order_ms(&self, known: &Known) -> i64 {
        let config = &self.client.config;
        schedule::order_ms(
            &known.row,
            known.validity(),
            &config.directory,
            &config.renew,
        )
    }

    /// How long nothing is due.
    fn rest(&self) -> Duration {
        let now_ms = self.client.clock.now_ms();
        let wanted = self.wanted();
        let known = self.known.lock();
        let next = wanted.iter().map(|names| match known.get(names) {
            Some(one) => self.order_ms(one),
            None => now_ms,
        });
        let next = next.min().unwrap_or(i64::MAX).saturating_sub(now_ms);
        Duration::from_millis(u64::try_from(next).unwrap_or_default())
    }

    async fn lease(&self) -> Result<bool, StoreError> {
        let now_ms = self.client.clock.now_ms();
        let store = &self.client.store;
        store
            .take_acme_lease(LEASE, &self.node, now_ms, now_ms + LEASE_MS)
            .await
    }

    /// Ends when the lease is lost.
    async fn prolong(&self) {
        loop {
            tokio::time::sleep(PROLONG).await;
            match self.lease().await {
                Ok(true) => {}
                Ok(false) => return,
                // It lasts for some more tries.
                Err(error) => tracing::warn!(%error, "the lease is not prolonged"),
            }
        }
    }

    /// Does one job, if nobody else has meanwhile. This node has the lease.
    async fn work(&self, names: &str, job: Job) {
        let store = &self.client.store;
        let row = match store.acme_certificate(names).await {
            Ok(row) => row,
            Err(error) => return tracing::warn!(%error, "certificates can't be ordered now"),
        };
        if let Some(row) = row {
            self.take_in(row);
            let now_ms = self.client.clock.now_ms();
            if self.job(names, now_ms) != Some(job) {
                return;
            }
        }
        match job {
            Job::Order => self.order(names).await,
            Job::Window => self.ask_window(names).await,
        }
    }

    async fn order(&self, names: &str) {
        let before = self.known.lock().get(names).cloned();
        let list: Vec<String> = names.split(' ').map(str::to_owned).collect();
        let replaces = before.as_ref().filter(|one| self.is_of_this_authority(one));
        let replaces = replaces.and_then(|one| identifier(one));
        let order = Box::pin(self.client.order(&list, replaces));
        let outcome = tokio::select! {
            outcome = timeout(ORDER_LIMIT, order) => outcome.unwrap_or_else(|_| {
                Err(OrderError::own("order", "it took too long"))
            }),
            () = self.prolong() => {
                Err(OrderError::own("order", "another node has taken the lease"))
            }
        };
        let outcome = outcome.and_then(|new| self.sealed(names, new));
        let now_ms = self.client.clock.now_ms();
        let mut row = before.map_or_else(|| empty(names), |one| one.row);
        row.directory.clone_from(&self.client.config.directory);
        row.updated_ms = now_ms.max(row.updated_ms + 1);
        match outcome {
            Ok(issued) => {
                self.metrics.issued.inc();
                row.issued = Some(issued);
                row.state = AcmeState {
                    issuer: Some(row.directory.clone()),
                    window_ms: Some(now_ms),
                    ..AcmeState::default()
                };
                let known = Known::read(&self.client.vault, row, None);
                row = known.row.clone();
                row.state.renew_ms = known.validity().map(|validity| {
                    schedule::renew_ms(validity, &self.client.config.renew, chance())
                });
                tracing::info!(names, "certificate issued");
            }
            Err(error) => {
                self.metrics.failed.inc();
                schedule::fail(&mut row.state, error.refusal(), now_ms, chance());
                row.state.problem = Some(error.record(now_ms));
                let next_try_seconds = (row.state.retry_ms - now_ms) / 1000;
                let failures = row.state.failures;
                tracing::warn!(
                    names,
                    failures,
                    next_try_seconds,
                    "certificate not issued: {error}"
                );
            }
        }
        self.requested.lock().remove(names);
        self.take_in(row.clone());
        self.keep(&row).await;
    }

    fn is_of_this_authority(&self, known: &Known) -> bool {
        let issuer = known.row.state.issuer.as_deref();
        self.client.config.renew.ari && issuer == Some(self.client.config.directory.as_str())
    }

    /// The certificate as the store keeps it.
    fn sealed(&self, names: &str, new: NewCertificate) -> Result<AcmeIssued, OrderError> {
        let key = Secret::new(STANDARD.encode(&new.key));
        let sealed = self.client.vault.seal_own(KEY, names, &key);
        let sealed = sealed.map_err(|error| OrderError::own("certificate", error))?;
        Ok(AcmeIssued {
            chain: new.chain,
            key: sealed.unwrap_or(key),
        })
    }

    /// Puts one row in force.
    fn take_in(&self, row: StoredAcmeCertificate) {
        let mut known = self.known.lock().clone();
        let names = row.names.clone();
        let one = Known::read(&self.client.vault, row, known.get(&names));
        known.insert(names, one);
        self.put_in_force(known);
    }

    /// Keeps a row in the store. A certificate costs the authority's patience: a store
    /// that does not answer is asked again.
    async fn keep(&self, row: &StoredAcmeCertificate) {
        for _ in 0..KEEP_TRIES {
            match self.client.store.put_acme_certificate(row).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(%error, names = row.names, "what came of an order is not stored yet");
                    tokio::time::sleep(KEEP_PAUSE).await;
                }
            }
        }
        tracing::error!(
            names = row.names,
            "what came of an order is lost with this process"
        );
    }

    /// Asks the authority when to renew (RFC 9773).
    async fn ask_window(&self, names: &str) {
        let Some(known) = self.known.lock().get(names).cloned() else {
            return;
        };
        let now_ms = self.client.clock.now_ms();
        let mut row = known.row.clone();
        match self.window(&known).await {
            Ok((window, pause_ms)) => {
                let planned = row.state.renew_ms;
                let renew_ms = schedule::within(window, planned, chance());
                row.state.renew_ms = Some(renew_ms);
                row.state.window_ms = Some(schedule::next_window_ms(now_ms, pause_ms));
                tracing::debug!(names, renew_ms, "the authority suggests when to renew");
            }
            Err(why) => {
                row.state.window_ms = Some(now_ms + schedule::WINDOW_RETRY);
                tracing::debug!(names, why, "the authority suggests no time to renew");
            }
        }
        row.updated_ms = now_ms.max(row.updated_ms + 1);
        self.take_in(row.clone());
        self.keep(&row).await;
    }

    async fn window(&self, known: &Known) -> Result<(Validity, i64), String> {
        let id = identifier(known).ok_or("the certificate names no authority key")?;
        let transport = Transport::new(self.client.outbound.clone(), self.client.clock.clone());
        let account = self.client.account(&transport).await;
        let account = account.map_err(|error| error.to_string())?;
        let told = account.renewal_info(&id).await;
        let (told, pause) = told.map_err(|error| error.to_string())?;
        let ms = |time: i64| time.saturating_mul(1000);
        let window = Validity {
            from_ms: ms(told.suggested_window.start.unix_timestamp()),
            until_ms: ms(told.suggested_window.end.unix_timestamp()),
        };
        if window.until_ms < window.from_ms {
            return Err("its window ends before it begins".to_owned());
        }
        Ok((window, i64::try_from(pause.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// How the authority knows a certificate (RFC 9773 §4.1).
fn identifier(known: &Known) -> Option<CertificateIdentifier<'static>> {
    let identifier = CertificateIdentifier::try_from(known.leaf()?).ok()?;
    Some(identifier.into_owned())
}

/// Nothing is known of these names yet.
fn empty(names: &str) -> StoredAcmeCertificate {
    StoredAcmeCertificate {
        names: names.to_owned(),
        directory: String::new(),
        issued: None,
        state: AcmeState::default(),
        updated_ms: 0,
    }
}

/// A random number between 0 and 1.
fn chance() -> f64 {
    f64::from(u32::from_be_bytes(clock::random_bytes())) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests;
