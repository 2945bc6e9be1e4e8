//! Which pages of other origins may read answers (Fetch standard, CORS).
//!
//! Never with credentials: what these endpoints give, they give to whoever
//! brings a secret of their own, and no cookie is looked at. What is public is
//! shared with everybody; the rest with the origins of the realm's clients.

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, VARY,
};
use http::{HeaderValue, Method, StatusCode};
use quick_cache::sync::Cache;
use url::Url;

use super::config::RegistrationMode;
use super::realm::Realm;
use super::{State, respond};
use doorward_store::StoreError;

const ANYBODY: HeaderValue = HeaderValue::from_static("*");
/// Besides those of OAuth, the one that clients of the Model Context Protocol send
/// with every request.
const HEADERS: HeaderValue =
    HeaderValue::from_static("Authorization, Content-Type, DPoP, MCP-Protocol-Version");
const EXPOSED: HeaderValue = HeaderValue::from_static("DPoP-Nonce, WWW-Authenticate, Retry-After");
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");
const BY_ORIGIN: HeaderValue = HeaderValue::from_static("Origin");

/// Realms whose origins are kept in memory.
const REALMS: usize = 10_000;

/// The origins whose pages may read the answers of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// With the pages of every origin: the answer is public.
    Everybody,
    /// With the origins of the realm's clients.
    Clients,
    /// With everybody where anybody may register a client, else as `Clients`.
    Registrants,
    /// With nobody: pages, and what no script of a browser has business with.
    Nobody,
}

/// What a request wants, as far as sharing goes.
pub(super) struct CorsRequest {
    sharing: Sharing,
    origin: HeaderValue,
    realm: Arc<Realm>,
    /// The methods of the endpoint, if the request asks what it may do.
    preflight: Option<&'static [Method]>,
}

impl CorsRequest {
    /// What `request` of a page of `origin` to this endpoint wants; `None`:
    /// nothing.
    pub(super) fn of(
        request: &Request,
        origin: &HeaderValue,
        (sharing, methods): (Sharing, &'static [Method]),
        realm: impl FnOnce() -> Option<Arc<Realm>>,
    ) -> Option<Self> {
        if sharing == Sharing::Nobody {
            return None;
        }
        let asks = request
            .headers()
            .contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        let asks = asks && request.method() == Method::OPTIONS;
        Some(Self {
            sharing,
            origin: origin.clone(),
            realm: realm()?,
            preflight: asks.then_some(methods),
        })
    }

    /// The answer to a request that only asks what it may do.
    pub(super) async fn preflight(&self, state: &State) -> Option<Response> {
        let methods = self.preflight?;
        let mut response = respond::empty(StatusCode::NO_CONTENT);
        let names: Vec<_> = methods.iter().map(Method::as_str).collect();
        let shared = self.share(state, &mut response).await;
        let headers = response.headers_mut();
        if shared && let Ok(names) = HeaderValue::from_str(&names.join(", ")) {
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, names);
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
            headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        }
        Some(response)
    }

    /// Lets the page that sent the request read the answer, if it may; says
    /// whether it may.
    pub(super) async fn share(&self, state: &State, response: &mut Response) -> bool {
        let is_open = self.realm.settings.registration.mode == RegistrationMode::Open;
        let allowed = match self.sharing {
            Sharing::Everybody => Some(ANYBODY),
            // Who registers is known to nobody yet.
            Sharing::Registrants if is_open => Some(ANYBODY),
            Sharing::Clients | Sharing::Registrants => {
                response.headers_mut().append(VARY, BY_ORIGIN);
                let origin = &self.origin;
                let cached = state.origins.knows(state, &self.realm, origin).await;
                cached.then(|| origin.clone())
            }
            Sharing::Nobody => None,
        };
        let Some(allowed) = allowed else { return false };
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        true
    }
}

/// Lets every page read the answer.
pub(super) fn share_with_everybody(response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, ANYBODY);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
}

/// The origins of a realm's clients, and what they were read from.
#[derive(Clone, Debug)]
struct CachedOrigins {
    generation: u64,
    realm: Arc<Realm>,
    origins: Arc<HashSet<String>>,
}

/// The origins of clients in memory: they are read again when clients have
/// changed, and not because an origin is unknown.
#[derive(Debug)]
pub(super) struct Origins(Cache<String, CachedOrigins>);

impl Origins {
    pub(super) fn new() -> Self {
        Self(Cache::new(REALMS))
    }

    async fn knows(&self, state: &State, realm: &Arc<Realm>, origin: &HeaderValue) -> bool {
        let Ok(origin) = origin.to_str() else {
            return false;
        };
        let settings = &realm.settings.cors_origins;
        if settings
            .iter()
            .any(|cached| cached == "*" || cached == origin)
        {
            return true;
        }
        match self.origins(state, realm).await {
            Ok(origins) => origins.contains(origin),
            Err(error) => {
                tracing::error!(%error, "the origins of clients could not be read");
                false
            }
        }
    }

    async fn origins(
        &self,
        state: &State,
        realm: &Arc<Realm>,
    ) -> Result<Arc<HashSet<String>>, StoreError> {
        // Before the look-up: a change meanwhile makes this entry stale at once.
        let generation =
            state.clients.generation() + state.store.generation() + state.store.registrations();
        let cached = self.0.get(&realm.path);
        let fresh = |cached: &CachedOrigins| {
            cached.generation == generation && Arc::ptr_eq(&cached.realm, realm)
        };
        if let Some(cached) = cached.filter(fresh) {
            return Ok(cached.origins);
        }
        let addresses = state.store.client_addresses(&realm.path).await?;
        let origins = addresses.iter().filter_map(|address| origin(address));
        let origins = Arc::new(origins.collect::<HashSet<_>>());
        let cached = CachedOrigins {
            generation,
            realm: Arc::clone(realm),
            origins: Arc::clone(&origins),
        };
        self.0.insert(realm.path.clone(), cached);
        Ok(origins)
    }
}

/// The origin of an address, as browsers write it.
pub(super) fn origin(address: &str) -> Option<String> {
    let url = Url::parse(address).ok()?;
    let web = matches!(url.scheme(), "http" | "https");
    web.then(|| url.origin().ascii_serialization())
}

/// Whether this is an origin, as browsers write it.
pub(super) fn is_origin(text: &str) -> bool {
    origin(text).as_deref() == Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        assert_eq!(
            origin("https://a.example/cb?x").as_deref(),
            Some("https://a.example")
        );
        assert_eq!(
            origin("http://a.example:80/").as_deref(),
            Some("http://a.example")
        );
        assert_eq!(origin("com.example.app:/cb"), None);
        for text in [
            "https://a.example",
            "http://127.0.0.1:5173",
            "http://[::1]:1",
        ] {
            assert!(is_origin(text), "{text}");
        }
        for text in [
            "https://a.example/",
            "https://A.example",
            "null",
            "*",
            "a.example",
        ] {
            assert!(!is_origin(text), "{text}");
        }
    }
}
