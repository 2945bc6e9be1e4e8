//! Signing keys: their public facts, and their rotation.

use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Call;
use super::error::ManageError;
use super::page::Page;
use crate::keys::state_of;
use crate::respond;
use doorward_core::model::client::SignAlg;
use doorward_core::model::grant::StoredKey;

/// `GET /identity/keys`
pub(super) async fn list(call: Call) -> Result<Response, ManageError> {
    let page = Page::of(&call)?;
    let mut keys = call.state.store.signing_keys().await?;
    keys.sort_by(|a, b| a.kid.cmp(&b.kid));
    let all = keys.clone();
    let keys = page.cut(keys, |key| &key.kid);
    let shown = keys.iter().map(|key| {
        let record = record(key, &all, call.now_ms);
        (key.kid.clone(), record)
    });
    page.answer(&call, "/keys", shown.collect()).await
}

/// What to rotate, and how.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RotationRequest {
    /// One algorithm; none: each that has a key.
    alg: Option<SignAlg>,
    /// Whether the successor signs at once. Otherwise it is published first.
    now: bool,
    /// Whether the older keys are withdrawn at once: every token that they
    /// signed dies.
    drop_old: bool,
}

/// `POST /identity/keys/rotate`
pub(super) async fn rotate(call: Call) -> Result<Response, ManageError> {
    let wish = RotationRequest::deserialize(Value::Object(call.object()?));
    let wish = wish.map_err(|error| ManageError::Json(error.to_string()))?;
    if wish.drop_old && !wish.now {
        let text = "drop_old needs now: no key would be left to sign with";
        return Err(ManageError::Conflict(text.to_owned()));
    }
    let known = call.state.store.signing_keys().await?;
    let has_key = |alg: &SignAlg| known.iter().any(|key| key.alg == *alg);
    let algs: Vec<_> = match wish.alg {
        Some(alg) => vec![alg],
        None => SignAlg::OWN.into_iter().filter(has_key).collect(),
    };
    let (mut made, mut ready) = (Vec::new(), Vec::new());
    for alg in algs {
        let key = call
            .state
            .keys
            .rotate(alg, wish.now, wish.drop_old, call.audit())
            .await?;
        match key {
            Some(key) => made.push(key),
            None => ready.push(alg.as_str()),
        }
    }
    if made.is_empty() && !ready.is_empty() {
        let text = format!("there is a successor for {} already", ready.join(", "));
        return Err(ManageError::Conflict(text));
    }
    let all = call.state.store.signing_keys().await?;
    let now_ms = call.state.clock.now_ms();
    let made = made.iter().map(|key| record(key, &all, now_ms));
    let body = json!({"data": made.collect::<Vec<_>>()});
    Ok(respond::json(StatusCode::CREATED, &body))
}

fn record(key: &StoredKey, all: &[StoredKey], now_ms: i64) -> Value {
    json!({
        "kid": key.kid,
        "alg": key.alg,
        "state": state_of(key, all, now_ms),
        "created_at": key.created_ms.div_euclid(1000),
        "active_from": key.active_from_ms.div_euclid(1000),
        "expires_at": key.expires_ms.map(|end| end.div_euclid(1000)),
    })
}
