//! The `request-transformer` plugin: method, path, headers, query and body of
//! requests are changed on their way to the upstream.
//!
//! Values are made while the plugin decides, from the request as it came; they
//! are written when the upstream's request is made, so that no `Connection`
//! header of a client takes them away.

mod body;
mod config;
mod query;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, StatusCode, Uri};
use pingora::http::RequestHeader;
use serde_json::{Map, Value};

use crate::settings::UNEXPECTED;
use crate::template::Request;
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_net::telemetry::metrics::Counter;
use doorward_plugin_api::filter::{Code, Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Kind, Parts};

use body::BodyType;
use config::{Config, Text};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "request-transformer",
    priority: 801,
    of_consumers: true,
    schema: config::schema,
    codes: || vec![TEMPLATE_FAILED, DOTS, PARTS],
    build,
};

const TEMPLATE_FAILED: Code = Code::new(
    "template_failed",
    500,
    "a template of request-transformer has no text for this request",
);
const DOTS: Code = Code::new(
    "path_with_dots",
    400,
    "the request has put `..` into a path that request-transformer makes",
);

const PARTS: Code = Code::new(
    "malformed_parts",
    400,
    "a form in parts may be read in several ways, and request-transformer has rules on it",
);

/// A running filter.
struct RequestTransformer {
    config: Config,
    passed: Counter,
    failed: Counter,
}

/// What templates have come to for one request, in the order of the templates.
struct Rendered(Vec<String>);

/// Parameters of a form that join the query of a request without a body.
struct FormQuery(String);

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let decision = |decision| parts.metrics.decision(KIND.name, decision);
    Ok(Arc::new(RequestTransformer {
        config: Config::read(config)?,
        passed: decision("pass"),
        failed: decision("error"),
    }))
}

impl RequestTransformer {
    /// The texts of all templates, or why there is one that has none.
    fn render(&self, request: &Request<'_>) -> Result<Rendered, &'static Code> {
        let templates = self.config.templates.iter();
        let texts = templates.map(|template| template.render(request));
        let texts: Result<Vec<_>, _> = texts.collect();
        let rendered = Rendered(texts.map_err(|_| &TEMPLATE_FAILED)?);
        // What the configuration itself says is meant.
        if let Some(path @ Text::Template(_)) = &self.config.uri
            && has_dots(rendered.text(path))
        {
            return Err(&DOTS);
        }
        Ok(rendered)
    }
}

impl RequestTransformer {
    /// What the body is for the rules on it, and the type that says so: header rules
    /// come first.
    fn body_type(
        &self,
        request: &RequestHeader,
        rendered: &Rendered,
    ) -> Option<(BodyType, String)> {
        let mut fields = request.headers.clone();
        let rules = &self.config.headers;
        rules.apply(&mut fields, |text| rendered.value(text));
        let content_type = fields.get(CONTENT_TYPE)?.to_str().ok()?;
        Some((BodyType::of(&fields)?, content_type.to_owned()))
    }

    /// Whether a form's parameters join the query.
    fn moves_form(&self, request: &RequestHeader) -> bool {
        self.config.method == Some(Method::GET)
            && BodyType::of(&request.headers) == Some(BodyType::Form)
            && request.method != Method::HEAD
    }

    /// Changes the body, which has been read.
    fn change_body(
        &self,
        request: &RequestHeader,
        rendered: &Rendered,
        exchange: &mut Exchange,
    ) -> Result<(), &'static Code> {
        let body = exchange.replacement.as_ref().or(exchange.body.as_ref());
        let Some(body) = body.cloned() else {
            return Ok(());
        };
        if self.moves_form(request)
            && let Some(query) = body::as_query(&body)
        {
            exchange.notes.push(Box::new(FormQuery(query)));
        }
        let rules = &self.config.body;
        if rules.is_empty() {
            return Ok(());
        }
        if let Some((body_type, content_type)) = self.body_type(request, rendered) {
            let kind = (body_type, content_type.as_str());
            let other = body::apply(rules, kind, &body, |text| rendered.text(text));
            if let Some(other) = other.map_err(|_| &PARTS)? {
                exchange.replacement = Some(other);
            }
        }
        Ok(())
    }

    /// The answer to a request that can't be changed.
    fn refuse(&self, exchange: &mut Exchange, code: &'static Code) -> Verdict {
        self.failed.inc();
        exchange.refusal = Some(Cow::Borrowed(code.code));
        Verdict::Now(Flow::Respond(match code.status {
            400 => Reply::message(StatusCode::BAD_REQUEST, "Bad request"),
            _ => Reply::message(StatusCode::INTERNAL_SERVER_ERROR, UNEXPECTED),
        }))
    }
}

impl Rendered {
    fn text<'a>(&'a self, text: &'a Text) -> &'a str {
        match text {
            Text::Constant(text, _) => text,
            Text::Template(at) => self.0.get(*at).map_or("", String::as_str),
        }
    }

    /// As a header's value. Control characters, which a query can hold, are
    /// written as `%0A`: no caller adds headers of its own.
    fn value(&self, text: &Text) -> HeaderValue {
        if let Text::Constant(_, value) = text {
            return value.clone();
        }
        let text = self.text(text);
        let control = |b: u8| b < b' ' || b == 0x7f;
        let text = if text.bytes().any(control) {
            let escape = |b: u8| {
                if control(b) {
                    format!("%{b:02X}").into_bytes()
                } else {
                    vec![b]
                }
            };
            Cow::Owned(text.bytes().flat_map(escape).collect())
        } else {
            Cow::Borrowed(text.as_bytes())
        };
        HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
    }
}

/// Whether a part of the path leads up or nowhere, however it is written.
fn has_dots(path: &str) -> bool {
    let mut parts = path.split(['/', '\\']);
    parts.any(|part| {
        let part = part.to_ascii_lowercase().replace("%2e", ".");
        part == "." || part == ".."
    })
}

/// A path in which every byte is one that a path may have.
fn escaped(path: &str) -> String {
    let mut out = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        out.push('/');
    }
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => out.push(char::from(byte)),
            _ if b"-._~!$&'()*+,;=:@/%".contains(&byte) => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[async_trait]
impl Filter for RequestTransformer {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        if self.config.templates.is_empty() {
            let none = Rendered(Vec::new());
            if exchange.body.is_some()
                && let Err(code) = self.change_body(session.req_header(), &none, exchange)
            {
                return self.refuse(exchange, code);
            }
            self.passed.inc();
            return Verdict::Now(Flow::Continue);
        }
        let rendered = self.render(&Request {
            parts: session.req_header(),
            exchange,
        });
        let changed = rendered.and_then(|rendered| {
            self.change_body(session.req_header(), &rendered, exchange)?;
            Ok(rendered)
        });
        match changed {
            Ok(rendered) => {
                self.passed.inc();
                exchange.notes.push(Box::new(rendered));
                Verdict::Now(Flow::Continue)
            }
            Err(code) => self.refuse(exchange, code),
        }
    }

    fn reads_heads(&self) -> bool {
        false
    }

    async fn explain(&self, _: &RequestHeader, _: &mut Exchange) -> Option<FilterExplanation> {
        Some(if self.config.templates.is_empty() {
            FilterExplanation::passes("it changes what the upstream gets")
        } else {
            FilterExplanation::depends("what its templates come to")
        })
    }

    fn wants_body(&self, request: &RequestHeader, _: &Exchange) -> bool {
        if self.moves_form(request) {
            return true;
        }
        if self.config.body.is_empty() {
            return false;
        }
        // A rule may give the request the type by which its body is changed.
        let names =
            |list: &[(http::HeaderName, Text)]| list.iter().any(|(name, _)| *name == CONTENT_TYPE);
        let headers = &self.config.headers;
        let retyped = headers.rename.iter().any(|(_, new)| *new == CONTENT_TYPE)
            || names(&headers.replace)
            || names(&headers.add)
            || names(&headers.append);
        retyped || BodyType::of(&request.headers).is_some()
    }

    fn needs_route(&self) -> bool {
        !self.config.templates.is_empty()
    }

    fn on_upstream_request(&self, exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
        let none = Rendered(Vec::new());
        let mut notes = exchange.notes.iter();
        let rendered = notes.find_map(|note| note.downcast_ref()).unwrap_or(&none);
        let config = &self.config;
        if let Some(path) = &config.uri {
            set_target(request, |query| {
                let path = escaped(rendered.text(path));
                match query {
                    Some(query) => format!("{path}?{query}"),
                    None => path,
                }
            });
        }
        if let Some(method) = &config.method
            && request.method != Method::HEAD
        {
            request.parts_mut().method.clone_from(method);
        }
        config
            .headers
            .apply(request.fields(), |text| rendered.value(text));
        if let Some(host) = &config.host {
            request.fields().insert(HOST, rendered.value(host));
        }
        let mut notes = exchange.notes.iter();
        if let Some(FormQuery(more)) = notes.find_map(|note| note.downcast_ref()) {
            let path = request.uri.path().to_owned();
            set_target(request, |query| match query {
                Some(query) if !query.is_empty() => format!("{path}?{query}&{more}"),
                _ => format!("{path}?{more}"),
            });
        }
        if !config.query.is_empty() {
            let path = request.uri.path().to_owned();
            set_target(request, |query| {
                let query = query.unwrap_or_default();
                let query = config.query.apply_to(query, |text| rendered.text(text));
                if query.is_empty() {
                    path
                } else {
                    format!("{path}?{query}")
                }
            });
        }
    }
}

/// Gives the request the target that is made of its query.
fn set_target(request: &mut UpstreamRequest<'_>, target: impl FnOnce(Option<&str>) -> String) {
    let target = target(request.uri.query());
    if let Ok(uri) = Uri::try_from(target) {
        request.parts_mut().uri = uri;
    }
}
