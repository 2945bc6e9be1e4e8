//! The form of a user: made and changed by owners.

use askama::Template;
use axum::response::Response;
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::api::ApiAnswer;
use super::error::PageError;
use super::frame::{self, Frame};
use super::users::{LIST, address, has_identity, target};
use super::visit::Visit;
use super::{path, record};

/// The attributes that the form has, beside the parts of the name.
const PLAIN: [&str; 2] = ["userName", "displayName"];
/// Parts of `name` (RFC 7643 section 4.1.1).
const NAMES: [&str; 2] = ["givenName", "familyName"];

struct Input {
    name: &'static str,
    value: String,
    hint: &'static str,
}

#[derive(Template)]
#[template(path = "user_form.html")]
struct UserFormPage {
    frame: Frame,
    address: String,
    back: String,
    version: String,
    realm: String,
    inputs: Vec<Input>,
    errors: Vec<(String, String)>,
}

/// What a text field shows of a member.
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The addresses, the primary one first, one a line.
fn lines(user: &Value) -> String {
    let emails = user["emails"].as_array().map_or(&[][..], Vec::as_slice);
    let mut emails: Vec<_> = emails.iter().collect();
    emails.sort_by_key(|email| email["primary"] != true);
    let lines: Vec<_> = emails.iter().map(|email| text(&email["value"])).collect();
    lines.join("\n")
}

/// What the form shows of `user`; of none it is null.
fn inputs(visit: &Visit, user: &Value) -> Vec<Input> {
    let t = visit.texts;
    let input = |name, value, hint| Input { name, value, hint };
    let plain = PLAIN.map(|name| input(name, text(&user[name]), ""));
    let names = NAMES.map(|name| input(name, text(&user["name"][name]), ""));
    let hint = if user.is_null() { "" } else { t.password_stays };
    let mut all: Vec<_> = plain.into_iter().chain(names).collect();
    all.push(input("emails", lines(user), t.emails_hint));
    all.push(input("password", String::new(), hint));
    all
}

fn page(
    visit: &Visit,
    user: &Value,
    inputs: Vec<Input>,
    errors: Vec<(String, String)>,
) -> Result<Response, PageError> {
    let t = visit.texts;
    let is_new = user.is_null();
    let realm = match visit.field("realm") {
        "" => visit.query("realm"),
        realm => realm,
    };
    let (title, address, back) = if is_new {
        let list = path::with_query(LIST, [("realm", realm)]);
        (t.new_user.to_owned(), format!("{LIST}/new"), list)
    } else {
        let edit = path::join(LIST, [visit.param(0), "edit"]);
        let back = address(visit.param(0), realm);
        (record::text(&user["userName"]), edit, back)
    };
    let is_refused = !errors.is_empty();
    let version = match visit.field("version") {
        "" if !is_new => record::text(&user["version"]),
        version => version.to_owned(),
    };
    let mut response = frame::show(&UserFormPage {
        frame: Frame::of(visit, title, LIST),
        address,
        back,
        version,
        realm: realm.to_owned(),
        inputs,
        errors,
    })?;
    if is_refused {
        *response.status_mut() = StatusCode::BAD_REQUEST;
    }
    Ok(response)
}

/// `GET /identity/users/new`.
pub(crate) async fn new(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let inputs = inputs(&visit, &Value::Null);
    page(&visit, &Value::Null, inputs, Vec::new())
}

/// `GET /identity/users/{id}/edit`.
pub(crate) async fn edit(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let target = target(&visit, &[], visit.query("realm"));
    let user = visit.api().get(&target).await?;
    let inputs = inputs(&visit, &user);
    page(&visit, &user, inputs, Vec::new())
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

/// The form again, with what was typed but the password, and what is wrong.
fn again(visit: &Visit, user: &Value, answer: &ApiAnswer) -> Result<Response, PageError> {
    let mut inputs = inputs(visit, user);
    for input in &mut inputs {
        if input.name != "password" {
            input.value = visit.field(&format!("f.{}", input.name)).to_owned();
        }
    }
    let mut errors = answer.violations();
    if answer.status == StatusCode::CONFLICT && !errors.is_empty() {
        errors = vec![("userName".to_owned(), visit.texts.name_taken.to_owned())];
    }
    if errors.is_empty() {
        errors.push((String::new(), answer.message().to_owned()));
    }
    page(visit, user, inputs, errors)
}

/// `POST /identity/users/new`.
pub(crate) async fn create(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let mut made = patch(&visit, &Value::Null);
    made.retain(|_, value| !value.is_null());
    let realm = visit.field("realm");
    let target = path::with_query("/identity/users", [("realm", realm)]);
    let body = Value::Object(made);
    let answer = visit.api().send(Method::POST, &target, Some(&body)).await?;
    if !answer.status.is_success() {
        return again(&visit, &Value::Null, &answer);
    }
    let id = text(&answer.body["id"]);
    Ok(frame::lead(&address(&id, realm)))
}

/// `POST /identity/users/{id}/edit`: if the user is still what the form was made
/// of.
pub(crate) async fn apply(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let version = visit.field("version").parse::<i64>();
    let version = version.map_err(|_| PageError::Form)?;
    let realm = visit.field("realm");
    let target = target(&visit, &[], realm);
    let user = visit.api().get(&target).await?;
    if user["version"] != version {
        return Err(PageError::Changed);
    }
    let mut patch = patch(&visit, &user);
    patch.insert("version".to_owned(), version.into());
    let body = Value::Object(patch);
    let answer = visit
        .api()
        .send(Method::PATCH, &target, Some(&body))
        .await?;
    if answer.status == StatusCode::PRECONDITION_FAILED {
        return Err(PageError::Changed);
    }
    if !answer.status.is_success() {
        return again(&visit, &user, &answer);
    }
    Ok(frame::lead(&address(visit.param(0), realm)))
}
