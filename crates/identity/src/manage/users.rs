//! Users: searched, looked at and changed.
//!
//! A record has the attributes of SCIM (RFC 7643 section 4), and beside them what
//! operators need to know. A change may name the version that it is of.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::Call;
use super::error::ManageError;
use super::identities::user;
use super::lockouts;
use super::page::{self, Page};
use crate::password::NewPasswordError;
use crate::password_policy::{own_texts, refusal_text};
use crate::password_reset::{self, Refusal};
use crate::{records, respond, scim};
use doorward_core::model::audit::Detail;
use doorward_core::model::lockout::LockKind;
use doorward_core::model::query::Filter;
use doorward_core::model::secret::Secret;
use doorward_core::model::user::schema::RecordError;
use doorward_core::model::user::{Owner, User, name as user_name};
use doorward_store::StoreError;

/// Members that are shown, and that no change is of.
const SHOWN_ONLY: [&str; 9] = [
    "schemas",
    "id",
    "meta",
    "realm",
    "owner",
    "groups",
    "has_password",
    "locked_until",
    "version",
];

/// `GET /identity/users`: by ascending name. `q`: what the name or an e-mail
/// address begins with. `name`: the one of this name.
pub(super) async fn list(call: Call) -> Result<Response, ManageError> {
    let page = Page::of(&call)?;
    let realm = call.realm()?;
    let store = &call.state.store;
    if let Some(name) = call.query()?.get("name") {
        let user = store.user_by_name(&realm.path, name).await?;
        let shown = |user: User| (user_name::key(&user.user_name), record(&call, &user));
        return page
            .answer(&call, "/users", user.into_iter().map(shown).collect())
            .await;
    }
    let mut users = Vec::new();
    for filter in filters(page::search(&call.query()?)?)? {
        let query = page.query(filter);
        users.extend(store.users_uncounted(&realm.path, &query).await?);
    }
    // Each list is complete up to its last name, and so is what they have together.
    let mut users: Vec<_> = users
        .into_iter()
        .map(|user| (user_name::key(&user.user_name), user))
        .collect();
    users.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    users.dedup_by(|(one, _), (other, _)| one == other);
    users.truncate(usize::try_from(page.limit()).unwrap_or(usize::MAX));
    let shown = |(key, user): (String, User)| {
        let record = record(&call, &user);
        (key, record)
    };
    page.answer(&call, "/users", users.into_iter().map(shown).collect())
        .await
}

/// The conditions of which one must hold. An index answers each of them; of both
/// at once none does.
fn filters(search: &str) -> Result<Vec<Filter>, ManageError> {
    if search.is_empty() {
        return Ok(vec![Filter::Always]);
    }
    let begins = |attribute: &str| {
        let text = format!("{attribute} sw {}", Value::from(search));
        scim::parse_filter(&text).map_err(|message| ManageError::Option {
            option: "q",
            message,
        })
    };
    ["userName", "emails.value"]
        .into_iter()
        .map(begins)
        .collect()
}

/// `GET /identity/users/{id}`
pub(super) async fn show(call: Call) -> Result<Response, ManageError> {
    let user = user(&call).await?;
    shown(&call, &user, StatusCode::OK).await
}

/// `POST /identity/users`
pub(super) async fn create(call: Call) -> Result<Response, ManageError> {
    let realm = call.realm()?;
    let mut sent = sent(&call)?;
    let password = take_password(&mut sent)?;
    let user = User {
        created_ms: call.now_ms,
        updated_ms: call.now_ms,
        ..records::new_user(&realm.path, &sent)?
    };
    let password_hash = match &password {
        Some(password) => Some(hash(&call, &user, password).await?),
        None => None,
    };
    let user = User {
        password_hash,
        ..user
    };
    call.complete(|record| record.set_user(user.id, &user.user_name));
    written(
        &call,
        &user,
        call.state.store.insert_user(&user, call.audit()).await,
    )?;
    shown(&call, &user, StatusCode::CREATED).await
}

/// `PATCH /identity/users/{id}`: attributes are replaced whole, null removes one.
/// `version`: the one that the change is of.
pub(super) async fn patch(call: Call) -> Result<Response, ManageError> {
    let old = user(&call).await?;
    let version = version(&call.object()?)?;
    if version.is_some_and(|version| version != old.version) {
        return Err(ManageError::Changed);
    }
    if old.owner == Owner::File {
        return Err(call.file_owned(format!("user {}", old.user_name)));
    }
    let mut sent = sent(&call)?;
    let password = take_password(&mut sent)?;
    let new = scim::merged(&old, &sent)?;
    let changed = scim::changed(&old, &new, password.is_some());
    if changed.is_empty() {
        return shown(&call, &old, StatusCode::OK).await;
    }
    let changed: Detail = changed.into_iter().collect();
    let new = User {
        version: old.version + 1,
        updated_ms: call.now_ms.max(old.updated_ms),
        ..new
    };
    call.complete(|record| {
        record.set_user(new.id, &new.user_name);
        record.set_detail("changed", changed);
    });
    let store = &call.state.store;
    let write = match &password {
        Some(password) => {
            let hash = hash(&call, &new, password).await?;
            store
                .update_user_and_password(&new, &hash, call.audit())
                .await
        }
        None => store.update_user(&new, call.audit()).await,
    };
    written(&call, &new, write)?;
    if password.is_some() || (old.active && !new.active) {
        call.state.read_revocations().await?;
        call.state.backchannel_logout.wake();
    }
    let new = store.user(&new.realm, new.id).await?;
    shown(&call, &new.ok_or(ManageError::NotFound)?, StatusCode::OK).await
}

/// `DELETE /identity/users/{id}`: with sessions, tokens and all that belongs to the
/// user. `version` of the query names the one that is meant.
pub(super) async fn delete(call: Call) -> Result<Response, ManageError> {
    let user = user(&call).await?;
    let seen = page::version(&call.query()?)?;
    call.complete(|record| record.set_user(user.id, &user.user_name));
    let gone = call
        .state
        .store
        .delete_user(user.id, seen, call.now_ms, call.audit());
    match gone.await {
        Ok(true) => {}
        Ok(false) => return Err(ManageError::NotFound),
        Err(StoreError::FileOwned(name)) => return Err(call.file_owned(format!("user {name}"))),
        Err(error) => return Err(error.into()),
    }
    call.state.read_revocations().await?;
    call.state.backchannel_logout.wake();
    Ok(respond::empty(StatusCode::NO_CONTENT))
}

/// `POST /identity/users/{id}/reset`: sends the user a link for a new password.
pub(super) async fn reset(call: Call) -> Result<Response, ManageError> {
    let user = user(&call).await?;
    let realm = call.realm()?;
    call.complete(|record| {
        record.set_user(user.id, &user.user_name);
        record.set_detail("cause", "admin");
    });
    let sent = password_reset::send_to(&call.state, &realm, &user, call.audit()).await;
    let why = match sent {
        Ok(()) => return Ok(respond::empty(StatusCode::NO_CONTENT)),
        Err(Refusal::Fault(fault)) => return Err(ManageError::Fault(fault)),
        Err(Refusal::NotOffered) => "the realm offers no password reset, or there is no mail",
        Err(Refusal::NoPassword) => {
            "the user is not active, or has no password that a link can replace"
        }
        Err(Refusal::NoAddress) => "the user has no verified e-mail address",
        Err(Refusal::TooMany) => "enough letters were sent to the user; try again later",
    };
    Err(ManageError::Conflict(why.to_owned()))
}

/// What the body says of attributes.
fn sent(call: &Call) -> Result<Map<String, Value>, ManageError> {
    let mut sent = call.object()?;
    sent.retain(|name, _| {
        let shown = SHOWN_ONLY.iter();
        !shown
            .into_iter()
            .any(|only| only.eq_ignore_ascii_case(name))
    });
    Ok(sent)
}

/// The version that a change is of, if the body names one.
///
/// # Errors
/// For one that is no integer.
pub(super) fn version(sent: &Map<String, Value>) -> Result<Option<i64>, ManageError> {
    match sent.get("version") {
        None | Some(Value::Null) => Ok(None),
        Some(version) => match version.as_i64() {
            Some(version) => Ok(Some(version)),
            None => Err(RecordError::new("version", "expected an integer").into()),
        },
    }
}

fn take_password(sent: &mut Map<String, Value>) -> Result<Option<Secret>, ManageError> {
    let mut found = None;
    let names: Vec<_> = sent
        .keys()
        .filter(|name| name.eq_ignore_ascii_case("password"))
        .cloned()
        .collect();
    for name in names {
        match sent.remove(&name) {
            Some(Value::String(text)) if found.is_none() => found = Some(Secret::new(text)),
            _ => return Err(RecordError::new("password", "expected one string").into()),
        }
    }
    Ok(found)
}

/// The hash of a new password, if the realm's rules allow it.
async fn hash(call: &Call, user: &User, password: &Secret) -> Result<Secret, ManageError> {
    let hasher = &call.state.hasher;
    let place = hasher.enter()?;
    let rules = call.realm()?.password_rules().clone();
    let hash = hasher.hash_new(&place, password, rules, own_texts(user));
    hash.await.map_err(|error| match error {
        NewPasswordError::Refused(wrong) => {
            RecordError::new("password", refusal_text(&wrong)).into()
        }
        NewPasswordError::Busy(busy) => busy.into(),
    })
}

/// The refusals of the store that are the client's.
fn written(call: &Call, user: &User, outcome: Result<(), StoreError>) -> Result<(), ManageError> {
    match outcome {
        Err(StoreError::Taken(_)) => Err(ManageError::Taken {
            field: "userName",
            value: user.user_name.clone(),
        }),
        Err(StoreError::FileOwned(name)) => Err(call.file_owned(format!("user {name}"))),
        outcome => Ok(outcome?),
    }
}

async fn shown(call: &Call, user: &User, status: StatusCode) -> Result<Response, ManageError> {
    let store = &call.state.store;
    let groups = store.memberships(&[user.id]).await?;
    let groups: Vec<_> = groups.into_iter().map(|(_, group)| group).collect();
    let id = LockKind::Name.id(&user.realm, &user_name::key(&user.user_name));
    let locks = lockouts::held(call).await?;
    let lock = locks.iter().find(|lock| lock.id == id);
    let mut record = record(call, user);
    record["groups"] = groups
        .iter()
        .map(|group| json!({"value": group.id, "display": group.name}))
        .collect();
    record["locked_until"] = lock.map(|lock| lock.until_ms / 1000).into();
    call.tell_files(record.as_object_mut().into_iter()).await?;
    Ok(respond::json(status, &record))
}

/// A user as it is shown: never with the hash.
fn record(call: &Call, user: &User) -> Value {
    let mut record = scim::user_record(user, &call.state.live().base_url);
    record["realm"] = user.realm.as_str().into();
    record["owner"] = user.owner.as_str().into();
    record["has_password"] = user.password_hash.is_some().into();
    record["version"] = user.version.into();
    record
}
