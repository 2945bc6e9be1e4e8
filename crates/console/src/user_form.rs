//! The form of a user: made and changed by owners.

use axum::response::Response;
use serde_json::{Map, Value, json};

use super::account_change::{AccountChange, What};
use super::account_form::{AccountInput, AccountKind, text};
use super::accounts::{USERS, has_identity};
use super::change::Change;
use super::error::PageError;
use super::visit::Visit;
use super::{difference, form};

/// The attributes that the form has, beside the parts of the name.
const PLAIN: [&str; 2] = ["userName", "displayName"];
/// Parts of `name` (RFC 7643 section 4.1.1).
const NAMES: [&str; 2] = ["givenName", "familyName"];

/// The addresses, the primary one first, one a line.
fn lines(user: &Value) -> String {
    let emails = user["emails"].as_array().map_or(&[][..], Vec::as_slice);
    let mut emails: Vec<_> = emails.iter().collect();
    emails.sort_by_key(|email| email["primary"] != true);
    let lines: Vec<_> = emails.iter().map(|email| text(&email["value"])).collect();
    lines.join("\n")
}

/// What the form shows of `user`; of none it is null.
fn inputs(visit: &Visit, user: &Value, is_new: bool) -> Vec<AccountInput> {
    let t = visit.texts;
    let [name, display] = PLAIN.map(|name| AccountInput::new(name, text(&user[name]), ""));
    let names = NAMES.map(|name| AccountInput::new(name, text(&user["name"][name]), ""));
    let hint = if is_new { "" } else { t.password_stays };
    let mut all = vec![name.required(), display];
    all.extend(names);
    all.push(AccountInput::new("emails", lines(user), t.emails_hint));
    all.push(AccountInput::new("password", String::new(), hint));
    all
}

/// The form of users.
pub(crate) static FORM: AccountKind = AccountKind {
    list: USERS,
    resource: "/identity/users",
    key: "userName",
    new_title: |texts| texts.new_user,
    inputs,
};

/// `GET /identity/users/new`.
pub(crate) async fn new(visit: Visit) -> Result<Response, PageError> {
    FORM.empty(&visit)
}

/// `GET /identity/users/{id}/edit`.
pub(crate) async fn edit(visit: Visit) -> Result<Response, PageError> {
    FORM.edit(&visit).await
}

/// What the form makes of `user`: members that differ.
fn patch(visit: &Visit, user: &Value) -> Map<String, Value> {
    let typed = |name: &str| visit.field(&format!("f.{name}")).trim();
    let or_null = |value: &str| {
        if value.is_empty() {
            Value::Null
        } else {
            value.into()
        }
    };
    let mut patch = Map::new();
    for name in PLAIN {
        if typed(name) != text(&user[name]) {
            patch.insert(name.to_owned(), or_null(typed(name)));
        }
    }
    let mut parts = user["name"].as_object().cloned().unwrap_or_default();
    let mut differs = false;
    for name in NAMES {
        if typed(name) != text(&user["name"][name]) {
            differs = true;
            parts.remove(name);
            if !typed(name).is_empty() {
                parts.insert(name.to_owned(), typed(name).into());
            }
        }
    }
    if differs {
        // The whole name said what its parts no longer do.
        parts.remove("formatted");
        let name = if parts.is_empty() {
            Value::Null
        } else {
            parts.into()
        };
        patch.insert("name".to_owned(), name);
    }
    if typed("emails") != lines(user) {
        patch.insert("emails".to_owned(), emails(user, typed("emails")));
    }
    // A password may begin and end with blanks.
    let password = visit.field("f.password");
    if !password.is_empty() {
        patch.insert("password".to_owned(), password.into());
    }
    patch
}

/// The addresses of these lines, the first of them the primary one. What else is
/// known of one that stays is kept.
fn emails(user: &Value, typed: &str) -> Value {
    let known = user["emails"].as_array().map_or(&[][..], Vec::as_slice);
    let lines = typed.lines().map(str::trim).filter(|line| !line.is_empty());
    let emails: Vec<_> = lines
        .enumerate()
        .map(|(index, line)| {
            let stays = known.iter().find(|email| email["value"] == line);
            let mut email = stays.cloned().unwrap_or_else(|| json!({"value": line}));
            if let Value::Object(members) = &mut email {
                members.remove("primary");
                if index == 0 {
                    members.insert("primary".to_owned(), true.into());
                }
            }
            email
        })
        .collect();
    if emails.is_empty() {
        Value::Null
    } else {
        emails.into()
    }
}

/// `POST /identity/users/new`: shows what will be made.
pub(crate) async fn create(visit: Visit) -> Result<Response, PageError> {
    let mut made = patch(&visit, &Value::Null);
    made.retain(|_, value| !value.is_null());
    let body = Value::Object(made);
    let realm = visit.field("realm");
    if body.get("userName").is_none() {
        return FORM.unnamed(&visit, realm, &body);
    }
    if let Err(errors) = form::refuse_masks(&visit, &body) {
        return FORM.form(&visit, realm, (&Value::Null, &body), errors);
    }
    let change = AccountChange::new(realm, What::CreateUser { body });
    change.ask(&visit).await
}

/// `POST /identity/users/{id}/edit`: shows what will differ, if the user is still
/// what the form was made of.
pub(crate) async fn preview(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let realm = visit.field("realm");
    let user = FORM.current(&visit, realm).await?;
    let typed = Value::Object(patch(&visit, &user));
    if let Err(errors) = form::refuse_masks(&visit, &typed) {
        let typed = difference::merged(&user, &typed);
        return FORM.form(&visit, realm, (&user, &typed), errors);
    }
    let what = |id, version, patch| What::PatchUser { id, version, patch };
    AccountChange::save(&visit, &user, patch, what).await
}
