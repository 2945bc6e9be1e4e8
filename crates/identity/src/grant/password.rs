//! A user's name and password, for clients that list the grant (RFC 6749 §4.3).

use crate::Call;
use crate::audit;
use crate::clients::LiveClient;
use crate::config::UnknownScope;
use crate::context::{Methods, SEVERAL, strongest};
use crate::dpop;
use crate::error::OAuthError;
use crate::factors::{self, FactorCheck};
use crate::form::Form;
use crate::issue::{self, Context, Issue, RequestClaims, TokenResponse, TokenRestrictions};
use crate::login::{LoginError, login, still_stands};
use crate::token::{client_for, required, scopes_for};
use crate::{resource, sign_in};
use doorward_core::model::audit::{Kind, PendingAudit};
use doorward_core::model::grant::Grant;
use doorward_core::model::user::User;
use doorward_core::model::user::name_place::{NamePlace, SignInName};

const GRANT: &str = "password";

pub(crate) async fn issue(call: &Call, form: &Form<'_>) -> Result<TokenResponse, OAuthError> {
    let client = client_for(call, form, GRANT).await?;
    check_chain(call, form)?;
    let name = required(form, NamePlace::Username.name())?;
    let name = NamePlace::Username.says(name);
    let password = required(form, "password")?;
    let scopes = scopes_for(call, &client, form.get("scope"), UnknownScope::Refuse)?;
    let audience = resource::requested(form, &client, &call.realm)?;
    let user = sign_in(call, &name, password).await?;
    let methods = second_factor(call, form, &client, &user).await?;
    // Guesses of passwords leave no proofs to remember.
    let bound_to = dpop::binding(call, &client).await?;
    let (realm, now_ms) = (&call.realm, call.now_ms);
    let grant = Grant {
        id: issue::handle(),
        realm: realm.path.clone(),
        client_id: client.id().to_owned(),
        user_id: user.id,
        scopes,
        grant_type: GRANT.to_owned(),
        auth_time: now_ms.div_euclid(1000),
        ends_ms: issue::grant_end(realm, &client, now_ms),
        sid: None,
        userinfo_claims: Vec::new(),
        id_claims: Vec::new(),
        resources: audience,
        // Other clients prove who they are; their keys may change.
        bound_to: bound_to.clone().filter(|_| client.client.is_public()),
        amr: methods.words().to_vec(),
        acr: Some(strongest(&realm.settings, &methods).to_owned()),
    };
    let subject = client.subject(&user);
    let issue = Issue {
        realm,
        client: &client,
        subject: &subject,
        user: Some(user.id),
        scopes: &grant.scopes,
        grant_type: GRANT,
        grant_id: &grant.id,
        auth_time: grant.auth_time,
        context: Context::of(&grant),
        now_ms,
        request_claims: RequestClaims::default(),
        restrictions: TokenRestrictions {
            audience: &grant.resources,
            bound_to: bound_to.as_deref(),
            ..TokenRestrictions::default()
        },
    };
    let grant_id = grant.id.clone();
    let (mut response, access) = issue::tokens(&call.state, &issue).await?;
    let mut refresh = None;
    if realm.settings.issue_refresh_token {
        let (token, stored) = issue::refresh_token(realm, &client, grant, now_ms);
        response.refresh_token = Some(token);
        refresh = Some(stored);
    }
    if refresh.is_some() || access.is_some() {
        let store = &call.state.store;
        let write = async |audit: Option<&PendingAudit>| {
            let (refresh, access) = (refresh.as_ref(), access.as_ref());
            store.record_tokens(refresh, access, audit).await
        };
        audit::with(&call.state, Kind::TokenIssue, audit::as_it_is, write).await?;
        if !still_stands(&call.state, realm, &user).await? {
            call.state.revoke_grant(&grant_id, now_ms, None).await?;
            return Err(OAuthError::invalid_grant());
        }
    }
    Ok(response)
}

/// Refuses a way to sign in (`auth_chain`) that the realm does not have, also
/// one that the address names: what asks for a stronger one must not get less.
fn check_chain(call: &Call, form: &Form<'_>) -> Result<(), OAuthError> {
    let query = call.parts.uri.query().unwrap_or_default();
    let query = Form::parse(query.as_bytes());
    let query = query.map_err(|error| OAuthError::bad("invalid_request", error.to_string()))?;
    let mut services = [form, &query]
        .into_iter()
        .filter_map(|one| one.get("auth_chain"));
    if services.all(|name| call.realm.has_login_service(name)) {
        Ok(())
    } else {
        Err(OAuthError::bad("invalid_request", "Unknown auth_chain"))
    }
}

/// The methods of the sign-in: the password and, of users who need a second
/// factor, the code in the field `otp`. Without it they are refused like those
/// with a wrong password.
async fn second_factor(
    call: &Call,
    form: &Form<'_>,
    client: &LiveClient,
    user: &User,
) -> Result<Methods, OAuthError> {
    let mut methods = Methods::password();
    let of_client = client.client.metadata.require_second_factor == Some(true);
    let code = form.get("otp");
    // A code that is sent is checked, whether or not it is needed.
    if code.is_none()
        && !of_client
        && !sign_in::requires_second_factor(call, user, &methods).await?
    {
        return Ok(methods);
    }
    let code = code.ok_or_else(OAuthError::invalid_grant)?;
    match factors::check_code(call, user, code).await? {
        FactorCheck::Right(shown) => {
            methods.add(shown.words.into_iter().chain([SEVERAL]));
            Ok(methods)
        }
        FactorCheck::Wrong | FactorCheck::Locked => Err(OAuthError::invalid_grant()),
    }
}

/// The user of this name and password: one answer to all who are none, so that
/// nobody learns who exists.
async fn sign_in(call: &Call, name: &SignInName, password: &str) -> Result<User, OAuthError> {
    let user = login(call, name, password);
    user.await.map_err(|error| match error {
        LoginError::Failed
        | LoginError::Locked
        | LoginError::Confined
        | LoginError::Deactivated => OAuthError::invalid_grant(),
        LoginError::Fault(fault) => fault.into(),
    })
}
