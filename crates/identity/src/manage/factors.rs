//! Second factors of users: looked at and reset. With a reset, sessions and
//! refresh tokens of the user end.

use aws_lc_rs::digest::{SHA256, digest};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use serde_json::{Value, json};

use super::Call;
use super::error::ManageError;
use super::identities::user;
use super::page::Page;
use crate::factors::is_backed_up;
use crate::respond;
use doorward_core::model::factor::StoredFactor;

/// `GET /identity/users/{id}/factors`
pub(super) async fn list(call: Call) -> Result<Response, ManageError> {
    let page = Page::of(&call)?;
    let user = user(&call).await?;
    let all = call.state.store.factors(user.id).await?;
    let version = version(&all);
    let shown = |one: &StoredFactor| (one.id.to_string(), factor_record(one));
    let mut all: Vec<_> = all.iter().map(shown).collect();
    all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let path = format!("/users/{}/factors", user.id);
    let mut body = page.body(&call, &path, page.cut(all, |(id, _)| id)).await?;
    body["version"] = version.into();
    Ok(respond::json(StatusCode::OK, &body))
}

/// What tells the factors that a user has from others.
fn version(factors: &[StoredFactor]) -> String {
    let mut ids: Vec<_> = factors.iter().map(|one| one.id.into_bytes()).collect();
    ids.sort_unstable();
    let digest = digest(&SHA256, &ids.concat());
    URL_SAFE_NO_PAD.encode(&digest.as_ref()[..16])
}

/// `DELETE /identity/users/{id}/factors`: all of them, and the recovery codes, if they are
/// of the version that is named.
pub(super) async fn reset(call: Call) -> Result<Response, ManageError> {
    let user = user(&call).await?;
    let state = &call.state;
    let expected = call.query()?.get("version").map(str::to_owned);
    let are_meant = |all: &[StoredFactor]| expected.as_ref().is_none_or(|one| *one == version(all));
    let reset = state
        .store
        .reset_factors(user.id, are_meant, call.now_ms, call.audit());
    if reset.await?.is_none() {
        return Err(ManageError::Changed);
    }
    state.read_revocations().await?;
    state.backchannel_logout.wake();
    Ok(respond::empty(StatusCode::NO_CONTENT))
}

/// A factor as it is shown: never with what verifies it.
pub fn factor_record(factor: &StoredFactor) -> Value {
    let seconds = |ms: i64| ms.div_euclid(1000);
    json!({
        "id": factor.id,
        "kind": factor.kind.as_str(),
        "name": factor.name,
        "backed_up": is_backed_up(factor),
        "created_at": seconds(factor.created_ms),
        "used_at": factor.used_ms.map(seconds),
    })
}
