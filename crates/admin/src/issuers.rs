//! `/openid-connect/issuers`: the OpenID providers that plugins name, what was
//! fetched of them, and how they are doing.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::call::Call;
use super::entity::Answer;
use super::error::ApiError;
use super::reply;
use doorward_core::model::schema::nullable;
use doorward_core::openapi::{Operation, fields, list_of, text};
use doorward_openid_connect::IssuerReport;

/// `GET /openid-connect/issuers`: all of them. `DELETE`: forgets what was
/// fetched; it is fetched again when traffic needs it.
pub(super) fn all(call: Call) -> Answer {
    Box::pin(async move {
        let providers = call.state.control.providers();
        if call.method == Method::DELETE {
            providers.forget(None);
            return Ok(reply::empty(StatusCode::NO_CONTENT));
        }
        let data: Vec<Value> = providers.reports().iter().map(shown).collect();
        let body = json!({"data": data, "next": null});
        Ok(reply::json(StatusCode::OK, &body))
    })
}

/// `GET` and `DELETE /openid-connect/issuers/{issuer}`: one, by its id or its
/// issuer (whose `/` are `%2F`).
pub(super) fn one(call: Call) -> Answer {
    Box::pin(async move {
        let providers = call.state.control.providers();
        let named = call.param(0);
        if call.method == Method::DELETE {
            return if providers.forget(Some(named)) {
                Ok(reply::empty(StatusCode::NO_CONTENT))
            } else {
                Err(ApiError::NotFound)
            };
        }
        let reports = providers.reports();
        let is_named =
            |report: &&IssuerReport| report.issuer == named || report.id.to_string() == named;
        let found = reports.iter().find(is_named).ok_or(ApiError::NotFound)?;
        Ok(reply::json(StatusCode::OK, &shown(found)))
    })
}

/// `GET /openid-connect/jwks`: public keys that the gateway has made for its
/// clients. It makes none: theirs are in `client_jwk`.
pub(super) fn jwks(_: Call) -> Answer {
    Box::pin(async move { Ok(reply::json(StatusCode::OK, &json!({"keys": []}))) })
}

fn shown(report: &IssuerReport) -> Value {
    let state = match report.up {
        None => "unknown",
        Some(true) => "up",
        Some(false) => "down",
    };
    let seconds = |ms: Option<i64>| ms.map(|ms| ms.div_euclid(1000));
    json!({
        "id": report.id,
        "issuer": report.issuer,
        "created_at": report.created_ms.div_euclid(1000),
        "configuration": report.configuration,
        "keys": report.keys,
        "health": {
            "state": state,
            "last_success_at": seconds(report.fetched_ms),
            "last_failure_at": seconds(report.failed_ms),
            "failures": report.failures,
            "last_error": report.error,
        },
    })
}

fn schema() -> Value {
    let time = || json!({"type": ["integer", "null"]});
    let health = fields(
        [
            (
                "state",
                json!({"type": "string", "enum": ["unknown", "up", "down"]}),
            ),
            ("last_success_at", time()),
            ("last_failure_at", time()),
            ("failures", json!({"type": "integer"})),
            ("last_error", nullable(text())),
        ],
        &[
            "state",
            "last_success_at",
            "last_failure_at",
            "failures",
            "last_error",
        ],
    );
    fields(
        [
            ("id", json!({"type": "string", "format": "uuid"})),
            ("issuer", text()),
            ("created_at", json!({"type": "integer"})),
            ("configuration", json!({"type": ["object", "null"]})),
            ("keys", json!({"type": ["array", "object", "null"]})),
            ("health", health),
        ],
        &[
            "id",
            "issuer",
            "created_at",
            "configuration",
            "keys",
            "health",
        ],
    )
}

/// What the description says of all of them.
pub(super) fn all_operation(method: &str) -> Operation {
    match method {
        "DELETE" => Operation::new("Forgets what was fetched of every OpenID provider.")
            .ends(204, "It is fetched again when traffic needs it."),
        _ => Operation::new("Lists the OpenID providers that plugins name.").answers(
            200,
            "All of them.",
            &list_of(&schema()),
        ),
    }
}

/// What the description says of one.
pub(super) fn one_operation(method: &str) -> Operation {
    let operation = match method {
        "DELETE" => Operation::new("Forgets what was fetched of an OpenID provider.")
            .ends(204, "It is fetched again when traffic needs it."),
        _ => Operation::new("Shows an OpenID provider that plugins name.").answers(
            200,
            "What is known of it.",
            &schema(),
        ),
    };
    operation.names("issuer", "Its `id`, or its issuer, whose `/` are `%2F`.")
}

/// What the description says of the gateway's own keys.
pub(super) fn jwks_operation(_: &str) -> Operation {
    let keys = json!({"type": "array", "items": {"type": "object"}});
    Operation::new("Shows the public keys that the gateway has made for its clients.").answers(
        200,
        "A key set (RFC 7517).",
        &fields([("keys", keys)], &["keys"]),
    )
}
