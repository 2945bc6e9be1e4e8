//! Certificates that the gateway shows to providers (RFC 8705).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use uuid::Uuid;

use super::{Outbound, OutboundError, Transport, Via, chain};
use crate::model::secret::Secret;

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
        let identity = reqwest::Identity::from_pem(self.pem.expose().as_bytes());
        identity.map_err(|error| chain(&error))
    }
}

/// The certificates that there are.
pub trait ClientIdentities: Send + Sync {
    /// The certificate `id`: the same value as long as it is the same one.
    fn client_identity(&self, id: Uuid) -> Option<Arc<ClientIdentity>>;
}

type Clients = HashMap<(Uuid, Option<Via>, usize), (Arc<ClientIdentity>, reqwest::Client)>;

/// The certificates in force, and clients that show them. A client goes with
/// its certificate, so connections are made with the present one alone.
#[derive(Default)]
pub(super) struct Shown {
    identities: ArcSwapOption<Box<dyn ClientIdentities>>,
    clients: Mutex<Clients>,
}

/// Keys never show.
impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shown")
    }
}

impl Outbound {
    /// From now on these are the certificates that [`super::Options::shows`]
    /// names.
    pub fn publish_identities(&self, identities: Box<dyn ClientIdentities>) {
        self.shown.identities.store(Some(Arc::new(identities)));
        let clients = self.shown.clients.lock();
        let mut clients = clients.unwrap_or_else(PoisonError::into_inner);
        clients.retain(|(id, ..), (of, _)| {
            let now = self.shown.find(*id);
            now.is_some_and(|now| Arc::ptr_eq(of, &now))
        });
    }

    /// The client that shows the certificate `id`.
    pub(super) fn showing(
        &self,
        id: Uuid,
        via: Option<Via>,
        transport: Transport,
    ) -> Result<reqwest::Client, OutboundError> {
        let identity = self
            .shown
            .find(id)
            .ok_or(OutboundError::NoCertificate(id))?;
        let key = (id, via, transport.index());
        let clients = self.shown.clients.lock();
        let mut clients = clients.unwrap_or_else(PoisonError::into_inner);
        if let Some((of, client)) = clients.get(&key)
            && Arc::ptr_eq(of, &identity)
        {
            return Ok(client.clone());
        }
        let builder = match via {
            None => Ok(transport.builder()),
            Some(via) => self.proxied.add(via, transport.builder()),
        };
        let client = builder.and_then(|builder| {
            let built = builder.identity(identity.to_tls()?).build();
            built.map_err(|error| chain(&error))
        });
        let client = client.map_err(OutboundError::Client)?;
        clients.insert(key, (identity, client.clone()));
        Ok(client)
    }
}

impl Shown {
    fn find(&self, id: Uuid) -> Option<Arc<ClientIdentity>> {
        let identities = self.identities.load();
        identities.as_ref()?.client_identity(id)
    }
}
