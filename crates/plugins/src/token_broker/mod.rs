//! The `token-broker` plugin and `TokenBrokerFilter` (interface 4.8): tokens of
//! a provider for registered applications, and paths that need them.
//!
//! A request below the base path meets the first flow whose condition holds
//! ([`flow`], [`condition`]), and that flow's operation: `issue` gives tokens
//! out, asking the provider by `callout`; `verify` looks at one. What is known
//! of applications and tokens is [`Broker`]'s, one for the process. A token
//! that is at hand is judged without waiting.

mod audit_events;
mod broker;
mod callout;
mod client;
mod condition;
pub mod config;
mod explain;
mod fault;
mod flow;
mod issue;
mod path_pattern;
pub mod records;
mod refresh;
mod response;
mod schema;
mod secret;
#[cfg(test)]
mod tests;
mod variable;
mod verify;

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use http::header::{CACHE_CONTROL, EXPECT, HOST, PRAGMA};
use http::{HeaderValue, StatusCode};
use pingora::http::RequestHeader;
use serde_json::{Map, Value};

use super::chain::{ChainKind, ObjectLookup};
use doorward_core::model::audit::Kind as EventKind;
use doorward_core::model::token::AccessToken;
use doorward_net::http::bridge;
use doorward_net::http::form::{self, Form};
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::outbound::Outbound;
use doorward_net::http::path::normalize;
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_net::http::session::Session;
use doorward_net::telemetry::metrics::Counter;
use doorward_plugin_api::filter::{Exchange, Filter, FilterExplanation, Flow as Outcome, Verdict};
use doorward_plugin_api::{ConfigError, Kind, Parts};

use audit_events::RequestAudit;
pub use broker::Broker;
use broker::Names;
use callout::Provider;
use fault::Fault;
use flow::{Flow, Operation};
use issue::Issued;
use schema::Rules;
use variable::Facts;
use verify::is_token;

/// The broker, before everything that works on its tokens.
pub const KIND: Kind = Kind {
    name: NAME,
    priority: 1400,
    of_consumers: false,
    schema: schema::schema,
    codes: || explain::CODES.to_vec(),
    build,
};

/// The type's line in the registry of route files.
pub(super) const CHAIN_KIND: ChainKind = ChainKind {
    types: &["TokenBrokerFilter"],
    build: build_written,
};

const NAME: &str = "token-broker";

/// A proxy of the broker.
struct TokenBroker {
    broker: Option<Arc<Broker>>,
    base: String,
    proxy: String,
    provider: Option<Provider>,
    /// Fit for a quoted part of a header.
    realm: String,
    split_codes: bool,
    flows: Vec<Flow>,
    /// By which the provider of this process is reached.
    outbound: Arc<Outbound>,
    metrics: Arc<doorward_net::telemetry::Metrics>,
    passed: Counter,
    issued: Counter,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let rules = Rules::read(config, parts)?;
    Ok(Arc::new(TokenBroker::new(rules, parts)))
}

fn build_written(
    config: &Map<String, Value>,
    parts: &Parts,
    _: ObjectLookup<'_>,
) -> Result<Arc<dyn Filter>, ConfigError> {
    let rules = Rules::written(config, parts)?;
    Ok(Arc::new(TokenBroker::new(rules, parts)))
}

impl TokenBroker {
    fn new(rules: Rules, parts: &Parts) -> Self {
        let broker = parts.slots.get::<Broker>();
        if let Some(broker) = &broker {
            broker.is_used();
        }
        Self {
            broker,
            base: rules.base,
            proxy: rules.proxy,
            provider: rules.provider,
            realm: rules.realm,
            split_codes: rules.split_codes,
            flows: rules.flows,
            outbound: Arc::clone(&parts.outbound),
            metrics: Arc::clone(&parts.metrics),
            passed: parts.metrics.decision(NAME, "pass"),
            issued: parts.metrics.decision(NAME, "issue"),
        }
    }

    /// The path below the base path, without a slash at its end: that means
    /// nothing in any condition. `None`: it is elsewhere.
    fn suffix<'p>(&self, path: &'p str) -> Option<&'p str> {
        let below = match self.base.as_str() {
            "/" => path,
            base => path.strip_prefix(base)?,
        };
        match below {
            "" | "/" => Some("/"),
            below => {
                let below = below.starts_with('/').then_some(below)?;
                Some(below.strip_suffix('/').unwrap_or(below))
            }
        }
    }

    /// The first flow that is for a request; `Err`: that depends on the body.
    fn flow(&self, facts: &Facts<'_>) -> Result<Option<&Flow>, NeedsBody> {
        for flow in &self.flows {
            let Some(condition) = &flow.condition else {
                return Ok(Some(flow));
            };
            match condition.holds(facts) {
                Some(true) => return Ok(Some(flow)),
                Some(false) => {}
                None => return Err(NeedsBody),
            }
        }
        Ok(None)
    }

    fn refuse(&self, fault: &Fault, request: &RequestHeader, exchange: &mut Exchange) -> Outcome {
        self.metrics.decision(NAME, fault.label).inc();
        exchange.refusal = Some(Cow::Borrowed(fault.label));
        Outcome::Respond(fault.reply(&request.headers, &self.realm))
    }

    /// The decision on a request with all that can be known of it at once;
    /// `None`: something has to be waited for.
    fn decide_now(&self, request: &RequestHeader, exchange: &mut Exchange) -> Option<Outcome> {
        let Some(broker) = &self.broker else {
            return Some(self.refuse(&Fault::store(), request, exchange));
        };
        let path = match normalize(request.uri.path()) {
            Ok(path) => path,
            Err(_) => return Some(self.nowhere(request, exchange)),
        };
        let Some(suffix) = self.suffix(&path) else {
            return Some(self.nowhere(request, exchange));
        };
        let names = broker.names();
        let facts = self.facts(request, suffix, exchange, broker, &names);
        let flow = match self.flow(&facts) {
            Ok(Some(flow)) => flow,
            Ok(None) => return Some(self.nowhere(request, exchange)),
            Err(NeedsBody) => return None,
        };
        let verify = match &flow.operation {
            Operation::Verify(verify) => verify,
            Operation::Pass => return Some(Outcome::Continue),
            _ => return None,
        };
        if verify.is_unread(&facts) {
            return None;
        }
        exchange.token_in_query |= verify.in_query();
        let judged = match Self::shown(verify, &facts) {
            Ok(shown) => match broker.held(&shown, facts.now_ms) {
                Some(token) => self
                    .judge(verify, Some(&token), &facts, || {
                        RequestAudit::of(broker, &self.proxy, exchange)
                    })
                    .map(|()| Arc::clone(&token.access)),
                None if is_token(&shown) => return None,
                None => Err(Fault::invalid_token()),
            },
            Err(fault) => Err(fault),
        };
        Some(self.judged(judged, request, exchange))
    }

    fn judged(
        &self,
        judged: Result<Arc<AccessToken>, Fault>,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Outcome {
        match judged {
            Ok(token) => {
                exchange.token = Some(token);
                self.passed.inc();
                Outcome::Continue
            }
            Err(fault) => self.refuse(&fault, request, exchange),
        }
    }

    /// No flow is for the request.
    fn nowhere(&self, request: &RequestHeader, exchange: &mut Exchange) -> Outcome {
        let host = match request.uri.authority() {
            Some(authority) => Some(authority.as_str()),
            None => request
                .headers
                .get(HOST)
                .and_then(|host| host.to_str().ok()),
        };
        let fault = Fault::no_flow(host.unwrap_or_default(), request.uri.path());
        self.refuse(&fault, request, exchange)
    }

    fn facts<'a>(
        &'a self,
        request: &'a RequestHeader,
        suffix: &'a str,
        exchange: &Exchange,
        broker: &Broker,
        names: &'a Names,
    ) -> Facts<'a> {
        Facts {
            request,
            base: &self.base,
            suffix,
            body: None,
            // The form in it is read where there is time to wait.
            body_read: false,
            form: None,
            client: exchange.client.ip(),
            now_ms: broker.now_ms(),
            organization: &names.organization,
            environment: &names.environment,
            proxy: &self.proxy,
            set: None,
        }
    }

    /// The outcome of the operation of a flow. Refusals are told.
    async fn operate(
        &self,
        broker: &Broker,
        flow: &Flow,
        facts: &Facts<'_>,
        mut audit: RequestAudit<'_>,
    ) -> Result<Done, Fault> {
        let issued = |issued: Issued, responds: bool| {
            if responds {
                Done::Answer(token_reply(issued))
            } else {
                Done::Set(variables(&flow.name, issued))
            }
        };
        match &flow.operation {
            Operation::Generate(generate) => {
                let new = self.generate(broker, generate, facts, &mut audit).await;
                let new = new.inspect_err(|fault| audit.refuse(EventKind::TokenIssue, fault))?;
                Ok(issued(new, generate.issue.responds))
            }
            Operation::Refresh(refreshing) => {
                let new = self.refresh(broker, refreshing, facts, &mut audit).await;
                let new = new.inspect_err(|fault| audit.refuse(EventKind::TokenIssue, fault))?;
                Ok(issued(new, refreshing.issue.responds))
            }
            Operation::Invalidate(ended) => {
                let done = self.invalidate(broker, ended, facts, &mut audit).await;
                done.inspect_err(|fault| audit.refuse(EventKind::TokenRevoke, fault))?;
                Ok(Done::Answer(Reply::empty(StatusCode::OK)))
            }
            Operation::Verify(verify) => {
                let shown = Self::shown(verify, facts)?;
                if !is_token(&shown) {
                    return Err(Fault::invalid_token());
                }
                let token = match broker.held(&shown, facts.now_ms) {
                    Some(token) => Some(token),
                    None => broker.token(&shown, &self.outbound).await?,
                };
                self.judge(verify, token.as_ref(), facts, || audit)?;
                match token {
                    Some(token) => Ok(Done::Verified(Arc::clone(&token.access))),
                    None => Err(Fault::unknown_token(self.split_codes)),
                }
            }
            Operation::Pass => Ok(Done::Passed),
        }
    }

    async fn decide(&self, request: &RequestHeader, exchange: &mut Exchange) -> Outcome {
        let (Some(broker), Ok(path)) = (&self.broker, normalize(request.uri.path())) else {
            return self.refuse(&Fault::store(), request, exchange);
        };
        let Some(suffix) = self.suffix(&path) else {
            return self.nowhere(request, exchange);
        };
        // Not a guard: this waits.
        let names = Arc::clone(&broker.names());
        let body = exchange.body.clone();
        let form = match &body {
            Some(body) if form::is_form(&request.headers) => Form::parse_each_once(body).ok(),
            _ => None,
        };
        let facts = Facts {
            body: body.as_deref(),
            body_read: true,
            form: form.as_ref(),
            ..self.facts(request, suffix, exchange, broker, &names)
        };
        let Ok(Some(flow)) = self.flow(&facts) else {
            return self.nowhere(request, exchange);
        };
        if let Operation::Verify(verify) = &flow.operation {
            exchange.token_in_query |= verify.in_query();
        }
        let audit = RequestAudit::of(broker, &self.proxy, exchange);
        match self.operate(broker, flow, &facts, audit).await {
            Ok(Done::Answer(reply)) => {
                self.issued.inc();
                Outcome::Respond(reply)
            }
            Ok(Done::Verified(token)) => self.judged(Ok(token), request, exchange),
            Ok(Done::Set(token)) => {
                self.issued.inc();
                exchange.token = Some(Arc::new(token));
                Outcome::Continue
            }
            Ok(Done::Passed) => Outcome::Continue,
            Err(fault) => self.refuse(&fault, request, exchange),
        }
    }
}

/// Which flow is for a request depends on its body.
struct NeedsBody;

/// What an operation has done.
enum Done {
    /// It answers.
    Answer(Reply),
    /// The request has a good token.
    Verified(Arc<AccessToken>),
    /// It has set variables, for the filters that follow.
    Set(AccessToken),
    /// Nothing.
    Passed,
}

fn token_reply(issued: Issued) -> Reply {
    let mut reply = Reply::empty(StatusCode::OK);
    reply.body = ReplyBody::Raw("application/json", issued.body);
    reply
        .header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
        .header(PRAGMA, HeaderValue::from_static("no-cache"))
}

/// What a flow that does not answer has issued, for expressions.
fn variables(flow: &str, issued: Issued) -> AccessToken {
    let members = issued.variables.into_iter();
    let claims: Map<String, Value> = members
        .map(|(name, value)| (format!("oauthv2accesstoken.{flow}.{name}"), value))
        .collect();
    let text = claims.get(&format!("oauthv2accesstoken.{flow}.access_token"));
    let text = text.and_then(Value::as_str).unwrap_or_default().to_owned();
    AccessToken {
        token: text,
        claims,
        scopes: Vec::new(),
        expires_at: None,
    }
}

#[async_trait]
impl Filter for TokenBroker {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        match self.decide_now(session.req_header(), exchange) {
            Some(outcome) => Verdict::Now(outcome),
            None => Verdict::Wait,
        }
    }

    async fn explain(
        &self,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Option<FilterExplanation> {
        let explanation = self.explanation(request, exchange).await;
        Some(explanation.unwrap_or_else(|fault| fault.explanation()))
    }

    async fn on_request_slow(&self, session: &mut Session, exchange: &mut Exchange) -> Outcome {
        if self.looks_at_body(session.req_header(), exchange) && exchange.body.is_none() {
            match bridge::buffer_body(session).await {
                Ok(body) => exchange.body = Some(body),
                Err(error) => {
                    let fault = Fault::body(error.status());
                    return self.refuse(&fault, session.req_header(), exchange);
                }
            }
        }
        self.decide(session.req_header(), exchange).await
    }

    fn on_upstream_request(&self, exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
        if exchange.body.is_some() {
            // The body is here: no upstream has to be asked whether to send it.
            request.remove(&EXPECT);
        }
    }
}

impl TokenBroker {
    /// Whether the flow of a request, or which one it is, depends on the body.
    fn looks_at_body(&self, request: &RequestHeader, exchange: &Exchange) -> bool {
        let (Some(broker), Ok(path)) = (&self.broker, normalize(request.uri.path())) else {
            return false;
        };
        let Some(suffix) = self.suffix(&path) else {
            return false;
        };
        let names = broker.names();
        let facts = self.facts(request, suffix, exchange, broker, &names);
        match self.flow(&facts) {
            Err(NeedsBody) => true,
            Ok(None) => false,
            Ok(Some(flow)) => match &flow.operation {
                Operation::Verify(verify) => verify.is_unread(&facts),
                Operation::Generate(_) | Operation::Refresh(_) | Operation::Invalidate(_) => true,
                Operation::Pass => false,
            },
        }
    }
}
