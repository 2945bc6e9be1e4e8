//! The filter: key, rate, token; 500, nothing or 429.

use std::net::SocketAddr;
use std::sync::Arc;

use http::header::RETRY_AFTER;
use http::request::Parts as Request;
use http::{HeaderValue, StatusCode};
use pingora::proxy::Session;
use serde_json::{Map, Value};

use super::bucket::Decision;
use super::config::Config;
use super::partitions::{Key, Keys, Partitions};
use super::policy::Policy;
use super::sweep::{self, Limits};
use crate::clock;
use crate::expr::{Expression, Scope};
use crate::filter::{Exchange, Filter, Flow, Verdict};
use crate::http::reply::Reply;
use crate::model::token::AccessToken;
use crate::plugins::{ConfigError, Parts};
use crate::telemetry::metrics::Counter;

const NANOS: u64 = 1_000_000_000;

/// A running throttling filter.
pub struct Throttling {
    grouping: Grouping,
    policy: Policy,
    /// One set of buckets for each of the policy's rates: a request whose rate
    /// changes meets another bucket, so no mapping can refill one.
    limits: Limits,
    keys: Keys,
    passed: Counter,
    refused: Counter,
    failed: Counter,
}

/// How requests are grouped; the common ways need no text.
enum Grouping {
    /// All requests are one partition.
    Shared,
    /// By client address.
    Client,
    /// By the value of an expression.
    Expression(Expression),
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Pass,
    /// No token for this many nanoseconds.
    Refuse(u64),
    /// The partition is null or no text.
    NoPartition,
}

pub(super) fn build(
    config: &Map<String, Value>,
    parts: &Parts,
) -> Result<Arc<dyn Filter>, ConfigError> {
    Ok(Arc::new(Throttling::new(Config::read(config)?, parts)))
}

impl Throttling {
    fn new(config: Config, parts: &Parts) -> Self {
        let limits: Limits = config
            .rates
            .iter()
            .map(|rate| {
                let gauge = parts.metrics.throttle_partitions();
                Partitions::new(*rate, config.partitions, gauge)
            })
            .collect();
        sweep::schedule(&limits, config.cleaning_interval);
        let decision = |decision| parts.metrics.decision("throttling", decision);
        Self {
            grouping: Grouping::new(config.grouping),
            policy: config.policy,
            limits,
            keys: Keys::random(),
            passed: decision("pass"),
            refused: decision("refuse"),
            failed: decision("error"),
        }
    }

    /// Decides on a request at `now` (monotonic nanoseconds).
    fn decide(
        &self,
        request: &Request,
        client: SocketAddr,
        secure: bool,
        token: Option<&AccessToken>,
        now: u64,
    ) -> Outcome {
        let scope = Scope {
            request,
            client,
            secure,
            token,
        };
        // The partition is looked at before the rate: a request without one is
        // an error even where it would not be throttled.
        let Ok(key) = self.key(&scope) else {
            return Outcome::NoPartition;
        };
        let limit = self.policy.choose(&scope).and_then(|i| self.limits.get(i));
        let decision = match (limit, key) {
            (None, _) => return Outcome::Pass,
            (Some(limit), None) => limit.take_shared(now),
            (Some(limit), Some(key)) => limit.take(key, now),
        };
        match decision {
            Decision::Pass => Outcome::Pass,
            Decision::Refuse(delay) => Outcome::Refuse(delay),
        }
    }

    /// The request's partition; `Ok(None)`: the one of all requests.
    fn key(&self, scope: &Scope<'_>) -> Result<Option<Key>, NoText> {
        match &self.grouping {
            Grouping::Shared => Ok(None),
            Grouping::Client => Ok(Some(self.keys.key(&scope.client.ip().to_canonical()))),
            Grouping::Expression(expression) => match expression.text(scope) {
                Some(text) => Ok(Some(self.keys.key(&*text))),
                None => Err(NoText),
            },
        }
    }
}

/// The partition is null or no text.
struct NoText;

impl Grouping {
    fn new(expression: Expression) -> Self {
        use crate::expr::Value::Text;
        if expression.is_client_address() {
            Self::Client
        } else if matches!(expression.constant(), Some(Text(_))) {
            Self::Shared
        } else {
            Self::Expression(expression)
        }
    }
}

impl Filter for Throttling {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        let outcome = self.decide(
            session.req_header(),
            exchange.client,
            exchange.secure,
            exchange.token.as_deref(),
            clock::monotonic_ns(),
        );
        match outcome {
            Outcome::Pass => {
                self.passed.inc();
                Verdict::Now(Flow::Continue)
            }
            Outcome::Refuse(delay) => {
                self.refused.inc();
                exchange.refusal = Some("throttled".into());
                Verdict::Now(Flow::Respond(too_many_requests(delay)))
            }
            Outcome::NoPartition => {
                self.failed.inc();
                exchange.refusal = Some("no_partition".into());
                let reply = Reply::empty(StatusCode::INTERNAL_SERVER_ERROR);
                Verdict::Now(Flow::Respond(reply))
            }
        }
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Grouping::Expression(expression) = &self.grouping
            && expression.constant().is_some()
        {
            warnings.push(
                "requestGroupingPolicy is never a text: every request gets status 500".to_owned(),
            );
        }
        if self.policy.is_empty() {
            warnings.push("throttlingRatePolicy has no rate: nothing is throttled".to_owned());
        }
        warnings
    }
}

/// 429 with the wait in whole seconds, rounded up (interface 7).
fn too_many_requests(delay: u64) -> Reply {
    let seconds = delay.div_ceil(NANOS).max(1);
    Reply::empty(StatusCode::TOO_MANY_REQUESTS).header(RETRY_AFTER, HeaderValue::from(seconds))
}
