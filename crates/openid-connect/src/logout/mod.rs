//! Logout: sessions that users end here and at the provider (RFC 7009, OpenID
//! Connect RP-Initiated Logout), and logouts that the provider asks for.

pub(crate) mod channels;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, StatusCode};
use pingora::http::RequestHeader;

use crate::OpenIdConnect;
use crate::config::Config;
use crate::config::address::Address;
use crate::config::fields::Fields;
use crate::config::fields::login::LogoutMethod;
use crate::credentials::arguments::Arguments;
use crate::decide::refusal::Refusal;
use crate::login::flow::redirect;
use crate::login::path;
use crate::provider::client::EndpointRequest;
use crate::provider::client::ProviderClient;
use crate::provider::client_auth::nth;
use crate::provider::endpoints::Endpoint;
use crate::session::{Browser, LoginSession, OpenSession, Sessions};
use doorward_net::http::reply::Reply;
use doorward_plugin_api::filter::{Exchange, Flow};

/// How long a browser has to end its session at the provider before the refresh
/// token is revoked.
const AT_PROVIDER: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 10 });

/// A token that is revoked (RFC 7009 §2.1).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hint {
    Refresh,
    Access,
}

impl Hint {
    pub(crate) const ALL: [Self; 2] = [Self::Refresh, Self::Access];

    fn name(self) -> &'static str {
        match self {
            Self::Refresh => "refresh_token",
            Self::Access => "access_token",
        }
    }
}

/// How requests ask for a logout, and what is done then.
#[derive(Debug)]
pub(crate) struct Logout {
    methods: Vec<Method>,
    query: Option<String>,
    body: Option<String>,
    suffix: Option<String>,
    revokes_access: bool,
    revokes_refresh: bool,
    revocation_parameter: String,
    addresses: Vec<Address>,
    /// Whether the browser goes on to end its session at the provider.
    pub(super) ends_provider_session: bool,
}

impl Logout {
    /// `None`: there is no way to ask for one.
    pub(crate) fn new(fields: &Fields) -> Option<Self> {
        let text = |text: Option<&str>| {
            let text = text.filter(|text| !text.is_empty());
            text.map(str::to_owned)
        };
        let revokes = fields.login.logout_revoke;
        let methods = fields
            .login
            .logout_methods
            .iter()
            .map(|method| match method {
                LogoutMethod::Get => Method::GET,
                LogoutMethod::Post => Method::POST,
                LogoutMethod::Delete => Method::DELETE,
            });
        let logout = Self {
            methods: methods.collect(),
            query: text(fields.responses.logout_query_arg.as_deref()),
            body: text(fields.responses.logout_post_arg.as_deref()),
            suffix: text(fields.responses.logout_uri_suffix.as_deref()),
            revokes_access: revokes && fields.responses.logout_revoke_access_token,
            revokes_refresh: revokes && fields.responses.logout_revoke_refresh_token,
            revocation_parameter: text(Some(&fields.client.revocation_token_param_name))
                .unwrap_or_else(|| "token".to_owned()),
            addresses: fields.responses.logout_redirect_uri.clone(),
            ends_provider_session: true,
        };
        let any = logout.query.is_some() || logout.body.is_some() || logout.suffix.is_some();
        any.then_some(logout)
    }

    /// Whether the head of a request asks for a logout, as far as it tells.
    pub(crate) fn is_asked_in_head(&self, request: &RequestHeader, exchange: &Exchange) -> bool {
        if !self.methods.contains(&request.method) {
            return false;
        }
        let ends = |end: &String| path(request, exchange).ends_with(end);
        let by_path = self.suffix.as_ref().is_some_and(ends);
        let by_query = self.query.as_ref().is_some_and(|name| {
            let query = request.uri.query().unwrap_or_default();
            let mut pairs = url::form_urlencoded::parse(query.as_bytes());
            pairs.any(|(key, _)| key == *name)
        });
        by_path || by_query
    }

    /// Whether its body has to be read to know.
    pub(crate) fn may_be_asked_in_body(&self, request: &RequestHeader) -> bool {
        self.body.is_some()
            && self.methods.contains(&request.method)
            && request.headers.contains_key(CONTENT_TYPE)
            && crate::credentials::bearer::body::is_read_ahead(request)
    }

    /// Whether a body asks for a logout.
    pub(crate) fn is_asked_in_body(&self, request: &RequestHeader, given: &Arguments) -> bool {
        let named = self.body.as_ref();
        self.methods.contains(&request.method) && named.is_some_and(|name| given.has_in_body(name))
    }
}

/// Ends the session of a request, and leads the browser to the provider to
/// end that there.
pub(crate) async fn handle_logout(
    plugin: &OpenIdConnect,
    logout: &Logout,
    sessions: &Sessions,
    request: &RequestHeader,
    exchange: &mut Exchange,
) -> Result<Flow, Refusal> {
    // First of all: whoever has a copy is out while tokens are revoked. Where it
    // can't be said, the browser keeps its cookie, to come again with it.
    let logins = match end_shown(&plugin.provider_client, logout, sessions, request).await {
        Ok(logins) => logins,
        Err(refusal) => return Ok(comes_again(plugin, refusal, exchange)),
    };
    sessions.forget(Browser {
        headers: &request.headers,
        secure: exchange.secure,
        fields: &mut exchange.response_headers,
    });
    plugin.logouts.inc();
    let end_session = if logout.ends_provider_session {
        plugin.provider_client.url(Endpoint::EndSession).await.ok()
    } else {
        None
    };
    let from = Some(exchange.client.ip());
    for login in &logins {
        match end_session {
            Some(_) => revoke_around(plugin, logout, login, from).await,
            None => {
                revoke(
                    plugin.config(),
                    &plugin.provider_client,
                    logout,
                    (login, from),
                    &Hint::ALL,
                )
                .await
            }
        }
    }
    let login = logins.first();
    let client = login.as_ref().map(|login| login.client.as_str());
    let clients = &plugin.config().clients;
    let client = client.and_then(|id| clients.named(id));
    let client = client.or_else(|| clients.first());
    let index = client.map_or(0, |(_, index)| index);
    let back = nth(&logout.addresses, index);
    if let Some(mut url) = end_session {
        let mut query = url.query_pairs_mut();
        if let Some(id_token) = login.as_ref().and_then(|login| login.id_token.as_ref()) {
            query.append_pair("id_token_hint", id_token);
        }
        if let Some((client, _)) = client {
            query.append_pair("client_id", &client.id);
        }
        if let Some(back) = back {
            query.append_pair("post_logout_redirect_uri", back.as_str());
        }
        drop(query);
        return redirect(url.as_str());
    }
    match back {
        Some(back) => redirect(back.as_str()),
        None => Ok(Flow::Respond(Reply::message(StatusCode::OK, "Logged out"))),
    }
}

/// Ends the sessions that a request shows: the browser's own, and the one that
/// is remembered.
///
/// # Errors
/// [`Refusal::SessionStoreUnavailable`]: they may go on.
async fn end_shown(
    provider: &ProviderClient,
    logout: &Logout,
    sessions: &Sessions,
    request: &RequestHeader,
) -> Result<Vec<Arc<OpenSession>>, Refusal> {
    let now_ms = provider.clock.now_ms();
    let mut logins = sessions.find_or_restore(&request.headers, now_ms).await?;
    for login in &mut logins {
        if logout.revokes_access || logout.revokes_refresh {
            *login = sessions.current(login, now_ms).await?;
        }
        sessions.end(login, now_ms).await?;
    }
    Ok(logins)
}

/// Refuses what can be done later.
fn comes_again(plugin: &OpenIdConnect, refusal: Refusal, exchange: &mut Exchange) -> Flow {
    let mut flow = plugin.refuse(refusal, exchange);
    if let Flow::Respond(reply) = &mut flow
        && reply.status == StatusCode::INTERNAL_SERVER_ERROR
    {
        reply.status = StatusCode::SERVICE_UNAVAILABLE;
    }
    flow
}

/// Revokes the access token now, and the refresh token a little later: with
/// that many providers end their session, and could not sign the user out
/// further up any more when the browser comes to end it.
async fn revoke_around(
    plugin: &OpenIdConnect,
    logout: &Logout,
    login: &Arc<OpenSession>,
    from: Option<IpAddr>,
) {
    revoke(
        plugin.config(),
        &plugin.provider_client,
        logout,
        (login, from),
        &[Hint::Access],
    )
    .await;
    let (Some(me), true) = (plugin.me.upgrade(), logout.revokes_refresh) else {
        return;
    };
    let login = Arc::clone(login);
    tokio::spawn(async move {
        tokio::time::sleep(AT_PROVIDER).await;
        if let Some(logout) = &me.logout {
            revoke(
                me.config(),
                &me.provider_client,
                logout,
                (&login, from),
                &[Hint::Refresh],
            )
            .await;
        }
    });
}

/// Revokes these tokens of the session, which was ended from this address, as far as
/// the provider does and the configuration says; the user is out here in any case.
pub(crate) async fn revoke(
    config: &Config,
    provider: &ProviderClient,
    logout: &Logout,
    (login, from): (&LoginSession, Option<IpAddr>),
    which: &[Hint],
) {
    let client = config.clients.named(&login.client);
    for hint in which {
        let token = match hint {
            Hint::Refresh => login.refresh.as_deref().filter(|_| logout.revokes_refresh),
            Hint::Access => Some(login.access.as_str()).filter(|_| logout.revokes_access),
        };
        let Some(token) = token else { continue };
        let hint = hint.name();
        let form = vec![
            (logout.revocation_parameter.clone(), token.to_owned()),
            ("token_type_hint".to_owned(), hint.to_owned()),
        ];
        let answer = provider.post(EndpointRequest {
            from,
            endpoint: Endpoint::Revocation,
            client: client.map(|(client, _)| client.clone()),
            form,
            headers: HeaderMap::new(),
        });
        match answer.await {
            Ok(answer) if answer.status.is_success() => {}
            Ok(answer) => {
                tracing::warn!(status = %answer.status, hint, "a token was not revoked");
            }
            Err(refusal) => {
                let reason = refusal.describe().1;
                tracing::warn!(reason, hint, "a token was not revoked");
            }
        }
    }
}
