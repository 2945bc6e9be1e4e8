//! `/v1/groups`: groups of users (RFC 7643 §4.2).
//!
//! Members are users, not groups. A change of some of them costs the same
//! however many there are; they are read in steps, and only if they are shown.

use axum::response::Response;
use http::{Method, StatusCode};
use serde_json::{Map, Value};
use unicode_normalization::UnicodeNormalization;
use uuid::Uuid;

use super::access::{self, Kind};
use super::list_query::ListQuery;
use super::projection::Projection;
use super::record::RecordBase;
use super::{body, change, members, patch, record, reply};
use crate::bearer::ValidToken;
use crate::error::ScimError;
use crate::{Call, audit};
use doorward_core::clock::random_uuid;
use doorward_core::model::audit::{Event, Kind as AuditKind, PendingAudit};
use doorward_core::model::group::{Group, MemberChange};
use doorward_core::model::query::{Filter, Op, Operand};
use doorward_core::model::user::schema::{GROUP, GROUP_URN, RecordError};
use doorward_core::model::user::{fold, name};
use doorward_store::{GroupChange, GroupOutcome, GroupPage, StoreError};

/// Most members that one group is shown with.
const SHOWN_MAX: usize = 100_000;

/// Members that the groups of a list are shown with together, besides the first
/// group's: then the page ends.
const LISTED_MAX: usize = 10_000;

/// Most members with which a group is shown after PATCH.
const PATCHED_MAX: usize = 1_000;

/// Members read at once.
const STEP: u32 = 2_000;

/// Longest name and external identifier, in bytes.
const TEXT_MAX: usize = 1024;

/// Answers a request to all groups.
pub(crate) async fn collection(call: &Call) -> Result<Response, ScimError> {
    match call.parts.method {
        Method::POST => create(call).await,
        _ => {
            let token = access::reader(call, Kind::Group).await?;
            let query = call.parts.uri.query().unwrap_or_default();
            list(call, &token, &ListQuery::of_query(&GROUP, query)?).await
        }
    }
}

/// Answers a query that is in the body.
pub(crate) async fn search(call: &Call) -> Result<Response, ScimError> {
    let token = access::reader(call, Kind::Group).await?;
    let list_query = ListQuery::of_body(&GROUP, &body::object(call)?)?;
    list(call, &token, &list_query).await
}

/// Answers a request to one group.
pub(crate) async fn one(call: &Call, id: &str) -> Result<Response, ScimError> {
    let id = || id.parse::<Uuid>().map_err(|_| Kind::Group.missing());
    match call.parts.method {
        Method::PUT => {
            let token = access::writer(call, Kind::Group).await?;
            replace(call, &token, id()?).await
        }
        Method::PATCH => {
            let token = access::writer(call, Kind::Group).await?;
            modify(call, &token, id()?).await
        }
        Method::DELETE => {
            let token = access::writer(call, Kind::Group).await?;
            remove(call, &token, id()?).await
        }
        _ => {
            let token = access::reader(call, Kind::Group).await?;
            show(call, &token, id()?).await
        }
    }
}

async fn show(call: &Call, token: &ValidToken, id: Uuid) -> Result<Response, ScimError> {
    let store = &call.state.store;
    let sees_all = access::sees_all(token, Kind::Group);
    if let Some(user) = token.user.as_ref().filter(|_| !sees_all) {
        let own = store.memberships(&[user.id]).await?;
        if !own.iter().any(|(_, group)| group.id == id) {
            return Err(Kind::Group.missing());
        }
    }
    let group = store.group(&token.realm.path, id).await?;
    let group = group.ok_or_else(|| Kind::Group.missing())?;
    let version = record::version(group.version);
    if body::is_known(call.headers(), &version) {
        return Ok(reply::not_modified(&version));
    }
    let projection = projection(call)?;
    let most = if sees_all { SHOWN_MAX } else { 0 };
    shown(call, &group, &projection, most).await
}

fn projection(call: &Call) -> Result<Projection, ScimError> {
    let query = call.parts.uri.query().unwrap_or_default();
    Ok(ListQuery::of_query(&GROUP, query)?.projection)
}

/// The answer that shows a group, without members if there are more than `most`.
async fn shown(
    call: &Call,
    group: &Group,
    projection: &Projection,
    most: usize,
) -> Result<Response, ScimError> {
    let members = members_of(call, group, projection, most).await?;
    let text = written(call, group, projection, members.map(|(text, _)| text));
    let mut response = reply::text(call, text);
    reply::tagged(&mut response, &record::version(group.version));
    Ok(response)
}

/// The record of a group as JSON, with what is written of its members.
fn written(call: &Call, group: &Group, projection: &Projection, members: Option<String>) -> String {
    let base = RecordBase::of(call);
    let mut head = record::group(group, &base);
    projection.apply(&GROUP, &mut head, base.standard);
    let mut text = Value::Object(head).to_string();
    if let Some(members) = members.filter(|members| !members.is_empty()) {
        text.pop();
        text.push_str(",\"members\":[");
        text.push_str(&members);
        text.push_str("]}");
    }
    text
}

/// The members of a group as JSON, and how many they are. Nothing if there are
/// more than `most`: part of them would look like all.
async fn members_of(
    call: &Call,
    group: &Group,
    projection: &Projection,
    most: usize,
) -> Result<Option<(String, usize)>, ScimError> {
    let base = RecordBase::of(call);
    let (mut text, mut after, mut count) = (String::new(), None, 0);
    if most == 0 || !projection.wants("members") {
        return Ok(Some((text, 0)));
    }
    loop {
        let step = call.state.store.members(group.id, after, STEP).await?;
        for member in &step {
            let shown = Value::Array(vec![record::member(member, &base)]);
            let mut one = Map::from_iter([("members".to_owned(), shown)]);
            projection.apply(&GROUP, &mut one, base.standard);
            let Some(Value::Array(mut one)) = one.remove("members") else {
                continue;
            };
            if count > 0 {
                text.push(',');
            }
            text.push_str(&one.pop().unwrap_or_default().to_string());
            count += 1;
        }
        if count > most {
            return Ok(None);
        }
        after = step.last().map(|last| last.id);
        if step.len() < usize::try_from(STEP).unwrap_or(usize::MAX) {
            return Ok(Some((text, count)));
        }
    }
}

async fn list(
    call: &Call,
    token: &ValidToken,
    list_query: &ListQuery,
) -> Result<Response, ScimError> {
    let (texts, page) = found(call, token, list_query).await?;
    let sent = texts.len();
    let more = page.more || sent < page.groups.len();
    let last = page.groups.get(sent.wrapping_sub(1)).filter(|_| more);
    let cookie = last.map(|last| list_query.cookie(sent, &fold(&last.name)));
    Ok(reply::list_of(
        call,
        &texts,
        page.total,
        cookie,
        list_query.start,
    ))
}

/// The groups that a query finds, and the records of the first of them: as many
/// as have not too many members together.
pub(super) async fn found(
    call: &Call,
    token: &ValidToken,
    list_query: &ListQuery,
) -> Result<(Vec<String>, GroupPage), ScimError> {
    let sees_all = access::sees_all(token, Kind::Group);
    let query = list_query.query(within_sight(token, sees_all, &list_query.filter)?);
    let page = call.state.store.groups(&token.realm.path, &query).await;
    let page = page.map_err(reply::unread)?;
    let mut texts: Vec<String> = Vec::new();
    let mut room = LISTED_MAX;
    for group in &page.groups {
        let most = match (sees_all, texts.is_empty()) {
            (false, _) => 0,
            (true, true) => SHOWN_MAX,
            (true, false) => room,
        };
        let members = members_of(call, group, &list_query.projection, most).await?;
        let count = members.as_ref().map_or(0, |(_, count)| *count);
        // It comes first on the next page.
        if (members.is_none() && !texts.is_empty()) || room == 0 {
            break;
        }
        room = room.saturating_sub(count);
        let members = members.map(|(text, _)| text);
        texts.push(written(call, group, &list_query.projection, members));
    }
    Ok((texts, page))
}

/// What the token may see of all groups.
fn within_sight(token: &ValidToken, sees_all: bool, filter: &Filter) -> Result<Filter, ScimError> {
    let Some(user) = token.user.as_ref().filter(|_| !sees_all) else {
        return Ok(Filter::Always);
    };
    if speaks_of_members(filter) {
        let text = "members can't be asked for by users";
        return Err(ScimError::bad("invalidFilter", text));
    }
    let own = Operand::Text(user.id.to_string());
    let member = GROUP.find("members.value");
    Ok(member.map_or(Filter::Never, |member| {
        Filter::Compare(member, Op::Equal, own)
    }))
}

fn speaks_of_members(filter: &Filter) -> bool {
    match filter {
        Filter::Always | Filter::Never => false,
        Filter::And(all) | Filter::Or(all) => all.iter().any(speaks_of_members),
        Filter::Not(inner) => speaks_of_members(inner),
        Filter::Present(attribute)
        | Filter::Compare(attribute, ..)
        | Filter::Element(attribute, _) => attribute.path.starts_with("members"),
    }
}

/// What a whole record says of a group.
struct GroupInput {
    name: String,
    external_id: Option<String>,
    /// Absent: nothing.
    members: Option<Vec<Uuid>>,
}

fn group_input(call: &Call) -> Result<GroupInput, ScimError> {
    let mut body = body::object(call)?;
    body::check_schemas(&body, GROUP_URN)?;
    let named = body
        .keys()
        .find(|name| name.eq_ignore_ascii_case("members"));
    let members = named.cloned().and_then(|name| body.remove(&name));
    let members = members.as_ref().map(members::read).transpose()?;
    let (name, external_id) = group_names(&body).map_err(change::refused)?;
    Ok(GroupInput {
        name,
        external_id,
        members,
    })
}

/// The name and the external identifier that a record of a group says (RFC 7643
/// section 4.2).
///
/// # Errors
/// The first attribute that can't be.
pub(crate) fn group_names(
    record: &Map<String, Value>,
) -> Result<(String, Option<String>), RecordError> {
    let record = GROUP.canonical(record)?;
    let name = record.get("displayName").and_then(Value::as_str);
    let external_id = record.get("externalId").and_then(Value::as_str);
    let name = checked_name(name.unwrap_or_default())?;
    Ok((name, external_id.map(checked_id).transpose()?))
}

/// The name as it is kept: in one composition, because tokens tell it and other
/// programs compare it.
fn checked_name(name: &str) -> Result<String, RecordError> {
    let bad = |text: String| Err(RecordError::new("displayName", text));
    let composed: String = name.trim().nfc().collect();
    if composed.is_empty() || fold(&composed).len().max(name.len()) > TEXT_MAX {
        return bad(format!("must have from 1 to {TEXT_MAX} bytes"));
    }
    if composed.chars().any(name::is_unseen) {
        return bad("must have no characters that nobody sees".to_owned());
    }
    Ok(composed)
}

fn checked_id(id: &str) -> Result<String, RecordError> {
    if id.len() > TEXT_MAX || id.contains('\0') {
        Err(RecordError::new("externalId", "too long"))
    } else {
        Ok(id.to_owned())
    }
}

/// `POST /v1/groups`
async fn create(call: &Call) -> Result<Response, ScimError> {
    let token = access::writer(call, Kind::Group).await?;
    let projection = projection(call)?;
    let group_input = group_input(call)?;
    let group = Group {
        id: random_uuid(),
        realm: token.realm.path.clone(),
        name: group_input.name,
        external_id: group_input.external_id,
        version: 1,
        created_ms: call.now_ms,
        updated_ms: call.now_ms,
    };
    let members = MemberChange {
        clear: false,
        steps: group_input
            .members
            .into_iter()
            .flatten()
            .map(|id| (true, id))
            .collect(),
    };
    let insert = async |audit: Option<&PendingAudit>| {
        call.state.store.insert_group(&group, &members, audit).await
    };
    let made = write_with_audit(call, AuditKind::GroupCreate, group.id, insert).await;
    let group = outcome(made.map_err(|error| change::failed(call, error))?)?;
    let mut response = shown(call, &group, &projection, SHOWN_MAX).await?;
    *response.status_mut() = StatusCode::CREATED;
    reply::located(
        &mut response,
        &RecordBase::of(call).location(Kind::Group, group.id),
    );
    Ok(response)
}

/// Does `act` together with the record of it.
async fn write_with_audit(
    call: &Call,
    kind: AuditKind,
    id: Uuid,
    act: impl AsyncFnOnce(Option<&PendingAudit>) -> Result<GroupOutcome, StoreError>,
) -> Result<GroupOutcome, StoreError> {
    let about = |event: Event| event.with("group", id.to_string().as_str());
    let did = |outcome: &GroupOutcome| matches!(outcome, GroupOutcome::Done(_));
    audit::with_if(&call.state, kind, about, act, did).await
}

fn outcome(outcome: GroupOutcome) -> Result<Group, ScimError> {
    match outcome {
        GroupOutcome::Done(group) => Ok(group),
        GroupOutcome::Missing => Err(Kind::Group.missing()),
        GroupOutcome::NoUser(id) => Err(members::unknown(id)),
        GroupOutcome::Stale(version) => {
            let version = record::version(version);
            let text = format!("The record has changed: it is {version} now.");
            Err(ScimError::new(StatusCode::PRECONDITION_FAILED, text))
        }
    }
}

/// The version that the change is of, if the client names one.
async fn seen(call: &Call, token: &ValidToken, id: Uuid) -> Result<Option<i64>, ScimError> {
    let headers = call.headers();
    if !body::is_conditional(headers) {
        return Ok(None);
    }
    let group = call.state.store.group(&token.realm.path, id).await?;
    let group = group.ok_or_else(|| Kind::Group.missing())?;
    body::check_version(headers, &record::version(group.version))?;
    Ok(Some(group.version))
}

async fn change(call: &Call, token: &ValidToken, change: GroupChange) -> Result<Group, ScimError> {
    let change = GroupChange {
        seen: seen(call, token, change.id).await?,
        ..change
    };
    let write =
        async |audit: Option<&PendingAudit>| call.state.store.change_group(&change, audit).await;
    let changed = write_with_audit(call, AuditKind::GroupUpdate, change.id, write).await;
    outcome(changed.map_err(|error| change::failed(call, error))?)
}

/// `PUT /v1/groups/{id}`: who names no members leaves them as they are.
async fn replace(call: &Call, token: &ValidToken, id: Uuid) -> Result<Response, ScimError> {
    let projection = projection(call)?;
    let group_input = group_input(call)?;
    let wanted = GroupChange {
        realm: token.realm.path.clone(),
        id,
        seen: None,
        name: Some(group_input.name),
        external_id: Some(group_input.external_id),
        members: match group_input.members {
            None => MemberChange::default(),
            Some(ids) => MemberChange {
                clear: true,
                steps: ids.into_iter().map(|id| (true, id)).collect(),
            },
        },
        now_ms: call.now_ms,
    };
    let group = change(call, token, wanted).await?;
    shown(call, &group, &projection, SHOWN_MAX).await
}

/// `PATCH /v1/groups/{id}`: answered with the group, unless that has many
/// members and nobody asked for attributes.
async fn modify(call: &Call, token: &ValidToken, id: Uuid) -> Result<Response, ScimError> {
    let projection = projection(call)?;
    let body = body::object(call)?;
    let operations = patch::read(&GROUP, &id.to_string(), &body)?;
    let mut wanted = GroupChange {
        realm: token.realm.path.clone(),
        id,
        seen: None,
        name: None,
        external_id: None,
        members: MemberChange::default(),
        now_ms: call.now_ms,
    };
    for (index, operation) in operations.iter().enumerate() {
        step(&mut wanted, operation).map_err(|error| error.at_operation(index))?;
    }
    let group = change(call, token, wanted).await?;
    if projection.is_asked() {
        return shown(call, &group, &projection, SHOWN_MAX).await;
    }
    if let Some((members, _)) = members_of(call, &group, &projection, PATCHED_MAX).await? {
        let text = written(call, &group, &projection, Some(members));
        let mut response = reply::text(call, text);
        reply::tagged(&mut response, &record::version(group.version));
        return Ok(response);
    }
    let mut response = reply::nothing();
    reply::tagged(&mut response, &record::version(group.version));
    Ok(response)
}

/// Adds what an operation does.
fn step(wanted: &mut GroupChange, operation: &patch::Operation) -> Result<(), ScimError> {
    if operation
        .path
        .chain
        .first()
        .is_some_and(|first| first.path == "members")
    {
        return members::patch(&mut wanted.members, operation);
    }
    let mut record = Map::from_iter([("displayName".to_owned(), Value::from("-"))]);
    patch::apply(&GROUP, &mut record, operation)?;
    let text = |name: &str| record.get(name).and_then(Value::as_str);
    if operation.path.target().path == "displayName" {
        let name = checked_name(text("displayName").unwrap_or_default());
        wanted.name = Some(name.map_err(change::refused)?);
    } else {
        let id = text("externalId").map(checked_id).transpose();
        wanted.external_id = Some(id.map_err(change::refused)?);
    }
    Ok(())
}

/// `DELETE /v1/groups/{id}`
async fn remove(call: &Call, token: &ValidToken, id: Uuid) -> Result<Response, ScimError> {
    let seen = seen(call, token, id).await?;
    let delete = async |audit: Option<&PendingAudit>| {
        let (store, realm) = (&call.state.store, &token.realm.path);
        store.delete_group(realm, id, seen, audit).await
    };
    let gone = write_with_audit(call, AuditKind::GroupDelete, id, delete).await?;
    outcome(gone)?;
    Ok(reply::nothing())
}
