//! The cookies of sessions and logins, and what seals them.

use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue};
use pingora::http::RequestHeader;

use crate::config::fields::sessions::CookieSameSite;
use crate::config::fields::{Fields, wrong};
use crate::decide::refusal::Refusal;
use doorward_net::session::cookie::{CookieError, SameSite, Style, pairs, split};
use doorward_net::session::seal::Sealer;
use doorward_plugin_api::ConfigError;

/// Takes the cookies of these names out of what the upstream gets.
pub(crate) fn strip(request: &mut RequestHeader, owns: impl Fn(&[u8]) -> bool) {
    let fields = || request.headers.get_all(COOKIE).iter();
    let shown = || fields().flat_map(|field| pairs(field.as_bytes()));
    let is_own = |pair: &&[u8]| owns(split(pair).map_or(pair, |(name, _)| name));
    if !shown().any(|pair| is_own(&pair)) {
        return;
    }
    let kept: Vec<_> = shown()
        .filter(|pair| !pair.is_empty() && !is_own(pair))
        .collect();
    let kept = kept.join(&b"; "[..]);
    request.remove_header(&COOKIE);
    if !kept.is_empty()
        && let Ok(kept) = HeaderValue::from_bytes(&kept)
    {
        let _ = request.insert_header(COOKIE, kept);
    }
}

/// The sealer for `purpose`: of `session_secret`, whose lines are secrets of
/// which the first seals and all open, or else of `secret`.
pub(crate) fn sealer(fields: &Fields, purpose: &str, secret: &[u8]) -> Result<Sealer, ConfigError> {
    let text = fields
        .sessions
        .session_secret
        .as_deref()
        .unwrap_or_default();
    let secrets = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut secrets: Vec<&[u8]> = secrets.map(str::as_bytes).collect();
    if secrets.is_empty() {
        secrets.push(secret);
    }
    Sealer::new(purpose, secrets).map_err(|_| wrong("session_secret", "makes no key"))
}

/// The `<kind>_cookie_…` fields of one kind, of either spelling.
pub(crate) struct CookieStyle<'a> {
    name_field: &'static str,
    name: &'a str,
    path: &'a str,
    domain: Option<&'a str>,
    same_site: Option<CookieSameSite>,
    http_only: bool,
    secure: Option<bool>,
}

impl<'a> CookieStyle<'a> {
    /// Those of sessions.
    pub(crate) fn of_sessions(fields: &'a Fields) -> Self {
        let (older, newer) = (&fields.cookies, &fields.sessions);
        Self {
            name_field: "session_cookie_name",
            name: older.session_cookie_name.as_deref().unwrap_or("session"),
            path: &older.session_cookie_path,
            domain: newer.session_cookie_domain.as_deref(),
            same_site: (newer.session_cookie_same_site).or(older.session_cookie_samesite),
            http_only: (newer.session_cookie_http_only).unwrap_or(older.session_cookie_httponly),
            secure: newer.session_cookie_secure,
        }
    }

    /// Those of logins.
    pub(crate) fn of_logins(fields: &'a Fields) -> Self {
        let (older, newer) = (&fields.cookies, &fields.sessions);
        let name = older.authorization_cookie_name.as_deref();
        let http_only = newer.authorization_cookie_http_only;
        Self {
            name_field: "authorization_cookie_name",
            name: name.unwrap_or("authorization"),
            path: &older.authorization_cookie_path,
            domain: newer.authorization_cookie_domain.as_deref(),
            same_site: (newer.authorization_cookie_same_site)
                .or(older.authorization_cookie_samesite),
            http_only: http_only.unwrap_or(older.authorization_cookie_httponly),
            secure: newer.authorization_cookie_secure,
        }
    }
}

/// What cookies of one kind are like.
pub(crate) fn style(fields: &CookieStyle<'_>) -> Result<Style, ConfigError> {
    let style = Style::new(fields.name, fields.path, fields.domain)
        .map_err(|_| wrong(fields.name_field, "can't be written as a cookie"))?;
    let same_site = match fields.same_site {
        Some(CookieSameSite::Strict) => SameSite::Strict,
        Some(CookieSameSite::Lax) => SameSite::Lax,
        Some(CookieSameSite::None) => SameSite::None,
        Some(CookieSameSite::Default | CookieSameSite::Off) | None => SameSite::Unsaid,
    };
    Ok(style.with(same_site, fields.http_only, fields.secure))
}

/// The browser that a session is of: what it sent, and what it gets.
pub(crate) struct Browser<'a> {
    pub(crate) headers: &'a HeaderMap,
    /// Whether the request came by TLS.
    pub(crate) secure: bool,
    pub(crate) fields: &'a mut Vec<(HeaderName, HeaderValue)>,
}

impl Browser<'_> {
    /// Has it keep a value, whatever it was told before.
    ///
    /// # Errors
    /// [`Refusal::SessionTooBig`].
    pub(crate) fn keep(&mut self, style: &Style, value: &str) -> Result<(), Refusal> {
        let cookies = style.keep(value, self.headers, self.secure);
        let cookies = cookies.map_err(|error| match error {
            CookieError::TooBig | CookieError::Illegal => Refusal::SessionTooBig,
        })?;
        self.tell(style, cookies);
        Ok(())
    }

    pub(crate) fn forget(&mut self, style: &Style) {
        self.tell(style, style.forget(self.headers, self.secure));
    }

    fn tell(&mut self, style: &Style, cookies: Vec<HeaderValue>) {
        let is_told = |(name, value): &(HeaderName, HeaderValue)| {
            *name == SET_COOKIE && style.is_given(value)
        };
        self.fields.retain(|field| !is_told(field));
        let cookies = cookies.into_iter().map(|cookie| (SET_COOKIE, cookie));
        self.fields.extend(cookies);
    }
}
