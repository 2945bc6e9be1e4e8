//! Credentials that the provider turns into tokens at its token endpoint:
//! names with passwords, clients with secrets, refresh tokens.
//!
//! Tokens are remembered by the credentials that they were given for, so that
//! a caller who sends these with every request costs the provider one
//! question a token.

mod barred;
mod identity;
mod question;
mod refreshes;
mod tokens;

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use super::credentials::{Credential, Pair};
use super::extras::Extras;
use super::fields::Fields;
use super::introspection::{Lifetimes, RequestContext};
use super::logins::CodeClaim;
use super::methods::Method;
use super::provider_client::ProviderClient;
use super::refusal::Refusal;
use super::replay::Replay;
use super::single_flight::{Digest, SingleFlight};
use doorward_plugin_api::ConfigError;

pub(super) use refreshes::{OfIssuers, Refreshes};
pub(super) use tokens::{Tokens, read};

use barred::{Barred, Password};
use question::{Whose, Wish};

/// For how long the next tokens of a session are there for requests that were
/// under way with the last ones, in milliseconds.
const LATE_MS: i64 = 60_000;
/// Most token responses remembered, about.
const RESPONSES: usize = 16 * 1024;
/// Most memory for them, in bytes, about.
const BYTES: u64 = 32 * 1024 * 1024;

/// What is asked for.
#[derive(Debug)]
pub(super) struct Grants {
    scope: Option<String>,
    audience: Vec<String>,
    extras: Extras,
    remember: bool,
    leeway_ms: i64,
    replay: Replay,
    pub(super) lifetimes: Lifetimes,
}

impl Grants {
    pub(super) fn new(fields: Fields<'_>) -> Result<Self, ConfigError> {
        let scopes = fields.texts("scopes")?.join(" ");
        let leeway = fields.integer("leeway")?.unwrap_or(0);
        Ok(Self {
            scope: Some(scopes).filter(|scope| !scope.is_empty()),
            audience: fields.texts("audience")?,
            extras: Extras::new(fields, "token_post_args", "token_headers")?,
            remember: fields.flag("cache_tokens")?,
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
    provider_client: Arc<ProviderClient>,
    held: Arc<Responses>,
    /// Questions of strangers.
    flights: SingleFlight<Arc<Tokens>>,
    /// Questions of users who sign in: no stranger with credentials keeps them
    /// waiting.
    of_logins: SingleFlight<Arc<Tokens>>,
    /// Questions of users who have, and what became of them.
    of_sessions: Arc<Refreshes>,
    barred: Arc<Barred>,
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
    pub(super) fn new(
        grants: Grants,
        provider_client: &Arc<ProviderClient>,
        of_sessions: Arc<Refreshes>,
    ) -> Self {
        let flights = || SingleFlight::new(grants.lifetimes.refused(), provider_client.timeout());
        Self {
            flights: flights(),
            of_logins: flights(),
            of_sessions,
            barred: Arc::new(Barred::new()),
            grants,
            provider_client: Arc::clone(provider_client),
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
        context: &RequestContext<'_>,
    ) -> Result<Given, Refusal> {
        match credential {
            Credential::RefreshToken(token) => {
                let form = [("refresh_token", token.expose())];
                self.ask(Wish::new(Grant::RefreshToken, &form), context)
                    .await
            }
            Credential::Pair(pair) => self.exchange_pair(pair, context).await,
        }
    }

    async fn exchange_pair(
        &self,
        pair: &Pair,
        context: &RequestContext<'_>,
    ) -> Result<Given, Refusal> {
        let (name, secret) = (pair.name.as_str(), &pair.secret);
        let client = context.client.map(Arc::as_ref);
        let password = pair.client.then(|| Password::new(client, name, secret));
        if pair.user {
            let form = [("username", name), ("password", secret.expose())];
            let wish = Wish {
                password,
                ..Wish::new(Grant::Password, &form)
            };
            let outcome = self.ask(wish, context).await;
            // The provider may not let the gateway ask with passwords.
            let now_ms = self.provider_client.clock.now_ms();
            let barred = password.is_some_and(|password| self.barred.has(&password, now_ms));
            let may_be_client = match &outcome {
                Err(Refusal::WrongCredentials) => pair.client,
                Err(Refusal::ProviderRefuses) => barred,
                _ => false,
            };
            if !may_be_client {
                return outcome;
            }
        }
        let mut outcome = Err(Refusal::WrongCredentials);
        let decoded = pair.decoded.as_ref();
        let decoded = decoded.map(|(name, secret)| (name.as_str(), secret));
        for caller in [decoded, Some((name, secret))].into_iter().flatten() {
            let wish = Wish {
                caller: Some(caller),
                ..Wish::new(Grant::ClientCredentials, &[])
            };
            outcome = self.ask(wish, context).await;
            if !matches!(outcome, Err(Refusal::WrongCredentials)) {
                break;
            }
        }
        outcome
    }

    /// The tokens for a code, asked for once however often it comes at the
    /// same time. `form` is what proves that it was meant for the gateway; `claim`
    /// is held for as long as the question is under way.
    ///
    /// # Errors
    /// Why there are none.
    pub(super) async fn redeem(
        &self,
        form: &[(&str, &str)],
        context: &RequestContext<'_>,
        claim: CodeClaim,
    ) -> Result<Arc<Tokens>, Refusal> {
        let wish = Wish {
            claim: Some(claim),
            ..Wish::new(Grant::AuthorizationCode, form)
        };
        match self.ask(wish, context).await {
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
        context: &RequestContext<'_>,
    ) -> Result<Arc<Tokens>, Refusal> {
        let form = [("refresh_token", token)];
        let wish = Wish {
            late_ms: Some(LATE_MS),
            ..Wish::new(Grant::RefreshToken, &form)
        };
        Ok(self.ask(wish, context).await?.tokens)
    }

    /// Forgets tokens that are void; not those of a session's refresh, which there
    /// is no other way to.
    pub(super) fn forget(&self, given: &Given) {
        self.held.remove(&given.about);
    }

    async fn ask(
        &self,
        mut wish: Wish<'_>,
        context: &RequestContext<'_>,
    ) -> Result<Given, Refusal> {
        let prepared = self.prepare(&wish, context).await?;
        let (about, method) = (prepared.about, wish.grant.method());
        let now_ms = self.provider_client.clock.now_ms();
        if let Some((tokens, until)) = self.held(wish.grant).get(&about)
            && now_ms < until
        {
            return Ok(Given {
                tokens,
                method,
                about,
                remembered: true,
            });
        }
        let barred = |password| self.barred.has(&password, now_ms);
        if wish.password.is_some_and(barred) {
            return Err(Refusal::ProviderRefuses);
        }
        let flights = match wish.whose() {
            Whose::Login => &self.of_logins,
            Whose::Session => &self.of_sessions.flights,
            Whose::Stranger => &self.flights,
        };
        if let Some(refusal) = flights.refused(&about, now_ms) {
            return Err(refusal);
        }
        let remember = self.grants.remember && wish.is_by_scope();
        let (claim, asked) = (wish.claim.take(), self.asked(&wish, prepared));
        let asked = async move {
            match claim {
                Some(claim) => claim.redeem(asked).await,
                None => asked.await,
            }
        };
        let clock = self.provider_client.clock.clone();
        let tokens = flights.ask(about, || asked, move || clock.now_ms()).await?;
        if remember {
            self.remember(about, &tokens);
        }
        Ok(Given {
            tokens,
            method,
            about,
            remembered: false,
        })
    }

    /// Where the tokens of a grant are as long as they are remembered.
    fn held(&self, grant: Grant) -> &Arc<Responses> {
        match grant {
            // Whoever shows it: it may be spent.
            Grant::RefreshToken => &self.of_sessions.late,
            Grant::Password | Grant::ClientCredentials | Grant::AuthorizationCode => &self.held,
        }
    }

    fn remember(&self, about: Digest, tokens: &Arc<Tokens>) {
        let now_ms = self.provider_client.clock.now_ms();
        let until = self.grants.lifetimes.until(tokens.ends_at, now_ms);
        let until = until.saturating_sub(self.grants.leeway_ms);
        if until > now_ms {
            self.held.insert(about, (Arc::clone(tokens), until));
        }
    }
}

#[cfg(test)]
mod tests;
