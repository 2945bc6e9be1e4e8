//! `/json[/realms/…]/users`: what clients ask about the user of their session.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::api_version::{Version, version};
use super::change_password::{self, ChangeError};
use super::context::{PASSWORD, SEVERAL};
use super::error::{Fault, JsonError};
use super::password_policy::told;
use super::{Call, form, goto, respond, rest, sessions};
use crate::model::user::name;

const VERSIONS: &[Version] = &[version(1, 2), version(2, 1), version(3, 1), version(4, 1)];

/// Answers an action on users, or on the one that is named in the path.
pub(super) async fn post(call: &Call, named: Option<&str>) -> Response {
    match rest::version(call, VERSIONS) {
        Ok(chosen) => {
            let answer = match named {
                None => act(call).await,
                Some(named) => act_on(call, named).await,
            };
            rest::finish(chosen, answer)
        }
        Err(refused) => refused.response(),
    }
}

/// What a user does with its own record.
async fn act_on(call: &Call, named: &str) -> Result<Response, JsonError> {
    let query = rest::query(call)?;
    let body = rest::body(call)?.unwrap_or_default();
    match rest::action(&query)? {
        "changePassword" => {}
        other => return Err(rest::no_such_action(other)),
    }
    let caller = sessions::of_caller(call, None).await?;
    let (token, user) = caller.ok_or_else(rest::denied)?;
    // What else was shown when it began, and the password now.
    let mut proof = sessions::proof(call, &token).await?;
    // A password does not stand for the factor, and makes no sign-in with it a
    // recent one.
    let factors = call.state.store.factors(user.id).await;
    let factors = factors.map_err(Fault::from)?;
    if factors.is_empty() {
        proof.auth_ms = call.now_ms;
    } else if !proof.methods.has(SEVERAL) {
        let text = "A second factor is needed";
        return Err(JsonError::new(StatusCode::FORBIDDEN, text));
    }
    proof.methods.add([PASSWORD]);
    let named = named.replace('+', "%2B");
    let named = form::decode(named.as_bytes()).unwrap_or_default();
    if name::key(&named) != name::key(&user.user_name) && named != user.id.to_string() {
        return Err(rest::forbidden());
    }
    let given = |name: &str| {
        let value = body.get(name).and_then(Value::as_str);
        value.ok_or_else(|| rest::bad_request(format!("Missing attribute: {name}")))
    };
    let (current, new) = (given("currentpassword")?, given("userpassword")?);
    let changed = change_password::change(call, &user, current, new).await;
    let user = changed.map_err(not_changed)?;
    let mut response = respond::json(StatusCode::OK, &json!({}));
    // The old session has ended with the others.
    if let Some(token) = sessions::begin(call, &user, &proof).await? {
        if sessions::is_in_header(call) {
            response = respond::json(StatusCode::OK, &json!({"tokenId": token}));
        }
        sessions::hand_over(call, &mut response, &token);
    }
    Ok(response)
}

fn not_changed(error: ChangeError) -> JsonError {
    match error {
        ChangeError::Wrong => {
            JsonError::new(StatusCode::FORBIDDEN, "The current password is not right")
        }
        ChangeError::Refused(wrong) => rest::bad_request(told(&wrong)),
        ChangeError::Elsewhere => {
            let text = "The password of this user can't be changed here";
            JsonError::new(StatusCode::FORBIDDEN, text)
        }
        ChangeError::Fault(fault) => fault.into(),
    }
}

async fn act(call: &Call) -> Result<Response, JsonError> {
    let query = rest::query(call)?;
    let body = rest::body(call)?;
    let body = match rest::action(&query)? {
        "validateGoto" => {
            sessions::of_caller(call, None)
                .await?
                .ok_or_else(rest::denied)?;
            let asked = body.as_ref().and_then(|body| body.get("goto"));
            let asked = asked.and_then(Value::as_str);
            let good = asked.filter(|address| goto::allowed(call, address));
            json!({"successURL": good.unwrap_or(&call.realm.settings.success_url)})
        }
        "idFromSession" => sessions::id_from_session(call).await?,
        other => return Err(rest::no_such_action(other)),
    };
    Ok(respond::json(StatusCode::OK, &body))
}
