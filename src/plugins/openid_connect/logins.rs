//! Logins that have begun and not ended (OpenID Connect Core §3.1.2, RFC 7636,
//! RFC 9700 §4.7).
//!
//! All that is needed to end a login is sealed in its `state`, and bound to the
//! browser by one small cookie. So any number of tabs may log in at once and
//! come back in any order, and nothing of it grows with their number, neither
//! here nor in the browser.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderName, HeaderValue};
use pingora::http::RequestHeader;
use quick_cache::sync::Cache;
use serde::{Deserialize, Serialize};
use url::Url;

use super::arguments::Arguments;
use super::client::{Client, nth};
use super::extras::Extras;
use super::fields::{Fields, wrong};
use super::flight::{Digest, digest_of};
use super::refusal::Refusal;
use super::sessions::{sealer, style};
use crate::clock::random_bytes;
use crate::plugins::ConfigError;
use crate::session::cookie::Style;
use crate::session::seal::Sealer;

/// How the `state` of the gateway's own logins begins.
const MARK: &str = "dw1.";
/// Longest target that a login leads back to, in bytes; of a longer one its
/// query is dropped, since the provider's address line must hold it.
const TARGET_MAX: usize = 2048;
/// Most logins that are remembered as over.
const ENDED: usize = 16 * 1024;

/// A login that has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Begun {
    #[serde(rename = "n")]
    pub(super) nonce: String,
    #[serde(rename = "v")]
    pub(super) verifier: String,
    /// Scheme and host of the request that wanted it.
    #[serde(rename = "o")]
    pub(super) origin: String,
    /// Its path and query.
    #[serde(rename = "t")]
    pub(super) target: String,
    #[serde(rename = "c")]
    pub(super) client: String,
    #[serde(rename = "r")]
    pub(super) redirect_uri: String,
    /// In milliseconds.
    #[serde(rename = "a")]
    at: i64,
    /// A digest of the browser's cookie.
    #[serde(rename = "b")]
    browser: String,
}

/// The request that wants a login.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) request: &'a RequestHeader,
    pub(super) arguments: &'a Arguments,
    /// Whether it came by TLS.
    pub(super) secure: bool,
    pub(super) now_ms: i64,
}

/// Begins logins and finds them again.
pub(super) struct Logins {
    sealer: Sealer,
    context: Vec<u8>,
    style: Style,
    lifetime_ms: i64,
    form_post: bool,
    scope: String,
    audience: Vec<String>,
    max_age: Option<i64>,
    pkce: bool,
    extras: Extras,
    redirect_uris: Vec<Url>,
    ended: Cache<Digest, ()>,
}

impl Logins {
    /// The logins of a configuration; `secret` is what to seal with where it
    /// names nothing.
    pub(super) fn new(fields: Fields<'_>, secret: &[u8]) -> Result<Self, ConfigError> {
        let issuer = fields.text("issuer")?.unwrap_or_default();
        let lifetime = match fields.integer("authorization_rolling_timeout")? {
            Some(newer) => newer,
            None => fields
                .integer("authorization_cookie_lifetime")?
                .unwrap_or(600),
        };
        let name = "authorization_cookie_name";
        if fields.text(name)? == fields.text("session_cookie_name")? {
            return Err(wrong(name, "must differ from session_cookie_name"));
        }
        Ok(Self {
            sealer: sealer(fields, "login state", secret)?,
            context: issuer.as_bytes().to_vec(),
            style: style(fields, "authorization")?,
            lifetime_ms: lifetime.saturating_mul(1000),
            form_post: fields.text("response_mode")? == Some("form_post"),
            scope: fields.texts("scopes")?.join(" "),
            audience: fields.texts("audience")?,
            max_age: fields.integer("max_age")?,
            pkce: fields.maybe_flag("require_proof_key_for_code_exchange")? != Some(false),
            extras: Extras::new(fields, "authorization_query_args", "authorization_headers")?,
            redirect_uris: fields.urls("redirect_uri")?,
            ended: Cache::new(ENDED),
        })
    }

    /// Whether ID tokens are asked for.
    pub(super) fn wants_id_token(&self) -> bool {
        self.scope.split(' ').any(|scope| scope == "openid")
    }

    /// Begins a login for a request at `now_ms`: the provider's address where
    /// the browser goes, and the cookie that it shall keep.
    ///
    /// # Errors
    /// When the request names no host, or nothing can be sealed.
    pub(super) fn begin(
        &self,
        endpoint: &Url,
        client: (&Client, usize),
        wanted: Wanted<'_>,
        fields: &mut Vec<(HeaderName, HeaderValue)>,
    ) -> Result<String, Refusal> {
        let Wanted {
            request,
            arguments,
            secure,
            now_ms,
        } = wanted;
        let origin = origin(request, secure).ok_or(Refusal::MalformedRequest)?;
        let browser = self.browser(&request.headers);
        let browser = browser.unwrap_or_else(token::<16>);
        let (client, index) = client;
        // `OPTIONS *` has a target that no address ends with.
        let path = Some(request.uri.path()).filter(|path| path.starts_with('/'));
        let path = path.unwrap_or("/");
        let redirect_uri = match nth(&self.redirect_uris, index) {
            Some(url) => url.to_string(),
            None => format!("{origin}{path}"),
        };
        let target = request
            .uri
            .path_and_query()
            .map_or(path, |whole| whole.as_str());
        let good = target.starts_with('/') && target.len() <= TARGET_MAX;
        let target = if good { target } else { path };
        let begun = Begun {
            nonce: token::<18>(),
            verifier: token::<32>(),
            target: target.to_owned(),
            client: client.id.clone(),
            redirect_uri,
            at: now_ms,
            browser: short_digest(&browser),
            origin,
        };
        let cookies = self.style.keep(&browser, &request.headers, secure);
        let cookies = cookies.map_err(|_| Refusal::MalformedRequest)?;
        fields.extend(cookies.into_iter().map(|cookie| (SET_COOKIE, cookie)));
        let extras = self.extras.parameters(&request.headers, arguments);
        self.address(endpoint, &begun, &extras)
    }

    fn address(
        &self,
        endpoint: &Url,
        begun: &Begun,
        extras: &[(String, String)],
    ) -> Result<String, Refusal> {
        let mut url = endpoint.clone();
        let state = self.state(begun)?;
        let mut query = url.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &begun.client)
            .append_pair("redirect_uri", &begun.redirect_uri)
            .append_pair("state", &state)
            .append_pair("nonce", &begun.nonce);
        if !self.scope.is_empty() {
            query.append_pair("scope", &self.scope);
        }
        if self.form_post {
            query.append_pair("response_mode", "form_post");
        }
        if self.pkce {
            let challenge = digest(&SHA256, begun.verifier.as_bytes());
            query
                .append_pair("code_challenge", &URL_SAFE_NO_PAD.encode(challenge))
                .append_pair("code_challenge_method", "S256");
        }
        for audience in &self.audience {
            query.append_pair("audience", audience);
        }
        if let Some(max_age) = self.max_age {
            query.append_pair("max_age", &max_age.to_string());
        }
        query.extend_pairs(extras);
        drop(query);
        Ok(url.into())
    }

    fn state(&self, begun: &Begun) -> Result<String, Refusal> {
        let plain = serde_json::to_vec(begun).map_err(|_| Refusal::MalformedRequest)?;
        let sealed = self.sealer.seal(&self.context, &plain);
        sealed
            .map(|sealed| format!("{MARK}{sealed}"))
            .map_err(|_| Refusal::MalformedRequest)
    }

    /// Whether a request looks like a browser's coming back from a login.
    pub(super) fn may_end_with(&self, request: &RequestHeader) -> bool {
        let mark = |text: &str| text.contains("state=dw1.");
        let by_query = request.uri.query().is_some_and(|query| {
            mark(query) || (query.contains("state=") && self.is_redirect_uri(request))
        });
        by_query || (self.form_post && self.may_be_posted(request))
    }

    /// Whether a request whose parameters are known is the provider's answer.
    pub(super) fn is_answer(&self, request: &RequestHeader, given: &Arguments) -> bool {
        let state = given.first("state");
        let marked = state.is_some_and(|state| state.starts_with(MARK));
        let place = request
            .uri
            .query()
            .is_some_and(|query| query.contains("state="))
            || self.may_be_posted(request);
        place && (marked || (state.is_some() && self.is_redirect_uri(request)))
    }

    /// Whether a form may be the provider's answer.
    pub(super) fn may_be_posted(&self, request: &RequestHeader) -> bool {
        self.form_post
            && request.method == http::Method::POST
            && super::bearer::body::is_form(&request.headers)
            && self.browser(&request.headers).is_some()
            && (self.redirect_uris.is_empty() || self.is_redirect_uri(request))
    }

    /// Whether the request goes to an address that is configured for nothing
    /// but the ends of logins.
    fn is_redirect_uri(&self, request: &RequestHeader) -> bool {
        let path = request.uri.path();
        self.redirect_uris.iter().any(|url| url.path() == path)
    }

    /// The login that a `state` belongs to, if it is of this browser and in
    /// time.
    ///
    /// # Errors
    /// Why it is not.
    pub(super) fn find(&self, state: &str) -> Result<Begun, Refusal> {
        let sealed = state.strip_prefix(MARK).ok_or(Refusal::ForgedState)?;
        let plain = self.sealer.open(&self.context, sealed);
        let plain = plain.map_err(|_| Refusal::ForgedState)?;
        serde_json::from_slice(&plain).map_err(|_| Refusal::ForgedState)
    }

    /// Checks that a login was begun in the browser that `headers` are of, not
    /// too long ago, and has not ended before.
    ///
    /// # Errors
    /// Which of these is not so.
    pub(super) fn check(
        &self,
        begun: &Begun,
        state: &str,
        headers: &HeaderMap,
        now_ms: i64,
    ) -> Result<(), Refusal> {
        let browser = self.browser(headers).map(|browser| short_digest(&browser));
        if browser.as_deref() != Some(&begun.browser) {
            return Err(Refusal::ForeignLogin);
        }
        if !(0..self.lifetime_ms).contains(&now_ms.saturating_sub(begun.at)) {
            return Err(Refusal::LoginExpired);
        }
        match self.ended.get(&digest_of([state.as_bytes()])) {
            Some(()) => Err(Refusal::LoginRepeated),
            None => Ok(()),
        }
    }

    /// Remembers that a login is over.
    pub(super) fn end(&self, state: &str) {
        self.ended.insert(digest_of([state.as_bytes()]), ());
    }

    /// What the browser's cookie says.
    fn browser(&self, headers: &HeaderMap) -> Option<String> {
        let value = self.style.read(headers)??;
        let good = value.len() == 22
            && value
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        good.then_some(value)
    }

    /// Takes the cookie out of what the upstream gets.
    pub(super) fn strip(&self, request: &mut RequestHeader) {
        super::sessions::strip(&self.style, request);
    }
}

/// `N` random bytes as text.
pub(super) fn token<const N: usize>() -> String {
    URL_SAFE_NO_PAD.encode(random_bytes::<N>())
}

fn short_digest(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(&digest(&SHA256, text.as_bytes()).as_ref()[..16])
}

/// Scheme and host that a request was sent to.
pub(super) fn origin(request: &RequestHeader, secure: bool) -> Option<String> {
    let scheme = if secure { "https" } else { "http" };
    let host = match request.headers.get(http::header::HOST) {
        Some(host) => host.to_str().ok()?,
        None => request.uri.authority()?.as_str(),
    };
    let origin = Url::parse(&format!("{scheme}://{host}/")).ok()?;
    // Nothing but a host and a port.
    let whole = origin.username().is_empty() && origin.path() == "/" && origin.query().is_none();
    whole.then(|| origin.origin().ascii_serialization())
}

#[cfg(test)]
mod tests;
