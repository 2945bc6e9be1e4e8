//! Credentials that the provider turns into tokens at its token endpoint:
//! names with passwords, clients with secrets, refresh tokens.
//!
//! Tokens are remembered by the credentials that they were given for, so that
//! a caller who sends these with every request costs the provider one
//! question a token.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use serde_json::Value;

use super::agent::{Agent, Question, object};
use super::beside::Beside;
use super::client::{Client, basic};
use super::credentials::Credential;
use super::endpoints::Endpoint;
use super::extras::Extras;
use super::fields::Fields;
use super::flight::{Digest, Flights, digest_of};
use super::methods::Method;
use super::refusal::Refusal;
use super::replay::Replay;
use super::told::{Asking, Lifetimes};
use crate::clock::random_bytes;
use crate::http::outbound::Answer;
use crate::model::secret::Secret;
use crate::plugins::ConfigError;

/// For how long the next tokens of a session are there for requests that were
/// under way with the last ones, in milliseconds.
const LATE_MS: i64 = 60_000;
/// Most token responses remembered, about.
const RESPONSES: usize = 16 * 1024;
/// Most memory for them, in bytes, about.
const BYTES: u64 = 32 * 1024 * 1024;

/// Tokens that the provider gave.
#[derive(Clone, Debug)]
pub(super) struct Tokens {
    pub(super) access: Secret,
    pub(super) id: Option<Secret>,
    pub(super) refresh: Option<Secret>,
    /// Granted scopes, where the answer names them.
    pub(super) scope: Option<String>,
    /// When the access token ends, in milliseconds, where the answer tells.
    pub(super) ends_at: Option<i64>,
    /// Headers of the answer that are for the client.
    pub(super) replayed: Vec<(HeaderName, HeaderValue)>,
}

impl Tokens {
    /// About the memory they take, in bytes.
    fn weight(&self) -> u64 {
        let others = [&self.id, &self.refresh].into_iter().flatten();
        let tokens = others.chain([&self.access]).map(|one| one.expose().len());
        let replayed = self.replayed.iter();
        let replayed = replayed.map(|(name, value)| 64 + name.as_str().len() + value.len());
        let scope = self.scope.as_ref().map_or(0, String::len);
        512 + (scope + tokens.chain(replayed).sum::<usize>()) as u64
    }

    /// What came with the access token.
    pub(super) fn beside(&self) -> Beside<'_> {
        Beside {
            id_token: self.id.as_ref().map(Secret::expose),
            refresh_token: self.refresh.as_ref().map(Secret::expose),
            session_id: None,
            scope: self.scope.as_deref(),
            replayed: &self.replayed,
        }
    }
}

/// What is asked for.
#[derive(Debug)]
pub(super) struct Grants {
    scope: Option<String>,
    audience: Vec<String>,
    extras: Extras,
    remember: bool,
    salt: Vec<u8>,
    with_scope: bool,
    leeway_ms: i64,
    replay: Replay,
    pub(super) lifetimes: Lifetimes,
}

impl Grants {
    pub(super) fn new(fields: Fields<'_>) -> Result<Self, ConfigError> {
        let scopes = fields.texts("scopes")?.join(" ");
        let salt = fields.text("cache_tokens_salt")?;
        let leeway = fields.integer("leeway")?.unwrap_or(0);
        Ok(Self {
            scope: Some(scopes).filter(|scope| !scope.is_empty()),
            audience: fields.texts("audience")?,
            extras: Extras::new(fields, "token_post_args", "token_headers")?,
            remember: fields.flag("cache_tokens")?,
            salt: salt.map_or_else(|| random_bytes::<16>().to_vec(), |salt| salt.into()),
            with_scope: fields.flag("token_cache_key_include_scope")?,
            leeway_ms: leeway.saturating_mul(1000),
            replay: Replay::new(fields)?,
            lifetimes: Lifetimes::new(fields)?,
        })
    }
}

/// The ways in which the token endpoint is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grant {
    Password,
    ClientCredentials,
    RefreshToken,
    AuthorizationCode,
}

impl Grant {
    fn method(self) -> Method {
        match self {
            Self::Password => Method::Password,
            Self::ClientCredentials => Method::ClientCredentials,
            Self::RefreshToken => Method::RefreshToken,
            Self::AuthorizationCode => Method::AuthorizationCode,
        }
    }

    fn name(self) -> &'static str {
        self.method().name()
    }
}

/// Asks the token endpoint, once at a time for the same credentials.
pub(super) struct TokenDesk {
    grants: Grants,
    agent: Arc<Agent>,
    held: Arc<Responses>,
    /// Questions of strangers.
    flights: Flights<Arc<Tokens>>,
    /// Questions of users who sign in, or have: no stranger keeps them waiting.
    of_users: Flights<Arc<Tokens>>,
}

/// Tokens by what they were given for, and until when they are there.
type Responses = Cache<Digest, (Arc<Tokens>, i64), Weight, ahash::RandomState>;

fn responses() -> Responses {
    let state = ahash::RandomState::new();
    Cache::with(RESPONSES, BYTES, Weight, state, DefaultLifecycle::default())
}

#[derive(Clone)]
struct Weight;

impl Weighter<Digest, (Arc<Tokens>, i64)> for Weight {
    fn weight(&self, _: &Digest, (tokens, _): &(Arc<Tokens>, i64)) -> u64 {
        tokens.weight()
    }
}

/// Tokens, and what to forget should they turn out to be void.
pub(super) struct Given {
    pub(super) tokens: Arc<Tokens>,
    /// How they were asked for.
    pub(super) method: Method,
    about: Digest,
    /// Whether they were given for an earlier request.
    pub(super) remembered: bool,
}

impl TokenDesk {
    pub(super) fn new(grants: Grants, agent: &Arc<Agent>) -> Self {
        let flights = || Flights::new(grants.lifetimes.refused(), agent.timeout());
        Self {
            flights: flights(),
            of_users: flights(),
            grants,
            agent: Arc::clone(agent),
            held: Arc::new(responses()),
        }
    }

    /// The tokens for a credential, tried as each kind that it may be.
    ///
    /// # Errors
    /// Why there are none: what the last kind came to.
    pub(super) async fn exchange(
        &self,
        credential: &Credential,
        asking: &Asking<'_>,
    ) -> Result<Given, Refusal> {
        match credential {
            Credential::RefreshToken(token) => {
                let form = [("refresh_token", token.expose())];
                self.ask(Grant::RefreshToken, &form, None, asking, None)
                    .await
            }
            Credential::Pair {
                name,
                secret,
                user,
                client,
            } => {
                let mut outcome = Err(Refusal::WrongCredentials);
                if *user {
                    let form = [("username", name.as_str()), ("password", secret.expose())];
                    outcome = self.ask(Grant::Password, &form, None, asking, None).await;
                }
                if *client && matches!(outcome, Err(Refusal::WrongCredentials)) {
                    let caller = Some((name.as_str(), secret));
                    outcome = self
                        .ask(Grant::ClientCredentials, &[], caller, asking, None)
                        .await;
                }
                outcome
            }
        }
    }

    /// The tokens for a code, asked for once however often it comes at the
    /// same time. `form` is what proves that it was meant for the gateway.
    ///
    /// # Errors
    /// Why there are none.
    pub(super) async fn redeem(
        &self,
        form: &[(&str, &str)],
        asking: &Asking<'_>,
    ) -> Result<Arc<Tokens>, Refusal> {
        let given = self
            .ask(Grant::AuthorizationCode, form, None, asking, None)
            .await;
        match given {
            Ok(given) => Ok(given.tokens),
            Err(Refusal::WrongCredentials) => Err(Refusal::CodeRefused),
            Err(refusal) => Err(refusal),
        }
    }

    /// The next tokens of a session: those who come late with the same refresh
    /// token, which is good only once, get the same.
    ///
    /// # Errors
    /// Why there are none.
    pub(super) async fn refresh(
        &self,
        token: &str,
        asking: &Asking<'_>,
    ) -> Result<Arc<Tokens>, Refusal> {
        let form = [("refresh_token", token)];
        let given = self
            .ask(Grant::RefreshToken, &form, None, asking, Some(LATE_MS))
            .await?;
        Ok(given.tokens)
    }

    /// Forgets tokens that are void.
    pub(super) fn forget(&self, given: &Given) {
        self.held.remove(&given.about);
    }

    /// With `late_ms` the answer is there for so long, from before the question
    /// is over on: whoever comes in between must not ask again.
    async fn ask(
        &self,
        grant: Grant,
        form: &[(&str, &str)],
        caller: Option<(&str, &Secret)>,
        asking: &Asking<'_>,
        late_ms: Option<i64>,
    ) -> Result<Given, Refusal> {
        let grants = &self.grants;
        let mut sent = vec![("grant_type".to_owned(), grant.name().to_owned())];
        sent.extend(form.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
        if grant != Grant::AuthorizationCode && grant != Grant::RefreshToken {
            let audience = grants.audience.iter();
            sent.extend(audience.map(|one| ("audience".to_owned(), one.clone())));
        }
        // A code and a refresh token may be good once: whoever comes with one asks
        // for the same, whatever else is sent with it.
        let by_scope = matches!(grant, Grant::Password | Grant::ClientCredentials);
        let once = (!by_scope).then(|| sent.clone());
        sent.extend(grants.extras.parameters(asking.headers, asking.arguments));
        let mut headers = grants.extras.headers(asking.headers);
        let client = match caller {
            None => asking.client.cloned(),
            Some((id, secret)) => {
                self.as_caller(id, secret, asking.client, &mut sent, &mut headers)?;
                None
            }
        };
        // A code and a refresh token bring their scopes with them.
        let scope = grants.scope.clone().filter(|_| by_scope);
        let mut about = match &once {
            Some(form) => self.about(client.as_deref(), form, &HeaderMap::new()),
            None => self.about(client.as_deref(), &sent, &headers),
        };
        let granted = scope.clone().filter(|_| !grants.extras.may_say("scope"));
        sent.extend(scope.map(|scope| ("scope".to_owned(), scope)));
        if grants.with_scope && by_scope {
            about = self.about(client.as_deref(), &sent, &headers);
        }
        if grant == Grant::Password
            && let Some(from) = asking.from
            && self.agent.standing().await.is_some()
        {
            // A provider in this process may let users in from some addresses
            // only: what it gave to one is not for another.
            about = digest_of([&about[..], from.to_string().as_bytes()]);
        }
        let now_ms = self.agent.clock.now_ms();
        let remember = grants.remember && by_scope;
        if let Some((tokens, until)) = self.held.get(&about)
            && now_ms < until
        {
            return Ok(Given {
                tokens,
                method: grant.method(),
                about,
                remembered: true,
            });
        }
        let of_user = grant == Grant::AuthorizationCode || late_ms.is_some();
        let flights = match of_user {
            true => &self.of_users,
            false => &self.flights,
        };
        if let Some(refusal) = flights.refused(&about, now_ms) {
            return Err(refusal);
        }
        let question = Question {
            from: asking.from,
            endpoint: Endpoint::Token,
            client,
            form: sent,
            headers,
        };
        let own_client = caller.is_none();
        let replay = grants.replay.clone();
        let agent = Arc::clone(&self.agent);
        let clock = self.agent.clock.clone();
        let held = Arc::clone(&self.held);
        let asked = move || async move {
            // The last answer may have come between the look and the question: a
            // refresh token must not be shown again.
            let now_ms = agent.clock.now_ms();
            if let Some((tokens, until)) = held.get(&about)
                && now_ms < until
            {
                return Ok(tokens);
            }
            let answer = agent.post(question).await?;
            let now_ms = agent.clock.now_ms();
            let mut tokens = read(&answer, own_client, now_ms)?;
            tokens.replayed = replay.of(grant.name(), &answer.headers);
            // RFC 6749 §5.1: what was asked for, if it is not named.
            tokens.scope = tokens.scope.or(granted);
            let tokens = Arc::new(tokens);
            if let Some(late_ms) = late_ms {
                let until = now_ms.saturating_add(late_ms);
                let until = tokens.ends_at.map_or(until, |end| end.min(until));
                held.insert(about, (Arc::clone(&tokens), until));
            }
            Ok(tokens)
        };
        let tokens = flights.ask(about, asked, move || clock.now_ms()).await?;
        if remember {
            self.remember(about, &tokens);
        }
        Ok(Given {
            tokens,
            method: grant.method(),
            about,
            remembered: false,
        })
    }

    /// Asks as the caller, whose credentials are in the request.
    fn as_caller(
        &self,
        id: &str,
        secret: &Secret,
        own: Option<&Arc<Client>>,
        form: &mut Vec<(String, String)>,
        headers: &mut HeaderMap,
    ) -> Result<(), Refusal> {
        if own.is_some_and(|own| own.posts_secrets()) {
            form.push(("client_id".to_owned(), id.to_owned()));
            form.push(("client_secret".to_owned(), secret.expose().to_owned()));
        } else {
            headers.insert(AUTHORIZATION, basic(id, secret.expose())?);
        }
        Ok(())
    }

    fn about(
        &self,
        client: Option<&Client>,
        form: &[(String, String)],
        headers: &HeaderMap,
    ) -> Digest {
        let client = client.map_or(&b""[..], |client| client.id.as_bytes());
        let form = form.iter().flat_map(|(n, v)| [n.as_bytes(), v.as_bytes()]);
        let headers = headers
            .iter()
            .flat_map(|(n, v)| [n.as_str().as_bytes(), v.as_bytes()]);
        let begins = [self.grants.salt.as_slice(), client].into_iter();
        digest_of(begins.chain(form).chain(headers))
    }

    fn remember(&self, about: Digest, tokens: &Arc<Tokens>) {
        let now_ms = self.agent.clock.now_ms();
        let until = self.grants.lifetimes.until(tokens.ends_at, now_ms);
        let until = until.saturating_sub(self.grants.leeway_ms);
        if until > now_ms {
            self.held.insert(about, (Arc::clone(tokens), until));
        }
    }
}

/// Reads a token response (RFC 6749 §5).
pub(super) fn read(answer: &Answer, own_client: bool, now_ms: i64) -> Result<Tokens, Refusal> {
    let body = object(answer).ok_or(Refusal::ProviderMalformed)?;
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    if answer.status != StatusCode::OK {
        return Err(match text("error") {
            Some("invalid_grant") => Refusal::WrongCredentials,
            Some("invalid_client" | "unauthorized_client") if !own_client => {
                Refusal::WrongCredentials
            }
            Some(error) => {
                let error: String = error.chars().take(64).collect();
                tracing::warn!(error = ?error, "the token endpoint refuses the gateway");
                Refusal::ProviderRefuses
            }
            None => Refusal::ProviderMalformed,
        });
    }
    let bearer = text("token_type").is_none_or(|kind| kind.eq_ignore_ascii_case("bearer"));
    let access = text("access_token").filter(|token| !token.is_empty() && bearer);
    let life = body.get("expires_in").and_then(|life| match life {
        // Some providers write it as a text.
        Value::String(text) => text.parse().ok(),
        other => other.as_i64(),
    });
    Ok(Tokens {
        access: Secret::new(access.ok_or(Refusal::ProviderMalformed)?),
        id: text("id_token").map(Secret::new),
        refresh: text("refresh_token").map(Secret::new),
        scope: text("scope").map(str::to_owned),
        replayed: Vec::new(),
        ends_at: life.map(|life: i64| now_ms.saturating_add(life.saturating_mul(1000))),
    })
}

#[cfg(test)]
mod tests;
