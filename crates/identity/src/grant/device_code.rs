//! A device code for tokens, once its user has agreed (RFC 8628 §3.4).

use crate::clients::LiveClient;
use crate::device::{EARLIER_GRANT, GRANT};
use crate::error::OAuthError;
use crate::form::Form;
use crate::grant::authorization_code::is_proven;
use crate::issue::{self, Context, Issue, RequestClaims, TokenResponse, TokenRestrictions};
use crate::login::settle;
use crate::token::{client_for, required};
use crate::{Call, audit, dpop, resource};
use doorward_core::model::audit::{Kind, PendingAudit};
use doorward_core::model::device::{StoredDevice, Verdict};
use doorward_core::model::grant::{Grant, TokenHash};
use doorward_core::model::user::User;

pub(crate) async fn issue(call: &Call, form: &Form<'_>) -> Result<TokenResponse, OAuthError> {
    let client = client_for(call, form, GRANT).await?;
    let hash = TokenHash::of(device_code(form)?);
    let device = call.state.store.device(hash).await?;
    let own =
        |device: &StoredDevice| device.client_id == client.id() && device.realm == call.realm.path;
    let device = device.filter(own).ok_or_else(OAuthError::invalid_grant)?;
    let grant = decided(call, &device).await?;
    if !is_proven(device.request.challenge.as_ref(), form.get("code_verifier")) {
        return Err(OAuthError::invalid_grant());
    }
    let bound_to = dpop::binding(call, &client).await?;
    let audience = resource::narrowed(form, &grant.resources)?;
    let restrictions = TokenRestrictions {
        audience: &audience,
        bound_to: bound_to.as_deref(),
        ..TokenRestrictions::default()
    };
    let user = user(call, &grant).await?;
    give(call, &client, (hash, grant), (&user, restrictions)).await
}

/// The code of the device. Drafts of RFC 8628, whose name of the grant came
/// before, had it in `code`.
fn device_code<'f>(form: &'f Form<'_>) -> Result<&'f str, OAuthError> {
    let earlier = form.get("grant_type") == Some(EARLIER_GRANT);
    match form.get("code").filter(|_| earlier) {
        None => required(form, "device_code"),
        Some(code) if form.get("device_code").is_none_or(|other| other == code) => Ok(code),
        Some(_) => {
            let text = "The parameters 'code' and 'device_code' differ";
            Err(OAuthError::bad("invalid_request", text))
        }
    }
}

/// The grant, or what the device is told while there is none (RFC 8628 §3.5).
async fn decided(call: &Call, device: &StoredDevice) -> Result<Grant, OAuthError> {
    let told = |error, text: &str| Err(OAuthError::bad(error, text));
    if call.now_ms >= device.expires_ms {
        return told("expired_token", "The device code has expired.");
    }
    let interval_s = call.realm.settings.device_polling_interval;
    match &device.verdict {
        Verdict::Approved(grant) => Ok(Grant::clone(grant)),
        Verdict::Denied => told("access_denied", "The user did not agree."),
        Verdict::Pending => {
            let store = &call.state.store;
            let polled = store.poll_device(device.hash, interval_s, call.now_ms);
            if polled.await? {
                told("slow_down", "Polled too soon: wait five seconds longer.")
            } else {
                told("authorization_pending", "The user has not decided yet.")
            }
        }
    }
}

async fn user(call: &Call, grant: &Grant) -> Result<User, OAuthError> {
    let (realm, store) = (&call.realm, &call.state.store);
    let user = store.user(&realm.path, grant.user_id).await?;
    let user = user.filter(|user| user.active);
    let user = user.ok_or_else(OAuthError::invalid_grant)?;
    // Should that end the grant, the exchange finds it gone.
    settle(&call.state, realm, &user).await?;
    Ok(user)
}

async fn give(
    call: &Call,
    client: &LiveClient,
    (hash, mut grant): (TokenHash, Grant),
    (user, restrictions): (&User, TokenRestrictions<'_>),
) -> Result<TokenResponse, OAuthError> {
    // Other clients prove who they are; their keys may change.
    let bound_to = restrictions.bound_to.filter(|_| client.client.is_public());
    grant.bound_to = bound_to.map(str::to_owned);
    // A scope that was taken from the client meanwhile is not given.
    grant.scopes.retain(|scope| client.scopes.contains(scope));
    let (realm, now_ms) = (&call.realm, call.now_ms);
    let subject = client.subject(user);
    let issue = Issue {
        realm,
        client,
        subject: &subject,
        user: Some(user.id),
        scopes: &grant.scopes,
        grant_type: GRANT,
        grant_id: &grant.id,
        auth_time: grant.auth_time,
        context: Context::of(&grant),
        now_ms,
        request_claims: RequestClaims::default(),
        restrictions,
    };
    let (mut response, access) = issue::tokens(&call.state, &issue).await?;
    let mut refresh = None;
    if client.gets_refresh_tokens(realm) {
        let (token, stored) = issue::refresh_token(realm, client, grant, now_ms);
        response.refresh_token = Some(token);
        refresh = Some(stored);
    }
    let store = &call.state.store;
    let write = async |audit: Option<&PendingAudit>| {
        let (refresh, access) = (refresh.as_ref(), access.as_ref());
        store.redeem_device(hash, refresh, access, audit).await
    };
    let (kind, more) = (Kind::TokenIssue, audit::as_it_is);
    if audit::with_if(&call.state, kind, more, write, |given| *given).await? {
        Ok(response)
    } else {
        Err(OAuthError::invalid_grant())
    }
}
