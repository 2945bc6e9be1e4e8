//! Changes of entities: a form, the difference that it makes, and then the change.

use axum::response::Response;
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::api::ApiAnswer;
use super::difference::{self, Confirmation, Conflict, removal};
use super::entities::{self, ListPage, hides_keys};
use super::error::PageError;
use super::fields::{self, Field, Input};
use super::form;
use super::frame::{self, Frame};
use super::kinds::{self, Place};
use super::session::Role;
use super::table::{Cell, Row, Table};
use super::trail::Trail;
use super::undo_log::{UndoEntry, change_id};
use super::visit::Visit;
use super::{form_base, path, record};
use doorward_core::model::credential::MASK;

/// A change of an entity.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EntityChange {
    /// The parts of the path that name its list or the record ([`Place::params`]).
    params: Vec<String>,
    method: String,
    /// Null: none.
    body: Value,
    /// Of the record that it was made for; "" of a new one.
    version: String,
    /// The change that this one takes back.
    #[serde(default)]
    pub(crate) undoes: Option<String>,
}

impl EntityChange {
    fn new(place: &Place, method: &Method, body: Value, version: String) -> Self {
        Self {
            params: place.params(),
            method: method.to_string(),
            body,
            version,
            undoes: None,
        }
    }

    /// Who may make it.
    pub(crate) fn role(&self) -> Role {
        Place::of(&self.params).map_or(Role::Owner, |place| place.kind.changed_by)
    }

    fn is(&self, method: &Method) -> bool {
        self.method == method.as_str()
    }

    /// Has the Admin API make it, under the name `id`, of the record of its version alone.
    async fn send(&self, visit: &Visit, place: &Place, id: &str) -> Result<ApiAnswer, PageError> {
        let method = self.method.parse::<Method>();
        let method = method.map_err(|_| PageError::Stale)?;
        // The answer tells the version that the record has then.
        let query = [("declared", "true"), ("version", &self.version)];
        let target = path::with_query(&place.path(""), query);
        let body = Some(&self.body).filter(|body| !body.is_null());
        visit.api_for(id).send(method, &target, body).await
    }
}

/// A record as it is now.
struct Current {
    /// As the Admin API shows it.
    whole: Value,
    /// The same without secrets.
    record: Value,
    version: String,
}

impl Current {
    /// As the Admin API shows it with its version.
    fn of(place: &Place, found: &Value) -> Self {
        let whole = record::without_place(found);
        Self {
            record: record::masked(&whole, hides_keys(place.kind)),
            version: found["version"].as_str().unwrap_or_default().to_owned(),
            whole,
        }
    }
}

/// The record that `place` names, if it may be changed here.
async fn current(visit: &Visit, place: &Place) -> Result<Current, PageError> {
    let target = path::with_query(&place.path(""), [("declared", "true")]);
    let found = visit.api().get(&target).await?;
    if let Some(file) = record::declared_in(&found) {
        return Err(PageError::FileOwned(file));
    }
    let current = Current::of(place, &found);
    // No change is made of a record that can't be told from others.
    if current.version.is_empty() {
        return Err(PageError::Unreadable);
    }
    Ok(current)
}

/// Where the audit log has the changes of what `place` names, which is `current` now.
fn trail(place: &Place, current: &Current) -> Trail {
    let names = [&current.record["id"], &current.record["name"]];
    let keys = names.into_iter().filter_map(Value::as_str);
    let targets = keys.map(|key| place.record(key).path(""));
    Trail::of_entity(targets.chain([place.path("")]).collect())
}

/// The refusal of a change to what `place` names, which is `current` now.
fn changed(place: &Place, current: &Current) -> PageError {
    PageError::changed(trail(place, current))
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
    let is_late = !version.is_empty() && version != current.version;
    let base = form_base::of(&visit);
    if is_late && base.is_null() {
        return Err(changed(&place, &current));
    }
    let seen = if is_late { &base } else { &current.record };
    if visit.field("view") == "delete" {
        let change = EntityChange::new(&place, &Method::DELETE, Value::Null, current.version);
        return ask(&visit, change).await;
    }
    let plugin = current.record["name"].as_str();
    let fields = fields_of(&visit, &place, plugin).await?;
    let patch = match form::patch(&visit, &fields, seen) {
        Ok(patch) => patch,
        Err(errors) => {
            let version = if is_late { version } else { &current.version };
            let page = form::page(&visit, &place, &fields, seen, version);
            return page.typed(&visit).refused(errors);
        }
    };
    if is_late {
        return merge(&visit, &place, patch, (&current, &base)).await;
    }
    let change = EntityChange::new(&place, &Method::PATCH, patch, current.version);
    ask(&visit, change).await
}

/// Shows what a patch does to a record that somebody else has changed since it was
/// `base`; null: nobody knows what it was.
async fn merge(
    visit: &Visit,
    place: &Place,
    patch: Value,
    (current, base): (&Current, &Value),
) -> Result<Response, PageError> {
    let trail = trail(place, current);
    let conflict = Conflict::find(visit, trail, base, &current.record).await;
    let change = EntityChange::new(place, &Method::PATCH, patch, current.version.clone());
    let aside = Aside {
        conflict: Some(conflict),
        ..Aside::default()
    };
    difference_page(visit, place, &change, (&current.record, aside))
}

/// What is said beside a difference.
#[derive(Default)]
struct Aside<'a> {
    note: &'static str,
    conflict: Option<Conflict>,
    /// What the Admin API said, if it refused the change.
    refusal: Option<&'a ApiAnswer>,
}

/// Shows what the change does to what is there now, and asks for a yes.
pub(crate) async fn ask(visit: &Visit, change: EntityChange) -> Result<Response, PageError> {
    let place = Place::of(&change.params).ok_or(PageError::NotFound)?;
    let mut before = Value::Null;
    let mut note = "";
    if place.key.is_some() {
        let current = current(visit, &place).await?;
        if current.version != change.version {
            return Err(changed(&place, &current));
        }
        if change.is(&Method::DELETE) && !comes_back(visit, &place, &current).await? {
            note = visit.texts.no_entity_back;
        }
        before = current.record;
    }
    let aside = Aside {
        note,
        ..Aside::default()
    };
    difference_page(visit, &place, &change, (&before, aside))
}

/// Whether a record that is deleted can be made anew: with all that it holds, and if
/// nothing goes with it.
async fn comes_back(visit: &Visit, place: &Place, current: &Current) -> Result<bool, PageError> {
    if record::has_mask(&current.whole) {
        return Ok(false);
    }
    for plural in place.kind.children {
        let list = path::join(&place.path(""), [*plural]);
        let list = path::with_query(&list, [("size", "1"), ("declared", "true")]);
        let answer = visit.api().send(Method::GET, &list, None).await?;
        if answer.body["data"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The record without what the Admin API sets itself, but for its identifier.
fn without_stamps(record: &Value) -> Value {
    let mut record = record.clone();
    if let Value::Object(members) = &mut record {
        members.retain(|name, _| name == "id" || !fields::is_automatic(name));
    }
    record
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
        return page.typed(visit).refused(errors);
    }
    let change = EntityChange::new(place, &Method::POST, made, String::new());
    ask(visit, change).await
}

/// The page that asks whether to go on.
fn difference_page(
    visit: &Visit,
    place: &Place,
    change: &EntityChange,
    (before, aside): (&Value, Aside<'_>),
) -> Result<Response, PageError> {
    let is_deletion = change.is(&Method::DELETE);
    let patch = if is_deletion {
        removal(before)
    } else {
        record::masked(&change.body, hides_keys(place.kind))
    };
    let section = place
        .owner
        .as_ref()
        .map_or(place.kind, |(parent, _)| *parent);
    let confirmation = Confirmation {
        subject: String::new(),
        section: section.address(),
        lines: difference::lines(before, &patch),
        address: place.path("/console/apply"),
        context: place.path(""),
        back: place.path("/console/gateway"),
        is_deletion,
        note: aside.note,
        conflict: aside.conflict,
    };
    confirmation.show(visit, change, aside.refusal)
}

/// `POST /apply/{place}`: makes the change that was shown, if the record is still
/// the one that it was shown for.
pub(crate) async fn apply(visit: Visit) -> Result<Response, PageError> {
    let place = place(&visit)?;
    let change: EntityChange = difference::confirmed(&visit, &place.path(""))?;
    let mut before = None;
    let mut returns = true;
    if place.key.is_some() {
        let current = current(&visit, &place).await?;
        if current.version != change.version {
            return overtaken(&visit, &place, change, &current).await;
        }
        if change.is(&Method::DELETE) {
            returns = comes_back(&visit, &place, &current).await?;
        }
        before = Some(current);
    }
    let id = change_id();
    let answer = change.send(&visit, &place, &id).await?;
    if answer.status == StatusCode::PRECONDITION_FAILED {
        // Somebody else was faster by a moment.
        let current = current(&visit, &place).await?;
        return overtaken(&visit, &place, change, &current).await;
    }
    if !answer.status.is_success() {
        let before = before.map_or(Value::Null, |current| current.record);
        let aside = Aside {
            refusal: Some(&answer),
            ..Aside::default()
        };
        return difference_page(&visit, &place, &change, (&before, aside));
    }
    if let Some(undone) = &change.undoes {
        visit.parts().undo.forget(undone).await;
    }
    if returns {
        keep(&visit, &place, (before.as_ref(), &answer), id).await;
    }
    if change.is(&Method::DELETE) {
        return Ok(frame::lead(&place.list().path("/console/gateway")));
    }
    if let Some(shown) = once(&visit, &place, &answer.body)? {
        return Ok(shown);
    }
    let id = answer.body["id"].as_str().unwrap_or_default();
    Ok(frame::lead(&place.record(id).path("/console/gateway")))
}

/// Somebody else has changed the record since: shows what the change does to the record
/// as it is now. What undoes another change, and a deletion, are not made then.
async fn overtaken(
    visit: &Visit,
    place: &Place,
    change: EntityChange,
    current: &Current,
) -> Result<Response, PageError> {
    if change.is(&Method::PATCH) && change.undoes.is_none() {
        return merge(visit, place, change.body, (current, &Value::Null)).await;
    }
    Err(changed(place, current))
}

/// Keeps how the change is undone that led from `before` to `answer`, for the version of
/// the record that the answer tells.
async fn keep(
    visit: &Visit,
    place: &Place,
    (before, answer): (Option<&Current>, &ApiAnswer),
    id: String,
) {
    let made = answer.body["id"].as_str();
    let undo = match (before, made) {
        // It is gone.
        (Some(before), None) => {
            let body = without_stamps(&before.whole);
            EntityChange::new(&place.list(), &Method::POST, body, String::new())
        }
        (None, None) => return,
        (before, Some(made)) => {
            let place = place.record(made);
            let now = Current::of(&place, &answer.body);
            match before {
                None => EntityChange::new(&place, &Method::DELETE, Value::Null, now.version),
                Some(before) => {
                    let [was, is] = [&before.whole, &now.whole].map(without_stamps);
                    let mut patch = difference::patch(&is, &was);
                    if let Value::Object(members) = &mut patch {
                        // What secret was there before nobody knows.
                        members.retain(|_, value| *value != MASK);
                    }
                    if record::has_mask(&patch) {
                        return;
                    }
                    EntityChange::new(&place, &Method::PATCH, patch, now.version)
                }
            }
        }
    };
    let kept = UndoEntry {
        kind: "Entity",
        role: undo.role(),
        change: &undo,
    };
    visit.parts().undo.keep(id, kept, visit.now_ms()).await;
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
    let id = made["id"].as_str().unwrap_or_default();
    let own = place.record(id).path("/console/gateway");
    let section = "/console/gateway/consumers";
    let caption = kinds::name_of(made);
    entities::shown_once(visit, section, caption, &[(name, text)], own).map(Some)
}
