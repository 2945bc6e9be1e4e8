//! Changes of entities: a form, the difference that it makes, and then the change.

use askama::Template;
use aws_lc_rs::digest::{SHA256, digest};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::api::ApiAnswer;
use super::difference::{self, Line};
use super::entities::{ListPage, hides_keys};
use super::error::PageError;
use super::fields::{self, Field, Input};
use super::form::{self, FormPage};
use super::frame::{self, Frame};
use super::kinds::{self, Place};
use super::table::{Cell, Row, Table};
use super::visit::Visit;
use super::{path, record};

/// A change that waits for a yes.
#[derive(Debug, Serialize, Deserialize)]
struct Change {
    method: String,
    /// Null: none.
    body: Value,
    /// Of the record that it was made for.
    version: String,
}

#[derive(Template)]
#[template(path = "difference.html")]
struct DifferencePage {
    frame: Frame,
    lines: Vec<Line>,
    address: String,
    change: String,
    back: String,
    is_deletion: bool,
    error: String,
    violations: Vec<(String, String)>,
}

/// A record as it is now.
struct Current {
    /// As the Admin API shows it, without secrets.
    record: Value,
    version: String,
}

/// What tells versions of a record apart.
fn version(record: &Value) -> String {
    let digest = digest(&SHA256, record.to_string().as_bytes());
    URL_SAFE_NO_PAD.encode(&digest.as_ref()[..16])
}

/// The record that `place` names, if it may be changed here.
async fn current(visit: &Visit, place: &Place) -> Result<Current, PageError> {
    let target = path::with_query(&place.path(""), [("declared", "true")]);
    let found = visit.api().get(&target).await?;
    if let Some(file) = found.get("declared_in").and_then(Value::as_str) {
        return Err(PageError::FileOwned(file.to_owned()));
    }
    let record = record::masked(&found, hides_keys(place.kind));
    let version = version(&record);
    Ok(Current { record, version })
}

/// What the path names: a list to add to, or a record.
fn place(visit: &Visit) -> Result<Place, PageError> {
    Place::of(&visit.params).ok_or(PageError::NotFound)
}

/// `GET /new/{list}`.
pub(crate) async fn new(visit: Visit) -> Result<Response, PageError> {
    let place = place(&visit)?;
    if place.key.is_some() {
        return Err(PageError::NotFound);
    }
    let plugin = visit.query("plugin").to_owned();
    if place.kind.plural == "plugins" && plugin.is_empty() {
        return catalogue(&visit, &place).await;
    }
    let fields = fields_of(&visit, &place, Some(&plugin)).await?;
    let empty = if plugin.is_empty() {
        json!({})
    } else {
        json!({"name": plugin})
    };
    let page = form::page(&visit, &place, &fields, &empty, "");
    frame::show(&page)
}

/// The plugins that there are: the first step to a new one.
async fn catalogue(visit: &Visit, place: &Place) -> Result<Response, PageError> {
    let t = visit.texts;
    let body = visit.api().get("/plugins/enabled").await?;
    let names = body["enabled_plugins"].as_array().into_iter().flatten();
    let mut names: Vec<_> = names.filter_map(Value::as_str).collect();
    names.sort_unstable();
    let rows = names.into_iter().map(|name| {
        let to = path::with_query(&place.path("/console/new"), [("plugin", name)]);
        Row::new(vec![Cell::new(name).to(to)])
    });
    frame::show(&ListPage {
        frame: Frame::of(visit, t.choose_plugin, "/console/gateway/plugins"),
        lead: "",
        filters: Vec::new(),
        tables: vec![Table {
            caption: t.plugins.to_owned(),
            columns: vec![t.plugin.to_owned()],
            rows: rows.collect(),
            empty: t.nothing,
            ..Table::default()
        }],
    })
}

/// The fields of the form. What the path says is not asked.
async fn fields_of(
    visit: &Visit,
    place: &Place,
    plugin: Option<&str>,
) -> Result<Vec<Field>, PageError> {
    let mut fields = fields::of(&visit.api(), place.kind, plugin).await?;
    if let Some((parent, _)) = &place.owner {
        let owner = parent.plural.trim_end_matches('s');
        fields.retain(|field| field.name != owner || field.input != Input::Reference);
    }
    Ok(fields)
}

/// `GET /edit/{record}`.
pub(crate) async fn edit(visit: Visit) -> Result<Response, PageError> {
    let place = place(&visit)?;
    if place.key.is_none() {
        return Err(PageError::NotFound);
    }
    let current = current(&visit, &place).await?;
    let plugin = current.record["name"].as_str();
    let fields = fields_of(&visit, &place, plugin).await?;
    let page = form::page(&visit, &place, &fields, &current.record, &current.version);
    frame::show(&page)
}

/// `POST /preview/{place}`: what the change will be, before it is made.
pub(crate) async fn preview(visit: Visit) -> Result<Response, PageError> {
    let place = place(&visit)?;
    if place.key.is_none() {
        return preview_new(&visit, &place).await;
    }
    let current = current(&visit, &place).await?;
    let version = visit.field("version");
    if !version.is_empty() && version != current.version {
        return Err(PageError::Changed);
    }
    if visit.field("view") == "delete" {
        let change = Change {
            method: "DELETE".to_owned(),
            body: Value::Null,
            version: current.version,
        };
        let lines = difference::lines(&current.record, &removal(&current.record));
        return difference_page(&visit, &place, &change, lines, None);
    }
    let plugin = current.record["name"].as_str();
    let fields = fields_of(&visit, &place, plugin).await?;
    let patch = match form::patch(&visit, &fields, &current.record) {
        Ok(patch) => patch,
        Err(errors) => {
            let page = form::page(&visit, &place, &fields, &current.record, &current.version);
            return with_errors(page.typed(&visit), errors);
        }
    };
    let hidden = record::masked(&patch, hides_keys(place.kind));
    let lines = difference::lines(&current.record, &hidden);
    let change = Change {
        method: "PATCH".to_owned(),
        body: patch,
        version: current.version,
    };
    difference_page(&visit, &place, &change, lines, None)
}

/// The patch that shows a record as gone.
fn removal(record: &Value) -> Value {
    let map = record.as_object().into_iter().flatten();
    let named = map.filter(|(_, value)| !value.is_null());
    Value::Object(named.map(|(name, _)| (name.clone(), Value::Null)).collect())
}

async fn preview_new(visit: &Visit, place: &Place) -> Result<Response, PageError> {
    let plugin = visit.field("f.name").to_owned();
    let fields = fields_of(visit, place, Some(&plugin)).await?;
    let empty = json!({});
    let mut errors = Vec::new();
    let mut made = json!({});
    match form::patch(visit, &fields, &empty) {
        Ok(patch) => made = patch,
        Err(wrong) => errors = wrong,
    }
    // What it belongs to is named by the path alone, and is not known to the check.
    if errors.is_empty() && place.owner.is_none() {
        let target = format!("{}/validate", path::join("/schemas", [place.kind.schema]));
        let answer = visit.api().send(Method::POST, &target, Some(&made)).await?;
        if !answer.status.is_success() {
            errors = answer.violations();
            if errors.is_empty() {
                errors.push((String::new(), answer.message().to_owned()));
            }
        }
    }
    if !errors.is_empty() {
        let base = if plugin.is_empty() {
            empty
        } else {
            json!({"name": plugin})
        };
        let page = form::page(visit, place, &fields, &base, "");
        return with_errors(page.typed(visit), errors);
    }
    let hidden = record::masked(&made, hides_keys(place.kind));
    let lines = difference::lines(&Value::Null, &hidden);
    let change = Change {
        method: "POST".to_owned(),
        body: made,
        version: String::new(),
    };
    difference_page(visit, place, &change, lines, None)
}

fn with_errors(page: FormPage, errors: Vec<(String, String)>) -> Result<Response, PageError> {
    let mut response = frame::show(&page.with_errors(errors))?;
    *response.status_mut() = StatusCode::BAD_REQUEST;
    Ok(response)
}

/// The page that asks whether to go on.
fn difference_page(
    visit: &Visit,
    place: &Place,
    change: &Change,
    lines: Vec<Line>,
    refusal: Option<&ApiAnswer>,
) -> Result<Response, PageError> {
    let t = visit.texts;
    let text = serde_json::to_vec(change).map_err(|_| PageError::Unreadable)?;
    let session = visit.session().ok_or(PageError::NoSession)?;
    let sealed = visit
        .parts()
        .sessions
        .seal_change(session, &place.path(""), &text);
    let is_deletion = change.method == "DELETE";
    let section = place
        .owner
        .as_ref()
        .map_or(place.kind, |(parent, _)| *parent);
    let title = if is_deletion {
        t.delete_title
    } else {
        t.difference
    };
    let mut response = frame::show(&DifferencePage {
        frame: Frame::of(visit, title, &section.address()),
        lines,
        address: place.path("/console/apply"),
        change: sealed.ok_or(PageError::Unreadable)?,
        back: place.path("/console/gateway"),
        is_deletion,
        error: refusal.map_or_else(String::new, |answer| answer.message().to_owned()),
        violations: refusal.map_or_else(Vec::new, ApiAnswer::violations),
    })?;
    if let Some(answer) = refusal {
        *response.status_mut() = answer.status;
    }
    Ok(response)
}

/// `POST /apply/{place}`: makes the change that was shown, if the record is still
/// the one that it was shown for.
pub(crate) async fn apply(visit: Visit) -> Result<Response, PageError> {
    let place = place(&visit)?;
    let session = visit.session().ok_or(PageError::NoSession)?;
    let sealed = visit.field("change");
    let opened = visit
        .parts()
        .sessions
        .open_change(session, &place.path(""), sealed);
    let opened = opened.ok_or(PageError::Stale)?;
    let change: Change = serde_json::from_slice(&opened).map_err(|_| PageError::Stale)?;
    let method = change
        .method
        .parse::<Method>()
        .map_err(|_| PageError::Stale)?;
    let mut before = Value::Null;
    if place.key.is_some() {
        let current = current(&visit, &place).await?;
        if current.version != change.version {
            return Err(PageError::Changed);
        }
        before = current.record;
    }
    let body = Some(&change.body).filter(|body| !body.is_null());
    let answer = visit
        .api()
        .send(method.clone(), &place.path(""), body)
        .await?;
    if !answer.status.is_success() {
        let patch = if method == Method::DELETE {
            removal(&before)
        } else {
            record::masked(&change.body, hides_keys(place.kind))
        };
        let lines = difference::lines(&before, &patch);
        return difference_page(&visit, &place, &change, lines, Some(&answer));
    }
    if method == Method::DELETE {
        return Ok(frame::lead(&place.list().path("/console/gateway")));
    }
    if let Some(shown) = once(&visit, &place, &answer.body)? {
        return Ok(shown);
    }
    let id = answer.body["id"].as_str().unwrap_or_default();
    Ok(frame::lead(&place.record(id).path("/console/gateway")))
}

/// The page with a secret that the Admin API shows in the answer that made it, and
/// never again.
fn once(visit: &Visit, place: &Place, made: &Value) -> Result<Option<Response>, PageError> {
    let secret = ["key", "secret", "client_secret"]
        .into_iter()
        .find_map(|name| {
            let is_shown = place.kind.parent == Some("consumers");
            let text = made.get(name)?.as_str().filter(|text| *text != "**")?;
            is_shown.then_some((name, text))
        });
    let Some((name, text)) = secret else {
        return Ok(None);
    };
    let t = visit.texts;
    let id = made["id"].as_str().unwrap_or_default();
    let own = place.record(id).path("/console/gateway");
    let page = ListPage {
        frame: Frame::of(visit, t.shown_once, "/console/gateway/consumers"),
        lead: t.shown_once_lead,
        filters: Vec::new(),
        tables: vec![Table {
            caption: kinds::name_of(made).to_owned(),
            columns: [t.name, t.value].map(str::to_owned).to_vec(),
            rows: vec![Row::new(vec![Cell::new(name), Cell::code(text)])],
            links: vec![(t.go_on.to_owned(), own)],
            ..Table::default()
        }],
    };
    frame::show(&page).map(Some)
}
