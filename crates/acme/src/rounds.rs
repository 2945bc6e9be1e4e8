//! What is done when: orders, questions for renewal windows, changes of the account.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use instant_acme::CertificateIdentifier;
use tokio::sync::watch;

use crate::issued::{KEY, ManagedCertificate};
use crate::order::{NewCertificate, Presented};
use crate::problem::OrderError;
use crate::schedule::{self, Validity};
use crate::transport::Transport;
use crate::{Acme, chance};
use doorward_core::model::acme::{AcmeIssued, AcmeState, StoredAcmeCertificate};
use doorward_core::model::audit::{Actor, Detail, Event, Kind, PendingAudit, Trace};
use doorward_core::model::secret::Secret;
use doorward_store::StoreError;

/// The lease of the node that orders.
pub(crate) const LEASE: &str = "orders";
/// How long the lease lasts that nobody prolongs, in milliseconds.
const LEASE_MS: i64 = 90_000;
/// How often it is prolonged.
const PROLONG: Duration = Duration::from_secs(20);
/// How long another node's lease is left alone.
const OTHERS_LEASE: Duration = Duration::from_secs(10);
/// Longest time for an order, besides that of the DNS hook.
const ORDER_LIMIT: Duration = Duration::from_secs(1800);
/// How often the store is looked at for what other nodes have ordered.
const LOOK: Duration = Duration::from_secs(15);
/// The least time between two rounds.
const BREATH: Duration = Duration::from_secs(1);
/// Between tries to keep a new certificate in a store that does not answer.
const KEEP_PAUSE: Duration = Duration::from_secs(5);
/// Most of those tries.
const KEEP_TRIES: usize = 60;

/// What is to be done for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    /// It is to be ordered.
    Order,
    /// The authority is to be asked when to renew it.
    Window,
}

impl Acme {
    /// Orders what is due, until `stopped` says so. An order that has begun is given up
    /// then, and what it has put into the DNS is taken back.
    pub async fn run(self: Arc<Self>, mut stopped: watch::Receiver<bool>) {
        let mut changes = self.client.store.changes();
        loop {
            let pause = Box::pin(self.round(&stopped)).await;
            tokio::select! {
                () = tokio::time::sleep(pause.clamp(BREATH, LOOK)) => {}
                () = self.wake.notified() => {}
                // Of many that come together, one look takes in all.
                Ok(()) = changes.changed() => tokio::time::sleep(BREATH).await,
                () = over(&mut stopped) => return,
            }
        }
    }

    /// Does what is due; says how long nothing will be.
    pub(crate) async fn round(&self, stopped: &watch::Receiver<bool>) -> Duration {
        if let Err(error) = self.refresh().await {
            tracing::warn!(%error, "certificates of the store can't be read");
            return LOOK;
        }
        let due = self.due();
        if due.is_empty() && !self.is_contact_due() {
            return self.rest();
        }
        match self.lease().await {
            Ok(true) => {}
            Ok(false) => return OTHERS_LEASE,
            Err(error) => {
                tracing::warn!(%error, "certificates can't be ordered now");
                return LOOK;
            }
        }
        for (names, job) in due {
            // What the one before has come to may hold for this one too.
            if self.job(&names, self.client.clock.now_ms()) != Some(job) {
                continue;
            }
            if *stopped.borrow() || !self.work(&names, job, stopped).await {
                break;
            }
        }
        if self.is_contact_due() && !*stopped.borrow() {
            self.update_contacts().await;
        }
        let store = &self.client.store;
        if let Err(error) = store.release_acme_lease(LEASE, &self.node).await {
            tracing::warn!(%error, "other nodes wait until the lease is over");
        }
        self.rest()
    }

    /// What is to be done now, orders first.
    fn due(&self) -> Vec<(String, Job)> {
        let now_ms = self.client.clock.now_ms();
        let (mut orders, mut windows) = (Vec::new(), Vec::new());
        for names in self.wanted() {
            match self.job(&names, now_ms) {
                Some(Job::Order) => orders.push((names, Job::Order)),
                Some(Job::Window) => windows.push((names, Job::Window)),
                None => {}
            }
        }
        orders.append(&mut windows);
        orders
    }

    /// Every certificate that is to be had.
    pub(crate) fn wanted(&self) -> BTreeSet<String> {
        let mut wanted = self.configured.clone();
        if self.client.config.on_demand {
            let known: BTreeSet<String> = self.known.lock().keys().cloned().collect();
            let mut requested = self.requested.lock();
            // Ordered by another node, or no host of a route any more.
            requested.retain(|name| !known.contains(name) && self.is_wanted(name));
            wanted.extend(requested.iter().cloned());
            wanted.extend(known.into_iter().filter(|names| self.is_wanted(names)));
        }
        wanted
    }

    fn job(&self, names: &str, now_ms: i64) -> Option<Job> {
        let config = &self.client.config;
        let known = self.known.lock();
        let one = known.get(names);
        if self.order_ms(one) <= now_ms {
            return Some(Job::Order);
        }
        let one = one?;
        let window = one.row.state.window_ms.filter(|_| config.renew.ari);
        let asks = one.serving.is_some() && window.is_some_and(|at| at <= now_ms);
        asks.then_some(Job::Window)
    }

    /// How long nothing is due.
    fn rest(&self) -> Duration {
        let now_ms = self.client.clock.now_ms();
        let wanted = self.wanted();
        let known = self.known.lock();
        let next = wanted.iter().map(|names| self.order_ms(known.get(names)));
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

    /// Does one job, if nobody else has meanwhile; says whether this node still has the
    /// lease.
    async fn work(&self, names: &str, job: Job, stopped: &watch::Receiver<bool>) -> bool {
        // Other jobs have taken their time.
        let has_lease = matches!(self.lease().await, Ok(true));
        let row = match self.client.store.acme_certificate(names).await {
            Ok(row) if has_lease => row,
            Ok(_) => return false,
            Err(error) => {
                tracing::warn!(%error, "certificates can't be ordered now");
                return false;
            }
        };
        if let Some(row) = row {
            self.take_in(row);
            let now_ms = self.client.clock.now_ms();
            if self.job(names, now_ms) != Some(job) {
                return true;
            }
        }
        if job == Job::Window {
            self.ask_window(names).await;
            return true;
        }
        let Some(outcome) = self.order(names, stopped).await else {
            return false;
        };
        self.settle(names, outcome).await;
        true
    }

    /// One order; nothing, if it was given up because the process ends or another node
    /// has taken over.
    async fn order(
        &self,
        names: &str,
        stopped: &watch::Receiver<bool>,
    ) -> Option<Result<NewCertificate, OrderError>> {
        let before = self.known.lock().get(names).cloned();
        let list: Vec<String> = names.split(' ').map(str::to_owned).collect();
        let replaces = before.as_ref().filter(|one| self.is_of_this_authority(one));
        let replaces = replaces.and_then(identifier);
        let hook = self.client.config.dns_hook.as_ref();
        let hook_time = hook.map_or(0, |hook| hook.longest_seconds(list.len()));
        let limit = ORDER_LIMIT + Duration::from_secs(hook_time);
        let mut presented = Presented::default();
        let mut stopped = stopped.clone();
        let outcome = tokio::select! {
            outcome = Box::pin(self.client.order(&list, replaces, &mut presented)) => Some(outcome),
            () = tokio::time::sleep(limit) => {
                Some(Err(OrderError::own("order", "it took too long")))
            }
            () = self.prolong() => {
                tracing::warn!(names, "an order is given up: another node has taken over");
                None
            }
            () = over(&mut stopped) => {
                tracing::info!(names, "an order is given up: the process ends");
                None
            }
        };
        self.client.take_back(&presented).await;
        outcome
    }

    /// Puts in force what came of an order, and keeps it.
    async fn settle(&self, names: &str, outcome: Result<NewCertificate, OrderError>) {
        let outcome = outcome.and_then(|new| self.sealed(names, new));
        let now_ms = self.client.clock.now_ms();
        let before = self.known.lock().get(names).cloned();
        let mut row = before.map_or_else(|| empty(names), |one| one.row);
        row.directory.clone_from(&self.client.config.directory);
        row.updated_ms = now_ms.max(row.updated_ms + 1);
        let mut event = Event::new(Kind::CertificateOrder, Actor::System)
            .target(&format!("acme/{}", first(names)))
            .with("names", names.split(' ').collect::<Detail>());
        match outcome {
            Ok(issued) => {
                self.metrics.issued.inc();
                row.issued = Some(issued);
                row.state = AcmeState {
                    issuer: Some(row.directory.clone()),
                    window_ms: Some(now_ms),
                    ..AcmeState::default()
                };
                let known = ManagedCertificate::read(&self.client.vault, row, None);
                row = known.row.clone();
                row.state.renew_ms = known.validity().map(|validity| {
                    schedule::renew_ms(validity, &self.client.config.renew, chance())
                });
                tracing::info!(names, "certificate issued");
            }
            Err(error) => {
                self.metrics.failed.inc();
                schedule::fail(&mut row.state, error.refusal(), now_ms, chance());
                row.state.section = Some(self.client.section.clone());
                row.state.problem = Some(error.record(now_ms));
                if error.is_of_account() {
                    // It would be the same for all names.
                    *self.paused_ms.lock() = row.state.retry_ms;
                }
                event = event.failed(error.code()).with("step", error.step);
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
        self.keep(&row, Some(event)).await;
    }

    fn is_of_this_authority(&self, known: &ManagedCertificate) -> bool {
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

    /// Keeps a row in the store, with the record of what came of it. A certificate costs
    /// the authority's patience: a store that does not answer is asked again.
    async fn keep(&self, row: &StoredAcmeCertificate, event: Option<Event>) {
        for _ in 0..KEEP_TRIES {
            let put = async |audit: Option<&PendingAudit>| {
                self.client.store.put_acme_certificate(row, audit).await
            };
            let kept = match event.clone() {
                Some(event) => {
                    let told = (event, Trace::default());
                    let act = self.audit.with(told, row.updated_ms, put, |()| true);
                    act.await
                }
                None => put(None).await,
            };
            match kept {
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
        self.keep(&row, None).await;
    }

    async fn window(&self, known: &ManagedCertificate) -> Result<(Validity, i64), String> {
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

    /// Whether the authority is to be told other contacts than it has.
    fn is_contact_due(&self) -> bool {
        let due = *self.contacts_ms.lock();
        due.is_some_and(|at| at <= self.client.clock.now_ms())
    }

    /// Tells the authority the contacts of the configuration. It costs no certificate if
    /// that fails.
    async fn update_contacts(&self) {
        let next = match self.client.update_contacts().await {
            Ok(()) => None,
            Err(error) => {
                tracing::warn!("the authority has not taken the new contacts: {error}");
                Some(self.client.clock.now_ms() + schedule::WINDOW_RETRY)
            }
        };
        *self.contacts_ms.lock() = next;
    }
}

/// Ends when the process ends; also when nobody is left to say so.
async fn over(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|over| *over).await;
}

/// How the authority knows a certificate (RFC 9773 §4.1).
fn identifier(known: &ManagedCertificate) -> Option<CertificateIdentifier<'static>> {
    let identifier = CertificateIdentifier::try_from(known.leaf()?).ok()?;
    Some(identifier.into_owned())
}

/// The name that stands for all of a certificate.
pub(crate) fn first(names: &str) -> &str {
    names.split(' ').next().unwrap_or_default()
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
