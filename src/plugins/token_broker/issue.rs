//! GenerateAccessToken, RefreshAccessToken and InvalidateToken.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde_json::{Map, Value};

use super::TokenBroker;
use super::broker::Broker;
use super::callout::{Granted, Question};
use super::client::Client;
use super::fault::{Fault, json};
use super::flow::{Ended, Generate, Issue, Refreshing};
use super::records::random_text;
use super::response::TokenResponse;
use super::variable::{EXTERNAL_STATUS, Facts, Variable};
use crate::http::basic::{self, BrokenBasic};
use crate::http::form::{self, Form, FormError};
use crate::model::broker::{Refresh, StoredTokens, TokenFacts};
use crate::model::client::ClientSecret;
use crate::model::grant::TokenHash;

/// Tokens are known as expired for so long after their end: a day.
const KEPT_MS: i64 = 86_400_000;
/// Letters and digits of an access token that is made.
const ACCESS: usize = 28;
/// Letters and digits of a refresh token that is made.
const REFRESH: usize = 32;
/// Longest refresh token that is looked at, in bytes.
const MAX_TOKEN: usize = 16 * 1024;

/// What was issued: the body of the response, and its members as variables.
pub(super) struct Issued {
    pub(super) body: Bytes,
    pub(super) variables: Map<String, Value>,
}

/// Who asks, as far as the form and its headers say.
struct Asker<'a> {
    id: Cow<'a, str>,
    secret: Option<Cow<'a, str>>,
}

/// New tokens, and their texts.
struct New {
    tokens: StoredTokens,
    access: String,
    refresh: Option<String>,
}

impl TokenBroker {
    pub(super) async fn generate(
        &self,
        broker: &Broker,
        generate: &Generate,
        facts: &Facts<'_>,
    ) -> Result<Issued, Fault> {
        let short = generate.issue.short;
        let form = posted(facts, short)?;
        let grant_type = form
            .get("grant_type")
            .ok_or_else(|| Fault::no_grant_type(short))?;
        if !generate.grant_types.iter().any(|one| one == grant_type) {
            return Err(Fault::grant_type(grant_type, short));
        }
        let asker = asker(form, &facts.request.headers, short)?;
        let user = match generate.external {
            true => Some((
                required(form, "username", short)?,
                required(form, "password", short)?,
            )),
            false => None,
        };
        let client = self.client(broker, &asker, facts, short).await?;
        let scopes = client.scopes(form.get("scope").unwrap_or_default());
        let scopes = scopes.ok_or_else(|| Fault::bad_scope(short))?;
        let granted = match (user, &self.provider) {
            (None, _) => {
                // An application without a secret can't be told from others.
                let has = !matches!(client.secret, ClientSecret::None);
                if !has || !client.is_shown_by(asker.secret.as_deref()) {
                    return Err(Fault::unknown_client(short));
                }
                Granted::default()
            }
            (Some(_), None) => return Err(Fault::not_authorized(short)),
            (Some((username, password)), Some(provider)) => {
                let question = Question {
                    username,
                    password,
                    client_id: &asker.id,
                    client_secret: asker.secret.as_deref(),
                    scope: form.get("scope"),
                    client: facts.client,
                };
                let granted = provider.ask(&question, short).await?;
                if granted.set.get(EXTERNAL_STATUS).map(String::as_str) != Some("true") {
                    return Err(Fault::not_authorized(short));
                }
                granted
            }
        };
        let end_user = user.map(|(username, _)| username.to_owned());
        let about = TokenFacts {
            application: client.application.id.clone(),
            grant_type: grant_type.to_owned(),
            scopes,
            end_user: end_user.unwrap_or_default(),
            attributes: generate.issue.attributes.clone(),
            ..TokenFacts::default()
        };
        let new = new_tokens(generate, &granted, facts, &asker.id, about, broker.now_ms())?;
        if generate.stored && !broker.keep(&new.tokens).await.map_err(|e| store(&e))? {
            tracing::warn!("the provider gave a token that is another application's, or revoked");
            return Err(Fault::extraction());
        }
        Ok(issued(facts, &client, &new))
    }

    pub(super) async fn refresh(
        &self,
        broker: &Broker,
        refreshing: &Refreshing,
        facts: &Facts<'_>,
    ) -> Result<Issued, Fault> {
        let short = refreshing.issue.short;
        let form = posted(facts, short)?;
        let grant_type = form
            .get("grant_type")
            .ok_or_else(|| Fault::no_grant_type(short))?;
        if grant_type != "refresh_token" {
            return Err(Fault::grant_type(grant_type, short));
        }
        let presented = required(form, "refresh_token", short)?;
        let asker = asker(form, &facts.request.headers, short)?;
        let client = self.client(broker, &asker, facts, short).await?;
        if !client.is_shown_by(asker.secret.as_deref()) {
            return Err(Fault::unknown_client(short));
        }
        if presented.len() > MAX_TOKEN {
            return Err(Fault::bad_refresh_token(short));
        }
        let hash = TokenHash::of(presented);
        let now_ms = broker.now_ms();
        let old = broker.refreshable(hash).await.map_err(|e| store(&e))?;
        let old = old
            .filter(|old| old.client_id == asker.id && old.refresh_approved && client.gave(old))
            .ok_or_else(|| Fault::bad_refresh_token(short))?;
        if old.refresh_expires_ms <= now_ms {
            return Err(Fault::refresh_token_expired(short));
        }
        let scopes = narrowed(&old.facts.scopes, form.get("scope"));
        let scopes = scopes.ok_or_else(|| Fault::bad_scope(short))?;
        let mut new = refreshed(&old, refreshing, presented, now_ms);
        new.tokens.facts.scopes = scopes;
        let refresh = Refresh {
            presented: hash,
            tokens: new.tokens.clone(),
            now_ms,
        };
        let done = broker.refresh(&old, &refresh).await;
        if !done.map_err(|e| store(&e))? {
            return Err(Fault::bad_refresh_token(short));
        }
        Ok(issued(facts, &client, &new))
    }

    pub(super) async fn invalidate(
        &self,
        broker: &Broker,
        ended: &[Ended],
        facts: &Facts<'_>,
    ) -> Result<(), Fault> {
        let mut found = false;
        for one in ended {
            let Some(token) = facts.value(&one.variable) else {
                continue;
            };
            if token.is_empty() || token.len() > MAX_TOKEN {
                continue;
            }
            let hash = TokenHash::of(&token);
            let revoked = broker.revoke_one(one.which, hash, one.cascade).await;
            found |= revoked.map_err(|e| store(&e))?;
        }
        match found {
            true => Ok(()),
            false => Err(Fault::unknown_token(self.split_codes)),
        }
    }

    /// The application that asks, if it may.
    async fn client(
        &self,
        broker: &Broker,
        asker: &Asker<'_>,
        facts: &Facts<'_>,
        short: bool,
    ) -> Result<Arc<Client>, Fault> {
        let client = broker.client(&asker.id).await.map_err(|e| store(&e))?;
        let client = client.ok_or_else(|| Fault::unknown_client(short))?;
        if !client.is_approved() || !client.is_for(facts.place()) {
            return Err(Fault::client_not_approved(short));
        }
        Ok(client)
    }
}

fn issued(facts: &Facts<'_>, client: &Client, new: &New) -> Issued {
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
fn posted<'a>(facts: &'a Facts<'_>, short: bool) -> Result<&'a Form<'a>, Fault> {
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

fn required<'a>(form: &'a Form<'_>, name: &'static str, short: bool) -> Result<&'a str, Fault> {
    form.get(name).ok_or_else(|| Fault::missing(name, short))
}

/// Who asks: by the form, or by HTTP Basic (RFC 6749 §2.3.1); not by both.
fn asker<'a>(form: &'a Form<'_>, headers: &HeaderMap, short: bool) -> Result<Asker<'a>, Fault> {
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
        (None, Some(id)) => Ok(Asker {
            id: id.into(),
            secret: secret.map(Cow::Borrowed),
        }),
        (Some((named, shown)), id) => {
            if id.is_some_and(|id| id != named) || secret.is_some() {
                let text = "The request is malformed : two clients";
                return Err(Fault::malformed(text, short));
            }
            Ok(Asker {
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
        None => random_text::<ACCESS>(),
        Some(variable) => imported(variable)
            .filter(|token| !token.is_empty())
            .ok_or_else(Fault::extraction)?,
    };
    // What is not asked for by a person can be asked for again.
    let refresh = match &generate.refresh_token {
        _ if !generate.external || !generate.stored => None,
        None => Some(random_text::<REFRESH>()),
        Some(variable) => imported(variable),
    };
    let own = generate.issue.life_ms;
    let life_ms = granted.life_ms.map_or(own, |life| life.min(own));
    let tokens = stored(&generate.issue, life_ms, client_id, about, now_ms);
    let tokens = StoredTokens {
        access: TokenHash::of(&access),
        refresh: refresh.as_deref().map(TokenHash::of),
        ..tokens
    };
    Ok(New {
        tokens: swept(tokens),
        access,
        refresh,
    })
}

/// Tokens of which the texts are not known yet.
fn stored(
    issue: &Issue,
    life_ms: i64,
    client_id: &str,
    about: TokenFacts,
    now_ms: i64,
) -> StoredTokens {
    StoredTokens {
        access: TokenHash([0; 32]),
        access_approved: true,
        expires_ms: now_ms.saturating_add(life_ms),
        refresh: None,
        refresh_approved: true,
        refresh_expires_ms: now_ms.saturating_add(issue.refresh_life_ms),
        swept_ms: 0,
        client_id: client_id.to_owned(),
        facts: TokenFacts {
            issued_ms: now_ms,
            refresh_issued_ms: now_ms,
            ..about
        },
    }
}

/// The same, which are known until nobody asks about them any more.
fn swept(mut tokens: StoredTokens) -> StoredTokens {
    let last = match tokens.refresh {
        Some(_) => tokens.expires_ms.max(tokens.refresh_expires_ms),
        None => tokens.expires_ms,
    };
    tokens.swept_ms = last.saturating_add(KEPT_MS);
    tokens
}

/// The scopes of refreshed tokens that had `held`; `None`: more is wanted.
///
/// Where products have no scopes a wish means nothing, as at the beginning.
fn narrowed(held: &[String], wanted: Option<&str>) -> Option<Vec<String>> {
    let wanted = wanted.unwrap_or_default();
    if held.is_empty() || wanted.trim().is_empty() {
        return Some(held.to_vec());
    }
    let all = wanted.split_ascii_whitespace();
    if !all.clone().all(|scope| held.iter().any(|one| one == scope)) {
        return None;
    }
    let kept = held
        .iter()
        .filter(|one| all.clone().any(|s| s == one.as_str()));
    Some(kept.cloned().collect())
}

/// What takes the place of `old`, whose refresh token is `presented`.
fn refreshed(old: &StoredTokens, refreshing: &Refreshing, presented: &str, now_ms: i64) -> New {
    let access = random_text::<ACCESS>();
    let issue = &refreshing.issue;
    let about = TokenFacts {
        refresh_count: old.facts.refresh_count + 1,
        ..old.facts.clone()
    };
    let mut tokens = stored(issue, issue.life_ms, &old.client_id, about, now_ms);
    tokens.access = TokenHash::of(&access);
    let refresh = if refreshing.reuse {
        tokens.refresh_expires_ms = old.refresh_expires_ms;
        tokens.facts.refresh_issued_ms = old.facts.refresh_issued_ms;
        presented.to_owned()
    } else {
        random_text::<REFRESH>()
    };
    tokens.refresh = Some(TokenHash::of(&refresh));
    New {
        tokens: swept(tokens),
        access,
        refresh: Some(refresh),
    }
}

/// The fault of a store that does not answer, which is logged.
pub(super) fn store(error: &crate::store::StoreError) -> Fault {
    tracing::error!(%error, "the token broker can't work");
    Fault::store()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refresh_narrows_scopes_and_never_widens_them() {
        let held = ["READ", "WRITE"].map(str::to_owned);
        let narrow = |wanted| narrowed(&held, wanted).map(|scopes| scopes.join(" "));
        assert_eq!(narrow(None).as_deref(), Some("READ WRITE"));
        assert_eq!(narrow(Some(" ")).as_deref(), Some("READ WRITE"));
        assert_eq!(narrow(Some("WRITE READ")).as_deref(), Some("READ WRITE"));
        assert_eq!(narrow(Some("WRITE WRITE")).as_deref(), Some("WRITE"));
        assert_eq!(narrow(Some("WRITE admin")), None);
        assert_eq!(narrow(Some("read")), None);
        assert_eq!(narrowed(&[], Some("openid")), Some(Vec::new()));
    }
}
