//! A new access token for an old grant (RFC 6749 §6).
//!
//! Each refresh token is good once. The second use of one means that two hold
//! it: the whole grant is revoked (RFC 9700 §4.14.2). Only within a short time
//! that an operator allows, a retry gets the successor that its first try got.

use crate::Call;
use crate::audit;
use crate::clients::LiveClient;
use crate::dpop;
use crate::error::OAuthError;
use crate::form::Form;
use crate::issue::{self, Context, Issue, RequestClaims, TokenResponse, TokenRestrictions};
use crate::login::settle;
use crate::refresh::RefreshToken;
use crate::resource;
use crate::token::{client_for, granted, required};
use crate::userinfo;
use doorward_core::clock::random_bytes;
use doorward_core::model::audit::{Event, Kind, PendingAudit};
use doorward_core::model::grant::{
    Exchange, Grant, MAX_TOKEN_LIFE_MS, Rotation, StoredAccess, StoredRefresh,
};
use doorward_core::model::user::User;
use serde_json::{Map, Value};

const GRANT: &str = "refresh_token";

fn not_valid() -> OAuthError {
    OAuthError::bad("invalid_grant", "grant is invalid")
}

pub(crate) async fn issue(call: &Call, form: &Form<'_>) -> Result<TokenResponse, OAuthError> {
    let client = client_for(call, form, GRANT).await?;
    let presented = RefreshToken::parse(required(form, "refresh_token")?).ok_or_else(not_valid)?;
    let store = &call.state.store;
    let (realm, now_ms) = (&call.realm, call.now_ms);
    let old = store.refresh_tokens(presented.family()).await?;
    let old = old.ok_or_else(not_valid)?;
    check(call, &client, &old, &presented).await?;
    let due = old.grant.bound_to.is_some() || client.must_prove_possession();
    if due && !call.headers().contains_key("dpop") {
        // The grant is as good as before, and says so (RFC 9449 §5).
        let text = "A DPoP proof is required";
        return Err(OAuthError::bad("invalid_request", text));
    }
    let bound_to = dpop::binding(call, &client).await?;
    if old.grant.bound_to.is_some() && old.grant.bound_to != bound_to {
        return Err(not_valid());
    }
    let audience = resource::narrowed(form, &old.grant.resources)?;
    let scopes = narrowed(form, &client, &old.grant)?;
    let user = store.user(&realm.path, old.grant.user_id).await?;
    let user = user.filter(|user| user.active).ok_or_else(not_valid)?;
    // Should that end the grant, the exchange below finds it gone.
    settle(&call.state, realm, &user).await?;
    let subject = client.subject(&user);
    let id_claims = id_claims(&client, &old.grant, &user);
    let issue = Issue {
        realm,
        client: &client,
        subject: &subject,
        user: Some(user.id),
        scopes: &scopes,
        grant_type: &old.grant.grant_type,
        grant_id: &old.grant.id,
        auth_time: old.grant.auth_time,
        context: Context::of(&old.grant),
        now_ms,
        request_claims: RequestClaims {
            sid: old.grant.sid.as_deref(),
            id_claims: Some(&id_claims),
            userinfo_claims: &old.grant.userinfo_claims,
            ..RequestClaims::default()
        },
        restrictions: TokenRestrictions {
            audience: &audience,
            bound_to: bound_to.as_deref(),
            ..TokenRestrictions::default()
        },
    };
    let (mut response, access) = issue::tokens(&call.state, &issue).await?;
    // A wrong proof or parameter above leaves the token unspent.
    let successor = exchange(call, &client, &old, &presented, access.as_ref()).await?;
    response.refresh_token = successor;
    Ok(response)
}

/// The claims that the first ID token was asked to hold, as they are now (OpenID Connect
/// Core §12.2). What a scope gave that was taken from the client is gone.
fn id_claims(client: &LiveClient, grant: &Grant, user: &User) -> Map<String, Value> {
    let mut names = grant.id_claims.clone();
    names.retain(|name| {
        let scope = userinfo::scope_of(name);
        scope.is_some_and(|scope| client.scopes.iter().any(|one| one == scope))
    });
    userinfo::named(user, &names)
}

/// The scopes of this access token: no more than were granted. The grant keeps
/// its own. A scope that was taken from the client is gone from its old grants.
fn narrowed(
    form: &Form<'_>,
    client: &LiveClient,
    grant: &Grant,
) -> Result<Vec<String>, OAuthError> {
    let mut all = grant.scopes.clone();
    all.retain(|scope| client.scopes.contains(scope));
    if all.is_empty() && !grant.scopes.is_empty() {
        return Err(not_valid());
    }
    granted(form.get("scope"), &all, &all)
}

/// Refuses before anything is signed what the exchange would refuse anyway.
async fn check(
    call: &Call,
    client: &LiveClient,
    old: &StoredRefresh,
    presented: &RefreshToken<'_>,
) -> Result<(), OAuthError> {
    if old.grant.client_id != client.id() || old.grant.realm != call.realm.path {
        let text = "Token was issued to a different client";
        return Err(OAuthError::bad("invalid_grant", text));
    }
    if call.now_ms >= old.expires_ms || call.now_ms >= old.grant.ends_ms {
        return Err(not_valid());
    }
    let hash = presented.hash();
    let in_grace = old.previous.as_ref().is_some_and(|spent| {
        spent.hash == hash && spent.is_in_grace(call.now_ms, grace_ms(call, client))
    });
    if old.current != hash && !in_grace {
        revoke_reused(call, old).await?;
        return Err(not_valid());
    }
    if !call.state.grant_lives(&old.grant, call.now_ms).await? {
        call.state
            .revoke_grant(&old.grant.id, call.now_ms, None)
            .await?;
        return Err(not_valid());
    }
    Ok(())
}

fn grace_ms(call: &Call, client: &LiveClient) -> i64 {
    let own = client.client.metadata.refresh_token_grace;
    let seconds = own.unwrap_or(call.realm.settings.refresh_token_grace);
    i64::from(seconds) * 1000
}

/// Spends the token; the one to use from now on, if that is another.
async fn exchange(
    call: &Call,
    client: &LiveClient,
    old: &StoredRefresh,
    presented: &RefreshToken<'_>,
    access: Option<&StoredAccess>,
) -> Result<Option<String>, OAuthError> {
    let salt = random_bytes::<32>();
    let successor = client
        .rotates(&call.realm)
        .then(|| presented.successor(&salt));
    let new = successor.as_deref().and_then(RefreshToken::parse);
    let wanted = Exchange {
        family: old.family,
        presented: presented.hash(),
        successor: new.map_or(presented.hash(), |new| new.hash()),
        salt,
        expires_ms: issue::refresh_expiry(&call.realm, client, &old.grant, call.now_ms),
        now_ms: call.now_ms,
        grace_ms: grace_ms(call, client),
        revoked_until_ms: call.now_ms.saturating_add(MAX_TOKEN_LIFE_MS),
    };
    let store = &call.state.store;
    let write = async |audit: Option<&PendingAudit>| {
        store.exchange_refresh_token(wanted, access, audit).await
    };
    let gives = |rotation: &Rotation| matches!(rotation, Rotation::Done | Rotation::Again(_));
    let (kind, more) = (Kind::TokenIssue, audit::as_it_is);
    match audit::with_if(&call.state, kind, more, write, gives).await? {
        Rotation::Done => Ok(successor),
        Rotation::Again(salt) => Ok(Some(presented.successor(&salt))),
        Rotation::Reused => {
            revoke_reused(call, old).await?;
            Err(not_valid())
        }
        Rotation::Gone => Err(not_valid()),
    }
}

/// Two hold the token: nobody keeps what it gave.
async fn revoke_reused(call: &Call, old: &StoredRefresh) -> Result<(), OAuthError> {
    audit::because("refresh_token_reuse");
    let told = |event: Event| {
        let event = event.with("grant", old.grant.id.as_str());
        event.with("cause", "refresh_token_reuse")
    };
    let write = async |audit: Option<&PendingAudit>| {
        let grant_id = &old.grant.id;
        call.state.revoke_grant(grant_id, call.now_ms, audit).await
    };
    audit::with(&call.state, Kind::GrantRevoke, told, write).await?;
    doorward_net::telemetry::warn_limited!(
        client_id = old.grant.client_id,
        user_id = %old.grant.user_id,
        "refresh token used twice: its grant is revoked"
    );
    Ok(())
}
