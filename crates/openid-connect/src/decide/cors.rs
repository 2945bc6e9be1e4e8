//! Scripts in pages, which can't follow a redirect to a login: they get 401,
//! headers that let them read it, and where to send the user
//! (`scripts_unauthorized`). Those of `scripts_origins` may send requests that
//! browsers ask about first.

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS,
    ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS,
    ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN,
    REFERER, UPGRADE, VARY,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use pingora::http::RequestHeader;
use serde_json::json;
use url::Url;

use crate::config::fields::{Fields, wrong};
use crate::login::{origin, path};
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::filter::Exchange;

/// For how long browsers remember that they may ask, in seconds.
const MAY_ASK: HeaderValue = HeaderValue::from_static("600");

/// The origins whose scripts are answered so that they can read it.
#[derive(Debug)]
pub(crate) struct CorsOrigins(Option<Vec<String>>);

impl CorsOrigins {
    pub(crate) fn new(fields: &Fields) -> Result<Self, ConfigError> {
        let name = "scripts_origins";
        let named = &fields.responses.scripts_origins;
        let is_origin = |text: &String| {
            Url::parse(text).is_ok_and(|url| {
                matches!(url.scheme(), "http" | "https")
                    && url.origin().ascii_serialization() == *text
            })
        };
        if !named.iter().all(is_origin) {
            let message = "expected origins such as https://app.example.com";
            return Err(wrong(name, message));
        }
        let on = fields.responses.scripts_unauthorized && !named.is_empty();
        Ok(Self(on.then(|| named.to_vec())))
    }

    /// Whether the scripts of `caller` may read answers: those of any origin
    /// where none is named.
    fn has(&self, caller: &HeaderValue) -> bool {
        let is = |origin: &String| caller.as_bytes() == origin.as_bytes();
        caller != "null" && self.0.as_ref().is_none_or(|named| named.iter().any(is))
    }

    /// The answer to a browser that asks whether a script of an origin that is
    /// named may send a request; `None`: it asks no such thing.
    pub(crate) fn preflight(&self, request: &RequestHeader) -> Option<Reply> {
        self.0.as_ref()?;
        let headers = &request.headers;
        let caller = headers.get(ORIGIN).filter(|caller| self.has(caller))?;
        let method = headers.get(ACCESS_CONTROL_REQUEST_METHOD)?;
        if request.method != Method::OPTIONS {
            return None;
        }
        let mut reply = readable(Reply::empty(StatusCode::NO_CONTENT), caller)
            .header(ACCESS_CONTROL_ALLOW_METHODS, method.clone())
            .header(ACCESS_CONTROL_MAX_AGE, MAY_ASK);
        if let Some(names) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            reply = reply.header(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
        }
        let vary = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";
        Some(reply.header(VARY, HeaderValue::from_static(vary)))
    }
}

/// A reply that the scripts of an origin may read, also where they send cookies.
fn readable(reply: Reply, caller: &HeaderValue) -> Reply {
    reply
        .header(ACCESS_CONTROL_ALLOW_ORIGIN, caller.clone())
        .header(
            ACCESS_CONTROL_ALLOW_CREDENTIALS,
            HeaderValue::from_static("true"),
        )
}

/// Whether a request is none that a browser makes to show its answer.
pub(crate) fn is_script(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(mode) = text("sec-fetch-mode") {
        return mode != "navigate";
    }
    if let Some(destination) = text("sec-fetch-dest") {
        return !matches!(destination, "document" | "iframe" | "frame");
    }
    if headers.contains_key("x-requested-with") || headers.contains_key(UPGRADE) {
        return true;
    }
    // Who takes anything may be a person at a terminal.
    text(ACCEPT.as_str()).is_some_and(|accept| {
        let wanted = ["text/html", "application/xhtml+xml", "*/*", "text/*"];
        !accept.is_empty() && !wanted.iter().any(|one| accept.contains(one))
    })
}

/// The answer for a script in place of `reply`.
pub(crate) fn answer(
    mut reply: Reply,
    (origins, signs_in): (&CorsOrigins, bool),
    request: &RequestHeader,
    exchange: &Exchange,
) -> Reply {
    if reply.status == StatusCode::UNAUTHORIZED && signs_in {
        let message = match &reply.body {
            ReplyBody::Message(message) => message.to_string(),
            _ => "Unauthorized".to_owned(),
        };
        let login = address(request, exchange);
        let body = json!({ "message": message, "login": login }).to_string();
        reply.body = ReplyBody::Raw("application/json; charset=utf-8", Bytes::from(body));
    }
    let caller = request.headers.get(ORIGIN);
    let caller = caller.filter(|caller| origins.has(caller));
    if let Some(caller) = caller.filter(|_| reply.status != StatusCode::OK) {
        reply = readable(reply, caller).header(
            ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static("WWW-Authenticate, DPoP-Nonce"),
        );
    }
    reply.header(
        VARY,
        HeaderValue::from_static("Origin, Sec-Fetch-Mode, Accept"),
    )
}

/// Where the user begins to sign in: at the page of this site that the script
/// is in, or else at what it asked for.
fn address(request: &RequestHeader, exchange: &Exchange) -> Option<String> {
    let origin = origin(request, exchange)?;
    let page = request.headers.get(REFERER);
    let page = page.and_then(|page| Url::parse(page.to_str().ok()?).ok());
    let page = page.filter(|page| page.origin().ascii_serialization() == origin);
    if let Some(mut page) = page.filter(|page| page.username().is_empty()) {
        page.set_fragment(None);
        return Some(page.into());
    }
    let path = path(request, exchange);
    let path = Some(path).filter(|path| !path.starts_with("//"));
    Some(format!("{origin}{}", path.as_deref().unwrap_or("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| {
                let name = http::HeaderName::from_static(name);
                (name, HeaderValue::from_static(value))
            })
            .collect()
    }

    #[test]
    fn a_script_is_told_from_a_browser_and_from_a_person_at_a_terminal() {
        for (sent, script) in [
            (
                &[("sec-fetch-mode", "navigate"), ("accept", "text/html")][..],
                false,
            ),
            (&[("sec-fetch-mode", "cors"), ("accept", "text/html")], true),
            (&[("sec-fetch-mode", "same-origin")], true),
            (&[("sec-fetch-mode", "websocket")], true),
            (&[("sec-fetch-dest", "empty")], true),
            (&[("sec-fetch-dest", "document")], false),
            (&[("x-requested-with", "XMLHttpRequest")], true),
            (&[("upgrade", "websocket")], true),
            (&[("accept", "application/json")], true),
            (&[("accept", "application/json, text/html;q=0.9")], false),
            (&[("accept", "*/*")], false),
            (&[], false),
        ] {
            assert_eq!(is_script(&headers(sent)), script, "{sent:?}");
        }
    }

    #[test]
    fn open_redirect_by_the_page_of_another_site() {
        let mut request = RequestHeader::build("GET", b"/api/x?a=b", None).expect("a request");
        request.insert_header("host", "api.test").expect("a field");
        let exchange = Exchange::default();
        for (page, wanted) in [
            ("http://api.test/app?x=1#y", "http://api.test/app?x=1"),
            ("https://evil.test/app", "http://api.test/api/x"),
            ("http://api.test@evil.test/", "http://api.test/api/x"),
            ("http://u:p@api.test/", "http://api.test/api/x"),
            ("javascript:alert(1)", "http://api.test/api/x"),
        ] {
            request.insert_header("referer", page).expect("a field");
            let found = address(&request, &exchange);
            assert_eq!(found.as_deref(), Some(wanted), "{page}");
        }
    }
}
