//! What userinfo says of a user who has shown an access token
//! (`search_user_info`, OpenID Connect Core §5.3).

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use crate::config::fields::Fields;
use crate::credentials::arguments::Arguments;
use crate::decide::refusal::{Class, Refusal};
use crate::provider::client::{ProviderClient, accept};
use crate::provider::endpoints::Endpoint;
use crate::provider::extras::Extras;
use crate::provider::introspection::{Lifetimes, RequestContext, responses};
use crate::provider::issuers::AllowedIssuers;
use crate::provider::single_flight::{Digest, SingleFlight, digest_of};
use crate::provider::token_cache::{Document, ProviderResponses, VerifiedToken};
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::config::FieldWord;

/// Most users that are remembered, about.
const USERS: usize = 8 * 1024;
/// Most memory for them, in bytes, about.
const BYTES: u64 = 32 * 1024 * 1024;

/// How it is asked.
#[derive(Debug)]
pub(crate) struct UserInfoConfig {
    accept: String,
    remember: bool,
    extras: Extras,
    lifetimes: Lifetimes,
    issuers: AllowedIssuers,
    /// Whether users pass of whom the provider can't tell.
    optional: bool,
}

impl UserInfoConfig {
    /// `None`: it is not.
    pub(crate) fn new(fields: &Fields) -> Result<Option<Self>, ConfigError> {
        if !crate::headers::token_set::needs_user_info(fields) {
            return Ok(None);
        }
        let accept = fields.arguments.userinfo_accept.map_or("", FieldWord::word);
        Ok(Some(Self {
            accept: accept.to_owned(),
            remember: fields.cache.cache_user_info,
            extras: Extras::new(&fields.arguments.of_userinfo())?,
            lifetimes: Lifetimes::new(fields),
            issuers: AllowedIssuers::new(fields),
            optional: false,
        }))
    }

    /// Lets users pass of whom the provider can't tell.
    pub(crate) fn make_optional(&mut self) {
        self.optional = true;
    }
}

/// Asks userinfo, one question a token at a time, and remembers.
pub(crate) struct UserInfo {
    config: UserInfoConfig,
    provider_client: Arc<ProviderClient>,
    held: Cache<Digest, CachedUserInfo, Weight, ahash::RandomState>,
    flights: SingleFlight<Arc<Document>>,
}

/// What is known of a token, and with what userinfo adds.
#[derive(Clone)]
struct CachedUserInfo {
    of: Arc<VerifiedToken>,
    with: Arc<VerifiedToken>,
    document: Arc<Document>,
    until: i64,
}

#[derive(Clone)]
struct Weight;

impl Weighter<Digest, CachedUserInfo> for Weight {
    fn weight(&self, _: &Digest, held: &CachedUserInfo) -> u64 {
        // Without what may be remembered elsewhere, too: the token as it is.
        held.with.weight + 4 * held.document.length as u64
    }
}

impl UserInfo {
    pub(crate) fn new(config: UserInfoConfig, provider_client: &Arc<ProviderClient>) -> Self {
        Self {
            flights: SingleFlight::new(config.lifetimes.refused(), provider_client.timeout()),
            config,
            provider_client: Arc::clone(provider_client),
            held: Cache::with(
                USERS,
                BYTES,
                Weight,
                ahash::RandomState::new(),
                DefaultLifecycle::default(),
            ),
        }
    }

    /// What is remembered, where nothing of the request counts.
    pub(crate) fn cached(&self, verified: &Arc<VerifiedToken>) -> Option<Arc<VerifiedToken>> {
        if !self.config.extras.is_fixed() {
            return None;
        }
        let about = self.about(&verified.token.token, &[]);
        let held = self.held.get(&about)?;
        let now_ms = self.provider_client.clock.now_ms();
        (held.of.is_same(verified) && now_ms < held.until).then_some(held.with)
    }

    /// What is known of a token, and what userinfo says besides.
    ///
    /// # Errors
    /// When userinfo does not know the token, speaks of another user, or gives
    /// no answer.
    pub(crate) async fn enrich(
        &self,
        verified: Arc<VerifiedToken>,
        context: &RequestContext<'_>,
    ) -> Result<Arc<VerifiedToken>, Refusal> {
        let without = self.config.optional.then(|| Arc::clone(&verified));
        match (self.with_response(verified, context).await, without) {
            (Err(refusal), Some(without)) if refusal.class() == Class::Broken => Ok(without),
            (outcome, _) => outcome,
        }
    }

    async fn with_response(
        &self,
        verified: Arc<VerifiedToken>,
        context: &RequestContext<'_>,
    ) -> Result<Arc<VerifiedToken>, Refusal> {
        if verified.responses.user_info.is_some() {
            return Ok(verified);
        }
        let token = &verified.token.token;
        let parameters = self.parameters(context.headers, context.arguments);
        let about = self.about(token, &parameters);
        let now_ms = self.provider_client.clock.now_ms();
        let held = self.held.get(&about).filter(|held| now_ms < held.until);
        if let Some(held) = &held
            && held.of.is_same(&verified)
        {
            return Ok(Arc::clone(&held.with));
        }
        if let Some(refusal) = self.flights.refused(&about, now_ms) {
            return Err(refusal);
        }
        let (document, until) = match held {
            Some(held) => (held.document, held.until),
            None => {
                let document = self.ask(about, token, context).await?;
                let end = verified.token.expires_at;
                let end = end.map(|end| end.saturating_mul(1000));
                (document, self.config.lifetimes.until(end, now_ms))
            }
        };
        let with = merge(&verified, &document)?;
        if self.config.remember {
            let with = Arc::clone(&with);
            self.held.insert(
                about,
                CachedUserInfo {
                    of: verified,
                    with,
                    document,
                    until,
                },
            );
        }
        Ok(with)
    }

    fn parameters(&self, headers: &http::HeaderMap, given: &Arguments) -> Vec<(String, String)> {
        if self.config.extras.is_fixed() {
            Vec::new()
        } else {
            let mut all = self.config.extras.parameters(headers, given);
            let sent = self.config.extras.headers(headers);
            all.extend(sent.iter().map(|(name, value)| {
                let value = String::from_utf8_lossy(value.as_bytes());
                (format!("\n{name}"), value.into_owned())
            }));
            all
        }
    }

    fn about(&self, token: &str, parameters: &[(String, String)]) -> Digest {
        let parameters = parameters.iter();
        let parameters = parameters.flat_map(|(n, v)| [n.as_bytes(), v.as_bytes()]);
        digest_of([token.as_bytes()].into_iter().chain(parameters))
    }

    async fn ask(
        &self,
        about: Digest,
        token: &str,
        context: &RequestContext<'_>,
    ) -> Result<Arc<Document>, Refusal> {
        let parameters = (self.config.extras).parameters(context.headers, context.arguments);
        let mut headers = self.config.extras.headers(context.headers);
        accept(&mut headers, &self.config.accept);
        let (provider_client, token) = (Arc::clone(&self.provider_client), token.to_owned());
        let issuers = self.config.issuers.clone();
        let question = move || async move {
            let answer = provider_client
                .get(Endpoint::Userinfo, &token, &parameters, headers)
                .await?;
            let document = responses::userinfo_claims(&provider_client, &issuers, &answer).await?;
            Ok(Arc::new(document))
        };
        let clock = self.provider_client.clock.clone();
        let asked = self.flights.ask(about, question, move || clock.now_ms());
        asked.await
    }
}

/// What the token says, and what userinfo says besides of the same user.
fn merge(
    verified: &VerifiedToken,
    document: &Arc<Document>,
) -> Result<Arc<VerifiedToken>, Refusal> {
    let (token, responses) = (&verified.token, &document.claims);
    if let Some(user) = token.claims.get("sub").filter(|user| !user.is_null()) {
        if !responses::has_subject(document) {
            return Err(Refusal::ProviderMalformed);
        }
        if responses.get("sub") != Some(user) {
            return Err(Refusal::WrongUserInfo);
        }
    }
    let more = responses
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()));
    let responses = ProviderResponses {
        user_info: Some(Arc::clone(document)),
        ..verified.responses.clone()
    };
    Ok(verified.with(more, document.length, responses))
}
