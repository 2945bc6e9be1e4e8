//! An authorization code for tokens (RFC 6749 §4.1.3, RFC 7636 §4.6).
//!
//! Each code is good once. What fails spends it; the second use of one that
//! gave tokens revokes them (RFC 6749 §4.1.2).

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use subtle::ConstantTimeEq;

use crate::authorize::is_unreserved;
use crate::clients::LiveClient;
use crate::error::OAuthError;
use crate::form::Form;
use crate::issue::{self, Context, Issue, RequestClaims, TokenResponse, TokenRestrictions};
use crate::login::settle;
use crate::token::{client_for, required};
use crate::{Call, audit, dpop, resource};
use doorward_core::model::audit::{Kind, PendingAudit};
use doorward_core::model::authorization::{Challenge, ChallengeMethod, Redemption, StoredCode};
use doorward_core::model::grant::{
    MAX_TOKEN_LIFE_MS, Revocation, StoredAccess, StoredRefresh, TokenHash,
};
use doorward_core::model::user::User;

const GRANT: &str = "authorization_code";

pub(crate) async fn issue(call: &Call, form: &Form<'_>) -> Result<TokenResponse, OAuthError> {
    let client = client_for(call, form, GRANT).await?;
    let hash = TokenHash::of(required(form, "code")?);
    let code = call.state.store.code(hash).await?;
    let code = code.ok_or_else(OAuthError::invalid_grant)?;
    let grant = &code.authorization.grant;
    if grant.client_id != client.id() || grant.realm != call.realm.path {
        return Err(OAuthError::invalid_grant());
    }
    let bound_to = dpop::binding(call, &client).await?;
    let audience = resource::narrowed(form, &grant.resources)?;
    let restrictions = TokenRestrictions {
        audience: &audience,
        bound_to: bound_to.as_deref(),
        ..TokenRestrictions::default()
    };
    let user = match check(call, form, &code, restrictions).await {
        Ok(user) if !code.used => user,
        // Not the client's fault: it may try again.
        Err(fault) if fault.status != StatusCode::BAD_REQUEST => return Err(fault),
        refused => {
            redeem(call, &code, None, None).await?;
            return Err(refused.err().unwrap_or_else(OAuthError::invalid_grant));
        }
    };
    give(call, &client, &code, (&user, restrictions)).await
}

/// Whether the code may be exchanged in this way, and for whom.
async fn check(
    call: &Call,
    form: &Form<'_>,
    code: &StoredCode,
    restrictions: TokenRestrictions<'_>,
) -> Result<User, OAuthError> {
    let refused = OAuthError::invalid_grant;
    if call.now_ms >= code.expires_ms {
        let text = "Authorization code expired.";
        return Err(OAuthError::bad("invalid_grant", text));
    }
    let authorization = &code.authorization;
    let named = authorization.redirect_uri.as_deref();
    if named.is_some() && named != form.get("redirect_uri") {
        return Err(refused());
    }
    let jkt = authorization.dpop_jkt.as_deref();
    if jkt.is_some() && jkt != restrictions.bound_to {
        return Err(refused());
    }
    if !is_proven(authorization.challenge.as_ref(), form.get("code_verifier")) {
        return Err(refused());
    }
    let (realm, store) = (&call.realm, &call.state.store);
    let user = store.user(&realm.path, authorization.grant.user_id).await?;
    let user = user.filter(|user| user.active).ok_or_else(refused)?;
    // Should that end the code, the exchange finds it gone.
    settle(&call.state, realm, &user).await?;
    Ok(user)
}

/// Whether the verifier is the challenge's; without a challenge there must be
/// none, or a code that was asked for without one could be slipped in (RFC 9700
/// §4.8.2).
pub(super) fn is_proven(challenge: Option<&Challenge>, verifier: Option<&str>) -> bool {
    match (challenge, verifier) {
        (None, None) => true,
        (Some(challenge), Some(verifier)) if is_unreserved(verifier) => {
            let made = match challenge.method {
                ChallengeMethod::S256 => {
                    URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()))
                }
                ChallengeMethod::Plain => verifier.to_owned(),
            };
            made.as_bytes().ct_eq(challenge.value.as_bytes()).into()
        }
        _ => false,
    }
}

async fn give(
    call: &Call,
    client: &LiveClient,
    code: &StoredCode,
    (user, restrictions): (&User, TokenRestrictions<'_>),
) -> Result<TokenResponse, OAuthError> {
    let mut grant = code.authorization.grant.clone();
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
        request_claims: RequestClaims {
            nonce: code.authorization.nonce.as_deref(),
            sid: grant.sid.as_deref(),
            id_claims: Some(&code.authorization.id_claims),
            userinfo_claims: &grant.userinfo_claims,
            ..RequestClaims::default()
        },
        restrictions,
    };
    let (mut response, access) = issue::tokens(&call.state, &issue).await?;
    response.nonce.clone_from(&code.authorization.nonce);
    let mut refresh = None;
    if client.gets_refresh_tokens(realm) {
        let (token, stored) = issue::refresh_token(realm, client, grant, now_ms);
        response.refresh_token = Some(token);
        refresh = Some(stored);
    }
    if redeem(call, code, refresh.as_ref(), access.as_ref()).await? {
        Ok(response)
    } else {
        Err(OAuthError::invalid_grant())
    }
}

/// Spends the code, and keeps what it gives; says whether it was still good.
async fn redeem(
    call: &Call,
    code: &StoredCode,
    refresh: Option<&StoredRefresh>,
    access: Option<&StoredAccess>,
) -> Result<bool, OAuthError> {
    let until_ms = call.now_ms.saturating_add(MAX_TOKEN_LIFE_MS);
    let store = &call.state.store;
    let outcome = async |audit: Option<&PendingAudit>| {
        store
            .redeem_code(code.hash, refresh, access, until_ms, audit)
            .await
    };
    let done = |outcome: &Redemption| matches!(outcome, Redemption::Done);
    let (kind, more) = (Kind::TokenIssue, audit::as_it_is);
    match audit::with_if(&call.state, kind, more, outcome, done).await? {
        Redemption::Done => Ok(true),
        Redemption::Gone => Ok(false),
        Redemption::Replayed(grant_id) => {
            let grant = &code.authorization.grant;
            doorward_net::telemetry::warn_limited!(
                client_id = grant.client_id,
                user_id = %grant.user_id,
                "authorization code used twice: its grant is revoked"
            );
            audit::because("code_reuse");
            audit::keep(&call.state, Kind::GrantRevoke, |event| {
                let event = event.with("grant", grant_id.as_str());
                event.with("cause", "code_reuse")
            })
            .await;
            let revoked = Revocation::Grant(grant_id);
            call.state.revocations.add(&revoked, until_ms);
            Ok(false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pkce_downgrade_and_wrong_verifiers_are_refused() {
        // The pair of RFC 7636, appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        let challenge = |method, value: &str| Challenge {
            method,
            value: value.to_owned(),
        };
        let digest = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
        let s256 = challenge(ChallengeMethod::S256, digest);
        let plain = challenge(ChallengeMethod::Plain, verifier);
        assert!(is_proven(Some(&s256), Some(verifier)));
        assert!(is_proven(Some(&plain), Some(verifier)));
        assert!(is_proven(None, None));
        assert!(
            !is_proven(None, Some(verifier)),
            "a verifier out of nowhere"
        );
        assert!(!is_proven(Some(&s256), None));
        assert!(
            !is_proven(Some(&s256), Some(digest)),
            "the challenge itself"
        );
        assert!(!is_proven(Some(&s256), Some(&verifier.to_lowercase())));
        let short = challenge(ChallengeMethod::Plain, "short");
        assert!(!is_proven(Some(&short), Some("short")));
    }
}
