//! The `request-termination` plugin: a fixed answer in place of the upstream's.

mod echo;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, StatusCode};
use pingora::http::RequestHeader;
use serde_json::{Map, Value};
use url::form_urlencoded;

use crate::settings::{Settings, header_name, json_message, wrong};
use doorward_core::model::schema::{Field, Schema, Type, Violations};
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_net::http::session::Session;
use doorward_net::telemetry::Metrics;
use doorward_net::telemetry::metrics::Counter;
use doorward_plugin_api::filter::{Code, Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Kind, Parts};
use echo::Echo;

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "request-termination",
    priority: 2,
    of_consumers: true,
    schema,
    codes: || vec![TERMINATED],
    build,
};

const TERMINATED: Code = Code::new(
    "terminated",
    503,
    "request-termination has answered (with the status of its configuration)",
);

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        Schema::new(vec![
            Field::new("status_code", Type::Integer(100, 599))
                .default(503)
                .required(),
            Field::new("message", Type::some_text()),
            Field::new("content_type", Type::some_text()),
            Field::new("body", Type::some_text()),
            Field::new("echo", Type::Boolean).default(false).required(),
            Field::new("trigger", Type::checked(header_name)),
        ])
        .check(one_form_of_body)
    });
    &SCHEMA
}

/// Empty texts count as absent.
fn one_form_of_body(config: &Map<String, Value>, violations: &mut Violations) {
    let config = Settings(config);
    let has = |field| config.some_text(field).is_some();
    let (body, content_type) = (has("body"), has("content_type"));
    if has("message") && (content_type || body) {
        violations.put_whole("message cannot be used with content_type or body");
    }
    if content_type && !body {
        violations.put_whole("content_type requires a body");
    }
    if config.flag("echo") && (content_type || body) {
        violations.put_whole("echo cannot be used with content_type and body");
    }
}

/// What requests are answered with.
enum Answer {
    Fixed(Reply),
    Echo(Box<Echo>),
}

/// A running filter.
struct RequestTermination {
    answer: Answer,
    /// Header or parameter without which requests pass.
    trigger: Option<(HeaderName, Box<str>)>,
    terminated: Counter,
    passed: Counter,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Settings(config);
    let trigger = config.header("trigger")?;
    let trigger = trigger.zip(config.some_text("trigger").map(Box::from));
    let decision = |decision| parts.metrics.decision(KIND.name, decision);
    Ok(Arc::new(RequestTermination {
        answer: answer(config, &parts.metrics)?,
        trigger,
        terminated: decision("refuse"),
        passed: decision("pass"),
    }))
}

/// The answer to every request that is not passed on.
fn answer(config: Settings<'_>, metrics: &Arc<Metrics>) -> Result<Answer, ConfigError> {
    let code = config.integer("status_code").unwrap_or(503);
    let status = u16::try_from(code).ok();
    let status = status.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.filter(|status| !status.is_informational());
    let status = status.ok_or_else(|| {
        let message = "an informational status ends no request: use one from 200 to 599";
        wrong("status_code", message)
    })?;
    if let Some(body) = config.some_text("body") {
        let mut reply = Reply::empty(status);
        reply.body = ReplyBody::Own(Bytes::copy_from_slice(body.as_bytes()));
        if let Some(content_type) = config.some_text("content_type") {
            let value = HeaderValue::from_str(content_type)
                .map_err(|_| wrong("content_type", "is no value of a header"))?;
            reply = reply.header(CONTENT_TYPE, value);
        }
        return Ok(Answer::Fixed(reply));
    }
    let message = config.some_text("message").or(default_message(status));
    if config.flag("echo") {
        let echo = Echo::new(status, message, metrics);
        return Ok(Answer::Echo(Box::new(echo)));
    }
    Ok(Answer::Fixed(match message {
        Some(message) => json_message(status, message),
        None => Reply::empty(status),
    }))
}

/// What the imitated gateway says of a status without a message.
fn default_message(status: StatusCode) -> Option<&'static str> {
    Some(match status.as_u16() {
        401 => "Unauthorized",
        404 => "Not found",
        405 => "Method not allowed",
        500 => "An unexpected error occurred",
        502 => "Bad Gateway",
        503 => "Service unavailable",
        _ => return None,
    })
}

impl RequestTermination {
    fn status(&self) -> StatusCode {
        match &self.answer {
            Answer::Fixed(reply) => reply.status,
            Answer::Echo(echo) => echo.status,
        }
    }

    fn echoes(&self) -> bool {
        matches!(self.answer, Answer::Echo(_))
    }

    /// Whether the request has the trigger, or needs none.
    fn concerns(&self, request: &RequestHeader) -> bool {
        let Some((header, parameter)) = &self.trigger else {
            return true;
        };
        let query = request.uri.query().unwrap_or_default();
        request.headers.contains_key(header)
            || form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name == **parameter)
    }
}

#[async_trait]
impl Filter for RequestTermination {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        if !self.concerns(session.req_header()) {
            self.passed.inc();
            return Verdict::Now(Flow::Continue);
        }
        self.terminated.inc();
        exchange.refusal = Some(Cow::Borrowed(TERMINATED.code));
        Verdict::Now(Flow::Respond(match &self.answer {
            Answer::Fixed(reply) => reply.clone(),
            Answer::Echo(echo) => echo.reply(session, exchange),
        }))
    }

    fn needs_body(&self) -> bool {
        self.echoes()
    }

    fn wants_body(&self, request: &RequestHeader, _: &Exchange) -> bool {
        self.echoes() && self.concerns(request)
    }

    fn needs_route(&self) -> bool {
        self.echoes()
    }

    fn warnings(&self) -> Vec<String> {
        let warning = "echo shows clients the route, the service and every header of theirs, \
                       cookies that scripts can't read among them";
        let warning = self.echoes().then(|| warning.to_owned());
        warning.into_iter().collect()
    }

    async fn explain(
        &self,
        request: &RequestHeader,
        _: &mut Exchange,
    ) -> Option<FilterExplanation> {
        if !self.concerns(request) {
            return Some(FilterExplanation::passes("it has not the trigger"));
        }
        let status = self.status().as_u16();
        Some(FilterExplanation::answers(&Code {
            status,
            ..TERMINATED
        }))
    }
}
