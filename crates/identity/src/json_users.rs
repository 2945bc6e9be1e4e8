//! `/json[/realms/…]/users`: what clients ask about the user of their session.

use axum::response::Response;
use chrono::DateTime;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::api_version::{Version, version};
use super::change_password::{self, ChangeError};
use super::context::{PASSWORD, SEVERAL};
use super::error::{Fault, JsonError};
use super::password_policy::refusal_text;
use super::{Call, form, goto_url, respond, rest, sessions, userinfo};
use doorward_core::model::user::{User, name};

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

/// Answers a request to the user whom the path names.
pub(super) async fn one(call: &Call) -> Response {
    match call.parts.method {
        Method::POST => post(call, Some(call.last_segment())).await,
        _ => get(call).await,
    }
}

/// Answers with the record of the user of the caller's session, whom the path
/// names.
async fn get(call: &Call) -> Response {
    match rest::version(call, VERSIONS) {
        Ok(chosen) => rest::finish(chosen, read(call, call.last_segment()).await),
        Err(refused) => refused.response(),
    }
}

async fn read(call: &Call, named: &str) -> Result<Response, JsonError> {
    let caller = sessions::of_caller(call, None).await?;
    let (_, user) = caller.ok_or_else(rest::denied)?;
    if !is_named(&user, named) {
        return Err(rest::forbidden());
    }
    Ok(respond::json(StatusCode::OK, &record(&user)))
}

/// Whether a part of a path names this user.
fn is_named(user: &User, part: &str) -> bool {
    let part = part.replace('+', "%2B");
    let named = form::decode(part.as_bytes()).unwrap_or_default();
    name::key(&named) == name::key(&user.user_name) || named == user.id.to_string()
}

/// A user as the imitated service shows one to itself: every attribute is a
/// list, named as in a directory (RFC 4519).
fn record(user: &User) -> Value {
    let claims = userinfo::all(user);
    let status = if user.active { "Active" } else { "Inactive" };
    let time = |ms: i64| {
        let time = DateTime::from_timestamp_millis(ms).unwrap_or_default();
        time.format("%Y%m%d%H%M%SZ").to_string()
    };
    let mut record = json!({
        "_id": user.user_name,
        "_rev": user.version.to_string(),
        "username": user.user_name,
        "realm": user.realm,
        "uid": [user.user_name],
        "universalid": [sessions::universal_id(user)],
        "inetUserStatus": [status],
        "createTimestamp": [time(user.created_ms)],
        "modifyTimestamp": [time(user.updated_ms)],
    });
    for (attribute, claim) in [
        ("cn", "name"),
        ("givenName", "given_name"),
        ("sn", "family_name"),
        ("mail", "email"),
        ("telephoneNumber", "phone_number"),
        ("preferredLanguage", "locale"),
    ] {
        if let Some(value) = claims.get(claim) {
            record[attribute] = json!([value]);
        }
    }
    if let Some(address) = claims.get("address").and_then(|one| one.get("formatted")) {
        record["postalAddress"] = json!([address]);
    }
    record
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
    if !is_named(&user, named) {
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
        sessions::set_cookie(call, &mut response, &token);
    }
    Ok(response)
}

fn not_changed(error: ChangeError) -> JsonError {
    match error {
        ChangeError::Wrong => {
            JsonError::new(StatusCode::FORBIDDEN, "The current password is not right")
        }
        ChangeError::Refused(wrong) => rest::bad_request(refusal_text(&wrong)),
        ChangeError::NotLocal => {
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
            let good = asked.filter(|address| goto_url::is_allowed(call, address));
            json!({"successURL": good.unwrap_or(&call.realm.settings.success_url)})
        }
        "idFromSession" => sessions::id_from_session(call).await?,
        other => return Err(rest::no_such_action(other)),
    };
    Ok(respond::json(StatusCode::OK, &body))
}
