//! The cookies of sessions and logins, and what seals them.

use http::HeaderValue;
use http::header::COOKIE;
use pingora::http::RequestHeader;

use crate::plugins::ConfigError;
use crate::plugins::openid_connect::fields::{Fields, wrong};
use crate::session::cookie::{SameSite, Style};
use crate::session::seal::Sealer;

/// Takes cookies out of what the upstream gets.
pub(in super::super) fn strip(style: &Style, request: &mut RequestHeader) {
    let cookies = || request.headers.get_all(COOKIE).iter();
    let has_name = |value: &HeaderValue| {
        let (value, name) = (value.as_bytes(), style.name().as_bytes());
        value.windows(name.len()).any(|window| window == name)
    };
    if !cookies().any(has_name) {
        return;
    }
    let mut kept = Vec::new();
    for value in cookies() {
        for pair in value.as_bytes().split(|byte| *byte == b';') {
            let pair = pair.trim_ascii();
            let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
            let name = std::str::from_utf8(name.trim_ascii()).unwrap_or_default();
            if !pair.is_empty() && !style.is_own(name) {
                kept.push(pair);
            }
        }
    }
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
pub(in super::super) fn sealer(
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
pub(in super::super) fn style(fields: Fields<'_>, kind: &str) -> Result<Style, ConfigError> {
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
