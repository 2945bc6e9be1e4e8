//! Users of the identity provider: searched, looked at, and what operators do for
//! them.

use axum::response::Response;
use http::{Method, StatusCode};
use serde_json::{Map, Value};

use doorward_core::model::audit::instant;

use super::account_change::{AccountChange, What};
use super::accounts::{
    ACCOUNTS_CHANGED_BY, RecordPage, USERS as LIST, address, group_address, has_identity,
    search_filters, target, version,
};
use super::change::Change;
use super::error::PageError;
use super::fact_table::{self, cell, list_cell};
use super::frame::{self, Frame};
use super::paged_list::{PagedList, SIZE};
use super::session::Role;
use super::table::{Button, Cell, Mark, Row, Table};
use super::trail::Trail;
use super::visit::Visit;
use super::{path, record};

/// Members of a user's record that the page shows elsewhere, or that say nothing.
const SHOWN_ELSEWHERE: [&str; 4] = ["schemas", "groups", "locked_until", "userName"];

/// `GET /identity/users`.
pub(crate) async fn list(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let t = visit.texts;
    let new = path::with_query(&format!("{LIST}/new"), [("realm", visit.query("realm"))]);
    let columns = [
        "userName",
        "displayName",
        "emails",
        "accountStatus",
        "owner",
    ];
    let list = PagedList {
        title: t.users,
        lead: t.users_lead,
        address: LIST,
        path: "/identity/users",
        filters: search_filters(&visit),
        columns: columns.map(str::to_owned).to_vec(),
        links: if visit.may(ACCOUNTS_CHANGED_BY) {
            vec![(t.create.to_owned(), new)]
        } else {
            Vec::new()
        },
    };
    list.show(&visit, row).await
}

fn row(user: &Value) -> Row {
    let id = user["id"].as_str().unwrap_or_default();
    let realm = user["realm"].as_str().unwrap_or_default();
    let status = record::text(&user["accountStatus"]);
    let mark = if status == "Active" {
        Mark::Plain
    } else {
        Mark::Warning
    };
    Row::new(vec![
        Cell::new(record::text(&user["userName"])).to(address(id, realm)),
        Cell::new(record::text(&user["displayName"])),
        Cell::new(email(user)),
        Cell::new(status).marked(mark),
        list_cell("owner", user),
    ])
}

/// The primary address, or else the first.
fn email(user: &Value) -> String {
    let emails = user["emails"].as_array().map_or(&[][..], Vec::as_slice);
    let primary = emails.iter().find(|email| email["primary"] == true);
    let email = primary.or_else(|| emails.first());
    email.map_or_else(|| "–".to_owned(), |email| record::text(&email["value"]))
}

/// `GET /identity/users/{id}`.
pub(crate) async fn show(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let t = visit.texts;
    let target = target(&visit, &[], visit.query("realm"));
    let target = path::with_query(&target, [("declared", "true")]);
    let found = visit.api().get(&target).await?;
    let place = record::declared_in(&found).unwrap_or_default();
    let user = record::without_place(&found);
    let name = record::text(&user["userName"]);
    let mut notes = Vec::new();
    if let Some(seconds) = user["locked_until"].as_i64() {
        let until = instant(seconds.saturating_mul(1000));
        notes.push(format!("{} {until}", t.locked_until));
    }
    if user["owner"] == "file" {
        notes.push(format!("{} {place}", t.user_of_file));
    }
    frame::show(&RecordPage {
        frame: Frame::of(&visit, name, LIST),
        list: (
            t.users,
            path::with_query(LIST, [("realm", visit.query("realm"))]),
        ),
        ask: None,
        links: if visit.may(ACCOUNTS_CHANGED_BY) && user["owner"] != "file" {
            let edit = path::join(LIST, [visit.param(0), "edit"]);
            let query = [("realm", visit.query("realm"))];
            vec![(t.edit.to_owned(), path::with_query(&edit, query))]
        } else {
            Vec::new()
        },
        buttons: buttons(&visit, &user),
        done: match visit.query("done") {
            "letter" => t.letter_sent,
            "" => "",
            _ => t.done,
        },
        notes,
        tables: tables(&visit, &user).await?,
    })
}

/// What the visitor may do to the account.
fn buttons(visit: &Visit, user: &Value) -> Vec<Button> {
    let t = visit.texts;
    let active = user["accountStatus"] == "Active";
    let of_file = user["owner"] == "file";
    let mut buttons = Vec::new();
    let mut offer = |is_offered: bool, role, action: &str, text: &str, danger| {
        if is_offered && visit.may(role) {
            buttons.push(button(visit, user, (action, text, danger)));
        }
    };
    let locked = !user["locked_until"].is_null();
    offer(locked, Role::Operator, "unlock", t.unlock, false);
    let has_password = user["has_password"] == true;
    offer(
        active && has_password && !of_file,
        Role::Operator,
        "reset",
        t.send_letter,
        false,
    );
    offer(true, Role::Operator, "end-sessions", t.end_sessions, true);
    offer(
        true,
        ACCOUNTS_CHANGED_BY,
        "reset-factors",
        t.reset_factors,
        true,
    );
    let (text, danger) = if active {
        (t.deactivate, true)
    } else {
        (t.activate, false)
    };
    offer(!of_file, ACCOUNTS_CHANGED_BY, "switch", text, danger);
    offer(!of_file, ACCOUNTS_CHANGED_BY, "delete", t.delete, true);
    buttons
}

fn button(visit: &Visit, user: &Value, (action, text, danger): (&str, &str, bool)) -> Button {
    let active = user["accountStatus"] == "Active";
    let field = |name: &str, value: String| (name.to_owned(), value);
    Button {
        text: text.to_owned(),
        label: format!("{text}: {}", record::text(&user["userName"])),
        address: path::join(LIST, [visit.param(0), action]),
        fields: vec![
            field("realm", record::text(&user["realm"])),
            field("name", record::text(&user["userName"])),
            field("version", record::text(&user["version"])),
            field("active", (!active).to_string()),
        ],
        danger,
    }
}

async fn tables(visit: &Visit, user: &Value) -> Result<Vec<Table>, PageError> {
    let t = visit.texts;
    let realm = record::text(&user["realm"]);
    let name = record::text(&user["userName"]);
    let below = |list: &str| target(visit, &[list], &realm);
    let of_user = [("user", name.as_str()), ("realm", realm.as_str())];
    let sessions = [("size", SIZE)].into_iter().chain(of_user);
    let api = visit.api();
    let sessions = path::with_query("/identity/sessions", sessions);
    let sessions = api.get(&sessions).await?;
    let factors = api.get(&below("factors")).await?;
    let identities = api.get(&below("identities")).await?;
    let consents = api.get(&below("consents")).await?;
    let ends = |action, text, key: &'static str, field: &'static str| RowAction {
        action,
        text,
        key,
        field,
    };
    let end = ends("session", t.end, "id", "session");
    let withdraw = ends("consent", t.withdraw, "client_id", "client");
    let mut of_sessions = table(
        (visit, user),
        (t.sessions, &sessions),
        &["clients", "authenticated_at", "used_at", "expires_at"],
        Some(&end),
    );
    if sessions["offset"].is_string() {
        of_sessions.next = Some(path::with_query("/console/identity/sessions", of_user));
    }
    let kinds = ["kind", "name", "created_at", "used_at"];
    let linked = ["provider", "issuer", "subject", "email", "used_at"];
    let granted = ["client_id", "scopes", "given_at"];
    Ok(vec![
        attributes(visit, user),
        memberships(visit, user),
        of_sessions,
        table((visit, user), (t.factors, &factors), &kinds, None),
        table(
            (visit, user),
            (t.linked_accounts, &identities),
            &linked,
            None,
        ),
        table(
            (visit, user),
            (t.consents, &consents),
            &granted,
            Some(&withdraw),
        ),
    ])
}

fn attributes(visit: &Visit, user: &Value) -> Table {
    let t = visit.texts;
    let mut shown = record::masked(user, false);
    if let Value::Object(members) = &mut shown {
        members.retain(|name, _| !SHOWN_ELSEWHERE.contains(&name.as_str()));
    }
    fact_table::fields(t, t.fields, &shown)
}

fn memberships(visit: &Visit, user: &Value) -> Table {
    let t = visit.texts;
    let groups = user["groups"].as_array().into_iter().flatten();
    let realm = record::text(&user["realm"]);
    let rows = groups.map(|group| {
        let address = group_address(&record::text(&group["value"]), &realm);
        Row::new(vec![Cell::new(record::text(&group["display"])).to(address)])
    });
    Table {
        caption: t.groups.to_owned(),
        columns: vec![t.name.to_owned()],
        rows: rows.collect(),
        empty: t.nothing,
        ..Table::default()
    }
}

/// The button of a row of what belongs to a user.
struct RowAction {
    action: &'static str,
    text: &'static str,
    /// The member that names the row.
    key: &'static str,
    /// The field of the form that says so.
    field: &'static str,
}

fn table(
    (visit, user): (&Visit, &Value),
    (caption, list): (&str, &Value),
    columns: &[&str],
    action: Option<&RowAction>,
) -> Table {
    let action = action.filter(|_| visit.may(Role::Operator));
    let rows = list["data"].as_array().into_iter().flatten().map(|one| {
        let cells = columns.iter().map(|column| cell(column, &one[column]));
        let mut row = Row::new(cells.collect());
        if let Some(action) = action {
            let key = record::text(&one[action.key]);
            let mut button = button(visit, user, (action.action, action.text, true));
            button.label = format!("{}: {key}", action.text);
            button.fields.push((action.field.to_owned(), key));
            row.buttons.push(button);
        }
        row
    });
    Table {
        caption: caption.to_owned(),
        columns: columns.iter().map(|one| (*one).to_owned()).collect(),
        rows: rows.collect(),
        empty: visit.texts.nothing,
        ..Table::default()
    }
}

/// Sends the change, and leads back to the page of the user.
async fn act(
    visit: &Visit,
    (method, target): (Method, &str),
    done: &str,
) -> Result<Response, PageError> {
    has_identity(visit)?;
    let answer = visit.api().send(method, target, None).await?;
    if answer.status == StatusCode::PRECONDITION_FAILED {
        return Err(PageError::changed(Trail::of_user(visit.param(0))));
    }
    if !answer.status.is_success() {
        return Err(PageError::Api(answer));
    }
    let page = path::join(LIST, [visit.param(0)]);
    let query = [("realm", visit.field("realm")), ("done", done)];
    Ok(frame::lead(&path::with_query(&page, query)))
}

/// `POST /identity/users/{id}/session`: ends one session.
pub(crate) async fn end_session(visit: Visit) -> Result<Response, PageError> {
    let target = path::join("/identity/sessions", [visit.field("session")]);
    let target = path::with_query(&target, [("realm", visit.field("realm"))]);
    act(&visit, (Method::DELETE, &target), "session").await
}

/// `POST /identity/users/{id}/end-sessions`: ends all of them.
pub(crate) async fn end_sessions(visit: Visit) -> Result<Response, PageError> {
    let name = name(&visit).await?;
    let query = [("realm", visit.field("realm")), ("user", &name)];
    let target = path::with_query("/identity/sessions", query);
    act(&visit, (Method::DELETE, &target), "session").await
}

/// `POST /identity/users/{id}/consent`: withdraws what a client was let have.
pub(crate) async fn withdraw_consent(visit: Visit) -> Result<Response, PageError> {
    let below = ["consents", visit.field("client")];
    let target = target(&visit, &below, visit.field("realm"));
    act(&visit, (Method::DELETE, &target), "consent").await
}

/// `POST /identity/users/{id}/unlock`: lifts the lock of the name.
pub(crate) async fn unlock(visit: Visit) -> Result<Response, PageError> {
    let name = name(&visit).await?;
    let query = [("realm", visit.field("realm")), ("name", &name)];
    let target = path::with_query("/identity/lockouts", query);
    act(&visit, (Method::DELETE, &target), "unlock").await
}

/// The user's name now. The one of the form may be another's by now.
async fn name(visit: &Visit) -> Result<String, PageError> {
    has_identity(visit)?;
    let user = target(visit, &[], visit.field("realm"));
    let user = visit.api().get(&user).await?;
    let name = record::text(&user["userName"]);
    if name == visit.field("name") {
        Ok(name)
    } else {
        Err(PageError::changed(Trail::of_user(visit.param(0))))
    }
}

/// `POST /identity/users/{id}/reset`: sends a link for a new password.
pub(crate) async fn send_letter(visit: Visit) -> Result<Response, PageError> {
    let target = target(&visit, &["reset"], visit.field("realm"));
    act(&visit, (Method::POST, &target), "letter").await
}

/// `POST /identity/users/{id}/reset-factors`: shows which second factors would go.
pub(crate) async fn reset_factors(visit: Visit) -> Result<Response, PageError> {
    let id = visit.param(0).to_owned();
    ask(&visit, What::ResetFactors { id, seen: None }).await
}

/// `POST /identity/users/{id}/delete`: shows what would be gone.
pub(crate) async fn delete(visit: Visit) -> Result<Response, PageError> {
    let what = What::DeleteUser {
        id: visit.param(0).to_owned(),
        version: version(&visit)?,
    };
    ask(&visit, what).await
}

/// `POST /identity/users/{id}/switch`: shows that the account would be activated or
/// deactivated.
pub(crate) async fn switch(visit: Visit) -> Result<Response, PageError> {
    let status = match visit.field("active") {
        "true" => "Active",
        "false" => "Deactivated",
        _ => return Err(PageError::Form),
    };
    let what = What::PatchUser {
        id: visit.param(0).to_owned(),
        version: version(&visit)?,
        patch: Map::from_iter([("accountStatus".to_owned(), status.into())]),
    };
    ask(&visit, what).await
}

async fn ask(visit: &Visit, what: What) -> Result<Response, PageError> {
    AccountChange::new(visit.field("realm"), what)
        .ask(visit)
        .await
}
