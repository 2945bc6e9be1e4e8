//! Giving the client what it asked for, now that its user agreed.

use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::authorization_response::{AuthorizationError, RequestError};
use super::request::Request;
use crate::context::Methods;
use crate::issue::{self, Context, Issue, RequestClaims, TokenRestrictions};
use crate::{Call, audit};
use doorward_core::clock::random_bytes;
use doorward_core::model::audit::{Detail, Event, Kind, PendingAudit};
use doorward_core::model::authorization::{Authorization, StoredCode};
use doorward_core::model::grant::{Grant, StoredSession, TokenHash};
use doorward_core::model::user::User;

/// Makes code and tokens, and sends them to the client.
pub(super) async fn finish(
    call: &Call,
    request: &Request,
    session: &StoredSession,
    user: &User,
) -> Result<Response, RequestError> {
    let response_types = request.response_types;
    let grant = grant(call, request, session, user);
    let state = &call.state;
    let mut fields: Vec<(&'static str, String)> = Vec::new();
    let mut code = None;
    if response_types.code {
        let text = URL_SAFE_NO_PAD.encode(random_bytes::<32>());
        let stored = stored_code(call, request, user, &text, grant.clone());
        let with_details = |event: Event| {
            let scopes = grant.scopes.iter().map(String::as_str);
            let event = event.with("scope", scopes.collect::<Detail>());
            event.with("grant", grant.id.as_str())
        };
        let write =
            async |audit: Option<&PendingAudit>| state.store.insert_code(&stored, audit).await;
        if !audit::with_if(state, Kind::CodeIssue, with_details, write, |kept| *kept).await? {
            return Err(signed_out(request));
        }
        fields.push(("code", text.clone()));
        code = Some(text);
    }
    if !response_types.code && !state.store.begin_grant(&grant, call.now_ms).await? {
        return Err(signed_out(request));
    }
    // Without an access token nobody else would tell what the scopes promise.
    let alone = !response_types.code && !response_types.token;
    let id_claims = request
        .claims
        .for_id_token(user, alone.then_some(request.scopes.as_slice()));
    let subject = request.client.subject(user);
    let issue = Issue {
        realm: &call.realm,
        client: &request.client,
        subject: &subject,
        user: Some(user.id),
        scopes: &grant.scopes,
        grant_type: &grant.grant_type,
        grant_id: &grant.id,
        auth_time: grant.auth_time,
        context: Context::of(&grant),
        now_ms: call.now_ms,
        request_claims: RequestClaims {
            nonce: request.nonce.as_deref(),
            sid: grant.sid.as_deref(),
            code: code.as_deref(),
            state: request.target.state.as_deref(),
            id_claims: Some(&id_claims),
            userinfo_claims: &grant.userinfo_claims,
        },
        restrictions: TokenRestrictions {
            audience: &grant.resources,
            ..TokenRestrictions::default()
        },
    };
    let mut access_token = None;
    if response_types.token {
        let (response, stored) = issue::access_token(state, &issue).await?;
        if stored.is_none() {
            audit::note(state, Kind::TokenIssue, audit::as_it_is);
        }
        issue::record(state, stored).await?;
        fields.push(("access_token", response.access_token.clone()));
        fields.push(("token_type", response.token_type.to_owned()));
        fields.push(("expires_in", response.expires_in.to_string()));
        access_token = Some(response.access_token);
    }
    if response_types.id_token {
        let token = issue::id_token(state, &issue, access_token.as_deref()).await?;
        fields.push(("id_token", token));
    }
    let proprietary = request.client.has_proprietary_claims(&call.realm);
    // Beside an access token the scope may have to be said (RFC 6749 §4.2.2).
    if proprietary || response_types.token {
        fields.push(("scope", grant.scopes.join(" ")));
    }
    if proprietary && !response_types.id_token {
        fields.push(("client_id", request.client.id().to_owned()));
    }
    Ok(request.target.answer(call, fields))
}

/// The session has ended just now.
fn signed_out(request: &Request) -> RequestError {
    let error = AuthorizationError::new("login_required", "The user has to sign in");
    RequestError::Redirect(Box::new(request.target.clone()), error)
}

fn grant(call: &Call, request: &Request, session: &StoredSession, user: &User) -> Grant {
    let grant_type = if request.response_types.code {
        "authorization_code"
    } else {
        "implicit"
    };
    let methods = Methods::from(session.amr.as_slice());
    let acr = request
        .demand
        .achieved_class(&call.realm.settings, &methods);
    Grant {
        id: issue::handle(),
        realm: call.realm.path.clone(),
        client_id: request.client.id().to_owned(),
        user_id: user.id,
        scopes: request.scopes.clone(),
        grant_type: grant_type.to_owned(),
        auth_time: session.auth_ms.div_euclid(1000),
        ends_ms: issue::grant_end(&call.realm, &request.client, call.now_ms),
        sid: Some(session.sid.clone()),
        userinfo_claims: request.claims.for_userinfo(),
        id_claims: request.claims.of_user_for_id_token(),
        resources: request.resources.clone(),
        bound_to: None,
        amr: session.amr.clone(),
        acr: Some(acr.to_owned()),
    }
}

fn stored_code(
    call: &Call,
    request: &Request,
    user: &User,
    code: &str,
    grant: Grant,
) -> StoredCode {
    let named = request
        .named_uri
        .then(|| request.target.redirect_uri.clone());
    let life_ms = i64::from(request.client.code_life(&call.realm)) * 1000;
    StoredCode {
        hash: TokenHash::of(code),
        authorization: Authorization {
            grant,
            redirect_uri: named,
            challenge: request.challenge.clone(),
            nonce: request.nonce.clone(),
            id_claims: request.claims.for_id_token(user, None),
            dpop_jkt: request.dpop_jkt.clone(),
        },
        expires_ms: call.now_ms + life_ms,
        used: false,
    }
}
