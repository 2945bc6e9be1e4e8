//! A client of the identity provider: its page, and the form that changes it.

use axum::response::Response;
use serde_json::{Map, Value, json};

use doorward_identity::{client_members, registry};

use super::accounts::{RecordPage, has_identity};
use super::change::Change;
use super::error::PageError;
use super::fields::{Field, Input};
use super::form::{self, FormPage, FormPlace};
use super::frame::{self, Frame};
use super::registry_change::{
    Act, REGISTRY_CHANGED_BY, RegistryChange, Subject, of_members, save, seen, version_of,
};
use super::table::Button;
use super::visit::Visit;
use super::{fact_table, path, record};

/// Where the list is.
pub(crate) const LIST: &str = "/console/identity/clients";

/// Members of a record that are none of the client's metadata.
const STAMPS: [&str; 7] = [
    "realm",
    "owner",
    "version",
    "created_at",
    "updated_at",
    "declared_in",
    "declared_line",
];

/// What the form shows first.
const COMMON: [&str; 10] = [
    "client_name",
    "redirect_uris",
    "post_logout_redirect_uris",
    "scope",
    "grant_types",
    "response_types",
    "token_endpoint_auth_method",
    "require_pkce",
    "require_consent",
    "require_second_factor",
];

/// The page of a client.
pub(crate) fn address(id: &str, realm: &str) -> String {
    path::with_query(&path::join(LIST, [id]), [("realm", realm)])
}

/// The metadata of a client's record.
pub(crate) fn metadata(record: &Value) -> Value {
    let mut record = record.clone();
    if let Value::Object(members) = &mut record {
        members.retain(|name, _| !STAMPS.contains(&name.as_str()));
    }
    record
}

/// What of a client can be changed, the common fields first.
fn fields() -> Vec<Field> {
    let members = client_members();
    let is_fixed = |name: &str| name == "client_id" || name == "client_secret";
    let field = |(name, schema): (&str, &Value)| Field {
        name: name.to_owned(),
        input: input(schema),
        required: false,
        default: Value::Null,
        between: None,
    };
    let common = COMMON.iter().copied();
    let common = common.filter_map(|name| Some((name, members.get(name)?)));
    let others = members
        .iter()
        .map(|(name, schema)| (name.as_str(), schema))
        .filter(|(name, _)| !is_fixed(name) && !COMMON.contains(name));
    common.chain(others).map(field).collect()
}

/// How a member is filled in, by its JSON Schema.
fn input(schema: &Value) -> Input {
    let choices = schema["enum"].as_array();
    match (schema["type"].as_str().unwrap_or_default(), choices) {
        ("string", Some(choices)) => {
            let texts = choices.iter().filter_map(Value::as_str);
            Input::Choice(texts.map(str::to_owned).collect())
        }
        ("string", None) => Input::Text,
        ("integer", _) => Input::Number { whole: true },
        ("boolean", _) => Input::Switch,
        ("array", _) => Input::Lines,
        _ => Input::Json,
    }
}

fn subject(visit: &Visit, realm: &str) -> Subject {
    Subject::Client {
        realm: realm.to_owned(),
        id: visit.param(0).to_owned(),
    }
}

/// `GET /identity/clients/{id}`.
pub(crate) async fn show(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let t = visit.texts;
    let realm = visit.query("realm");
    let subject = subject(&visit, realm);
    let client = subject.record(&visit).await?;
    let id = record::text(&client["client_id"]);
    let file = record::declared_in(&client);
    let editable = file.is_none() && visit.may(REGISTRY_CHANGED_BY);
    let sessions = [("client_id", id.as_str()), ("realm", realm)];
    let sessions = path::with_query("/console/identity/sessions", sessions);
    let mut links = vec![(t.sessions.to_owned(), sessions)];
    if editable {
        let edit = path::join(LIST, [visit.param(0), "edit"]);
        let edit = path::with_query(&edit, [("realm", realm)]);
        links.insert(0, (t.edit.to_owned(), edit));
    }
    let shown = record::without_place(&record::masked(&client, false));
    frame::show(&RecordPage {
        frame: Frame::of(&visit, id, LIST),
        list: (t.clients, subject.list()),
        links,
        buttons: if editable {
            buttons(&visit, &client)
        } else {
            Vec::new()
        },
        done: if visit.query("done").is_empty() {
            ""
        } else {
            t.done
        },
        notes: file
            .map(|file| format!("{} {file}", t.file_owned))
            .into_iter()
            .collect(),
        ask: None,
        tables: vec![fact_table::fields(t, t.fields, &shown)],
    })
}

fn buttons(visit: &Visit, client: &Value) -> Vec<Button> {
    let t = visit.texts;
    let button = |action: &str, text: &str| Button {
        text: text.to_owned(),
        label: format!("{text}: {}", visit.param(0)),
        address: path::join(LIST, [visit.param(0), action]),
        fields: vec![
            ("realm".to_owned(), record::text(&client["realm"])),
            ("version".to_owned(), version_of(client)),
        ],
        danger: true,
    };
    let method = client["token_endpoint_auth_method"].as_str();
    let has_secret = !matches!(method, Some("none" | "private_key_jwt"));
    let secret = has_secret.then(|| button("secret", t.secret_rotate));
    let delete = button("delete", t.delete);
    secret.into_iter().chain([delete]).collect()
}

/// The form of a client, whose record shows `current`.
fn form(visit: &Visit, (id, realm): (&str, &str), current: &Value, version: String) -> FormPage {
    let fields = fields();
    let is_first = |field: &&Field| {
        let is_set = !field.is_default(&current[&field.name]);
        COMMON.contains(&field.name.as_str()) || is_set
    };
    let (first, others): (Vec<_>, Vec<_>) = fields.iter().partition(is_first);
    let place = FormPlace {
        title: format!("{}: {id}", visit.texts.edit),
        section: LIST.to_owned(),
        address: path::join(LIST, [id, "edit"]),
        back: address(id, realm),
        version,
        realm: realm.to_owned(),
        lead: visit.texts.form_lead,
    };
    place.page(visit, (&first, &others), current)
}

/// `GET /identity/clients/{id}/edit`.
pub(crate) async fn edit(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let realm = visit.query("realm");
    let subject = subject(&visit, realm);
    let client = subject.current(&visit).await?;
    let version = version_of(&client);
    let page = form(&visit, (visit.param(0), realm), &metadata(&client), version);
    frame::show(&page)
}

/// `POST /identity/clients/{id}/edit`: shows what will differ, if the client is still
/// what the form was made of.
pub(crate) async fn preview(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let realm = visit.field("realm");
    let subject = subject(&visit, realm);
    let client = subject.current(&visit).await?;
    let seen = seen(&visit, &subject, &client)?;
    let own = metadata(&client);
    let outcome = form::patch(&visit, &fields(), &seen).and_then(|patch| {
        let patch = of_members(&seen, patch);
        let wrong = violations(&visit, (realm, &own), &patch);
        if wrong.is_empty() {
            Ok(patch)
        } else {
            Err(wrong)
        }
    });
    let form = |version| form(&visit, (visit.param(0), realm), &own, version);
    save(&visit, (subject, &client, &seen), outcome, form).await
}

/// What is wrong with the client as `patch` makes it.
fn violations(
    visit: &Visit,
    (realm, own): (&str, &Value),
    patch: &Map<String, Value>,
) -> Vec<(String, String)> {
    let t = visit.texts;
    if patch.contains_key("client_id") {
        return vec![("client_id".to_owned(), t.id_stays.to_owned())];
    }
    let mut members = own.as_object().cloned().unwrap_or_default();
    members.extend(patch.clone());
    let is_public = members.get("token_endpoint_auth_method") == Some(&json!("none"));
    if is_public && members.get("require_pkce") == Some(&json!(false)) {
        return vec![("require_pkce".to_owned(), t.pkce_needed.to_owned())];
    }
    let realm = if realm.is_empty() { "/" } else { realm };
    let made = registry::create(realm, members, visit.now_ms());
    let checked = made.and_then(|made| {
        // What was set over REST by other rules stays.
        let names = ["redirect_uris", "application_type"];
        if names.iter().any(|name| patch.contains_key(*name)) {
            doorward_identity::check_redirects(&made.client.metadata)?;
        }
        Ok(())
    });
    let wrong = checked.err();
    wrong
        .map(|error| (field_of(&error.path), error.message))
        .into_iter()
        .collect()
}

/// The field of an element: `redirect_uris` of `redirect_uris[0]`.
pub(crate) fn field_of(path: &str) -> String {
    let end = path.find('[').unwrap_or(path.len());
    path[..end].to_owned()
}

/// The form again, with `patch` in it and what is wrong.
pub(crate) async fn again(
    visit: &Visit,
    (id, realm): (&str, &str),
    patch: &Map<String, Value>,
    errors: Vec<(String, String)>,
) -> Result<Response, PageError> {
    let subject = Subject::Client {
        realm: realm.to_owned(),
        id: id.to_owned(),
    };
    let client = subject.current(visit).await?;
    let mut typed = metadata(&client);
    for (name, value) in patch {
        if name != "client_secret" {
            typed[name] = value.clone();
        }
    }
    let version = version_of(&client);
    let form = form(visit, (id, realm), &typed, version);
    form.of(&metadata(&client)).refused(errors)
}

/// `POST /identity/clients/{id}/delete`: shows what would be gone.
pub(crate) async fn delete(visit: Visit) -> Result<Response, PageError> {
    let version = visit.field("version").to_owned();
    ask(&visit, Act::Delete { version }).await
}

/// `POST /identity/clients/{id}/secret`: shows that the old secret would be refused.
pub(crate) async fn rotate(visit: Visit) -> Result<Response, PageError> {
    let version = visit.field("version").to_owned();
    ask(&visit, Act::Secret { version }).await
}

async fn ask(visit: &Visit, act: Act) -> Result<Response, PageError> {
    let subject = subject(visit, visit.field("realm"));
    RegistryChange::new(subject, act).ask(visit).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_client_may_have_has_a_field() {
        let fields = fields();
        let members = client_members();
        assert_eq!(fields.len(), members.len() - 2);
        for name in COMMON {
            assert!(members.contains_key(name), "{name}");
        }
        let find = |name: &str| {
            let field = fields.iter().find(|field| field.name == name);
            field.map(|field| field.input.clone())
        };
        assert_eq!(find("jwks"), Some(Input::Json));
        assert_eq!(find("redirect_uris"), Some(Input::Lines));
        assert_eq!(find("require_pkce"), Some(Input::Switch));
        assert_eq!(find("client_secret"), None, "it has a button");
    }

    #[test]
    fn an_element_is_complained_of_at_its_field() {
        assert_eq!(field_of("redirect_uris[2]"), "redirect_uris");
        assert_eq!(field_of("scope"), "scope");
    }
}
