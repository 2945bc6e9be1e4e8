//! `AuthorizationCodeOAuth2ClientFilter` of route files: users sign in at an
//! OpenID provider before their requests go on.
//!
//! The `openid-connect` plugin does the work; `config` and `registration`
//! translate what a route file declares, and [`ClientFilter`] adds the service
//! URIs below `clientEndpoint`: `/login`, `/callback` and `/logout`.

mod config;
mod endpoints;
mod registration;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use http::{HeaderName, StatusCode};
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::{Map, Value};

use super::chain::{ChainKind, ObjectLookup};
use config::Config;
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_openid_connect::embedding::{embed, forget, note_failure};
use doorward_openid_connect::refusal::Refusal;
use doorward_plugin_api::filter::{
    Exchange, Filter, FilterExplanation, Flow, SessionKeeper, Verdict,
};
use doorward_plugin_api::{ConfigError, Parts};
use endpoints::{Endpoint, Endpoints};

/// The type's line in the registry.
pub(super) const KIND: ChainKind = ChainKind {
    types: &["AuthorizationCodeOAuth2ClientFilter", "OAuth2ClientFilter"],
    build,
};

/// What the log calls the redirect that begins a login.
const LOGIN: &str = "login";

fn build(
    config: &Map<String, Value>,
    parts: &Parts,
    named: ObjectLookup<'_>,
) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Config::read(config, parts, named)?;
    let plugin = embed(&config.plugin, parts, config.embedding).map_err(|error| ConfigError {
        field: String::new(),
        message: format!("openid-connect: {error}"),
    })?;
    Ok(Arc::new(ClientFilter {
        warnings: [config.warnings, plugin.warnings()].concat(),
        plugin,
        endpoints: config.endpoints,
        require_https: config.require_https,
        is_optional: config.is_optional,
        target: config.target,
    }))
}

/// Lets requests pass of users who have signed in.
struct ClientFilter {
    plugin: Arc<dyn Filter>,
    endpoints: Endpoints,
    require_https: bool,
    /// Whether requests without a login pass.
    is_optional: bool,
    /// The attribute in which later filters find what is known of the user.
    target: Option<Box<str>>,
    warnings: Vec<String>,
}

impl ClientFilter {
    /// The answer to a request that is refused before the plugin sees it.
    fn refused_early(&self, request: &RequestHeader, exchange: &mut Exchange) -> Option<Reply> {
        forget(exchange, self.target.as_deref());
        if self.require_https && !exchange.secure {
            let (code, sentence) = Refusal::InsecureRequest.describe();
            return Some(refuse(StatusCode::FORBIDDEN, (code, sentence), exchange));
        }
        if !self.endpoints.accepts(request, exchange) {
            let reason = (
                "malformed_request",
                "the goto or the registration is not allowed",
            );
            return Some(refuse(StatusCode::BAD_REQUEST, reason, exchange));
        }
        None
    }

    /// The last touch on a decision of the plugin.
    fn finish(&self, flow: Flow, request: &RequestHeader, exchange: &mut Exchange) -> Flow {
        let refusal = exchange.refusal.as_deref().and_then(Refusal::named);
        if let (Flow::Respond(_), Some(refusal)) = (&flow, refusal) {
            let (code, sentence) = refusal.describe();
            note_failure(code, sentence, exchange);
            return flow;
        }
        let endpoint = self.endpoints.of(request);
        match (endpoint, flow) {
            (Some(Endpoint::Login | Endpoint::Callback), Flow::Continue) => {
                Flow::Respond(self.endpoints.signed_in(request, exchange))
            }
            (Some(Endpoint::Logout), Flow::Respond(reply)) => {
                Flow::Respond(self.endpoints.signed_out(reply, request, exchange))
            }
            (_, flow) => flow,
        }
    }
}

fn refuse(
    status: StatusCode,
    (code, sentence): (&'static str, &str),
    exchange: &mut Exchange,
) -> Reply {
    exchange.refusal = Some(Cow::Borrowed(code));
    note_failure(code, sentence, exchange);
    Reply::empty(status)
}

#[async_trait]
impl Filter for ClientFilter {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        if let Some(reply) = self.refused_early(session.req_header(), exchange) {
            return Verdict::Now(Flow::Respond(reply));
        }
        match self.plugin.on_request(session, exchange) {
            Verdict::Now(flow) => Verdict::Now(self.finish(flow, session.req_header(), exchange)),
            Verdict::Wait => Verdict::Wait,
        }
    }

    async fn on_request_slow(&self, session: &mut Session, exchange: &mut Exchange) -> Flow {
        let flow = self.plugin.on_request_slow(session, exchange).await;
        self.finish(flow, session.req_header(), exchange)
    }

    async fn explain(
        &self,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Option<FilterExplanation> {
        match self.plugin.explain(request, exchange).await {
            Some(FilterExplanation::Answers { code, .. }) if self.is_optional && code == LOGIN => {
                Some(FilterExplanation::passes(
                    "nobody has signed in, which is not required",
                ))
            }
            explanation => explanation,
        }
    }

    fn needs_body(&self) -> bool {
        self.plugin.needs_body()
    }

    fn on_upstream_request(&self, exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
        self.plugin.on_upstream_request(exchange, request);
    }

    fn on_response(&self, exchange: &Exchange, response: &mut ResponseHeader) {
        self.plugin.on_response(exchange, response);
    }

    fn owned_headers(&self) -> &[HeaderName] {
        self.plugin.owned_headers()
    }

    fn gives_cookies(&self) -> bool {
        self.plugin.gives_cookies()
    }

    fn owns_cookie(&self, name: &str, value: &str) -> bool {
        self.plugin.owns_cookie(name, value)
    }

    fn names_cookie(&self, name: &[u8]) -> bool {
        self.plugin.names_cookie(name)
    }

    fn session_keeper(&self) -> Option<&dyn SessionKeeper> {
        self.plugin.session_keeper()
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}
