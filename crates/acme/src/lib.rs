//! Certificates for the proxy's listeners from an authority, by ACME (RFC 8555).
//!
//! [`Acme::run`] orders what is missing or about to expire, and puts each certificate
//! into the store, where other nodes find it. One node at a time orders: the store has a
//! lease for that. An order that fails changes nothing that serves. [`rounds`] does what is
//! due, [`schedule`] decides when, [`order`] is one order from its beginning to the
//! certificate.

mod challenges;
mod config;
mod dns_hook;
mod issued;
mod listeners;
mod name;
mod order;
mod probe;
mod problem;
mod rounds;
mod schedule;
mod status;
mod transport;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::sign::CertifiedKey;
use tokio::sync::{Notify, Semaphore};

use challenges::Challenges;
use issued::{Issued, KEY, ManagedCertificate};
use order::Client;
use schedule::Terms;

use doorward_audit::Audit;
use doorward_core::clock::{self, Clock};
use doorward_core::jose::vault::Vault;
use doorward_core::model::acme::StoredAcmeCertificate;
use doorward_net::http::outbound::{Authorities, AuthorityError, Outbound};
use doorward_net::telemetry::acme::AcmeMetrics;
use doorward_store::{Store, StoreError};

pub use config::{AcmeConfig, ChallengeKind, DnsHook, ExternalAccount, Names, RenewalPolicy};
pub use probe::probe;

/// How long a record stays that serves nobody and that nobody orders, in milliseconds.
const SPENT_MS: i64 = 30 * 24 * 3_600_000;
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
    /// Has a record of each order.
    pub audit: Audit,
    /// The names that may be ordered on demand.
    pub routed: Routed,
}

/// Orders certificates, and has them at hand for handshakes.
pub struct Acme {
    client: Client,
    metrics: AcmeMetrics,
    audit: Audit,
    routed: Routed,
    /// This process, as the holder of the lease.
    node: String,
    /// The certificates of the configuration, as the store knows them.
    configured: BTreeSet<String>,
    issued: Issued,
    known: Mutex<BTreeMap<String, ManagedCertificate>>,
    /// The version of the store that was read last.
    version: Mutex<Option<i64>>,
    /// No order before this time: the authority has not let the account in.
    paused_ms: Mutex<i64>,
    /// When the authority is to be told other contacts, if it is.
    contacts_ms: Mutex<Option<i64>>,
    /// Names whose first certificate a client waits for.
    requested: Mutex<BTreeSet<String>>,
    wake: Notify,
    waiting: Semaphore,
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
        // Where no other process can have the lease, the one of a process that was
        // killed need not run out.
        let node = if parts.is_shared {
            clock::random_uuid().to_string()
        } else {
            "this".to_owned()
        };
        let acme = Arc::new(Self {
            configured: config.names.iter().map(Names::key).collect(),
            client: Client {
                section: config.fingerprint(),
                config,
                store: parts.store,
                vault: parts.vault,
                clock: parts.clock,
                outbound,
                challenges: Arc::new(challenges),
            },
            metrics: parts.metrics,
            audit: parts.audit,
            routed: parts.routed,
            node,
            issued: Issued::default(),
            known: Mutex::default(),
            version: Mutex::default(),
            paused_ms: Mutex::default(),
            contacts_ms: Mutex::default(),
            requested: Mutex::default(),
            wake: Notify::default(),
            waiting: Semaphore::new(WAITING_MAX),
        });
        acme.refresh().await?;
        acme.seal_anew().await?;
        if acme.client.has_other_contacts().await? {
            *acme.contacts_ms.lock() = Some(0);
        }
        Ok(acme)
    }

    /// Has private keys sealed with the master key of now.
    async fn seal_anew(&self) -> Result<(), StoreError> {
        let known: Vec<ManagedCertificate> = self.known.lock().values().cloned().collect();
        for mut row in known.into_iter().map(|known| known.row) {
            let Some(issued) = &mut row.issued else {
                continue;
            };
            let sealed = self.client.vault.seal_own(KEY, &row.names, &issued.key);
            if let Ok(Some(sealed)) = sealed {
                issued.key = sealed;
                self.client.store.put_acme_certificate(&row, None).await?;
                self.take_in(row);
            }
        }
        Ok(())
    }

    /// The certificate for this server name, if one was issued.
    pub fn find(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.issued.find(name)
    }

    /// When certificates expire: label, seconds since the epoch, and whether each is
    /// renewed before that, as far as is known.
    pub fn expiries(&self) -> Vec<(String, i64, bool)> {
        let now_ms = self.client.clock.now_ms();
        let known = self.known.lock();
        let serving = known.values().filter_map(|one| {
            let until_ms = one.validity()?.until_ms;
            let is_renewed =
                one.row.state.failures == 0 && self.is_wanted(&one.row.names) && until_ms > now_ms;
            let label = rounds::first(&one.row.names).to_owned();
            Some((label, until_ms.div_euclid(1000), is_renewed))
        });
        serving.collect()
    }

    /// Whether handshakes are to be looked at before they are made.
    pub fn guides(&self) -> bool {
        let config = &self.client.config;
        config.on_demand || config.challenge == ChallengeKind::TlsAlpn01
    }

    /// Takes in what other nodes have put into the store.
    async fn refresh(&self) -> Result<(), StoreError> {
        let store = &self.client.store;
        let version = store.acme_version().await?;
        if *self.version.lock() == Some(version) {
            return Ok(());
        }
        let rows = store.acme_certificates().await?;
        let before = self.known.lock().clone();
        let read = rows.into_iter().map(|row| {
            let names = row.names.clone();
            let known = ManagedCertificate::read(&self.client.vault, row, before.get(&names));
            (names, known)
        });
        let (mut known, mut spent) = (BTreeMap::new(), Vec::new());
        for (names, one) in read {
            if !self.is_spent(&one) {
                known.insert(names, one);
            } else if one.row.updated_ms < self.client.clock.now_ms() - SPENT_MS {
                spent.push(names);
            }
        }
        self.show(&known);
        *self.known.lock() = known;
        for names in spent {
            store.delete_acme_certificate(&names).await?;
        }
        *self.version.lock() = Some(version);
        Ok(())
    }

    /// Has handshakes and metrics go by these.
    fn show(&self, known: &BTreeMap<String, ManagedCertificate>) {
        let failing = known.values().filter(|one| one.row.state.failures > 0);
        let failing = i64::try_from(failing.count()).unwrap_or(i64::MAX);
        self.metrics.failing.set(failing);
        self.issued.replace(known);
    }

    /// Whether it serves no name any more: expired, and nobody orders it again.
    fn is_spent(&self, known: &ManagedCertificate) -> bool {
        let now_ms = self.client.clock.now_ms();
        let is_over = known.validity().is_none_or(|it| it.until_ms <= now_ms);
        is_over && !self.is_wanted(&known.row.names)
    }

    /// Whether a certificate for exactly these names is to be had.
    fn is_wanted(&self, names: &str) -> bool {
        let config = &self.client.config;
        self.configured.contains(names)
            || config.on_demand && !names.contains(' ') && (self.routed)(names)
    }

    /// When a certificate is to be ordered, of which this much is known.
    fn order_ms(&self, known: Option<&ManagedCertificate>) -> i64 {
        let config = &self.client.config;
        let terms = Terms {
            directory: &config.directory,
            section: &self.client.section,
            policy: &config.renew,
        };
        let due = known.map(|known| schedule::order_ms(&known.row, known.validity(), &terms));
        due.unwrap_or_default().max(*self.paused_ms.lock())
    }

    /// Puts one row in force.
    fn take_in(&self, row: StoredAcmeCertificate) {
        let mut known = self.known.lock();
        let names = row.names.clone();
        let one = ManagedCertificate::read(&self.client.vault, row, known.get(&names));
        known.insert(names, one);
        self.show(&known);
    }
}

/// A random number between 0 and 1.
fn chance() -> f64 {
    f64::from(u32::from_be_bytes(clock::random_bytes())) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests;
