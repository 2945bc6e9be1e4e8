//! Groups of the identity provider: searched, looked at, and who is in them.

use axum::response::Response;
use http::Method;
use serde_json::Value;

use super::error::PageError;
use super::frame::{self, Frame};
use super::identity::cell;
use super::paged_list::{PagedList, SIZE};
use super::table::{Button, Cell, Row, Table};
use super::users::{
    self, ACCOUNTS_CHANGED_BY, Ask, GROUPS as LIST, RecordPage, group_address, has_identity,
};
use super::visit::Visit;
use super::{path, record};

/// `GET /identity/groups`.
pub(crate) async fn list(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let t = visit.texts;
    let columns = ["displayName", "externalId", "updated_at"];
    let list = PagedList {
        title: t.groups,
        lead: "",
        address: LIST,
        path: "/identity/groups",
        filters: users::search_filters(&visit),
        columns: columns.map(str::to_owned).to_vec(),
        links: Vec::new(),
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

/// The Admin API's path of the group whom the address names, and below it.
fn target(visit: &Visit, below: &[&str], query: &[(&str, &str)]) -> String {
    let parts = [visit.param(0)].into_iter().chain(below.iter().copied());
    path::with_query(
        &path::join("/identity/groups", parts),
        query.iter().copied(),
    )
}

/// `GET /identity/groups/{id}`.
pub(crate) async fn show(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let t = visit.texts;
    let realm = visit.query("realm");
    let api = visit.api();
    let group = api.get(&target(&visit, &[], &[("realm", realm)])).await?;
    let query = [
        ("realm", realm),
        ("size", SIZE),
        ("offset", visit.query("offset")),
    ];
    let members = api.get(&target(&visit, &["members"], &query)).await?;
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
    frame::show(&RecordPage {
        frame: Frame::of(&visit, name, LIST),
        list: (t.groups, path::with_query(LIST, [("realm", realm)])),
        links: Vec::new(),
        buttons: Vec::new(),
        done: "",
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

fn row(visit: &Visit, member: &Value) -> Row {
    let t = visit.texts;
    let (id, name) = (
        record::text(&member["id"]),
        record::text(&member["userName"]),
    );
    let realm = visit.query("realm");
    let mut row = Row::new(vec![Cell::new(name.clone()).to(users::address(&id, realm))]);
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
    change(&visit, Method::PUT, id.ok_or(PageError::NoUser)?).await
}

/// `POST /identity/groups/{id}/remove`: a user, by identifier.
pub(crate) async fn remove(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    change(&visit, Method::DELETE, visit.field("member")).await
}

async fn change(visit: &Visit, method: Method, user: &str) -> Result<Response, PageError> {
    let realm = visit.field("realm");
    let target = target(visit, &["members", user], &[("realm", realm)]);
    let answer = visit.api().send(method, &target, None).await?;
    if !answer.status.is_success() {
        return Err(PageError::Api(answer));
    }
    Ok(frame::lead(&group_address(visit.param(0), realm)))
}
