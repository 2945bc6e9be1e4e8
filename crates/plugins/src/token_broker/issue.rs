//! GenerateAccessToken and InvalidateToken.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde_json::{Map, Value};

use super::TokenBroker;
use super::audit_events::RequestAudit;
use super::broker::Broker;
use super::callout::{Granted, Question};
use super::client::Client;
use super::fault::{Fault, json};
use super::flow::{Ended, Generate, Issue};
use super::response::TokenResponse;
use super::secret::check_secret;
use super::variable::{EXTERNAL_STATUS, Facts, Variable};
use doorward_core::clock::random_alphanumeric;
use doorward_core::model::audit::{Kind, PendingAudit};
use doorward_core::model::broker::refresh_token::{self, LENGTH};
use doorward_core::model::broker::{
    RevocationTarget, StoredTokens, TokenFacts, TokenInsertion, local_person, person,
};
use doorward_core::model::client::ClientSecret;
use doorward_core::model::grant::TokenHash;
use doorward_net::http::basic::{self, BrokenBasic};
use doorward_net::http::form::{self, Form, FormError};

/// Tokens are known as expired for so long after their end: a day.
const KEPT_MS: i64 = 86_400_000;
/// Letters and digits of an access token that is made.
pub(super) const ACCESS: usize = 28;
/// Longest refresh token that is looked at, in bytes.
pub(super) const MAX_TOKEN: usize = 16 * 1024;

/// What was issued: the body of the response, and its members as variables.
pub(super) struct Issued {
    pub(super) body: Bytes,
    pub(super) variables: Map<String, Value>,
}

/// Who asks, as far as the form and its headers say.
pub(super) struct ClientCredentials<'a> {
    pub(super) id: Cow<'a, str>,
    pub(super) secret: Option<Cow<'a, str>>,
}

/// New tokens, and their texts.
pub(super) struct New {
    pub(super) tokens: StoredTokens,
    pub(super) access: String,
    pub(super) refresh: Option<String>,
}

/// What an application asks for.
struct GrantRequest<'a> {
    /// Name and password of the user whom it is for.
    user: Option<(&'a str, &'a str)>,
    /// The scopes, as sent.
    scope: Option<&'a str>,
    /// Whether errors have the short form.
    short: bool,
}

impl TokenBroker {
    pub(super) async fn generate(
        &self,
        broker: &Broker,
        generate: &Generate,
        facts: &Facts<'_>,
        audit: &mut RequestAudit<'_>,
    ) -> Result<Issued, Fault> {
        let short = generate.issue.short;
        let form = posted(facts, short)?;
        let grant_type = form
            .get("grant_type")
            .ok_or_else(|| Fault::no_grant_type(short))?;
        if !generate.grant_types.iter().any(|one| one == grant_type) {
            return Err(Fault::grant_type(grant_type, short));
        }
        let credentials = credentials(form, &facts.request.headers, short)?;
        let user = if generate.external {
            Some((
                required(form, "username", short)?,
                required(form, "password", short)?,
            ))
        } else {
            None
        };
        let client = self
            .client(broker, &credentials, facts, audit, short)
            .await?;
        let scopes = client.scopes(form.get("scope").unwrap_or_default());
        let scopes = scopes.ok_or_else(|| Fault::bad_scope(short))?;
        // What is revoked while the provider is asked is revoked for these, too.
        let begun_ms = broker.now_ms();
        let request = GrantRequest {
            user,
            scope: form.get("scope"),
            short,
        };
        let granted = self.granted(broker, &client, &credentials, &request, facts);
        let granted = granted.await?;
        let about = TokenFacts {
            application: client.application.id.clone(),
            grant_type: grant_type.to_owned(),
            scopes,
            begun_ms,
            end_user: user.map(|(name, _)| name.to_owned()).unwrap_or_default(),
            attributes: generate.issue.attributes.clone(),
            origin: granted.origin.clone(),
            ..TokenFacts::default()
        };
        let mut new = new_tokens(
            generate,
            &granted,
            facts,
            &credentials.id,
            about,
            broker.now_ms(),
        )?;
        let event = audit.issue(&new.tokens.facts, granted.user);
        if !generate.stored {
            audit.note(event);
            return Ok(issued(facts, &client, &new));
        }
        let write = async |audit: Option<&PendingAudit>| broker.keep(&new.tokens, audit).await;
        let kept = audit
            .with(event, write, |kept| *kept != TokenInsertion::Neither)
            .await;
        match kept.map_err(|e| store(&e))? {
            TokenInsertion::Both => {}
            TokenInsertion::AccessOnly => new.refresh = None,
            TokenInsertion::Neither => {
                doorward_net::telemetry::warn_limited!(
                    "the provider gave a token that is another application's, or revoked"
                );
                return Err(Fault::extraction());
            }
        }
        Ok(issued(facts, &client, &new))
    }

    /// What the provider grants to the user of `request`; without one, what the
    /// application gets that shows its secret.
    async fn granted(
        &self,
        broker: &Broker,
        client: &Client,
        credentials: &ClientCredentials<'_>,
        request: &GrantRequest<'_>,
        facts: &Facts<'_>,
    ) -> Result<Granted, Fault> {
        let &GrantRequest { user, scope, short } = request;
        match (user, &self.provider) {
            (None, _) => {
                // An application without a secret can't be told from others.
                let has = !matches!(client.secret, ClientSecret::None);
                if !has {
                    return Err(Fault::unknown_client(short));
                }
                check_secret(broker, client, credentials, facts, short).await?;
                Ok(Granted::default())
            }
            (Some(_), None) => Err(Fault::not_authorized(short)),
            (Some((username, password)), Some(provider)) => {
                let question = Question {
                    username,
                    password,
                    client_id: &credentials.id,
                    client_secret: credentials.secret.as_deref(),
                    scope,
                    client: facts.client,
                };
                let granted = provider.ask(&question, short).await?;
                if granted.set.get(EXTERNAL_STATUS).map(String::as_str) != Some("true") {
                    return Err(Fault::not_authorized(short));
                }
                Ok(granted)
            }
        }
    }

    pub(super) async fn invalidate(
        &self,
        broker: &Broker,
        ended: &[Ended],
        facts: &Facts<'_>,
        audit: &mut RequestAudit<'_>,
    ) -> Result<(), Fault> {
        let mut found = false;
        for one in ended {
            let Some(token) = facts.value(&one.variable) else {
                continue;
            };
            if token.is_empty() || token.len() > MAX_TOKEN {
                continue;
            }
            let target = RevocationTarget::token(one.which, &token);
            let write = async |audit: Option<&PendingAudit>| {
                broker.revoke_one(&target, one.cascade, audit).await
            };
            let event = audit.revoke(Kind::TokenRevoke, "client");
            let revoked = audit.with(event, write, Option::is_some).await;
            found |= revoked.map_err(|e| store(&e))?.is_some();
        }
        if found {
            Ok(())
        } else {
            Err(Fault::unknown_token(self.split_codes))
        }
    }

    /// The application that asks, if it may.
    pub(super) async fn client(
        &self,
        broker: &Broker,
        credentials: &ClientCredentials<'_>,
        facts: &Facts<'_>,
        audit: &mut RequestAudit<'_>,
        short: bool,
    ) -> Result<Arc<Client>, Fault> {
        let client = broker
            .client(&credentials.id)
            .await
            .map_err(|e| store(&e))?;
        let client = client.ok_or_else(|| Fault::unknown_client(short))?;
        audit.of_client(&credentials.id);
        if !client.is_approved() || !client.is_for(facts.place()) {
            return Err(Fault::client_not_approved(short));
        }
        Ok(client)
    }
}

pub(super) fn issued(facts: &Facts<'_>, client: &Client, new: &New) -> Issued {
    let refresh = new.refresh.as_deref();
    let tokens = &new.tokens;
    let response = TokenResponse::new(tokens, &new.access, refresh, client, facts.organization);
    let variables = match serde_json::to_value(&response) {
        Ok(Value::Object(members)) => members,
        _ => Map::new(),
    };
    Issued {
        body: json(&response),
        variables,
    }
}

/// The form that was posted.
pub(super) fn posted<'a>(facts: &'a Facts<'_>, short: bool) -> Result<&'a Form<'a>, Fault> {
    if let Some(form) = facts.form {
        return Ok(form);
    }
    if !form::is_form(&facts.request.headers) {
        let text = "The request is malformed : application/x-www-form-urlencoded is expected";
        return Err(Fault::malformed(text, short));
    }
    let text = match Form::parse_each_once(facts.body.unwrap_or_default()) {
        Ok(_) => "The request is malformed",
        Err(FormError::Encoding) => "The request is malformed : form encoding",
        Err(FormError::TooMany) => "The request is malformed : too many parameters",
        Err(FormError::Repeated(_)) => "The request is malformed : repeated parameter",
    };
    Err(Fault::malformed(text, short))
}

pub(super) fn required<'a>(
    form: &'a Form<'_>,
    name: &'static str,
    short: bool,
) -> Result<&'a str, Fault> {
    form.get(name).ok_or_else(|| Fault::missing(name, short))
}

/// Who asks: by the form, or by HTTP Basic (RFC 6749 §2.3.1); not by both.
pub(super) fn credentials<'a>(
    form: &'a Form<'_>,
    headers: &HeaderMap,
    short: bool,
) -> Result<ClientCredentials<'a>, Fault> {
    let id = form.get("client_id");
    let secret = form.get("client_secret");
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let basic = match (fields.next(), fields.next()) {
        (None, _) => None,
        (Some(field), None) => match basic::parse(field) {
            Ok((name, secret)) if !name.is_empty() => Some((name, secret)),
            Err(BrokenBasic::Scheme) => None,
            _ => return Err(Fault::unknown_client(short)),
        },
        (Some(_), Some(_)) => return Err(Fault::unknown_client(short)),
    };
    match (basic, id) {
        (None, None) => Err(Fault::no_client(short)),
        (None, Some(id)) => Ok(ClientCredentials {
            id: id.into(),
            secret: secret.map(Cow::Borrowed),
        }),
        (Some((named, shown)), id) => {
            if id.is_some_and(|id| id != named) || secret.is_some() {
                let text = "The request is malformed : two clients";
                return Err(Fault::malformed(text, short));
            }
            Ok(ClientCredentials {
                id: named.into(),
                secret: Some(shown.into()),
            })
        }
    }
}

/// New tokens with what the provider granted.
fn new_tokens(
    generate: &Generate,
    granted: &Granted,
    facts: &Facts<'_>,
    client_id: &str,
    about: TokenFacts,
    now_ms: i64,
) -> Result<New, Fault> {
    let imported = |variable: &Variable| match variable {
        Variable::Flow(name) => granted.set.get(name).cloned(),
        other => facts.value(other).map(Cow::into_owned),
    };
    let access = match &generate.access_token {
        None => random_alphanumeric::<ACCESS>(),
        Some(variable) => imported(variable)
            .filter(|token| !token.is_empty())
            .ok_or_else(Fault::extraction)?,
    };
    // What is not asked for by a person can be asked for again.
    let refresh = match &generate.refresh_token {
        _ if !generate.external || !generate.stored => None,
        None => Some(random_alphanumeric::<LENGTH>()),
        Some(variable) => imported(variable),
    };
    let own = generate.issue.life_ms;
    let life_ms = granted.life_ms.map_or(own, |life| life.min(own));
    let tokens = stored(&generate.issue, life_ms, client_id, about, now_ms);
    // What a provider made names no family, whatever it looks like.
    let made = refresh
        .as_deref()
        .filter(|_| generate.refresh_token.is_none());
    let family = made.and_then(refresh_token::family_of);
    let end_user = &tokens.facts.end_user;
    let tokens = StoredTokens {
        access: TokenHash::of(&access),
        refresh: refresh.as_deref().map(TokenHash::of),
        family: family.map(refresh_token::family),
        person: match granted.user {
            Some(user) => Some(local_person(user)),
            None => (!end_user.is_empty()).then(|| person(end_user)),
        },
        ..tokens
    };
    Ok(New {
        tokens: swept(tokens),
        access,
        refresh,
    })
}

/// Tokens of which the texts are not known yet.
pub(super) fn stored(
    issue: &Issue,
    life_ms: i64,
    client_id: &str,
    about: TokenFacts,
    now_ms: i64,
) -> StoredTokens {
    // A first one lives as long as it is told to, however long that took.
    let since_ms = match about.refresh_count {
        0 => now_ms,
        _ => about.begun_ms,
    };
    StoredTokens {
        access: TokenHash([0; 32]),
        access_approved: true,
        expires_ms: now_ms.saturating_add(life_ms),
        refresh: None,
        family: None,
        refresh_approved: true,
        refresh_expires_ms: issue.refresh_end(since_ms, now_ms),
        swept_ms: 0,
        client_id: client_id.to_owned(),
        person: None,
        ended_ms: None,
        facts: TokenFacts {
            issued_ms: now_ms,
            refresh_issued_ms: now_ms,
            ..about
        },
    }
}

/// The same, which are known until nobody asks about them any more.
pub(super) fn swept(mut tokens: StoredTokens) -> StoredTokens {
    let last = match tokens.refresh {
        Some(_) => tokens.expires_ms.max(tokens.refresh_expires_ms),
        None => tokens.expires_ms,
    };
    tokens.swept_ms = last.saturating_add(KEPT_MS);
    tokens
}

/// The fault of a store that does not answer, which is logged.
pub(super) fn store(error: &doorward_store::StoreError) -> Fault {
    tracing::error!(%error, "the token broker can't work");
    Fault::store()
}
