//! The `openid-connect` plugin (interface 2.7, 4.7): only requests with a
//! valid token of the configured issuer reach the upstream.
//!
//! Start at [`OpenIdConnect::on_request`], which decides about tokens that are
//! known, and at `decide`, which asks the provider. The invariant: a request passes
//! only with an [`AccessToken`](doorward_core::model::token::AccessToken) whose
//! signature, claims and permissions were checked with this plugin's own
//! settings and with keys that are still in force.

mod authorize;
mod config;
mod credentials;
mod decide;
pub mod embedding;
mod explain;
mod headers;
mod login;
mod logout;
pub mod provider;
mod session;
#[cfg(test)]
mod tests;

pub use authorize::rules;
pub use credentials::bearer;
pub use decide::refusal;
pub use doorward_oidc_client::metadata::discovery_urls;
pub use provider::{IssuerReport, Providers};
pub use session::admin::{end_marks, subjects};
pub use session::storage::Storages;

use std::borrow::Cow;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use http::header::{CACHE_CONTROL, EXPECT};
use http::{HeaderName, HeaderValue, Method};
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::{Map, Value};

use doorward_core::jose::claims::time;
use doorward_core::jose::verify::Unverified;
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_net::http::session::Session;
use doorward_net::telemetry::{Counter, Metrics};
use doorward_oidc_client::metadata::issuer_of;
use doorward_plugin_api::consumers::Consumers;
use doorward_plugin_api::filter::{
    Exchange, Filter, FilterExplanation, Flow, SessionKeeper, Verdict,
};
use doorward_plugin_api::identity;
use doorward_plugin_api::{ConfigError, Kind, Parts};

use config::methods::Method as By;
use config::{Components, Config};
use credentials::bearer::BearerToken;
use credentials::strip_credentials::{has_other_credential, strip};
use decide::refusal::Refusal;
use embedding::Embedding;
use login::Logins;
use logout::Logout;
use logout::channels::Channels;
use provider::ProviderMetadata;
use provider::client::ProviderClient;
use provider::distributed_claims::DistributedClaims;
use provider::introspection::TokenIntrospector;
use provider::par::ParClient;
use provider::proof_of_possession::ProofSatisfied;
use provider::single_flight::SingleFlight;
use provider::token_endpoint::TokenClient;
use provider::token_exchange::{ExchangeDecision, TokenExchange};
use provider::userinfo::UserInfo;
use provider::verifier::{CheckedClaims, TokenCheck, Verification, Verifier};
use session::creation;
use session::{OpenSession, SessionLookup, Sessions};

/// The plugin's line in the registry.
pub const KIND: Kind = Kind {
    name: "openid-connect",
    priority: 1050,
    of_consumers: false,
    schema: config::fields::schema,
    codes: explain::codes,
    build,
};

/// Builds the filter of a complete, schema-valid `config`.
fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let fields = config::fields::Fields::read(config)?;
    let (mut config, components) = Config::new(&fields, parts)?;
    config::add_proxies_and_authorities(&fields, &mut config.provider.options, parts)?;
    Ok(Arc::new_cyclic(|me| {
        OpenIdConnect::new(me.clone(), config, components, parts)
    }))
}

/// Lets requests pass that carry a valid token.
struct OpenIdConnect {
    /// For what goes on when the client hangs up.
    me: Weak<Self>,
    verifier: Verifier<Config>,
    provider_client: Arc<ProviderClient>,
    /// Asks about tokens that can't be verified here.
    introspector: Option<TokenIntrospector>,
    /// Asks who users are besides.
    user_info: Option<UserInfo>,
    /// Asks for claims that are told elsewhere.
    distributed: Option<DistributedClaims>,
    /// Exchanges tokens before they count.
    token_exchange: Option<TokenExchange>,
    /// Asks for tokens.
    token_client: Option<TokenClient>,
    sessions: Option<Arc<Sessions>>,
    /// Sessions whose tokens are being refreshed.
    refreshes: SingleFlight<Arc<OpenSession>>,
    logins: Option<Logins>,
    /// Requests for logins that are pushed.
    par: ParClient,
    logout: Option<Logout>,
    /// Where the provider asks for logouts.
    channels: Option<Channels>,
    metrics: Arc<Metrics>,
    logins_begun: Counter,
    logouts: Counter,
    consumers: Arc<Consumers>,
    passed: Counter,
    anonymous: Counter,
    /// By refusal.
    refused: Vec<Counter>,
    /// What the filter says that the plugin stands in; `None`: it stands by itself.
    embedding: Option<Embedding>,
}

impl OpenIdConnect {
    fn new(me: Weak<Self>, config: Config, components: Components, parts: &Parts) -> Self {
        let provider_config = config.provider.clone();
        let decision = |code| parts.metrics.decision(KIND.name, code);
        let signing = (config.hmac_keys.clone(), config.response_alg);
        let provider_client = ProviderClient::new(
            &provider_config,
            components.endpoints,
            components.capabilities,
            signing,
            parts,
        );
        let provider_client = Arc::new(provider_client);
        let user_info = |how| UserInfo::new(how, &provider_client);
        let token_client = |grants| {
            let issuer = provider_config.issuer.as_str();
            TokenClient::new(
                grants,
                &provider_client,
                Storages::of(parts).refreshes.with(issuer),
            )
        };
        let introspector =
            |config| TokenIntrospector::new(config, &provider_client, &parts.metrics);
        Self {
            introspector: components.introspection.map(introspector),
            user_info: components.user_info.map(user_info),
            distributed: (components.distributed)
                .map(|how| DistributedClaims::new(how, &config.rules, &provider_client)),
            token_exchange: (components.token_exchange)
                .map(|how| TokenExchange::new(how, &provider_client, parts)),
            token_client: components.grants.map(token_client),
            provider_client,
            me,
            sessions: components.sessions.map(Arc::new),
            refreshes: SingleFlight::new(
                provider::single_flight::REFUSED_MS,
                provider_config.options.timeout,
            ),
            logins: components.logins,
            par: ParClient::new(provider_config.options.timeout),
            logout: components.logout,
            channels: components.channels,
            metrics: Arc::clone(&parts.metrics),
            logins_begun: decision("login"),
            logouts: decision("logout"),
            verifier: Verifier::new(config, provider_config, parts),
            consumers: Arc::clone(&parts.consumers),
            passed: decision("pass"),
            anonymous: decision("anonymous"),
            refused: Refusal::ALL
                .iter()
                .map(|refusal| decision(refusal.describe().0))
                .collect(),
            embedding: None,
        }
    }

    fn config(&self) -> &Config {
        &self.verifier.check
    }

    /// Whether nobody has to prove anything here: another plugin has let the request
    /// in, and this one is only one of several ways.
    fn is_spared(&self, exchange: &Exchange) -> bool {
        self.config().anonymous.is_some() && exchange.credential.is_some()
    }

    fn passes_as_preflight(&self, request: &RequestHeader) -> bool {
        !self.config().run_on_preflight && request.method == Method::OPTIONS
    }

    /// The answer for a browser that asks what a script may send.
    fn preflight(&self, request: &RequestHeader) -> Option<Reply> {
        let config = self.config();
        let asked = config.origins.preflight(request);
        asked.filter(|_| config.run_on_preflight)
    }

    /// Refuses the request, or lets it pass as that of the anonymous consumer.
    fn refuse(&self, mut refusal: Refusal, exchange: &mut Exchange) -> Flow {
        if let Some(anonymous) = &self.config().anonymous
            && refusal.is_of_client()
        {
            exchange.consumer = anonymous.consumer(&self.consumers);
            if exchange.consumer.is_some() {
                self.anonymous.inc();
                return Flow::Continue;
            }
            refusal = Refusal::NoAnonymous;
        }
        exchange.refusal = Some(Cow::Borrowed(refusal.describe().0));
        self.refused[refusal as usize].inc();
        Flow::Respond(self.config().error_responses.to(refusal, 0))
    }

    /// As [`Self::refuse`], with the provider's own words where errors are shown.
    fn refuse_as_told(&self, refusal: Refusal, said: &str, exchange: &mut Exchange) -> Flow {
        let mut flow = self.refuse(refusal, exchange);
        if let Flow::Respond(reply) = &mut flow
            && let ReplyBody::Message(message) = &mut reply.body
            && self.config().error_responses.explains()
        {
            message.to_mut().push_str(&format!(": {said}"));
        }
        flow
    }

    /// Judges a token with what is at hand.
    fn verify_now(
        &self,
        found: &BearerToken<'_>,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Verdict {
        let (config, client) = (self.config(), exchange.client.ip());
        if !config.bearer || config.introspects_all {
            return Verdict::Wait;
        }
        let mut token = Cow::Borrowed(found.token.as_ref());
        if let Some(exchange) = &self.token_exchange {
            match self.exchange_decision(exchange, &found.token, request, client) {
                ExchangeDecision::NotNeeded => {}
                ExchangeDecision::Cached(given) => {
                    token = given.tokens.access.expose().to_owned().into()
                }
                ExchangeDecision::Needed => return Verdict::Wait,
            }
        }
        let exchanged = matches!(token, Cow::Owned(_));
        Verdict::Now(match self.verifier.verify_now(&token) {
            // What was given may be void by now: another one may be had.
            Verification::Refused(_) if exchanged => return Verdict::Wait,
            Verification::Valid(held) => {
                let Some(held) = authorize::enrich_cached(self, held) else {
                    return Verdict::Wait;
                };
                let sessions = creation::sessions_by(self, By::Bearer);
                let token_session = match sessions.filter(|_| !found.in_query) {
                    None => None,
                    Some(sessions) => {
                        match creation::token_session(
                            &self.provider_client,
                            sessions,
                            (By::Bearer, &token),
                            request,
                            exchange,
                        ) {
                            Some(opened) => Some((sessions, opened)),
                            None => return Verdict::Wait,
                        }
                    }
                };
                let shown = (found.token.as_ref(), found.as_dpop);
                let flow = match authorize::proof_of(self, shown, &held, request, exchange) {
                    Err(refusal) => self.refuse(refusal, exchange),
                    Ok(proof) => {
                        let Some(proven) = ProofSatisfied::without(proof.as_ref()) else {
                            return Verdict::Wait;
                        };
                        let held = (&held, proven);
                        authorize::authorize_token(
                            self,
                            held,
                            By::Bearer,
                            found,
                            None,
                            request,
                            exchange,
                        )
                    }
                };
                if let Some((sessions, opened)) = token_session {
                    creation::set_token_session_cookie(
                        &self.provider_client,
                        sessions,
                        &opened,
                        request,
                        exchange,
                    );
                }
                flow
            }
            Verification::Refused(refusal)
                if self.introspector.is_some() && refusal.is_unread() =>
            {
                return Verdict::Wait;
            }
            Verification::Refused(refusal) => self.refuse(refusal, exchange),
            Verification::Pending => return Verdict::Wait,
        })
    }

    /// Decides with what is at hand.
    fn decide_now(&self, session: &Session, exchange: &mut Exchange) -> Verdict {
        let request = session.req_header();
        if self.passes_as_preflight(request) {
            return Verdict::Now(Flow::Continue);
        }
        // A proof is used up where nodes share what was used.
        if self.is_of_login(request, exchange) || explain::has_proof(self.config(), request) {
            return Verdict::Wait;
        }
        if let Some(sessions) = &self.sessions {
            let now_ms = self.provider_client.clock.now_ms();
            match sessions.shown(&request.headers, now_ms) {
                SessionLookup::Active(login, _)
                    if !creation::accepts_session(self, &login)
                        || sessions.is_elsewhere(&login, &request.headers, exchange) =>
                {
                    return Verdict::Wait;
                }
                SessionLookup::Active(login, due) => {
                    return self.authorize_session_now(sessions, &login, due, request, exchange);
                }
                SessionLookup::Invalid(_) | SessionLookup::NeedsLoad(_) => return Verdict::Wait,
                SessionLookup::Absent if sessions.has_remember_me(&request.headers) => {
                    return Verdict::Wait;
                }
                SessionLookup::Absent => {}
            }
        }
        let config = self.config();
        if config.search.may_bring_id_token(request) {
            return Verdict::Wait;
        }
        if self.takes_tokens() {
            match config.places.find(request) {
                Ok(Some(found)) => return self.verify_now(&found, request, exchange),
                Ok(None) if config.places.may_be_in_body(request) => return Verdict::Wait,
                Ok(None) => {}
                Err(refusal) => return Verdict::Now(self.refuse(refusal, exchange)),
            }
        }
        if self.logins.is_some()
            || (self.token_client.is_some() && self.may_have_credentials(request))
        {
            return Verdict::Wait;
        }
        Verdict::Now(self.refuse(Refusal::NoToken, exchange))
    }

    fn takes_tokens(&self) -> bool {
        self.config().bearer || self.introspector.is_some()
    }
}

impl TokenCheck for Config {
    fn check(
        &self,
        parsed: &Unverified<'_>,
        metadata: Option<&ProviderMetadata>,
        now_ms: i64,
    ) -> Result<Option<CheckedClaims>, Refusal> {
        let hmac = parsed.algorithm().is_symmetric();
        if hmac && self.verify_signature && self.hmac_keys.all().is_empty() {
            return Err(Refusal::UnsupportedAlg);
        }
        let Some(metadata) = metadata else {
            return Ok(None);
        };
        let claims = if self.verify_signature {
            provider::signature::claims(parsed, metadata, self.hmac_keys.all())?
        } else {
            Some(parsed.claims_of_anyone()?)
        };
        let Some(claims) = claims else {
            return Ok(None);
        };
        let (typ, now) = (parsed.typ(), now_ms.div_euclid(1000));
        let end = self
            .rules
            .check(typ.as_deref(), &claims, &metadata.issuer, now)?;
        Ok(Some(CheckedClaims {
            ends_at: match end {
                Some(end) => end.saturating_mul(1000),
                None => now_ms.saturating_add(self.cache_ttl_ms),
            },
            ends_for_good: end.is_some(),
            scopes: self.rules.scopes(&claims),
            expires_at: time(&claims, "exp").ok().flatten(),
            claims,
        }))
    }

    fn remembers(&self) -> bool {
        self.verify_signature
    }
}

#[async_trait]
impl Filter for OpenIdConnect {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        if self.is_spared(exchange) {
            return Verdict::Now(Flow::Continue);
        }
        if let Some(reply) = self.preflight(session.req_header()) {
            exchange.refusal = Some(Cow::Borrowed(explain::PREFLIGHT.code));
            return Verdict::Now(Flow::Respond(reply));
        }
        match self.decide_now(session, exchange) {
            Verdict::Now(flow) => Verdict::Now(authorize::finish(
                self,
                flow,
                session.req_header(),
                exchange,
            )),
            Verdict::Wait => Verdict::Wait,
        }
    }

    async fn on_request_slow(&self, session: &mut Session, exchange: &mut Exchange) -> Flow {
        let decision = self.decide(session, exchange).await;
        let flow = decision.unwrap_or_else(|refusal| self.refuse(refusal, exchange));
        authorize::finish(self, flow, session.req_header(), exchange)
    }

    async fn explain(
        &self,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Option<FilterExplanation> {
        if self.is_spared(exchange) {
            return Some(FilterExplanation::passes(
                "a credential has let the request in",
            ));
        }
        let explanation = explain::explain_request(self, request, exchange).await;
        Some(
            explanation.unwrap_or_else(|refusal| {
                explain::explain_refusal(self, refusal, request, exchange)
            }),
        )
    }

    fn on_upstream_request(&self, exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
        let head = request.head_mut();
        if exchange.body.is_some() {
            // The body is here: no upstream has to be asked whether to send it.
            head.remove_header(&EXPECT);
        }
        if let Some(sessions) = &self.sessions {
            sessions.strip(head);
        }
        if let Some(logins) = &self.logins {
            logins.strip(head);
        }
        if self.config().proofs.is_some() {
            // It proves nothing to anybody but the gateway.
            head.remove_header(&provider::proof_of_possession::DPOP);
        }
        if exchange.token.is_none() && !self.is_spared(exchange) {
            let taken = (self.takes_tokens(), self.token_client.is_some());
            strip(self.config(), taken, head);
        }
        if exchange.token.is_none() && exchange.consumer.is_none() {
            return;
        }
        let config = self.config();
        let hides = config.hide_credentials && !self.is_spared(exchange);
        if hides || has_other_credential(config, self.takes_tokens(), exchange, head) {
            config.places.strip(head);
        }
        identity::write(exchange, request);
        if let Some(token) = &exchange.token {
            let mapped = exchange.consumer.is_some();
            let head = request.head_mut();
            config.headers.write_upstream(token, mapped, head);
            headers::token_set::write_token_headers(exchange, head);
        }
    }

    fn on_response(&self, exchange: &Exchange, response: &mut ResponseHeader) {
        let of_user = exchange.token.is_some() && self.config().headers.tells_clients();
        if (exchange.token_in_query || of_user) && !is_private(response) {
            let private = HeaderValue::from_static("private");
            let _ = response.insert_header(CACHE_CONTROL, private);
        }
        let fields = &exchange.response_headers;
        let confidential = &self.config().confidential;
        let tells = !confidential.is_empty()
            && (fields.iter()).any(|(name, _)| confidential.contains(name));
        if tells || (self.sessions.as_ref()).is_some_and(|sessions| sessions.is_in(fields)) {
            let no_store = HeaderValue::from_static("no-store");
            let _ = response.insert_header(CACHE_CONTROL, no_store);
        }
        if let Some(token) = &exchange.token {
            self.config().headers.write_downstream(token, response);
        }
    }

    fn gives_cookies(&self) -> bool {
        self.sessions.is_some() || self.logins.is_some()
    }

    fn owns_cookie(&self, name: &str, value: &str) -> bool {
        (self.sessions.as_ref()).is_some_and(|sessions| sessions.owns(name, value))
            || (self.logins.as_ref()).is_some_and(|logins| logins.owns(name, value))
    }

    fn names_cookie(&self, name: &[u8]) -> bool {
        (self.sessions.as_ref()).is_some_and(|sessions| sessions.names(name))
            || (self.logins.as_ref()).is_some_and(|logins| logins.names(name))
    }

    fn session_keeper(&self) -> Option<&dyn SessionKeeper> {
        self.sessions.is_some().then_some(self)
    }

    fn owned_headers(&self) -> &[HeaderName] {
        self.config().headers.owned()
    }

    fn discovered_issuers(&self) -> Vec<String> {
        let provider = &self.config().provider;
        let discovered = Some(&provider.issuer).filter(|_| !provider.pseudo);
        discovered.map(issuer_of).into_iter().collect()
    }

    fn warnings(&self) -> Vec<String> {
        self.config().warnings.clone()
    }
}

/// Whether the upstream keeps its answer out of shared caches itself.
fn is_private(response: &ResponseHeader) -> bool {
    let directives = response.headers.get_all(CACHE_CONTROL);
    directives
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("private") || value.contains("no-store"))
}
