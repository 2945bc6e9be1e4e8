//! Entities: lists and records.

use std::collections::HashMap;

use askama::Template;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use doorward_core::model::audit::instant;

use super::api::Api;
use super::error::PageError;
use super::fields::{self, Field};
use super::frame::{self, Frame};
use super::kinds::{self, Kind, Place};
use super::paged_list::SIZE;
use super::table::{Button, Cell, Filter, Mark, Row, Table};
use super::visit::Visit;
use super::{path, record};

/// Records of a list on the page of the record above.
const CHILDREN: &str = "20";

#[derive(Template)]
#[template(path = "list.html")]
pub(crate) struct ListPage {
    pub(crate) frame: Frame,
    pub(crate) lead: &'static str,
    pub(crate) filters: Vec<Filter>,
    pub(crate) tables: Vec<Table>,
}

/// The page with a secret that the Admin API shows in the answer that made it, and never
/// again: its rows are names and values, and `own` is where it leads afterwards.
pub(crate) fn shown_once(
    visit: &Visit,
    section: &str,
    caption: &str,
    rows: &[(&str, &str)],
    own: String,
) -> Result<Response, PageError> {
    let t = visit.texts;
    let rows = rows
        .iter()
        .map(|(name, value)| Row::new(vec![Cell::new(*name), Cell::code(*value)]));
    frame::show(&ListPage {
        frame: Frame::of(visit, t.shown_once, section),
        lead: t.shown_once_lead,
        filters: Vec::new(),
        tables: vec![Table {
            caption: caption.to_owned(),
            columns: [t.name, t.value].map(str::to_owned).to_vec(),
            rows: rows.collect(),
            links: vec![(t.go_on.to_owned(), own)],
            ..Table::default()
        }],
    })
}

/// A field of a record.
struct Fact {
    name: String,
    cell: Cell,
    is_default: bool,
}

#[derive(Template)]
#[template(path = "record.html")]
struct RecordPage {
    frame: Frame,
    kind: &'static str,
    /// The list that it is of.
    list: String,
    /// The file that owns it.
    file: Option<String>,
    facts: Vec<Fact>,
    defaults: Vec<Fact>,
    /// Addresses of the pages that change it.
    actions: Option<[String; 2]>,
    tables: Vec<Table>,
    views: [(&'static str, String); 3],
}

/// Names of records by their addresses, so that each is asked for once.
#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
    /// The cell of a reference in the field `field`.
    async fn cell(&mut self, api: &Api, field: &str, id: &str) -> Cell {
        let plural = match field {
            "ca_certificates" => field.to_owned(),
            "client_certificate" => "certificates".to_owned(),
            field => format!("{field}s"),
        };
        let target = path::join("", [plural.as_str(), id]);
        let address = path::join("/console/gateway", [plural.as_str(), id]);
        if !self.0.contains_key(&target) {
            let record = api.get(&target).await.unwrap_or_default();
            let name = kinds::name_of(&record).to_owned();
            let name = if name.is_empty() { id.to_owned() } else { name };
            self.0.insert(target.clone(), name);
        }
        let name = self.0.get(&target).cloned().unwrap_or_default();
        Cell::new(name).to(address)
    }
}

/// The identifier that a value refers to, if it is a reference.
fn reference(value: &Value) -> Option<&str> {
    let map = value.as_object().filter(|map| map.len() == 1)?;
    map.get("id")?.as_str()
}

/// `GET /gateway/…`: a list or a record.
pub(crate) async fn show(visit: Visit) -> Result<Response, PageError> {
    let place = Place::of(&visit.params).ok_or(PageError::NotFound)?;
    match place.key {
        None => list(visit, place).await,
        Some(_) => record_page(visit, place).await,
    }
}

async fn list(visit: Visit, place: Place) -> Result<Response, PageError> {
    let t = visit.texts;
    let (search, tags) = (visit.query("q"), visit.query("tags"));
    let query = [
        ("size", SIZE),
        ("declared", "true"),
        ("q", search),
        ("tags", tags),
        ("offset", visit.query("offset")),
    ];
    let body = visit
        .api()
        .get(&path::with_query(&place.path(""), query))
        .await?;
    let mut table = table(&visit, &place, &body).await;
    if let Some(offset) = body.get("offset").and_then(Value::as_str) {
        let query = [("q", search), ("tags", tags), ("offset", offset)];
        table.next = Some(path::with_query(&place.path("/console/gateway"), query));
    }
    if visit.may(place.kind.changed_by) {
        table.links = vec![(t.create.to_owned(), place.path("/console/new"))];
    }
    let title = (place.kind.title)(t);
    let section = place.kind.address();
    frame::show(&ListPage {
        frame: Frame::of(&visit, title, &section),
        lead: "",
        filters: vec![
            Filter::of(&visit, "q", t.search, t.search_hint),
            Filter::of(&visit, "tags", t.tags, t.tags_hint),
        ],
        tables: vec![table],
    })
}

/// The records of a list's answer.
async fn table(visit: &Visit, place: &Place, body: &Value) -> Table {
    let t = visit.texts;
    let api = visit.api();
    let mut names = Names::default();
    let mut rows = Vec::new();
    for found in body["data"].as_array().into_iter().flatten() {
        let id = found["id"].as_str().unwrap_or_default();
        let own = place.record(id);
        let shown = record::masked(found, hides_keys(place.kind));
        let mut cells = Vec::new();
        for (index, column) in place.kind.columns.iter().enumerate() {
            let value = shown.get(column).unwrap_or(&Value::Null);
            let cell = match (index, reference(value), *column) {
                (0, ..) => {
                    let text = value.as_str().filter(|text| *text != "**").unwrap_or(id);
                    Cell::new(text).to(own.path("/console/gateway"))
                }
                (_, Some(reference), field) => names.cell(&api, field, reference).await,
                (_, None, "enabled") => switch_cell(visit, value),
                (_, None, _) => Cell::new(record::text(value)),
            };
            cells.push(cell);
        }
        if let Some(health) = found.get("health").and_then(Value::as_str) {
            cells.push(health_cell(health));
        }
        cells.push(match record::declared_in(found) {
            Some(file) => Cell::code(file),
            None => Cell::new(t.stored).marked(Mark::Muted),
        });
        let mut row = Row::new(cells);
        let enabled = found.get("enabled").and_then(Value::as_bool);
        if let Some(enabled) = enabled
            && visit.may(place.kind.changed_by)
            && found.get("declared_in").is_none()
        {
            row.buttons.push(switch(visit, &own, found, enabled));
        }
        rows.push(row);
    }
    let mut columns: Vec<String> = place
        .kind
        .columns
        .iter()
        .map(|one| (*one).to_owned())
        .collect();
    let has_health = body["data"][0].get("health").is_some();
    columns.extend(has_health.then(|| t.health.to_owned()));
    columns.push(t.origin.to_owned());
    Table {
        caption: (place.kind.title)(t).to_owned(),
        columns,
        rows,
        empty: t.nothing,
        ..Table::default()
    }
}

/// Whether a field `key` of this kind is a secret: of certificates and of the keys
/// of consumers it is, of tokens' issuers it is none.
pub(crate) fn hides_keys(kind: &Kind) -> bool {
    matches!(kind.plural, "certificates" | "key-auth")
}

fn switch_cell(visit: &Visit, value: &Value) -> Cell {
    let t = visit.texts;
    if *value == Value::Bool(false) {
        Cell::new(t.off).marked(Mark::Warning)
    } else {
        Cell::new(t.on).marked(Mark::Good)
    }
}

fn health_cell(health: &str) -> Cell {
    let mark = match health.to_ascii_lowercase().as_str() {
        "healthy" => Mark::Good,
        "unhealthy" | "dns_error" => Mark::Bad,
        _ => Mark::Muted,
    };
    Cell::new(health).marked(mark)
}

/// The button that switches a record on or off.
fn switch(visit: &Visit, place: &Place, found: &Value, enabled: bool) -> Button {
    let t = visit.texts;
    let text = if enabled { t.switch_off } else { t.switch_on };
    let patch = json!({"enabled": !enabled}).to_string();
    Button {
        text: text.to_owned(),
        label: format!("{text}: {}", kinds::name_of(found)),
        address: place.path("/console/preview"),
        fields: vec![
            ("view".to_owned(), "patch".to_owned()),
            ("patch".to_owned(), patch),
        ],
        danger: false,
    }
}

async fn record_page(visit: Visit, place: Place) -> Result<Response, PageError> {
    let t = visit.texts;
    let api = visit.api();
    let target = path::with_query(&place.path(""), [("declared", "true")]);
    let found = api.get(&target).await?;
    let shown = record::masked(&found, hides_keys(place.kind));
    let file = record::declared_in(&found);
    let fields = fields::of(&api, place.kind, found["name"].as_str()).await?;
    let (facts, defaults) = facts(&api, &shown, &fields).await;
    let name = match kinds::name_of(&found) {
        "" => found["id"].as_str().unwrap_or_default(),
        name => name,
    };
    let mut tables = Vec::new();
    for plural in place.kind.children {
        tables.extend(children(&visit, &place, plural).await?);
    }
    let plain = record::without_place(&shown);
    let stored = record::curl(&place.path(""), &without_stamps(&plain));
    let editable = file.is_none() && visit.may(place.kind.changed_by);
    let (edit, list) = (
        place.path("/console/edit"),
        place.list().path("/console/gateway"),
    );
    let kind = (place.kind.title)(t);
    let top = place
        .owner
        .as_ref()
        .map_or(place.kind, |(parent, _)| *parent);
    frame::show(&RecordPage {
        frame: Frame::of(&visit, name, &top.address()),
        kind,
        list,
        file,
        facts,
        defaults,
        actions: editable.then(|| [edit, place.path("/console/preview")]),
        tables,
        views: [
            (
                "JSON",
                serde_json::to_string_pretty(&plain).unwrap_or_default(),
            ),
            ("YAML", doorward_core::yaml::write(&plain)),
            ("curl", stored),
        ],
    })
}

/// The record without what the Admin API sets itself.
fn without_stamps(record: &Value) -> Value {
    let mut record = record.clone();
    if let Value::Object(map) = &mut record {
        map.retain(|name, value| !value.is_null() && !fields::is_automatic(name));
    }
    record
}

/// The fields that differ from their defaults, and those that do not.
async fn facts(api: &Api, shown: &Value, fields: &[Field]) -> (Vec<Fact>, Vec<Fact>) {
    let mut names = Names::default();
    let mut all = Vec::new();
    for name in ["id", "created_at", "updated_at"] {
        if let Some(value) = shown.get(name) {
            all.push(Fact {
                name: name.to_owned(),
                cell: Cell::code(match value.as_i64() {
                    Some(seconds) => instant(seconds.saturating_mul(1000)),
                    None => record::text(value),
                }),
                is_default: false,
            });
        }
    }
    for field in fields {
        let value = record::get(shown, &field.name).unwrap_or(&Value::Null);
        let cell = match reference(value) {
            Some(id) => names.cell(api, &field.name, id).await,
            None => Cell::new(record::text(value)),
        };
        all.push(Fact {
            name: field.name.clone(),
            cell,
            is_default: field.is_default(value),
        });
    }
    let (defaults, own) = all.into_iter().partition(|fact| fact.is_default);
    (own, defaults)
}

/// The records of a kind below this one; `None` where the Admin API has no list.
async fn children(visit: &Visit, place: &Place, plural: &str) -> Result<Option<Table>, PageError> {
    let Some(key) = place.key.clone().filter(|_| place.owner.is_none()) else {
        return Ok(None);
    };
    let Some(kind) = Kind::of(plural) else {
        return Ok(None);
    };
    let below = Place {
        kind,
        owner: Some((place.kind, key.clone())),
        key: None,
    };
    let target = if plural == "targets" {
        path::join("", [place.kind.plural, key.as_str(), "health"])
    } else {
        below.path("")
    };
    let query = [("size", CHILDREN), ("declared", "true")];
    let body = match visit.api().get(&path::with_query(&target, query)).await {
        Ok(body) => body,
        Err(PageError::Api(answer)) if answer.status == StatusCode::NOT_FOUND => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut table = table(visit, &below, &body).await;
    if body.get("offset").is_some_and(Value::is_string) {
        table.next = Some(below.path("/console/gateway"));
    }
    if visit.may(kind.changed_by) {
        let create = format!("{}: {}", visit.texts.create, (kind.title)(visit.texts));
        table.links = vec![(create, below.path("/console/new"))];
    }
    Ok(Some(table))
}
