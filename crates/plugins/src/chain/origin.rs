//! The places that an answer of an upstream may name as its own.

use http::header::HOST;
use http::uri::Authority;
use pingora::http::RequestHeader;
use url::Url;

use doorward_plugin_api::filter::Exchange;

/// Whether `url` is at the upstream that was asked, or at the host that it was
/// told to be.
pub(super) fn is_own(url: &Url, request: &RequestHeader, exchange: &Exchange) -> bool {
    let host = |text: &[u8]| Authority::try_from(text).ok();
    let at = |authority: &Authority| is_at(url, authority);
    let given = |authority: Option<Authority>| authority.as_ref().is_some_and(at);
    exchange.upstream.as_ref().is_some_and(at)
        || request.uri.authority().is_some_and(at)
        || given(
            request
                .headers
                .get(HOST)
                .and_then(|one| host(one.as_bytes())),
        )
        || exchange
            .in_place
            .iter()
            .filter(|(name, _)| *name == HOST)
            .any(|(_, value)| given(value.as_ref().and_then(|one| host(one.as_bytes()))))
}

fn is_at(url: &Url, authority: &Authority) -> bool {
    let usual = match url.scheme() {
        "https" => 443,
        _ => 80,
    };
    let port = authority.port_u16().unwrap_or(usual);
    let host = url.host_str().unwrap_or_default();
    host.eq_ignore_ascii_case(authority.host()) && url.port_or_known_default() == Some(port)
}

/// Reads an absolute URL of HTTP.
pub(super) fn http_url(text: &str) -> Option<Url> {
    let url = Url::parse(text.trim()).ok()?;
    (matches!(url.scheme(), "http" | "https") && url.has_host()).then_some(url)
}
