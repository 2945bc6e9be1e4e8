//! Certificates of the store and the files, ready for handshakes: by server
//! name for clients, by identifier for upstreams.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use ahash::RandomState;
use pingora::utils::tls::CertKey;
use rustls::SignatureScheme;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use smallvec::SmallVec;
use uuid::Uuid;

use super::entities::{Entities, Entity, Record, Table};
use super::snapshot::CompileError;
use super::vaults::Vaults;
use doorward_core::model::ca_certificate::CaCertificate;
use doorward_core::model::certificate::Certificate;
use doorward_core::model::secret::Secret;
use doorward_core::model::sni::Sni;
use doorward_core::model::vault::{Vault, is_reference};
use doorward_core::x509::{self, X509Error};
use doorward_net::http::outbound::{ClientIdentities, ClientIdentity};
use doorward_net::http::server_name::normalised;

type ById<T> = HashMap<Uuid, Arc<T>, RandomState>;
type ByName = HashMap<Box<str>, Arc<Identity>, RandomState>;

/// Every certificate, found by server name or by identifier.
#[derive(Default)]
pub struct Certificates {
    /// What this was compiled from.
    source: Source,
    exact: ByName,
    /// `*.example.com` as `.example.com`.
    leftmost: ByName,
    /// `www.example.*` as `www.example.`.
    rightmost: ByName,
    /// `*`: every name that has no other, and clients that send none.
    any: Option<Arc<Identity>>,
    identities: ById<Identity>,
    authorities: ById<Authority>,
}

#[derive(Default)]
struct Source {
    certificates: Table<Certificate>,
    snis: Table<Sni>,
    authorities: Table<CaCertificate>,
    vaults: Table<Vault>,
}

/// A certificate with its keys.
pub struct Identity {
    record: Arc<Record<Certificate>>,
    /// The record, with what its references stand for.
    certificate: Certificate,
    /// The cheaper one first.
    keys: SmallVec<[Arc<CertifiedKey>; 2]>,
    /// When the first of its certificates expires, in seconds since the epoch.
    pub not_after: i64,
    /// As a client certificate; made when the first upstream needs it.
    client: OnceLock<Option<Arc<CertKey>>>,
    /// As providers are shown it; made when the first one asks.
    shown: OnceLock<Arc<ClientIdentity>>,
}

/// The certificate of an authority.
struct Authority {
    record: Arc<Record<CaCertificate>>,
    der: CertificateDer<'static>,
}

impl Certificates {
    /// Compiles the certificates of `entities`. What `previous` holds and has
    /// not changed is kept: keys are parsed once.
    ///
    /// # Errors
    /// [`CompileError`] for the first certificate that can't be used.
    pub fn compile(
        entities: &Entities,
        previous: Option<&Arc<Self>>,
    ) -> Result<Arc<Self>, CompileError> {
        if let Some(previous) = previous
            && previous.source.is_same(entities)
        {
            return Ok(previous.clone());
        }
        let previous = previous.map(Arc::as_ref);
        let mut compiled = Self {
            source: Source::of(entities),
            identities: identities(entities, previous)?,
            authorities: authorities(entities, previous)?,
            ..Self::default()
        };
        for record in entities.snis.iter() {
            compiled.name(&record.value);
        }
        Ok(Arc::new(compiled))
    }

    fn name(&mut self, sni: &Sni) {
        // The tables keep references whole; without one there is nothing to show.
        let Some(identity) = self.identities.get(&sni.certificate.id).cloned() else {
            return;
        };
        let name = normalised(&sni.name);
        if &*name == "*" {
            self.any = Some(identity);
        } else if let Some(rest) = name.strip_prefix('*') {
            self.leftmost.insert(rest.into(), identity);
        } else if let Some(rest) = name.strip_suffix('*') {
            self.rightmost.insert(rest.into(), identity);
        } else {
            self.exact.insert(name.into(), identity);
        }
    }

    /// The certificate for `name`: of exactly that name, else of a wildcard
    /// for its first label, else for its last, else of `*`.
    pub fn find(&self, name: &str) -> Option<&Arc<Identity>> {
        self.find_named(name).or(self.any.as_ref())
    }

    /// As [`Certificates::find`], without that of `*`.
    pub fn find_named(&self, name: &str) -> Option<&Arc<Identity>> {
        if self.is_empty() {
            return None;
        }
        let name = normalised(name);
        let leftmost = || self.leftmost.get(&name[name.find('.')?..]);
        let rightmost = || self.rightmost.get(&name[..=name.rfind('.')?]);
        self.exact.get(&*name).or_else(leftmost).or_else(rightmost)
    }

    /// The certificate for clients that name no server: that of `*`.
    pub fn nameless(&self) -> Option<&Arc<Identity>> {
        self.any.as_ref()
    }

    fn is_empty(&self) -> bool {
        self.identities.is_empty()
    }

    /// Every certificate by its id, with its label: its first server name, or its id.
    pub fn labelled(&self) -> impl Iterator<Item = (Uuid, String, &Arc<Identity>)> {
        let mut names: HashMap<Uuid, &str> = HashMap::new();
        for record in self.source.snis.iter() {
            let name = names
                .entry(record.value.certificate.id)
                .or_insert(&record.value.name);
            if record.value.name.as_str() < *name {
                *name = &record.value.name;
            }
        }
        self.identities.iter().map(move |(id, identity)| {
            let name = names.get(id).map(|name| (*name).to_owned());
            (*id, name.unwrap_or_else(|| id.to_string()), identity)
        })
    }

    /// The certificate `id` and its key, as an upstream is shown them. If it
    /// has two, the first.
    pub fn client_certificate(&self, id: Uuid) -> Option<Arc<CertKey>> {
        let identity = self.identities.get(&id)?;
        let made = identity.client.get_or_init(|| identity.to_client());
        made.clone()
    }

    /// The certificate of the authority `id`.
    pub fn authority(&self, id: Uuid) -> Option<&CertificateDer<'static>> {
        self.authorities.get(&id).map(|authority| &authority.der)
    }
}

impl Source {
    fn of(entities: &Entities) -> Self {
        Self {
            certificates: entities.certificates.clone(),
            snis: entities.snis.clone(),
            authorities: entities.ca_certificates.clone(),
            vaults: entities.vaults.clone(),
        }
    }

    fn is_same(&self, entities: &Entities) -> bool {
        self.certificates.is_same(&entities.certificates)
            && self.snis.is_same(&entities.snis)
            && self.authorities.is_same(&entities.ca_certificates)
            && self.vaults.is_same(&entities.vaults)
    }
}

impl Identity {
    fn parse(
        record: &Arc<Record<Certificate>>,
        resolved: Certificate,
    ) -> Result<Self, (&'static str, X509Error)> {
        let certificate = &resolved;
        let first = pair(&certificate.cert, certificate.key.expose(), ["cert", "key"])?;
        let mut keys = SmallVec::from_iter([first]);
        if let (Some(cert), Some(key)) = (&certificate.cert_alt, &certificate.key_alt) {
            keys.push(pair(cert, key.expose(), ["cert_alt", "key_alt"])?);
        }
        keys.sort_by_key(|key: &Arc<CertifiedKey>| x509::is_rsa(key));
        let expiries = keys.iter().filter_map(|key| key.cert.first());
        let not_after = expiries
            .filter_map(|der| x509::facts(der).ok())
            .map(|facts| facts.not_after)
            .min()
            .unwrap_or(i64::MAX);
        Ok(Self {
            record: record.clone(),
            certificate: resolved,
            keys,
            not_after,
            client: OnceLock::new(),
            shown: OnceLock::new(),
        })
    }

    /// The key for a client that can verify signatures of `schemes`.
    pub fn choose(&self, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let fits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(schemes).is_some();
        let chosen = self.keys.iter().find(fits);
        chosen.or(self.keys.first()).cloned()
    }

    fn to_client(&self) -> Option<Arc<CertKey>> {
        let certificate = &self.certificate;
        let chain = x509::chain(certificate.cert.as_bytes()).ok()?;
        let key = x509::key(certificate.key.expose().as_bytes()).ok()?;
        let chain = chain.iter().map(|der| der.to_vec()).collect();
        Some(Arc::new(CertKey::new(chain, key.secret_der().to_vec())))
    }
}

impl ClientIdentities for Certificates {
    /// If it has two, the first.
    fn client_identity(&self, id: Uuid) -> Option<Arc<ClientIdentity>> {
        let identity = self.identities.get(&id)?;
        let shown = identity.shown.get_or_init(|| {
            let certificate = &identity.certificate;
            Arc::new(ClientIdentity::new(&certificate.cert, &certificate.key))
        });
        Some(Arc::clone(shown))
    }

    fn authority(&self, id: Uuid) -> Option<Vec<u8>> {
        Certificates::authority(self, id).map(|der| der.to_vec())
    }
}

/// Keys never show.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.record.value.id)
    }
}

fn pair(
    cert: &str,
    key: &str,
    [cert_field, key_field]: [&'static str; 2],
) -> Result<Arc<CertifiedKey>, (&'static str, X509Error)> {
    let chain = x509::chain(cert.as_bytes()).map_err(|error| (cert_field, error))?;
    let key = x509::key(key.as_bytes()).map_err(|error| (key_field, error))?;
    x509::certified(chain, key).map_err(|error| match error {
        X509Error::Certificate(_) => (cert_field, error),
        X509Error::Key(_) | X509Error::Mismatch => (key_field, error),
    })
}

fn identities(
    entities: &Entities,
    previous: Option<&Certificates>,
) -> Result<ById<Identity>, CompileError> {
    let vaults = Vaults::of(entities);
    let mut compiled = ById::default();
    for record in entities.certificates.iter() {
        let id = record.value.id;
        let kept = previous
            .and_then(|certificates| certificates.identities.get(&id))
            .filter(|old| same_pem(&old.record.value, &record.value))
            .filter(|old| old.certificate == old.record.value);
        let identity = match kept {
            Some(identity) => identity.clone(),
            None => Arc::new(Identity::parse(record, resolved(&vaults, record)?).map_err(
                |(field, error)| CompileError {
                    kind: Certificate::KIND.plural(),
                    id,
                    field: field.to_owned(),
                    message: error.to_string(),
                },
            )?),
        };
        compiled.insert(id, identity);
    }
    Ok(compiled)
}

/// A certificate with what its references stand for.
fn resolved(vaults: &Vaults, record: &Record<Certificate>) -> Result<Certificate, CompileError> {
    let mut certificate = record.value.clone();
    let resolve = |field: &str, text: &mut String| {
        if is_reference(text) {
            *text = vaults.resolve(text).map_err(|message| CompileError {
                kind: Certificate::KIND.plural(),
                id: record.value.id,
                field: field.to_owned(),
                message,
            })?;
        }
        Ok(())
    };
    resolve("cert", &mut certificate.cert)?;
    let mut key = certificate.key.expose().to_owned();
    resolve("key", &mut key)?;
    certificate.key = Secret::new(key);
    if let Some(cert) = &mut certificate.cert_alt {
        resolve("cert_alt", cert)?;
    }
    if let Some(old) = certificate.key_alt.take() {
        let mut key = old.expose().to_owned();
        resolve("key_alt", &mut key)?;
        certificate.key_alt = Some(Secret::new(key));
    }
    Ok(certificate)
}

fn same_pem(old: &Certificate, new: &Certificate) -> bool {
    old.cert == new.cert
        && old.key == new.key
        && old.cert_alt == new.cert_alt
        && old.key_alt == new.key_alt
}

fn authorities(
    entities: &Entities,
    previous: Option<&Certificates>,
) -> Result<ById<Authority>, CompileError> {
    let mut compiled = ById::default();
    for record in entities.ca_certificates.iter() {
        let id = record.value.id;
        let kept = previous
            .and_then(|certificates| certificates.authorities.get(&id))
            .filter(|old| old.record.value.cert == record.value.cert);
        let authority = match kept {
            Some(authority) => authority.clone(),
            None => Arc::new(authority(record)?),
        };
        compiled.insert(id, authority);
    }
    Ok(compiled)
}

fn authority(record: &Arc<Record<CaCertificate>>) -> Result<Authority, CompileError> {
    let error = |message: String| CompileError {
        kind: CaCertificate::KIND.plural(),
        id: record.value.id,
        field: "cert".to_owned(),
        message,
    };
    let chain = x509::chain(record.value.cert.as_bytes()).map_err(|e| error(e.to_string()))?;
    match <[CertificateDer<'static>; 1]>::try_from(chain) {
        Ok([der]) => Ok(Authority {
            record: record.clone(),
            der,
        }),
        Err(_) => Err(error(
            "please submit only one certificate at a time".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests;
