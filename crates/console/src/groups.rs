//! Groups of the identity provider: searched, looked at and changed, and who is in
//! them.

use axum::response::Response;
use serde_json::{Map, Value};

use super::account_change::{AccountChange, What};
use super::account_form::{AccountInput, AccountKind, text};
use super::accounts::{
    self, ACCOUNTS_CHANGED_BY, Ask, GROUPS as LIST, RecordPage, group_address, has_identity,
    version,
};
use super::change::Change;
use super::error::PageError;
use super::fact_table::cell;
use super::frame::{self, Frame};
use super::paged_list::{PagedList, SIZE};
use super::table::{Button, Cell, Row, Table};
use super::visit::Visit;
use super::{path, record};

/// The attributes that the form has.
const NAMES: [&str; 2] = ["displayName", "externalId"];

/// `GET /identity/groups`.
pub(crate) async fn list(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let t = visit.texts;
    let new = path::with_query(&format!("{LIST}/new"), [("realm", visit.query("realm"))]);
    let columns = ["displayName", "externalId", "updated_at"];
    let list = PagedList {
        title: t.groups,
        lead: "",
        address: LIST,
        path: "/identity/groups",
        filters: accounts::search_filters(&visit),
        columns: columns.map(str::to_owned).to_vec(),
        links: if visit.may(ACCOUNTS_CHANGED_BY) {
            vec![(t.create.to_owned(), new)]
        } else {
            Vec::new()
        },
    };
    let row = |group: &Value| {
        let mut cells = columns.map(|column| cell(column, &group[column])).to_vec();
        let id = group["id"].as_str().unwrap_or_default();
        let realm = group["realm"].as_str().unwrap_or_default();
        cells[0] = cells[0].clone().to(group_address(id, realm));
        Row::new(cells)
    };
    list.show(&visit, row).await
}

/// `GET /identity/groups/{id}`.
pub(crate) async fn show(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let t = visit.texts;
    let realm = visit.query("realm");
    let group = FORM.current(&visit, realm).await?;
    let query = [
        ("realm", realm),
        ("size", SIZE),
        ("offset", visit.query("offset")),
    ];
    let members = path::join(FORM.resource, [visit.param(0), "members"]);
    let members = visit.api().get(&path::with_query(&members, query)).await?;
    let name = record::text(&group["displayName"]);
    let rows = members["data"].as_array().into_iter().flatten();
    let rows = rows.map(|member| row(&visit, member));
    let next = members.get("offset").and_then(Value::as_str);
    let next = next.map(|offset| {
        let page = path::join(LIST, [visit.param(0)]);
        path::with_query(&page, [("realm", realm), ("offset", offset)])
    });
    let ask = visit.may(ACCOUNTS_CHANGED_BY).then(|| Ask {
        address: path::join(LIST, [visit.param(0), "add"]),
        realm: realm.to_owned(),
        label: t.user_name,
        text: t.add_member,
    });
    let edit = path::join(LIST, [visit.param(0), "edit"]);
    let edit = path::with_query(&edit, [("realm", realm)]);
    let may_change = visit.may(ACCOUNTS_CHANGED_BY);
    frame::show(&RecordPage {
        list: (t.groups, path::with_query(LIST, [("realm", realm)])),
        links: if may_change {
            vec![(t.edit.to_owned(), edit)]
        } else {
            Vec::new()
        },
        buttons: if may_change {
            vec![delete_button(&visit, &group)]
        } else {
            Vec::new()
        },
        frame: Frame::of(&visit, name, LIST),
        done: if visit.query("done").is_empty() {
            ""
        } else {
            t.done
        },
        notes: Vec::new(),
        ask,
        tables: vec![Table {
            caption: t.members.to_owned(),
            columns: vec!["userName".to_owned()],
            rows: rows.collect(),
            empty: t.nothing,
            next,
            ..Table::default()
        }],
    })
}

fn delete_button(visit: &Visit, group: &Value) -> Button {
    let text = visit.texts.delete;
    let field = |name: &str, value: String| (name.to_owned(), value);
    Button {
        text: text.to_owned(),
        label: format!("{text}: {}", record::text(&group["displayName"])),
        address: path::join(LIST, [visit.param(0), "delete"]),
        fields: vec![
            field("realm", record::text(&group["realm"])),
            field("version", record::text(&group["version"])),
        ],
        danger: true,
    }
}

fn row(visit: &Visit, member: &Value) -> Row {
    let t = visit.texts;
    let (id, name) = (
        record::text(&member["id"]),
        record::text(&member["userName"]),
    );
    let realm = visit.query("realm");
    let mut row = Row::new(vec![
        Cell::new(name.clone()).to(accounts::address(&id, realm)),
    ]);
    if visit.may(ACCOUNTS_CHANGED_BY) {
        row.buttons.push(Button {
            text: t.remove.to_owned(),
            label: format!("{}: {name}", t.remove),
            address: path::join(LIST, [visit.param(0), "remove"]),
            fields: vec![
                ("realm".to_owned(), realm.to_owned()),
                ("member".to_owned(), id),
            ],
            danger: true,
        });
    }
    row
}

/// `POST /identity/groups/{id}/add`: a user, by name.
pub(crate) async fn add(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let query = [
        ("realm", visit.field("realm")),
        ("name", visit.field("user")),
    ];
    let found = path::with_query("/identity/users", query);
    let found = visit.api().get(&found).await?;
    let id = found["data"][0]["id"].as_str();
    let id = id.filter(|_| !visit.field("user").is_empty());
    member(&visit, id.ok_or(PageError::NoUser)?, true).await
}

/// `POST /identity/groups/{id}/remove`: a user, by identifier.
pub(crate) async fn remove(visit: Visit) -> Result<Response, PageError> {
    member(&visit, visit.field("member"), false).await
}

async fn member(visit: &Visit, user: &str, comes: bool) -> Result<Response, PageError> {
    let what = What::Member {
        group: visit.param(0).to_owned(),
        user: user.to_owned(),
        comes,
    };
    AccountChange::new(visit.field("realm"), what)
        .ask(visit)
        .await
}

/// The form of groups.
pub(crate) static FORM: AccountKind = AccountKind {
    list: LIST,
    resource: "/identity/groups",
    key: "displayName",
    new_title: |texts| texts.new_group,
    inputs: |_, typed, _| {
        let [name, external] = NAMES.map(|name| AccountInput::new(name, text(&typed[name]), ""));
        vec![name.required(), external]
    },
};

/// What the form makes of `group`: members that differ.
fn patch(visit: &Visit, group: &Value) -> Map<String, Value> {
    let typed = |name: &str| visit.field(&format!("f.{name}")).trim().to_owned();
    let differing = NAMES
        .iter()
        .filter(|name| typed(name) != text(&group[**name]));
    let value = |name: &str| match typed(name) {
        empty if empty.is_empty() => Value::Null,
        typed => typed.into(),
    };
    differing
        .map(|name| ((*name).to_owned(), value(name)))
        .collect()
}

/// `GET /identity/groups/new`.
pub(crate) async fn new(visit: Visit) -> Result<Response, PageError> {
    FORM.empty(&visit)
}

/// `GET /identity/groups/{id}/edit`.
pub(crate) async fn edit(visit: Visit) -> Result<Response, PageError> {
    FORM.edit(&visit).await
}

/// `POST /identity/groups/new`: shows what will be made.
pub(crate) async fn create(visit: Visit) -> Result<Response, PageError> {
    let body = Value::Object(patch(&visit, &Value::Null));
    let realm = visit.field("realm");
    if body.get("displayName").is_none() {
        return FORM.unnamed(&visit, realm, &body);
    }
    let change = AccountChange::new(realm, What::CreateGroup { body });
    change.ask(&visit).await
}

/// `POST /identity/groups/{id}/edit`: shows what will differ, if the group is still
/// what the form was made of.
pub(crate) async fn preview(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let group = FORM.current(&visit, visit.field("realm")).await?;
    let what = |id, version, patch| What::PatchGroup { id, version, patch };
    AccountChange::save(&visit, &group, patch, what).await
}

/// `POST /identity/groups/{id}/delete`: shows what would be gone.
pub(crate) async fn delete(visit: Visit) -> Result<Response, PageError> {
    let what = What::DeleteGroup {
        id: visit.param(0).to_owned(),
        version: version(&visit)?,
    };
    AccountChange::new(visit.field("realm"), what)
        .ask(&visit)
        .await
}
