//! Tokens that are exchanged for others before they count (RFC 8693): those of
//! other issuers, those that lack what the upstream needs, those that have more
//! than it should get.
//!
//! Whatever is exchanged is as good as the provider says: the new token is
//! judged as if the client had shown it, and it alone reaches the upstream.

mod config;

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use serde_json::{Map, Value};

use crate::Providers;
use crate::authorize::rules::is_access_token;
use crate::decide::refusal::Refusal;
use crate::provider::client::{EndpointRequest, ProviderClient, object};
use crate::provider::endpoints::Endpoint;
use crate::provider::introspection::{Lifetimes, RequestContext, request_digest};
use crate::provider::signature;
use crate::provider::single_flight::{Digest, SingleFlight};
use crate::provider::token_endpoint::{self, Tokens};
use crate::provider::{Provider, ProviderMetadata};
use doorward_core::clock::Clock;
use doorward_core::jose::claims::{check_times, same_issuer};
use doorward_core::jose::verify::{TOKEN_MAX, Unverified, VerifyError};
use doorward_net::http::outbound::Answer;
use doorward_plugin_api::Parts;

use config::Subject;

pub(crate) use config::TokenExchangeConfig;

const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
/// Most tokens remembered, about.
const TOKENS: usize = 16 * 1024;
/// Most memory for them, in bytes, about.
const BYTES: u64 = 32 * 1024 * 1024;

/// Exchanges tokens, one question a token at a time, and remembers.
pub(crate) struct TokenExchange {
    config: TokenExchangeConfig,
    provider_client: Arc<ProviderClient>,
    /// Of [`TokenExchangeConfig::subjects`] those whose tokens are verified.
    keys: Vec<Option<Arc<Provider>>>,
    cache: Arc<ExchangeCache>,
    flights: SingleFlight<Arc<Tokens>>,
}

/// The answers of before.
struct ExchangeCache {
    held: CachedTokens,
    clock: Clock,
    /// Whether there are any.
    on: bool,
    lifetimes: Lifetimes,
    /// In seconds.
    leeway: i64,
}

#[derive(Clone)]
struct CachedToken {
    tokens: Arc<Tokens>,
    until: i64,
    /// What was revoked when it was given, at a provider in this process.
    version: Option<u64>,
}

#[derive(Clone)]
struct Weight;

impl Weighter<Digest, CachedToken> for Weight {
    fn weight(&self, _: &Digest, held: &CachedToken) -> u64 {
        256 + held.tokens.weight()
    }
}

/// Tokens by the question to which they are the answer.
type CachedTokens = Cache<Digest, CachedToken, Weight, ahash::RandomState>;

fn answers() -> CachedTokens {
    let state = ahash::RandomState::new();
    Cache::with(TOKENS, BYTES, Weight, state, DefaultLifecycle::default())
}

/// What is to be done about a token.
pub(crate) enum ExchangeDecision {
    /// It counts as it is.
    NotNeeded,
    /// It was exchanged before.
    Cached(ExchangedToken),
    /// The provider has to be asked.
    Needed,
}

/// A token that was given for another.
pub(crate) struct ExchangedToken {
    pub(crate) tokens: Arc<Tokens>,
    /// Whether it was given for an earlier request.
    pub(crate) remembered: bool,
    about: Digest,
}

/// Why a token is exchanged.
enum Reason<'a> {
    /// It is of this issuer, at this place of the list.
    Subject(&'a Subject, usize),
    /// Every token is.
    Always,
}

impl TokenExchange {
    pub(crate) fn new(
        config: TokenExchangeConfig,
        provider_client: &Arc<ProviderClient>,
        parts: &Parts,
    ) -> Self {
        let provider = |subject: &Subject| {
            let config = subject.keys.clone()?;
            Some(Providers::of(parts).provider(config, parts))
        };
        Self {
            keys: (config.subjects.iter().flatten()).map(provider).collect(),
            flights: SingleFlight::new(config.lifetimes.refused(), provider_client.timeout()),
            cache: Arc::new(ExchangeCache {
                held: answers(),
                clock: provider_client.clock.clone(),
                on: config.remember,
                lifetimes: config.lifetimes,
                leeway: config.leeway,
            }),
            config,
            provider_client: Arc::clone(provider_client),
        }
    }

    /// What is to be done about `token`, by what is known at once.
    pub(crate) fn decide(
        &self,
        token: &str,
        context: &RequestContext<'_>,
        metadata: Option<&ProviderMetadata>,
    ) -> ExchangeDecision {
        let Some(metadata) = metadata else {
            return ExchangeDecision::Needed;
        };
        let claims = Unverified::parse(token).and_then(|parsed| parsed.claims_of_anyone());
        if self.reason(claims.as_ref().ok(), metadata).is_none() {
            return ExchangeDecision::NotNeeded;
        }
        let (form, headers) = self.request_parameters(token, context);
        let about = request_digest(context.client.map(Arc::as_ref), &form, &headers);
        self.cache
            .get(about, metadata)
            .map_or(ExchangeDecision::Needed, ExchangeDecision::Cached)
    }

    /// The token that is given for `token`; `None`: it counts as it is.
    ///
    /// # Errors
    /// Why it can't be exchanged.
    pub(crate) async fn exchange(
        &self,
        token: &str,
        context: &RequestContext<'_>,
    ) -> Result<Option<ExchangedToken>, Refusal> {
        if token.len() > TOKEN_MAX {
            return Err(Refusal::TokenTooLong);
        }
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Refusal::MalformedToken);
        }
        let metadata = self.provider_client.metadata().await?;
        let parsed = Unverified::parse(token).ok();
        let claims = parsed.as_ref().and_then(|it| it.claims_of_anyone().ok());
        let Some(reason) = self.reason(claims.as_ref(), &metadata) else {
            return Ok(None);
        };
        let (form, headers) = self.request_parameters(token, context);
        let about = request_digest(context.client.map(Arc::as_ref), &form, &headers);
        if let Some(exchanged) = self.cache.get(about, &metadata) {
            return Ok(Some(exchanged));
        }
        let now_ms = self.provider_client.clock.now_ms();
        if let Some(refusal) = self.flights.refused(&about, now_ms) {
            return Err(refusal);
        }
        let mut ends_at = None;
        if let Some(parsed) = &parsed {
            let end = self.verify(parsed, &reason, &metadata).await?;
            ends_at = end.map(|end| end.saturating_mul(1000));
        }
        let question = EndpointRequest {
            from: context.from,
            endpoint: Endpoint::TokenExchange,
            client: context.client.cloned(),
            form,
            headers,
        };
        let (provider_client, clock) = (
            Arc::clone(&self.provider_client),
            self.provider_client.clock.clone(),
        );
        let cache = Arc::clone(&self.cache);
        let asked = move || async move {
            // The last answer may have come between the look and the question.
            if let Some(exchanged) = cache.get(about, &metadata) {
                return Ok(exchanged.tokens);
            }
            // From before the question: what is revoked meanwhile is asked about
            // again.
            let version = version(&metadata);
            let answer = provider_client.post(question).await?;
            let tokens = read(&answer, provider_client.clock.now_ms()).map(Arc::new)?;
            cache.insert(about, &tokens, ends_at, version);
            Ok(tokens)
        };
        let tokens = self.flights.ask(about, asked, move || clock.now_ms());
        let tokens = tokens.await?;
        Ok(Some(ExchangedToken {
            tokens,
            remembered: false,
            about,
        }))
    }

    /// Forgets a token that is void.
    pub(crate) fn forget(&self, exchanged: &ExchangedToken) {
        self.cache.held.remove(&exchanged.about);
    }

    /// Why a token with these claims is exchanged, if it is. Tokens without
    /// claims that can be read are of the provider, or of nobody.
    fn reason(
        &self,
        claims: Option<&Map<String, Value>>,
        metadata: &ProviderMetadata,
    ) -> Option<Reason<'_>> {
        let issuer = claims.and_then(|claims| claims.get("iss")?.as_str());
        let Some(subjects) = &self.config.subjects else {
            let own = issuer.is_none_or(|issuer| same_issuer(issuer, &metadata.issuer));
            return own.then_some(Reason::Always);
        };
        let (claims, issuer) = (claims?, issuer?);
        let mut all = subjects.iter().enumerate();
        let (place, subject) = all.find(|(_, subject)| subject.matches(issuer))?;
        let other = !same_issuer(issuer, &metadata.issuer);
        let exchanged = other || subject.conditions.are_met(claims);
        exchanged.then_some(Reason::Subject(subject, place))
    }

    /// Checks what can be checked here: not every bad token is a question to
    /// the provider. Gives the second in which the token ends.
    async fn verify(
        &self,
        parsed: &Unverified<'_>,
        reason: &Reason<'_>,
        metadata: &ProviderMetadata,
    ) -> Result<Option<i64>, Refusal> {
        let claims = parsed.claims_of_anyone()?;
        if !is_access_token(parsed.typ().as_deref(), &claims, false) {
            return Err(Refusal::WrongType);
        }
        let now = self.provider_client.clock.now_secs();
        let end = check_times(&claims, now, self.config.leeway)?;
        let own = match reason {
            Reason::Always => true,
            Reason::Subject(subject, _) => subject.matches(&metadata.issuer),
        };
        match reason {
            _ if own && self.config.verify => {
                let look = |metadata: &ProviderMetadata| signature::claims(parsed, metadata, &[]);
                self.provider_client.with_keys(look).await?;
            }
            Reason::Subject(_, place) => {
                if let Some(Some(provider)) = self.keys.get(*place) {
                    self.verify_foreign(parsed, provider).await?;
                }
            }
            Reason::Always => {}
        }
        Ok(Some(end))
    }

    async fn verify_foreign(
        &self,
        parsed: &Unverified<'_>,
        provider: &Arc<Provider>,
    ) -> Result<(), Refusal> {
        let mut last = false;
        loop {
            let metadata = provider.metadata_or_fetch().await;
            let metadata = metadata.ok_or_else(|| provider.unavailable())?;
            match parsed.verify(&metadata.keys) {
                Err(VerifyError::UnknownKey) if !last => {
                    last = !provider
                        .wait_for_newer(self.provider_client.clock.now_ms())
                        .await;
                }
                outcome => return Ok(outcome.map(drop)?),
            }
        }
    }

    /// What the provider is asked (RFC 8693 §2.1).
    fn request_parameters(
        &self,
        token: &str,
        context: &RequestContext<'_>,
    ) -> (Vec<(String, String)>, HeaderMap) {
        let mut form: Vec<(String, String)> = [
            ("grant_type", GRANT),
            ("subject_token", token),
            ("subject_token_type", ACCESS_TOKEN),
            ("requested_token_type", ACCESS_TOKEN),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let audience = self.config.audience.iter();
        form.extend(audience.map(|one| ("audience".to_owned(), one.clone())));
        let scope = self.config.scope.iter();
        form.extend(scope.map(|scope| ("scope".to_owned(), scope.clone())));
        let extras = &self.config.extras;
        let form = extras.join(form, context.headers, context.arguments);
        (form, extras.headers(context.headers))
    }
}

impl ExchangeCache {
    /// The token shown may have been revoked, not only the one given for it.
    fn get(&self, about: Digest, metadata: &ProviderMetadata) -> Option<ExchangedToken> {
        let held = self.held.get(&about)?;
        let live = self.clock.now_ms() < held.until;
        (live && held.version == version(metadata)).then(|| ExchangedToken {
            tokens: held.tokens,
            remembered: true,
            about,
        })
    }

    /// No longer than either of the two tokens lives. `version` is that of the
    /// provider before it was asked.
    fn insert(
        &self,
        about: Digest,
        tokens: &Arc<Tokens>,
        subject_ends: Option<i64>,
        version: Option<u64>,
    ) {
        if !self.on {
            return;
        }
        let now_ms = self.clock.now_ms();
        let until = self.lifetimes.until(tokens.ends_at, now_ms);
        let until = until.saturating_sub(self.leeway.saturating_mul(1000));
        let until = subject_ends.map_or(until, |end| end.min(until));
        if until > now_ms {
            let tokens = Arc::clone(tokens);
            let held = CachedToken {
                tokens,
                until,
                version,
            };
            self.held.insert(about, held);
        }
    }
}

/// Another one, when something was revoked at a provider in this process.
fn version(metadata: &ProviderMetadata) -> Option<u64> {
    metadata
        .token_status
        .as_ref()
        .map(|token_status| token_status.version())
}

/// Reads the answer (RFC 8693 §2.2).
fn read(answer: &Answer, now_ms: i64) -> Result<Tokens, Refusal> {
    if answer.status != StatusCode::OK {
        let body = object(answer).ok_or(Refusal::ProviderMalformed)?;
        match body.get("error").and_then(Value::as_str) {
            // §2.2.2: also of a subject token that is not good.
            Some("invalid_request" | "invalid_grant" | "access_denied") => {
                return Err(Refusal::ExchangeRefused);
            }
            Some("invalid_target" | "invalid_scope") => return Err(Refusal::ExchangeBeyond),
            _ => {}
        }
    }
    token_endpoint::read(answer, true, now_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::single_flight::digest_of;
    use doorward_core::model::secret::Secret;

    #[test]
    fn a_flood_of_long_answers_stays_within_the_bound() {
        let held = answers();
        for n in 0_u32..2_000 {
            let tokens = Tokens {
                access: Secret::new("t"),
                id: Some(Secret::new("i".repeat(30_000))),
                refresh: Some(Secret::new("r".repeat(30_000))),
                scope: None,
                ends_at: None,
                replayed: Vec::new(),
                caller: None,
                identity: Default::default(),
            };
            let answer = CachedToken {
                tokens: Arc::new(tokens),
                until: i64::MAX,
                version: None,
            };
            held.insert(digest_of([&n.to_be_bytes()[..]]), answer);
        }
        let count = held.len() as u64;
        assert!(count * 60_000 <= BYTES + BYTES / 8, "{count}");
    }
}
