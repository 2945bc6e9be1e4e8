//! `/audit`: the audit log, page by page or as one stream.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::call::Call;
use super::entity::Answer;
use super::error::ApiError;
use super::openapi::entities::paging;
use super::reply;
use doorward_core::model::audit::AuditQuery;
use doorward_core::model::schema::nullable;
use doorward_core::openapi::{Operation, Parameter, fields, list_of, reference, text};
use doorward_gateway::control::ChangeError;
use doorward_store::{Store, StoreError};

const DEFAULT_SIZE: u32 = 100;
const MAX_SIZE: u32 = 1000;

/// Records of a stream that are in memory at once.
const PIECE: u32 = 1000;

/// One record a line (<https://github.com/ndjson/ndjson-spec>).
const LINES: HeaderValue = HeaderValue::from_static("application/x-ndjson");

/// `GET /audit`: the newest first; as a stream, the oldest first.
pub(super) fn list(call: Call) -> Answer {
    Box::pin(async move {
        let accept = call.headers.get(header::ACCEPT);
        let accept = accept.and_then(|value| value.to_str().ok());
        if accept.is_some_and(|accept| accept.contains("ndjson")) {
            return export_of(&call);
        }
        page(&call).await
    })
}

/// `GET /audit/export`: a record a line.
pub(super) fn export(call: Call) -> Answer {
    Box::pin(async move { export_of(&call) })
}

/// What the description says of the page.
pub(super) fn list_operation(_: &str) -> Operation {
    let page = list_of(&reference("audit-record"));
    Operation::new("Lists records of the audit log, the newest first.")
        .takes(paging())
        .takes(filters())
        .answers(200, "A page of them.", &page)
        .answers_as(200, "", "application/x-ndjson", &text())
}

/// What the description says of the stream.
pub(super) fn export_operation(_: &str) -> Operation {
    Operation::new("Streams records of the audit log, the oldest first.")
        .takes(filters())
        .answers_as(200, "A record a line.", "application/x-ndjson", &text())
}

fn filters() -> [Parameter; 9] {
    let time = "RFC 3339, a date, seconds since the epoch, or how long ago (`15m`, `24h`).";
    let word = |one_of: [&str; 2]| json!({"type": "string", "enum": one_of});
    let query = Parameter::query;
    [
        query("since", text(), &format!("Only from this time on: {time}")),
        query("until", text(), &format!("Only before this time: {time}")),
        query(
            "kind",
            text(),
            "Only of these kinds, with commas between; `token.*` is a family.",
        ),
        query("realm", text(), "Only of this realm."),
        query(
            "user",
            text(),
            "Only about this user, by identifier or by name at that time.",
        ),
        query("client", text(), "Only about this client."),
        query(
            "outcome",
            word(["success", "failure"]),
            "Only with this outcome.",
        ),
        query("address", text(), "Only of requests from this address."),
        query(
            "order",
            word(["newest", "oldest"]),
            "Which record comes first.",
        ),
    ]
}

/// A record of the audit log, as the description knows it.
pub(super) fn record_schema() -> Value {
    let actor = json!({
        "type": "object",
        "required": ["type"],
        "properties": {"type": text(), "id": nullable(text())},
    });
    let user = json!({
        "type": ["object", "null"],
        "properties": {"id": nullable(text()), "name": nullable(text())},
    });
    let or_null = || nullable(text());
    fields(
        [
            ("id", json!({"type": "string", "format": "uuid"})),
            ("time", json!({"type": "string", "format": "date-time"})),
            ("event", text()),
            ("realm", or_null()),
            ("actor", actor),
            ("user", user),
            ("client", or_null()),
            ("target", or_null()),
            ("address", or_null()),
            (
                "outcome",
                json!({"type": "string", "enum": ["success", "failure"]}),
            ),
            ("reason", or_null()),
            ("request_id", or_null()),
            ("tracking_id", or_null()),
            ("count", json!({"type": "integer", "minimum": 1})),
            ("details", json!({"type": "object"})),
        ],
        &[
            "id", "time", "event", "actor", "outcome", "count", "details",
        ],
    )
}

/// What the request asks for; `size` and `offset` apart.
fn asked(call: &Call, mut query: AuditQuery) -> Result<AuditQuery, ApiError> {
    let now_ms = call.state.clock.now_ms();
    for (name, value) in &call.query {
        if matches!(name.as_str(), "size" | "offset") {
            continue;
        }
        let set = query.set(name, value, now_ms);
        set.map_err(|message| ApiError::Option {
            option: name.clone().into(),
            message: message.into(),
        })?;
    }
    Ok(query)
}

async fn page(call: &Call) -> Result<Response, ApiError> {
    let find = |name: &str| call.query.iter().find(|(key, _)| key == name);
    let size = match find("size").map(|(_, size)| size.parse()) {
        None => DEFAULT_SIZE,
        Some(Ok(size)) if (1..=MAX_SIZE).contains(&size) => size,
        Some(_) => return Err(ApiError::Size("size must be an integer between 1 and 1000")),
    };
    let after = match find("offset") {
        None => None,
        Some((_, text)) => {
            let id = Uuid::try_parse(text);
            Some(id.map_err(|_| ApiError::Offset(text.clone()))?)
        }
    };
    let newest = AuditQuery {
        newest_first: true,
        after,
        limit: size + 1,
        ..AuditQuery::default()
    };
    let query = asked(call, newest)?;
    let found = call.state.store.audit(&query).await;
    let mut data = found.map_err(ChangeError::from)?;
    let more = data.len() > size as usize;
    data.truncate(size as usize);
    let last = data.last().and_then(id).filter(|_| more);
    let mut body = json!({"data": data, "next": null});
    if let Some(last) = last {
        let others = call.query.iter().filter(|(name, _)| name != "offset");
        let mut next = url::form_urlencoded::Serializer::new(String::new());
        next.append_pair("offset", &last).extend_pairs(others);
        body["next"] = format!("/audit?{}", next.finish()).into();
        body["offset"] = last.into();
    }
    Ok(reply::json(StatusCode::OK, &body))
}

fn id(record: &Map<String, Value>) -> Option<String> {
    record.get("id")?.as_str().map(str::to_owned)
}

fn export_of(call: &Call) -> Result<Response, ApiError> {
    let first = AuditQuery {
        limit: PIECE,
        ..AuditQuery::default()
    };
    let query = asked(call, first)?;
    let store = Arc::clone(&call.state.store);
    let pieces = stream::try_unfold(Some(query), move |query| {
        let store = Arc::clone(&store);
        async move {
            match query {
                Some(query) => piece(&store, query).await,
                None => Ok(None),
            }
        }
    });
    let mut response = Response::new(Body::from_stream(pieces));
    response.headers_mut().insert(header::CONTENT_TYPE, LINES);
    Ok(response)
}

/// The lines of the records that fit, and what to ask for next.
async fn piece(
    store: &Store,
    mut query: AuditQuery,
) -> Result<Option<(Bytes, Option<AuditQuery>)>, StoreError> {
    let records = store.audit(&query).await?;
    let Some(last) = records.last().and_then(id) else {
        return Ok(None);
    };
    let whole = records.len() >= query.limit as usize;
    query.after = Uuid::try_parse(&last).ok();
    let mut lines = Vec::new();
    for record in records {
        lines.extend(Value::Object(record).to_string().into_bytes());
        lines.push(b'\n');
    }
    Ok(Some((lines.into(), whole.then_some(query))))
}
