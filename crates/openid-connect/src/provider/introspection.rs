//! Tokens of which the gateway can't read anything: what the provider says of
//! them, at its introspection endpoint (RFC 7662) or at userinfo (OpenID
//! Connect Core §5.3).

pub(crate) mod responses;

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use crate::authorize::rules::Rules;
use crate::config::fields::Fields;
use crate::config::fields::types::Seconds;
use crate::config::methods::{Method, Methods};
use crate::credentials::arguments::Arguments;
use crate::decide::refusal::Refusal;
use crate::provider::client::{EndpointRequest, ProviderClient, accept};
use crate::provider::client_auth::Client;
use crate::provider::endpoints::Endpoint;
use crate::provider::extras::Extras;
use crate::provider::revocation::{RevocationStatus, Status};
use crate::provider::single_flight::{Digest, REFUSED_MS, SingleFlight, digest_of};
use crate::provider::token_cache::{ProviderResponses, VerifiedToken};
use doorward_core::jose::verify::TOKEN_MAX;
use doorward_net::telemetry::{Counter, Metrics};
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::config::FieldWord;

/// Most answers remembered, about.
const RESPONSES: usize = 16 * 1024;
/// Most memory for them, in bytes, about.
const BYTES: u64 = 32 * 1024 * 1024;

/// What is asked, and for how long the answers are believed.
#[derive(Debug)]
pub(crate) struct IntrospectionConfig {
    introspection: Option<IntrospectionEndpoint>,
    userinfo: Option<UserinfoEndpoint>,
    pub(crate) lifetimes: Lifetimes,
    rules: Arc<Rules>,
    /// Whether whole answers are kept, for headers that tell them.
    keeps_responses: bool,
}

#[derive(Debug)]
struct IntrospectionEndpoint {
    /// Also of tokens that the gateway can read.
    introspects_all: bool,
    parameter: String,
    hint: Option<String>,
    accept: String,
    check_active: bool,
    remember: bool,
    extras: Extras,
}

#[derive(Debug)]
struct UserinfoEndpoint {
    accept: String,
    remember: bool,
    extras: Extras,
}

/// For how long answers are believed, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetimes {
    /// What does not tell its end.
    unknown: i64,
    least: i64,
    most: i64,
    /// A no.
    refused: i64,
}

impl Lifetimes {
    pub(crate) fn new(fields: &Fields) -> Self {
        let ms = |seconds: Seconds| seconds.0.saturating_mul(1000);
        let most = fields
            .lifetimes
            .cache_ttl_max
            .map(ms)
            .filter(|most| *most > 0);
        Self {
            unknown: ms(fields.cache.cache_ttl),
            least: fields.lifetimes.cache_ttl_min.map_or(0, ms),
            most: most.unwrap_or(i64::MAX),
            refused: fields.lifetimes.cache_ttl_neg.map_or(REFUSED_MS, ms),
        }
    }

    /// The same, save for what does not tell its end: so many milliseconds.
    pub(crate) fn of_unknown(self, unknown: i64) -> Self {
        Self { unknown, ..self }
    }

    pub(crate) fn refused(self) -> i64 {
        self.refused
    }

    /// Until when something is believed at `now_ms` that ends at `end`: never
    /// beyond that.
    pub(crate) fn until(self, end: Option<i64>, now_ms: i64) -> i64 {
        let life = end.map_or(self.unknown, |end| end.saturating_sub(now_ms));
        let life = life.max(self.least).min(self.most);
        let until = now_ms.saturating_add(life);
        end.map_or(until, |end| end.min(until))
    }
}

impl IntrospectionConfig {
    /// `None`: nobody is asked about tokens.
    pub(crate) fn new(
        fields: &Fields,
        methods: Methods,
        rules: &Arc<Rules>,
    ) -> Result<Option<Self>, ConfigError> {
        let introspection = methods.has(Method::Introspection);
        let userinfo = methods.has(Method::Userinfo);
        if !introspection && !userinfo {
            return Ok(None);
        }
        Ok(Some(Self {
            introspection: introspection
                .then(|| {
                    Ok(IntrospectionEndpoint {
                        introspects_all: fields.tokens.introspect_jwt_tokens,
                        parameter: fields
                            .client
                            .introspection_token_param_name
                            .as_deref()
                            .unwrap_or_default()
                            .to_owned(),
                        hint: fields
                            .tokens
                            .introspection_hint
                            .as_deref()
                            .map(str::to_owned),
                        accept: fields
                            .client
                            .introspection_accept
                            .map_or("", FieldWord::word)
                            .to_owned(),
                        check_active: fields.client.introspection_check_active,
                        remember: fields.cache.cache_introspection,
                        extras: Extras::new(&fields.arguments.of_introspection())?,
                    })
                })
                .transpose()?,
            userinfo: userinfo
                .then(|| {
                    Ok(UserinfoEndpoint {
                        accept: fields
                            .arguments
                            .userinfo_accept
                            .map_or("", FieldWord::word)
                            .to_owned(),
                        remember: fields.cache.cache_user_info,
                        extras: Extras::new(&fields.arguments.of_userinfo())?,
                    })
                })
                .transpose()?,
            lifetimes: Lifetimes::new(fields),
            rules: Arc::clone(rules),
            keeps_responses: crate::headers::token_set::shows_responses(fields),
        }))
    }

    /// Whether the provider is asked about every token.
    pub(crate) fn introspects_all(&self) -> bool {
        (self.introspection.as_ref()).is_some_and(|introspection| introspection.introspects_all)
    }
}

/// Asks about tokens, one question a token at a time, and remembers.
pub(crate) struct TokenIntrospector {
    config: Arc<IntrospectionConfig>,
    provider_client: Arc<ProviderClient>,
    cache: ResponseCache,
    flights: SingleFlight<Arc<VerifiedToken>>,
    hits: Counter,
    misses: Counter,
}

/// What is known of tokens, by the question about them.
type ResponseCache = Cache<Digest, Arc<VerifiedToken>, Weight, ahash::RandomState>;

fn cache() -> ResponseCache {
    let state = ahash::RandomState::new();
    Cache::with(RESPONSES, BYTES, Weight, state, DefaultLifecycle::default())
}

#[derive(Clone)]
struct Weight;

impl Weighter<Digest, Arc<VerifiedToken>> for Weight {
    fn weight(&self, _: &Digest, verified: &Arc<VerifiedToken>) -> u64 {
        verified.weight
    }
}

/// Whom and what a request asks with.
pub(crate) struct RequestContext<'a> {
    /// The address that the request came from.
    pub(crate) from: Option<IpAddr>,
    pub(crate) client: Option<&'a Arc<Client>>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) arguments: &'a Arguments,
}

impl TokenIntrospector {
    pub(crate) fn new(
        config: IntrospectionConfig,
        provider_client: &Arc<ProviderClient>,
        metrics: &Metrics,
    ) -> Self {
        Self {
            flights: SingleFlight::new(config.lifetimes.refused(), provider_client.timeout()),
            config: Arc::new(config),
            provider_client: Arc::clone(provider_client),
            cache: cache(),
            hits: metrics.token_cache("hit"),
            misses: metrics.token_cache("miss"),
        }
    }

    /// What the provider says of a token; `None`: it has no endpoint that
    /// would tell.
    ///
    /// # Errors
    /// Why the token does not pass.
    pub(crate) async fn query(
        &self,
        token: &str,
        context: &RequestContext<'_>,
    ) -> Result<Option<(Arc<VerifiedToken>, Method)>, Refusal> {
        if token.len() > TOKEN_MAX {
            return Err(Refusal::TokenTooLong);
        }
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Refusal::MalformedToken);
        }
        if let Some(verified) = self.introspect(token, context).await? {
            return Ok(Some((verified, Method::Introspection)));
        }
        if let Some(userinfo) = &self.config.userinfo
            && self.has(Endpoint::Userinfo).await?
        {
            let verified = self.fetch_userinfo(userinfo, token, context).await?;
            return Ok(Some((verified, Method::Userinfo)));
        }
        Ok(None)
    }

    /// As [`TokenIntrospector::query`], of the introspection endpoint alone.
    ///
    /// # Errors
    /// Why the token does not pass.
    pub(crate) async fn introspect(
        &self,
        token: &str,
        context: &RequestContext<'_>,
    ) -> Result<Option<Arc<VerifiedToken>>, Refusal> {
        match &self.config.introspection {
            Some(introspection) if self.has(Endpoint::Introspection).await? => self
                .post_introspection(introspection, token, context)
                .await
                .map(Some),
            _ => Ok(None),
        }
    }

    /// Whether the introspection endpoint is asked.
    pub(crate) fn introspects(&self) -> bool {
        self.config.introspection.is_some()
    }

    async fn has(&self, endpoint: Endpoint) -> Result<bool, Refusal> {
        match self.provider_client.url(endpoint).await {
            Ok(_) => Ok(true),
            Err(Refusal::NoEndpoint) => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }

    async fn post_introspection(
        &self,
        endpoint: &IntrospectionEndpoint,
        token: &str,
        context: &RequestContext<'_>,
    ) -> Result<Arc<VerifiedToken>, Refusal> {
        let mut form = vec![(endpoint.parameter.clone(), token.to_owned())];
        form.extend(
            (endpoint.hint.iter()).map(|hint| ("token_type_hint".to_owned(), hint.clone())),
        );
        let form = endpoint
            .extras
            .join(form, context.headers, context.arguments);
        let mut headers = endpoint.extras.headers(context.headers);
        accept(&mut headers, &endpoint.accept);
        let (client, from) = (context.client.cloned(), context.from);
        let about = request_digest(client.as_deref(), &form, &headers);
        let (provider_client, config, text) = (
            Arc::clone(&self.provider_client),
            Arc::clone(&self.config),
            token.to_owned(),
        );
        let question = move || async move {
            let token_status = provider_client.token_status().await;
            // From before the question: what ends meanwhile is asked about again.
            let version = token_status
                .as_ref()
                .map_or(0, |token_status| token_status.version());
            let answer = provider_client
                .post(EndpointRequest {
                    from,
                    endpoint: Endpoint::Introspection,
                    client: client.clone(),
                    form,
                    headers,
                })
                .await?;
            let document = config
                .introspection_claims(&provider_client, client.as_deref(), &answer)
                .await?;
            let revocation = RevocationStatus::active_at(token_status, version);
            let responses = ProviderResponses {
                introspection: Some(Arc::new(document)),
                user_info: None,
            };
            config
                .verified_token(
                    &provider_client,
                    &text,
                    responses,
                    answer.body.len(),
                    revocation,
                )
                .await
        };
        self.cached_or_query(about, endpoint.remember, question)
            .await
    }

    async fn fetch_userinfo(
        &self,
        endpoint: &UserinfoEndpoint,
        token: &str,
        context: &RequestContext<'_>,
    ) -> Result<Arc<VerifiedToken>, Refusal> {
        let parameters = endpoint
            .extras
            .parameters(context.headers, context.arguments);
        let mut headers = endpoint.extras.headers(context.headers);
        accept(&mut headers, &endpoint.accept);
        let mut sent = parameters.clone();
        sent.push((String::new(), token.to_owned()));
        let about = request_digest(None, &sent, &headers);
        let (provider_client, config, text) = (
            Arc::clone(&self.provider_client),
            Arc::clone(&self.config),
            token.to_owned(),
        );
        let question = move || async move {
            let token_status = provider_client.token_status().await;
            let version = token_status
                .as_ref()
                .map_or(0, |token_status| token_status.version());
            let answer = provider_client
                .get(Endpoint::Userinfo, &text, &parameters, headers)
                .await?;
            let issuers = &config.rules.issuers;
            let document = responses::userinfo_claims(&provider_client, issuers, &answer).await?;
            let revocation = RevocationStatus::active_at(token_status, version);
            let responses = ProviderResponses {
                introspection: None,
                user_info: Some(Arc::new(document)),
            };
            config
                .verified_token(
                    &provider_client,
                    &text,
                    responses,
                    answer.body.len(),
                    revocation,
                )
                .await
        };
        self.cached_or_query(about, endpoint.remember, question)
            .await
    }

    /// The answer as remembered, or that to the question.
    async fn cached_or_query<F>(
        &self,
        about: Digest,
        remember: bool,
        question: impl FnOnce() -> F,
    ) -> Result<Arc<VerifiedToken>, Refusal>
    where
        F: Future<Output = Result<Arc<VerifiedToken>, Refusal>> + Send + 'static,
    {
        let now_ms = self.provider_client.clock.now_ms();
        if let Some(held) = self.cache.get(&about) {
            if now_ms < held.ends_at && held.revocation.status() == Status::Active {
                self.hits.inc();
                return Ok(held);
            }
            if now_ms >= held.ends_at && held.ends_for_good {
                return Err(Refusal::TokenExpired);
            }
        }
        if let Some(refusal) = self.flights.refused(&about, now_ms) {
            return Err(refusal);
        }
        self.misses.inc();
        let clock = self.provider_client.clock.clone();
        let outcome = self
            .flights
            .ask(about, question, move || clock.now_ms())
            .await;
        if let Ok(verified) = &outcome
            && remember
        {
            self.cache.insert(about, Arc::clone(verified));
        }
        outcome
    }
}

/// What makes a question another one: who asks, and every word of it.
pub(crate) fn request_digest(
    client: Option<&Client>,
    form: &[(String, String)],
    headers: &HeaderMap,
) -> Digest {
    let client = client.map_or(&b""[..], |client| client.id.as_bytes());
    let form = form.iter().flat_map(|(n, v)| [n.as_bytes(), v.as_bytes()]);
    let headers = headers
        .iter()
        .flat_map(|(n, v)| [n.as_str().as_bytes(), v.as_bytes()]);
    digest_of([client].into_iter().chain(form).chain(headers))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::provider::token_cache::Document;
    use crate::provider::verifier::CheckedClaims;

    fn lifetimes(config: Value) -> Lifetimes {
        Lifetimes::new(&Fields::of(&config).expect("valid"))
    }

    #[test]
    fn a_flood_of_long_answers_that_are_kept_stays_within_the_bound() {
        let held = cache();
        for n in 0_u32..2_000 {
            let mut claims = serde_json::Map::new();
            claims.insert("note".to_owned(), Value::from("n".repeat(60_000)));
            let document = Document {
                claims: claims.clone(),
                jwt: Some("j".repeat(60_000)),
                length: 60_000,
            };
            let responses = ProviderResponses {
                introspection: Some(Arc::new(document)),
                user_info: None,
            };
            let checked = CheckedClaims {
                claims,
                scopes: Vec::new(),
                expires_at: None,
                ends_at: i64::MAX,
                ends_for_good: false,
            };
            let verified =
                checked.verified_with("t", 60_000, 0, RevocationStatus::default(), responses);
            // Parsed, a claim of many parts takes a few times its length.
            assert!(verified.weight >= 9 * 60_000);
            held.insert(digest_of([&n.to_be_bytes()[..]]), verified);
        }
        let count = held.len() as u64;
        assert!(count * 180_000 <= BYTES + BYTES / 8, "{count}");
    }

    #[test]
    fn nothing_is_believed_beyond_its_end() {
        let plain = lifetimes(json!({}));
        assert_eq!(plain.until(None, 1000), 3_601_000);
        assert_eq!(plain.until(Some(9_000_000), 1000), 9_000_000);
        let bounded = lifetimes(json!({"cache_ttl_min": 60, "cache_ttl_max": 600}));
        assert_eq!(bounded.until(None, 0), 600_000);
        assert_eq!(bounded.until(Some(9_000_000), 0), 600_000);
        assert_eq!(bounded.until(Some(5_000), 0), 5_000);
        assert_eq!(bounded.refused(), REFUSED_MS);
    }
}
