//! The cookies of sessions and logins, and what seals them.

use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue};
use pingora::http::RequestHeader;

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
pub(crate) fn sealer(
    fields: Fields<'_>,
    purpose: &str,
    secret: &[u8],
) -> Result<Sealer, ConfigError> {
    let text = fields.text("session_secret")?.unwrap_or_default();
    let secrets = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut secrets: Vec<&[u8]> = secrets.map(str::as_bytes).collect();
    if secrets.is_empty() {
        secrets.push(secret);
    }
    Sealer::new(purpose, secrets).map_err(|_| wrong("session_secret", "makes no key"))
}

/// The cookies of `<kind>_cookie_…` settings, of either spelling.
pub(crate) fn style(fields: Fields<'_>, kind: &str) -> Result<Style, ConfigError> {
    let field = |end: &str| format!("{kind}_cookie_{end}");
    let text = |end: &str| fields.text(&field(end));
    let name = text("name")?.unwrap_or(kind);
    let path = text("path")?.unwrap_or("/");
    let style = Style::new(name, path, text("domain")?)
        .map_err(|_| wrong(&field("name"), "can't be written as a cookie"))?;
    let same_site = match text("same_site")? {
        Some(newer) => Some(newer),
        None => text("samesite")?,
    };
    let same_site = match same_site {
        Some("Strict") => SameSite::Strict,
        Some("Lax") => SameSite::Lax,
        Some("None") => SameSite::None,
        _ => SameSite::Unsaid,
    };
    let http_only = match fields.maybe_flag(&field("http_only"))? {
        Some(newer) => newer,
        None => fields.flag(&field("httponly"))?,
    };
    Ok(style.with(same_site, http_only, fields.maybe_flag(&field("secure"))?))
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
