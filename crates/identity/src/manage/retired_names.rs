//! Names of users who were deleted or renamed: tokens call nobody else so.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::Call;
use super::error::ManageError;
use super::page::Page;
use crate::respond;
use doorward_core::model::user::RetiredName;

/// A retired name as it is shown.
pub fn retired_name_record(name: &RetiredName) -> Value {
    json!({
        "name": name.user_name,
        "realm": name.realm,
        "user": name.user_id,
        "retired_at": name.retired_ms / 1000,
    })
}

/// `GET /identity/retired-names`
pub(super) async fn list(call: Call) -> Result<Response, ManageError> {
    let page = Page::of(&call)?;
    let realm = call.realm()?;
    let after = page.after.as_deref().unwrap_or_default();
    let store = &call.state.store;
    let names = store
        .retired_names(&realm.path, after, page.limit())
        .await?;
    let shown = |name: &RetiredName| (name.key.clone(), retired_name_record(name));
    page.answer(&call, "/retired-names", names.iter().map(shown).collect())
        .await
}

/// `DELETE /identity/retired-names?name=…`
pub(super) async fn release(call: Call) -> Result<Response, ManageError> {
    let query = call.query()?;
    let Some(name) = query.get("name") else {
        return Err(ManageError::Query("give name".to_owned()));
    };
    let realm = call.realm()?;
    if !call
        .state
        .store
        .release_name(&realm.path, name, call.audit())
        .await?
    {
        return Err(ManageError::NotFound);
    }
    call.state.forget();
    Ok(respond::empty(StatusCode::NO_CONTENT))
}
