//! Initial access tokens: who holds one may register clients (RFC 7591 §3).

use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Call;
use super::error::ManageError;
use super::page::Page;
use crate::registry::{InitialTokenRequest, initial_token, token_record};
use crate::respond;
use doorward_core::model::registration::InitialToken;

/// `GET /identity/initial-tokens`
pub(super) async fn list(call: Call) -> Result<Response, ManageError> {
    let page = Page::of(&call)?;
    let realm = call.realm()?;
    let tokens = call.state.store.initial_tokens(&realm.path).await?;
    let tokens = page.cut(tokens, |token| &token.id);
    let shown = |token: InitialToken| (token.id.clone(), token_record(&token));
    let tokens = tokens.into_iter().map(shown).collect();
    page.answer(&call, "/initial-tokens", tokens).await
}

/// `POST /identity/initial-tokens`: the token is shown once, here.
pub(super) async fn create(call: Call) -> Result<Response, ManageError> {
    let realm = call.realm()?;
    let wish = InitialTokenRequest::deserialize(Value::Object(call.object()?));
    let wish = wish.map_err(|error| ManageError::Json(error.to_string()))?;
    let (token, text) = initial_token(&realm.path, wish, call.now_ms)?;
    call.complete(|record| record.set_target(&format!("initial-tokens/{}", token.id)));
    call.state
        .store
        .insert_initial_token(&token, call.audit())
        .await?;
    let mut shown = token_record(&token);
    shown["initial_access_token"] = json!(text.expose());
    Ok(respond::json(StatusCode::CREATED, &shown))
}

/// `DELETE /identity/initial-tokens/{id}`
pub(super) async fn delete(call: Call) -> Result<Response, ManageError> {
    let realm = call.realm()?;
    let store = &call.state.store;
    if store
        .delete_initial_token(&realm.path, call.param(0), call.audit())
        .await?
    {
        Ok(respond::empty(StatusCode::NO_CONTENT))
    } else {
        Err(ManageError::NotFound)
    }
}
