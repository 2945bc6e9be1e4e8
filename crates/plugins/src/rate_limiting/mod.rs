//! The `rate-limiting` plugin: so many requests in a second, minute, hour, day,
//! month or year of the calendar, for each consumer, address, service, header or
//! path.
//!
//! `config` reads what was configured, `period` knows the calendar, `counters`
//! count in this process and `remote` in a Redis, `quota` writes headers, and
//! [`RateLimiting`] decides.

mod config;
pub(crate) mod counters;
pub(crate) mod limits;
pub(crate) mod period;
pub(crate) mod quota;
pub(crate) mod remote;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use http::StatusCode;
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::redis_settings::Policy;
use crate::settings::UNEXPECTED;
use doorward_core::clock::Clock;
use doorward_core::hex;
use doorward_net::http::path::normalize;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_net::telemetry::metrics::Counter;
use doorward_plugin_api::filter::{Code, Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Kind, Parts};

use config::{Caller, Config, Rules};
use counters::{Counters, Used};
use quota::Quota;
use remote::Remote;

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "rate-limiting",
    priority: 910,
    of_consumers: true,
    schema: config::schema,
    codes: || vec![EXCEEDED, UNCOUNTED],
    build,
};

const EXCEEDED: Code = Code::new(
    "rate_limit_exceeded",
    429,
    "a period of rate-limiting has no requests left (or the status of error_code)",
);
const UNCOUNTED: Code = Code::new(
    "rate_limit_uncounted",
    500,
    "the Redis of rate-limiting gives no answer, and fault_tolerant is false",
);

/// A running filter.
struct RateLimiting {
    rules: Rules,
    local: Counters,
    /// The shared counters; `None`: this process counts.
    remote: Option<Remote>,
    quota: Option<Quota>,
    clock: Clock,
    passed: Counter,
    refused: Counter,
    failed: Counter,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Config::read(config)?;
    let mut rules = config.rules()?;
    let redis = match config.policy {
        None | Some(Policy::Local) => None,
        Some(Policy::Redis) => Some(config.redis.connect(parts)?),
        Some(Policy::Cluster) => parts.redis.clone().map(Arc::new),
    };
    if config.policy == Some(Policy::Cluster) && redis.is_none() {
        let warning = "policy: without a `redis` section in the configuration file, `cluster` \
                       counts in this process alone";
        rules.warnings.push(warning.to_owned());
    }
    let decision = |decision| parts.metrics.decision(KIND.name, decision);
    Ok(Arc::new(RateLimiting {
        quota: (!rules.silent).then(|| Quota::new(&rules.limits)),
        rules,
        local: Counters::new(),
        remote: redis.map(|redis| Remote::new(redis, parts.scope.clone())),
        clock: parts.clock.clone(),
        passed: decision("pass"),
        refused: decision("refuse"),
        failed: decision("error"),
    }))
}

/// Whose requests are counted together.
pub(crate) enum Identifier<'a> {
    Ip(IpAddr),
    Entity(Uuid),
    Credential(&'a str),
    Header(&'a [u8]),
    Path(&'a str),
}

impl Hash for Identifier<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Self::Ip(IpAddr::V4(address)) => address.to_bits().hash(state),
            Self::Ip(IpAddr::V6(address)) => address.to_bits().hash(state),
            Self::Entity(id) => id.as_u128().hash(state),
            Self::Credential(text) | Self::Path(text) => text.hash(state),
            Self::Header(bytes) => bytes.hash(state),
        }
    }
}

impl<'a> Identifier<'a> {
    /// The credential by which a request has proved itself, or the subject of its
    /// token.
    pub(crate) fn credential(exchange: &'a Exchange) -> Option<Self> {
        if let Some(credential) = &exchange.credential {
            return Some(Self::Entity(credential.id));
        }
        let token = exchange.token.as_deref()?;
        token.subject().map(Self::Credential)
    }

    /// The consumer, or else the credential.
    pub(crate) fn consumer(exchange: &'a Exchange) -> Option<Self> {
        let consumer = exchange.consumer.as_deref();
        let consumer = consumer.map(|consumer| Self::Entity(consumer.id));
        consumer.or_else(|| Self::credential(exchange))
    }

    /// The client's address.
    pub(crate) fn address(exchange: &Exchange) -> Self {
        Self::Ip(exchange.client.ip().to_canonical())
    }

    /// A text that is the same on all nodes, and another for every identifier.
    fn text(&self) -> String {
        match self {
            Self::Ip(address) => format!("ip {address}"),
            Self::Entity(id) => format!("id {id}"),
            Self::Credential(text) => format!("credential {text}"),
            Self::Path(text) => format!("path {text}"),
            Self::Header(bytes) => {
                format!("header {}", hex::encode(bytes))
            }
        }
    }
}

impl RateLimiting {
    /// Whoever has not what identifies is known by the address.
    fn identify<'a>(
        &'a self,
        request: &'a RequestHeader,
        exchange: &'a Exchange,
    ) -> Identifier<'a> {
        let found = match &self.rules.caller {
            Caller::Ip => None,
            Caller::Consumer => Identifier::consumer(exchange),
            Caller::Credential => Identifier::credential(exchange),
            Caller::Service => exchange.service.map(Identifier::Entity),
            Caller::Header(name) => {
                let value = request.headers.get(name);
                value.map(|value| Identifier::Header(value.as_bytes()))
            }
            Caller::Path { text, normal } => {
                let path = normalize(request.uri.path()).ok();
                path.filter(|path| **path == **normal)
                    .map(|_| Identifier::Path(text))
            }
        };
        found.unwrap_or_else(|| Identifier::address(exchange))
    }

    /// What the client gets for a request of which so many came before.
    fn settle(&self, (used, passes): (Used, bool), now: i64, exchange: &mut Exchange) -> Flow {
        if let Some(quota) = &self.quota {
            quota.write(&self.rules.limits, &used, passes, now, exchange);
        }
        if passes {
            self.passed.inc();
            return Flow::Continue;
        }
        self.refused.inc();
        exchange.refusal = Some(Cow::Borrowed(EXCEEDED.code));
        let message = self.rules.message.clone();
        Flow::Respond(Reply::message(self.rules.status, message))
    }

    fn uncounted(&self, exchange: &mut Exchange) -> Flow {
        self.failed.inc();
        if self.rules.fault_tolerant {
            return Flow::Continue;
        }
        exchange.refusal = Some(Cow::Borrowed(UNCOUNTED.code));
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Flow::Respond(Reply::message(status, UNEXPECTED))
    }
}

#[async_trait]
impl Filter for RateLimiting {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        if self.remote.is_some() {
            return Verdict::Wait;
        }
        let now = self.clock.now_secs();
        let identifier = self.identify(session.req_header(), exchange);
        let key = self.local.key(&identifier);
        let taken = self.local.take(key, &self.rules.limits, now);
        Verdict::Now(self.settle(taken, now, exchange))
    }

    async fn on_request_slow(&self, session: &mut Session, exchange: &mut Exchange) -> Flow {
        let Some(remote) = &self.remote else {
            return Flow::Continue;
        };
        let now = self.clock.now_secs();
        let taken = {
            let identifier = self.identify(session.req_header(), exchange);
            remote.take(&identifier, &self.rules.limits, now).await
        };
        match taken {
            Ok(taken) => self.settle(taken, now, exchange),
            Err(_) => self.uncounted(exchange),
        }
    }

    async fn explain(&self, _: &RequestHeader, _: &mut Exchange) -> Option<FilterExplanation> {
        Some(FilterExplanation::depends("how many requests came before"))
    }

    fn reads_heads(&self) -> bool {
        false
    }

    /// An upstream's own headers of these names give way.
    fn on_response(&self, exchange: &Exchange, response: &mut ResponseHeader) {
        let Some(quota) = &self.quota else { return };
        if !quota.may_be_doubled(response) {
            return;
        }
        for (name, value) in &exchange.response_headers {
            let twice = response.headers.get_all(name).iter().nth(1).is_some();
            if twice && quota.names(name) {
                // A name and a value that are already those of a message.
                let _ = response.insert_header(name.clone(), value.clone());
            }
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.rules.warnings.clone()
    }
}
