//! The `proxy-cache` plugin: answers of upstreams are stored in memory, and given to
//! the next who asks the same.
//!
//! `key` says which requests are alike, `entry` what may be stored of an answer,
//! `directives` reads `Cache-Control`, and `memory` keeps within its bounds.

mod config;
mod directives;
mod entry;
mod key;
mod memory;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::{Map, Value, json};

use doorward_core::clock::Clock;
use doorward_net::http::bridge::BUFFERED_MAX;
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_net::http::session::Session;
use doorward_net::telemetry::metrics::Counter;
use doorward_plugin_api::filter::{
    BodyFilter, Code, Exchange, Filter, FilterExplanation, Flow, ResponseCache, ResponseFlow,
    Verdict,
};
use doorward_plugin_api::{ConfigError, Kind, Parts};

use config::{Config, ResponseHeaders};
use directives::Directives;
use entry::{Entry, Storable};
use key::Key;
use memory::{Memory, Reservation};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "proxy-cache",
    priority: 100,
    of_consumers: true,
    schema: config::schema,
    codes: || vec![NOT_STORED],
    build,
};

const NOT_STORED: Code = Code::new(
    "not_in_cache",
    504,
    "the request is for stored answers alone (only-if-cached), and there is none",
);

const CACHE_STATUS: HeaderName = HeaderName::from_static("x-cache-status");
const CACHE_KEY: HeaderName = HeaderName::from_static("x-cache-key");
/// A request with this header is told everything of how it met the cache.
const DEBUG: &str = "kong-debug";

/// A running filter.
struct ProxyCache {
    config: Config,
    memory: Arc<Memory>,
    /// The plugin's id.
    owner: Arc<str>,
    /// A digest of the id and the configuration: what was stored under another one is
    /// not read.
    scope: [u8; key::DIGEST],
    clock: Clock,
    hits: Counter,
    misses: Counter,
    bypasses: Counter,
}

/// How a request met the cache.
enum Lookup {
    /// It is none that answers are stored for.
    Bypass,
    /// Nothing that is stored will do; what comes may be stored.
    Miss(Key, &'static str),
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let decision = |decision| parts.metrics.decision(KIND.name, decision);
    let text = Value::Object(config.clone()).to_string();
    let text = format!("{} {text}", parts.scope);
    Ok(Arc::new(ProxyCache {
        config: Config::read(config)?,
        memory: parts.slots.get_or_default(),
        owner: parts.scope.clone(),
        scope: key::digest_of(text.as_bytes()),
        clock: parts.clock.clone(),
        hits: decision("hit"),
        misses: decision("miss"),
        bypasses: decision("bypass"),
    }))
}

impl ProxyCache {
    /// Which headers the answer to a request has.
    fn shown(&self, request: &RequestHeader) -> ResponseHeaders {
        if request.headers.contains_key(DEBUG) {
            ResponseHeaders::ALL
        } else {
            self.config.shown
        }
    }

    /// The answer that is stored for a request.
    fn answer(&self, entry: &Entry, shown: ResponseHeaders, now: i64) -> Reply {
        let status = StatusCode::from_u16(entry.status).unwrap_or(StatusCode::OK);
        let mut reply = Reply::empty(status);
        reply.headers.reserve_exact(entry.headers.len() + 3);
        reply.headers.extend_from_slice(&entry.headers);
        tell(shown, "Hit", Some(&entry.key), &mut reply.headers);
        if shown.age {
            let age = HeaderValue::from(entry.age(now));
            reply.headers.push((header::AGE, age));
        }
        reply.body = ReplyBody::Own(entry.body.clone());
        reply
    }

    /// The stored answer that a request gets, or else the key of the one that comes, and
    /// how the request met the cache.
    fn look_up(
        &self,
        request: &RequestHeader,
        exchange: &Exchange,
        directives: &Directives,
        now: i64,
    ) -> Result<Arc<Entry>, (Key, &'static str)> {
        let suits = |entry: &Entry| entry.expires_at > now && entry.suits(&request.headers);
        key::with_key(
            &self.config,
            &self.scope,
            request,
            exchange,
            |key| match self.memory.find(key, suits) {
                Some(entry) if entry.is_fresh(&self.config, directives, now) => Ok(entry),
                Some(_) => Err((Key::new(key), "Refresh")),
                None => Err((Key::new(key), "Miss")),
            },
        )
    }

    fn bypass(&self, exchange: &mut Exchange) -> Verdict {
        self.bypasses.inc();
        exchange.notes.push(Box::new(Lookup::Bypass));
        Verdict::Now(Flow::Continue)
    }

    /// Whether bodies of such requests tell them apart.
    fn keys_body(&self, request: &RequestHeader) -> bool {
        let length = request.headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        ![Method::GET, Method::HEAD].contains(&request.method)
            && self.config.methods.contains(&request.method)
            && length.is_some_and(|length| length <= BUFFERED_MAX)
    }
}

#[async_trait]
impl Filter for ProxyCache {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        let request = session.req_header();
        // Nobody else looks at what a client says of caching.
        let directives = if self.config.cache_control {
            Directives::of(&request.headers)
        } else {
            Directives::default()
        };
        let refuses = directives.no_store || directives.no_cache;
        let headers = key::Headers::of(request);
        let cacheable = self.config.methods.contains(&request.method);
        if refuses || !cacheable || headers.are_unkeyed(exchange) {
            return self.bypass(exchange);
        }
        let now = self.clock.now_secs();
        let (key, status) = match self.look_up(request, exchange, &directives, now) {
            Ok(entry) => {
                self.hits.inc();
                exchange.stored = true;
                let reply = self.answer(&entry, self.shown(request), now);
                return Verdict::Now(Flow::Respond(reply));
            }
            Err(miss) => miss,
        };
        if directives.only_if_cached {
            exchange.refusal = Some(Cow::Borrowed(NOT_STORED.code));
            let mut reply = Reply::empty(StatusCode::GATEWAY_TIMEOUT);
            if self.shown(request).key {
                reply.headers.push((CACHE_KEY, key.text));
            }
            return Verdict::Now(Flow::Respond(reply));
        }
        if headers.has_range {
            // A stored answer would do; a part of one is not stored.
            return self.bypass(exchange);
        }
        self.misses.inc();
        exchange.notes.push(Box::new(Lookup::Miss(key, status)));
        Verdict::Now(Flow::Continue)
    }

    async fn explain(&self, _: &RequestHeader, _: &mut Exchange) -> Option<FilterExplanation> {
        Some(FilterExplanation::depends("whether its answer is stored"))
    }

    fn wants_body(&self, request: &RequestHeader, _: &Exchange) -> bool {
        self.keys_body(request)
    }

    fn sees_responses(&self) -> bool {
        true
    }

    async fn on_upstream_response(
        &self,
        request: &RequestHeader,
        exchange: &mut Exchange,
        response: &mut ResponseHeader,
    ) -> ResponseFlow {
        if exchange.stored {
            return ResponseFlow::Continue;
        }
        let mut notes = exchange.notes.iter();
        let Some(lookup) = notes.find_map(|note| note.downcast_ref::<Lookup>()) else {
            return ResponseFlow::Continue;
        };
        let now = self.clock.now_secs();
        let found = match lookup {
            Lookup::Miss(key, status) => {
                let storable = Storable::of(&self.config, request, exchange, response, now);
                storable.map(|storable| (key.clone(), *status, storable))
            }
            Lookup::Bypass => None,
        };
        response.remove_header(&CACHE_STATUS);
        response.remove_header(&CACHE_KEY);
        let shown = self.shown(request);
        let Some((key, status, storable)) = found else {
            tell(shown, "Bypass", None, &mut exchange.response_headers);
            return ResponseFlow::Continue;
        };
        let told = &mut exchange.response_headers;
        tell(shown, status, Some(&key.text), told);
        let kept = self.config.storage_ttl.unwrap_or(storable.ttl);
        let recording = Recording {
            is_head: request.method == Method::HEAD,
            reservation: self.memory.reserve(),
            memory: self.memory.clone(),
            owner: self.owner.clone(),
            key,
            body: BytesMut::new(),
            status: response.status.as_u16(),
            now,
            expires_at: now.saturating_add(kept),
            storable: Some(storable),
        };
        ResponseFlow::Filter(Box::new(recording))
    }

    fn response_cache(&self) -> Option<&dyn ResponseCache> {
        Some(self)
    }

    fn warnings(&self) -> Vec<String> {
        self.config.warnings.clone()
    }
}

impl ResponseCache for ProxyCache {
    fn entry(&self, key: &str) -> Option<Value> {
        let now = self.clock.now_secs();
        let suits = |entry: &Entry| entry.expires_at > now;
        let entry = self.memory.find_text(&self.owner, key, suits)?;
        let mut headers: Map<String, Value> = Map::new();
        for (name, value) in &entry.headers {
            let text = Value::from(String::from_utf8_lossy(value.as_bytes()));
            match headers.get_mut(name.as_str()) {
                Some(Value::Array(all)) => all.push(text),
                Some(one) => *one = json!([one.take(), text]),
                None => drop(headers.insert(name.as_str().to_owned(), text)),
            }
        }
        Some(json!({
            "status": entry.status,
            "headers": headers,
            "body": String::from_utf8_lossy(&entry.body),
            "body_len": entry.body.len(),
            "timestamp": entry.stored_at,
            "ttl": entry.ttl,
            "version": 1,
            "req_body": "",
        }))
    }

    fn remove(&self, key: &str) -> bool {
        self.memory.remove_text(&self.owner, key)
    }

    fn clear(&self) {
        self.memory.clear(&self.owner);
    }
}

/// Adds the headers that say how a request met the cache.
fn tell(
    shown: ResponseHeaders,
    status: &'static str,
    key: Option<&HeaderValue>,
    headers: &mut Vec<(HeaderName, HeaderValue)>,
) {
    if shown.status {
        headers.push((CACHE_STATUS, HeaderValue::from_static(status)));
    }
    if let Some(key) = key.filter(|_| shown.key) {
        headers.push((CACHE_KEY, key.clone()));
    }
}

/// Stores an answer once its body has come to its end, and no filter has replaced it.
struct Recording {
    /// Whether the head is all that comes, though it may tell of a body.
    is_head: bool,
    memory: Arc<Memory>,
    reservation: Reservation,
    owner: Arc<str>,
    key: Key,
    body: BytesMut,
    status: u16,
    now: i64,
    expires_at: i64,
    /// `None`: it is too long, or stored.
    storable: Option<Storable>,
}

impl Recording {
    fn store(&self, storable: Storable, body: Bytes) {
        let entry = Entry {
            key: self.key.text.clone(),
            status: self.status,
            headers: storable.headers,
            body,
            stored_at: self.now,
            first_age: storable.first_age,
            ttl: storable.ttl,
            expires_at: self.expires_at,
            must_revalidate: storable.must_revalidate,
            variant: storable.variant,
        };
        self.memory.put(&self.owner, &self.key, entry, self.now);
    }
}

impl BodyFilter for Recording {
    fn piece(&mut self, body: &mut Option<Bytes>, end: bool) {
        if self.storable.is_none() {
            return;
        }
        if let Some(piece) = body {
            if !self.reservation.grow(piece.len()) {
                self.storable = None;
                self.body = BytesMut::new();
                return;
            }
            self.body.extend_from_slice(piece);
        }
        let Some(mut storable) = self.storable.take_if(|_| end) else {
            return;
        };
        let mut body = std::mem::take(&mut self.body).freeze();
        if self.is_head {
            storable.store_length();
            body = Bytes::new();
        } else if storable.length.is_some_and(|length| length != body.len()) {
            return;
        }
        self.store(storable, body);
    }
}
