//! What would become of a request, for an operator who asks. It goes the way of
//! requests, with the same keys, answers and sessions, and asks the provider what
//! they would ask about tokens; but it redeems, refreshes, begins, ends and counts
//! nothing.

use std::borrow::Cow;
use std::sync::Arc;

use pingora::http::RequestHeader;

use crate::OpenIdConnect;
use crate::authorize;
use crate::config::Config;
use crate::config::methods::Method;
use crate::credentials::Credential;
use crate::credentials::arguments::Arguments;
use crate::credentials::bearer::BearerToken;
use crate::decide::cors;
use crate::decide::refusal::Refusal;
use crate::logout::channels;
use crate::provider::introspection::RequestContext;
use crate::provider::proof_of_possession;
use crate::provider::token_cache::VerifiedToken;
use crate::provider::token_exchange::ExchangeDecision;
use crate::session::decision;
use crate::session::{OpenSession, Sessions};
use doorward_plugin_api::filter::{Code, Exchange, FilterExplanation};

const LOGIN: Code = Code::new("login", 302, "the user is sent to the provider to sign in");

const LOGOUT: Code = Code::new(
    "logout",
    302,
    "the user signs out; 200 where nothing leads on from here",
);

pub(crate) const PREFLIGHT: Code = Code::new(
    "preflight",
    204,
    "the browser learns that a script of an origin that is named may ask",
);

/// What log and metrics call what the plugin does.
pub(crate) fn codes() -> Vec<Code> {
    let refusals = Refusal::ALL.iter().map(|refusal| code(*refusal));
    let others = [LOGIN, LOGOUT, PREFLIGHT]
        .into_iter()
        .chain(channels::codes());
    refusals.chain(others).collect()
}

fn code(refusal: Refusal) -> Code {
    let (code, meaning) = refusal.describe();
    Code::new(code, refusal.class().status().as_u16(), meaning)
}

/// What would become of a request of which the head is known.
///
/// # Errors
/// Why it would be refused.
pub(crate) async fn explain_request(
    plugin: &OpenIdConnect,
    request: &RequestHeader,
    exchange: &mut Exchange,
) -> Result<FilterExplanation, Refusal> {
    if plugin.passes_as_preflight(request) {
        return Ok(FilterExplanation::passes(
            "a preflight request passes unasked",
        ));
    }
    if plugin.preflight(request).is_some() {
        return Ok(FilterExplanation::answers(&PREFLIGHT));
    }
    let given = Arguments::new(request.uri.query(), Vec::new());
    if let Some(explanation) = explain_login(plugin, request, exchange, &given) {
        return Ok(explanation);
    }
    let context = plugin.request_context(request, &given, exchange.client.ip());
    let mut void = Refusal::NoToken;
    if let Some(sessions) = &plugin.sessions {
        match decision::session_of(plugin, sessions, request, exchange).await? {
            Err(refusal) => void = refusal,
            Ok(found) => {
                return explain_session(
                    plugin,
                    (sessions, &found.login),
                    &context,
                    request,
                    exchange,
                )
                .await;
            }
        }
    }
    if plugin.takes_tokens()
        && let Some(found) = plugin.config().places.find(request)?
    {
        return explain_token(plugin, &found, &context, request, exchange).await;
    }
    if plugin.token_client.is_some()
        && let Some(shown) = plugin.config().search.find(&request.headers, &given)?
    {
        return Ok(FilterExplanation::depends(match shown.credential {
            Credential::RefreshToken(_) => {
                "what the provider gives for the refresh token, which is not tried: it may be \
                 good only once"
            }
            Credential::Pair(_) => {
                "what the provider gives for the name and its password or secret"
            }
        }));
    }
    if plugin.may_be_in_body(request) && request.headers.contains_key("content-type") {
        return Ok(FilterExplanation::depends(
            "the body, in which a credential may be",
        ));
    }
    let logins = plugin.logins.as_ref();
    if logins.is_some_and(|logins| logins.is_callback_without_state(request, &given, exchange)) {
        return Err(Refusal::MalformedCallback);
    }
    explain_anonymous(plugin, void, request)
}

/// Logouts, and ends of logins.
fn explain_login(
    plugin: &OpenIdConnect,
    request: &RequestHeader,
    exchange: &Exchange,
    given: &Arguments,
) -> Option<FilterExplanation> {
    let channels = plugin.channels.as_ref();
    if channels.is_some_and(|channels| channels.asked(request).is_some()) {
        return Some(FilterExplanation::depends(
            "the logout that the provider asks for",
        ));
    }
    if let Some(logout) = &plugin.logout {
        if logout.is_asked_in_head(request, exchange) {
            return Some(FilterExplanation::answers(&LOGOUT));
        }
        if logout.may_be_asked_in_body(request) {
            return Some(FilterExplanation::depends(
                "whether the body asks for a logout",
            ));
        }
    }
    let logins = plugin.logins.as_ref()?;
    if logins.is_callback(request, given, exchange) || logins.may_be_posted(request) {
        let reason = "the provider's answer to a login, which can be used only once";
        return Some(FilterExplanation::depends(reason));
    }
    logins
        .is_landing(request)
        .then(|| FilterExplanation::passes("the page that reads the provider's answer is given"))
}

async fn explain_session(
    plugin: &OpenIdConnect,
    (sessions, login): (&Arc<Sessions>, &Arc<OpenSession>),
    context: &RequestContext<'_>,
    request: &RequestHeader,
    exchange: &mut Exchange,
) -> Result<FilterExplanation, Refusal> {
    let now_ms = plugin.provider_client.clock.now_ms();
    let refreshable = sessions.refreshes && login.refresh.is_some();
    if refreshable && !sessions.is_fresh(login, now_ms) {
        let reason = "the next access token of the session: the provider is asked for it";
        return Ok(FilterExplanation::depends(reason));
    }
    let verified = plugin.verify_session(login, context.from).await?;
    let verified = authorize::enrich(plugin, verified, context).await?;
    if has_proof(plugin.config(), request) {
        return Ok(FilterExplanation::depends(PROOF));
    }
    authorize::proof_of_session(plugin, &verified, request, exchange)?;
    explain_user(plugin, &verified, Method::Session, request, exchange)
}

async fn explain_token(
    plugin: &OpenIdConnect,
    found: &BearerToken<'_>,
    context: &RequestContext<'_>,
    request: &RequestHeader,
    exchange: &mut Exchange,
) -> Result<FilterExplanation, Refusal> {
    let mut token = Cow::Borrowed(found.token.as_ref());
    if let Some(exchange) = &plugin.token_exchange {
        match exchange.decide(&token, context, plugin.verifier.metadata().as_deref()) {
            ExchangeDecision::NotNeeded => {}
            ExchangeDecision::Cached(given) => {
                token = given.tokens.access.expose().to_owned().into()
            }
            ExchangeDecision::Needed => return Ok(FilterExplanation::depends(EXCHANGE)),
        }
    }
    let (verified, method) = plugin.verify_or_fetch(&token, context).await?;
    let verified = authorize::enrich(plugin, verified, context).await?;
    if has_proof(plugin.config(), request) {
        return Ok(FilterExplanation::depends(PROOF));
    }
    let shown = (found.token.as_ref(), found.as_dpop);
    authorize::proof_of(plugin, shown, &verified, request, exchange)?;
    explain_user(plugin, &verified, method, request, exchange)
}

/// Whether a proof would be used up by looking at it.
pub(crate) fn has_proof(config: &Config, request: &RequestHeader) -> bool {
    config.proofs.is_some() && request.headers.contains_key(&proof_of_possession::DPOP)
}

fn explain_user(
    plugin: &OpenIdConnect,
    verified: &Arc<VerifiedToken>,
    method: Method,
    request: &RequestHeader,
    exchange: &mut Exchange,
) -> Result<FilterExplanation, Refusal> {
    let consumer = authorize::consumer_of(plugin, verified, method, request)?;
    authorize::identify(plugin, &verified.token, consumer, exchange);
    exchange.token = Some(Arc::clone(&verified.token));
    Ok(FilterExplanation::passes(format!(
        "{} is good",
        method.name()
    )))
}

/// Who shows nothing, or what is `void`.
fn explain_anonymous(
    plugin: &OpenIdConnect,
    void: Refusal,
    request: &RequestHeader,
) -> Result<FilterExplanation, Refusal> {
    let script = plugin.config().scripts && cors::is_script(&request.headers);
    if plugin.logins.is_none() || script {
        return Err(void);
    }
    let (code, meaning) = void.describe();
    Ok(FilterExplanation::Answers {
        status: LOGIN.status,
        code: LOGIN.code.to_owned(),
        reason: format!("{code}: {meaning}; {}", LOGIN.meaning),
    })
}

/// What a refusal comes to: a request may pass as that of nobody.
pub(crate) fn explain_refusal(
    plugin: &OpenIdConnect,
    refusal: Refusal,
    request: &RequestHeader,
    exchange: &mut Exchange,
) -> FilterExplanation {
    let mut refusal = refusal;
    if let Some(anonymous) = &plugin.config().anonymous
        && refusal.is_of_client()
    {
        exchange.consumer = anonymous.consumer(&plugin.consumers);
        if exchange.consumer.is_some() {
            let (code, meaning) = refusal.describe();
            return FilterExplanation::passes(format!(
                "as the anonymous consumer, since {code}: {meaning}"
            ));
        }
        refusal = Refusal::NoAnonymous;
    }
    let reply = plugin
        .config()
        .error_responses
        .to(refusal, authorize::client_index(plugin.config(), request));
    let Code { code, meaning, .. } = code(refusal);
    FilterExplanation::Answers {
        status: reply.status.as_u16(),
        code: code.to_owned(),
        reason: meaning.to_owned(),
    }
}

/// Of what an answer depends on that was not asked for.
const EXCHANGE: &str = "the token that is given for this one: the provider is asked for it";
const PROOF: &str = "the proof of possession, which can be used only once and is not tried";
