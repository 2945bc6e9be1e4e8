//! The `oauth2` plugin: applications get tokens below the route that it guards, and
//! requests carry them (RFC 6749, RFC 6750).
//!
//! Who has agreed is the login page's to say: it proves itself by the provision key.
//! Tokens and codes lie in the store as hashes, and are durable before anybody has
//! them.

mod authorize;
mod client;
mod config;
mod fault;
mod parameters;
#[cfg(test)]
mod tests;
mod token;
mod token_store;

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use http::{HeaderName, Method};
use pingora::http::RequestHeader;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::authentication::brake::Brake;
use crate::authentication::{self, Authentication, Challenge, Entry, Refusal};
use crate::settings::{UNEXPECTED, json_message};
use config::Config;
use doorward_core::model::oauth2::{OAuth2Facts, StoredOAuth2Token};
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_net::telemetry::Counter;
use doorward_plugin_api::consumers::header_value;
use doorward_plugin_api::filter::{Code, Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Kind, Parts, identity};
use fault::{Fault, refusal};
use parameters::{ACCESS_TOKEN, Parameters, has_body, hide, may_be_in_body};
use token_store::{IssuedToken, Wish};

pub use client::Client;
pub use token_store::TokenStore;

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "oauth2",
    priority: 1400,
    of_consumers: false,
    schema: config::schema,
    codes: || {
        vec![
            NO_TOKEN,
            UNKNOWN,
            BAD_REQUEST,
            UNKNOWN_CLIENT,
            WRONG_METHOD,
            GUESSING,
            STORE,
            authentication::NO_ANONYMOUS,
        ]
    },
    build,
};

const NO_TOKEN: Code = Code::new("no_credential", 401, "the request carries no token");
const UNKNOWN: Code = Code::new(
    "unknown_credential",
    401,
    "the token is unknown, over, or for another service",
);
const BAD_REQUEST: Code = Code::new(
    "bad_token_request",
    400,
    "an application or a login page has asked for what it can't get",
);
const UNKNOWN_CLIENT: Code = Code::new(
    "unknown_client",
    401,
    "the application is unknown, or has another secret",
);
const WRONG_METHOD: Code = Code::new("wrong_method", 405, "tokens are asked for with POST");
const GUESSING: Code = Code::new(
    "guessing",
    429,
    "the address has been wrong too often in this minute",
);
const STORE: Code = Code::new("store", 503, "tokens can't be kept or looked up");

const SCOPE: HeaderName = HeaderName::from_static("x-authenticated-scope");
const USER: HeaderName = HeaderName::from_static("x-authenticated-userid");

const MISSING: &str = "The access token is missing";
const INVALID: &str = "The access token is invalid or has expired";
const GLOBAL: &str = "The access token is global, but the current plugin is configured without \
    'global_credentials'";

/// A running filter.
struct OAuth2 {
    config: Config,
    tokens: Option<Arc<TokenStore>>,
    /// Its own id: what codes are bound to that are for no service.
    scope: Arc<str>,
    challenges: [Challenge; 2],
    authentication: Authentication,
    brake: Arc<Brake>,
    issued: Counter,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let authentication::Config { anonymous, realm } = authentication::Config::read(config)?;
    let config = Config::read(config)?;
    let challenge = Challenge::new("Bearer", realm.as_deref())?;
    let told = format!("error=\"invalid_token\" error_description=\"{INVALID}\"");
    let with_error = challenge.with(&told)?;
    Ok(Arc::new(OAuth2 {
        config,
        tokens: parts.slots.get(),
        scope: Arc::clone(&parts.scope),
        challenges: [challenge, with_error],
        authentication: Authentication::new(KIND.name, anonymous.as_deref(), parts),
        brake: parts.slots.get_or_default(),
        issued: parts.metrics.decision(KIND.name, "issue"),
    }))
}

/// Addresses below the guarded routes that the plugin answers itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    Authorize,
    Token,
}

impl Endpoint {
    fn of(path: &str) -> Option<Self> {
        let path = path.strip_suffix('/').unwrap_or(path);
        if path.ends_with("/oauth2/token") {
            Some(Self::Token)
        } else if path.ends_with("/oauth2/authorize") {
            Some(Self::Authorize)
        } else {
            None
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Authorize => "authorization",
            Self::Token => "token",
        }
    }
}

/// A request of an application or a login page.
struct Request<'a> {
    head: &'a RequestHeader,
    exchange: &'a Exchange,
    parameters: Parameters,
}

/// A token that a request carries.
struct PresentedToken {
    text: String,
    in_header: bool,
}

impl OAuth2 {
    fn tokens(&self) -> Result<&TokenStore, Fault> {
        self.tokens.as_deref().ok_or_else(Fault::no_store)
    }

    /// The token that a request carries: any text of the header, or else the
    /// parameter.
    fn shown(&self, request: &RequestHeader, exchange: &Exchange) -> Option<PresentedToken> {
        let Some(header) = request.headers.get(&self.config.auth_header_name) else {
            let parameters = Parameters::read(request, exchange.body.as_ref());
            let text = parameters.get(ACCESS_TOKEN)?.to_owned();
            let in_header = false;
            return (!text.is_empty()).then_some(PresentedToken { text, in_header });
        };
        let text = header.to_str().ok()?.trim();
        let token = match text.split_whitespace().collect::<Vec<_>>().as_slice() {
            [scheme, token] if is_bearer(scheme) => (*token).to_owned(),
            _ => text.to_owned(),
        };
        let in_header = true;
        (!token.is_empty()).then_some(PresentedToken {
            text: token,
            in_header,
        })
    }

    /// Takes the token out of the request.
    fn hide(&self, shown: &PresentedToken, request: &mut RequestHeader, exchange: &mut Exchange) {
        if !self.config.hide_credentials {
            return;
        }
        if shown.in_header {
            request.remove_header(&self.config.auth_header_name);
        } else {
            hide(request, exchange);
        }
    }

    /// Judges a token that was looked up.
    fn judge(
        &self,
        token: Option<&StoredOAuth2Token>,
        exchange: &Exchange,
    ) -> Result<Arc<Entry<Client>>, Refusal> {
        let refused = || self.challenges[1].add(refusal(&UNKNOWN, "invalid_token", INVALID));
        let now_ms = self.authentication.clock.now_ms();
        let token = token.filter(|token| token.is_good(now_ms));
        let token = token.ok_or_else(refused)?;
        match token.facts.service {
            None if !self.config.global_credentials => {
                return Err(refusal(&UNKNOWN, "invalid_token", GLOBAL));
            }
            Some(service) if exchange.service != Some(service) => return Err(refused()),
            _ => {}
        }
        let directory = self.authentication.credentials.load();
        let entry = directory.clients.get(token.facts.client_id.as_bytes());
        let entry = entry.filter(|entry| entry.credential.id == token.credential);
        entry.cloned().ok_or_else(refused)
    }

    fn missing(&self) -> Refusal {
        self.challenges[0].add(refusal(&NO_TOKEN, "invalid_request", MISSING))
    }

    fn settle(&self, token: Option<&StoredOAuth2Token>, exchange: &mut Exchange) -> Flow {
        let judged = self.judge(token, exchange);
        if let (Ok(_), Some(token)) = (&judged, token) {
            let of = |text: &Option<String>| text.as_deref().and_then(header_value);
            let told = [
                (SCOPE, of(&token.facts.scope)),
                (USER, of(&token.facts.authenticated_userid)),
            ];
            let told = told.into_iter();
            exchange
                .vouched
                .extend(told.filter_map(|(name, value)| Some((name, value?))));
        }
        self.authentication.settle(judged, exchange)
    }

    /// Refuses what came over plain HTTP, unless a trusted proxy says otherwise and
    /// may say so.
    fn check_transport(&self, request: &Request<'_>) -> Result<(), Fault> {
        let exchange = request.exchange;
        let terminated =
            self.config.accept_http_if_already_terminated && exchange.trusted && exchange.secure;
        if exchange.handshake.is_some() || terminated {
            return Ok(());
        }
        Err(Fault::new("access_denied", "You must use HTTPS"))
    }

    /// Whether the login page is the one that the operator knows.
    fn check_provision_key(&self, request: &Request<'_>) -> Result<(), Fault> {
        let address = request.exchange.client.ip();
        let now = self.authentication.clock.now_secs();
        let guessed = self.scope.as_bytes();
        if self.brake.holds(address, guessed, now) {
            return Err(Fault::guessing());
        }
        let shown = request.parameters.get("provision_key").unwrap_or_default();
        let own = self.config.provision_key.as_ref();
        if own.is_some_and(|own| client::are_equal(&own.0, shown)) {
            return Ok(());
        }
        self.brake.note(address, guessed, now);
        Err(Fault::provision_key())
    }

    /// The scopes that are asked for, if they may be.
    fn scope(&self, parameters: &Parameters) -> Result<Option<String>, Fault> {
        let Some(asked) = parameters.get("scope") else {
            if self.config.mandatory_scope {
                return Err(Fault::new("invalid_scope", "You must specify a scope"));
            }
            return Ok(None);
        };
        let Some(known) = &self.config.scopes else {
            return Ok(None);
        };
        let asked: Vec<&str> = asked.split_whitespace().collect();
        if let Some(wrong) = asked
            .iter()
            .find(|scope| !known.iter().any(|k| **k == ***scope))
        {
            let description = format!("\"{wrong}\" is an invalid scope");
            return Err(Fault::new("invalid_scope", description));
        }
        if asked.is_empty() && self.config.mandatory_scope {
            return Err(Fault::new("invalid_scope", "You must specify a scope"));
        }
        Ok((!asked.is_empty()).then(|| asked.join(" ")))
    }

    /// The service that tokens of this request are for; `None`: any.
    fn service(&self, request: &Request<'_>) -> Result<Option<Uuid>, Fault> {
        if self.config.global_credentials {
            return Ok(None);
        }
        let service = request.exchange.service.ok_or_else(Fault::no_service)?;
        Ok(Some(service))
    }

    /// The plugin that codes are for which are for no service.
    fn plugin(&self) -> Option<String> {
        self.config
            .global_credentials
            .then(|| self.scope.to_string())
    }

    /// What a token of this request stands for.
    fn facts(
        &self,
        request: &Request<'_>,
        client: &Client,
        scope: Option<String>,
    ) -> Result<OAuth2Facts, Fault> {
        let user = request.parameters.get("authenticated_userid");
        Ok(OAuth2Facts {
            client_id: client.client_id.to_string(),
            service: self.service(request)?,
            authenticated_userid: user.map(str::to_owned),
            scope,
            expires_in: self.config.token_expiration.whole(),
            plugin: None,
            challenge: None,
        })
    }

    fn wish(&self, credential: Uuid, facts: OAuth2Facts, refreshes: bool) -> Wish {
        Wish {
            credential,
            facts,
            refreshes,
            refresh_ttl: self.config.refresh_token_ttl.whole(),
        }
    }

    async fn give(
        &self,
        credential: Uuid,
        facts: OAuth2Facts,
        refreshes: bool,
    ) -> Result<IssuedToken, Fault> {
        let now_ms = self.authentication.clock.now_ms();
        let wish = self.wish(credential, facts, refreshes);
        Ok(self.tokens()?.give(wish, now_ms).await?)
    }

    /// Answers an application or a login page.
    async fn serve(
        &self,
        endpoint: Endpoint,
        head: &RequestHeader,
        exchange: &Exchange,
    ) -> (Reply, Option<Fault>) {
        let request = Request {
            head,
            exchange,
            parameters: Parameters::read(head, exchange.body.as_ref()),
        };
        if head.method != Method::POST {
            let fault = Fault::method(&head.method, endpoint.name());
            return (fault.reply(None), Some(fault));
        }
        match endpoint {
            Endpoint::Authorize => self.authorize(&request).await,
            Endpoint::Token => self.issue(&request).await,
        }
    }

    /// What has to be waited for: an endpoint's answer, or a token in the store.
    async fn decide(&self, request: &RequestHeader, exchange: &mut Exchange) -> Flow {
        if let Some(endpoint) = Endpoint::of(request.uri.path()) {
            let (reply, fault) = self.serve(endpoint, request, exchange).await;
            exchange.refusal = fault.map(|fault| Cow::Borrowed(fault.code.code));
            return Flow::Respond(reply);
        }
        let Some(shown) = self.shown(request, exchange) else {
            return self.authentication.refuse(self.missing(), exchange);
        };
        let now_ms = self.authentication.clock.now_ms();
        let token = match self.tokens() {
            Ok(tokens) => tokens.find(&shown.text, now_ms).await.map_err(Fault::from),
            Err(fault) => Err(fault),
        };
        match token {
            Ok(token) => self.settle(token.as_deref(), exchange),
            Err(fault) => {
                let code = fault.code;
                let reply = json_message(authentication::status(code), UNEXPECTED);
                self.authentication
                    .refuse(Refusal { code, reply }, exchange)
            }
        }
    }
}

fn is_bearer(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("bearer") || scheme.eq_ignore_ascii_case("token")
}

#[async_trait]
impl Filter for OAuth2 {
    fn secret_fields(&self) -> Vec<&str> {
        vec![
            self.config.auth_header_name.as_str(),
            ACCESS_TOKEN,
            "client_secret",
            "code",
            "code_verifier",
            "provision_key",
            "refresh_token",
        ]
    }

    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        let request = session.req_header_mut();
        if self.authentication.is_spared(exchange) {
            return Verdict::Now(Flow::Continue);
        }
        if Endpoint::of(request.uri.path()).is_some() {
            return Verdict::Wait;
        }
        let Some(shown) = self.shown(request, exchange) else {
            return Verdict::Now(self.authentication.refuse(self.missing(), exchange));
        };
        exchange.token_in_query |= !shown.in_header;
        let now_ms = self.authentication.clock.now_ms();
        let tokens = self.tokens.as_ref();
        let Some(token) = tokens.and_then(|tokens| tokens.at_hand(&shown.text, now_ms)) else {
            return Verdict::Wait;
        };
        self.hide(&shown, request, exchange);
        Verdict::Now(self.settle(Some(&token), exchange))
    }

    async fn on_request_slow(&self, session: &mut Session, exchange: &mut Exchange) -> Flow {
        let flow = self.decide(session.req_header(), exchange).await;
        let request = session.req_header_mut();
        if let Some(shown) = self.shown(request, exchange) {
            self.hide(&shown, request, exchange);
        }
        flow
    }

    async fn explain(
        &self,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Option<FilterExplanation> {
        if self.authentication.is_spared(exchange) {
            return Some(FilterExplanation::passes(
                "a credential has let the request in",
            ));
        }
        if Endpoint::of(request.uri.path()).is_some() {
            return Some(FilterExplanation::depends("what the application asks for"));
        }
        let Some(shown) = self.shown(request, exchange) else {
            let refusal = self.missing();
            return Some(self.authentication.foresee_refusal(&refusal, exchange));
        };
        let now_ms = self.authentication.clock.now_ms();
        let token = self.tokens.as_ref()?.find(&shown.text, now_ms).await.ok()?;
        let judged = self.judge(token.as_deref(), exchange);
        Some(self.authentication.explain(judged, exchange))
    }

    fn wants_body(&self, request: &RequestHeader, _: &Exchange) -> bool {
        if Endpoint::of(request.uri.path()).is_some() {
            return has_body(&request.method);
        }
        let query = request.uri.query().unwrap_or_default();
        !request.headers.contains_key(&self.config.auth_header_name)
            && !query.contains(ACCESS_TOKEN)
            && may_be_in_body(request)
    }

    fn needs_body(&self) -> bool {
        true
    }

    fn on_upstream_request(&self, exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
        identity::write(exchange, request);
        for (name, value) in &exchange.vouched {
            if *name == SCOPE || *name == USER {
                request.fields().insert(name.clone(), value.clone());
            }
        }
    }

    fn owned_headers(&self) -> &[HeaderName] {
        &identity::HEADERS
    }
}
