//! Groups: searched and looked at; users come and go.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use super::Call;
use super::error::ManageError;
use super::page::Page;
use crate::respond;
use doorward_core::model::group::{Group, MemberChange, Membership};
use doorward_core::model::query::{Filter, Op, Operand};
use doorward_core::model::user::fold;
use doorward_core::model::user::schema::GROUP;
use doorward_store::{GroupChange, GroupOutcome, complete};

/// `GET /identity/groups`: by ascending name. `q`: what the name begins with.
pub(super) async fn list(call: Call) -> Result<Response, ManageError> {
    let page = Page::of(&call)?;
    let realm = call.realm()?;
    let search = call.query()?.get("q").unwrap_or_default().trim().to_owned();
    let filter = match GROUP.find("displayName") {
        Some(name) if !search.is_empty() => {
            Filter::Compare(name, Op::StartsWith, Operand::Text(fold(&search)))
        }
        _ => Filter::Always,
    };
    let query = page.query(filter);
    let found = call.state.store.groups(&realm.path, &query).await?;
    let shown = |group: &Group| (fold(&group.name), record(group));
    page.answer(&call, "/groups", found.groups.iter().map(shown).collect())
}

/// `GET /identity/groups/{id}`
pub(super) async fn show(call: Call) -> Result<Response, ManageError> {
    let group = group(&call).await?;
    Ok(respond::json(StatusCode::OK, &record(&group)))
}

/// `GET /identity/groups/{id}/members`: by ascending identifier.
pub(super) async fn members(call: Call) -> Result<Response, ManageError> {
    let page = Page::of(&call)?;
    let group = group(&call).await?;
    let after = page.after.as_deref().map(str::parse::<Uuid>).transpose();
    let after = after.map_err(|_| ManageError::Offset(String::new()))?;
    let store = &call.state.store;
    let all = store.members(group.id, after, page.limit()).await?;
    let shown = |member: &Membership| {
        let record = json!({"id": member.id, "userName": member.name});
        (member.id.to_string(), record)
    };
    let path = format!("/groups/{}/members", group.id);
    page.answer(&call, &path, all.iter().map(shown).collect())
}

/// `PUT /identity/groups/{id}/members/{id}`: a user who is a member stays one.
pub(super) async fn add(call: Call) -> Result<Response, ManageError> {
    change(&call, true).await
}

/// `DELETE /identity/groups/{id}/members/{id}`: also where the user is none.
pub(super) async fn remove(call: Call) -> Result<Response, ManageError> {
    change(&call, false).await
}

async fn change(call: &Call, comes: bool) -> Result<Response, ManageError> {
    let group = group(call).await?;
    let user = call.param(1).parse::<Uuid>();
    let user = user.map_err(|_| ManageError::NotFound)?;
    let store = &call.state.store;
    let known = store.user(&group.realm, user).await?;
    let known = known.ok_or(ManageError::NotFound)?;
    complete(|record| {
        record.set_user(known.id, &known.user_name);
        record.set_target(&format!("groups/{}", group.id));
        record.set_detail("group", group.id.to_string().as_str());
    });
    let change = GroupChange {
        realm: group.realm,
        id: group.id,
        seen: None,
        name: None,
        external_id: None,
        members: MemberChange {
            clear: false,
            steps: vec![(comes, user)],
        },
        now_ms: call.now_ms,
    };
    match store.change_group(&change).await? {
        GroupOutcome::Done(_) => Ok(respond::empty(StatusCode::NO_CONTENT)),
        GroupOutcome::Missing | GroupOutcome::NoUser(_) => Err(ManageError::NotFound),
        GroupOutcome::Stale(_) => Err(ManageError::Changed),
    }
}

/// The group that the address names, in the realm that the query names.
async fn group(call: &Call) -> Result<Group, ManageError> {
    let realm = call.realm()?;
    let id = call.param(0).parse::<Uuid>();
    let id = id.map_err(|_| ManageError::NotFound)?;
    let group = call.state.store.group(&realm.path, id).await?;
    group.ok_or(ManageError::NotFound)
}

fn record(group: &Group) -> Value {
    let seconds = |ms: i64| ms.div_euclid(1000);
    json!({
        "id": group.id,
        "realm": group.realm,
        "displayName": group.name,
        "externalId": group.external_id,
        "version": group.version,
        "created_at": seconds(group.created_ms),
        "updated_at": seconds(group.updated_ms),
    })
}
