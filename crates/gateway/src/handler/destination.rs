//! Where requests of route files go: base URIs, and services made of them.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use axum::Router;
use quick_cache::sync::Cache;
use serde_json::Map;
use uuid::Uuid;

use super::base::{Base, Origin, Scheme};
use super::proxying::ProxySettings;
use crate::balance::registry::BalancerRegistry;
use crate::certificates::Certificates;
use crate::entities::{self, Record};
use crate::peer::{DialError, UpstreamCredentials};
use crate::resolve::Resolver;
use crate::snapshot::{CompileContext, LiveService, Snapshot};
use doorward_core::model::service::{Protocol, Service};

/// Most base URIs that are held of those that expressions and filters make,
/// and most services made of base URIs. When there are more, the ones that are
/// asked for least are forgotten, and made again when they are asked for.
const HELD: usize = 1024;
/// Longest base URI, in bytes.
const LONGEST: usize = 2048;

/// Makes destinations, and holds those that may be asked for again.
pub struct Destinations {
    internals: HashMap<&'static str, Router>,
    resolver: Arc<Resolver>,
    bases: Cache<Box<str>, Arc<Base>>,
    services: Cache<(Origin, ProxySettings), Arc<LiveService>>,
    /// Those that can't be used, and of which that was told.
    told: Cache<Origin, ()>,
}

/// How a base is spoken to, and what that depends on.
pub(super) struct Bound {
    settings: Arc<ProxySettings>,
    registry: Weak<BalancerRegistry>,
    certificates: Weak<Certificates>,
    service: Arc<LiveService>,
}

impl Destinations {
    /// Destinations among the hosts and routers that `context` knows.
    pub fn new(context: &CompileContext) -> Self {
        Self {
            internals: context.internals.clone(),
            resolver: context.resolver.clone(),
            bases: Cache::new(HELD),
            services: Cache::new(HELD),
            told: Cache::new(HELD),
        }
    }

    /// Says in the log, once, that a base URI can't be used: clients may have
    /// a say in it.
    pub(super) fn tell(&self, base: &Base, error: &DialError) {
        let origin = base.origin();
        if self.told.get(origin).is_none() {
            self.told.insert(origin.clone(), ());
            tracing::warn!(base = %origin, %error, "a base URI can't be used");
        }
    }

    /// The base URI that `text` is.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(super) fn base(&self, text: &str) -> Result<Arc<Base>, String> {
        if text.len() > LONGEST {
            return Err(format!("longer than {LONGEST} bytes"));
        }
        if let Some(base) = self.bases.get(text) {
            return Ok(base);
        }
        let base = Arc::new(Base::parse(text)?);
        self.bases.insert(text.into(), base.clone());
        Ok(base)
    }

    /// How `base` is spoken to with `settings`: over the upstream entity of
    /// that name, if there is one.
    ///
    /// # Errors
    /// [`DialError`] if it can't be.
    pub(super) fn service(
        &self,
        base: &Base,
        settings: &Arc<ProxySettings>,
        snapshot: &Snapshot,
    ) -> Result<Arc<LiveService>, DialError> {
        if let Some(bound) = &*base.bound.load()
            && bound.matches(settings, snapshot)
        {
            return Ok(bound.service.clone());
        }
        let service = self.make(base.origin(), settings, snapshot)?;
        base.bound.store(Some(Arc::new(Bound {
            settings: settings.clone(),
            registry: Arc::downgrade(&snapshot.balancers),
            certificates: Arc::downgrade(&snapshot.certificates),
            service: service.clone(),
        })));
        Ok(service)
    }

    fn make(
        &self,
        origin: &Origin,
        settings: &ProxySettings,
        snapshot: &Snapshot,
    ) -> Result<Arc<LiveService>, DialError> {
        let upstream = match origin.scheme {
            Scheme::Internal => None,
            _ => snapshot.entities().upstreams.by_key(&origin.host),
        };
        let balancer = upstream.and_then(|upstream| snapshot.balancers.get(upstream.value.id));
        let key = (origin.clone(), settings.clone());
        // Others don't depend on the snapshot.
        if balancer.is_none()
            && let Some(service) = self.services.get(&key)
        {
            return Ok(service);
        }
        let service = record(origin, settings);
        let upstream = balancer.map(|balancer| balancer.upstream());
        let credentials = UpstreamCredentials::of(&service, upstream, snapshot.entities())?;
        let service = Arc::new(Record::new(service, &Map::new(), entities::Origin::Store));
        let mut live = {
            let (internals, resolver) = (&self.internals, &self.resolver);
            // These services say it themselves.
            LiveService::make(service, balancer, credentials, internals, resolver, true)?
        };
        if let Some(dialer) = &mut live.dialer
            && !settings.verify_host
        {
            dialer.accept_any_host();
        }
        let live = Arc::new(live);
        if balancer.is_none() {
            self.services.insert(key, live.clone());
        }
        Ok(live)
    }
}

impl Bound {
    fn matches(&self, settings: &Arc<ProxySettings>, snapshot: &Snapshot) -> bool {
        Arc::ptr_eq(&self.settings, settings)
            && self.registry.as_ptr() == Arc::as_ptr(&snapshot.balancers)
            && self.certificates.as_ptr() == Arc::as_ptr(&snapshot.certificates)
    }
}

/// The service record that `origin` and `settings` stand for.
fn record(origin: &Origin, settings: &ProxySettings) -> Service {
    Service {
        id: Uuid::nil(),
        name: Some(origin.to_string()),
        protocol: match origin.scheme {
            Scheme::Http => Protocol::Http,
            Scheme::Https => Protocol::Https,
            Scheme::Internal => Protocol::Internal,
        },
        host: origin.host.to_string(),
        port: origin.port,
        path: None,
        retries: settings.retries,
        connect_timeout: settings.connect_timeout,
        write_timeout: settings.read_timeout,
        read_timeout: settings.read_timeout,
        enabled: true,
        tls_verify: Some(settings.verify_certificate),
        client_certificate: None,
        tls_verify_depth: None,
        ca_certificates: None,
        proxy_protocol: None,
        socket: None,
        tags: None,
        created_at: 0,
        updated_at: 0,
    }
}
