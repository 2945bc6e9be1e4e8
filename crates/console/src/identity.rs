//! The identity provider: realms, clients, sessions and locks.

use axum::response::Response;
use http::Method;
use serde_json::Value;

use doorward_core::model::audit::instant;

use super::client_wizard::CLIENTS_CHANGED_BY;
use super::entities::ListPage;
use super::error::PageError;
use super::frame::{self, Frame};
use super::paged_list::PagedList;
use super::session::Role;
use super::table::{Button, Cell, Filter, Row, Table};
use super::texts::Texts;
use super::visit::Visit;
use super::{difference, path, probes, record};

/// A list of the provider.
struct List {
    /// Its part of the Admin API's paths below `/identity`.
    plural: &'static str,
    title: fn(&Texts) -> &'static str,
    /// The member that names a record.
    key: &'static str,
    columns: &'static [&'static str],
    /// What it is narrowed down by, besides its realm.
    filters: &'static [&'static str],
    /// Whether records are ended here.
    ends: bool,
    /// Whether a record has a page.
    page: bool,
}

static LISTS: &[List] = &[
    List {
        plural: "realms",
        title: |t| t.realms,
        key: "path",
        columns: &["path", "owner"],
        filters: &[],
        ends: false,
        page: true,
    },
    List {
        plural: "clients",
        title: |t| t.clients,
        key: "client_id",
        columns: &[
            "client_id",
            "client_name",
            "grant_types",
            "redirect_uris",
            "owner",
        ],
        filters: &["realm"],
        ends: false,
        page: true,
    },
    List {
        plural: "sessions",
        title: |t| t.sessions,
        key: "id",
        columns: &[
            "user",
            "realm",
            "clients",
            "authenticated_at",
            "used_at",
            "expires_at",
        ],
        filters: &["realm", "user", "client_id"],
        ends: true,
        page: false,
    },
    List {
        plural: "lockouts",
        title: |t| t.lockouts,
        key: "id",
        columns: &[
            "kind",
            "realm",
            "user",
            "address",
            "client_id",
            "locked_at",
            "locked_until",
        ],
        filters: &[],
        ends: true,
        page: false,
    },
];

impl List {
    fn of(visit: &Visit) -> Result<&'static List, PageError> {
        let found = LISTS.iter().find(|list| list.plural == visit.param(0));
        let found = found.filter(|_| visit.parts().admin.has_identity());
        found.ok_or(PageError::NotFound)
    }

    fn address(&self) -> String {
        path::join("/console/identity", [self.plural])
    }
}

/// `GET /identity/{list}`.
pub(crate) async fn list(visit: Visit) -> Result<Response, PageError> {
    let list = List::of(&visit)?;
    let filters = list.filters.iter().map(|name| {
        let hint = if *name == "realm" { "/" } else { "" };
        Filter::of(&visit, name, name, hint)
    });
    let page = PagedList {
        title: (list.title)(visit.texts),
        lead: "",
        address: &list.address(),
        path: &path::join("/identity", [list.plural]),
        filters: filters.collect(),
        columns: list.columns.iter().map(|one| (*one).to_owned()).collect(),
        links: links(&visit, list),
    };
    page.show(&visit, |one| row(&visit, list, one)).await
}

/// What can be done beside a list.
fn links(visit: &Visit, list: &List) -> Vec<(String, String)> {
    if list.plural != "clients" || !visit.may(CLIENTS_CHANGED_BY) {
        return Vec::new();
    }
    let new = format!("{}/new", list.address());
    let new = path::with_query(&new, [("realm", visit.query("realm"))]);
    vec![(visit.texts.create.to_owned(), new)]
}

/// A value, moments in words: they are seconds since the epoch.
pub(crate) fn cell(column: &str, value: &Value) -> Cell {
    match value.as_i64() {
        Some(seconds)
            if column.ends_with("_at")
                || column.ends_with("_from")
                || column.ends_with("_until") =>
        {
            Cell::code(instant(seconds.saturating_mul(1000)))
        }
        _ => Cell::new(record::text(value)),
    }
}

fn row(visit: &Visit, list: &List, one: &Value) -> Row {
    let t = visit.texts;
    let key = record::text(&one[list.key]);
    let mut cells = Vec::new();
    for (index, column) in list.columns.iter().enumerate() {
        let mut cell = cell(column, &one[column]);
        if index == 0 && list.page {
            let parts = key.split('/').filter(|part| !part.is_empty());
            let mut address = path::join(&list.address(), parts);
            // The path of the realm `/` has no parts; the Admin API calls it so.
            if address == list.address() {
                address.push_str("/root");
            }
            if let Some(realm) = one["realm"].as_str() {
                address = path::with_query(&address, [("realm", realm)]);
            }
            cell = cell.to(address);
        }
        cells.push(cell);
    }
    let mut row = Row::new(cells);
    if list.ends && visit.may(Role::Operator) {
        let realm = one["realm"].as_str().unwrap_or_default();
        row.buttons.push(Button {
            text: t.end.to_owned(),
            label: format!("{}: {}", t.end, record::text(&one[list.columns[0]])),
            address: path::join("/console/end", [list.plural, key.as_str()]),
            fields: vec![("realm".to_owned(), realm.to_owned())],
            danger: true,
        });
    }
    row
}

/// The fields of a record. Records within it, such as a realm's settings, have dotted
/// names.
pub(crate) fn fields(t: &Texts, caption: &str, shown: &Value) -> Table {
    let rows = difference::lines(&Value::Null, shown)
        .into_iter()
        .map(|line| {
            let value = record::get(shown, &line.name).unwrap_or(&Value::Null);
            let cell = cell(&line.name, value);
            Row::new(vec![Cell::code(line.name), cell])
        });
    Table {
        caption: caption.to_owned(),
        columns: [t.name, t.value].map(str::to_owned).to_vec(),
        rows: rows.collect(),
        empty: t.nothing,
        ..Table::default()
    }
}

/// `GET /identity/{list}/{record}`.
pub(crate) async fn show(visit: Visit) -> Result<Response, PageError> {
    let list = List::of(&visit)?;
    if !list.page {
        return Err(PageError::NotFound);
    }
    let parts = visit.params.iter().skip(1).map(String::as_str);
    let target = path::join(&path::join("/identity", [list.plural]), parts);
    let query = [("realm", visit.query("realm"))];
    let body = visit.api().get(&path::with_query(&target, query)).await?;
    let shown = record::masked(&body, false);
    let title = record::text(&shown[list.key]);
    let mut table = fields(visit.texts, (list.title)(visit.texts), &shown);
    if list.plural == "realms" {
        table.links = vec![(visit.texts.probes.to_owned(), probes::address(&title))];
    }
    frame::show(&ListPage {
        frame: Frame::of(&visit, title, &list.address()),
        lead: "",
        filters: Vec::new(),
        tables: vec![table],
    })
}

/// `POST /end/{list}/{record}`: ends a session or lifts a lock.
pub(crate) async fn end(visit: Visit) -> Result<Response, PageError> {
    let list = List::of(&visit)?;
    if !list.ends {
        return Err(PageError::NotFound);
    }
    let target = path::join("/identity", [list.plural, visit.param(1)]);
    let target = path::with_query(&target, [("realm", visit.field("realm"))]);
    let answer = visit.api().send(Method::DELETE, &target, None).await?;
    if answer.status.is_success() {
        Ok(frame::lead(&list.address()))
    } else {
        Err(PageError::Api(answer))
    }
}
