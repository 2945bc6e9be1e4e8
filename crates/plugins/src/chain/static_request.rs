//! `StaticRequestFilter`: another request takes the place of the client's.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use pingora::http::RequestHeader;
use serde_json::{Map, Value};
use url::form_urlencoded::Serializer;

use super::ObjectLookup;
use super::field::{self, Source};
use super::object::{Field, Object, TextLists, object};
use super::settings::{Reading, Settings};
use doorward_expr::{Expression, Scope};
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::path::with_path_and_query;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_net::telemetry::Counter;
use doorward_plugin_api::filter::{Exchange, Filter, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Parts};

/// Fields of the client's request by which its end and its connection are
/// known: they stay, or the next request would begin in the wrong place.
const KEPT: [HeaderName; 5] = [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, EXPECT];
const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");

object! {
    struct Fields<'a> {
        method: String,
        version: Option<String>,
        headers: TextLists,
        uri: Expression,
        entity: Option<Expression>,
        form: TextLists,
    }
    idle {}
}

/// Replaces requests.
struct StaticRequest {
    method: Method,
    uri: Target,
    headers: Vec<(HeaderName, Source)>,
    content: Content,
    /// Those of `headers` that the gateway writes too.
    in_place: Vec<HeaderName>,
    illegal: Counter,
    failed: Counter,
    warnings: Vec<String>,
}

/// Where the request goes.
enum Target {
    Fixed(Uri),
    Evaluated(Expression),
}

/// What it brings.
enum Content {
    Nothing,
    Form(Vec<(String, Expression)>),
    Entity(Expression),
}

/// What takes the place of a request.
struct ReplacementRequest {
    uri: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

pub(super) fn build(
    config: &Map<String, Value>,
    parts: &Parts,
    named: ObjectLookup<'_>,
) -> Result<Arc<dyn Filter>, ConfigError> {
    Reading::new(parts, named).filter(
        config,
        |settings| StaticRequest::read(settings, parts),
        |filter| &mut filter.warnings,
    )
}

impl StaticRequest {
    fn read(settings: &Settings<'_>, parts: &Parts) -> Result<Self, ConfigError> {
        let fields = Fields::read(settings)?;
        let method = Method::from_bytes(fields.method.value.as_bytes()).ok();
        let method = method.filter(|method| *method != Method::CONNECT);
        let method =
            method.ok_or_else(|| fields.method.wrong("must be a method other than CONNECT"))?;
        if method == Method::HEAD {
            let message = "is GET for clients that do not ask with HEAD";
            fields.method.warn(message);
        }
        let version = fields.version.value.as_deref();
        if version.is_some_and(|version| version != "HTTP/1.1") {
            let message = "has no effect: the upstream's protocol decides";
            fields.version.warn(message);
        }
        let headers = field::sources(&fields.headers, |name, given| {
            (*name == HOST && given != 1).then_some("a request has one Host")
        })?;
        let decision = |decision| parts.metrics.decision("StaticRequestFilter", decision);
        Ok(Self {
            uri: Target::read(fields.uri)?,
            content: Content::read(fields.entity, &fields.form)?,
            in_place: field::gateways_of(headers.iter().map(|(name, _)| name)),
            method,
            headers,
            illegal: decision("illegal_value"),
            failed: decision("error"),
            warnings: Vec::new(),
        })
    }

    /// The request that takes the place of the one in `scope`; `None`: its
    /// target can't be had.
    fn make(&self, scope: &Scope<'_>) -> Option<ReplacementRequest> {
        let mut uri = match &self.uri {
            Target::Fixed(uri) => uri.clone(),
            Target::Evaluated(expression) => target(&expression.text(scope)?)?,
        };
        let mut headers = Vec::with_capacity(self.headers.len() + 1);
        for (name, source) in &self.headers {
            match source.value(name, scope) {
                Ok(Some(value)) => headers.push((name.clone(), value)),
                Ok(None) => {}
                Err(_) => self.illegal.inc(),
            }
        }
        let mut body = Bytes::new();
        match &self.content {
            Content::Nothing => {}
            Content::Entity(entity) => {
                let text = entity.text(scope).unwrap_or_default();
                body = Bytes::from(text.into_owned());
            }
            Content::Form(fields) => {
                let form = form(fields, scope);
                if self.method == Method::POST {
                    headers.retain(|(name, _)| *name != CONTENT_TYPE);
                    headers.push((CONTENT_TYPE, FORM));
                    body = Bytes::from(form);
                } else if !form.is_empty() {
                    uri = with_query(&uri, &form)?;
                }
            }
        }
        Some(ReplacementRequest { uri, headers, body })
    }

    fn put(&self, made: ReplacementRequest, request: &mut RequestHeader, exchange: &mut Exchange) {
        exchange.keep_original(request);
        let names: Vec<HeaderName> = request.headers.keys().cloned().collect();
        for name in names.iter().filter(|name| !KEPT.contains(name)) {
            request.remove_header(name);
        }
        // What was said about the connection's end is all that still counts.
        let close = |value: &HeaderValue| {
            let mut words = value.as_bytes().split(|byte| *byte == b',');
            words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"))
        };
        let closes = request.headers.get_all(CONNECTION).iter().any(close);
        request.remove_header(&CONNECTION);
        if closes {
            let _ = request.insert_header(CONNECTION, HeaderValue::from_static("close"));
        }
        exchange.in_place.clear();
        for (name, value) in made.headers {
            field::add(request, exchange, &name, value);
        }
        // Other clients would wait for a body that nobody sends.
        let method = if self.method == Method::HEAD && request.method != Method::HEAD {
            Method::GET
        } else {
            self.method.clone()
        };
        request.set_method(method);
        let uri = at_base(made.uri, &request.uri);
        request.set_uri(uri);
        exchange.body = Some(made.body.clone());
        exchange.replacement = Some(made.body);
    }
}

impl Filter for StaticRequest {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        let Some(made) = self.make(&exchange.scope(session.req_header())) else {
            self.failed.inc();
            exchange.refusal = Some("no_uri".into());
            let reply = Reply::empty(StatusCode::INTERNAL_SERVER_ERROR);
            return Verdict::Now(Flow::Respond(reply));
        };
        self.put(made, session.req_header_mut(), exchange);
        Verdict::Now(Flow::Continue)
    }

    fn needs_body(&self) -> bool {
        let content = match &self.content {
            Content::Nothing => false,
            Content::Form(fields) => fields.iter().any(|(_, value)| value.needs_body()),
            Content::Entity(entity) => entity.needs_body(),
        };
        let uri = matches!(&self.uri, Target::Evaluated(uri) if uri.needs_body());
        content || uri || self.headers.iter().any(|(_, value)| value.needs_body())
    }

    fn may_rebase(&self) -> bool {
        match &self.uri {
            Target::Fixed(uri) => uri.authority().is_some(),
            Target::Evaluated(_) => true,
        }
    }

    fn on_upstream_request(&self, exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
        field::write_in_place(&self.in_place, exchange, request.fields());
        request.remove(&EXPECT);
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}

impl Target {
    fn read(uri: Field<'_, Expression>) -> Result<Self, ConfigError> {
        let fixed = match uri.value.constant() {
            None => return Ok(Self::Evaluated(uri.value)),
            Some(doorward_expr::Value::Text(text)) => target(&text),
            Some(_) => None,
        };
        let message = "must be an http or https URL, or a path that begins with /";
        fixed.map(Self::Fixed).ok_or_else(|| uri.wrong(message))
    }
}

impl Content {
    fn read(
        entity: Field<'_, Option<Expression>>,
        form: &Field<'_, TextLists>,
    ) -> Result<Self, ConfigError> {
        let mut fields = Vec::new();
        for (name, texts) in &form.value {
            let place = form.at(name);
            let name = place.evaluated(name)?;
            for text in texts {
                fields.push((name.clone(), place.compile(text)?));
            }
        }
        match entity.value {
            Some(_) if form.is_given() => {
                Err(entity.wrong("give either `form` or `entity`, not both"))
            }
            Some(entity) => Ok(Self::Entity(entity)),
            None if form.is_given() => Ok(Self::Form(fields)),
            None => Ok(Self::Nothing),
        }
    }
}

/// An absolute URL of HTTP, or path and query alone.
fn target(text: &str) -> Option<Uri> {
    let uri = Uri::try_from(text).ok()?;
    let good = match (uri.scheme_str(), uri.authority()) {
        (None, None) => text.starts_with('/'),
        (Some("http" | "https"), Some(authority)) => {
            !authority.as_str().contains('@') && !authority.host().is_empty()
        }
        _ => false,
    };
    good.then_some(uri)
}

/// A path alone leads to where the request was going: to a `baseURI` that is in
/// force, for instance.
fn at_base(uri: Uri, now: &Uri) -> Uri {
    let (mut parts, now) = (uri.clone().into_parts(), now.clone().into_parts());
    if parts.authority.is_some() || now.authority.is_none() || now.scheme.is_none() {
        return uri;
    }
    (parts.scheme, parts.authority) = (now.scheme, now.authority);
    Uri::from_parts(parts).unwrap_or(uri)
}

fn form(fields: &[(String, Expression)], scope: &Scope<'_>) -> String {
    let mut form = Serializer::new(String::new());
    for (name, value) in fields {
        if let Some(value) = value.text(scope) {
            form.append_pair(name, &value);
        }
    }
    form.finish()
}

fn with_query(uri: &Uri, form: &str) -> Option<Uri> {
    let query = match uri.query() {
        Some(query) if !query.is_empty() => format!("{query}&{form}"),
        _ => form.to_owned(),
    };
    let target = format!("{}?{query}", uri.path());
    with_path_and_query(uri, &target)
}
