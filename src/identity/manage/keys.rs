//! Signing keys: their public facts.

use axum::response::Response;
use serde_json::json;

use super::Call;
use super::error::ManageError;
use super::page::Page;
use crate::identity::keys::state_of;
use crate::model::grant::StoredKey;

/// `GET /identity/keys`
pub(super) async fn list(call: Call) -> Result<Response, ManageError> {
    let page = Page::of(&call)?;
    let mut keys = call.state.store.signing_keys().await?;
    keys.sort_by(|a, b| a.kid.cmp(&b.kid));
    let all = keys.clone();
    let record = |key: StoredKey| {
        let shown = json!({
            "kid": key.kid,
            "alg": key.alg,
            "state": state_of(&key, &all, call.now_ms),
            "created_at": key.created_ms.div_euclid(1000),
            "active_from": key.active_from_ms.div_euclid(1000),
            "expires_at": key.expires_ms.map(|end| end.div_euclid(1000)),
        });
        (key.kid, shown)
    };
    let keys = page.cut(keys, |key| &key.kid);
    page.answer(&call, "/keys", keys.into_iter().map(record).collect())
}
