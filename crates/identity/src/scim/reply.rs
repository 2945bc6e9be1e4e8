//! Answers: records and lists of them, in SCIM's media type or as JSON.

use axum::response::Response;
use http::header::{CONTENT_TYPE, ETAG, LOCATION};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::body;
use super::record::RecordBase;
use crate::error::ScimError;
use crate::{Call, respond};
use doorward_store::StoreError;

/// The media type, as it stands in a header.
const SCIM: HeaderValue = HeaderValue::from_static(body::SCIM);

/// Why there is no list (RFC 7644 §3.12). One that takes too long is for the
/// client to change: the same would take as long again.
pub(super) fn unread(error: StoreError) -> ScimError {
    match error {
        StoreError::TooLong => {
            doorward_net::telemetry::warn_limited!(
                "a list of the directory took too long, and was given up"
            );
            let text = "The directory has too much to read for this; ask for less, by eq or sw.";
            ScimError::bad("tooMany", text)
        }
        error => error.into(),
    }
}

/// An answer with a body.
pub(super) fn record(call: &Call, status: StatusCode, body: &Value) -> Response {
    dressed(call, respond::json(status, body))
}

/// An answer whose JSON is written already.
pub(super) fn text(call: &Call, body: String) -> Response {
    dressed(call, respond::json_text(StatusCode::OK, body))
}

fn dressed(call: &Call, mut response: Response) -> Response {
    respond::never_stored(&mut response);
    let sent = call.headers().get(CONTENT_TYPE);
    let sent = sent.is_some_and(|kind| kind.as_bytes().starts_with(body::SCIM.as_bytes()));
    let asked = call.headers().get_all(http::header::ACCEPT).iter();
    let json = asked
        .filter_map(|range| range.to_str().ok())
        .any(|range| range.contains("application/json"));
    let preferred = body::accepts(call.headers()).unwrap_or(true);
    if preferred || (!json && (sent || RecordBase::of(call).standard)) {
        response.headers_mut().insert(CONTENT_TYPE, SCIM);
    }
    response
}

/// The list response (interface 2.2).
pub(super) fn list(
    call: &Call,
    records: Vec<Value>,
    total: u64,
    cookie: Option<String>,
    start: Option<u32>,
) -> Response {
    let mut body = head(call, records.len(), total, cookie, start);
    body["Resources"] = Value::Array(records);
    record(call, StatusCode::OK, &body)
}

/// A list response with all that there is.
pub(super) fn whole_list(call: &Call, all: Vec<Value>) -> Response {
    let body = json!({
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:ListResponse"],
        "totalResults": all.len(),
        "itemsPerPage": all.len(),
        "startIndex": 1,
        "Resources": all,
    });
    record(call, StatusCode::OK, &body)
}

/// As [`list`], of records whose JSON is written already.
pub(super) fn list_of(
    call: &Call,
    records: &[String],
    total: u64,
    cookie: Option<String>,
    start: Option<u32>,
) -> Response {
    let mut body = head(call, records.len(), total, cookie, start).to_string();
    body.pop();
    body.push_str(",\"Resources\":[");
    body.push_str(&records.join(","));
    body.push_str("]}");
    text(call, body)
}

/// A list response without its records.
fn head(
    call: &Call,
    count: usize,
    total: u64,
    cookie: Option<String>,
    start: Option<u32>,
) -> Value {
    let mut body = json!({
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:ListResponse"],
        "totalResults": total,
        "itemsPerPage": count,
    });
    if RecordBase::of(call).standard {
        body["startIndex"] = json!(start.unwrap_or(1))
    } else {
        // Where there is none it is null (interface 2.2).
        body["pagedResultsCookie"] = json!(cookie);
        if let Some(start) = start {
            body["startIndex"] = json!(start);
        }
    }
    body
}

/// 204.
pub(super) fn nothing() -> Response {
    let mut response = respond::empty(StatusCode::NO_CONTENT);
    respond::never_stored(&mut response);
    response
}

/// 304: the client has the version.
pub(super) fn not_modified(version: &str) -> Response {
    let mut response = respond::empty(StatusCode::NOT_MODIFIED);
    respond::never_stored(&mut response);
    tagged(&mut response, version);
    response
}

/// Names the version.
pub(super) fn tagged(response: &mut Response, version: &str) {
    if let Ok(tag) = HeaderValue::from_str(version) {
        response.headers_mut().insert(ETAG, tag);
    }
}

/// Names the record's address.
pub(super) fn located(response: &mut Response, address: &str) {
    if let Ok(address) = HeaderValue::from_str(address) {
        response.headers_mut().insert(LOCATION, address);
    }
}
