//! Sessions: looked at and ended. With a session ends what was given in it, and
//! its clients are told.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::Call;
use super::error::ManageError;
use super::page::Page;
use crate::respond;
use doorward_core::model::session::{Ending, SessionQuery, SessionRecord};

/// `GET /identity/sessions`
pub(super) async fn list(call: Call) -> Result<Response, ManageError> {
    let page = Page::of(&call)?;
    let Some(query) = session_query(&call).await? else {
        return page.answer(&call, "/sessions", Vec::new()).await;
    };
    let limit = page.limit();
    let store = &call.state.store;
    let found = store.sessions(&query, page.after.as_deref(), limit).await?;
    let shown = |one: &SessionRecord| (one.session.sid.clone(), record(&call, one));
    page.answer(
        &call,
        "/sessions",
        found.sessions.iter().map(shown).collect(),
    )
    .await
}

/// `GET /identity/sessions/{id}`
pub(super) async fn show(call: Call) -> Result<Response, ManageError> {
    let realm = call.realm()?;
    let found = call.state.store.session_named(&realm.path, call.param(0));
    let found = found.await?.ok_or(ManageError::NotFound)?;
    Ok(respond::json(StatusCode::OK, &record(&call, &found)))
}

/// `DELETE /identity/sessions/{id}`
pub(super) async fn end(call: Call) -> Result<Response, ManageError> {
    let realm = call.realm()?;
    let found = call.state.store.session_named(&realm.path, call.param(0));
    found.await?.ok_or(ManageError::NotFound)?;
    let which = Ending::Named {
        realm: realm.path.clone(),
        sid: call.param(0).to_owned(),
    };
    call.state
        .end_sessions(&which, call.now_ms, call.audit())
        .await?;
    Ok(respond::empty(StatusCode::NO_CONTENT))
}

/// `DELETE /identity/sessions`: every one of a user, or that a client is signed
/// in through, or both.
pub(super) async fn end_all(call: Call) -> Result<Response, ManageError> {
    let mut ended = 0;
    if let Some(query) = session_query(&call).await? {
        if query.user_id.is_none() && query.client_id.is_none() {
            return Err(ManageError::Option {
                option: "user",
                message: "or client_id is required to end several sessions".to_owned(),
            });
        }
        let which = Ending::Every(query);
        ended = call
            .state
            .end_sessions(&which, call.now_ms, call.audit())
            .await?
            .len();
    }
    Ok(respond::json(StatusCode::OK, &json!({"ended": ended})))
}

/// What the query asks for: realm, user (by name), client; `None` if there is
/// no such user.
async fn session_query(call: &Call) -> Result<Option<SessionQuery>, ManageError> {
    let realm = call.realm()?;
    let query = call.query()?;
    let mut wanted = SessionQuery {
        realm: Some(realm.path.clone()),
        user_id: None,
        client_id: query.get("client_id").map(str::to_owned),
    };
    if let Some(name) = query.get("user") {
        let user = call.state.store.user_by_name(&realm.path, name).await?;
        match user {
            Some(user) => wanted.user_id = Some(user.id),
            None => return Ok(None),
        }
    }
    Ok(Some(wanted))
}

fn record(call: &Call, found: &SessionRecord) -> Value {
    session_record(found, call.state.idle_ms())
}

/// A session as it is shown, where one that is not used for `idle_ms` ends:
/// never with its token.
pub fn session_record(found: &SessionRecord, idle_ms: i64) -> Value {
    let session = &found.session;
    let seconds = |ms: i64| ms.div_euclid(1000);
    json!({
        "id": session.sid,
        "realm": session.realm,
        "user": found.user_name,
        "user_id": session.user_id,
        "clients": found.clients,
        "created_at": seconds(session.created_ms),
        "authenticated_at": seconds(session.auth_ms),
        "used_at": seconds(session.used_ms),
        "expires_at": seconds(session.ends_at(idle_ms)),
    })
}
