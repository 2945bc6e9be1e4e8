//! Clients.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::Call;
use super::error::ManageError;
use super::page::Page;
use crate::identity::respond;
use crate::model::client::Client;

/// `GET /identity/clients`
pub(super) async fn list(call: Call) -> Result<Response, ManageError> {
    let page = Page::of(&call)?;
    let realm = call.realm()?;
    let clients = call.state.store.clients(&realm.path).await?;
    let clients = page.cut(clients, |client| &client.metadata.client_id);
    let shown = |client: Client| (client.metadata.client_id.clone(), record(&client));
    page.answer(&call, "/clients", clients.into_iter().map(shown).collect())
}

/// `GET /identity/clients/{id}`
pub(super) async fn show(call: Call) -> Result<Response, ManageError> {
    let realm = call.realm()?;
    let client = call.state.store.client(&realm.path, call.param(0)).await?;
    let client = client.ok_or(ManageError::NotFound)?;
    Ok(respond::json(StatusCode::OK, &record(&client)))
}

/// A client as it is shown: never with its secret.
fn record(client: &Client) -> Value {
    let mut shown = json!(client.metadata);
    shown["realm"] = client.realm.clone().into();
    shown["owner"] = client.owner.as_str().into();
    shown["created_at"] = client.created_ms.div_euclid(1000).into();
    shown["updated_at"] = client.updated_ms.div_euclid(1000).into();
    shown
}
