//! `/v1/users`: queries (interface 4.1), and users created, replaced, changed
//! and removed (RFC 7644 §3).
//!
//! The access token's realm is the one whose users are meant.

use std::collections::HashMap;

use axum::response::Response;
use http::{Method, StatusCode};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::access::{self, Kind};
use super::change::{self, Change};
use super::list_query::ListQuery;
use super::projection::Projection;
use super::record::RecordBase;
use super::{body, patch, record, reply};
use crate::bearer::ValidToken;
use crate::error::ScimError;
use crate::{Call, audit, records};
use doorward_core::model::audit::{Event, Kind as Told, PendingAudit};
use doorward_core::model::query::{Filter, Op, Operand};
use doorward_core::model::user::name;
use doorward_core::model::user::schema::{self, USER, USER_URN};
use doorward_core::model::user::{Owner, User};
use doorward_store::{StoreError, UserPage};

/// Answers a request to all users.
pub(crate) async fn collection(call: &Call) -> Result<Response, ScimError> {
    match call.parts.method {
        Method::POST => create(call).await,
        _ => {
            let token = access::reader(call, Kind::User).await?;
            let query = call.parts.uri.query().unwrap_or_default();
            list(call, &token, &ListQuery::of_query(&USER, query)?).await
        }
    }
}

/// Answers a query that is in the body.
pub(crate) async fn search(call: &Call) -> Result<Response, ScimError> {
    let token = access::reader(call, Kind::User).await?;
    let list_query = ListQuery::of_body(&USER, &body::object(call)?)?;
    list(call, &token, &list_query).await
}

/// Answers a request to one user.
pub(crate) async fn one(call: &Call, id: &str) -> Result<Response, ScimError> {
    let id = || id.parse::<Uuid>().map_err(|_| Kind::User.missing());
    match call.parts.method {
        Method::PUT => {
            let token = access::writer(call, Kind::User).await?;
            replace(call, &token, id()?).await
        }
        Method::PATCH => {
            let token = access::writer(call, Kind::User).await?;
            modify(call, &token, id()?).await
        }
        Method::DELETE => {
            let token = access::writer(call, Kind::User).await?;
            remove(call, &token, id()?).await
        }
        _ => {
            let token = access::reader(call, Kind::User).await?;
            let id = id()?;
            let own = token.user.as_ref().is_none_or(|own| own.id == id);
            if !own && !access::sees_all(&token, Kind::User) {
                return Err(Kind::User.missing());
            }
            show(call, &token, id).await
        }
    }
}

/// Answers with one user.
pub(super) async fn show(call: &Call, token: &ValidToken, id: Uuid) -> Result<Response, ScimError> {
    let user = find(call, token, id).await?;
    let version = record::version(user.version);
    if body::is_known(call.headers(), &version) {
        return Ok(reply::not_modified(&version));
    }
    let projection = projection(call)?;
    shown(call, StatusCode::OK, &user, &projection).await
}

async fn find(call: &Call, token: &ValidToken, id: Uuid) -> Result<User, ScimError> {
    let user = call.state.store.user(&token.realm.path, id).await?;
    user.ok_or_else(|| Kind::User.missing())
}

/// What the address says of the attributes to show.
fn projection(call: &Call) -> Result<Projection, ScimError> {
    let query = call.parts.uri.query().unwrap_or_default();
    Ok(ListQuery::of_query(&USER, query)?.projection)
}

/// The answer that shows a user.
async fn shown(
    call: &Call,
    status: StatusCode,
    user: &User,
    projection: &Projection,
) -> Result<Response, ScimError> {
    let base = RecordBase::of(call);
    let groups = if projection.wants("groups") {
        let rows = call.state.store.memberships(&[user.id]).await?;
        rows.into_iter().map(|(_, group)| group).collect()
    } else {
        Vec::new()
    };
    let mut record = record::user(user, &groups, &base);
    projection.apply(&USER, &mut record, base.standard);
    let mut response = reply::record(call, status, &Value::Object(record));
    reply::tagged(&mut response, &record::version(user.version));
    if status == StatusCode::CREATED {
        reply::located(&mut response, &base.location(Kind::User, user.id));
    }
    Ok(response)
}

async fn list(
    call: &Call,
    token: &ValidToken,
    list_query: &ListQuery,
) -> Result<Response, ScimError> {
    let (records, page) = found(call, token, list_query).await?;
    let last = page.users.last().filter(|_| page.more);
    let cookie = last.map(|last| list_query.cookie(records.len(), &name::key(&last.user_name)));
    Ok(reply::list(
        call,
        records,
        page.total,
        cookie,
        list_query.start,
    ))
}

/// The users that a query finds, with their records.
pub(super) async fn found(
    call: &Call,
    token: &ValidToken,
    list_query: &ListQuery,
) -> Result<(Vec<Value>, UserPage), ScimError> {
    let query = list_query.query(within_sight(token));
    let store = &call.state.store;
    let page = store.users(&token.realm.path, &query).await;
    let page = page.map_err(reply::unread)?;
    let ids: Vec<_> = page.users.iter().map(|user| user.id).collect();
    let mut groups: HashMap<Uuid, Vec<_>> = HashMap::new();
    if list_query.projection.wants("groups") && !ids.is_empty() {
        for (user, group) in store.memberships(&ids).await? {
            groups.entry(user).or_default().push(group);
        }
    }
    let base = RecordBase::of(call);
    let records = page.users.iter().map(|user| {
        let groups = groups.get(&user.id).map_or(&[][..], Vec::as_slice);
        let mut record = record::user(user, groups, &base);
        list_query
            .projection
            .apply(&USER, &mut record, base.standard);
        Value::Object(record)
    });
    let records = records.collect();
    Ok((records, page))
}

/// What the token may see of all users.
fn within_sight(token: &ValidToken) -> Filter {
    match (&token.user, schema::find("id")) {
        (Some(user), Some(id)) if !access::sees_all(token, Kind::User) => {
            Filter::Compare(id, Op::Equal, Operand::Text(user.id.to_string()))
        }
        _ => Filter::Always,
    }
}

/// `POST /v1/users`
async fn create(call: &Call) -> Result<Response, ScimError> {
    let token = access::writer(call, Kind::User).await?;
    let mut sent = body::object(call)?;
    body::check_schemas(&sent, USER_URN)?;
    let projection = projection(call)?;
    let password = change::take_password(&mut sent)?;
    // Identifiers are ours to give.
    sent.retain(|name, _| !name.eq_ignore_ascii_case("id"));
    let user = records::new_user(&token.realm.path, &sent).map_err(change::refused)?;
    let mut user = User {
        created_ms: call.now_ms,
        updated_ms: call.now_ms,
        ..user
    };
    if let Some(password) = &password {
        user.password_hash = Some(change::hash(call, &token, &user, password).await?);
    }
    let insert =
        async |audit: Option<&PendingAudit>| call.state.store.insert_user(&user, audit).await;
    let about = |event: Event| event.user(user.id, &user.user_name);
    match audit::with(&call.state, Told::UserCreate, about, insert).await {
        Ok(()) => shown(call, StatusCode::CREATED, &user, &projection).await,
        Err(error) => Err(change::failed(call, error)),
    }
}

/// `PUT /v1/users/{id}`
async fn replace(call: &Call, token: &ValidToken, id: Uuid) -> Result<Response, ScimError> {
    let mut sent = body::object(call)?;
    body::check_schemas(&sent, USER_URN)?;
    let password = change::take_password(&mut sent)?;
    let change = Change {
        token,
        id,
        password,
        own: false,
    };
    apply(call, change, |old| Ok(change::replaced(old, &sent))).await
}

/// `PATCH /v1/users/{id}`
async fn modify(call: &Call, token: &ValidToken, id: Uuid) -> Result<Response, ScimError> {
    let (operations, password) = operations(call, id)?;
    let change = Change {
        token,
        id,
        password,
        own: false,
    };
    apply(call, change, |old| patched(old, &operations)).await
}

/// The operations of a PATCH, without what it says of the password.
pub(super) fn operations(
    call: &Call,
    id: Uuid,
) -> Result<
    (
        Vec<patch::Operation>,
        Option<doorward_core::model::secret::Secret>,
    ),
    ScimError,
> {
    let mut sent = body::object(call)?;
    let password = change::take_patched_password(&mut sent)?;
    let mut members = sent.iter();
    let operations = members.find(|(name, _)| name.eq_ignore_ascii_case("operations"));
    let none = operations.is_some_and(|(_, all)| all.as_array().is_some_and(Vec::is_empty));
    if none && password.is_some() {
        // Nothing but the password.
        Ok((Vec::new(), password))
    } else {
        Ok((patch::read(&USER, &id.to_string(), &sent)?, password))
    }
}

/// The record that the operations make of a user's.
pub(super) fn patched(
    old: &User,
    operations: &[patch::Operation],
) -> Result<Map<String, Value>, ScimError> {
    let mut record = change::record(old);
    for (index, operation) in operations.iter().enumerate() {
        patch::apply(&USER, &mut record, operation).map_err(|error| error.at_operation(index))?;
    }
    Ok(record)
}

/// Makes the change, and answers with the user as it is then.
pub(super) async fn apply(
    call: &Call,
    change: Change<'_>,
    make: impl Fn(&User) -> Result<Map<String, Value>, ScimError> + Send + Sync,
) -> Result<Response, ScimError> {
    let projection = projection(call)?;
    let user = change.make(call, make).await?;
    shown(call, StatusCode::OK, &user, &projection).await
}

/// `DELETE /v1/users/{id}`
async fn remove(call: &Call, token: &ValidToken, id: Uuid) -> Result<Response, ScimError> {
    for _ in 0..change::TRIES {
        let user = find(call, token, id).await?;
        body::check_version(call.headers(), &record::version(user.version))?;
        if user.owner == Owner::File {
            let error = StoreError::FileOwned(user.user_name);
            return Err(change::failed(call, error));
        }
        let seen = body::is_conditional(call.headers()).then_some(user.version);
        let delete = async |audit: Option<&PendingAudit>| {
            let store = &call.state.store;
            store.delete_user(id, seen, call.now_ms, audit).await
        };
        let about = |event: Event| event.user(user.id, &user.user_name);
        let gone = audit::with_if(&call.state, Told::UserDelete, about, delete, |gone| *gone);
        match gone.await {
            Ok(true) => {
                change::ended(call).await?;
                return Ok(reply::nothing());
            }
            Ok(false) => return Err(Kind::User.missing()),
            // Somebody was faster: is it still the version that is meant?
            Err(StoreError::Conflict(_)) => {}
            Err(error) => return Err(change::failed(call, error)),
        }
    }
    Err(change::contended())
}
