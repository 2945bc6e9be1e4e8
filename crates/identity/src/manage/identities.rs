//! Whom users are at other providers: looked at, linked and unlinked. With a
//! link that is removed, sessions and refresh tokens of its user end.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use super::Call;
use super::error::ManageError;
use super::page::Page;
use crate::federation::{issuer_name, unlink};
use crate::respond;
use doorward_core::clock::random_uuid;
use doorward_core::model::federation::FederatedIdentity;
use doorward_core::model::user::schema::RecordError;
use doorward_core::model::user::{Owner, User};
use doorward_store::StoreError;

/// `GET /identity/users/{id}/identities`
pub(super) async fn list(call: Call) -> Result<Response, ManageError> {
    let page = Page::of(&call)?;
    let user = user(&call).await?;
    let all = call.state.store.identities(user.id).await?;
    let shown = |one: &FederatedIdentity| (one.id.to_string(), identity_record(one));
    let mut all: Vec<_> = all.iter().map(shown).collect();
    all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let path = format!("/users/{}/identities", user.id);
    page.answer(&call, &path, page.cut(all, |(id, _)| id)).await
}

/// `POST /identity/users/{id}/identities`: `subject`, and `provider` (its name
/// in the settings) or `issuer`.
pub(super) async fn create(call: Call) -> Result<Response, ManageError> {
    let user = user(&call).await?;
    if user.owner == Owner::File {
        return Err(call.file_owned(format!("user {}", user.user_name)));
    }
    let members = call.object()?;
    let known = ["subject", "provider", "issuer"];
    if let Some(name) = members.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(RecordError::new(name, "unknown field").into());
    }
    let text = |name: &str| match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.is_empty() && text.len() <= 255 => Ok(Some(text)),
        Some(_) => Err(RecordError::new(
            name,
            "expected a string of 1 to 255 bytes",
        )),
    };
    let subject = text("subject")?.ok_or_else(|| RecordError::new("subject", "is required"))?;
    let realm = call.realm()?;
    let (provider, issuer) = match (text("provider")?, text("issuer")?) {
        (Some(name), None) => {
            let mut all = realm.providers().iter();
            let found = all.find(|provider| provider.name() == name);
            let found = found.ok_or_else(|| RecordError::new("provider", "there is none"))?;
            (name.clone(), found.issuer_name().to_owned())
        }
        (None, Some(issuer)) => (String::new(), issuer_name(issuer).to_owned()),
        _ => return Err(RecordError::new("provider", "or issuer is required, not both").into()),
    };
    let identity = FederatedIdentity {
        id: random_uuid(),
        realm: realm.path.clone(),
        user_id: user.id,
        issuer,
        subject: subject.clone(),
        provider,
        email: None,
        created_ms: call.now_ms,
        used_ms: call.now_ms,
    };
    match call
        .state
        .store
        .link_identity(&identity, None, call.audit())
        .await
    {
        Err(StoreError::Taken(_)) => Err(ManageError::Taken {
            field: "subject",
            value: subject.clone(),
        }),
        Err(StoreError::Conflict(_)) => Err(ManageError::NotFound),
        outcome => {
            outcome?;
            let record = identity_record(&identity);
            Ok(respond::json(StatusCode::CREATED, &record))
        }
    }
}

/// `DELETE /identity/users/{id}/identities/{id}`
pub(super) async fn delete(call: Call) -> Result<Response, ManageError> {
    let user = user(&call).await?;
    let id = call.param(1).parse::<Uuid>();
    let id = id.map_err(|_| ManageError::NotFound)?;
    let state = &call.state;
    let links = state.store.identities(user.id).await?;
    let link = links.into_iter().find(|link| link.id == id);
    let link = link.ok_or(ManageError::NotFound)?;
    call.complete(|record| record.set_user(user.id, &user.user_name));
    let realm = call.realm()?;
    if !unlink(
        &state.store,
        realm.providers(),
        &link,
        call.now_ms,
        call.audit(),
    )
    .await?
    {
        return Err(ManageError::NotFound);
    }
    state.read_revocations().await?;
    state.backchannel_logout.wake();
    Ok(respond::empty(StatusCode::NO_CONTENT))
}

/// The user that the address names, in the realm that the query names.
pub(super) async fn user(call: &Call) -> Result<User, ManageError> {
    let realm = call.realm()?;
    let id = call.param(0).parse::<Uuid>();
    let id = id.map_err(|_| ManageError::NotFound)?;
    let user = call.state.store.user(&realm.path, id).await?;
    user.ok_or(ManageError::NotFound)
}

/// A link as it is shown.
pub fn identity_record(identity: &FederatedIdentity) -> Value {
    let seconds = |ms: i64| ms.div_euclid(1000);
    json!({
        "id": identity.id,
        "user_id": identity.user_id,
        "provider": identity.provider,
        "issuer": identity.issuer,
        "subject": identity.subject,
        "email": identity.email,
        "created_at": seconds(identity.created_ms),
        "used_at": seconds(identity.used_ms),
    })
}
