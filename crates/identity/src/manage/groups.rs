//! Groups: searched, looked at, made, renamed and deleted; users come and go.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::Call;
use super::error::ManageError;
use super::page::{self, Page};
use super::users::version;
use crate::{respond, scim};
use doorward_core::clock::random_uuid;
use doorward_core::model::group::{Group, MemberChange, Membership};
use doorward_core::model::query::{Filter, Op, Operand};
use doorward_core::model::user::fold;
use doorward_core::model::user::schema::{GROUP, RecordError};
use doorward_store::{GroupChange, GroupOutcome, StoreError};

/// Most members that a new group is made with.
const MEMBERS_MAX: usize = 1000;

/// Members that are shown, and that no change is of.
const SHOWN_ONLY: [&str; 5] = ["id", "realm", "version", "created_at", "updated_at"];

/// `GET /identity/groups`: by ascending name. `q`: what the name begins with.
pub(super) async fn list(call: Call) -> Result<Response, ManageError> {
    let page = Page::of(&call)?;
    let realm = call.realm()?;
    let form = call.query()?;
    let search = page::search(&form)?.to_owned();
    let filter = match GROUP.find("displayName") {
        Some(name) if !search.is_empty() => {
            Filter::Compare(name, Op::StartsWith, Operand::Text(fold(&search)))
        }
        _ => Filter::Always,
    };
    let query = page.query(filter);
    let store = &call.state.store;
    let found = store.groups_uncounted(&realm.path, &query).await?;
    let shown = |group: &Group| (fold(&group.name), record(group));
    page.answer(&call, "/groups", found.iter().map(shown).collect())
        .await
}

/// `GET /identity/groups/{id}`
pub(super) async fn show(call: Call) -> Result<Response, ManageError> {
    let group = group(&call).await?;
    Ok(respond::json(StatusCode::OK, &record(&group)))
}

/// `POST /identity/groups`: `displayName`, and whom it has as members from the
/// beginning.
pub(super) async fn create(call: Call) -> Result<Response, ManageError> {
    let realm = call.realm()?;
    let mut sent = sent(&call)?;
    let members = match sent.remove("members") {
        None | Some(Value::Null) => Vec::new(),
        Some(members) => identifiers(&members)?,
    };
    let (name, external_id) = scim::group_names(&sent)?;
    let group = Group {
        id: random_uuid(),
        realm: realm.path.clone(),
        name,
        external_id,
        version: 1,
        created_ms: call.now_ms,
        updated_ms: call.now_ms,
    };
    let members = MemberChange {
        clear: false,
        steps: members.into_iter().map(|id| (true, id)).collect(),
    };
    tell(&call, group.id);
    let made = call
        .state
        .store
        .insert_group(&group, &members, call.audit())
        .await;
    let group = outcome(made, &group.name)?;
    Ok(respond::json(StatusCode::CREATED, &record(&group)))
}

/// `PATCH /identity/groups/{id}`: another name or external identifier. `version`:
/// the one that the change is of.
pub(super) async fn patch(call: Call) -> Result<Response, ManageError> {
    let old = group(&call).await?;
    let seen = version(&call.object()?)?;
    let mut whole = Map::new();
    whole.insert("displayName".to_owned(), old.name.clone().into());
    whole.insert("externalId".to_owned(), json!(old.external_id));
    for (name, value) in sent(&call)? {
        whole.retain(|known, _| !known.eq_ignore_ascii_case(&name));
        whole.insert(name, value);
    }
    let (name, external_id) = scim::group_names(&whole)?;
    let change = GroupChange {
        realm: old.realm,
        id: old.id,
        seen,
        name: Some(name.clone()),
        external_id: Some(external_id),
        members: MemberChange::default(),
        now_ms: call.now_ms,
    };
    tell(&call, old.id);
    let changed = call.state.store.change_group(&change, call.audit()).await;
    let group = outcome(changed, &name)?;
    Ok(respond::json(StatusCode::OK, &record(&group)))
}

/// `DELETE /identity/groups/{id}`: `version` of the query names the one that is
/// meant.
pub(super) async fn delete(call: Call) -> Result<Response, ManageError> {
    let old = group(&call).await?;
    let seen = page::version(&call.query()?)?;
    tell(&call, old.id);
    let store = &call.state.store;
    let gone = store
        .delete_group(&old.realm, old.id, seen, call.audit())
        .await;
    outcome(gone, &old.name)?;
    Ok(respond::empty(StatusCode::NO_CONTENT))
}

/// What the body says of a group.
fn sent(call: &Call) -> Result<Map<String, Value>, ManageError> {
    let mut sent = call.object()?;
    sent.retain(|name, _| !SHOWN_ONLY.contains(&name.as_str()));
    Ok(sent)
}

/// Users by their identifiers.
fn identifiers(members: &Value) -> Result<Vec<Uuid>, ManageError> {
    let wrong = |text: String| RecordError::new("members", text);
    let list = members.as_array();
    let list = list.ok_or_else(|| wrong("expected a list of identifiers".to_owned()))?;
    if list.len() > MEMBERS_MAX {
        return Err(wrong(format!("are more than {MEMBERS_MAX}")).into());
    }
    let read = |one: &Value| one.as_str().and_then(|id| id.parse::<Uuid>().ok());
    let ids: Option<Vec<_>> = list.iter().map(read).collect();
    let ids = ids.ok_or_else(|| wrong("expected a list of identifiers".to_owned()))?;
    Ok(ids)
}

/// The record of the act says which group it is about.
fn tell(call: &Call, id: Uuid) {
    call.complete(|record| {
        record.set_target(&format!("groups/{id}"));
        record.set_detail("group", id.to_string().as_str());
    });
}

/// The group that a write left, or why nothing was written; `name` is the one that
/// it was to have.
fn outcome(outcome: Result<GroupOutcome, StoreError>, name: &str) -> Result<Group, ManageError> {
    match outcome {
        Ok(GroupOutcome::Done(group)) => Ok(group),
        Ok(GroupOutcome::Missing) => Err(ManageError::NotFound),
        Ok(GroupOutcome::Stale(_)) => Err(ManageError::Changed),
        Ok(GroupOutcome::NoUser(id)) => {
            Err(RecordError::new("members", format!("there is no user {id}")).into())
        }
        Err(StoreError::Taken(_)) => Err(ManageError::Taken {
            field: "displayName",
            value: name.to_owned(),
        }),
        Err(error) => Err(error.into()),
    }
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
        .await
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
    call.complete(|record| record.set_user(known.id, &known.user_name));
    tell(call, group.id);
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
    match store.change_group(&change, call.audit()).await? {
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
