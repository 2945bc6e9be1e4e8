//! The JSON object of a request, as log plugins of the imitated gateway write it.

use std::borrow::Cow;
use std::time::Duration;

use http::{HeaderMap, HeaderName, header};
use serde_json::{Map, Value, json};
use url::form_urlencoded;
use uuid::Uuid;

use crate::request_tables::{REDACTED, one_or_list, parameters};
use crate::trace::{self, Trace};
use doorward_plugin_api::record::{Latencies, RequestRecord, Try};

/// Headers and parameters whose values are secrets, whatever the plugins.
const SECRETS: &[&str] = &[
    "authorization",
    "proxy-authorization",
    "cookie",
    "set-cookie",
    "apikey",
    "api_key",
    "x-api-key",
    "access_token",
    "refresh_token",
    "id_token",
    "id_token_hint",
    "client_secret",
    "client_assertion",
    "password",
    "token",
    "jwt",
    "code",
];
/// Headers whose values are addresses, which may have secrets in their parameters.
const ADDRESSES: &[HeaderName] = &[header::LOCATION, header::CONTENT_LOCATION, header::REFERER];

/// The object of a request.
pub(crate) fn object(record: &RequestRecord<'_>) -> Map<String, Value> {
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| drop(object.insert(name.to_owned(), value));
    put("request", request(record));
    put("upstream_uri", redacted(record, record.upstream.uri).into());
    put("upstream_status", upstream_status(record).into());
    put("response", response(record));
    put("latencies", latencies(&record.latencies));
    if let Some(tries) = record.upstream.tries {
        put("tries", tries.iter().map(one_try).collect());
    }
    if let Some(id) = record.credential() {
        let consumer = record.consumer().map(|consumer| consumer.id);
        put(
            "authenticated_entity",
            json!({"id": id, "consumer_id": consumer}),
        );
    }
    // Records are plain data: they have no form that can't be written.
    let entity = |entity: serde_json::Result<Value>| entity.unwrap_or(Value::Null);
    if let Some(route) = record.route {
        put("route", entity(serde_json::to_value(route)));
    }
    if let Some(service) = record.service {
        put("service", entity(serde_json::to_value(service)));
    }
    if let Some(consumer) = record.consumer() {
        put("consumer", entity(serde_json::to_value(consumer)));
    }
    let client = record.exchange.client.ip().to_canonical();
    put("client_ip", client.to_string().into());
    put("started_at", record.started_ms.into());
    put("source", source(record).into());
    put("workspace", workspace().to_string().into());
    put("workspace_name", "default".into());
    if let Some(id) = record.correlation_id() {
        put("correlation_id", id.into());
    }
    let traces = trace::traces(record.exchange).flat_map(Trace::ids);
    let ids: Map<String, Value> = traces
        .map(|(name, id)| (name.to_owned(), id.into()))
        .collect();
    if !ids.is_empty() {
        put("trace_id", ids.into());
    }
    object
}

/// The identifier of the one workspace, as the Admin API tells it.
pub(crate) fn workspace() -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_URL, b"doorward:workspace:default")
}

/// Who made the answer.
fn source(record: &RequestRecord<'_>) -> &'static str {
    if record.upstream.answered {
        "upstream"
    } else {
        "kong"
    }
}

fn request(record: &RequestRecord<'_>) -> Value {
    let facts = &record.request;
    let target = redacted(record, facts.target);
    let scheme = if facts.secure { "https" } else { "http" };
    let mut headers = headers(record, facts.headers);
    if !facts.headers.contains_key(header::HOST) && !facts.host().is_empty() {
        // HTTP/2 says it elsewhere.
        headers.insert("host".to_owned(), facts.host().into());
    }
    let mut request = json!({
        "id": facts.id,
        "uri": target,
        "url": format!("{scheme}://{}:{}{target}", facts.host(), facts.port),
        "querystring": querystring(record, facts.target),
        "method": facts.method.as_str(),
        "headers": headers,
        "size": facts.size(),
    });
    if let Some(tls) = facts.tls {
        let verified = if tls.client_verified {
            "SUCCESS"
        } else {
            "NONE"
        };
        request["tls"] = json!({
            "version": tls.version,
            "cipher": tls.cipher,
            "client_verify": verified,
        });
    }
    request
}

fn response(record: &RequestRecord<'_>) -> Value {
    let facts = &record.response;
    let headers = facts.headers.map(|all| headers(record, all));
    json!({
        "status": facts.status,
        "headers": headers.unwrap_or_default(),
        "size": facts.size(),
    })
}

/// Whether the value of this header, cookie or parameter is a secret.
fn is_secret(record: &RequestRecord<'_>, name: &str) -> bool {
    let is = |other: &str| other.eq_ignore_ascii_case(name);
    let of_filters = || record.secret_fields.iter().any(|field| is(field));
    SECRETS.iter().any(|secret| is(secret)) || of_filters()
}

/// Headers by their names in lower case; several values are a list.
fn headers(record: &RequestRecord<'_>, headers: &HeaderMap) -> Map<String, Value> {
    let mut object = Map::new();
    for name in headers.keys() {
        let value = if is_secret(record, name.as_str()) {
            REDACTED.into()
        } else {
            let all = headers.get_all(name).iter();
            let texts = all.map(|value| String::from_utf8_lossy(value.as_bytes()));
            if ADDRESSES.contains(name) {
                one_or_list(texts.map(|text| redacted(record, &text).into()))
            } else {
                one_or_list(texts.map(Value::from))
            }
        };
        object.insert(name.as_str().to_owned(), value);
    }
    object
}

/// The parameters of a query.
fn querystring(record: &RequestRecord<'_>, target: &str) -> Map<String, Value> {
    let query = target.split_once('?').map_or("", |(_, query)| query);
    parameters(query, |name| is_secret(record, name))
}

/// An address whose query and fragment tell no secret.
fn redacted<'a>(record: &RequestRecord<'_>, address: &'a str) -> Cow<'a, str> {
    let secret = |part: &str| {
        let name = form_urlencoded::parse(part.as_bytes()).next();
        part.contains('=') && name.is_some_and(|(name, _)| is_secret(record, &name))
    };
    let parts = || address.split_inclusive(['?', '&', '#']);
    let bare = |part: &'a str| part.trim_end_matches(['?', '&', '#']);
    // The first part is the path.
    if !parts().skip(1).any(|part| secret(bare(part))) {
        return Cow::Borrowed(address);
    }
    let mut text = String::with_capacity(address.len());
    for (i, part) in parts().enumerate() {
        let inner = bare(part);
        match inner.split_once('=') {
            Some((name, _)) if i > 0 && secret(inner) => {
                text.push_str(name);
                text.push('=');
                text.push_str(REDACTED);
                text.push_str(&part[inner.len()..]);
            }
            _ => text.push_str(part),
        }
    }
    Cow::Owned(text)
}

/// The statuses of all tries, as the engine of the imitated gateway joins them.
fn upstream_status(record: &RequestRecord<'_>) -> String {
    let tries = record.upstream.tries.unwrap_or_default();
    let failures = tries.iter().filter_map(|one| one.failure);
    let all: Vec<String> = failures
        .chain(record.upstream.status)
        .map(|status| status.to_string())
        .collect();
    all.join(", ")
}

fn latencies(latencies: &Latencies) -> Value {
    json!({
        "request": millis(latencies.request),
        "kong": millis(latencies.gateway),
        "proxy": latencies.upstream.map_or(Value::from(-1), |time| millis(time).into()),
        "receive": millis(latencies.receive),
    })
}

/// Whole milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn one_try(attempt: &Try) -> Value {
    let mut object = json!({
        "ip": attempt.address.ip().to_canonical().to_string(),
        "port": attempt.address.port(),
        "balancer_start": attempt.started_ms,
        "balancer_start_ns": attempt.started_ms.saturating_mul(1_000_000),
        "balancer_latency": millis(attempt.choice),
        "balancer_latency_ns": u64::try_from(attempt.choice.as_nanos()).unwrap_or(u64::MAX),
    });
    if let Some(code) = attempt.failure {
        object["state"] = "failed".into();
        object["code"] = code.into();
    }
    object
}
