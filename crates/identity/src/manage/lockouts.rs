//! Names and addresses that are locked after wrong passwords.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::Call;
use super::error::ManageError;
use super::page::Page;
use crate::locks::EVERYWHERE;
use crate::network::network;
use crate::respond;
use doorward_core::hex;
use doorward_core::model::lockout::{LockKind, StoredLock};
use doorward_core::model::user::name as user_name;

/// A lock as it is shown.
pub fn lock_record(lock: &StoredLock) -> Value {
    let realm = match lock.kind {
        LockKind::Name | LockKind::Client => json!(lock.realm),
        LockKind::Address => Value::Null,
    };
    let subject = lock.subject.as_deref();
    let (user, address, client_id) = match lock.kind {
        LockKind::Name => (subject, None, None),
        LockKind::Address => (None, subject, None),
        LockKind::Client => {
            let parts = subject.and_then(|subject| subject.split_once(' '));
            (None, parts.map(|parts| parts.0), parts.map(|parts| parts.1))
        }
    };
    json!({
        "id": id_of(lock),
        "kind": lock.kind.as_str(),
        "realm": realm,
        "user": user,
        "address": address,
        "client_id": client_id,
        "locked_at": lock.set_ms / 1000,
        "locked_until": lock.until_ms / 1000,
        "locks": lock.locks,
    })
}

fn id_of(lock: &StoredLock) -> String {
    hex::encode(lock.id.0)
}

/// The locks that hold now.
pub(super) async fn held(call: &Call) -> Result<Vec<StoredLock>, ManageError> {
    let mut locks = call.state.store.locks(0, call.now_ms).await?;
    locks.retain(|lock| lock.until_ms > call.now_ms);
    Ok(locks)
}

/// `GET /identity/lockouts`
pub(super) async fn list(call: Call) -> Result<Response, ManageError> {
    let page = Page::of(&call)?;
    let locks = held(&call).await?.into_iter();
    let mut locks: Vec<_> = locks.map(|lock| (id_of(&lock), lock)).collect();
    locks.sort_by(|(one, _), (other, _)| one.cmp(other));
    let locks = page.cut(locks, |(id, _)| id);
    let shown = |(id, lock): (String, StoredLock)| (id, lock_record(&lock));
    page.answer(&call, "/lockouts", locks.into_iter().map(shown).collect())
        .await
}

/// `DELETE /identity/lockouts/{id}`
pub(super) async fn lift(call: Call) -> Result<Response, ManageError> {
    let mut locks = held(&call).await?;
    locks.retain(|lock| id_of(lock) == call.param(0));
    if locks.is_empty() {
        return Err(ManageError::NotFound);
    }
    call.state
        .lift_locks(&locks, call.now_ms, call.audit())
        .await?;
    Ok(respond::empty(StatusCode::NO_CONTENT))
}

/// `DELETE /identity/lockouts?name=…` or `?address=…`: also where nothing is
/// locked.
pub(super) async fn lift_named(call: Call) -> Result<Response, ManageError> {
    let query = call.query()?;
    let id = match (query.get("name"), query.get("address")) {
        (Some(name), None) => LockKind::Name.id(&call.realm()?.path, &user_name::key(name)),
        (None, Some(address)) => {
            let address = address.parse().map_err(|_| ManageError::Option {
                option: "address",
                message: "is no IP address".to_owned(),
            })?;
            LockKind::Address.id(EVERYWHERE, &network(address))
        }
        _ => return Err(ManageError::Query("give name or address".to_owned())),
    };
    let mut locks = held(&call).await?;
    locks.retain(|lock| lock.id == id);
    call.state
        .lift_locks(&locks, call.now_ms, call.audit())
        .await?;
    Ok(respond::empty(StatusCode::NO_CONTENT))
}
