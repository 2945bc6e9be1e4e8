//! The filter: key, rate, token; 500, nothing or 429.

use std::sync::Arc;

use async_trait::async_trait;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use pingora::http::RequestHeader;
use serde_json::{Map, Value};

use super::config::Rules;
use super::grouping::Grouping;
use super::headers::{Headers, Quota, seconds};
use super::hot::Hot;
use super::partitions::{Key, Outcome, Partitions};
use super::policy::{Choice, Policy};
use super::remote::Remote;
use super::sweep;
use crate::chain::ObjectLookup;
use doorward_core::clock;
use doorward_expr::Scope;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_net::telemetry::metrics::Counter;
use doorward_plugin_api::filter::{
    Exchange, Filter, FilterExplanation, Flow, PartitionReport, Partitioned, Verdict,
};
use doorward_plugin_api::{ConfigError, Parts};

/// A running throttling filter.
pub struct Throttling {
    pub(super) grouping: Grouping,
    pub(super) policy: Policy,
    /// A bucket for each rate of a partition: a request whose rate changes
    /// meets another bucket, so no mapping can refill one.
    pub(super) partitions: Arc<Partitions>,
    pub(super) maximum: usize,
    /// What clients are told, if they are.
    quota: Option<Quota>,
    pub(super) shadow: bool,
    pub(super) hot: Hot,
    /// The buckets that nodes share; `None`: this process counts alone.
    pub(super) remote: Option<Remote>,
    warnings: Vec<String>,
    /// Whether an expression looks at the body.
    pub(super) needs_body: bool,
    counted: Counted,
}

/// What became of requests.
struct Counted {
    passed: Counter,
    refused: Counter,
    /// Would have been refused.
    shadowed: Counter,
    failed: Counter,
}

/// What a request is held to.
struct AppliedLimit<'a> {
    key: Option<Key>,
    choice: Choice<'a>,
}

/// Why a request can't be decided on: the configuration does not fit it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The partition is null or no text.
    Partition,
    /// What should be a rate is none.
    Rate,
}

pub(super) fn build(
    config: &Map<String, Value>,
    parts: &Parts,
) -> Result<Arc<dyn Filter>, ConfigError> {
    build_named(config, parts, &|_| None)
}

/// Builds the filter of a `config` that may refer to other objects (rate
/// policies) by name; `named` gives their declarations, `{type, config}`.
///
/// # Errors
/// [`ConfigError`] with the field at fault.
pub(crate) fn build_named(
    config: &Map<String, Value>,
    parts: &Parts,
    named: ObjectLookup<'_>,
) -> Result<Arc<dyn Filter>, ConfigError> {
    let rules = Rules::read(config, named, &parts.constants)?;
    Ok(Arc::new(Throttling::new(rules, parts)))
}

impl Throttling {
    fn new(rules: Rules, parts: &Parts) -> Self {
        let metrics = &parts.metrics;
        let partitions = Arc::new(Partitions::new(
            rules.rates,
            rules.partitions,
            metrics.throttle_partitions(),
            metrics.throttle_overflow(),
        ));
        sweep::schedule(&partitions, rules.cleaning_interval);
        let decision = |decision| metrics.decision("throttling", decision);
        // What a shadow tells clients would throttle them.
        let silent = rules.shadow || rules.headers == Headers::Off;
        let needs_body = rules.grouping.needs_body() || rules.policy.needs_body();
        Self {
            grouping: Grouping::new(rules.grouping, rules.ipv6_prefix),
            policy: rules.policy,
            partitions,
            maximum: rules.partitions,
            quota: (!silent).then(|| Quota::new(rules.names)),
            shadow: rules.shadow,
            hot: Hot::new(),
            remote: parts
                .redis
                .as_ref()
                .filter(|_| rules.shared)
                .map(|redis| Remote::new(redis.clone(), &parts.scope, metrics.throttle_alone())),
            warnings: rules.warnings,
            needs_body,
            counted: Counted {
                passed: decision("pass"),
                refused: decision("refuse"),
                shadowed: decision("would_refuse"),
                failed: decision("error"),
            },
        }
    }

    /// The partition and the rates of a request.
    fn held(&self, scope: &Scope<'_>) -> Result<AppliedLimit<'_>, Fault> {
        // The partition is looked at before the rate: a request without one is
        // an error even where it would not be throttled.
        let key = self.grouping.key(scope).map_err(|_| Fault::Partition)?;
        match self.policy.choose(scope, self.partitions.rates()) {
            Choice::Broken => Err(Fault::Rate),
            choice => Ok(AppliedLimit { key, choice }),
        }
    }

    /// The decision on the shared buckets, or without an answer on those of
    /// this process. These are taken from before the question, so of a flood at
    /// once no more ask than could pass.
    async fn shared_outcome(&self, held: &AppliedLimit<'_>, text: &str, now: u64) -> Outcome {
        let limit = held.choice.rates();
        let own = self.partitions.take_all(held.key, limit, now);
        if let Some(remote) = &self.remote {
            let rates = self.partitions.rates();
            if let Ok(outcome) = remote.take_all(text, rates, limit).await {
                let levels = &outcome.levels;
                self.partitions.set_all(held.key, limit, levels, now);
                return outcome;
            }
            remote.fell_back_to_local();
        }
        own
    }

    /// Counts the decision and tells the client.
    fn conclude(
        &self,
        scope: &Scope<'_>,
        held: &AppliedLimit<'_>,
        outcome: &Outcome,
        now: u64,
    ) -> Concluded {
        let limit = held.choice.rates();
        let text = || self.grouping.text(scope);
        self.hot.note(now, held.key, limit, outcome.passes(), text);
        let quota = self.quota.as_ref();
        Concluded {
            headers: quota.map(|quota| quota.headers(self.partitions.rates(), limit, outcome)),
            end: if outcome.passes() {
                self.counted.passed.inc();
                End::Pass
            } else if self.shadow {
                self.counted.shadowed.inc();
                End::WouldRefuse
            } else {
                self.counted.refused.inc();
                End::Refuse(outcome.delay)
            },
        }
    }

    /// Answers a request that can't be decided on.
    fn failed(&self, fault: Fault, exchange: &mut Exchange) -> Flow {
        self.counted.failed.inc();
        let code = match fault {
            Fault::Partition => "no_partition",
            Fault::Rate => "no_rate",
        };
        exchange.refusal = Some(code.into());
        if self.shadow {
            return Flow::Continue;
        }
        Flow::Respond(Reply::empty(StatusCode::INTERNAL_SERVER_ERROR))
    }
}

/// What follows from a decision.
struct Concluded {
    headers: Option<[(http::HeaderName, HeaderValue); 2]>,
    end: End,
}

enum End {
    Pass,
    WouldRefuse,
    Refuse(u64),
}

impl Concluded {
    fn apply(self, exchange: &mut Exchange) -> Flow {
        exchange
            .response_headers
            .extend(self.headers.into_iter().flatten());
        match self.end {
            End::Pass => Flow::Continue,
            End::WouldRefuse => {
                exchange.refusal = Some("would_throttle".into());
                Flow::Continue
            }
            End::Refuse(delay) => {
                exchange.refusal = Some("throttled".into());
                // In whole seconds, rounded up (interface 7).
                let seconds = HeaderValue::from(seconds(delay));
                let reply = Reply::empty(StatusCode::TOO_MANY_REQUESTS);
                Flow::Respond(reply.header(RETRY_AFTER, seconds))
            }
        }
    }
}

/// What expressions may look at.
fn scope<'a>(session: &'a Session, exchange: &'a Exchange) -> Scope<'a> {
    exchange.scope(session.req_header())
}

#[async_trait]
impl Filter for Throttling {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        let scope = scope(session, exchange);
        let held = match self.held(&scope) {
            Ok(held) => held,
            Err(fault) => return Verdict::Now(self.failed(fault, exchange)),
        };
        if held.choice == Choice::Nothing {
            self.counted.passed.inc();
            return Verdict::Now(Flow::Continue);
        }
        let now = clock::monotonic_ns();
        let limit = held.choice.rates();
        let outcome = match &self.remote {
            Some(remote) if remote.is_up() => {
                let known = self.partitions.look_all(held.key, limit, now);
                if known.passes() || !remote.may_refuse(held.key, now) {
                    return Verdict::Wait;
                }
                known
            }
            Some(remote) => {
                remote.fell_back_to_local();
                self.partitions.take_all(held.key, limit, now)
            }
            None => self.partitions.take_all(held.key, limit, now),
        };
        let concluded = self.conclude(&scope, &held, &outcome, now);
        Verdict::Now(concluded.apply(exchange))
    }

    /// Asks for a decision on the shared buckets.
    async fn on_request_slow(&self, session: &mut Session, exchange: &mut Exchange) -> Flow {
        let (held, text) = {
            let scope = scope(session, exchange);
            match self.held(&scope) {
                Ok(held) => (held, self.grouping.text(&scope).into_owned()),
                Err(fault) => return self.failed(fault, exchange),
            }
        };
        // As of before the question: a bucket is never thought emptier than it
        // is.
        let now = clock::monotonic_ns();
        let outcome = self.shared_outcome(&held, &text, now).await;
        let concluded = self.conclude(&scope(session, exchange), &held, &outcome, now);
        concluded.apply(exchange)
    }

    fn reads_heads(&self) -> bool {
        false
    }

    async fn explain(
        &self,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Option<FilterExplanation> {
        Some(self.explanation(request, exchange))
    }

    fn needs_body(&self) -> bool {
        self.needs_body
    }

    fn partitioned(&self) -> Option<&dyn Partitioned> {
        Some(self)
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.warnings.clone();
        if self.grouping.is_broken() {
            warnings.push(
                "requestGroupingPolicy is never a text: every request gets status 500".to_owned(),
            );
        }
        if self.policy.is_empty() {
            warnings.push("throttlingRatePolicy has no rate: nothing is throttled".to_owned());
        }
        if self.shadow {
            warnings.push("shadow is on: requests are counted, none is refused".to_owned());
        }
        warnings
    }
}

#[async_trait]
impl Partitioned for Throttling {
    fn report(&self) -> PartitionReport {
        self.report_at(clock::monotonic_ns())
    }

    async fn reset(&self, partition: &str) -> bool {
        let shared = match (&self.remote, self.text_of(partition)) {
            (Some(remote), Some(text)) => remote.reset(&text, self.partitions.rates()).await,
            _ => false,
        };
        let own = self.reset_at(partition, clock::monotonic_ns());
        shared || own
    }
}
