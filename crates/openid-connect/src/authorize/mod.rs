//! The final authorization of a request whose credential is good: its proof of
//! possession, its consumer, and what the upstream and the client get to know.
//!
//! [`rules`] says what the claims of a token have to hold, [`consumer`] maps a
//! token to a consumer.

pub(crate) mod consumer;
pub mod rules;

use std::sync::Arc;

use http::StatusCode;
use pingora::http::RequestHeader;
use serde_json::Value;

use crate::OpenIdConnect;
use crate::config::Config;
use crate::config::methods::Method;
use crate::credentials::arguments::Arguments;
use crate::credentials::bearer::BearerToken;
use crate::decide::cors;
use crate::decide::refusal::Refusal;
use crate::headers::token_set::TokenSet;
use crate::login::flow::redirect;
use crate::login::login_action::{Action, IssuedTokens};
use crate::provider::introspection::RequestContext;
use crate::provider::proof_of_possession::{self, ProofSatisfied, ValidProof};
use crate::provider::token_cache::VerifiedToken;
use crate::session::liveness;
use doorward_core::jose::verify::Unverified;
use doorward_core::model::token::AccessToken;
use doorward_net::session::cookie;
use doorward_plugin_api::consumers::{Caller, Directory};
use doorward_plugin_api::filter::{Exchange, Flow};

/// A token that is good, and how it came.
#[derive(Clone, Copy)]
pub(crate) struct VerifiedRequest<'a> {
    pub(crate) verified: &'a Arc<VerifiedToken>,
    pub(crate) token_set: TokenSet<'a>,
    pub(crate) method: Method,
    pub(crate) in_query: bool,
}

/// The proof that a request with this token brings, if it has to; `shown`: the
/// token, and whether it came as `Authorization: DPoP`.
///
/// # Errors
/// What is missing or wrong.
pub(crate) fn proof_of(
    plugin: &OpenIdConnect,
    shown: (&str, bool),
    verified: &VerifiedToken,
    request: &RequestHeader,
    exchange: &mut Exchange,
) -> Result<Option<ValidProof>, Refusal> {
    let Some(proofs) = &plugin.config().proofs else {
        return Ok(None);
    };
    let metadata = plugin.verifier.metadata();
    let at = (metadata.as_deref(), plugin.provider_client.clock.now_secs());
    proofs.check(shown, &verified.token.claims, request, exchange, at)
}

/// As [`proof_of`] for a session, where sessions have to prove something.
///
/// # Errors
/// What is missing or wrong.
pub(crate) fn proof_of_session(
    plugin: &OpenIdConnect,
    verified: &VerifiedToken,
    request: &RequestHeader,
    exchange: &mut Exchange,
) -> Result<Option<ValidProof>, Refusal> {
    let proofs = plugin.config().proofs.as_ref();
    if !proofs.is_some_and(|proofs| proofs.of_sessions) {
        return Ok(None);
    }
    let as_dpop = request.headers.contains_key(&proof_of_possession::DPOP);
    let shown = (verified.token.token.as_ref(), as_dpop);
    proof_of(plugin, shown, verified, request, exchange)
}

/// Uses up the proof of a request, if it has to bring one.
///
/// # Errors
/// What is wrong with the proof, or that it was used before.
pub(crate) async fn consume_proof(
    plugin: &OpenIdConnect,
    proof: Option<ValidProof>,
    verified: &VerifiedToken,
) -> Result<ProofSatisfied, Refusal> {
    if let Some(proven) = ProofSatisfied::without(proof.as_ref()) {
        return Ok(proven);
    }
    let proofs = plugin.config().proofs.as_ref();
    let (Some(proofs), Some(proof)) = (proofs, proof) else {
        return Err(Refusal::WrongProof);
    };
    let metadata = plugin.verifier.metadata();
    let at = (metadata.as_deref(), plugin.provider_client.clock.now_secs());
    proofs.consume(&proof, &verified.token.claims, at).await
}

/// Lets a request pass that shows a token of its own and has proven what it
/// has to.
pub(crate) fn authorize_token(
    plugin: &OpenIdConnect,
    (verified, _proven): (&Arc<VerifiedToken>, ProofSatisfied),
    method: Method,
    found: &BearerToken<'_>,
    id_token: Option<&str>,
    request: &RequestHeader,
    exchange: &mut Exchange,
) -> Flow {
    let token_set = TokenSet {
        id_token,
        ..TokenSet::default()
    };
    let verified_request = VerifiedRequest {
        verified,
        token_set,
        method,
        in_query: found.in_query,
    };
    authorize(plugin, verified_request, request, exchange)
}

/// Whom a token that is good counts as, if as anybody.
///
/// # Errors
/// What is not as it should be, although the token is good.
pub(crate) fn consumer_of(
    plugin: &OpenIdConnect,
    verified: &Arc<VerifiedToken>,
    method: Method,
    request: &RequestHeader,
) -> Result<Option<Arc<Caller>>, Refusal> {
    let (config, claims) = (plugin.config(), &verified.token.claims);
    // An ID token or userinfo may have named it after the token was judged.
    config.rules.require_domain(claims)?;
    // A bearer's token is signed; others may be, too.
    let signed = || Unverified::parse(&verified.token.token).is_ok();
    if let Some((name, claim)) = &config.session_cookie
        && (method == Method::Bearer || (method.is_of_token() && signed()))
    {
        let session = claims.get(claim).and_then(Value::as_str);
        if session.is_none() || session != cookie::value(&request.headers, name) {
            return Err(Refusal::WrongSession);
        }
    }
    let Some(mapping) = &config.mapping else {
        return Ok(None);
    };
    let find = |directory: &dyn Directory| mapping.find(claims, directory);
    let consumer = verified.consumer.consumer(&plugin.consumers, find);
    if consumer.is_none() && !mapping.optional {
        Err(Refusal::NoConsumer)
    } else {
        Ok(consumer)
    }
}

/// Says whom the request comes from. Of the plugins that authenticate, the last one decides,
/// also where it maps nobody: the token's user is not whom another credential has named.
pub(crate) fn identify(
    plugin: &OpenIdConnect,
    token: &AccessToken,
    consumer: Option<Arc<Caller>>,
    exchange: &mut Exchange,
) {
    exchange.consumer = consumer;
    exchange.credential = None;
    exchange.token_signature = None;
    exchange.is_signed = false;
    exchange.authenticated_groups = plugin.config().headers.groups(token);
}

/// Lets the request pass with its token, or gives the caller what logins
/// by this method are answered with.
pub(crate) fn authorize(
    plugin: &OpenIdConnect,
    verified_request: VerifiedRequest<'_>,
    request: &RequestHeader,
    exchange: &mut Exchange,
) -> Flow {
    let (config, verified) = (plugin.config(), verified_request.verified);
    let token = &verified.token;
    if config.rules.are_pending(&token.claims) {
        return plugin.refuse(Refusal::ClaimsElsewhere, exchange);
    }
    match consumer_of(plugin, verified, verified_request.method, request) {
        Ok(consumer) => identify(plugin, token, consumer, exchange),
        Err(refusal) => return plugin.refuse(refusal, exchange),
    }
    if !config.headers.token_set.is_empty() {
        let metadata = plugin.verifier.metadata();
        let headers = &config.headers.token_set;
        headers.write(
            verified,
            verified_request.token_set,
            metadata.as_deref(),
            exchange,
        );
    }
    let replayed = verified_request.token_set.replayed.iter().cloned();
    exchange.response_headers.extend(replayed);
    exchange.token = Some(Arc::clone(token));
    exchange.token_in_query = verified_request.in_query;
    if let Some(embedding) = &plugin.embedding {
        embedding.tell(
            verified_request,
            plugin.provider_client.clock.now_ms(),
            exchange,
        );
    }
    liveness::limit_lifetime(plugin, verified, None, request, exchange);
    plugin.passed.inc();
    match config.login_action.of(verified_request.method) {
        None | Some(Action::Upstream) => Flow::Continue,
        Some(action) => respond_with_tokens(plugin, action, verified_request, request, exchange),
    }
}

/// Answers a login with its tokens.
fn respond_with_tokens(
    plugin: &OpenIdConnect,
    action: Action,
    verified_request: VerifiedRequest<'_>,
    request: &RequestHeader,
    exchange: &mut Exchange,
) -> Flow {
    let login_action = &plugin.config().login_action;
    let now_ms = plugin.provider_client.clock.now_ms();
    let issued = IssuedTokens::by_token(
        verified_request.verified,
        verified_request.token_set,
        now_ms,
    );
    if action == Action::Response {
        return Flow::Respond(login_action.response(&issued));
    }
    let query = request.uri.query().filter(|_| !verified_request.in_query);
    let back = query.map_or_else(String::new, |query| format!("?{query}"));
    let address = login_action.address(&issued, client_index(plugin.config(), request), &back);
    redirect(&address).unwrap_or_else(|refusal| plugin.refuse(refusal, exchange))
}

/// What is known of a user, with what userinfo says and what is told
/// elsewhere, if that is wanted and remembered.
pub(crate) fn enrich_cached(
    plugin: &OpenIdConnect,
    verified: Arc<VerifiedToken>,
) -> Option<Arc<VerifiedToken>> {
    let verified = match &plugin.user_info {
        None => verified,
        Some(_) if verified.responses.user_info.is_some() => verified,
        Some(user_info) => user_info.cached(&verified)?,
    };
    match &plugin.distributed {
        None => Some(verified),
        Some(distributed) => distributed.cached(verified),
    }
}

/// As [`enrich_cached`], asking if need be.
///
/// # Errors
/// Why userinfo or somebody else does not tell.
pub(crate) async fn enrich(
    plugin: &OpenIdConnect,
    verified: Arc<VerifiedToken>,
    context: &RequestContext<'_>,
) -> Result<Arc<VerifiedToken>, Refusal> {
    let verified = match &plugin.user_info {
        None => verified,
        Some(user_info) => user_info.enrich(verified, context).await?,
    };
    match &plugin.distributed {
        None => Ok(verified),
        Some(distributed) => distributed.enrich(verified).await,
    }
}

/// The last touch on an answer of the filter: addresses by client, and what
/// scripts can make use of.
pub(crate) fn finish(
    plugin: &OpenIdConnect,
    flow: Flow,
    request: &RequestHeader,
    exchange: &mut Exchange,
) -> Flow {
    let Flow::Respond(mut reply) = flow else {
        return flow;
    };
    let config = plugin.config();
    let refusal = exchange.refusal.as_deref().and_then(Refusal::named);
    let by_client = config.error_responses.differ_by_client() && reply.status == StatusCode::FOUND;
    if let Some(refusal) = refusal.filter(|_| by_client) {
        reply = config
            .error_responses
            .to(refusal, client_index(plugin.config(), request));
    }
    if config.scripts && cors::is_script(&request.headers) {
        let redirects = reply.status == StatusCode::FOUND;
        let plain = refusal.filter(|_| redirects);
        let plain = plain.map(|refusal| config.error_responses.plain(refusal));
        let how = (&config.origins, plugin.logins.is_some());
        reply = cors::answer(plain.unwrap_or(reply), how, request, exchange);
    }
    Flow::Respond(reply)
}

/// The place of the client that a request chooses by its head.
pub(crate) fn client_index(config: &Config, request: &RequestHeader) -> usize {
    let arguments = Arguments::new(request.uri.query(), Vec::new());
    let clients = &config.clients;
    clients.chosen_index(&request.headers, &arguments)
}
