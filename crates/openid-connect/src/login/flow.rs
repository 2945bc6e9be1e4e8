//! Signing users in: to the provider and back, and their sessions afterwards.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http::{HeaderValue, StatusCode};
use pingora::http::RequestHeader;
use serde_json::Value;

use crate::OpenIdConnect;
use crate::authorize;
use crate::authorize::VerifiedRequest;
use crate::config::Config;
use crate::config::methods::Method;
use crate::credentials::arguments::{Arguments, Where, retarget};
use crate::decide::refusal::Refusal;
use crate::embedding;
use crate::login::jarm::open_jarm_response;
use crate::login::login_action::{Action, IssuedTokens};
use crate::login::{
    self, CodeClaim, LoginRequest, Logins, PendingLogin, PreservedRequest, origin, page,
};
use crate::provider::client::ProviderClient;
use crate::provider::id_token_verification::verify_id_token;
use crate::provider::introspection::RequestContext;
use crate::provider::token_cache::VerifiedToken;
use crate::provider::token_endpoint::Tokens;
use crate::session::creation;
use crate::session::{Browser, LoginSession, OpenSession, SessionLookup};
use doorward_net::http::provider_error::describe;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_oidc_client::authorization::is_from_provider;
use doorward_oidc_client::metadata::is_true;
use doorward_plugin_api::filter::{Exchange, Flow};

/// Where the provider's answer may be.
const ANSWER: Where = Where {
    header: false,
    query: true,
    body: true,
};

/// Sends the browser to the provider.
pub(crate) async fn begin_login(
    plugin: &OpenIdConnect,
    logins: &Logins,
    session: &mut Session,
    arguments: &Arguments,
    exchange: &mut Exchange,
) -> Result<Flow, Refusal> {
    let provider_client = &plugin.provider_client;
    let origin = origin(session.req_header(), exchange);
    let preserved = logins.preserved.as_ref();
    let preserved =
        preserved.filter(|preserved| preserved.accepts(session.req_header(), origin.as_deref()));
    if preserved.is_some() && exchange.body.is_none() {
        exchange.body = Some(crate::credentials::bearer::body::read(session).await?);
    }
    let request = session.req_header();
    let clients = &plugin.config().clients;
    let client = clients.chosen(&request.headers, arguments);
    let client = client.and_then(|client| clients.named(&client.id));
    let (client, index) = client.ok_or(Refusal::NoToken)?;
    let wanted = LoginRequest {
        request,
        arguments,
        secure: exchange.secure,
        origin: origin.as_deref(),
        path: &login::path(request, exchange),
        now_ms: provider_client.clock.now_ms(),
    };
    let mut cookies = Vec::new();
    let (pending, parameters) = logins.begin((client, index), wanted, &mut cookies)?;
    let request_mode = plugin.config().request_mode;
    let address = request_mode.address(
        (provider_client, &plugin.par),
        client,
        parameters,
        exchange.client.ip(),
    );
    let address = address.await?;
    if let (Some(preserved), Some(body)) = (preserved, &exchange.body) {
        preserved.store(&pending.nonce, request, exchange.route, body.clone());
    }
    exchange.response_headers.append(&mut cookies);
    plugin.logins_begun.inc();
    exchange.refusal = Some(Cow::Borrowed("login"));
    redirect(address.as_str())
}

/// Ends the login that the provider's answer in a request belongs to.
pub(crate) async fn end_login(
    plugin: &OpenIdConnect,
    logins: &Logins,
    session: &mut Session,
    arguments: &Arguments,
    exchange: &mut Exchange,
) -> Result<Flow, Refusal> {
    let given = |name| {
        let found = arguments.only(name, ANSWER);
        found.map_err(|_| Refusal::MalformedCallback)
    };
    let signed = if logins.uses_jarm() {
        let response = given("response")?.ok_or(Refusal::UnsignedAnswer)?;
        Some({
            let issuers = &plugin.config().rules.issuers;
            let opened = open_jarm_response(&plugin.provider_client, issuers, logins, response);
            opened.await?
        })
    } else {
        None
    };
    let answer = |name| match &signed {
        Some(claims) => Ok(claims.get(name).and_then(Value::as_str)),
        None => given(name),
    };
    let state = answer("state")?.ok_or(Refusal::MalformedCallback)?;
    let pending = logins.find(state)?;
    let request = session.req_header();
    let now_ms = plugin.provider_client.clock.now_ms();
    let state = state.to_owned();
    let state = state.as_str();
    // Whatever comes of it leads back to where the login began: nobody else
    // may have begun it.
    logins.check_browser(&pending, request, exchange)?;
    // Whoever is in already goes on, however late or often this comes.
    if let Some(sessions) = &plugin.sessions
        && let SessionLookup::Active(login, _) = sessions.find(&request.headers, now_ms).await?
        && creation::accepts_session(plugin, &login)
        && !sessions.has_run_out(&login, now_ms)
    {
        return redirect(&pending.address());
    }
    logins.check(&pending, state, now_ms)?;
    check_issuer_of_callback(plugin.config(), &plugin.provider_client, answer("iss")?).await?;
    if let Some(error) = answer("error")? {
        let said = describe(error, answer("error_description")?);
        tracing::info!(error = said, "the provider refused a login");
        logins.end(state);
        if plugin.embedding.is_some() {
            let description = answer("error_description")?.unwrap_or_default();
            let description: String = description.chars().take(300).collect();
            embedding::note_failure(&describe(error, None), &description, exchange);
        }
        let refused = plugin.refuse_as_told(Refusal::LoginRefused, &said, exchange);
        return Ok(refused);
    }
    let code = answer("code")?.ok_or(Refusal::MalformedCallback)?;
    let claim = logins.claim(state, code)?;
    let client = plugin.config().clients.named(&pending.client);
    let context = RequestContext {
        client: client.map(|(client, _)| client),
        headers: &request.headers,
        arguments,
        from: Some(exchange.client.ip()),
    };
    let login = redeem_code(plugin, logins, &pending, (code, claim), &context);
    let (login, verified, tokens) = login.await?;
    let verified = authorize::enrich(plugin, verified, &context).await?;
    let mut token_set = tokens.token_set();
    let id = login.id.clone();
    token_set.session_id = plugin.sessions.is_some().then_some(id.as_str());
    let passing = VerifiedRequest {
        verified: &verified,
        token_set,
        method: Method::AuthorizationCode,
        in_query: false,
    };
    let flow = authorize::authorize(plugin, passing, request, exchange);
    if let Flow::Respond(_) = flow {
        return Ok(flow);
    }
    finish_login(plugin, &login, &pending, logins, session, exchange).await
}

/// RFC 9207: the answer must be of the provider that was asked.
async fn check_issuer_of_callback(
    config: &Config,
    provider: &ProviderClient,
    issuer: Option<&str>,
) -> Result<(), Refusal> {
    let metadata = provider.metadata().await?;
    let promised = metadata.member("authorization_response_iss_parameter_supported");
    let issuers = &config.rules.issuers;
    let is_own = |issuer: &str| issuers.answers_as(issuer, &metadata.issuer);
    if is_from_provider(issuer, is_true(promised), is_own) {
        Ok(())
    } else {
        Err(Refusal::MixedUp)
    }
}

async fn redeem_code(
    plugin: &OpenIdConnect,
    logins: &Logins,
    pending: &PendingLogin,
    (code, claim): (&str, CodeClaim),
    context: &RequestContext<'_>,
) -> Result<(OpenSession, Arc<VerifiedToken>, Arc<Tokens>), Refusal> {
    let token_client = plugin.token_client.as_ref().ok_or(Refusal::NoEndpoint)?;
    context.client.ok_or(Refusal::ForgedState)?;
    let form = [
        ("code", code),
        ("redirect_uri", &pending.redirect_uri),
        ("code_verifier", &pending.verifier),
    ];
    // From before the question: a logout that comes while it is asked is of this
    // session, too.
    let now_ms = plugin.provider_client.clock.now_ms();
    let tokens = token_client.redeem(&form, context, claim).await?;
    match &tokens.id {
        Some(id) => {
            let by = Method::AuthorizationCode;
            let nonce = Some(pending.nonce.as_str());
            verify_id_token(
                plugin.config(),
                &plugin.provider_client,
                id.expose(),
                tokens.access.expose(),
                (&pending.client, None),
                nonce,
                by,
            )
            .await?;
        }
        None if logins.wants_id_token() => return Err(Refusal::NoIdToken),
        None => {}
    }
    let login = LoginSession {
        id_token: tokens.id.as_ref().map(|id| id.expose().to_owned()),
        refresh: tokens.refresh.as_ref().map(|one| one.expose().to_owned()),
        // RFC 6749 §5.1: what was asked for, if it is not named.
        scope: tokens.scope.clone().or_else(|| logins.scope()),
        ends_at: tokens.ends_at,
        unverified: tokens.id.is_some()
            && !plugin
                .config()
                .verifies_id_tokens(Method::AuthorizationCode),
        ..LoginSession::begun(&pending.client, tokens.access.expose(), now_ms)
    };
    let login = OpenSession::fresh(login);
    let exempt = &plugin.config().signature_exemptions;
    let verified = if exempt.has(Method::AuthorizationCode) {
        plugin.verify_exempt_session(&login, context.from).await?
    } else {
        plugin.verify_session(&login, context.from).await?
    };
    if login.id_token.is_none() {
        // Nobody but the access token can vouch for it.
        let rules = &plugin.config().rules;
        rules.check_login(&verified.token.claims, now_ms.div_euclid(1000))?;
    }
    Ok((login, verified, tokens))
}

/// Gives the browser its session, and the user what was asked for.
async fn finish_login(
    plugin: &OpenIdConnect,
    login: &OpenSession,
    pending: &PendingLogin,
    logins: &Logins,
    session: &mut Session,
    exchange: &mut Exchange,
) -> Result<Flow, Refusal> {
    if let Some(sessions) = &plugin.sessions {
        let now_ms = plugin.provider_client.clock.now_ms();
        let from = exchange.client.ip();
        let browser = Browser {
            headers: &session.req_header().headers,
            secure: exchange.secure,
            fields: &mut exchange.response_headers,
        };
        if sessions.begin(login, browser, from, now_ms).await? {
            sessions.tell(login, now_ms, exchange);
        }
    }
    let login_action = &plugin.config().login_action;
    match login_action.action {
        Action::Upstream => {
            let preserved = logins.preserved.as_ref();
            let resent = preserved.and_then(|preserved| preserved.take(&pending.nonce));
            // What came by another route has not passed the filters of its
            // own, and would go to another upstream.
            let here = resent
                .as_ref()
                .is_none_or(|resent| resent.route == exchange.route);
            if here && pending.is_at(session.req_header(), exchange) {
                restore(pending, resent.as_deref(), session, exchange)?;
                return Ok(Flow::Continue);
            }
            match resent.as_deref() {
                Some(resent) if resent.is_form() => Ok(Flow::Respond(page::resend(
                    &pending.address(),
                    &resent.body,
                ))),
                _ => redirect(&pending.address()),
            }
        }
        Action::Response => {
            let issued = IssuedTokens::by_login(login, plugin.provider_client.clock.now_ms());
            Ok(Flow::Respond(login_action.response(&issued)))
        }
        Action::Redirect => {
            let index = plugin.config().clients.named(&pending.client);
            let address = pending.address();
            let issued = IssuedTokens::by_login(login, plugin.provider_client.clock.now_ms());
            redirect(&login_action.address(&issued, index.map_or(0, |(_, index)| index), &address))
        }
    }
}

impl PendingLogin {
    /// Where the login leads back to: always to where it began.
    pub(crate) fn address(&self) -> String {
        format!("{}{}", self.origin, self.target)
    }

    /// Its target at a path where the gateway finds what the browser asked for.
    fn target_at(&self, path: &str) -> String {
        match self.target.split_once('?') {
            Some((_, query)) => format!("{path}?{query}"),
            None => path.to_owned(),
        }
    }

    /// Whether a request goes to the path where the login began.
    fn is_at(&self, request: &RequestHeader, exchange: &Exchange) -> bool {
        let path = self.target.split('?').next();
        path == Some(&*login::path(request, exchange))
            && origin(request, exchange).as_deref() == Some(&self.origin)
    }
}

/// Makes the request the one that wanted the login.
fn restore(
    pending: &PendingLogin,
    resent: Option<&PreservedRequest>,
    session: &mut Session,
    exchange: &mut Exchange,
) -> Result<(), Refusal> {
    let request = session.req_header_mut();
    let target = pending.target_at(request.uri.path());
    if !retarget(request, &target) {
        return Err(Refusal::MalformedCallback);
    }
    if let Some(resent) = resent {
        request.set_method(resent.method.clone());
        let _ = request.insert_header(CONTENT_TYPE, resent.content_type.clone());
        request.remove_header(&CONTENT_LENGTH);
        exchange.replacement = Some(resent.body.clone());
        return Ok(());
    }
    if request.method == http::Method::POST {
        request.set_method(http::Method::GET);
        request.remove_header(&CONTENT_TYPE);
        request.remove_header(&CONTENT_LENGTH);
        exchange.replacement = Some(Bytes::new());
    }
    Ok(())
}

/// Sends the browser to an address, of which nothing may be remembered.
pub(crate) fn redirect(address: &str) -> Result<Flow, Refusal> {
    let address = HeaderValue::from_str(address).map_err(|_| Refusal::MalformedCallback)?;
    Ok(Flow::Respond(
        Reply::empty(StatusCode::FOUND)
            .header(LOCATION, address)
            .header(CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ))
}
