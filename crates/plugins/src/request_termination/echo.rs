//! The answer of `echo`: what the gateway has made of the request.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, StatusCode};
use pingora::http::RequestHeader;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::request_tables::{one_or_list, parameters, put};
use doorward_net::host;
use doorward_net::http::form::{is_form, is_json, is_multipart};
use doorward_net::http::multipart::MultipartForm;
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_net::http::session::Session;
use doorward_net::telemetry::Metrics;
use doorward_plugin_api::filter::{Exchange, RouteContext};

/// What every answer has in common.
pub(super) struct Echo {
    pub(super) status: StatusCode,
    message: Option<Box<str>>,
    hostname: String,
    metrics: Arc<Metrics>,
}

impl Echo {
    pub(super) fn new(status: StatusCode, message: Option<&str>, metrics: &Arc<Metrics>) -> Self {
        Self {
            status,
            message: message.map(Box::from),
            hostname: host::name(),
            metrics: Arc::clone(metrics),
        }
    }

    /// The answer to a request. It is for the client alone that has sent it.
    pub(super) fn reply(&self, session: &Session, exchange: &Exchange) -> Reply {
        let context = exchange.route_context.as_deref();
        let records = context.and_then(|context| context.records.as_deref());
        let mut body = json!({
            "kong": {
                "node_id": self.metrics.kong.node_id(),
                "worker_pid": std::process::id(),
                "hostname": self.hostname,
            },
            "request": request(session, exchange, context),
        });
        if let Some(message) = &self.message {
            body["message"] = (**message).into();
        }
        if let Some(records) = records {
            body["matched_route"] = entity(records.route());
            if let Some(service) = records.service() {
                body["matched_service"] = entity(service);
            }
        }
        let json_type = HeaderValue::from_static("application/json; charset=utf-8");
        let mut reply = Reply::empty(self.status)
            .header(CONTENT_TYPE, json_type)
            .header(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        reply.body = ReplyBody::Own(body.to_string().into());
        reply
    }
}

/// Records are plain data: they have no form that can't be written.
fn entity(record: &impl Serialize) -> Value {
    serde_json::to_value(record).unwrap_or_default()
}

fn request(session: &Session, exchange: &Exchange, context: Option<&RouteContext>) -> Value {
    let head = session.req_header();
    let original = exchange.original.as_deref();
    let path = original.map_or(&head.uri, |original| &original.uri).path();
    let scheme = if exchange.handshake.is_some() {
        "https"
    } else {
        "http"
    };
    let host = host_of(head).unwrap_or_default();
    let mut headers = headers(&head.headers);
    if !host.is_empty() && !head.headers.contains_key(HOST) {
        // HTTP/2 says it elsewhere.
        headers.insert("host".to_owned(), host.as_str().into());
    }
    let body = exchange.replacement.as_ref().or(exchange.body.as_ref());
    let body = body.cloned().unwrap_or_default();
    let mut request = json!({
        "scheme": scheme,
        "host": host,
        "port": exchange.local.map(|local| local.port()),
        "headers": headers,
        "query": parameters(head.uri.query().unwrap_or_default(), |_| false),
        "raw_body": String::from_utf8_lossy(&body),
        "method": head.method.as_str(),
        "path": path,
        "uri_captures": captures(context),
    });
    if let Some(read) = read(&head.headers, &body) {
        request["body"] = read;
    }
    request
}

/// The host that was asked for, without its port.
fn host_of(head: &RequestHeader) -> Option<String> {
    let named = || {
        let host = head.headers.get(HOST)?;
        Authority::try_from(host.as_bytes()).ok()
    };
    let authority = head.uri.authority().cloned().or_else(named)?;
    Some(authority.host().to_ascii_lowercase())
}

fn headers(headers: &HeaderMap) -> Map<String, Value> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let all = headers.keys().map(|name| {
        let values = headers.get_all(name).iter();
        let values = one_or_list(values.map(|value| text(value).into()));
        (name.as_str().to_owned(), values)
    });
    all.collect()
}

/// What the groups of the route's path have matched.
fn captures(context: Option<&RouteContext>) -> Value {
    let (mut named, mut unnamed) = (Map::new(), Vec::new());
    let all = context.map_or(&[][..], |context| &context.captures);
    for (name, text) in all {
        match name.parse::<usize>() {
            // The whole path.
            Ok(0) => {}
            Ok(_) => unnamed.push(Value::from(&**text)),
            Err(_) => drop(named.insert(name.to_string(), (**text).into())),
        }
    }
    json!({"named": named, "unnamed": unnamed})
}

/// The body as an object, where its type says how to read it.
fn read(headers: &HeaderMap, body: &Bytes) -> Option<Value> {
    if is_form(headers) {
        let form = std::str::from_utf8(body).ok()?;
        return Some(parameters(form, |_| false).into());
    }
    if is_multipart(headers) {
        let mut object = Map::new();
        for part in MultipartForm::read(headers, body)?.parts {
            put(
                &mut object,
                part.name,
                String::from_utf8_lossy(part.value).into(),
            );
        }
        return Some(object.into());
    }
    if is_json(headers) {
        return serde_json::from_slice(body).ok();
    }
    None
}
