//! Certificates that the gateway shows to providers (RFC 8705), and those of
//! authorities that vouch for one provider alone.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use uuid::Uuid;

use super::{Options, Outbound, OutboundError, ProxyId, Security, Transport, TrustId, chain};
use doorward_core::model::secret::Secret;
use doorward_core::x509;

/// A certificate chain with its private key.
#[derive(Debug)]
pub struct ClientIdentity {
    pem: Secret,
}

impl ClientIdentity {
    /// Of a chain, the leaf first, and its key, both in PEM.
    pub fn new(chain: &str, key: &Secret) -> Self {
        Self {
            pem: Secret::new(format!("{chain}\n{}\n", key.expose())),
        }
    }

    fn to_tls(&self) -> Result<reqwest::Identity, String> {
        let pem = self.pem.expose().as_bytes();
        let fit = x509::chain(pem).and_then(|chain| x509::check_client(&chain));
        fit.map_err(|error| error.to_string())?;
        let identity = reqwest::Identity::from_pem(pem);
        identity.map_err(|error| chain(&error))
    }
}

/// The certificates that there are.
pub trait ClientIdentities: Send + Sync {
    /// The certificate `id`: the same value as long as it is the same one.
    fn client_identity(&self, id: Uuid) -> Option<Arc<ClientIdentity>>;

    /// The certificate of the authority `id`, in DER.
    fn authority(&self, id: Uuid) -> Option<Vec<u8>>;
}

impl<T: ClientIdentities> ClientIdentities for Arc<T> {
    fn client_identity(&self, id: Uuid) -> Option<Arc<ClientIdentity>> {
        T::client_identity(self, id)
    }

    fn authority(&self, id: Uuid) -> Option<Vec<u8>> {
        T::authority(self, id)
    }
}

/// What sets a client apart from the others.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    shows: Option<Uuid>,
    trusts: Option<TrustId>,
    via: Option<ProxyId>,
    transport: usize,
}

/// What it shows, and what vouches for servers.
#[derive(Clone)]
struct ClientTls {
    identity: Option<Arc<ClientIdentity>>,
    authorities: Option<Vec<Vec<u8>>>,
}

impl ClientTls {
    fn is_same(&self, other: &Self) -> bool {
        let same = match (&self.identity, &other.identity) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        same && self.authorities == other.authorities
    }
}

type Clients = HashMap<Key, (ClientTls, reqwest::Client)>;

/// The certificates in force, and clients that go with them. A client ends with
/// its certificates, so connections are made with the present ones alone.
#[derive(Default)]
pub(super) struct ClientCertificates {
    identities: ArcSwapOption<Box<dyn ClientIdentities>>,
    clients: Mutex<Clients>,
}

/// Keys never show.
impl fmt::Debug for ClientCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientCertificates")
    }
}

impl Outbound {
    /// From now on these are the certificates that [`Options::shows`] and
    /// [`Options::trusts`] name.
    pub fn publish_identities(&self, identities: Box<dyn ClientIdentities>) {
        self.certificates
            .identities
            .store(Some(Arc::new(identities)));
        let clients = self.certificates.clients.lock();
        let mut clients = clients.unwrap_or_else(PoisonError::into_inner);
        clients.retain(|key, (of, _)| {
            let now = self.tls(key.shows, key.trusts);
            now.is_ok_and(|now| now.is_same(of))
        });
    }

    /// The client that shows the certificate, and trusts the authorities, that
    /// these options name.
    pub(super) fn with_client_tls(
        &self,
        options: Options,
        transport: Transport,
    ) -> Result<reqwest::Client, OutboundError> {
        let tls = self.tls(options.shows, options.trusts)?;
        let key = Key {
            shows: options.shows,
            trusts: options.trusts,
            via: options.via,
            transport: transport.index(),
        };
        let clients = self.certificates.clients.lock();
        let mut clients = clients.unwrap_or_else(PoisonError::into_inner);
        if let Some((of, client)) = clients.get(&key)
            && of.is_same(&tls)
        {
            return Ok(client.clone());
        }
        let client = self.build(&tls, options.via, transport);
        let client = client.map_err(OutboundError::Client)?;
        clients.insert(key, (tls, client.clone()));
        Ok(client)
    }

    fn build(
        &self,
        tls: &ClientTls,
        via: Option<ProxyId>,
        transport: Transport,
    ) -> Result<reqwest::Client, String> {
        let mut builder = match (&tls.authorities, transport.security) {
            (Some(authorities), Security::Checked) => {
                let parse = |der: &Vec<u8>| reqwest::Certificate::from_der(der);
                let all: Result<Vec<_>, _> = authorities.iter().map(parse).collect();
                let all = all.map_err(|error| chain(&error))?;
                transport.builder().tls_certs_only(all)
            }
            _ => self.builder(transport),
        };
        if let Some(via) = via {
            builder = self.proxied.add(via, builder)?;
        }
        if let Some(identity) = &tls.identity {
            builder = builder.identity(identity.to_tls()?);
        }
        builder.build().map_err(|error| chain(&error))
    }

    fn tls(
        &self,
        shows: Option<Uuid>,
        trusts: Option<TrustId>,
    ) -> Result<ClientTls, OutboundError> {
        let all = self.certificates.identities.load();
        let identity = shows.map(|id| {
            let found = all.as_ref().and_then(|all| all.client_identity(id));
            found.ok_or(OutboundError::NoCertificate(id))
        });
        let authority = |id: &Uuid| {
            let found = all.as_ref().and_then(|all| all.authority(*id));
            found.ok_or(OutboundError::NoAuthority(*id))
        };
        let authorities = trusts.map(|trusted| {
            let records = self.trust.records(trusted);
            records.iter().map(authority).collect()
        });
        Ok(ClientTls {
            identity: identity.transpose()?,
            authorities: authorities.transpose()?,
        })
    }
}
