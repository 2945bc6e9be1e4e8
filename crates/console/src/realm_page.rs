//! A realm of the identity provider: its page, and the form that changes its settings.

use axum::response::Response;
use serde_json::{Map, Value, json};

use doorward_core::model::credential::MASK;
use doorward_identity::check_settings;
use doorward_identity::config::RealmSettings;

use super::accounts::{RecordPage, has_identity};
use super::change::Change;
use super::client_page::field_of;
use super::error::PageError;
use super::fact_table::cell;
use super::fields::{Field, Input};
use super::form::{self, FormPage, FormPlace};
use super::frame::{self, Frame};
use super::registry_change::{
    Act, REGISTRY_CHANGED_BY, RegistryChange, Subject, of_members, save, seen, version_of,
};
use super::table::{Button, Cell, Mark, Row, Table};
use super::visit::Visit;
use super::{difference, path, probes, record, setting_fields};

/// Where the list is.
pub(crate) const LIST: &str = "/console/identity/realms";
/// Where settings are edited. A realm may have any name, so this is not below the list.
const SETTINGS: &str = "/console/identity/settings";
/// Where realms are made.
pub(crate) const NEW: &str = "/console/identity/new-realm";

/// Settings that hold secrets, which the Admin API does not show.
pub(crate) const HIDDEN: [&str; 2] = ["federation", "ldap"];

/// What the form shows first.
const COMMON: [&str; 8] = [
    "access_token_lifetime",
    "refresh_token_lifetime",
    "id_token_lifetime",
    "second_factor",
    "password_reset",
    "password_policy.min_length",
    "cors_origins",
    "registration.mode",
];

fn parts(path: &str) -> Vec<&str> {
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
    // The path of the realm `/` has no parts; the Admin API calls it so.
    if parts.is_empty() {
        vec!["root"]
    } else {
        parts
    }
}

/// The Admin API's path of a realm.
pub(crate) fn target(path: &str) -> String {
    path::join("/identity/realms", parts(path))
}

/// The page of a realm.
pub(crate) fn address(path: &str) -> String {
    path::join(LIST, parts(path))
}

/// The realm above; of `/` there is none.
fn above(path: &str) -> Option<&str> {
    let (above, name) = path.rsplit_once('/')?;
    match (above, name) {
        ("", "") => None,
        ("", _) => Some("/"),
        (above, _) => Some(above),
    }
}

fn subject(path: &str) -> Subject {
    Subject::Realm {
        path: path.to_owned(),
    }
}

/// `GET /identity/realms/{path}`.
pub(crate) async fn show(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let t = visit.texts;
    let path = format!("/{}", visit.params.join("/"));
    let path = if path == "/root" { "/" } else { &path };
    let realm = subject(path).record(&visit).await?;
    let name = record::text(&realm["path"]);
    let file = record::declared_in(&realm);
    let editable = file.is_none() && visit.may(REGISTRY_CHANGED_BY);
    let of_realm = |page: &str| path::with_query(page, [("realm", name.as_str())]);
    let mut links = vec![
        (t.users.to_owned(), of_realm("/console/identity/users")),
        (t.clients.to_owned(), of_realm("/console/identity/clients")),
        (t.probes.to_owned(), probes::address(&name)),
    ];
    if editable {
        links.insert(0, (t.edit.to_owned(), of_realm(SETTINGS)));
    }
    let delete = Button {
        text: t.delete.to_owned(),
        label: format!("{}: {name}", t.delete),
        address: format!("{SETTINGS}/delete"),
        fields: vec![
            ("realm".to_owned(), name.clone()),
            ("version".to_owned(), version_of(&realm)),
        ],
        danger: true,
    };
    let note = file.map(|file| format!("{} {file}", t.file_owned));
    frame::show(&RecordPage {
        frame: Frame::of(&visit, name.clone(), LIST),
        list: (t.realms, LIST.to_owned()),
        links,
        buttons: if editable && name != "/" {
            vec![delete]
        } else {
            Vec::new()
        },
        done: if visit.query("done").is_empty() {
            ""
        } else {
            t.done
        },
        notes: note.into_iter().collect(),
        ask: None,
        tables: vec![
            facts(&visit, &realm),
            in_force(&visit, &name, &realm).await?,
        ],
    })
}

fn facts(visit: &Visit, realm: &Value) -> Table {
    let t = visit.texts;
    let rows = ["issuer", "owner"].map(|name| {
        let value = Cell::new(record::text(&realm[name]));
        Row::new(vec![Cell::code(name), value])
    });
    Table {
        caption: t.realm.to_owned(),
        columns: [t.name, t.value].map(str::to_owned).to_vec(),
        rows: rows.to_vec(),
        empty: t.nothing,
        ..Table::default()
    }
}

/// The settings in force, each with the realm that sets it.
async fn in_force(visit: &Visit, name: &str, realm: &Value) -> Result<Table, PageError> {
    let t = visit.texts;
    let mut origins = vec![(name.to_owned(), realm["settings"].clone())];
    let mut at = above(name);
    while let Some(path) = at {
        let found = visit.api().get(&target(path)).await?;
        origins.push((path.to_owned(), found["settings"].clone()));
        at = above(path);
    }
    let origin = |setting: &str| {
        let sets = |(_, settings): &&(String, Value)| settings.get(setting).is_some();
        let found = origins.iter().find(sets);
        let found = found.filter(|(_, settings)| !settings[setting].is_null());
        found.map_or_else(
            || Cell::new(t.default).marked(Mark::Muted),
            |(path, _)| Cell::new(path.clone()).to(address(path)),
        )
    };
    let effective = &realm["effective_settings"];
    let lines = difference::lines(&Value::Null, effective).into_iter();
    let rows = lines.map(|line| {
        let value = record::get(effective, &line.name).unwrap_or(&Value::Null);
        let setting = line.name.split('.').next().unwrap_or_default();
        let origin = origin(setting);
        let value = cell(&line.name, value);
        Row::new(vec![Cell::code(line.name), value, origin])
    });
    Ok(Table {
        caption: t.settings_in_force.to_owned(),
        columns: [t.name, t.value, t.origin].map(str::to_owned).to_vec(),
        rows: rows.collect(),
        empty: t.nothing,
        ..Table::default()
    })
}

/// The settings as a form shows them: what holds a secret is masked.
pub(crate) fn shown(settings: &Value) -> Value {
    let mut shown = settings.clone();
    for name in HIDDEN {
        if !shown[name].is_null() {
            shown[name] = MASK.into();
        } else if let Value::Object(members) = &mut shown {
            members.remove(name);
        }
    }
    shown
}

/// The fields of a realm's settings.
async fn fields(visit: &Visit, path: &str) -> Result<Vec<Field>, PageError> {
    let inherited = match above(path) {
        Some(above) => {
            let mut found = visit.api().get(&target(above)).await?;
            found["effective_settings"].take()
        }
        None => json!(RealmSettings::default()),
    };
    Ok(setting_fields::of(&inherited))
}

fn form(
    visit: &Visit,
    (path, fields): (&str, &[Field]),
    current: &Value,
    version: String,
) -> FormPage {
    let is_first = |field: &&Field| {
        let is_set = record::get(current, &field.name).is_some();
        COMMON.contains(&field.name.as_str()) || is_set
    };
    let (first, others): (Vec<_>, Vec<_>) = fields.iter().partition(is_first);
    let place = FormPlace {
        title: format!("{}: {path}", visit.texts.edit),
        section: LIST.to_owned(),
        address: SETTINGS.to_owned(),
        back: address(path),
        version,
        realm: path.to_owned(),
        lead: visit.texts.settings_lead,
    };
    place.page(visit, (&first, &others), current)
}

/// `GET /identity/settings`: the form of a realm's settings.
pub(crate) async fn edit(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let path = visit.query("realm");
    let subject = subject(path);
    let realm = subject.current(&visit).await?;
    let fields = fields(&visit, path).await?;
    let version = version_of(&realm);
    let current = shown(&realm["settings"]);
    frame::show(&form(&visit, (path, &fields), &current, version))
}

/// `POST /identity/settings`: shows what will differ, if the settings are still what
/// the form was made of.
pub(crate) async fn preview(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let path = visit.field("realm");
    let subject = subject(path);
    let realm = subject.current(&visit).await?;
    let seen = seen(&visit, &subject, &realm)?;
    let fields = fields(&visit, path).await?;
    let own = &realm["settings"];
    let current = shown(own);
    let outcome = form::patch(&visit, &fields, &seen);
    let outcome = outcome.and_then(|patch| {
        let mut realm = realm.clone();
        realm["settings"] = seen.clone();
        let patch = settings(&visit, &fields, &realm, patch);
        let wrong = violations(own, &patch);
        if wrong.is_empty() {
            Ok(patch)
        } else {
            Err(wrong)
        }
    });
    let form = |version| form(&visit, (path, &fields), &current, version);
    save(&visit, (subject, &realm, &seen), outcome, form).await
}

/// The settings that a patch of fields sets: whole, as realms take them over.
fn settings(visit: &Visit, fields: &[Field], realm: &Value, patch: Value) -> Map<String, Value> {
    let own = &realm["settings"];
    // Where the realm above has set a record, the realm's own begins as that one.
    let mut base = own.clone();
    for (name, value) in patch.as_object().into_iter().flatten() {
        let effective = &realm["effective_settings"][name];
        if value.is_object() && base[name].is_null() && !HIDDEN.contains(&name.as_str()) {
            base[name] = effective.clone();
        }
    }
    let mut patch = of_members(&base, patch);
    // Of texts the JSON is what was meant; an empty field asks for the realm above.
    if visit.field("view") != "json" {
        for field in fields.iter().filter(|field| !field.name.contains('.')) {
            let typed = visit.field(&format!("f.{}", field.name)).trim();
            if typed.is_empty() || typed == "null" && field.input == Input::Json {
                patch.entry(field.name.clone()).and_modify(|value| {
                    *value = Value::Null;
                });
            }
        }
    }
    patch
}

/// What is wrong with the settings as `patch` makes them.
fn violations(own: &Value, patch: &Map<String, Value>) -> Vec<(String, String)> {
    let mut all = own.as_object().cloned().unwrap_or_default();
    // Without their secrets they may be wrong, and were right before.
    all.retain(|name, _| !HIDDEN.contains(&name.as_str()));
    all.extend(patch.clone());
    let wrong = check_settings(all).err();
    wrong
        .map(|error| (field_of(&error.path), error.message))
        .into_iter()
        .collect()
}

/// The form again, with `patch` in it and what is wrong.
pub(crate) async fn again(
    visit: &Visit,
    path: &str,
    patch: &Map<String, Value>,
    errors: Vec<(String, String)>,
) -> Result<Response, PageError> {
    let subject = subject(path);
    let realm = subject.current(visit).await?;
    let mut typed = shown(&realm["settings"]);
    for (name, value) in patch {
        if !HIDDEN.contains(&name.as_str()) {
            typed[name] = value.clone();
        }
    }
    let fields = fields(visit, path).await?;
    let version = version_of(&realm);
    let form = form(visit, (path, &fields), &typed, version);
    form.of(&shown(&realm["settings"])).refused(errors)
}

/// `POST /identity/settings/delete`: shows what would be gone.
pub(crate) async fn delete(visit: Visit) -> Result<Response, PageError> {
    let act = Act::Delete {
        version: visit.field("version").to_owned(),
    };
    let subject = subject(visit.field("realm"));
    RegistryChange::new(subject, act).ask(&visit).await
}

/// The form of a new realm, with what was typed.
fn new_form(visit: &Visit) -> FormPage {
    let field = Field {
        name: "path".to_owned(),
        input: Input::Text,
        required: true,
        default: Value::Null,
        between: None,
    };
    let place = FormPlace {
        title: visit.texts.new_realm.to_owned(),
        section: LIST.to_owned(),
        address: NEW.to_owned(),
        back: LIST.to_owned(),
        version: String::new(),
        realm: String::new(),
        lead: visit.texts.new_realm_lead,
    };
    place.page(visit, (&[&field], &[]), &json!({}))
}

/// `GET /identity/new-realm`.
pub(crate) async fn new(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    frame::show(&new_form(&visit))
}

/// `POST /identity/new-realm`: shows what will be made.
pub(crate) async fn create(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let body = match visit.field("view") {
        "json" => serde_json::from_str(visit.field("record"))
            .map_err(|error| vec![(String::new(), error.to_string())]),
        _ => Ok(Map::from_iter([(
            "path".to_owned(),
            visit.field("f.path").trim().into(),
        )])),
    };
    let named = body.and_then(|body: Map<String, Value>| {
        form::refuse_masks(&visit, &body.clone().into())?;
        let path = body.get("path").and_then(Value::as_str).unwrap_or_default();
        let is_path = path.len() > 1 && path.starts_with('/') && !path.ends_with('/');
        if is_path {
            Ok((path.to_owned(), body))
        } else {
            Err(vec![(
                "path".to_owned(),
                visit.texts.new_realm_lead.to_owned(),
            )])
        }
    });
    match named {
        Ok((path, body)) => {
            let change = RegistryChange::new(subject(&path), Act::Create { body });
            change.ask(&visit).await
        }
        Err(errors) => new_form(&visit).typed(&visit).refused(errors),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_realm_above_is_known_by_the_path() {
        assert_eq!(above("/a/b"), Some("/a"));
        assert_eq!(above("/a"), Some("/"));
        assert_eq!(above("/"), None);
        assert_eq!(above(""), None);
        assert_eq!(address("/"), "/console/identity/realms/root");
        assert_eq!(target("/a b/c"), "/identity/realms/a%20b/c");
    }

    #[test]
    fn what_holds_a_secret_is_masked_in_the_form() {
        let settings = json!({"ldap": {"urls": ["ldap://x"]}, "federation": null, "a": 1});
        assert_eq!(shown(&settings), json!({"ldap": "**", "a": 1}));
    }
}
