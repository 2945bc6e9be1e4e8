//! What would happen to a request, and why: for operators.
//!
//! A question becomes a request head, and that goes through the functions that
//! requests go through: strict parse, router, protocols, forwarding. The filters
//! themselves say what they would do. Nothing here is a second opinion, and nothing
//! here costs a request anything.

pub mod answer;
mod codes;
mod destination;
mod files;
mod filter_explanation;
mod near;
mod origin;
mod question;

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http::{HeaderName, StatusCode};
use ipnet::IpNet;
use pingora::http::RequestHeader;
use serde_json::Value;

use super::admit;
use super::answer::no_route;
use super::chain::{self, Link};
use super::choose::{self, Arrival, Unrouted};
use super::consumers::ConsumerIndex;
use super::edge::https::HttpsRedirect;
use super::edge::probes::ProbePaths;
use super::entities::{Entities, Record};
use super::router::{Router, path};
use super::snapshot::{LiveRoute, Snapshot};
use answer::{Chosen, ExplainedFilter, Explanation, Refusal, Shadowed, Understood};
use doorward_core::model::plugin::Plugin;
use doorward_core::model::route::Route;
use doorward_net::http::authority;
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_plugin_api::consumers::Caller;
use doorward_plugin_api::filter::Filter;
use filter_explanation::Ahead;

pub use codes::{Listed, codes};
pub use filter_explanation::Explained;
pub use question::{Question, QuestionError};

/// How many near misses are told if the question does not say.
const MISSES: usize = 5;
/// Most near misses that are told.
const MOST_MISSES: usize = 100;

/// What the listeners contribute to a request.
#[derive(Debug, Clone, Default)]
pub struct Listeners {
    /// Port of the plain listener.
    pub port: u16,
    /// Port of the TLS listener.
    pub tls_port: u16,
    /// Proxies whose `X-Forwarded-*` are believed.
    pub trusted: Box<[IpNet]>,
    /// The header in which they name the client, if the file says which.
    pub real_ip_header: Option<HeaderName>,
    /// Whether requests without TLS are led to it.
    pub https_redirect: HttpsRedirect,
    /// Paths of health checks.
    pub probes: ProbePaths,
}

/// What a question is answered from.
pub struct Witness<'a> {
    /// The snapshot in force.
    pub snapshot: &'a Snapshot,
    /// The listeners.
    pub listeners: &'a Listeners,
}

/// Explains what happens to a request.
///
/// # Errors
/// [`QuestionError`] for what is no request.
pub fn explain(witness: &Witness<'_>, question: &Question) -> Result<Explained, QuestionError> {
    let request = question.request()?;
    let (tls, sni) = (question.is_tls(), question.sni());
    let listeners = witness.listeners;
    let arrival = Arrival {
        tls,
        sni: sni.as_deref(),
        port: if tls {
            listeners.tls_port
        } else {
            listeners.port
        },
    };
    let peer = question.client.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let client = {
        let peer = SocketAddr::new(peer, 0);
        let header = listeners.real_ip_header.as_ref();
        admit::client(&request, peer, &listeners.trusted, header).ip()
    };
    let secure = choose::is_secure(tls, &request, peer, &listeners.trusted);
    let scheme = if secure { "https" } else { "http" };
    let (host, port) = authority::of(&request).unwrap_or_default();
    let mut normal = None;
    let chosen = choose::choose(witness.snapshot, &request, arrival, &mut normal);
    let path = normal.as_deref().unwrap_or(request.uri.path());
    let is_question = matches!(&chosen, Ok((_, route)) if route.is_forward_auth());
    let mut explanation = Explanation {
        request: Understood {
            method: request.method.to_string(),
            scheme: scheme.to_owned(),
            host: host.to_owned(),
            port: port.unwrap_or(arrival.port),
            path: path.to_owned(),
            client: client.to_string(),
            sni: sni.clone(),
        },
        refusal: None,
        answered: None,
        route: None,
        near_misses: Vec::new(),
        filters: Vec::new(),
        shadowed: Vec::new(),
        upstream: None,
        file_route: None,
    };
    let mut ahead = None;
    let entities = witness.snapshot.entities();
    witness.tell_routes(question, &request, arrival, &mut explanation, entities);
    match chosen {
        Err(Unrouted::Refused(reply)) => {
            let reason = why_refused(&request, &explanation);
            explanation.refusal = Some(refusal(&reply, reason));
        }
        Err(Unrouted::NoRoute) => {
            let who = (client, secure);
            if !witness.tell_files(request.clone(), path, who, &mut explanation) {
                let reason = why_refused(&request, &explanation);
                explanation.refusal = Some(refusal(&no_route(), reason));
            }
        }
        Ok((found, route)) => {
            if let Some(reply) = route.protocols.refuse(&request, secure) {
                let reason = "the route's protocols do not admit this one".to_owned();
                explanation.refusal = Some(refusal(&reply, reason));
            }
            let filters = witness.tell_filters(route, question, &mut explanation, entities);
            // What is refused here reaches none.
            ahead = explanation.refusal.is_none().then(|| Ahead {
                request: request.clone(),
                client,
                secure,
                filters,
            });
            let context = destination::DestinationContext {
                found,
                path,
                peer,
                client,
                secure,
            };
            witness.tell_destination(request.clone(), route, &context, &mut explanation, entities);
            witness.tell_files(request.clone(), path, (client, secure), &mut explanation);
        }
    }
    if let Some(early) = witness.answered_early(&request, secure || is_question, &explanation) {
        explanation.refusal = Some(early);
        ahead = None;
    }
    Ok(Explained { explanation, ahead })
}

fn refusal(reply: &Reply, reason: String) -> Refusal {
    let message = match &reply.body {
        ReplyBody::Message(message) => message.to_string(),
        _ => reply
            .status
            .canonical_reason()
            .unwrap_or_default()
            .to_owned(),
    };
    Refusal {
        status: reply.status.as_u16(),
        message,
        reason,
    }
}

/// Why a request gets no route, in words.
fn why_refused(request: &RequestHeader, explanation: &Explanation) -> String {
    if authority::of(request).is_none() {
        return "the Host header is not a host with an optional port".to_owned();
    }
    if let Err(error) = path::normalize(request.uri.path()) {
        return error.to_string();
    }
    if explanation.route.is_some() {
        return "what is left of the path after stripping begins with a dot segment".to_owned();
    }
    "no route matches all of the request".to_owned()
}

impl Witness<'_> {
    /// What the listeners answer before any route has a say.
    fn answered_early(
        &self,
        request: &RequestHeader,
        stays: bool,
        explanation: &Explanation,
    ) -> Option<Refusal> {
        let refused = explanation.refusal.as_ref();
        if refused.is_some_and(|refused| refused.status == 400) {
            return None;
        }
        let listeners = self.listeners;
        if listeners.probes.find(request.uri.path()).is_some() {
            let reason = "it is a health check of proxy.health".to_owned();
            return Some(refusal(&Reply::empty(StatusCode::OK), reason));
        }
        let redirect = listeners.https_redirect.answer(request, listeners.tls_port);
        let redirect = redirect.filter(|_| !stays)?;
        let reason = "proxy.https_redirect leads to TLS".to_owned();
        Some(refusal(&redirect, reason))
    }

    /// The route and the near misses.
    fn tell_routes(
        &self,
        question: &Question,
        request: &RequestHeader,
        arrival: Arrival<'_>,
        explanation: &mut Explanation,
        entities: &Entities,
    ) {
        let Ok(admitted) = admit::admit(request) else {
            return; // refused before routing
        };
        let routes = self.snapshot.routes.by_ascending_id();
        let routes: Vec<&Record<Route>> = routes.into_iter().map(|r| r.record()).collect();
        let query = choose::query(request, &admitted, arrival);
        // One of all routes, in one order of precedence.
        let Ok(router) = Router::build(routes.iter().map(|record| &record.value), None) else {
            return; // it was compiled from them before
        };
        let router = &router;
        // Also when the rest of the path is refused: that is the route's doing.
        let found = router.find(&query);
        let limit = question.limit.unwrap_or(MISSES).min(MOST_MISSES);
        if let Some(found) = found {
            let record = routes[found.route];
            explanation.route = Some(Chosen {
                id: record.value.id,
                name: record.value.name.clone(),
                origin: origin::of(entities, record),
                matched: near::matched(router, &query, (found.rank, &record.value), found.matched),
            });
        }
        let chosen = found.map(|found| (found.rank, found.route));
        let mut misses = near::disabled(entities, &query, limit);
        let others = near::misses(router, &query, &routes, chosen, limit, entities);
        misses.extend(others);
        misses.truncate(limit);
        explanation.near_misses = misses;
    }

    /// The filters and what does not run; gives those that do.
    fn tell_filters(
        &self,
        route: &LiveRoute,
        question: &Question,
        explanation: &mut Explanation,
        entities: &Entities,
    ) -> Vec<Arc<dyn Filter>> {
        let named = question.consumer.as_deref();
        let caller = named.and_then(|name| caller(entities, name));
        let chain = match (&caller, &route.scoped) {
            (Some(caller), Some(scoped)) => {
                // Consumers are found by authentication.
                let done = route
                    .filters
                    .iter()
                    .position(|link| AUTHENTICATION.contains(&&*link.record.value.name));
                let done = done.map_or(0, |at| at + 1);
                let current = (&*route.filters, done);
                scoped.chain(route.place, Some(caller), &route.filters, current)
            }
            _ => None,
        };
        let chain: Cow<'_, [Link]> = match chain {
            Some(chain) => Cow::Owned(chain.into()),
            None => Cow::Borrowed(&route.filters),
        };
        explanation.filters = chain.iter().map(|link| shown(link, entities)).collect();
        for record in self.snapshot.entities().plugins.iter() {
            let plugin = &record.value;
            if !chain::applies(plugin, route.place)
                || !is_for(plugin, caller.as_ref())
                || chain.iter().any(|link| link.record.value.id == plugin.id)
            {
                continue;
            }
            let winner = chain
                .iter()
                .find(|link| link.record.value.name == plugin.name);
            let reason = match winner {
                _ if !plugin.enabled => "it is disabled".to_owned(),
                Some(winner) if winner.is_level_with(plugin) => format!(
                    "that of a group whose name comes before runs: {}",
                    winner.record.value.id
                ),
                Some(winner) => format!(
                    "a more specific one runs: {} ({})",
                    scope(&winner.record.value),
                    winner.record.value.id
                ),
                None => "it runs before the consumer is known".to_owned(),
            };
            explanation.shadowed.push(Shadowed {
                name: plugin.name.clone(),
                id: plugin.id,
                scope: scope(plugin),
                origin: origin::of(entities, record),
                reason,
            });
        }
        chain.iter().map(|link| Arc::clone(&link.filter)).collect()
    }
}

/// The plugins that find consumers.
const AUTHENTICATION: &[&str] = &[
    "session",
    "jwt",
    "oauth2",
    "key-auth",
    "ldap-auth",
    "basic-auth",
    "openid-connect",
    "hmac-auth",
];

fn caller(entities: &Entities, name: &str) -> Option<Caller> {
    let id = match entities.consumers.by_key(name) {
        Some(record) => record.value.id,
        None => name.parse().ok()?,
    };
    ConsumerIndex::new(entities).by_id(id)
}

/// Whether a plugin is for everybody, for the caller or for a group of it.
fn is_for(plugin: &Plugin, caller: Option<&Caller>) -> bool {
    let is_caller = |id| caller.is_some_and(|caller| caller.id == id);
    let has_group = |id| caller.is_some_and(|caller| caller.consumer_groups().contains(&id));
    plugin.consumer.is_none_or(|to| is_caller(to.id))
        && plugin.consumer_group.is_none_or(|to| has_group(to.id))
}

fn shown(link: &Link, entities: &Entities) -> ExplainedFilter {
    let plugin = &link.record.value;
    ExplainedFilter {
        name: plugin.name.clone(),
        id: plugin.id,
        instance_name: plugin.instance_name.clone(),
        priority: link.priority(),
        scope: scope(plugin),
        origin: origin::of(entities, &link.record),
        config: redacted(Value::Object(plugin.config.clone())),
        explanation: None,
    }
}

fn scope(plugin: &Plugin) -> String {
    let parts = [
        ("route", plugin.route.is_some()),
        ("service", plugin.service.is_some()),
        ("consumer", plugin.consumer.is_some()),
        ("consumer_group", plugin.consumer_group.is_some()),
    ];
    let parts: Vec<&str> = parts
        .iter()
        .filter(|(_, set)| *set)
        .map(|(name, _)| *name)
        .collect();
    match parts.as_slice() {
        [] => "global".to_owned(),
        parts => parts.join("+"),
    }
}

/// Parts of the names of fields that hold secrets.
const SECRETS: &[&str] = &[
    "secret",
    "password",
    "passphrase",
    "salt",
    "private",
    "jwk",
    "credential_value",
    "provision_key",
    "proxy_authorization",
    "redis_auth",
    "headers_values",
    "args_values",
];

/// `config` without the values of its secrets.
fn redacted(mut config: Value) -> Value {
    match &mut config {
        Value::Object(map) => {
            for (field, value) in map.iter_mut() {
                let is_secret = SECRETS.iter().any(|part| field.contains(part));
                let bare = matches!(value, Value::Null | Value::Bool(_) | Value::Number(_));
                let old = value.take();
                *value = if is_secret && !bare {
                    Value::from("[redacted]")
                } else {
                    redacted(old)
                };
            }
        }
        Value::Array(list) => {
            for value in list {
                let old = value.take();
                *value = redacted(old);
            }
        }
        Value::String(text) => {
            if let Ok(mut url) = url::Url::parse(text)
                && url.password().is_some()
                && url.set_password(Some("[redacted]")).is_ok()
            {
                *text = url.into();
            }
        }
        _ => {}
    }
    config
}

#[cfg(test)]
mod tests;
