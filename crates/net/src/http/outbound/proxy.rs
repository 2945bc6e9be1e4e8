//! Proxies between the gateway and providers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderValue;
use url::Url;

use super::{Outbound, OutboundError, Transport, chain};

/// The proxies of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Proxies {
    /// For http addresses, with what `Proxy-Authorization` says.
    pub http: Option<(Url, Option<HeaderValue>)>,
    /// For https addresses, by `CONNECT`.
    pub https: Option<(Url, Option<HeaderValue>)>,
    /// Hosts, domains and networks that are reached without, by commas.
    pub except: Option<String>,
}

/// Proxies that [`Outbound`] knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProxyId(usize);

type Clients = HashMap<(ProxyId, usize), reqwest::Client>;

/// The proxies that were named so far, and clients that use them. Both grow
/// with what operators configure and with nothing else.
#[derive(Debug, Default)]
pub(super) struct ProxyPool {
    known: Mutex<Vec<Arc<Proxies>>>,
    clients: Mutex<Clients>,
}

impl Outbound {
    /// A name for `proxies`, for [`super::Options::via`]; `None` if there are
    /// none.
    pub fn via(&self, proxies: Proxies) -> Option<ProxyId> {
        if proxies.http.is_none() && proxies.https.is_none() {
            return None;
        }
        let known = self.proxied.known.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        let place = known.iter().position(|one| **one == proxies);
        Some(ProxyId(place.unwrap_or_else(|| {
            known.push(Arc::new(proxies));
            known.len() - 1
        })))
    }
}

impl ProxyPool {
    /// The client for this way.
    pub(super) fn client(
        &self,
        (via, transport): (ProxyId, Transport),
        builder: impl FnOnce() -> reqwest::ClientBuilder,
    ) -> Result<reqwest::Client, OutboundError> {
        let key = (via, transport.index());
        let clients = self.clients.lock();
        let mut clients = clients.unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&key) {
            return Ok(client.clone());
        }
        let client = self.add(via, builder()).and_then(|builder| {
            let built = builder.build();
            built.map_err(|error| chain(&error))
        });
        let client = client.map_err(OutboundError::Client)?;
        clients.insert(key, client.clone());
        Ok(client)
    }

    /// The same with the proxies on this way.
    pub(super) fn add(
        &self,
        via: ProxyId,
        builder: reqwest::ClientBuilder,
    ) -> Result<reqwest::ClientBuilder, String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let proxies = known.get(via.0).cloned().unwrap_or_default();
        drop(known);
        with(&proxies, builder)
    }
}

fn with(
    proxies: &Proxies,
    mut builder: reqwest::ClientBuilder,
) -> Result<reqwest::ClientBuilder, String> {
    let except = proxies.except.as_deref();
    let except = except.and_then(reqwest::NoProxy::from_string);
    for (proxy, secure) in [(&proxies.http, false), (&proxies.https, true)] {
        let Some((url, authorization)) = proxy else {
            continue;
        };
        let proxy = if secure {
            reqwest::Proxy::https(url.clone())
        } else {
            reqwest::Proxy::http(url.clone())
        };
        let mut proxy = proxy
            .map_err(|error| chain(&error))?
            .no_proxy(except.clone());
        if let Some(authorization) = authorization {
            proxy = proxy.custom_http_auth(authorization.clone());
        }
        builder = builder.proxy(proxy);
    }
    Ok(builder)
}
