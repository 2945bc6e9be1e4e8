//! `/openid-connect/issuers`: the OpenID providers that plugins name, what was
//! fetched of them, and how they are doing.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::call::Call;
use super::entity::Answer;
use super::error::ApiError;
use super::reply;
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
