//! A client on its own behalf (RFC 6749 §4.4).
//!
//! With JWT access tokens nothing is read from the store once the client is in
//! memory, and nothing is ever written.

use crate::Call;
use crate::config::UnknownScope;
use crate::dpop;
use crate::error::OAuthError;
use crate::form::Form;
use crate::issue::{self, Context, Issue, RequestClaims, TokenResponse, TokenRestrictions};
use crate::resource;
use crate::token::{client_for, scopes_for};

const GRANT: &str = "client_credentials";

pub(crate) async fn issue(call: &Call, form: &Form<'_>) -> Result<TokenResponse, OAuthError> {
    let client = client_for(call, form, GRANT).await?;
    if client.client.is_public() {
        let text = "Public clients can't use client credentials grant.";
        return Err(OAuthError::bad("unauthorized_client", text));
    }
    let bound_to = dpop::binding(call, &client).await?;
    let audience = resource::requested(form, &client, &call.realm)?;
    let scopes = scopes_for(call, &client, form.get("scope"), UnknownScope::Refuse)?;
    let issue = Issue {
        realm: &call.realm,
        client: &client,
        subject: client.id(),
        user: None,
        scopes: &scopes,
        grant_type: GRANT,
        grant_id: &issue::handle(),
        auth_time: call.now_ms.div_euclid(1000),
        context: Context::default(),
        now_ms: call.now_ms,
        request_claims: RequestClaims::default(),
        restrictions: TokenRestrictions {
            audience: &audience,
            bound_to: bound_to.as_deref(),
            ..TokenRestrictions::default()
        },
    };
    let (response, stored) = issue::tokens(&call.state, &issue).await?;
    issue::record(&call.state, stored).await?;
    Ok(response)
}
