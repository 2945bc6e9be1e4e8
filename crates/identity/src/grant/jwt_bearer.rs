//! A signed statement of an issuer that the realm trusts, or of the client
//! about itself (RFC 7523 §2.1).

use serde_json::{Map, Value};

use crate::Call;
use crate::client_auth::{ASSERTION_LIFE_MAX, assertion_identity, is_assertion, is_for_us};
use crate::clients::LiveClient;
use crate::config::UnknownScope;
use crate::dpop;
use crate::error::OAuthError;
use crate::form::Form;
use crate::issue::{self, Context, Issue, RequestClaims, TokenResponse, TokenRestrictions};
use crate::login::is_confined;
use crate::resource;
use crate::token::{client_for, required, scopes_for};
use doorward_core::jose::claims::{CLOCK_SKEW, check_times};
use doorward_core::jose::verify::Unverified;
use doorward_core::model::user::User;
use doorward_net::http::outbound::ChosenBy;

const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

fn refused(text: &str) -> OAuthError {
    OAuthError::bad("invalid_grant", text)
}

/// What every failure but of time and audience is answered with.
fn not_valid() -> OAuthError {
    refused("JWT is not valid")
}

pub(crate) async fn issue(call: &Call, form: &Form<'_>) -> Result<TokenResponse, OAuthError> {
    let client = client_for(call, form, GRANT).await?;
    let assertion = required(form, "assertion")?;
    let bound_to = dpop::binding(call, &client).await?;
    let audience = resource::requested(form, &client, &call.realm)?;
    let scopes = scopes_for(call, &client, form.get("scope"), UnknownScope::Refuse)?;
    let user = subject(call, &client, assertion).await?;
    let subject = user.as_ref().map(|user| client.subject(user));
    let issue = Issue {
        realm: &call.realm,
        client: &client,
        subject: subject.as_deref().unwrap_or(client.id()),
        user: user.as_ref().map(|user| user.id),
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
    let (response, stored) = issue::access_token(&call.state, &issue).await?;
    issue::record(&call.state, stored).await?;
    Ok(response)
}

/// The user whom the assertion is about; `None`: the client itself.
async fn subject(call: &Call, client: &LiveClient, text: &str) -> Result<Option<User>, OAuthError> {
    let token = Unverified::parse(text).ok().filter(is_assertion);
    let token = token.ok_or_else(not_valid)?;
    let unproven = token.claims_of_anyone().map_err(|_| not_valid())?;
    let issuer = unproven.get("iss").and_then(Value::as_str);
    let issuer = issuer.ok_or_else(not_valid)?;
    let keys = &call.state.client_keys;
    let own = issuer == client.id();
    let pinned = client.client.metadata.token_endpoint_auth_signing_alg;
    let used = token.algorithm().as_sign_alg();
    if own && (pinned.is_some_and(|alg| used != alg) || !client.may_sign_by(used)) {
        return Err(not_valid());
    }
    let verified = if own {
        keys.verify(client, &token, call.now_ms).await
    } else {
        let trusted = call.realm.trusted(issuer).ok_or_else(not_valid)?;
        let uri = trusted.jwks_uri.as_deref();
        let uri = uri.map(|uri| (ChosenBy::Operator, uri));
        keys.verify_with(trusted.keys.as_ref(), uri, &token, call.now_ms)
            .await
    };
    let claims = verified.map_err(|_| not_valid())?;
    let ends_s = check(call, &claims)?;
    let member = |name: &str| claims.get(name).and_then(Value::as_str);
    let subject = member("sub").ok_or_else(not_valid)?;
    let user = match own {
        // Nobody but an issuer that is trusted speaks for users.
        true if subject == client.id() => None,
        true => return Err(not_valid()),
        false => {
            let user = call.state.store.user_by_name(&call.realm.path, subject);
            let user = user.await?.filter(|user| user.active);
            // Whoever speaks for the administrator speaks from their addresses.
            let user = user.filter(|user| !is_confined(call, &user.user_name));
            Some(user.ok_or_else(not_valid)?)
        }
    };
    let id = assertion_identity(call, issuer, text, &claims);
    let until_ms = ends_s.saturating_mul(1000);
    if call.state.store.remember(id, until_ms, call.now_ms).await? {
        Ok(user)
    } else {
        Err(not_valid())
    }
}

/// When the assertion ends, if it is for us and of now.
fn check(call: &Call, claims: &Map<String, Value>) -> Result<i64, OAuthError> {
    let now = call.now_ms.div_euclid(1000);
    let ends_s = check_times(claims, now, CLOCK_SKEW).map_err(|_| refused("JWT has expired"))?;
    if ends_s > now.saturating_add(ASSERTION_LIFE_MAX + CLOCK_SKEW) {
        return Err(not_valid());
    }
    if !is_for_us(call, claims.get("aud")) {
        return Err(refused("Audience validation failed"));
    }
    Ok(ends_s)
}
