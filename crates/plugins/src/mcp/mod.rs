//! The `mcp` plugin: a server of the Model Context Protocol behind the door is a
//! protected resource (RFC 9728), whose tokens are for it alone (RFC 8707).
//!
//! The `openid-connect` plugin checks tokens; `config` says what it is to check.
//! This filter adds what clients of the protocol need: metadata, challenges that
//! name them, rules for pages of other origins, and rules on single calls.

mod calls;
mod config;
mod fields;
mod json_text;
mod labels;
mod list_text;
mod lists;
mod member_names;
mod message;
mod rules;
mod sessions;
mod step_up;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use http::header::{
    ACCEPT_ENCODING, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, HOST, ORIGIN,
    VARY, WWW_AUTHENTICATE,
};
use http::uri::Authority;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::{Map, Value};
use url::form_urlencoded;

use config::Config;
use doorward_core::jose::verify::Unverified;
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::outbound::Outbound;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_net::telemetry::metrics::Counter;
use doorward_openid_connect as openid_connect;
use doorward_openid_connect::refusal::Refusal;
use doorward_plugin_api::filter::{
    Code, Exchange, Filter, FilterExplanation, Flow, ProtectedResource, ResponseFlow, Verdict,
};
use doorward_plugin_api::{ConfigError, Kind, Parts};
use fields::{EarlyFields, Field, LaterFields};
use labels::CallLabels;
use sessions::Sessions;

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "mcp",
    priority: 1051,
    of_consumers: false,
    schema: config::schema,
    codes: || {
        let own = [
            FOREIGN_ORIGIN,
            TOKEN_IN_QUERY,
            FOREIGN_TOKEN,
            sessions::UNKNOWN,
        ];
        own.into_iter().chain(calls::CODES).collect()
    },
    build,
};

const FOREIGN_ORIGIN: Code = Code::new(
    "foreign_origin",
    403,
    "mcp: the page of another origin may not call (allowed_origins)",
);
const TOKEN_IN_QUERY: Code = Code::new(
    "token_in_query",
    400,
    "mcp: a token is in the query, where logs and other sites may see it",
);

const FOREIGN_TOKEN: Code = Code::new(
    "foreign_token",
    401,
    "mcp: the token can't be read, or is not for the resource, and would be exchanged",
);

/// For explanations alone: it is no refusal.
const PREFLIGHT: Code = Code::new("preflight", 204, "a page asks what it may send");

/// What pages may send (the protocol's transports, all revisions).
const HEADERS: HeaderValue = HeaderValue::from_static(
    "Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Method, Mcp-Name, \
     Mcp-Session-Id, Last-Event-ID",
);
/// Most headers for parameters that a page is allowed at once.
const MAX_PARAMETERS: usize = 64;
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE, OPTIONS");
const EXPOSED: HeaderValue =
    HeaderValue::from_static("WWW-Authenticate, Mcp-Session-Id, MCP-Protocol-Version");
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");
const BY_ORIGIN: HeaderValue = HeaderValue::from_static("Origin");

/// A running filter.
struct Mcp {
    config: Config,
    /// What checks tokens.
    plugin: Arc<dyn Filter>,
    refused: Counter,
    /// What calls are called in metrics and the access log.
    labels: CallLabels,
    /// Where a provider in this process is asked about its clients.
    outbound: Arc<Outbound>,
    /// Whose the sessions of the protocol are, where that is looked at.
    sessions: Option<Sessions>,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Config::read(config, &parts.constants)?;
    let kind = &openid_connect::KIND;
    let complete = (kind.schema)().complete(config.checks.clone());
    let complete = complete.map_err(|violations| ConfigError {
        field: "issuer".to_owned(),
        message: format!("openid-connect: {}", violations.message()),
    })?;
    let plugin = (kind.build)(&complete, parts).map_err(|error| ConfigError {
        field: "issuer".to_owned(),
        message: format!("openid-connect: {error}"),
    })?;
    let labels = CallLabels::of(&config.rules, parts.metrics.clone());
    let sessions = config.binds_sessions.then(|| Sessions::of(parts));
    Ok(Arc::new(Mcp {
        config,
        plugin,
        labels,
        outbound: Arc::clone(&parts.outbound),
        sessions,
        refused: parts.metrics.decision(KIND.name, "refuse"),
    }))
}

impl Mcp {
    /// The origin of the page that sent the request, if it may read the answer.
    fn shared_with<'r>(&self, request: &'r RequestHeader) -> Option<&'r HeaderValue> {
        request
            .headers
            .get(ORIGIN)
            .filter(|origin| self.allows(origin))
    }

    fn allows(&self, origin: &HeaderValue) -> bool {
        let is = |known: &str| known == "*" || origin.as_bytes() == known.as_bytes();
        let mut own = self.config.addresses.iter();
        own.any(|own| is(&own.origin)) || self.config.origins.iter().any(|known| is(known))
    }

    /// The address by which the client knows the resource, among those that the
    /// configuration names; its own address, if that can't be told.
    fn address(&self, request: &RequestHeader) -> Option<&ProtectedResource> {
        let all = &self.config.addresses;
        let authority = authority(request);
        let is_here = |one: &&ProtectedResource| {
            (authority.as_ref()).is_some_and(|at| one.is_at(at.host(), at.port_u16()))
        };
        let here = || all.iter().filter(is_here);
        let exact = here().find(|one| one.path == request.uri.path());
        exact.or_else(|| here().next()).or(all.first())
    }

    /// What is wrong with a request whatever its token.
    fn obstacle(&self, request: &RequestHeader, fields: &EarlyFields) -> Option<&'static Code> {
        let is_foreign = match fields.origin {
            Field::Absent => false,
            Field::Single(origin) => !self.allows(origin),
            // No page sends two.
            Field::Repeated => true,
        };
        if is_foreign {
            return Some(&FOREIGN_ORIGIN);
        }
        if request.uri.query().is_some_and(has_token) {
            return Some(&TOKEN_IN_QUERY);
        }
        let audiences = self.config.exchanged_from.as_deref()?;
        let first = tokens(request).next().map(bare_token);
        // Of two tokens one might be verified, and the other be believed.
        let is_foreign = |token| Some(bare_token(token)) != first || !is_for(token, audiences);
        tokens(request).any(is_foreign).then_some(&FOREIGN_TOKEN)
    }

    /// The answer to a request that needs no look at its token.
    fn answered_early(
        &self,
        request: &RequestHeader,
        fields: &EarlyFields,
        exchange: &mut Exchange,
    ) -> Option<Reply> {
        if let Some(code) = self.obstacle(request, fields) {
            return Some(self.refuse(code, request, exchange));
        }
        is_preflight(request).then(|| {
            Reply::empty(StatusCode::NO_CONTENT)
                .header(ACCESS_CONTROL_ALLOW_METHODS, METHODS)
                .header(ACCESS_CONTROL_ALLOW_HEADERS, allowed_headers(request))
                .header(ACCESS_CONTROL_MAX_AGE, MAX_AGE)
        })
    }

    fn refuse(
        &self,
        code: &'static Code,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Reply {
        self.refused.inc();
        exchange.refusal = Some(Cow::Borrowed(code.code));
        let (status, text, error) = match code.status {
            403 => return Reply::message(StatusCode::FORBIDDEN, "Forbidden"),
            401 => (StatusCode::UNAUTHORIZED, "Unauthorized", "invalid_token"),
            _ => (StatusCode::BAD_REQUEST, "Bad request", "invalid_request"),
        };
        self.challenged(request, Reply::message(status, text), Some(error), None)
    }

    /// The decision of the plugin that checks tokens, with the challenge that
    /// clients of the protocol go by.
    fn finish(&self, flow: Flow, request: &RequestHeader, exchange: &Exchange) -> Flow {
        let Flow::Respond(mut reply) = flow else {
            return flow;
        };
        let refusal = exchange.refusal.as_deref().and_then(Refusal::named);
        let why = refusal.map(|refusal| refusal.describe().1);
        let error = match (reply.status, refusal) {
            // Nothing was shown, so nothing is wrong with it.
            (StatusCode::UNAUTHORIZED, Some(Refusal::NoToken)) => {
                return Flow::Respond(self.challenged(request, reply, None, None));
            }
            (StatusCode::UNAUTHORIZED, _) => "invalid_token",
            // A token of another server: signing in again helps. Where it was exchanged,
            // it is the provider that gave another audience, and nothing helps.
            (StatusCode::FORBIDDEN, Some(Refusal::WrongAudience))
                if self.config.exchanged_from.is_none() =>
            {
                reply.status = StatusCode::UNAUTHORIZED;
                "invalid_token"
            }
            (StatusCode::FORBIDDEN, Some(Refusal::MissingScope)) => "insufficient_scope",
            (StatusCode::BAD_REQUEST, _) => "invalid_request",
            // No other token would help: a challenge would only lead in a circle.
            _ => {
                reply.headers.retain(|(name, _)| name != WWW_AUTHENTICATE);
                return Flow::Respond(reply);
            }
        };
        Flow::Respond(self.challenged(request, reply, Some(error), why))
    }

    /// `reply` with one challenge in the place of its own (RFC 6750 section 3,
    /// RFC 9728 section 5.1).
    fn challenged(
        &self,
        request: &RequestHeader,
        reply: Reply,
        error: Option<&str>,
        why: Option<&str>,
    ) -> Reply {
        self.challenged_for(&self.config.scopes, request, reply, error, why)
    }

    /// The same, for a call that needs these scopes.
    fn challenged_for(
        &self,
        scopes: &[String],
        request: &RequestHeader,
        mut reply: Reply,
        error: Option<&str>,
        why: Option<&str>,
    ) -> Reply {
        reply.headers.retain(|(name, _)| name != WWW_AUTHENTICATE);
        let mut challenge = "Bearer ".to_owned();
        if let Some(error) = error {
            challenge += &format!("error=\"{error}\", ");
        }
        if let Some(ProtectedResource { origin, path, .. }) = self.address(request) {
            let place = ProtectedResource::WELL_KNOWN;
            challenge += &format!("resource_metadata=\"{origin}{place}{path}\"");
        }
        if !scopes.is_empty() {
            challenge += &format!(", scope=\"{}\"", scopes.join(" "));
        }
        if let Some(why) = why {
            challenge += &format!(", error_description=\"{why}\"");
        }
        match HeaderValue::try_from(challenge) {
            Ok(challenge) => reply.header(WWW_AUTHENTICATE, challenge),
            Err(_) => reply,
        }
    }

    /// Whether the server would get the very token that the client has shown, where it
    /// is to get another one.
    fn is_unexchanged(&self, request: &RequestHeader, exchange: &Exchange) -> bool {
        let (Some(_), Some(good)) = (&self.config.exchanged_from, &exchange.token) else {
            return false;
        };
        tokens(request).any(|shown| bare_token(shown) == &*good.token)
    }

    /// What becomes of a request whose token is good.
    fn admitted(
        &self,
        fields: LaterFields,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Verdict {
        if let Some(sessions) = &self.sessions
            && fields.names_session
            && !sessions.lets_in(session.req_header(), exchange)
        {
            self.refused.inc();
            exchange.refusal = Some(Cow::Borrowed(sessions::UNKNOWN.code));
            return Verdict::Now(Flow::Respond(sessions::refusal()));
        }
        if self.is_unexchanged(session.req_header(), exchange) {
            let reply = self.refuse(&FOREIGN_TOKEN, session.req_header(), exchange);
            return Verdict::Now(Flow::Respond(reply));
        }
        if self.looks_at_calls() {
            return self.begin_calls(fields, session, exchange);
        }
        Verdict::Now(Flow::Continue)
    }

    /// Waits for what is to be known of the token, and then decides on the message.
    async fn check_token(&self, session: &mut Session, exchange: &mut Exchange) -> Flow {
        let flow = match step_up::LackingScope::take(exchange) {
            Some(reply) => Flow::Respond(reply),
            None => self.plugin.on_request_slow(session, exchange).await,
        };
        let flow = match flow {
            Flow::Respond(reply) if step_up::lacks_scope(exchange) => {
                return self.refuse_for_scope(reply, session, exchange).await;
            }
            flow => flow,
        };
        let flow = self.finish(flow, session.req_header(), exchange);
        if matches!(flow, Flow::Respond(_)) {
            return flow;
        }
        let later = EarlyFields::of(&session.req_header().headers).later;
        if let Verdict::Now(flow) = self.admitted(later, session, exchange) {
            return flow;
        }
        self.decide_calls(later.message, session, exchange).await
    }

    fn share(&self, request: &RequestHeader, response: &mut ResponseHeader) {
        let Some(origin) = self.shared_with(request) else {
            return;
        };
        // Names and values are sound: nothing can fail.
        let _ = response.insert_header(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        let _ = response.insert_header(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        let _ = response.append_header(VARY, BY_ORIGIN);
    }
}

/// Where tokens may be, as the plugin that checks them has it.
const TOKENS: [HeaderName; 3] = [
    AUTHORIZATION,
    HeaderName::from_static("access-token"),
    HeaderName::from_static("x-access-token"),
];

/// What a request shows where tokens may be.
fn tokens(request: &RequestHeader) -> impl Iterator<Item = &HeaderValue> {
    let all = TOKENS.into_iter();
    all.flat_map(|name| request.headers.get_all(name))
}

/// Host and port that the client speaks to.
fn authority(request: &RequestHeader) -> Option<Authority> {
    let named = request.uri.authority().cloned();
    let by_header = || {
        let host = request.headers.get(HOST)?;
        Authority::try_from(host.as_bytes()).ok()
    };
    named.or_else(by_header)
}

/// Whether a token can be read, and names one of these audiences. Its signature is
/// checked when it is exchanged.
fn is_for(token: &HeaderValue, audiences: &[String]) -> bool {
    let claims = Unverified::parse(bare_token(token)).and_then(|token| token.claims_of_anyone());
    match claims.as_ref().ok().and_then(|claims| claims.get("aud")) {
        Some(Value::String(one)) => audiences.contains(one),
        Some(Value::Array(all)) => all.iter().any(|one| audiences.iter().any(|own| one == own)),
        _ => false,
    }
}

/// The token of a field, without its scheme.
fn bare_token(field: &HeaderValue) -> &str {
    let text = field.to_str().unwrap_or_default().trim();
    text.rsplit(' ').next().unwrap_or_default()
}

/// Whether a query has a token.
fn has_token(query: &str) -> bool {
    let mut parameters = form_urlencoded::parse(query.as_bytes());
    parameters.any(|(name, _)| name == "access_token")
}

/// Whether the request of a page only asks what it may do (Fetch standard).
fn is_preflight(request: &RequestHeader) -> bool {
    request.method == Method::OPTIONS && request.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The headers that a page may send: those of the protocol, and of those that it asks
/// for the ones that repeat parameters of tools (`Mcp-Param-…`).
fn allowed_headers(request: &RequestHeader) -> HeaderValue {
    let asked = request.headers.get_all(ACCESS_CONTROL_REQUEST_HEADERS);
    let asked = asked.iter().filter_map(|value| value.to_str().ok());
    let names = asked.flat_map(|value| value.split(','));
    let names = names.filter_map(|name| HeaderName::try_from(name.trim()).ok());
    let of_parameters = names.filter(|name| name.as_str().starts_with("mcp-param-"));
    let mut allowed = String::new();
    for name in of_parameters.take(MAX_PARAMETERS) {
        allowed += ", ";
        allowed += name.as_str();
    }
    if allowed.is_empty() {
        return HEADERS;
    }
    allowed.insert_str(0, HEADERS.to_str().unwrap_or_default());
    HeaderValue::try_from(allowed).unwrap_or(HEADERS)
}

#[async_trait]
impl Filter for Mcp {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        let request = session.req_header();
        let fields = EarlyFields::of(&request.headers);
        if let Some(reply) = self.answered_early(request, &fields, exchange) {
            return Verdict::Now(Flow::Respond(reply));
        }
        exchange.awaits_events = fields.awaited_events(&request.method);
        let later = fields.later;
        match self.plugin.on_request(session, exchange) {
            Verdict::Now(Flow::Continue) => self.admitted(later, session, exchange),
            Verdict::Now(Flow::Respond(reply)) if step_up::lacks_scope(exchange) => {
                exchange.notes.push(Box::new(step_up::LackingScope(reply)));
                Verdict::Wait
            }
            Verdict::Now(flow) => Verdict::Now(self.finish(flow, session.req_header(), exchange)),
            Verdict::Wait => Verdict::Wait,
        }
    }

    fn on_request_slow<'life0, 'life1, 'life2, 'async_trait>(
        &'life0 self,
        session: &'life1 mut Session,
        exchange: &'life2 mut Exchange,
    ) -> Pin<Box<dyn Future<Output = Flow> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        Self: 'async_trait,
    {
        if calls::is_admitted(exchange) {
            // Most of those that wait need no more than their body.
            let later = EarlyFields::of(&session.req_header().headers).later;
            return Box::pin(self.decide_calls(later.message, session, exchange));
        }
        Box::pin(self.check_token(session, exchange))
    }

    async fn explain(
        &self,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Option<FilterExplanation> {
        let fields = EarlyFields::of(&request.headers);
        if let Some(code) = self.obstacle(request, &fields) {
            return Some(FilterExplanation::answers(code));
        }
        if is_preflight(request) {
            return Some(FilterExplanation::answers(&PREFLIGHT));
        }
        let explanation = self.plugin.explain(request, exchange).await;
        match explanation {
            Some(FilterExplanation::Passes { .. }) if self.may_have_calls(request) => Some(
                FilterExplanation::depends("the rules want the message in the body"),
            ),
            explanation => explanation,
        }
    }

    fn sees_responses(&self) -> bool {
        self.looks_at_calls()
    }

    fn sees_response(&self, exchange: &Exchange) -> bool {
        calls::listing(exchange).is_some()
    }

    async fn on_upstream_response(
        &self,
        _: &RequestHeader,
        exchange: &mut Exchange,
        response: &mut ResponseHeader,
    ) -> ResponseFlow {
        match calls::listing(exchange) {
            Some(listing) => listing.clone().flow(response),
            None => ResponseFlow::Continue,
        }
    }

    fn on_upstream_request(&self, exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
        self.plugin.on_upstream_request(exchange, request);
        // It is checked here. A server that knows no other name than its own would
        // refuse the pages that the configuration allows.
        request.remove(&ORIGIN);
        if calls::listing(exchange).is_some() {
            request.fields().insert(ACCEPT_ENCODING, calls::IDENTITY);
        }
    }

    fn on_response_to(
        &self,
        request: &RequestHeader,
        exchange: &Exchange,
        response: &mut ResponseHeader,
    ) {
        self.plugin.on_response_to(request, exchange, response);
        if let Some(sessions) = &self.sessions {
            sessions.note(request, exchange, response);
        }
        self.share(request, response);
    }

    fn on_own_response(
        &self,
        request: &RequestHeader,
        exchange: &Exchange,
        response: &mut ResponseHeader,
    ) {
        self.plugin.on_own_response(request, exchange, response);
        self.share(request, response);
    }

    fn owned_headers(&self) -> &[HeaderName] {
        self.plugin.owned_headers()
    }

    fn secret_fields(&self) -> Vec<&str> {
        self.plugin.secret_fields()
    }

    fn protected_resource(&self) -> &[ProtectedResource] {
        &self.config.addresses
    }

    fn discovered_issuers(&self) -> Vec<String> {
        self.plugin.discovered_issuers()
    }

    fn warnings(&self) -> Vec<String> {
        self.plugin.warnings()
    }
}
