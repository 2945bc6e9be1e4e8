//! `/Me` (RFC 7644 §3.11): users and their own record.
//!
//! What it says of their place in the organization and of their account is not
//! theirs to change, and nobody vouches for an own address.

use axum::response::Response;
use http::{Method, StatusCode};
use serde_json::{Map, Value};

use super::access::{self, Kind};
use super::change::{self, Change};
use super::{body, users};
use crate::Call;
use crate::bearer::ValidToken;
use crate::error::ScimError;
use doorward_core::model::user::schema::USER_URN;
use doorward_core::model::user::{User, fold};

/// What users may change of themselves.
const OWN: [&str; 15] = [
    "displayName",
    "nickName",
    "profileUrl",
    "website",
    "gender",
    "birthdate",
    "preferredLanguage",
    "locale",
    "timezone",
    "name",
    "addresses",
    "emails",
    "phoneNumbers",
    "ims",
    "photos",
];

/// Also theirs: what applications note of them.
const PREFERENCES: &str = "preferences";

/// Answers a request to the user of the token.
pub(crate) async fn answer(call: &Call) -> Result<Response, ScimError> {
    let token = match call.parts.method {
        Method::GET | Method::HEAD => access::reader(call, Kind::User).await?,
        _ => writer(call).await?,
    };
    let Some(id) = token.user.as_ref().map(|user| user.id) else {
        let text = "The token stands for a client, not for a user.";
        return Err(ScimError::new(StatusCode::NOT_FOUND, text));
    };
    let change = Change {
        token: &token,
        id,
        password: None,
        own: true,
    };
    match call.parts.method {
        Method::PUT => {
            let mut sent = body::object(call)?;
            body::check_schemas(&sent, USER_URN)?;
            refuse_password(change::take_password(&mut sent)?.is_some())?;
            users::apply(call, change, |old| Ok(completed(old, &sent))).await
        }
        Method::PATCH => {
            let (operations, password) = users::operations(call, id)?;
            refuse_password(password.is_some())?;
            users::apply(call, change, |old| users::patched(old, &operations)).await
        }
        Method::DELETE => {
            let text = "Users can't remove themselves.";
            Err(ScimError::new(StatusCode::FORBIDDEN, text))
        }
        _ => {
            let mut response = users::show(call, &token, id).await?;
            // It is an alias (§3.11): the record's own address.
            let base = super::record::RecordBase::of(call);
            super::reply::located(&mut response, &base.location(Kind::User, id));
            Ok(response)
        }
    }
}

/// The token of a request that may change its user's own profile.
async fn writer(call: &Call) -> Result<ValidToken, ScimError> {
    let token = access::token(call).await?;
    let scope = token.realm.settings.me_write_scope.clone();
    match access::has(&token, &scope) {
        true => Ok(token),
        false if scope.is_empty() => {
            let text = "Users can't change their records here.";
            Err(ScimError::new(StatusCode::FORBIDDEN, text))
        }
        false => Err(access::insufficient(call, &scope)),
    }
}

fn refuse_password(sent: bool) -> Result<(), ScimError> {
    if sent {
        Err(not_theirs("password"))
    } else {
        Ok(())
    }
}

fn not_theirs(name: &str) -> ScimError {
    ScimError {
        scim_type: Some("mutability"),
        ..ScimError::new(
            StatusCode::FORBIDDEN,
            format!("{name} is not the user's own to change."),
        )
    }
}

/// The record that PUT makes: what is not theirs and is left out stays.
fn completed(old: &User, sent: &Map<String, Value>) -> Map<String, Value> {
    let mut record = change::replaced(old, sent);
    let named: Vec<String> = record
        .keys()
        .map(|name| name.to_ascii_lowercase())
        .collect();
    for (name, value) in change::record(old) {
        let theirs = OWN.contains(&name.as_str()) || name == PREFERENCES;
        let known = named.contains(&name.to_ascii_lowercase());
        let state = name == "accountStatus" && named.contains(&"active".to_owned());
        if !theirs && !known && !state {
            record.insert(name, value);
        }
    }
    record
}

/// Refuses a change of what is not the user's own.
pub(super) fn check(old: &User, new: &User) -> Result<(), ScimError> {
    if old.user_name != new.user_name {
        return Err(not_theirs("userName"));
    }
    if old.active != new.active {
        return Err(not_theirs("accountStatus"));
    }
    let names = old.profile.keys().chain(new.profile.keys());
    let others = names.filter(|name| !OWN.contains(&name.as_str()) && *name != PREFERENCES);
    for name in others {
        if old.profile.get(name) != new.profile.get(name) {
            return Err(not_theirs(name));
        }
    }
    let known = verified(old);
    if verified(new).iter().all(|address| known.contains(address)) {
        Ok(())
    } else {
        Err(not_theirs("emails.verified"))
    }
}

/// Says of addresses that a user has added that nobody has verified them: what
/// gets somebody in is never sent there.
pub(super) fn mark_unverified(old: &User, new: &mut User) {
    let known = old.profile.get("emails").and_then(Value::as_array);
    let known: Vec<_> = known.into_iter().flatten().collect();
    let value = |email: &Value| email.get("value").and_then(Value::as_str).map(fold);
    let emails = new.profile.get_mut("emails").and_then(Value::as_array_mut);
    for email in emails.into_iter().flatten() {
        let before = known.iter().find(|known| value(known) == value(email));
        let unverified = before.is_none_or(|known| known.get("verified") == Some(&false.into()));
        if let Some(email) = email.as_object_mut().filter(|_| unverified) {
            email.insert("verified".to_owned(), false.into());
        }
    }
}

/// The addresses that are known to be the user's.
fn verified(user: &User) -> Vec<String> {
    let emails = user.profile.get("emails").and_then(Value::as_array);
    let emails = emails.into_iter().flatten();
    emails
        .filter(|email| email.get("verified") == Some(&Value::Bool(true)))
        .filter_map(|email| email.get("value")?.as_str().map(fold))
        .collect()
}
