//! Realms.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::Call;
use super::error::ManageError;
use super::page::Page;
use crate::identity::realm::Realm;
use crate::identity::respond;

/// `GET /identity/realms`
pub(super) async fn list(call: Call) -> Result<Response, ManageError> {
    let page = Page::of(&call)?;
    let live = call.state.live.load_full();
    let mut realms: Vec<_> = live.realms().collect();
    realms.sort_by(|a, b| a.path.cmp(&b.path));
    let realms = page.cut(realms, |realm| &realm.path);
    let shown = |realm: &std::sync::Arc<Realm>| {
        let record = json!({"path": realm.path, "issuer": realm.issuer});
        (realm.path.clone(), record)
    };
    page.answer(&call, "/realms", realms.into_iter().map(shown).collect())
}

/// `GET /identity/realms/{path}`; `root` is the realm `/`.
pub(super) async fn show(call: Call) -> Result<Response, ManageError> {
    let realm = named(&call)?;
    Ok(respond::json(StatusCode::OK, &record(&realm)))
}

fn record(realm: &Realm) -> Value {
    json!({
        "path": realm.path,
        "issuer": realm.issuer,
        "settings": realm.settings,
    })
}

/// The path of the realm that the address names.
fn path(call: &Call) -> String {
    match call.param(0).trim_matches('/') {
        "root" => "/".to_owned(),
        path => format!("/{path}"),
    }
}

fn named(call: &Call) -> Result<std::sync::Arc<Realm>, ManageError> {
    let path = path(call);
    let realm = call.state.live().realm(&path).cloned();
    realm.ok_or(ManageError::Realm(path))
}
