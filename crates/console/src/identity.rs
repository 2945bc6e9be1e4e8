//! The identity provider: realms, clients, sessions and locks.

use axum::response::Response;
use http::Method;
use serde_json::Value;

use super::error::PageError;
use super::fact_table::list_cell;
use super::frame;
use super::paged_list::PagedList;
use super::registry_change::REGISTRY_CHANGED_BY;
use super::session::Role;
use super::table::{Button, Filter, Row};
use super::texts::Texts;
use super::visit::Visit;
use super::{client_page, path, realm_page, record};

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
    /// The page of a record; `None`: it has none.
    address_of: Option<fn(&Value) -> String>,
}

static LISTS: &[List] = &[
    List {
        plural: "realms",
        title: |t| t.realms,
        key: "path",
        columns: &["path", "owner"],
        filters: &[],
        ends: false,
        address_of: Some(|realm| realm_page::address(&record::text(&realm["path"]))),
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
        filters: &["realm", "q"],
        ends: false,
        address_of: Some(|client| {
            let [id, realm] = ["client_id", "realm"].map(|name| record::text(&client[name]));
            client_page::address(&id, &realm)
        }),
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
        address_of: None,
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
        address_of: None,
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
        let t = visit.texts;
        let (label, hint) = match *name {
            "realm" => (t.realm, "/"),
            "q" => (t.search, t.search_hint),
            name => (name, ""),
        };
        Filter::of(&visit, name, label, hint)
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
    if !visit.may(REGISTRY_CHANGED_BY) {
        return Vec::new();
    }
    let new = match list.plural {
        "clients" => {
            let new = format!("{}/new", list.address());
            path::with_query(&new, [("realm", visit.query("realm"))])
        }
        "realms" => realm_page::NEW.to_owned(),
        _ => return Vec::new(),
    };
    vec![(visit.texts.create.to_owned(), new)]
}

fn row(visit: &Visit, list: &List, one: &Value) -> Row {
    let t = visit.texts;
    let key = record::text(&one[list.key]);
    let mut cells = Vec::new();
    for (index, column) in list.columns.iter().enumerate() {
        let mut cell = list_cell(column, one);
        if index == 0
            && let Some(address) = list.address_of
        {
            cell = cell.to(address(one));
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
