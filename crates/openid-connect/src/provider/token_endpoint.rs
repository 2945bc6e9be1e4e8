//! Credentials that the provider turns into tokens at its token endpoint:
//! names with passwords, clients with secrets, refresh tokens.
//!
//! Tokens are remembered by the credentials that they were given for, so that
//! a caller who sends these with every request costs the provider one
//! question a token.

pub(crate) mod id_token_identity;
mod password_refusals;
mod refreshes;
mod token_request;
mod tokens;

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use crate::config::fields::Fields;
use crate::config::methods::Method;
use crate::credentials::{Credential, Pair};
use crate::decide::refusal::Refusal;
use crate::headers::replay::Replay;
use crate::login::CodeClaim;
use crate::provider::client::ProviderClient;
use crate::provider::extras::Extras;
use crate::provider::introspection::{Lifetimes, RequestContext};
use crate::provider::single_flight::{Digest, SingleFlight};
use doorward_plugin_api::ConfigError;

pub(crate) use refreshes::{Refreshes, RefreshesByIssuer};
pub(crate) use tokens::{Tokens, read};

use password_refusals::{Password, PasswordRefusals};
use token_request::{Requester, TokenRequest};

/// For how long the next tokens of a session are there for requests that were
/// under way with the last ones, in milliseconds.
const LATE_MS: i64 = 60_000;
/// Most token responses remembered, about.
const RESPONSES: usize = 16 * 1024;
/// Most memory for them, in bytes, about.
const BYTES: u64 = 32 * 1024 * 1024;

/// What is asked for.
#[derive(Debug)]
pub(crate) struct GrantConfig {
    scope: Option<String>,
    audience: Vec<String>,
    extras: Extras,
    remember: bool,
    leeway_ms: i64,
    replay: Replay,
    pub(crate) lifetimes: Lifetimes,
}

impl GrantConfig {
    pub(crate) fn new(fields: &Fields) -> Result<Self, ConfigError> {
        let scopes = fields.provider.scopes.join(" ");
        Ok(Self {
            scope: Some(scopes).filter(|scope| !scope.is_empty()),
            audience: fields.client.audience.to_vec(),
            extras: Extras::new(&fields.arguments.of_tokens())?,
            remember: fields.cache.cache_tokens,
            leeway_ms: fields.checks.leeway.0.saturating_mul(1000),
            replay: Replay::new(fields)?,
            lifetimes: Lifetimes::new(fields),
        })
    }
}

/// The ways in which the token endpoint is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantType {
    Password,
    ClientCredentials,
    RefreshToken,
    AuthorizationCode,
}

impl GrantType {
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
pub(crate) struct TokenClient {
    grants: GrantConfig,
    provider_client: Arc<ProviderClient>,
    cache: Arc<GrantCache>,
    /// Questions of strangers.
    flights: SingleFlight<Arc<Tokens>>,
    /// Questions of users who sign in: no stranger with credentials keeps them
    /// waiting.
    login_flights: SingleFlight<Arc<Tokens>>,
    /// Questions of users who have, and what became of them.
    session_refreshes: Arc<Refreshes>,
    refusals: Arc<PasswordRefusals>,
}

/// Tokens by what they were given for, and until when they are there.
type GrantCache = Cache<Digest, (Arc<Tokens>, i64), Weight, ahash::RandomState>;

fn grant_cache() -> GrantCache {
    let state = ahash::RandomState::new();
    Cache::with(RESPONSES, BYTES, Weight, state, DefaultLifecycle::default())
}

#[derive(Clone)]
pub(crate) struct Weight;

impl Weighter<Digest, (Arc<Tokens>, i64)> for Weight {
    fn weight(&self, _: &Digest, (tokens, _): &(Arc<Tokens>, i64)) -> u64 {
        tokens.weight()
    }
}

/// Tokens, and what to forget should they turn out to be void.
pub(crate) struct TokenGrant {
    pub(crate) tokens: Arc<Tokens>,
    /// How they were asked for.
    pub(crate) method: Method,
    about: Digest,
    /// Whether they were given for an earlier request.
    pub(crate) remembered: bool,
}

impl TokenClient {
    pub(crate) fn new(
        grants: GrantConfig,
        provider_client: &Arc<ProviderClient>,
        session_refreshes: Arc<Refreshes>,
    ) -> Self {
        let flights = || SingleFlight::new(grants.lifetimes.refused(), provider_client.timeout());
        Self {
            flights: flights(),
            login_flights: flights(),
            session_refreshes,
            refusals: Arc::new(PasswordRefusals::new()),
            grants,
            provider_client: Arc::clone(provider_client),
            cache: Arc::new(grant_cache()),
        }
    }

    /// The tokens for a credential, tried as each kind that it may be.
    ///
    /// # Errors
    /// Why there are none: what the last kind came to.
    pub(crate) async fn exchange(
        &self,
        credential: &Credential,
        context: &RequestContext<'_>,
    ) -> Result<TokenGrant, Refusal> {
        match credential {
            Credential::RefreshToken(token) => {
                let form = [("refresh_token", token.expose())];
                self.request_tokens(TokenRequest::new(GrantType::RefreshToken, &form), context)
                    .await
            }
            Credential::Pair(pair) => self.exchange_pair(pair, context).await,
        }
    }

    async fn exchange_pair(
        &self,
        pair: &Pair,
        context: &RequestContext<'_>,
    ) -> Result<TokenGrant, Refusal> {
        let (name, secret) = (pair.name.as_str(), &pair.secret);
        let client = context.client.map(Arc::as_ref);
        let password = pair.client.then(|| Password::new(client, name, secret));
        if pair.user {
            let form = [("username", name), ("password", secret.expose())];
            let request = TokenRequest {
                password,
                ..TokenRequest::new(GrantType::Password, &form)
            };
            let outcome = self.request_tokens(request, context).await;
            // The provider may not let the gateway ask with passwords.
            let now_ms = self.provider_client.clock.now_ms();
            let refusals = password.is_some_and(|password| self.refusals.has(&password, now_ms));
            let may_be_client = match &outcome {
                Err(Refusal::WrongCredentials) => pair.client,
                Err(Refusal::ProviderRefuses) => refusals,
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
            let request = TokenRequest {
                caller: Some(caller),
                ..TokenRequest::new(GrantType::ClientCredentials, &[])
            };
            outcome = self.request_tokens(request, context).await;
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
    pub(crate) async fn redeem(
        &self,
        form: &[(&str, &str)],
        context: &RequestContext<'_>,
        claim: CodeClaim,
    ) -> Result<Arc<Tokens>, Refusal> {
        let request = TokenRequest {
            claim: Some(claim),
            ..TokenRequest::new(GrantType::AuthorizationCode, form)
        };
        match self.request_tokens(request, context).await {
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
    pub(crate) async fn refresh(
        &self,
        token: &str,
        context: &RequestContext<'_>,
    ) -> Result<Arc<Tokens>, Refusal> {
        let form = [("refresh_token", token)];
        let request = TokenRequest {
            late_ms: Some(LATE_MS),
            ..TokenRequest::new(GrantType::RefreshToken, &form)
        };
        Ok(self.request_tokens(request, context).await?.tokens)
    }

    /// Forgets tokens that are void; not those of a session's refresh, which there
    /// is no other way to.
    pub(crate) fn forget(&self, given: &TokenGrant) {
        self.cache.remove(&given.about);
    }

    async fn request_tokens(
        &self,
        mut request: TokenRequest<'_>,
        context: &RequestContext<'_>,
    ) -> Result<TokenGrant, Refusal> {
        let prepared_request = self.prepare(&request, context).await?;
        let (about, method) = (prepared_request.about, request.grant.method());
        let now_ms = self.provider_client.clock.now_ms();
        if let Some((tokens, until)) = self.cache_of(request.grant).get(&about)
            && now_ms < until
        {
            return Ok(TokenGrant {
                tokens,
                method,
                about,
                remembered: true,
            });
        }
        let refusals = |password| self.refusals.has(&password, now_ms);
        if request.password.is_some_and(refusals) {
            return Err(Refusal::ProviderRefuses);
        }
        let flights = match request.requester() {
            Requester::Login => &self.login_flights,
            Requester::Session => &self.session_refreshes.flights,
            Requester::Stranger => &self.flights,
        };
        if let Some(refusal) = flights.refused(&about, now_ms) {
            return Err(refusal);
        }
        let remember = self.grants.remember && request.is_by_scope();
        let (claim, post) = (
            request.claim.take(),
            self.post_request(&request, prepared_request),
        );
        let post = async move {
            match claim {
                Some(claim) => claim.redeem(post).await,
                None => post.await,
            }
        };
        let clock = self.provider_client.clock.clone();
        let tokens = flights.ask(about, || post, move || clock.now_ms()).await?;
        if remember {
            self.remember(about, &tokens);
        }
        Ok(TokenGrant {
            tokens,
            method,
            about,
            remembered: false,
        })
    }

    /// Where the tokens of a grant are as long as they are remembered.
    fn cache_of(&self, grant: GrantType) -> &Arc<GrantCache> {
        match grant {
            // Whoever shows it: it may be spent.
            GrantType::RefreshToken => &self.session_refreshes.late,
            GrantType::Password | GrantType::ClientCredentials | GrantType::AuthorizationCode => {
                &self.cache
            }
        }
    }

    fn remember(&self, about: Digest, tokens: &Arc<Tokens>) {
        let now_ms = self.provider_client.clock.now_ms();
        let until = self.grants.lifetimes.until(tokens.ends_at, now_ms);
        let until = until.saturating_sub(self.grants.leeway_ms);
        if until > now_ms {
            self.cache.insert(about, (Arc::clone(tokens), until));
        }
    }
}

#[cfg(test)]
mod tests;
