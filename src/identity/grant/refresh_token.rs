//! A new access token for an old grant (RFC 6749 §6).
//!
//! Each refresh token is good once. The second use of one means that two hold
//! it: the whole grant is revoked (RFC 9700 §4.14.2).

use crate::identity::Call;
use crate::identity::error::OAuthError;
use crate::identity::form::Form;
use crate::identity::issue::{self, Issue, TokenResponse};
use crate::identity::login::settle;
use crate::identity::token::{client_for, granted, required};
use crate::model::grant::{Rotation, StoredRefresh, TokenHash};

const GRANT: &str = "refresh_token";

fn not_valid() -> OAuthError {
    OAuthError::bad("invalid_grant", "grant is invalid")
}

pub(in crate::identity) async fn issue(
    call: &Call,
    form: &Form<'_>,
) -> Result<TokenResponse, OAuthError> {
    let client = client_for(call, form, GRANT).await?;
    let hash = TokenHash::of(required(form, "refresh_token")?);
    let store = &call.state.store;
    let (realm, now_ms) = (&call.realm, call.now_ms);
    let old = store.refresh_token(hash).await?.ok_or_else(not_valid)?;
    check(call, client.id(), &old).await?;
    // Narrower for this access token; the grant itself keeps its scopes.
    // A scope that was taken from the client is gone from its old grants too.
    let granted_before = &old.grant.scopes;
    let mut all = granted_before.clone();
    all.retain(|scope| client.scopes.contains(scope));
    if all.is_empty() && !granted_before.is_empty() {
        return Err(not_valid());
    }
    let scopes = granted(form.get("scope"), &all, &all)?;
    let user = store.user(&realm.path, old.grant.user_id).await?;
    let user = user.filter(|user| user.active).ok_or_else(not_valid)?;
    // Should that end the grant, the exchange below finds it gone.
    settle(&call.state, realm, &user).await?;
    let issue = Issue {
        realm,
        client: &client,
        subject: &user.user_name,
        user: Some(user.id),
        scopes: &scopes,
        grant_type: &old.grant.grant_type,
        grant_id: &old.grant.id,
        auth_time: old.grant.auth_time,
        now_ms,
    };
    let (mut response, access) = issue::tokens(&call.state, &issue).await?;
    let (token, new) = issue::refresh_token(realm, &client, old.grant.clone(), now_ms);
    match store
        .rotate_refresh_token(hash, &new, access.as_ref())
        .await?
    {
        Rotation::Done => {
            response.refresh_token = Some(token);
            Ok(response)
        }
        Rotation::Reused => {
            call.state.revoke_grant(&old.grant.id, now_ms).await?;
            warn_of_reuse(&old);
            Err(not_valid())
        }
        Rotation::Gone => Err(not_valid()),
    }
}

async fn check(call: &Call, client_id: &str, old: &StoredRefresh) -> Result<(), OAuthError> {
    if old.grant.client_id != client_id || old.grant.realm != call.realm.path {
        let text = "Token was issued to a different client";
        return Err(OAuthError::bad("invalid_grant", text));
    }
    if old.used {
        call.state.revoke_grant(&old.grant.id, call.now_ms).await?;
        warn_of_reuse(old);
        return Err(not_valid());
    }
    if call.now_ms >= old.expires_ms || call.now_ms >= old.grant.ends_ms {
        return Err(not_valid());
    }
    Ok(())
}

fn warn_of_reuse(old: &StoredRefresh) {
    tracing::warn!(
        client_id = old.grant.client_id,
        user_id = %old.grant.user_id,
        "refresh token used twice: its grant is revoked"
    );
}
