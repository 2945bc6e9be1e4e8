//! Cookies of the provider: never readable by scripts, never sent along with
//! requests that other sites make, and with TLS tied to this host alone.

use axum::response::Response;
use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};

use super::realm::Live;

/// The name under which browsers keep the cookie `base`. With TLS it has the
/// prefix that keeps other hosts of the domain from setting it.
pub(super) fn name(live: &Live, base: &str) -> String {
    if is_secure(live) {
        format!("__Host-{base}")
    } else {
        base.to_owned()
    }
}

/// Whether browsers come by TLS.
fn is_secure(live: &Live) -> bool {
    live.base_url.starts_with("https://")
}

/// The names and values of the cookies of a request, in its order.
pub(super) fn all(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let fields = headers.get_all(COOKIE).iter();
    let pairs = fields
        .filter_map(|field| field.to_str().ok())
        .flat_map(|field| field.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs.map(|(name, value)| (name, value.trim_matches('"')))
}

/// The value of the first cookie of this name.
pub(super) fn value<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut named = all(headers).filter(|(known, _)| *known == name);
    named.next().map(|(_, value)| value)
}

/// Sets a cookie for as long as the browser runs.
pub(super) fn set(response: &mut Response, live: &Live, name: &str, value: &str) {
    let secure = if is_secure(live) { "; Secure" } else { "" };
    add(
        response,
        &format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}"),
    );
}

/// Sets a cookie for so many seconds.
pub(super) fn set_for(response: &mut Response, live: &Live, name: &str, value: &str, seconds: i64) {
    let secure = if is_secure(live) { "; Secure" } else { "" };
    add(
        response,
        &format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"),
    );
}

/// Removes a cookie.
pub(super) fn clear(response: &mut Response, live: &Live, name: &str) {
    let secure = if is_secure(live) { "; Secure" } else { "" };
    add(
        response,
        &format!("{name}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax{secure}"),
    );
}

fn add(response: &mut Response, cookie: &str) {
    // Names are checked with the configuration, values are made by us.
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
}
