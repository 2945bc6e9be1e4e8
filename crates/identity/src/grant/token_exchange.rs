//! One access token for another (RFC 8693): for fewer scopes, for other
//! audiences, with the name of who acts.
//!
//! The new token is of the grant of the old one: it can't do more, can't live
//! longer, and dies with it. Who is the audience of a token may pass it on to the
//! resources of its own record, and not to those of its realm. Who merely got one for
//! others may narrow it to fewer of them.

use serde_json::{Value, json};

use crate::Call;
use crate::bearer::{self, ValidToken};
use crate::clients::LiveClient;
use crate::dpop;
use crate::error::OAuthError;
use crate::form::Form;
use crate::issue::{self, Context, Issue, RequestClaims, TokenResponse, TokenRestrictions};
use crate::resource;
use crate::token::{client_for, granted};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";

/// Most actors that a token can name, one behind the other.
const ACTORS_MAX: usize = 8;

fn invalid(text: &str) -> OAuthError {
    OAuthError::bad("invalid_request", text)
}

pub(crate) async fn issue(call: &Call, form: &Form<'_>) -> Result<TokenResponse, OAuthError> {
    let client = client_for(call, form, GRANT).await?;
    if client.client.is_public() {
        let text = "Public clients can't exchange tokens.";
        return Err(OAuthError::bad("unauthorized_client", text));
    }
    if form
        .get("requested_token_type")
        .is_some_and(|kind| kind != ACCESS_TOKEN)
    {
        return Err(invalid("requested_token_type is not supported"));
    }
    let bound_to = dpop::binding(call, &client).await?;
    let (subject, act) = subject(call, form, &client, bound_to.as_deref()).await?;
    let audience = audience(form, &client, &subject)?;
    let mut all: Vec<String> = subject.issued.scopes().map(str::to_owned).collect();
    all.retain(|scope| client.scopes.contains(scope));
    let scopes = granted(form.get("scope"), &all, &all)?;
    let name = name_for(&client, &subject);
    let auth_time = subject.issued.claims.get("auth_time");
    let amr = subject.issued.claims.get("amr").and_then(Value::as_array);
    let amr: Vec<String> = amr
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let issue = Issue {
        realm: &call.realm,
        client: &client,
        subject: &name,
        user: subject.user.as_ref().map(|user| user.id),
        scopes: &scopes,
        grant_type: GRANT,
        grant_id: subject.issued.grant_id(),
        // A client's own token may not say it: it is then made anew.
        auth_time: auth_time
            .and_then(Value::as_i64)
            .unwrap_or(call.now_ms.div_euclid(1000)),
        context: Context {
            amr: &amr,
            acr: subject.issued.claims.get("acr").and_then(Value::as_str),
        },
        now_ms: call.now_ms,
        request_claims: RequestClaims::default(),
        restrictions: TokenRestrictions {
            audience: &audience,
            bound_to: bound_to.as_deref(),
            act: act.as_ref(),
            ends_s: Some(subject.issued.ends_s()),
        },
    };
    let (mut response, stored) = issue::access_token(&call.state, &issue).await?;
    issue::record(&call.state, stored).await?;
    response.issued_token_type = Some(ACCESS_TOKEN);
    Ok(response)
}

/// Whom the new token is for. A token that was given for certain resources, and
/// not for the client itself, leads to no others: its grant names them (RFC 8707
/// §2.2), and asking anew would widen it.
fn audience(
    form: &Form<'_>,
    client: &LiveClient,
    subject: &ValidToken,
) -> Result<Vec<String>, OAuthError> {
    if subject.issued.is_for(client) {
        return resource::targets(form, client);
    }
    let granted: Vec<String> = subject.issued.audiences().map(str::to_owned).collect();
    resource::narrowed_targets(form, &granted)
}

/// The token to exchange, and who is to act for its subject.
async fn subject(
    call: &Call,
    form: &Form<'_>,
    client: &LiveClient,
    proven_key: Option<&str>,
) -> Result<(ValidToken, Option<Value>), OAuthError> {
    let subject = token_of(call, form, "subject_token").await?;
    let subject = subject.ok_or_else(|| invalid("Missing parameter, 'subject_token'"))?;
    check_holder(&subject, "subject", client, proven_key)?;
    let actor = token_of(call, form, "actor_token").await?;
    if let Some(actor) = &actor {
        check_holder(actor, "actor", client, proven_key)?;
    }
    let act = acting(client, &subject, actor.as_ref())?;
    Ok((subject, act))
}

/// The access token in this parameter, if it is good and of this realm.
async fn token_of(
    call: &Call,
    form: &Form<'_>,
    name: &'static str,
) -> Result<Option<ValidToken>, OAuthError> {
    let kind = form.get(&format!("{name}_type")).map(str::to_owned);
    let Some(token) = form.get(name) else {
        // The type of what is not there (RFC 8693 §2.1).
        return match kind {
            None => Ok(None),
            Some(_) => Err(invalid(&format!("Missing parameter, '{name}'"))),
        };
    };
    match kind.as_deref() {
        Some(ACCESS_TOKEN | JWT) => {}
        None => return Err(invalid(&format!("Missing parameter, '{name}_type'"))),
        Some(_) => return Err(invalid(&format!("{name}_type is not supported"))),
    }
    let good = bearer::check(&call.state, token, call.now_ms).await?;
    let good = good.filter(|good| good.realm.path == call.realm.path);
    match good {
        Some(good) => Ok(Some(good)),
        None => Err(invalid(&format!("The {name} is not valid"))),
    }
}

/// A token may be exchanged by the client it was given to, or by one that it
/// is for: not by whoever has found it. A bound one is taken from who proves its key
/// (RFC 9449 §4), so never from whom it was shown to.
fn check_holder(
    token: &ValidToken,
    what: &str,
    client: &LiveClient,
    proven_key: Option<&str>,
) -> Result<(), OAuthError> {
    if !token.issued.concerns(client) {
        return Err(invalid(&format!(
            "The {what} token was not issued to or for this client"
        )));
    }
    let bound_to = token.issued.bound_to();
    if bound_to.is_some() && bound_to != proven_key {
        return Err(invalid(&format!(
            "The {what} token is bound to a key that the request does not prove"
        )));
    }
    Ok(())
}

/// What the client calls whoever a token stands for: another one may have other
/// names for its users.
fn name_for(client: &LiveClient, token: &ValidToken) -> String {
    match &token.user {
        Some(user) => client.subject(user).into_owned(),
        None => {
            let name = token.issued.claims.get("sub").and_then(Value::as_str);
            name.unwrap_or_default().to_owned()
        }
    }
}

/// Who acts: the actor, before those that have acted so far (RFC 8693 §4.1).
fn acting(
    client: &LiveClient,
    subject: &ValidToken,
    actor: Option<&ValidToken>,
) -> Result<Option<Value>, OAuthError> {
    let before = subject.issued.claims.get("act");
    let may_act = subject.issued.claims.get("may_act");
    let Some(actor) = actor else {
        return match may_act {
            None => Ok(before.cloned()),
            Some(_) => Err(invalid("The subject token demands an actor")),
        };
    };
    let name = actor.issued.claims.get("sub").cloned().unwrap_or_default();
    if may_act.is_some_and(|may| may.get("sub") != Some(&name)) {
        return Err(invalid("The actor may not act for the subject"));
    }
    let mut act = json!({ "sub": name_for(client, actor) });
    let mut depth = 1;
    let mut link = before;
    while let Some(one) = link {
        depth += 1;
        link = one.get("act");
    }
    if depth > ACTORS_MAX {
        return Err(invalid("Too many actors"));
    }
    if let Some(before) = before {
        act["act"] = before.clone();
    }
    Ok(Some(act))
}
