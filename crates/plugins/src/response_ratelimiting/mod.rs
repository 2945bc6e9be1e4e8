//! The `response-ratelimiting` plugin: upstreams say in a header what an answer has
//! cost of which limit, and callers have so much of each in a period.

mod config;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use http::{HeaderName, StatusCode};
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::{Map, Value};

use crate::rate_limiting::Identifier;
use crate::rate_limiting::counters::{Counters, Used};
use crate::rate_limiting::quota;
use crate::rate_limiting::remote::{Remote, Spending};
use crate::redis_settings::Policy;
use crate::settings::UNEXPECTED;
use doorward_core::clock::Clock;
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_net::shared::Unavailable;
use doorward_net::telemetry::metrics::Counter;
use doorward_plugin_api::filter::{
    Code, Exchange, Filter, FilterExplanation, Flow, ResponseFlow, Verdict,
};
use doorward_plugin_api::{ConfigError, Kind, Parts};

use config::{Config, LimitBy, NamedLimits};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "response-ratelimiting",
    priority: 900,
    of_consumers: true,
    schema: config::schema,
    codes: || vec![EXCEEDED, UNCOUNTED],
    build,
};

const EXCEEDED: Code = Code::new(
    "response_limit_exceeded",
    429,
    "a limit of response-ratelimiting has nothing left",
);
const UNCOUNTED: Code = Code::new(
    "response_limit_uncounted",
    500,
    "the Redis of response-ratelimiting gives no answer, and fault_tolerant is false",
);

/// Most that one answer can cost.
const MAX_COST: f64 = 1e9;

/// A running filter.
struct ResponseRatelimiting {
    /// The limits, each with its headers.
    all: Box<[NamedLimits]>,
    /// The header that tells costs.
    header: HeaderName,
    limit_by: LimitBy,
    fault_tolerant: bool,
    blocks: bool,
    silent: bool,
    /// Request headers that upstreams are told the limits by.
    owned: Box<[HeaderName]>,
    local: Counters,
    /// The shared counters; `None`: this process counts.
    remote: Option<Remote>,
    clock: Clock,
    passed: Counter,
    refused: Counter,
    failed: Counter,
    warnings: Vec<String>,
}

/// What was used of each limit when the request came.
struct Usage(Vec<Used>);

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Config::read(config)?;
    let all = config.named_limits()?;
    let redis = match config.policy {
        None | Some(Policy::Local) => None,
        Some(Policy::Redis) => Some(config.redis.connect(parts)?),
        Some(Policy::Cluster) => parts.redis.clone().map(Arc::new),
    };
    let mut warnings = Vec::new();
    if config.policy == Some(Policy::Cluster) && redis.is_none() {
        let warning = "policy: without a `redis` section in the configuration file, `cluster` \
                       counts in this process alone";
        warnings.push(warning.to_owned());
    }
    let decision = |decision| parts.metrics.decision(KIND.name, decision);
    let header = config.header_name;
    Ok(Arc::new(ResponseRatelimiting {
        owned: all.iter().map(|one| one.upstream.clone()).collect(),
        all,
        header: header.unwrap_or(HeaderName::from_static("x-kong-limit")),
        limit_by: config.limit_by.unwrap_or(LimitBy::Consumer),
        fault_tolerant: config.fault_tolerant,
        blocks: config.block_on_first_violation,
        silent: config.hide_client_headers,
        local: Counters::new(),
        remote: redis.map(|redis| Remote::new(redis, parts.scope.clone())),
        clock: parts.clock.clone(),
        passed: decision("pass"),
        refused: decision("refuse"),
        failed: decision("error"),
        warnings,
    }))
}

impl ResponseRatelimiting {
    fn identify<'a>(&self, exchange: &'a Exchange) -> Identifier<'a> {
        let found = match self.limit_by {
            LimitBy::Ip => None,
            LimitBy::Consumer => Identifier::consumer(exchange),
            LimitBy::Credential => Identifier::credential(exchange),
        };
        found.unwrap_or_else(|| Identifier::address(exchange))
    }

    /// What was used of each limit before, and whether the costs, in the order of the
    /// names, are counted: all of them or none.
    async fn spend(
        &self,
        exchange: &Exchange,
        costs: &[u64],
    ) -> Result<(Vec<Used>, bool), Unavailable> {
        let now = self.clock.now_secs();
        let identifier = self.identify(exchange);
        if let Some(remote) = &self.remote {
            let all = self.all.iter().zip(costs);
            let all: Vec<_> = all
                .map(|(named, cost)| Spending {
                    name: &named.name,
                    limits: &named.limits,
                    cost: *cost,
                })
                .collect();
            return remote.spend(&identifier, &all, now).await;
        }
        Ok(self.spend_here(&identifier, costs, now))
    }

    fn spend_here(
        &self,
        identifier: &Identifier<'_>,
        costs: &[u64],
        now: i64,
    ) -> (Vec<Used>, bool) {
        let key = |named: &NamedLimits| self.local.key(&(&named.name, identifier));
        let mut all = Vec::with_capacity(costs.len());
        let mut passes = true;
        for (named, cost) in self.all.iter().zip(costs) {
            // After a refusal the others are only looked at.
            let cost = if passes { *cost } else { 0 };
            let (used, counted) = self.local.spend(key(named), &named.limits, cost, now);
            if !counted {
                let before = self.all.iter().zip(costs).take(all.len());
                for (named, cost) in before {
                    self.local.give_back(key(named), &named.limits, *cost, now);
                }
                passes = false;
            }
            all.push(used);
        }
        (all, passes)
    }

    /// What the upstream says that the answer costs, in the order of the names.
    fn costs(&self, response: &ResponseHeader) -> Vec<u64> {
        let mut costs = vec![0; self.all.len()];
        for value in response.headers.get_all(&self.header) {
            for part in value.to_str().unwrap_or_default().split(',') {
                let Some((name, cost)) = part.split_once('=') else {
                    continue;
                };
                let mut names = self.all.iter();
                let at = names.position(|named| *named.name == *name.trim());
                if let (Some(at), Some(cost)) = (at, cost_of(cost)) {
                    costs[at] = cost;
                }
            }
        }
        costs
    }

    /// Tells the client its limits, after these costs; an upstream's own headers of
    /// these names give way.
    fn tell(
        &self,
        response: &mut ResponseHeader,
        exchange: &mut Exchange,
        state: (&[Used], &[u64]),
    ) {
        if self.silent {
            return;
        }
        let (used, costs) = state;
        for ((named, used), cost) in self.all.iter().zip(used).zip(costs) {
            let limits = named.limits.iter().zip(used).zip(&named.headers);
            for ((limit, used), names) in limits {
                let left = limit.remaining(used.saturating_add(*cost)).max(0.0);
                response.remove_header(&names.limit);
                response.remove_header(&names.remaining);
                let headers = &mut exchange.response_headers;
                headers.push((names.limit.clone(), names.value.clone()));
                headers.push((names.remaining.clone(), quota::value(left)));
            }
        }
    }

    fn exceeded(&self, exchange: &mut Exchange) {
        self.refused.inc();
        exchange.refusal = Some(Cow::Borrowed(EXCEEDED.code));
    }

    /// The answer where nothing can be counted; `None`: the request goes on.
    fn uncounted(&self, exchange: &mut Exchange) -> Option<Reply> {
        self.failed.inc();
        if self.fault_tolerant {
            return None;
        }
        exchange.refusal = Some(Cow::Borrowed(UNCOUNTED.code));
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Some(Reply::message(status, UNEXPECTED))
    }

    /// What becomes of a request that finds so much used.
    fn admit(&self, used: Vec<Used>, exchange: &mut Exchange) -> Flow {
        let all = self.all.iter().zip(&used);
        let mut spent = all.filter(|(named, used)| least(named, used) <= 0.0);
        if self.blocks
            && let Some((named, _)) = spent.next()
        {
            self.exceeded(exchange);
            let message = format!("API rate limit exceeded for '{}'", named.name);
            return Flow::Respond(Reply::message(StatusCode::TOO_MANY_REQUESTS, message));
        }
        exchange.notes.push(Box::new(Usage(used)));
        Flow::Continue
    }
}

/// What is left of the period that has least.
fn least(named: &NamedLimits, used: &Used) -> f64 {
    let limits = named.limits.iter().zip(used);
    let left = limits.map(|(limit, used)| limit.remaining(*used));
    left.fold(f64::INFINITY, f64::min)
}

/// A cost, rounded up; `None`: it is none.
fn cost_of(text: &str) -> Option<u64> {
    let cost: f64 = text.trim().parse().ok()?;
    if !(0.0..=f64::MAX).contains(&cost) {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the bound"
    )]
    Some(cost.ceil().min(MAX_COST) as u64)
}

#[async_trait]
impl Filter for ResponseRatelimiting {
    fn on_request(&self, _: &mut Session, exchange: &mut Exchange) -> Verdict {
        if self.remote.is_some() {
            return Verdict::Wait;
        }
        let now = self.clock.now_secs();
        let nothing = vec![0; self.all.len()];
        let (used, _) = self.spend_here(&self.identify(exchange), &nothing, now);
        Verdict::Now(self.admit(used, exchange))
    }

    async fn on_request_slow(&self, _: &mut Session, exchange: &mut Exchange) -> Flow {
        let nothing = vec![0; self.all.len()];
        match self.spend(exchange, &nothing).await {
            Ok((used, _)) => self.admit(used, exchange),
            Err(Unavailable) => match self.uncounted(exchange) {
                Some(reply) => Flow::Respond(reply),
                None => Flow::Continue,
            },
        }
    }

    async fn explain(&self, _: &RequestHeader, _: &mut Exchange) -> Option<FilterExplanation> {
        Some(FilterExplanation::depends("what answers have cost before"))
    }

    fn owned_headers(&self) -> &[HeaderName] {
        &self.owned
    }

    fn on_upstream_request(&self, exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
        let mut notes = exchange.notes.iter();
        let Some(Usage(used)) = notes.find_map(|note| note.downcast_ref()) else {
            return;
        };
        for (named, used) in self.all.iter().zip(used) {
            let left = quota::value(least(named, used).max(0.0));
            request.fields().insert(named.upstream.clone(), left);
        }
    }

    fn sees_responses(&self) -> bool {
        true
    }

    async fn on_upstream_response(
        &self,
        _: &RequestHeader,
        exchange: &mut Exchange,
        response: &mut ResponseHeader,
    ) -> ResponseFlow {
        // What a cache answers costs the upstream nothing.
        let costs = if exchange.stored {
            vec![0; self.all.len()]
        } else {
            self.costs(response)
        };
        response.remove_header(&self.header);
        match self.spend(exchange, &costs).await {
            Ok((used, true)) => {
                self.passed.inc();
                self.tell(response, exchange, (&used, &costs));
                ResponseFlow::Continue
            }
            Ok((used, false)) => {
                self.exceeded(exchange);
                self.tell(response, exchange, (&used, &costs));
                ResponseFlow::Replace(Reply::empty(StatusCode::TOO_MANY_REQUESTS))
            }
            Err(Unavailable) => match self.uncounted(exchange) {
                Some(reply) => ResponseFlow::Replace(reply),
                None => ResponseFlow::Continue,
            },
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}
