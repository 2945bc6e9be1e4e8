//! `/openapi.json`: what the Admin API takes and gives, in OpenAPI 3.1.
//!
//! The description is made of what serves: paths and methods are those of the
//! table in [`endpoints`], records those of the schemas that check them. It
//! depends on what the process was started with, and is made once.

pub(super) mod broker;
mod broker_tokens;
pub(super) mod entities;
mod plugins;
mod refusals;

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header;
use serde_json::{Value, json};

use super::call::Call;
use super::endpoint::Endpoint;
use super::entity::Answer;
use super::error::ApiError;
use super::{State, audit, endpoints, reply};
use doorward_core::openapi::{Document, Operation, fields, open_parts, text};
use doorward_gateway::entities::Kind;

/// What is said of the interface as a whole.
const ABOUT: &str = "Every path is also served with a trailing slash and below `/default`. \
    A path with GET answers HEAD, and every path answers OPTIONS. Bodies may also be forms, \
    URL-encoded or in parts, with dotted keys such as `config.rate.count`. What is answered \
    with 2xx is on disk and in force for the next request.";

/// `GET /openapi.json`.
pub(super) fn document(call: Call) -> Answer {
    Box::pin(async move {
        let state = Arc::clone(&call.state);
        Ok(shown(state.openapi.get_or_init(|| made(&state))))
    })
}

/// `GET /openapi/provider.json`.
pub(super) fn provider(call: Call) -> Answer {
    Box::pin(async move {
        let identity = call.state.identity.as_ref().ok_or(ApiError::NotFound)?;
        let provider = &call.state.provider;
        Ok(shown(
            provider.get_or_init(|| (identity.provider)().to_string().into()),
        ))
    })
}

/// `GET /openapi/token-broker.json`.
pub(super) fn token_broker(_: Call) -> Answer {
    Box::pin(async { Ok(shown(&broker_tokens::describe().to_string().into())) })
}

fn shown(text: &Bytes) -> Response {
    let mut response = Response::new(Body::from(text.clone()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, reply::JSON);
    response
}

fn schema() -> Value {
    let object = || json!({"type": "object"});
    let members = [("openapi", text()), ("paths", object())];
    let mut schema = fields(members, &["openapi", "paths"]);
    schema["additionalProperties"] = true.into();
    schema
}

/// What the description says of itself.
pub(super) fn document_operation(_: &str) -> Operation {
    let summary = "Describes this interface in OpenAPI 3.1.";
    Operation::new(summary).answers(200, "The description.", &schema())
}

/// What the description says of the provider's.
pub(super) fn provider_operation(_: &str) -> Operation {
    let summary = "Describes what the identity provider serves, in OpenAPI 3.1.";
    Operation::new(summary)
        .answers(200, "The description.", &schema())
        .refuses(&["404"])
}

/// What the description says of the token broker's.
pub(super) fn token_broker_operation(_: &str) -> Operation {
    let summary = "Describes what clients of the token broker send, in OpenAPI 3.1.";
    Operation::new(summary).answers(200, "The description.", &schema())
}

fn made(state: &State) -> Bytes {
    let mut document = Document::new("Doorward Admin API", env!("CARGO_PKG_VERSION"), ABOUT);
    document.server("/");
    let required = match &state.access.token {
        Some(_) => json!([{"token": []}, {"bearer": []}]),
        None => Value::Null,
    };
    document.security(schemes(), required);
    refusals::add(&mut document);
    entities::add(&mut document);
    plugins::add(&mut document);
    broker::add(&mut document);
    document.schema("audit-record", audit::record_schema());
    for endpoint in endpoints::all() {
        for method in endpoint.methods {
            document.add(method, endpoint.path, operation(endpoint, method));
        }
    }
    if let Some(identity) = &state.identity {
        (identity.describe)(&mut document, refusals::of);
    }
    document.into_json().to_string().into()
}

fn schemes() -> Value {
    json!({
        "token": {
            "type": "apiKey",
            "in": "header",
            "name": "Kong-Admin-Token",
            "description": "The value of `admin.token`.",
        },
        "bearer": {
            "type": "http",
            "scheme": "bearer",
            "description": "The value of `admin.token`, where the other header is absent.",
        },
    })
}

/// What an endpoint says of a method, and what is the same for all.
fn operation(endpoint: &Endpoint, method: &'static str) -> Operation {
    let mut operation = (endpoint.describe)(method);
    let parts = open_parts(endpoint.path);
    for part in &parts {
        if operation.lacks(part)
            && let Some(kind) = Kind::of_plural(part)
        {
            operation = operation.names(part, entities::key_of(kind));
        }
    }
    let first = endpoint.path.split('/').nth(1).unwrap_or_default();
    let tag = if first.is_empty() { "node" } else { first };
    let statuses = refusals::of(method, !parts.is_empty(), operation.has_body());
    operation.tag(tag).refuses(&statuses)
}
