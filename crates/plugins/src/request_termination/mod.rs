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

use crate::settings::{final_status, header_name, json_message, wrong};
use doorward_core::model::schema::{Schema, Type, Violations};
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_net::http::session::Session;
use doorward_net::telemetry::Metrics;
use doorward_net::telemetry::metrics::Counter;
use doorward_plugin_api::config::read_for_check;
use doorward_plugin_api::filter::{Code, Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Kind, Parts, config};
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

config! {
    /// The fields of `config`.
    struct Config {
        /// The status of the answer.
        #[field(kind(Type::Integer(100, 599)), default(503), required)]
        status_code: u16,
        /// The text of an answer in JSON. Null: one that suits the status.
        message: Option<Box<str>>,
        /// The media type of body.
        content_type: Option<Box<str>>,
        /// The body of the answer, as it stands.
        body: Option<Box<str>>,
        /// Whether the answer shows the request with its route and its service.
        #[field(default(false), required)]
        echo: bool,
        /// A header or a parameter. Requests that have neither pass.
        #[field(kind(Type::checked(header_name)))]
        trigger: Option<Box<str>>,
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> =
        LazyLock::new(|| Schema::new(Config::fields()).check(one_form_of_body));
    &SCHEMA
}

/// Empty texts count as absent.
fn one_form_of_body(config: &Map<String, Value>, violations: &mut Violations) {
    let Some(config) = read_for_check::<Config>(config) else {
        return;
    };
    let (body, content_type) = (config.body.is_some(), config.content_type.is_some());
    if config.message.is_some() && (content_type || body) {
        violations.put_whole("message cannot be used with content_type or body");
    }
    if content_type && !body {
        violations.put_whole("content_type requires a body");
    }
    if config.echo && (content_type || body) {
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
    let mut config = Config::read(config)?;
    let trigger = config.trigger.take().map(|text| {
        let name = HeaderName::try_from(&*text);
        let name = name.map_err(|_| wrong("trigger", "is no name of a header"))?;
        Ok((name, text))
    });
    let decision = |decision| parts.metrics.decision(KIND.name, decision);
    Ok(Arc::new(RequestTermination {
        answer: answer(config, &parts.metrics)?,
        trigger: trigger.transpose()?,
        terminated: decision("refuse"),
        passed: decision("pass"),
    }))
}

/// The answer to every request that is not passed on.
fn answer(config: Config, metrics: &Arc<Metrics>) -> Result<Answer, ConfigError> {
    let status = final_status(config.status_code)?;
    if let Some(body) = config.body {
        let mut reply = Reply::empty(status);
        reply.body = ReplyBody::Own(Bytes::from(body.into_boxed_bytes()));
        if let Some(content_type) = config.content_type {
            let value = HeaderValue::from_str(&content_type)
                .map_err(|_| wrong("content_type", "is no value of a header"))?;
            reply = reply.header(CONTENT_TYPE, value);
        }
        return Ok(Answer::Fixed(reply));
    }
    let message = config.message.as_deref().or(default_message(status));
    if config.echo {
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
