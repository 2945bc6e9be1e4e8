//! Sessions for callers who show a credential of their own: the next request may
//! show the cookie in its place.

use std::sync::Arc;

use pingora::http::RequestHeader;

use crate::OpenIdConnect;
use crate::config::methods::Method;
use crate::decide::refusal::Refusal;
use crate::login::origin;
use crate::login::site::Site;
use crate::provider::client::ProviderClient;
use crate::provider::client_auth::Client;
use crate::provider::token_cache::VerifiedToken;
use crate::provider::token_endpoint::TokenGrant;
use crate::session::{Browser, Caller, LoginSession, Sessions, TokenSession};
use doorward_plugin_api::filter::Exchange;

/// Where a credential was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CredentialPlace {
    Head,
    Query,
    Body,
}

/// What a caller was let in by.
pub(crate) struct SessionSource<'a> {
    pub(crate) method: Method,
    pub(crate) place: CredentialPlace,
    pub(crate) client: Option<Arc<Client>>,
    pub(crate) access: &'a str,
    /// One that was verified when its caller was let in.
    pub(crate) id_token: Option<&'a str>,
    pub(crate) refresh: Option<&'a str>,
    pub(crate) scope: Option<&'a str>,
    /// When the access token ends, in milliseconds, where that is known.
    pub(crate) ends_at: Option<i64>,
    /// Whether no signature vouches for the ID token.
    unverified: bool,
}

impl<'a> SessionSource<'a> {
    /// By a token of the caller's own, of which this is known.
    pub(crate) fn by_token(
        (method, place): (Method, CredentialPlace),
        client: Option<Arc<Client>>,
        verified: &'a VerifiedToken,
        id_token: Option<&'a str>,
    ) -> Self {
        Self {
            method,
            place,
            client,
            access: &verified.token.token,
            id_token,
            refresh: None,
            scope: None,
            ends_at: verified.ends_for_good.then_some(verified.ends_at),
            unverified: false,
        }
    }

    /// By what the provider gave tokens for.
    pub(crate) fn by_grant(
        given: &'a TokenGrant,
        place: CredentialPlace,
        client: Option<Arc<Client>>,
    ) -> Self {
        let token_set = given.tokens.token_set();
        Self {
            method: given.method,
            place,
            client,
            access: given.tokens.access.expose(),
            id_token: token_set.id_token,
            refresh: token_set.refresh_token,
            scope: token_set.scope,
            ends_at: given.tokens.ends_at,
            unverified: false,
        }
    }

    fn login(&self, needs_introspection: bool, now_ms: i64) -> LoginSession {
        let client = self.client.as_ref();
        let client = client.map_or("", |client| client.id.as_str());
        LoginSession {
            by: self.method,
            id_token: self.id_token.map(str::to_owned),
            refresh: self.refresh.map(str::to_owned),
            scope: self.scope.map(str::to_owned),
            ends_at: self.ends_at,
            needs_introspection,
            unverified: self.unverified,
            ..LoginSession::begun(client, self.access, now_ms)
        }
    }
}

/// The sessions that callers get who were let in by this method.
pub(crate) fn sessions_by(plugin: &OpenIdConnect, method: Method) -> Option<&Arc<Sessions>> {
    let sessions = plugin.sessions.as_ref();
    sessions.filter(|sessions| sessions.begin_by(method) && !requires_more_than(plugin, method))
}

/// Whether a session is good here by what it was begun by, at another plugin
/// perhaps: it must not stand for a credential that would be refused.
pub(crate) fn accepts_session(plugin: &OpenIdConnect, login: &LoginSession) -> bool {
    let methods = plugin.config().methods;
    // Of a token that only the provider knows, nothing is known here.
    let unreadable =
        login.needs_introspection && login.by.is_of_token() && plugin.introspector.is_none();
    methods.take_sessions_of(login.by)
        && !requires_more_than(plugin, login.by)
        && !unreadable
        && !misses_signature(plugin, login)
}

/// Whether another plugin has taken an ID token as it came that would have been
/// verified here.
fn misses_signature(plugin: &OpenIdConnect, login: &LoginSession) -> bool {
    login.unverified && plugin.config().verifies_id_tokens(plugin.vouched_by(login))
}

/// Whether more is asked of who shows a token than it and the next cookie show.
fn requires_more_than(plugin: &OpenIdConnect, method: Method) -> bool {
    let config = plugin.config();
    let strict = config.proofs.is_some()
        || config.session_cookie.is_some()
        || plugin.token_exchange.is_some();
    strict && method.is_of_token()
}

/// The session that was begun for a token before, if its caller may have it.
pub(crate) fn token_session(
    provider: &ProviderClient,
    sessions: &Sessions,
    (method, access): (Method, &str),
    request: &RequestHeader,
    exchange: &Exchange,
) -> Option<Arc<TokenSession>> {
    let now_ms = provider.clock.now_ms();
    sessions.of_token((method, access), caller(request, exchange), now_ms)
}

/// Has a caller who was let in keep a session.
pub(crate) fn set_token_session_cookie(
    provider: &ProviderClient,
    sessions: &Sessions,
    token_session: &TokenSession,
    request: &RequestHeader,
    exchange: &mut Exchange,
) {
    if !is_let_in(exchange) {
        return;
    }
    let browser = Browser {
        headers: &request.headers,
        secure: exchange.secure,
        fields: &mut exchange.response_headers,
    };
    match sessions.set_cookie(token_session, browser) {
        Ok(()) => sessions.tell(&token_session.held, provider.clock.now_ms(), exchange),
        Err(refusal) => missing(refusal),
    }
}

/// Gives a caller who was let in a session, where that is on. Without one the
/// credential is good all the same.
pub(crate) async fn create_session(
    plugin: &OpenIdConnect,
    source: SessionSource<'_>,
    request: &RequestHeader,
    exchange: &mut Exchange,
) {
    if !is_let_in(exchange) {
        return;
    }
    let Some(sessions) = sessions_by(plugin, source.method) else {
        return;
    };
    let verifies = plugin.config().verifies_id_tokens(source.method);
    let source = SessionSource {
        unverified: source.id_token.is_some() && !verifies,
        ..source
    };
    // Other sites can make browsers show credentials of others by links and
    // forms: their users would act for somebody else without notice.
    let own = origin(request, exchange);
    let chosen = match source.place {
        CredentialPlace::Head => true,
        CredentialPlace::Query => false,
        CredentialPlace::Body => Site::of(request, own.as_deref()) != Site::Other,
    };
    if !chosen {
        return;
    }
    let shown = (source.method, source.access);
    let existing = token_session(&plugin.provider_client, sessions, shown, request, exchange);
    let token_session = match existing {
        Some(token_session) => Ok(Some(token_session)),
        None => {
            let clock = &plugin.provider_client.clock;
            let login = source.login(needs_introspection(plugin, &source), clock.now_ms());
            let caller = caller(request, exchange);
            sessions.begin_of_token(login, caller, clock).await
        }
    };
    match token_session {
        Ok(Some(token_session)) => set_token_session_cookie(
            &plugin.provider_client,
            sessions,
            &token_session,
            request,
            exchange,
        ),
        Ok(None) => tracing::debug!("a token has begun as many sessions as it may"),
        Err(refusal) => missing(refusal),
    }
}

/// Whether only the provider tells what an access token says.
fn needs_introspection(plugin: &OpenIdConnect, source: &SessionSource<'_>) -> bool {
    let asked = || {
        let reads = doorward_core::jose::verify::Unverified::parse(source.access).is_ok();
        plugin.introspector.is_some() && (plugin.config().introspects_all || !reads)
    };
    matches!(source.method, Method::Introspection | Method::Userinfo) || asked()
}

fn is_let_in(exchange: &Exchange) -> bool {
    exchange.token.is_some() && exchange.refusal.is_none()
}

fn caller<'a>(request: &'a RequestHeader, exchange: &Exchange) -> Caller<'a> {
    Caller {
        headers: &request.headers,
        from: exchange.client.ip(),
        secure: exchange.secure,
    }
}

fn missing(refusal: Refusal) {
    let (code, _) = refusal.describe();
    doorward_net::telemetry::warn_limited!(code, "a caller with a good credential gets no session");
}
