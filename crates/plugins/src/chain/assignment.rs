//! `AssignmentFilter`: values of a request or an answer, or names for later
//! expressions, are given.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::{HeaderName, Method, StatusCode};
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::{Map, Value};

use super::ObjectLookup;
use super::field::{self, is_gateways};
use super::object::{AnyValue, Field, Object, object};
use super::path_rewrite::with_path;
use super::settings::{Place, Reading, Settings};
use doorward_expr::{self as expr, Expression, Scope};
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::session::Session;
use doorward_net::telemetry::Counter;
use doorward_plugin_api::filter::{Exchange, Filter, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Parts};

/// Most assignments of a filter to each kind of message.
const MAX_ASSIGNMENTS: usize = 256;

/// Assigns.
struct AssignmentFilter {
    of_request: Vec<Assignment>,
    of_response: Vec<Assignment>,
    /// Header fields of requests that the gateway writes too.
    in_place: Vec<HeaderName>,
    /// Values that their targets can't have: dropped.
    illegal: Counter,
    warnings: Vec<String>,
}

struct Assignment {
    condition: Option<Expression>,
    target: Target,
    value: Expression,
}

/// What is given a value.
enum Target {
    /// A name of `attributes`.
    Attribute(Box<str>),
    /// A header field: null takes it out.
    Header(HeaderName),
    Method,
    Path,
    Status,
}

pub(super) fn build(
    config: &Map<String, Value>,
    parts: &Parts,
    named: ObjectLookup<'_>,
) -> Result<Arc<dyn Filter>, ConfigError> {
    Reading::new(parts, named).filter(
        config,
        |settings| AssignmentFilter::read(settings, parts),
        |filter| &mut filter.warnings,
    )
}

impl AssignmentFilter {
    fn read(settings: &Settings<'_>, parts: &Parts) -> Result<Self, ConfigError> {
        let fields = Fields::read(settings)?;
        let of_request = assignments(&fields.on_request, true)?;
        let headers = of_request.iter().filter_map(|one| match &one.target {
            Target::Header(name) => Some(name),
            _ => None,
        });
        Ok(Self {
            in_place: field::gateways_of(headers),
            of_request,
            of_response: assignments(&fields.on_response, false)?,
            illegal: parts.metrics.decision("AssignmentFilter", "illegal_value"),
            warnings: Vec::new(),
        })
    }
}

object! {
    struct Fields<'a> {
        on_request as "onRequest": AnyValue,
        on_response as "onResponse": AnyValue,
    }
    idle {}
}

object! {
    /// One item of either list. Its values may be texts, numbers, true or false.
    struct AssignmentFields<'a> {
        target: AnyValue,
        value: AnyValue,
        condition: AnyValue,
    }
    idle {}
}

fn assignments(
    list: &Field<'_, AnyValue>,
    on_request: bool,
) -> Result<Vec<Assignment>, ConfigError> {
    let items = match list.value() {
        None => return Ok(Vec::new()),
        Some(Value::Array(items)) if items.len() <= MAX_ASSIGNMENTS => items,
        Some(_) => {
            let message = format!("must be a list of at most {MAX_ASSIGNMENTS} assignments");
            return Err(list.wrong(message));
        }
    };
    let items = items.iter().enumerate();
    let items = items.map(|(i, item)| Assignment::read(&list.at(i), item, on_request));
    items.collect()
}

impl Assignment {
    fn read(place: &Place<'_>, item: &Value, on_request: bool) -> Result<Self, ConfigError> {
        let Value::Object(item) = item else {
            return Err(place.wrong("must be an object with `target` and `value`"));
        };
        let fields = AssignmentFields::read(&place.inner(item))?;
        let text = fields.target.value().and_then(Value::as_str);
        let target = text.and_then(|text| target_of(text, on_request));
        let target = target.ok_or_else(|| {
            let all = if on_request {
                "${attributes.name}, ${request.headers['Name']}, ${request.method} or \
                 ${request.uri.path}"
            } else {
                "${response.headers['Name']} or ${response.status}"
            };
            fields.target.wrong(format!("must be one of: {all}"))
        })?;
        if let Target::Header(name) = &target {
            field::name(&fields.target, name.as_str())?;
        }
        let value = match compiled(&fields.value, on_request)? {
            Some(value) => value,
            None => fields.value.compile("${null}")?,
        };
        Ok(Self {
            condition: compiled(&fields.condition, on_request)?,
            target,
            value,
        })
    }
}

/// The expression of a field, if it has one.
fn compiled(
    field: &Field<'_, AnyValue>,
    on_request: bool,
) -> Result<Option<Expression>, ConfigError> {
    let text = match field.value() {
        None => return Ok(None),
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Bool(_) | Value::Number(_))) => format!("${{{value}}}"),
        Some(_) => return Err(field.wrong("must be a text")),
    };
    let compiled = field.compile(&text)?;
    if on_request && compiled.needs_response() {
        return Err(field.wrong("looks at the response, and there is none yet"));
    }
    Ok(Some(compiled))
}

/// What a text such as `${request.headers['X-A']}` names.
fn target_of(text: &str, on_request: bool) -> Option<Target> {
    let inner = text.trim().strip_prefix("${")?.strip_suffix('}')?.trim();
    let (of, rest) = inner.split_at(inner.find(['.', '['])?);
    match (of, on_request) {
        ("attributes", true) => {
            let name = member(rest)?;
            // What was verified is not overwritten.
            (name != "openid").then(|| Target::Attribute(name.into()))
        }
        ("request", true) => match rest {
            ".method" => Some(Target::Method),
            ".uri.path" | ".uri.rawPath" => Some(Target::Path),
            _ => header(rest),
        },
        ("response", false) => match rest {
            ".status" | ".status.code" => Some(Target::Status),
            _ => header(rest),
        },
        _ => None,
    }
}

fn header(rest: &str) -> Option<Target> {
    let rest = rest.strip_prefix(".headers")?;
    let name = member(rest.strip_suffix("[0]").unwrap_or(rest))?;
    HeaderName::try_from(name).ok().map(Target::Header)
}

/// The name in `.name`, `['name']` or `["name"]`.
fn member(text: &str) -> Option<&str> {
    let name = match text.strip_prefix('.') {
        Some(name) => {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            return (!name.is_empty() && name.chars().all(plain)).then_some(name);
        }
        None => text.strip_prefix('[')?.strip_suffix(']')?.trim(),
    };
    let quoted = |quote: char| name.strip_prefix(quote)?.strip_suffix(quote);
    let name = quoted('\'').or_else(|| quoted('"'))?;
    (!name.is_empty() && !name.contains(['\'', '"', '\\'])).then_some(name)
}

impl Assignment {
    /// Whether it is to be made; null and what is no truth are none.
    fn is_made(&self, scope: &Scope<'_>) -> bool {
        let is_true =
            |condition: &Expression| matches!(condition.evaluate(scope), expr::Value::Bool(true));
        self.condition.as_ref().is_none_or(is_true)
    }

    fn needs_body(&self) -> bool {
        self.value.needs_body() || self.condition.as_ref().is_some_and(Expression::needs_body)
    }

    /// Makes it; whether the target can have the value.
    fn to_request(&self, request: &mut RequestHeader, exchange: &mut Exchange) -> bool {
        if !self.is_made(&exchange.scope(request)) {
            return true;
        }
        let scope = exchange.scope(request);
        match &self.target {
            Target::Attribute(name) => {
                let value = self.value.evaluate(&scope).into_owned();
                exchange.attributes.retain(|(known, _)| known != name);
                exchange.attributes.push((name.clone(), value));
                true
            }
            Target::Header(name) => {
                let value = self.value.text(&scope);
                let value = value.map(|text| field::legal(name, &text)).transpose();
                let Ok(value) = value else {
                    return false;
                };
                request.remove_header(name);
                if is_gateways(name) {
                    field::put_in_place(exchange, name, None);
                }
                if let Some(value) = value {
                    field::add(request, exchange, name, value);
                }
                true
            }
            Target::Method => {
                let method = self.value.text(&scope);
                let method = method.and_then(|text| Method::from_bytes(text.as_bytes()).ok());
                // The answer to HEAD has no body that another method's would have.
                let good = |method: &Method| {
                    let fits = *method != Method::CONNECT && *method != Method::HEAD;
                    fits && request.method != Method::HEAD
                };
                let Some(method) = method.filter(good) else {
                    return false;
                };
                exchange.keep_original(request);
                request.set_method(method);
                true
            }
            Target::Path => {
                let path = self.value.text(&scope);
                let path = path.filter(|path| path.starts_with('/') && !path.contains(['?', '#']));
                let Some(uri) = path.and_then(|path| with_path(&request.uri, &path)) else {
                    return false;
                };
                exchange.keep_original(request);
                request.set_uri(uri);
                true
            }
            Target::Status => true,
        }
    }

    fn to_response(
        &self,
        request: &RequestHeader,
        exchange: &Exchange,
        response: &mut ResponseHeader,
    ) -> bool {
        let scope = exchange.scope_with_response(request, response);
        if !self.is_made(&scope) {
            return true;
        }
        match &self.target {
            Target::Header(name) => {
                let value = self.value.text(&scope);
                let value = value.map(|text| field::legal(name, &text)).transpose();
                let Ok(value) = value else {
                    return false;
                };
                response.remove_header(name);
                if let Some(value) = value {
                    let _ = response.append_header(name.clone(), value);
                }
                true
            }
            Target::Status => {
                let number = match self.value.evaluate(&scope) {
                    expr::Value::Integer(number) => u16::try_from(number).ok(),
                    expr::Value::Text(text) => text.parse().ok(),
                    _ => None,
                };
                // Neither one without a body nor from one without.
                let bare = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED];
                let status = number.filter(|number| (200..=599).contains(number));
                let status = status.and_then(|number| StatusCode::from_u16(number).ok());
                let fits = |status: &StatusCode| {
                    let upgraded = response.status == StatusCode::SWITCHING_PROTOCOLS;
                    !upgraded && !bare.contains(status) && !bare.contains(&response.status)
                };
                let Some(status) = status.filter(fits) else {
                    return false;
                };
                response.set_status(status).is_ok()
            }
            Target::Attribute(_) | Target::Method | Target::Path => true,
        }
    }
}

impl Filter for AssignmentFilter {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        let request = session.req_header_mut();
        for assignment in &self.of_request {
            if !assignment.to_request(request, exchange) {
                self.illegal.inc();
            }
        }
        Verdict::Now(Flow::Continue)
    }

    fn needs_body(&self) -> bool {
        let mut all = self.of_request.iter().chain(&self.of_response);
        all.any(Assignment::needs_body)
    }

    fn on_upstream_request(&self, exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
        field::write_in_place(&self.in_place, exchange, request.fields());
    }

    fn on_response_to(
        &self,
        request: &RequestHeader,
        exchange: &Exchange,
        response: &mut ResponseHeader,
    ) {
        for assignment in &self.of_response {
            if !assignment.to_response(request, exchange, response) {
                self.illegal.inc();
            }
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}
