//! The `request-guard` plugin (interface 5.5 and 7): a request that names
//! somebody whom only certain addresses may name is answered with 403.
//!
//! `config` reads what was configured, `watched` finds what a request says,
//! and [`RequestGuard`] decides. What it reads it reads as the identity
//! provider does, so that no spelling means one thing here and another there;
//! where it can't tell, it refuses.

mod config;
mod request_values;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use http::StatusCode;
use http::header::EXPECT;
use pingora::http::RequestHeader;
use serde_json::{Map, Value};

use doorward_net::http::bridge;
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_net::telemetry::metrics::Counter;
use doorward_plugin_api::filter::{Code, Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Kind, Parts};

use config::Rules;
use request_values::{BodyKind, Unreadable};

/// The guard: before authentication, which it saves the effort.
pub const KIND: Kind = Kind {
    name: "request-guard",
    priority: 2400,
    of_consumers: false,
    schema: config::schema,
    codes: || CODES.to_vec(),
    build,
};

const GUARDED: Code = Code::new(
    "guarded",
    403,
    "the request names somebody whom only certain addresses may name",
);

const CODES: &[Code] = &[
    GUARDED,
    Code::new(
        "unreadable_body",
        400,
        "the body that has to be searched can't be read, or is too long (413)",
    ),
];

/// A running guard.
struct RequestGuard {
    rules: Rules,
    passed: Counter,
    refused: Counter,
    failed: Counter,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let decision = |decision| parts.metrics.decision(KIND.name, decision);
    Ok(Arc::new(RequestGuard {
        rules: Rules::read(config)?,
        passed: decision("pass"),
        refused: decision("refuse"),
        failed: decision("error"),
    }))
}

impl RequestGuard {
    fn is_allowed(&self, client: IpAddr) -> bool {
        self.rules.allow.contains(client)
    }

    /// Whether the head of a request says one of the values.
    fn head_says(&self, request: &RequestHeader) -> bool {
        let query = request.uri.query().unwrap_or_default();
        self.rules.in_headers(&request.headers)
            || (!query.is_empty() && self.rules.in_form(query.as_bytes()))
    }

    fn pass(&self) -> Flow {
        self.passed.inc();
        Flow::Continue
    }

    fn refuse(&self, exchange: &mut Exchange) -> Flow {
        self.refused.inc();
        exchange.refusal = Some(Cow::Borrowed(GUARDED.code));
        Flow::Respond(Reply::forbidden_page())
    }

    /// A body that can't be judged does not pass.
    fn unreadable(&self, status: StatusCode, exchange: &mut Exchange) -> Flow {
        self.failed.inc();
        exchange.refusal = Some(Cow::Borrowed("unreadable_body"));
        Flow::Respond(Reply::message(status, "The request body can't be read"))
    }
}

#[async_trait]
impl Filter for RequestGuard {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        if self.is_allowed(exchange.client.ip()) {
            return Verdict::Now(self.pass());
        }
        let request = session.req_header();
        if self.head_says(request) {
            return Verdict::Now(self.refuse(exchange));
        }
        if self.rules.parameters.is_empty() || BodyKind::of(&request.headers).is_none() {
            return Verdict::Now(self.pass());
        }
        if exchange.body.is_none() && session.is_body_empty() {
            return Verdict::Now(self.pass());
        }
        Verdict::Wait
    }

    async fn explain(
        &self,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Option<FilterExplanation> {
        Some(if self.is_allowed(exchange.client.ip()) {
            FilterExplanation::passes("the client's address may name anybody")
        } else if self.head_says(request) {
            FilterExplanation::answers(&GUARDED)
        } else if self.rules.parameters.is_empty() || BodyKind::of(&request.headers).is_none() {
            FilterExplanation::passes("it names nobody who is guarded")
        } else {
            FilterExplanation::depends("what the body names")
        })
    }

    async fn on_request_slow(&self, session: &mut Session, exchange: &mut Exchange) -> Flow {
        let body = match &exchange.body {
            Some(body) => body.clone(),
            None => match bridge::buffer_body(session).await {
                Ok(body) => exchange.body.insert(body).clone(),
                Err(error) => return self.unreadable(error.status(), exchange),
            },
        };
        let said = match BodyKind::of(&session.req_header().headers) {
            None => Ok(false),
            Some(BodyKind::Form) => Ok(self.rules.in_form(&body)),
            Some(BodyKind::Json) => self.rules.in_json(&body),
            Some(BodyKind::Unknown) => Err(Unreadable),
        };
        match said {
            Ok(false) => self.pass(),
            Ok(true) => self.refuse(exchange),
            Err(Unreadable) => self.unreadable(StatusCode::BAD_REQUEST, exchange),
        }
    }

    fn on_upstream_request(&self, exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
        if exchange.body.is_some() {
            // The body is here: no upstream has to be asked whether to send it.
            request.remove(&EXPECT);
        }
    }
}
