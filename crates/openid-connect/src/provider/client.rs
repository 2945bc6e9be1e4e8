//! Asks the provider on the gateway's behalf: finds its endpoint, proves who
//! asks, and turns silence into one refusal.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::header::{ACCEPT, AUTHORIZATION};
use http::{HeaderMap, HeaderValue};
use serde_json::{Map, Value};
use url::Url;

use crate::Providers;
use crate::config::capabilities::RequiredCapabilities;
use crate::decide::refusal::Refusal;
use crate::provider::client_auth::{Client, ClientAuthMethod};
use crate::provider::endpoints::{Endpoint, Endpoints};
use crate::provider::hmac_keys::HmacKeys;
use crate::provider::signing_algs::ResponseAlg;
use crate::provider::{Provider, ProviderConfig, ProviderMetadata};
use doorward_core::clock::Clock;
use doorward_core::jose::json;
use doorward_net::http::outbound::{Answer, Options, Outbound, OutboundError, TokenStatus};
use doorward_plugin_api::Parts;

/// Longest answer that is believed, in bytes.
const ANSWER_MAX: usize = 64 * 1024;

/// What an endpoint is asked.
pub(crate) struct EndpointRequest {
    /// The address of whom it is asked for: a provider in this process is told.
    pub(crate) from: Option<IpAddr>,
    pub(crate) endpoint: Endpoint,
    /// As whom.
    pub(crate) client: Option<Arc<Client>>,
    pub(crate) form: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
}

/// Asks one provider.
pub(crate) struct ProviderClient {
    pub(crate) clock: Clock,
    provider: Arc<Provider>,
    outbound: Arc<Outbound>,
    options: Options,
    endpoints: Endpoints,
    /// What goes for a provider that can't be asked, where endpoints are
    /// configured: they may be enough.
    undiscovered: Option<Arc<ProviderMetadata>>,
    /// Whether there was no answer the last time: it is said once.
    down: AtomicBool,
    /// What the provider has to offer, until that was looked at.
    capabilities: ArcSwapOption<RequiredCapabilities>,
    pub(crate) hmac_keys: HmacKeys,
    /// How the provider signs what it says to its client.
    pub(crate) response_alg: ResponseAlg,
}

impl ProviderClient {
    pub(crate) fn new(
        config: &ProviderConfig,
        endpoints: Endpoints,
        capabilities: Option<RequiredCapabilities>,
        (hmac_keys, response_alg): (HmacKeys, ResponseAlg),
        parts: &Parts,
    ) -> Self {
        let outbound = &parts.outbound;
        Self {
            clock: parts.clock.clone(),
            provider: Providers::of(parts).provider(config.clone(), parts),
            outbound: Arc::clone(outbound),
            options: config.options,
            undiscovered: (endpoints.are_configured())
                .then(|| Arc::new(ProviderMetadata::undiscovered(&config.issuer))),
            endpoints,
            down: AtomicBool::new(false),
            capabilities: ArcSwapOption::from(capabilities.map(Arc::new)),
            hmac_keys,
            response_alg,
        }
    }

    /// What is known of the provider, which is fetched again in the background
    /// where it is old: whoever asks may be the only one who does.
    ///
    /// # Errors
    /// [`Provider::unavailable`] when nothing is and nothing can be had, and no
    /// endpoint is configured, or the provider's metadata are refused.
    pub(crate) async fn metadata(&self) -> Result<Arc<ProviderMetadata>, Refusal> {
        self.provider.refresh_if_old(self.clock.now_ms());
        let metadata = match &self.undiscovered {
            None => self.provider.metadata_or_fetch().await,
            Some(undiscovered) => {
                let metadata = self.provider.metadata_after_first_fetch().await;
                let usable = !self.provider.is_malformed();
                metadata.or_else(|| usable.then(|| Arc::clone(undiscovered)))
            }
        };
        let metadata = metadata.ok_or_else(|| self.provider.unavailable())?;
        if metadata.is_discovered()
            && self.capabilities.load().is_some()
            && let Some(capabilities) = self.capabilities.swap(None)
        {
            capabilities.compare(&metadata);
        }
        Ok(metadata)
    }

    /// As [`ProviderMetadata::stale_keys_or`].
    pub(crate) fn stale_keys_or(&self, refusal: Refusal, token: &str) -> Refusal {
        let metadata = self.provider.metadata();
        metadata.map_or(refusal, |metadata| metadata.stale_keys_or(refusal, token))
    }

    /// As [`Provider::wait_for_newer`].
    pub(crate) async fn wait_for_newer_keys(&self) -> bool {
        self.provider.wait_for_newer(self.clock.now_ms()).await
    }

    /// The address of an endpoint.
    ///
    /// # Errors
    /// As [`Self::metadata`] and [`Endpoints::url`].
    pub(crate) async fn url(&self, endpoint: Endpoint) -> Result<Url, Refusal> {
        self.endpoints.url(endpoint, &*self.metadata().await?)
    }

    /// Who tells when tokens of the provider end early, if it is in this
    /// process.
    pub(crate) async fn token_status(&self) -> Option<Arc<dyn TokenStatus>> {
        self.metadata().await.ok()?.token_status.clone()
    }

    fn proof(
        &self,
        endpoint: Endpoint,
        client: &Client,
        metadata: &ProviderMetadata,
    ) -> ClientAuthMethod {
        let offered = metadata.member("token_endpoint_auth_methods_supported");
        let proof = self.endpoints.proof(endpoint);
        proof.unwrap_or_else(|| client.proof(offered))
    }

    /// Longest wait for an answer.
    pub(crate) fn timeout(&self) -> Duration {
        self.options.timeout
    }

    /// Whether the secrets of those who bring their own go to `endpoint` in a
    /// form: as those of `own` do, if they go there at all.
    ///
    /// # Errors
    /// As [`Self::metadata`].
    pub(crate) async fn posts_secrets(
        &self,
        endpoint: Endpoint,
        own: Option<&Client>,
    ) -> Result<bool, Refusal> {
        let metadata = self.metadata().await?;
        let offered = metadata.member("token_endpoint_auth_methods_supported");
        let named = self.endpoints.proof(endpoint);
        let named = named.or_else(|| own.and_then(Client::configured_method));
        Ok(ClientAuthMethod::of_secrets(named, offered) == ClientAuthMethod::Post)
    }

    /// Whether the client's name is in a header alone when it proves itself at
    /// `endpoint`.
    ///
    /// # Errors
    /// As [`Self::metadata`].
    pub(crate) async fn names_itself_otherwise(
        &self,
        endpoint: Endpoint,
        client: &Client,
    ) -> Result<bool, Refusal> {
        let metadata = self.metadata().await?;
        Ok(self.proof(endpoint, client, &metadata) == ClientAuthMethod::Basic)
    }

    /// Posts a form; the answer, whatever its status.
    ///
    /// # Errors
    /// When the question can't be asked, or gets no answer.
    pub(crate) async fn post(&self, question: EndpointRequest) -> Result<Answer, Refusal> {
        let metadata = self.metadata().await?;
        let client = question.client.as_ref();
        let proof = client.map(|client| self.proof(question.endpoint, client, &metadata));
        let url = self
            .endpoints
            .url_for(question.endpoint, proof, &metadata)?;
        let (mut form, mut headers) = (question.form, question.headers);
        if let (Some(client), Some(proof)) = (client, proof) {
            let audience = self.endpoints.assertion_audience(&url, &metadata);
            let now = self.clock.now_secs();
            client.authenticate(proof, &audience, now, &mut form, &mut headers)?;
        }
        let form: Vec<_> = form.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let options = self.endpoints.options_for(proof, &url, self.options);
        let options = Options {
            on_behalf_of: question.from,
            ..options.ok_or(Refusal::ClientRefused)?
        };
        let answer = self.outbound.post_form(&url, &form, headers, options);
        self.checked_answer(&url, answer.await)
    }

    /// Fetches what an endpoint says to the holder of `token`.
    ///
    /// # Errors
    /// As [`Self::post`].
    pub(crate) async fn get(
        &self,
        endpoint: Endpoint,
        token: &str,
        parameters: &[(String, String)],
        mut headers: HeaderMap,
    ) -> Result<Answer, Refusal> {
        let metadata = self.metadata().await?;
        let mutual_tls = &self.endpoints.mutual_tls;
        // Tokens may be bound to the certificate by which they were asked for.
        let options = mutual_tls.options(self.options);
        let alias = || self.endpoints.alias(endpoint, &metadata).ok().flatten();
        let options = options.and_then(|options| Some((alias()?, options)));
        let (mut url, options) = match options {
            Some((url, options)) if url.scheme() == "https" => (url, options),
            _ => (self.endpoints.url(endpoint, &metadata)?, self.options),
        };
        if !parameters.is_empty() {
            url.query_pairs_mut().extend_pairs(parameters);
        }
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| Refusal::MalformedToken)?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
        let answer = self.outbound.get(&url, headers, options).await;
        url.set_query(None);
        self.checked_answer(&url, answer)
    }

    /// Fetches what is said at an address that the provider has named, to the
    /// holder of `token`.
    ///
    /// # Errors
    /// [`Refusal::ClaimsElsewhere`] for an address that the gateway does not go
    /// to, and as [`Self::post`].
    pub(crate) async fn get_at(
        &self,
        url: &Url,
        token: Option<&str>,
        mut headers: HeaderMap,
    ) -> Result<Answer, Refusal> {
        if !self.endpoints.may_go(url) {
            self.warn_once(url, "claims are told at an address that is not secure");
            return Err(Refusal::ClaimsElsewhere);
        }
        if let Some(token) = token {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| Refusal::ClaimsElsewhere)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/jwt, application/json"),
        );
        let answer = self.outbound.get(url, headers, self.options).await;
        let mut plain = url.clone();
        plain.set_query(None);
        self.checked_answer(&plain, answer)
    }

    fn checked_answer(
        &self,
        url: &Url,
        answer: Result<Answer, OutboundError>,
    ) -> Result<Answer, Refusal> {
        let (refusal, reason) = match answer {
            Ok(answer) if answer.status.is_server_error() => {
                (Refusal::ProviderError, format!("status {}", answer.status))
            }
            Ok(answer) if answer.status.is_redirection() => {
                (Refusal::ProviderRedirects, "a redirect".to_owned())
            }
            Ok(answer) if answer.body.len() > ANSWER_MAX => {
                (Refusal::ProviderTooLong, "too long an answer".to_owned())
            }
            Ok(answer) => {
                self.down.store(false, Ordering::Relaxed);
                return Ok(answer);
            }
            Err(error) => {
                let refusal = match error {
                    OutboundError::Timeout(_) => Refusal::ProviderTimeout,
                    OutboundError::TooLong => Refusal::ProviderTooLong,
                    _ => Refusal::ProviderUnavailable,
                };
                (refusal, error.to_string())
            }
        };
        self.warn_once(url, &reason);
        Err(refusal)
    }

    /// Says that an endpoint is of no use, once until it is again.
    pub(crate) fn warn_once(&self, url: &Url, reason: &str) {
        if !self.down.swap(true, Ordering::Relaxed) {
            tracing::warn!(endpoint = %url, reason, "the provider gives no usable answer");
        }
    }
}

/// The JSON object of an answer; members that are there twice make it none.
pub(crate) fn object(answer: &Answer) -> Option<Map<String, Value>> {
    json::object(&answer.body).ok()
}

/// Asks for answers of this media type.
pub(crate) fn accept(headers: &mut HeaderMap, media_type: &str) {
    if let Ok(value) = HeaderValue::from_str(media_type) {
        headers.insert(ACCEPT, value);
    }
}
