//! Clients: the metadata of RFC 7591 and Doorward's own settings.
//!
//! A secret is written and never read: only one that is made here is shown,
//! once, in the answer to the request that made it.

use std::sync::Arc;

use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::Call;
use super::error::ManageError;
use super::page::{self, Page};
use super::users::version;
use crate::realm::Realm;
use crate::registry::{self, NewClient};
use crate::respond;
use doorward_core::model::audit::Kind;
use doorward_core::model::client::Client;
use doorward_core::model::registration::ClientQuery;
use doorward_core::model::secret::Secret;
use doorward_core::model::user::Owner;
use doorward_core::model::user::schema::RecordError;
use doorward_store::StoreError;

/// How often a change is tried again whose record was changed meanwhile.
const TRIES: usize = 5;

/// `GET /identity/clients`
pub(super) async fn list(call: Call) -> Result<Response, ManageError> {
    let page = Page::of(&call)?;
    let realm = call.realm()?;
    let form = call.query()?;
    let owner = match form.get("owner").map(|word| (word, Owner::parse(word))) {
        None => None,
        Some((_, Some(owner))) => Some(owner),
        Some((word, None)) => {
            return Err(ManageError::Option {
                option: "owner",
                message: format!("'{word}' is none of store, file and client"),
            });
        }
    };
    let query = ClientQuery {
        after: page.after.clone(),
        owner,
        text: form.get("q").map(str::to_owned),
        limit: page.limit(),
    };
    let clients = call.state.store.find_clients(&realm.path, &query).await?;
    let shown = |client: Client| {
        let record = registry::record(&client);
        (client.metadata.client_id, Value::Object(record))
    };
    page.answer(&call, "/clients", clients.into_iter().map(shown).collect())
        .await
}

/// `GET /identity/clients/{id}`
pub(super) async fn show(call: Call) -> Result<Response, ManageError> {
    let realm = call.realm()?;
    let client = find(&call, &realm).await?.ok_or(ManageError::NotFound)?;
    let mut record = registry::record(&client);
    call.tell_files(std::iter::once(&mut record)).await?;
    Ok(respond::json(StatusCode::OK, &record))
}

/// `POST /identity/clients`
pub(super) async fn create(call: Call) -> Result<Response, ManageError> {
    let realm = call.realm()?;
    let made = registry::create(&realm.path, call.object()?, call.now_ms)?;
    insert(&call, &made).await?;
    Ok(answer(StatusCode::CREATED, &made.client, made.secret))
}

/// `PUT /identity/clients/{id}`: all of the metadata; makes the client if there
/// is none.
pub(super) async fn put(call: Call) -> Result<Response, ManageError> {
    let mut members = call.object()?;
    let realm = call.realm()?;
    let seen = version(&members)?;
    if find(&call, &realm).await?.is_some() {
        return change(&call, seen, |old| {
            registry::replace(old, members.clone(), call.now_ms)
        })
        .await;
    }
    if seen.is_some() {
        // Whoever names a version has seen a client, which is gone.
        return Err(ManageError::Changed);
    }
    let named = members.get("client_id");
    if named.is_some_and(|named| !named.is_null() && named != call.param(0)) {
        let error = RecordError::new("client_id", "is another one than in the path");
        return Err(error.into());
    }
    members.insert("client_id".to_owned(), call.param(0).into());
    let made = registry::create(&realm.path, members, call.now_ms)?;
    insert(&call, &made).await?;
    Ok(answer(StatusCode::CREATED, &made.client, made.secret))
}

/// `PATCH /identity/clients/{id}`: some of the metadata; null removes. `version`: the
/// one that the change is of.
pub(super) async fn patch(call: Call) -> Result<Response, ManageError> {
    let members = call.object()?;
    let seen = version(&members)?;
    change(&call, seen, |old| {
        registry::patch(old, members.clone(), call.now_ms)
    })
    .await
}

/// `POST /identity/clients/{id}/secret`: another secret, the one in the body or
/// a new one.
pub(super) async fn rotate(call: Call) -> Result<Response, ManageError> {
    let mut members = call.object()?;
    let seen = version(&members)?;
    members.remove("version");
    let given = match members.remove("client_secret") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(Secret::new(text)),
        Some(_) => return Err(RecordError::new("client_secret", "expected a string").into()),
    };
    if let Some((name, _)) = members.iter().next() {
        return Err(RecordError::new(name, "unknown field").into());
    }
    change(&call, seen, |old| {
        registry::rotate(old, given.clone(), call.now_ms)
    })
    .await
}

/// `DELETE /identity/clients/{id}`: with everything that it was granted. `version` of
/// the query names the one that is meant.
pub(super) async fn delete(call: Call) -> Result<Response, ManageError> {
    let realm = call.realm()?;
    let seen = page::version(&call.query()?)?;
    let store = &call.state.store;
    match store
        .delete_client(&realm.path, call.param(0), seen, call.audit())
        .await
    {
        Ok(Some(grants)) => {
            call.state.mark_revoked(&grants, call.now_ms);
            Ok(respond::empty(StatusCode::NO_CONTENT))
        }
        Ok(None) => Err(ManageError::NotFound),
        Err(StoreError::FileOwned(id)) => Err(call.file_owned(format!("client {id}"))),
        Err(error) => Err(error.into()),
    }
}

async fn find(call: &Call, realm: &Realm) -> Result<Option<Client>, ManageError> {
    let found = call.state.store.client(&realm.path, call.param(0)).await?;
    Ok(found)
}

async fn insert(call: &Call, made: &NewClient) -> Result<(), ManageError> {
    let id = &made.client.metadata.client_id;
    call.complete(|record| {
        record.set_kind(Kind::ClientCreate);
        record.set_client(id);
    });
    match call
        .state
        .store
        .insert_client(&made.client, call.audit())
        .await
    {
        Err(StoreError::Taken(value)) => Err(ManageError::Taken {
            field: "client_id",
            value,
        }),
        outcome => Ok(outcome?),
    }
}

/// Replaces the client, if it is of the version `seen`, by what `made` makes of it.
async fn change(
    call: &Call,
    seen: Option<i64>,
    made: impl Fn(&Client) -> Result<NewClient, RecordError>,
) -> Result<Response, ManageError> {
    let realm: Arc<Realm> = call.realm()?;
    for _ in 0..TRIES {
        let old = find(call, &realm).await?.ok_or(ManageError::NotFound)?;
        if old.owner == Owner::File {
            return Err(call.file_owned(format!("client {}", call.param(0))));
        }
        if seen.is_some_and(|seen| seen != old.updated_ms) {
            return Err(ManageError::Changed);
        }
        let NewClient { client, secret } = made(&old)?;
        match call
            .state
            .store
            .update_client(&client, old.updated_ms, call.audit())
            .await
        {
            Err(StoreError::Conflict(_)) => {}
            outcome => {
                outcome?;
                return Ok(answer(StatusCode::OK, &client, secret));
            }
        }
    }
    Err(ManageError::Changed)
}

/// The record, with the secret that was made for it.
fn answer(status: StatusCode, client: &Client, made: Option<Secret>) -> Response {
    let mut record: Map<String, Value> = registry::record(client);
    if let Some(secret) = made {
        record.insert("client_secret".to_owned(), json!(secret.expose()));
    }
    respond::json(status, &record)
}
