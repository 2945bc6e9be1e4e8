//! Certificates that were issued, ready for handshakes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use crate::schedule::Validity;
use doorward_core::jose::keys::KeyError;
use doorward_core::jose::vault::Vault;
use doorward_core::model::acme::{AcmeIssued, StoredAcmeCertificate};
use doorward_core::x509;
use doorward_net::http::server_name::normalised;

/// What private keys are sealed as.
pub(crate) const KEY: &str = "ACME key";

/// A certificate of the store with what it says.
#[derive(Clone)]
pub(crate) struct ManagedCertificate {
    pub(crate) row: StoredAcmeCertificate,
    pub(crate) serving: Option<Serving>,
}

/// A certificate that can serve.
#[derive(Clone)]
pub(crate) struct Serving {
    pub(crate) certified: Arc<CertifiedKey>,
    pub(crate) validity: Validity,
}

impl ManagedCertificate {
    /// Reads a row; `before` spares the parsing of what has not changed.
    pub(crate) fn read(vault: &Vault, row: StoredAcmeCertificate, before: Option<&Self>) -> Self {
        let serving = row.issued.as_ref().and_then(|issued| {
            let same = before.filter(|before| before.row.issued.as_ref() == Some(issued));
            if let Some(serving) = same.and_then(|before| before.serving.clone()) {
                return Some(serving);
            }
            match Serving::read(vault, &row.names, issued) {
                Ok(serving) => Some(serving),
                Err(error) => {
                    tracing::error!(names = row.names, %error, "a certificate of the store can't be used");
                    None
                }
            }
        });
        Self { row, serving }
    }

    pub(crate) fn validity(&self) -> Option<Validity> {
        self.serving.as_ref().map(|serving| serving.validity)
    }

    pub(crate) fn leaf(&self) -> Option<&CertificateDer<'static>> {
        self.serving.as_ref()?.certified.cert.first()
    }
}

#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    X509(#[from] x509::X509Error),
}

impl Serving {
    fn read(vault: &Vault, names: &str, issued: &AcmeIssued) -> Result<Self, ReadError> {
        let key = vault.open_own(KEY, names, &issued.key)?;
        let chain = x509::chain(issued.chain.as_bytes())?;
        let leaf = chain.first().map(AsRef::as_ref).unwrap_or_default();
        let facts = x509::facts(leaf)?;
        Ok(Self {
            certified: x509::certified(chain, PrivatePkcs8KeyDer::from(key).into())?,
            validity: Validity {
                from_ms: facts.not_before.saturating_mul(1000),
                until_ms: facts.not_after.saturating_mul(1000),
            },
        })
    }
}

/// Certificates by name.
pub(crate) struct Issued {
    by_name: ArcSwap<HashMap<Box<str>, Arc<CertifiedKey>>>,
    changed: watch::Sender<()>,
}

impl Default for Issued {
    fn default() -> Self {
        Self {
            by_name: ArcSwap::default(),
            changed: watch::Sender::new(()),
        }
    }
}

impl Issued {
    /// The certificate for `name`: of exactly that name, else of the wildcard for its
    /// first label.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let by_name = self.by_name.load();
        if by_name.is_empty() {
            return None;
        }
        let name = normalised(name);
        let exact = by_name.get(&*name);
        let wildcard = || {
            let (_, rest) = name.split_once('.')?;
            by_name.get(format!("*.{rest}").as_str())
        };
        exact.or_else(wildcard).cloned()
    }

    /// Has later handshakes use these. Of two for one name, the one that lasts longer.
    pub(crate) fn replace(&self, all: &BTreeMap<String, ManagedCertificate>) {
        let mut serving: Vec<(&str, &Serving)> = all
            .values()
            .filter_map(|known| Some((known.row.names.as_str(), known.serving.as_ref()?)))
            .collect();
        serving.sort_by_key(|(_, one)| one.validity.until_ms);
        let mut by_name = HashMap::new();
        for (names, one) in serving {
            for name in names.split(' ') {
                by_name.insert(name.into(), one.certified.clone());
            }
        }
        self.by_name.store(Arc::new(by_name));
        self.changed.send_replace(());
    }

    /// Tells of each change.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}
