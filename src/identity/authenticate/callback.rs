//! Sign-in by callbacks: the client is asked for name and password, and posts
//! the answers back with the `authId` it was given.
//!
//! The `authId` is signed and short-lived, and nothing is kept for it: a guess
//! costs a stranger the same with it as without.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::super::error::{Fault, JsonError};
use super::super::{Call, respond};
use super::Asked;
use crate::clock::random_uuid;
use crate::jose::verify::Unverified;
use crate::model::client::SignAlg;

/// Seconds to answer in.
const LIFE: i64 = 300;

/// What a request says about who signs in.
#[derive(Default)]
pub(super) struct Credentials {
    pub(super) name: Option<String>,
    pub(super) password: Option<String>,
    /// A second user name, which does not count.
    pub(super) other_name: Option<String>,
}

impl Credentials {
    /// Whether there is nothing to sign in with.
    pub(super) fn is_empty(&self) -> bool {
        self.names().next().is_none() && self.password.is_none()
    }

    /// Every user name that was sent.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        [&self.name, &self.other_name]
            .into_iter()
            .flatten()
            .map(String::as_str)
    }
}

/// Asks for what is missing in `given`.
pub(super) async fn ask(
    call: &Call,
    given: &Credentials,
    asked: &Asked,
) -> Result<Response, JsonError> {
    let now = call.now_ms.div_euclid(1000);
    let mut claims = json!({
        "tokenName": "authId",
        "jti": random_uuid(),
        "iss": call.realm.issuer,
        "realm": call.realm.path,
        "name": given.name,
        "iat": now,
        "exp": now + LIFE,
    });
    asked.remember(&mut claims);
    let signer = call.state.keys.signer(SignAlg::ES256).await?;
    let auth_id = signer.sign(&claims).map_err(Fault::Key)?;
    let mut callbacks = Vec::new();
    if given.name.is_none() {
        callbacks.push(callback("NameCallback", " User Name: ", "IDToken1"));
    }
    callbacks.push(callback("PasswordCallback", " Password: ", "IDToken2"));
    let body = json!({
        "authId": auth_id,
        "template": "",
        "stage": "DataStore1",
        "header": "Sign in",
        "infoText": vec![""; callbacks.len()],
        "callbacks": callbacks,
    });
    Ok(respond::json(StatusCode::OK, &body))
}

fn callback(kind: &str, prompt: &str, input: &str) -> Value {
    json!({
        "type": kind,
        "output": [{"name": "prompt", "value": prompt}],
        "input": [{"name": input, "value": ""}],
    })
}

/// The credentials in a posted callback object; what the request that began it
/// asked for is added to `asked`.
pub(super) fn submitted(
    call: &Call,
    body: &Map<String, Value>,
    asked: &mut Asked,
) -> Result<Credentials, JsonError> {
    let auth_id = body.get("authId").and_then(Value::as_str);
    let claims = auth_id.and_then(|auth_id| {
        let keys = call.state.keys.current();
        Unverified::parse(auth_id)
            .ok()?
            .verify(&keys.verifiers)
            .ok()
    });
    let refused = |status, text: &str| JsonError::new(status, text);
    let is = |claims: &Map<String, Value>, name: &str, value: &str| {
        claims.get(name).and_then(Value::as_str) == Some(value)
    };
    let claims = claims
        .filter(|claims| is(claims, "tokenName", "authId"))
        .filter(|claims| is(claims, "iss", &call.realm.issuer))
        .ok_or_else(|| {
            refused(
                StatusCode::BAD_REQUEST,
                "The authId is missing or not valid",
            )
        })?;
    let exp = claims
        .get("exp")
        .and_then(Value::as_i64)
        .unwrap_or_default();
    if call.now_ms.div_euclid(1000) >= exp {
        return Err(refused(
            StatusCode::REQUEST_TIMEOUT,
            "Session has timed out",
        ));
    }
    asked.recall(&claims);
    let known = claims
        .get("name")
        .and_then(Value::as_str)
        .map(str::to_owned);
    let name = answer(body, "NameCallback");
    let password = answer(body, "PasswordCallback");
    if password.is_none() || (name.is_none() && known.is_none()) {
        return Err(refused(
            StatusCode::BAD_REQUEST,
            "The callbacks are not those that were sent",
        ));
    }
    Ok(Credentials {
        name: known.or(name),
        password,
        other_name: None,
    })
}

fn answer(body: &Map<String, Value>, kind: &str) -> Option<String> {
    let callbacks = body.get("callbacks")?.as_array()?;
    let callback = callbacks.iter().find(|callback| callback["type"] == kind)?;
    callback["input"][0]["value"].as_str().map(str::to_owned)
}
