//! Realms: those of the configuration file are shown, others made and removed.

use std::sync::Arc;

use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value};

use super::Call;
use super::error::ManageError;
use super::page::{self, Page};
use super::users::version;
use crate::describe::{describe, summary};
use crate::realm::Realm;
use crate::respond;
use doorward_core::model::audit::Kind;
use doorward_core::model::registration::{RealmRemoval, StoredRealm};
use doorward_core::model::user::schema::RecordError;
use doorward_store::StoreError;

/// How often a change is tried again whose realm was changed meanwhile.
const TRIES: usize = 5;

/// `GET /identity/realms`
pub(super) async fn list(call: Call) -> Result<Response, ManageError> {
    let page = Page::of(&call)?;
    let live = call.state.live.load_full();
    let mut realms: Vec<_> = live.realms().collect();
    realms.sort_by(|a, b| a.path.cmp(&b.path));
    let realms = page.cut(realms, |realm| &realm.path);
    let shown = |realm: &Arc<Realm>| (realm.path.clone(), summary(&live, realm));
    page.answer(&call, "/realms", realms.into_iter().map(shown).collect())
        .await
}

/// `GET /identity/realms/{path}`; `root` is the realm `/`.
pub(super) async fn show(call: Call) -> Result<Response, ManageError> {
    let path = path(&call);
    shown(&call, &path, StatusCode::OK).await
}

/// `POST /identity/realms`: `path`, and `settings` if it sets any.
pub(super) async fn create(call: Call) -> Result<Response, ManageError> {
    let mut members = call.object()?;
    let path = match members.remove("path") {
        Some(Value::String(path)) => path,
        Some(_) => return Err(RecordError::new("path", "expected a string").into()),
        None => return Err(RecordError::new("path", "is required").into()),
    };
    let realm = StoredRealm {
        settings: settings(members)?.unwrap_or_default(),
        path,
        declared: false,
    };
    made(&call, realm).await
}

/// `PUT /identity/realms/{path}`: all of its own settings; makes the realm if
/// there is none.
pub(super) async fn put(call: Call) -> Result<Response, ManageError> {
    let members = call.object()?;
    let version = version(&members)?;
    let realm = StoredRealm {
        path: path(&call),
        declared: false,
        settings: settings(members)?.unwrap_or_default(),
    };
    refuse_declared(&call, &realm.path)?;
    match own(&call, &realm.path, version).await? {
        // Whoever names a version has seen a realm, which is gone.
        None if version.is_some() => Err(ManageError::Changed),
        None => made(&call, realm).await,
        Some(seen) => changed(&call, realm, version.map(|_| &seen)).await,
    }
}

/// `PATCH /identity/realms/{path}`: some of its own settings; null removes one,
/// so that the realm above decides. `version`: the one that the change is of.
pub(super) async fn patch(call: Call) -> Result<Response, ManageError> {
    let path = path(&call);
    let members = call.object()?;
    let version = version(&members)?;
    let change = settings(members)?.unwrap_or_default();
    refuse_declared(&call, &path)?;
    for _ in 0..TRIES {
        let seen = own(&call, &path, version).await?;
        let seen = seen.ok_or_else(|| ManageError::Realm(path.clone()))?;
        let mut settings = seen.clone();
        for (name, value) in &change {
            if value.is_null() {
                settings.remove(name);
            } else {
                settings.insert(name.clone(), value.clone());
            }
        }
        let realm = StoredRealm {
            path: path.clone(),
            declared: false,
            settings,
        };
        match changed(&call, realm, Some(&seen)).await {
            Err(ManageError::Changed) => call.state.read_realms().await?,
            outcome => return outcome,
        }
    }
    Err(ManageError::Changed)
}

/// `DELETE /identity/realms/{path}`, when nothing is left in it. `version` of the query
/// names the one that is meant.
pub(super) async fn delete(call: Call) -> Result<Response, ManageError> {
    let path = path(&call);
    refuse_declared(&call, &path)?;
    let version = page::version(&call.query()?)?;
    let seen = match version {
        None => None,
        Some(_) => {
            let seen = own(&call, &path, version).await?;
            Some(seen.ok_or_else(|| ManageError::Realm(path.clone()))?)
        }
    };
    match call
        .state
        .store
        .delete_realm(&path, seen.as_ref(), call.audit())
        .await
    {
        Ok(RealmRemoval::Done) => {
            call.state.read_realms().await?;
            Ok(respond::empty(StatusCode::NO_CONTENT))
        }
        Ok(RealmRemoval::Absent) => Err(ManageError::Realm(path)),
        Ok(RealmRemoval::Inhabited) if path == "/" => Err(ManageError::Conflict(
            "the realm / always exists".to_owned(),
        )),
        Ok(RealmRemoval::Inhabited) => Err(ManageError::Conflict(format!(
            "realm {path} is not empty: it has users, clients or realms"
        ))),
        Err(StoreError::FileOwned(_)) => Err(call.file_owned(format!("realm {path}"))),
        Err(error) => Err(error.into()),
    }
}

async fn made(call: &Call, realm: StoredRealm) -> Result<Response, ManageError> {
    let live = call.state.live.load_full();
    live.checked_settings(&realm.path, realm.settings.clone())?;
    call.complete(|record| {
        record.set_kind(Kind::RealmCreate);
        record.set_realm(&realm.path);
    });
    match call.state.store.insert_realm(&realm, call.audit()).await {
        Err(StoreError::Taken(value)) => {
            let field = "path";
            return Err(ManageError::Taken { field, value });
        }
        outcome => outcome?,
    }
    call.state.read_realms().await?;
    shown(call, &realm.path, StatusCode::CREATED).await
}

async fn changed(
    call: &Call,
    realm: StoredRealm,
    seen: Option<&Map<String, Value>>,
) -> Result<Response, ManageError> {
    let live = call.state.live.load_full();
    live.checked_settings(&realm.path, realm.settings.clone())?;
    match call
        .state
        .store
        .update_realm(&realm, seen, call.audit())
        .await
    {
        Err(StoreError::FileOwned(path)) => {
            return Err(call.file_owned(format!("realm {path}")));
        }
        outcome => outcome?,
    }
    call.state.read_realms().await?;
    shown(call, &realm.path, StatusCode::OK).await
}

fn refuse_declared(call: &Call, path: &str) -> Result<(), ManageError> {
    if call.state.live().config.realms.contains_key(path) {
        return Err(call.file_owned(format!("realm {path}")));
    }
    Ok(())
}

/// What the body says of settings; what else is shown of a realm is no change.
fn settings(members: Map<String, Value>) -> Result<Option<Map<String, Value>>, ManageError> {
    let mut settings = None;
    for (name, value) in members {
        match (name.as_str(), value) {
            ("settings", Value::Object(members)) => settings = Some(members),
            ("settings", _) => return Err(RecordError::new(name, "expected an object").into()),
            ("path" | "issuer" | "owner" | "version" | "declared_in" | "declared_line", _)
            | ("effective_settings" | "settings_not_in_force", _) => {}
            _ => return Err(RecordError::new(name, "unknown field").into()),
        }
    }
    Ok(settings)
}

/// What the realm sets itself, if there is such a realm in the store. Where a version is
/// named, it is the one that is meant: another one is refused.
async fn own(
    call: &Call,
    path: &str,
    version: Option<i64>,
) -> Result<Option<Map<String, Value>>, ManageError> {
    let versions = &call.state.realm_versions;
    let read = || {
        let live = call.state.live.load_full();
        let stored = live.stored.iter().find(|realm| realm.path == path)?;
        Some((stored.settings.clone(), versions.of(&live, path)))
    };
    let is_meant = |of: i64| version.is_none_or(|version| version == of);
    let mut found = read();
    if version.is_some() && !found.as_ref().is_some_and(|(_, of)| is_meant(*of)) {
        // Another node may have written what this one has not read yet.
        call.state.read_realms().await?;
        found = read();
    }
    match found {
        Some((_, of)) if !is_meant(of) => Err(ManageError::Changed),
        found => Ok(found.map(|(settings, _)| settings)),
    }
}

async fn shown(call: &Call, path: &str, status: StatusCode) -> Result<Response, ManageError> {
    let live = call.state.live.load_full();
    let realm = live.realm(path);
    let realm = realm.ok_or_else(|| ManageError::Realm(path.to_owned()))?;
    let mut record = describe(&live, realm);
    record["version"] = call.state.realm_versions.of(&live, path).into();
    call.tell_files(record.as_object_mut().into_iter()).await?;
    Ok(respond::json(status, &record))
}

/// The path of the realm that the address names.
fn path(call: &Call) -> String {
    match call.param(0).trim_matches('/') {
        "root" => "/".to_owned(),
        path => format!("/{path}"),
    }
}
