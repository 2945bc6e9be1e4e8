//! What users let clients have: looked at and withdrawn. With a consent end the
//! tokens that the user gave the client.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::Call;
use super::error::ManageError;
use super::identities::user;
use super::page::Page;
use crate::{consent_entry, respond};
use doorward_core::model::grant::Consent;

/// `GET /identity/users/{id}/consents`
pub(super) async fn list(call: Call) -> Result<Response, ManageError> {
    let page = Page::of(&call)?;
    let user = user(&call).await?;
    let all = call.state.store.consents(user.id).await?;
    let all = page.cut(all, |consent| &consent.client_id);
    let shown = |one: Consent| (one.client_id.clone(), record(&one));
    let path = format!("/users/{}/consents", user.id);
    page.answer(&call, &path, all.into_iter().map(shown).collect())
        .await
}

/// `DELETE /identity/users/{id}/consents/{client_id}`
pub(super) async fn withdraw(call: Call) -> Result<Response, ManageError> {
    let user = user(&call).await?;
    let client_id = call.param(1);
    let store = &call.state.store;
    let all = store.consents(user.id).await?;
    if !all.iter().any(|consent| consent.client_id == client_id) {
        return Err(ManageError::NotFound);
    }
    call.complete(|record| {
        record.set_user(user.id, &user.user_name);
        record.set_target(&format!("clients/{client_id}"));
    });
    let withdrawn =
        store.withdraw_consent(&user.realm, user.id, client_id, call.now_ms, call.audit());
    let grants = withdrawn.await?;
    call.state.mark_revoked(&grants, call.now_ms);
    Ok(respond::empty(StatusCode::NO_CONTENT))
}

fn record(consent: &Consent) -> Value {
    json!({
        "client_id": consent.client_id,
        "scopes": consent_entry::shown(&consent.scopes),
        "given_at": consent.given_ms.div_euclid(1000),
    })
}
