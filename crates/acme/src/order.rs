//! One order from its beginning to the certificate (RFC 8555 §7.1).

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, CertificateIdentifier, ChallengeType,
    ExternalAccountKey, Identifier, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};

use crate::challenges::{Challenges, name_key};
use crate::config::{AcmeConfig, ChallengeKind};
use crate::dns_hook::{self, Action, TxtRecord};
use crate::problem::OrderError;
use crate::transport::Transport;
use doorward_core::clock::Clock;
use doorward_core::jose::vault::Vault;
use doorward_core::model::acme::StoredAcmeAccount;
use doorward_core::model::secret::Secret;
use doorward_core::x509;
use doorward_net::http::outbound::Outbound;
use doorward_store::{Store, StoreError};

/// What accounts are sealed as.
const ACCOUNT: &str = "ACME account";
/// How long an authority may take to validate, and to issue.
const PATIENCE: Duration = Duration::from_secs(300);

/// What an order needs.
pub(crate) struct Client {
    pub(crate) config: AcmeConfig,
    /// Its fingerprint.
    pub(crate) section: String,
    pub(crate) store: Arc<Store>,
    pub(crate) vault: Vault,
    pub(crate) clock: Clock,
    pub(crate) outbound: Arc<Outbound>,
    pub(crate) challenges: Arc<Challenges>,
}

/// A certificate as it was issued.
pub(crate) struct NewCertificate {
    /// PEM, the leaf first.
    pub(crate) chain: String,
    /// PKCS#8.
    pub(crate) key: Vec<u8>,
}

/// What to take back when an order is over, however it ended.
#[derive(Default)]
pub(crate) struct Presented {
    answers: Vec<(String, String)>,
    records: Vec<TxtRecord>,
}

/// The steps of an order, as errors name them.
mod step {
    pub(super) use crate::problem::ACCOUNT;
    pub(super) const ORDER: &str = "order";
    pub(super) const AUTHORIZATION: &str = "authorization";
    pub(super) const CHALLENGE: &str = "challenge";
    pub(super) const FINALIZATION: &str = "finalization";
    pub(super) const CERTIFICATE: &str = "certificate";
}

impl Client {
    /// Orders a certificate for `names` in the place of `replaces`. What is in
    /// `presented` is to be taken back, however this ends.
    pub(crate) async fn order(
        &self,
        names: &[String],
        replaces: Option<CertificateIdentifier<'_>>,
        presented: &mut Presented,
    ) -> Result<NewCertificate, OrderError> {
        let first = self.try_order(names, replaces.clone(), presented).await;
        match &first {
            // The authority has lost the account: a new one is made.
            Err(error) if error.is("accountDoesNotExist") => {
                let forgotten = self.store.delete_acme_account(&self.config.directory).await;
                forgotten.map_err(|error| OrderError::own(step::ACCOUNT, error))?;
            }
            // Nonces were refused again and again, which says nothing of the order.
            Err(error) if error.is("badNonce") => {}
            _ => return first,
        }
        self.try_order(names, replaces, presented).await
    }

    async fn try_order(
        &self,
        names: &[String],
        replaces: Option<CertificateIdentifier<'_>>,
        presented: &mut Presented,
    ) -> Result<NewCertificate, OrderError> {
        let transport = Transport::new(self.outbound.clone(), self.clock.clone());
        let run = self.run(&transport, names, replaces, presented);
        let outcome = Box::pin(run).await;
        outcome.map_err(|error| transport.explain(error))
    }

    async fn run(
        &self,
        transport: &Transport,
        names: &[String],
        replaces: Option<CertificateIdentifier<'_>>,
        presented: &mut Presented,
    ) -> Result<NewCertificate, OrderError> {
        let account = self.account(transport).await?;
        let mut order = self.place(&account, names, replaces).await?;
        let at = |step: &'static str| move |error| OrderError::of(step, &error);
        if order.state().status == OrderStatus::Pending {
            self.present(&mut order, presented).await?;
            self.announce(&mut order).await?;
            let status = order.poll_ready(&patience()).await;
            let is_ready = matches!(status, Ok(OrderStatus::Ready));
            if !is_ready {
                let why = refusal(&mut order).await;
                return Err(why.unwrap_or_else(|| match status {
                    Err(error) => OrderError::of(step::AUTHORIZATION, &error),
                    Ok(status) => {
                        let text = format!("the order is {status:?}");
                        OrderError::own(step::AUTHORIZATION, text)
                    }
                }));
            }
        }
        if order.state().status == OrderStatus::Invalid {
            let why = refusal(&mut order).await;
            let invalid = || OrderError::own(step::ORDER, "the order is invalid");
            return Err(why.unwrap_or_else(invalid));
        }
        let (key, request) =
            key_and_request(names).map_err(|error| OrderError::own(step::FINALIZATION, error))?;
        let finalized = order.finalize_csr(&request).await;
        finalized.map_err(at(step::FINALIZATION))?;
        let chain = order.poll_certificate(&patience()).await;
        let chain = chain.map_err(at(step::CERTIFICATE))?;
        let certificate = NewCertificate { chain, key };
        let now = self.clock.now_secs();
        certificate
            .check(names, now)
            .map_err(|why| OrderError::own(step::CERTIFICATE, why))?;
        Ok(certificate)
    }

    /// The account of the store, or a new one.
    pub(crate) async fn account(&self, transport: &Transport) -> Result<Account, OrderError> {
        let directory = &self.config.directory;
        let own = |error: &dyn std::fmt::Display| OrderError::own(step::ACCOUNT, error);
        let of = |error| OrderError::of(step::ACCOUNT, &error);
        let builder = Account::builder_with_http(Box::new(transport.clone()));
        let stored = self.store.acme_account(directory).await;
        if let Some(stored) = stored.map_err(|error| own(&error))? {
            let opened = self.vault.open_own(ACCOUNT, directory, &stored.credentials);
            let opened = opened.map_err(|error| own(&error))?;
            let credentials: AccountCredentials = serde_json::from_slice(&opened)
                .map_err(|_| own(&"the account in the store is damaged"))?;
            self.seal_anew(stored).await;
            return builder.from_credentials(credentials).await.map_err(of);
        }
        let contacts = self.config.contacts();
        let texts: Vec<&str> = contacts.iter().map(String::as_str).collect();
        let account = NewAccount {
            contact: &texts,
            terms_of_service_agreed: self.config.terms_agreed,
            only_return_existing: false,
        };
        let external = self.config.eab.as_ref().and_then(|eab| {
            let key = eab.key()?;
            Some(ExternalAccountKey::new(eab.kid.clone(), &key))
        });
        let created = builder.create(&account, directory.clone(), external.as_ref());
        let (account, credentials) = created.await.map_err(of)?;
        let text = serde_json::to_vec(&credentials).map_err(|error| own(&error))?;
        let text = Secret::new(STANDARD.encode(text));
        let sealed = self.vault.seal_own(ACCOUNT, directory, &text);
        let stored = StoredAcmeAccount {
            directory: directory.clone(),
            credentials: sealed.map_err(|error| own(&error))?.unwrap_or(text),
            contacts,
            created_ms: self.clock.now_ms(),
        };
        let kept = self.store.put_acme_account(&stored).await;
        kept.map_err(|error| own(&error))?;
        tracing::info!(%directory, account = account.id(), "ACME account made");
        Ok(account)
    }

    /// Whether the account has other contacts than the configuration.
    pub(crate) async fn has_other_contacts(&self) -> Result<bool, StoreError> {
        let stored = self.store.acme_account(&self.config.directory).await?;
        Ok(stored.is_some_and(|stored| stored.contacts != self.config.contacts()))
    }

    /// Tells the authority the contacts of the configuration.
    pub(crate) async fn update_contacts(&self) -> Result<(), OrderError> {
        let own = |error: StoreError| OrderError::own(step::ACCOUNT, error);
        let directory = &self.config.directory;
        // Another node may have done it.
        if !self.has_other_contacts().await.map_err(own)? {
            return Ok(());
        }
        let transport = Transport::new(self.outbound.clone(), self.clock.clone());
        let account = self.account(&transport).await?;
        let contacts = self.config.contacts();
        let texts: Vec<&str> = contacts.iter().map(String::as_str).collect();
        let updated = account.update_contacts(&texts).await;
        updated.map_err(|error| transport.explain(OrderError::of(step::ACCOUNT, &error)))?;
        let stored = self.store.acme_account(directory).await.map_err(own)?;
        if let Some(stored) = stored {
            let stored = StoredAcmeAccount { contacts, ..stored };
            self.store.put_acme_account(&stored).await.map_err(own)?;
        }
        tracing::info!(%directory, "the authority has the new contacts");
        Ok(())
    }

    /// Has the account sealed with the master key of now.
    async fn seal_anew(&self, mut stored: StoredAcmeAccount) {
        let directory = &self.config.directory;
        let sealed = self.vault.seal_own(ACCOUNT, directory, &stored.credentials);
        if let Ok(Some(sealed)) = sealed {
            stored.credentials = sealed;
            if let Err(error) = self.store.put_acme_account(&stored).await {
                tracing::warn!(%error, "the ACME account is not sealed anew");
            }
        }
    }

    /// Places the order; once more without `replaces`, if the authority does not take that.
    async fn place(
        &self,
        account: &Account,
        names: &[String],
        replaces: Option<CertificateIdentifier<'_>>,
    ) -> Result<Order, OrderError> {
        let identifiers: Vec<_> = names.iter().cloned().map(Identifier::Dns).collect();
        let new = || {
            let order = NewOrder::new(&identifiers);
            match &self.config.profile {
                Some(profile) => order.profile(profile),
                None => order,
            }
        };
        if let Some(replaces) = replaces {
            match account.new_order(&new().replaces(replaces)).await {
                Ok(order) => return Ok(order),
                Err(error) => {
                    let error = OrderError::of(step::ORDER, &error);
                    // The certificate was replaced, is of another account, or the
                    // authority knows no replacing.
                    let is_other = error.kind.is_none()
                        || ["alreadyReplaced", "malformed", "unauthorized"]
                            .map(|kind| error.is(kind))
                            .contains(&true);
                    if !is_other {
                        return Err(error);
                    }
                }
            }
        }
        let placed = account.new_order(&new()).await;
        placed.map_err(|error| OrderError::of(step::ORDER, &error))
    }

    /// Makes ready what the authority will look for.
    async fn present(
        &self,
        order: &mut Order,
        presented: &mut Presented,
    ) -> Result<(), OrderError> {
        let kind = self.challenge_type();
        let mut records = Vec::new();
        let mut all = order.authorizations();
        while let Some(authorization) = all.next().await {
            let mut authorization =
                authorization.map_err(|error| OrderError::of(step::AUTHORIZATION, &error))?;
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let identifier = authorization.identifier().to_string();
            let Some(challenge) = authorization.challenge(kind.clone()) else {
                let text = format!(
                    "the authority offers no {} for {identifier}",
                    self.config.challenge.as_str()
                );
                return Err(OrderError::own(step::CHALLENGE, text));
            };
            let answer = challenge.key_authorization();
            match self.config.challenge {
                ChallengeKind::Http01 => {
                    let pair = (challenge.token.clone(), answer.as_str().to_owned());
                    presented.answers.push(pair);
                }
                ChallengeKind::TlsAlpn01 => {
                    let pair = (name_key(&identifier), answer.as_str().to_owned());
                    presented.answers.push(pair);
                }
                ChallengeKind::Dns01 => {
                    let record = TxtRecord::new(&identifier, answer.dns_value());
                    records.push(record);
                }
            }
        }
        let put = self.challenges.put(presented.answers.clone()).await;
        put.map_err(|error| OrderError::own(step::CHALLENGE, error))?;
        let Some(hook) = self.config.dns_hook.as_ref() else {
            return Ok(());
        };
        for record in records {
            // Also one that fails may have set it.
            presented.records.push(record.clone());
            let ran = dns_hook::run(hook, Action::Present, &record).await;
            ran.map_err(|why| OrderError::own(step::CHALLENGE, why))?;
        }
        if !presented.records.is_empty() {
            tokio::time::sleep(Duration::from_secs(hook.wait_seconds)).await;
        }
        Ok(())
    }

    /// Tells the authority that it may look.
    async fn announce(&self, order: &mut Order) -> Result<(), OrderError> {
        let mut all = order.authorizations();
        while let Some(authorization) = all.next().await {
            let mut authorization =
                authorization.map_err(|error| OrderError::of(step::AUTHORIZATION, &error))?;
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let Some(mut challenge) = authorization.challenge(self.challenge_type()) else {
                continue;
            };
            let ready = challenge.set_ready().await;
            ready.map_err(|error| OrderError::of(step::CHALLENGE, &error))?;
        }
        Ok(())
    }

    /// Takes back what the authority was to look for.
    pub(crate) async fn take_back(&self, presented: &Presented) {
        let keys = presented.answers.iter().map(|(key, _)| key.clone());
        self.challenges.remove(&keys.collect::<Vec<_>>()).await;
        let Some(hook) = self.config.dns_hook.as_ref() else {
            return;
        };
        for record in &presented.records {
            if let Err(why) = dns_hook::run(hook, Action::Cleanup, record).await {
                tracing::warn!(record = record.name, %why, "a DNS record was not removed");
            }
        }
    }

    fn challenge_type(&self) -> ChallengeType {
        match self.config.challenge {
            ChallengeKind::Http01 => ChallengeType::Http01,
            ChallengeKind::TlsAlpn01 => ChallengeType::TlsAlpn01,
            ChallengeKind::Dns01 => ChallengeType::Dns01,
        }
    }
}

impl NewCertificate {
    /// Whether it can serve: key and chain fit, all names are in it, and it is valid.
    fn check(&self, names: &[String], now: i64) -> Result<(), String> {
        let chain = x509::chain(self.chain.as_bytes()).map_err(|error| error.to_string())?;
        let leaf = chain.first().cloned().ok_or("the chain is empty")?;
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(self.key.clone());
        x509::certified(chain, key.into()).map_err(|error| error.to_string())?;
        let facts = x509::facts(&leaf).map_err(|error| error.to_string())?;
        let missing = names.iter().find(|name| !facts.names.contains(name));
        if let Some(name) = missing {
            return Err(format!("the certificate is not for {name}"));
        }
        // Clocks differ by seconds.
        x509::valid_at(&leaf, now.max(facts.not_before))
    }
}

fn patience() -> RetryPolicy {
    RetryPolicy::new()
        .initial_delay(Duration::from_millis(250))
        .backoff(2.0)
        .timeout(PATIENCE)
}

/// Why the authority refuses an order: its own word, or that on one of its names.
async fn refusal(order: &mut Order) -> Option<OrderError> {
    // The order's error is the shorter of the two.
    let mut all = order.authorizations();
    while let Some(Ok(mut authorization)) = all.next().await {
        if authorization.refresh().await.is_err() {
            continue;
        }
        let identifier = authorization.identifier().to_string();
        let failed = authorization
            .challenges
            .iter()
            .find_map(|one| one.error.as_ref());
        if let Some(problem) = failed {
            let mut error = OrderError::problem(step::AUTHORIZATION, problem);
            if !error.detail.contains(&identifier) {
                error.detail = format!("{identifier}: {}", error.detail);
            }
            return Some(error);
        }
    }
    let problem = order.state().error.as_ref()?;
    Some(OrderError::problem(step::ORDER, problem))
}

/// A new key, and the request to certify it.
fn key_and_request(names: &[String]) -> Result<(Vec<u8>, Vec<u8>), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key)?;
    Ok((key.serialize_der(), request.der().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_of_another_name_or_key_does_not_serve() {
        let names = ["a.test".to_owned()];
        let key = KeyPair::generate().expect("a key");
        let made = CertificateParams::new(names.to_vec()).expect("parameters");
        let chain = made.self_signed(&key).expect("a certificate").pem();
        let good = NewCertificate {
            chain: chain.clone(),
            key: key.serialize_der(),
        };
        good.check(&names, 1_800_000_000).expect("it serves");
        let why = good
            .check(&["b.test".to_owned()], 1_800_000_000)
            .expect_err("a name");
        assert_eq!(why, "the certificate is not for b.test");
        let other = KeyPair::generate().expect("a key").serialize_der();
        let why = NewCertificate { chain, key: other }.check(&names, 1_800_000_000);
        assert_eq!(why.expect_err("a key"), "certificate does not match key");
    }
}
