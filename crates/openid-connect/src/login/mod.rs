//! The authorization code flow (OpenID Connect Core §3.1.2, RFC 7636, RFC 9700
//! §4.7): logins that have begun and not ended.
//!
//! Everything that ends a login is sealed in its `state` and bound to the browser
//! by a small cookie. Any number of tabs may sign in at once and come back in any
//! order, and this process keeps nothing of it.

pub(crate) mod authorization_request;
mod browser;
mod callback_replay;
pub(crate) mod flow;
mod forwarded_path;
mod jarm;
pub(crate) mod login_action;
pub(crate) mod page;
mod preserved_request;
mod response_mode;
pub(crate) mod site;

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderName, HeaderValue};
use pingora::http::RequestHeader;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::config::address::Address;
use crate::config::fields::{Fields, wrong};
use crate::credentials::arguments::Arguments;
use crate::decide::refusal::Refusal;
use crate::provider::client_auth::{Client, nth};
use crate::provider::extras::{Extras, Parameters};
use crate::session::{CookieStyle, sealer, style};
use doorward_core::clock::random_bytes;
use doorward_net::session::seal::Sealer;
use doorward_oidc_client::authorization::AuthorizationRequest;
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::filter::Exchange;

pub(crate) use callback_replay::CodeClaim;
pub(crate) use forwarded_path::path;
pub(crate) use preserved_request::PreservedRequest;

use browser::{Browsers, StartPage};
use callback_replay::CallbackReplay;
use preserved_request::PreservedRequests;
use response_mode::{Delivery, ResponseMode};

/// How the `state` of the gateway's own logins begins.
const MARK: &str = "dw1.";
/// Longest target that a login leads back to, in bytes; of a longer one its
/// query is dropped, since the provider's address line must hold it.
const TARGET_MAX: usize = 2048;

/// A login that has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PendingLogin {
    #[serde(rename = "n")]
    pub(crate) nonce: String,
    #[serde(rename = "v")]
    pub(crate) verifier: String,
    /// Scheme and host of the request that wanted it.
    #[serde(rename = "o")]
    pub(crate) origin: String,
    /// Its path and query.
    #[serde(rename = "t")]
    pub(crate) target: String,
    #[serde(rename = "c")]
    pub(crate) client: String,
    #[serde(rename = "r")]
    pub(crate) redirect_uri: String,
    /// In milliseconds.
    #[serde(rename = "a")]
    at: i64,
    /// A digest of the browser's cookie.
    #[serde(rename = "b")]
    browser: String,
}

/// The request that wants a login.
#[derive(Clone, Copy)]
pub(crate) struct LoginRequest<'a> {
    pub(crate) request: &'a RequestHeader,
    pub(crate) arguments: &'a Arguments,
    /// Whether it came by TLS.
    pub(crate) secure: bool,
    /// Scheme and host that it was sent to.
    pub(crate) origin: Option<&'a str>,
    /// Its path, as its browser knows it.
    pub(crate) path: &'a str,
    pub(crate) now_ms: i64,
}

/// Begins logins and finds them again.
pub(crate) struct Logins {
    sealer: Sealer,
    context: Vec<u8>,
    browsers: Browsers,
    lifetime_ms: i64,
    response_mode: ResponseMode,
    /// Of the times of signed answers, in seconds.
    leeway: i64,
    /// Forms of whom has to sign in first.
    pub(crate) preserved: Option<PreservedRequests>,
    scope: String,
    audience: Vec<String>,
    max_age: Option<i64>,
    pkce: bool,
    extras: Extras,
    redirect_uris: Vec<Address>,
    /// The path of a callback endpoint at whatever host the browser uses, where no
    /// `redirect_uri` is configured.
    callback: Option<String>,
    callback_replay: Arc<CallbackReplay>,
}

impl Logins {
    /// The logins of a configuration; `secret` is what to seal with where it
    /// names nothing.
    pub(crate) fn new(fields: &Fields, secret: &[u8]) -> Result<Self, ConfigError> {
        let newer = fields.sessions.authorization_rolling_timeout;
        let lifetime = newer
            .unwrap_or(fields.cookies.authorization_cookie_lifetime)
            .0;
        if fields.cookies.authorization_cookie_name == fields.cookies.session_cookie_name {
            let message = "must differ from session_cookie_name";
            return Err(wrong("authorization_cookie_name", message));
        }
        Ok(Self {
            sealer: sealer(fields, "login state", secret)?,
            context: fields.provider.issuer.text.as_bytes().to_vec(),
            browsers: Browsers::new(style(&CookieStyle::of_logins(fields))?, lifetime),
            lifetime_ms: lifetime.saturating_mul(1000),
            response_mode: ResponseMode::new(fields)?,
            leeway: fields.checks.leeway.0,
            preserved: PreservedRequests::new(fields),
            scope: fields.provider.scopes.join(" "),
            audience: fields.client.audience.to_vec(),
            max_age: fields.claims.max_age.map(|age| age.0),
            pkce: fields.proofs.require_proof_key_for_code_exchange != Some(false),
            extras: Extras::new(&fields.arguments.of_logins())?,
            redirect_uris: fields.client.redirect_uri.clone(),
            callback: None,
            callback_replay: Arc::new(CallbackReplay::new()),
        })
    }

    /// Has providers lead back to this path of the host that the browser uses.
    pub(super) fn call_back_at(&mut self, path: Option<String>) {
        self.callback = path;
    }

    /// The scopes that are asked for, where the configuration alone says so.
    pub(crate) fn scope(&self) -> Option<String> {
        let only = !self.scope.is_empty() && !self.extras.may_set("scope");
        only.then(|| self.scope.clone())
    }

    /// Whether ID tokens are asked for.
    pub(crate) fn wants_id_token(&self) -> bool {
        let scope = self.extras.fixed("scope").unwrap_or(&self.scope);
        scope.split(' ').any(|scope| scope == "openid")
    }

    /// Whether answers come in signed tokens, and no others count.
    pub(crate) fn uses_jarm(&self) -> bool {
        self.response_mode.signed
    }

    /// Begins a login for a request at `now_ms`: the login, the parameters of
    /// the request to the provider, and the cookie that the browser shall keep.
    ///
    /// # Errors
    /// When the request names no host, or nothing can be sealed.
    pub(crate) fn begin(
        &self,
        client: (&Client, usize),
        login_request: LoginRequest<'_>,
        fields: &mut Vec<(HeaderName, HeaderValue)>,
    ) -> Result<(PendingLogin, Parameters), Refusal> {
        let LoginRequest {
            request,
            arguments,
            secure,
            origin,
            path,
            now_ms,
        } = login_request;
        let origin = origin.ok_or(Refusal::MalformedRequest)?;
        let browser = self.browsers.of(&request.headers);
        let place = StartPage {
            path,
            query: request.uri.query(),
        };
        let written = self
            .browsers
            .keep(&browser, &request.headers, (place, secure), fields);
        written.map_err(|_| Refusal::MalformedRequest)?;
        let (client, index) = client;
        let redirect_uri = match (nth(&self.redirect_uris, index), &self.callback) {
            (Some(address), _) => address.as_str().to_owned(),
            (None, Some(callback)) => {
                // What a proxy takes off the beginning of each path.
                let prefix = path.strip_suffix(request.uri.path()).unwrap_or_default();
                format!("{origin}{prefix}{callback}")
            }
            (None, None) => format!("{origin}{path}"),
        };
        let query = request.uri.query().map(|query| format!("{path}?{query}"));
        let target = query.filter(|target| target.len() <= TARGET_MAX);
        let begun = PendingLogin {
            nonce: token::<18>(),
            verifier: token::<32>(),
            target: target.unwrap_or_else(|| path.to_owned()),
            client: client.id.clone(),
            redirect_uri,
            at: now_ms,
            browser: browser.digest,
            origin: origin.to_owned(),
        };
        let own = self.parameters(&begun)?;
        let parameters = self.extras.join(own, &request.headers, arguments);
        Ok((begun, parameters))
    }

    fn parameters(&self, begun: &PendingLogin) -> Result<Parameters, Refusal> {
        let state = self.state(begun)?;
        let request = AuthorizationRequest {
            client_id: &begun.client,
            redirect_uri: &begun.redirect_uri,
            scope: &self.scope,
            state: &state,
            nonce: &begun.nonce,
            verifier: self.pkce.then_some(begun.verifier.as_str()),
        };
        let mut parameters = request.parameters();
        let mut set = |name: &str, value: &str| {
            parameters.push((name.to_owned(), value.to_owned()));
        };
        if let Some(response_mode) = &self.response_mode.name {
            set("response_mode", response_mode);
        }
        for audience in &self.audience {
            set("audience", audience);
        }
        if let Some(max_age) = self.max_age {
            set("max_age", &max_age.to_string());
        }
        Ok(parameters)
    }

    fn state(&self, begun: &PendingLogin) -> Result<String, Refusal> {
        let plain = serde_json::to_vec(begun).map_err(|_| Refusal::MalformedRequest)?;
        let sealed = self.sealer.seal(&self.context, &plain);
        sealed
            .map(|sealed| format!("{MARK}{sealed}"))
            .map_err(|_| Refusal::MalformedRequest)
    }

    /// Whether a request looks like a browser's coming back from a login.
    pub(crate) fn may_be_callback(&self, request: &RequestHeader) -> bool {
        let mark = |text: &str| text.contains("state=dw1.");
        let by_query = request.uri.query().is_some_and(|query| {
            mark(query)
                || (self.response_mode.signed && query.contains("response="))
                || (query.contains("state=") && self.is_redirect_uri(request))
        });
        by_query || self.may_be_posted(request) || self.is_landing(request)
    }

    /// Whether a browser comes back with an answer that only a page can read.
    pub(crate) fn is_landing(&self, request: &RequestHeader) -> bool {
        self.response_mode.delivery == Delivery::Fragment
            && request.method == http::Method::GET
            && self.is_redirect_uri(request)
    }

    /// Whether a request whose parameters are known is the provider's answer: it
    /// tells a login of the gateway, or what only answers have where they come.
    pub(crate) fn is_callback(
        &self,
        request: &RequestHeader,
        given: &Arguments,
        exchange: &Exchange,
    ) -> bool {
        let state = given.first("state");
        let marked = state.is_some_and(|state| state.starts_with(MARK));
        let place = request
            .uri
            .query()
            .is_some_and(|query| query.contains("state=") || query.contains("response="))
            || self.may_be_posted(request);
        let here = || self.is_at_redirect_uri(request, exchange);
        let signed = self
            .response_mode
            .signed
            .then(|| given.first("response"))
            .flatten();
        let signed = signed.is_some_and(|signed| has_own_state(signed) || here());
        let told = ["code", "error", "response"];
        let told = || told.iter().any(|name| given.first(name).is_some());
        place && (marked || signed || (state.is_some() && told() && here()))
    }

    /// Whether a request that would begin a login looks like the answer to one, by a
    /// provider that does not send `state` back (RFC 6749 §10.12): another login
    /// would end in the same way. Without `redirect_uri` answers come to the pages of
    /// the application, which may have such parameters of their own: there it counts
    /// where the browser has just begun a login, by another query.
    pub(crate) fn is_callback_without_state(
        &self,
        request: &RequestHeader,
        given: &Arguments,
        exchange: &Exchange,
    ) -> bool {
        let told = ["code", "error", "response"];
        if !told.iter().any(|name| given.first(name).is_some()) {
            return false;
        }
        if self.has_endpoint() {
            return self.is_at_redirect_uri(request, exchange);
        }
        let path = path(request, exchange);
        let place = StartPage {
            path: &path,
            query: request.uri.query(),
        };
        self.browsers.may_come_back(&request.headers, place)
    }

    /// Whether the request goes to such an address, and to its host.
    fn is_at_redirect_uri(&self, request: &RequestHeader, exchange: &Exchange) -> bool {
        let own = origin(request, exchange).and_then(|origin| Url::parse(&origin).ok());
        let (host, path) = (own.as_ref().and_then(Url::host_str), request.uri.path());
        if self.callback.as_deref() == Some(path) {
            return true;
        }
        let mut addresses = self.redirect_uris.iter();
        host.is_some() && addresses.any(|one| one.path() == path && one.host() == host)
    }

    /// Whether a form may be the provider's answer.
    pub(crate) fn may_be_posted(&self, request: &RequestHeader) -> bool {
        self.response_mode.is_posted()
            && request.method == http::Method::POST
            && crate::credentials::bearer::body::is_form(&request.headers)
            && self.browsers.has_any(&request.headers)
            && (!self.has_endpoint() || self.is_redirect_uri(request))
    }

    /// Whether the request goes to an address that is configured for nothing
    /// but the ends of logins.
    fn is_redirect_uri(&self, request: &RequestHeader) -> bool {
        let path = request.uri.path();
        self.callback.as_deref() == Some(path)
            || self
                .redirect_uris
                .iter()
                .any(|address| address.path() == path)
    }

    /// Whether logins end at an endpoint of their own.
    fn has_endpoint(&self) -> bool {
        !self.redirect_uris.is_empty() || self.callback.is_some()
    }

    /// The login that a `state` belongs to, of whatever browser and age.
    ///
    /// # Errors
    /// [`Refusal::ForgedState`].
    pub(crate) fn find(&self, state: &str) -> Result<PendingLogin, Refusal> {
        let sealed = state.strip_prefix(MARK).ok_or(Refusal::ForgedState)?;
        let plain = self.sealer.open(&self.context, sealed);
        let plain = plain.map_err(|_| Refusal::ForgedState)?;
        serde_json::from_slice(&plain).map_err(|_| Refusal::ForgedState)
    }

    /// Checks that a login was begun in the browser that a request is of, at a
    /// place that shares cookies with the one that it came to now: a `state` can
    /// be had at any host, and would lead back there.
    ///
    /// # Errors
    /// [`Refusal::ForeignLogin`].
    pub(crate) fn check_browser(
        &self,
        begun: &PendingLogin,
        request: &RequestHeader,
        exchange: &Exchange,
    ) -> Result<(), Refusal> {
        let own = self.browsers.has(&request.headers, &begun.browser);
        let here = origin(request, exchange);
        let near = here.is_some_and(|here| self.share_cookies(&begun.origin, &here));
        if near && own {
            Ok(())
        } else {
            Err(Refusal::ForeignLogin)
        }
    }

    /// Whether the cookie of logins that one origin gives is shown to the other:
    /// cookies know neither schemes nor ports.
    fn share_cookies(&self, one: &str, other: &str) -> bool {
        let host = |origin: &str| {
            let url = Url::parse(origin).ok()?;
            url.host_str().map(str::to_owned)
        };
        one == other
            || match (host(one), host(other)) {
                (Some(one), Some(other)) => self.browsers.share(&one, &other),
                _ => false,
            }
    }

    /// Checks that a login was begun not too long ago, and has not ended before.
    ///
    /// # Errors
    /// Which of these is not so.
    pub(crate) fn check(
        &self,
        begun: &PendingLogin,
        state: &str,
        now_ms: i64,
    ) -> Result<(), Refusal> {
        if !(0..self.lifetime_ms).contains(&now_ms.saturating_sub(begun.at)) {
            return Err(Refusal::LoginExpired);
        }
        self.callback_replay.check(state)
    }

    /// Claims a login for the code that it is answered with.
    ///
    /// # Errors
    /// [`Refusal::LoginRepeated`] if it is over, or being answered with another.
    pub(crate) fn claim(&self, state: &str, code: &str) -> Result<CodeClaim, Refusal> {
        self.callback_replay.claim(state, code)
    }

    /// Remembers that a login is over.
    pub(crate) fn end(&self, state: &str) {
        self.callback_replay.end(state);
    }

    /// Whether a cookie is one of logins.
    pub(crate) fn owns(&self, name: &str, value: &str) -> bool {
        self.browsers.owns(name, value)
    }

    /// Whether cookies of logins have this name.
    pub(crate) fn names(&self, name: &[u8]) -> bool {
        self.browsers.names(name)
    }

    /// Takes their cookies out of what the upstream gets.
    pub(crate) fn strip(&self, request: &mut RequestHeader) {
        self.browsers.strip(request);
    }
}

/// `N` random bytes as text.
pub(crate) fn token<const N: usize>() -> String {
    URL_SAFE_NO_PAD.encode(random_bytes::<N>())
}

fn short_digest(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(&digest(&SHA256, text.as_bytes()).as_ref()[..16])
}

/// Whether a token that nobody has verified yet names a login of the gateway.
fn has_own_state(token: &str) -> bool {
    let claims = doorward_core::jose::verify::Unverified::parse(token)
        .and_then(|parsed| parsed.claims_of_anyone())
        .unwrap_or_default();
    let state = claims.get("state").and_then(serde_json::Value::as_str);
    state.is_some_and(|state| state.starts_with(MARK))
}

/// Scheme and host that a request was sent to, as the client sees them: where a
/// trusted proxy stands before the gateway, what that says.
pub(crate) fn origin(request: &RequestHeader, exchange: &Exchange) -> Option<String> {
    let scheme = if exchange.secure { "https" } else { "http" };
    let told = |name: &str| {
        let value = request.headers.get(name).filter(|_| exchange.trusted)?;
        // Of a chain, the proxy that is trusted speaks last.
        value.to_str().ok()?.rsplit(',').next().map(str::trim)
    };
    let forwarded = told("x-forwarded-host").filter(|host| !host.is_empty());
    let own = || match request.headers.get(http::header::HOST) {
        Some(host) => host.to_str().ok(),
        None => Some(request.uri.authority()?.as_str()),
    };
    let host = match forwarded {
        Some(host) => host,
        None => own()?,
    };
    let mut origin = Url::parse(&format!("{scheme}://{host}/")).ok()?;
    // Nothing but a host and a port.
    let whole = origin.username().is_empty()
        && origin.password().is_none()
        && origin.path() == "/"
        && origin.query().is_none()
        && origin.fragment().is_none()
        && !host.contains(['\\', '/', '@', '?', '#']);
    let port = told("x-forwarded-port").and_then(|port| port.parse().ok());
    if let (Some(_), None, Some(port)) = (forwarded, origin.port(), port)
        && !host.ends_with(|end: char| end.is_ascii_digit() && host.contains(':'))
    {
        origin.set_port(Some(port)).ok()?;
    }
    whole.then(|| origin.origin().ascii_serialization())
}

#[cfg(test)]
mod tests;
