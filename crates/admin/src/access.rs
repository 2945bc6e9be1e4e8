//! Who may use the Admin API: the operator, and no web page.
//!
//! A page that the operator has open can send requests to loopback. It can't
//! do so without an `Origin` of its own or, after rebinding a name of its own
//! to this address, without that name in `Host`: both are refused, reads too,
//! since records hold secrets.

use std::net::IpAddr;

use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};

use super::error::ApiError;
use doorward_core::model::secret::Secret;

/// The header that carries the token.
const TOKEN: HeaderName = HeaderName::from_static("kong-admin-token");
/// What a browser says about where a request comes from (Fetch Metadata).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The rules of one Admin listener.
#[derive(Debug, Default)]
pub(super) struct Access {
    pub(super) token: Option<Secret>,
    /// Host names that may stand in `Host`, besides those of this machine.
    pub(super) hosts: Vec<String>,
    /// Origins of pages that are let in, besides the listener's own; `*`: all.
    pub(super) origins: Vec<String>,
}

impl Access {
    /// Lets a request pass or says why not.
    pub(super) fn check(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), ApiError> {
        let host = host(uri, headers)?;
        // With a token there is nothing to gain from a rebound name: no
        // browser adds the token by itself.
        if self.token.is_none()
            && let Some(host) = &host
            && !self.knows(host)
        {
            return Err(ApiError::Forbidden("Host not allowed"));
        }
        let origin = self.origin(method, host.as_ref(), headers)?;
        // Browsers ask before they send the token, and never with it.
        let asks_first = *method == Method::OPTIONS
            && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        match &self.token {
            None => Ok(()),
            Some(_) if asks_first && origin == From::Allowed => Ok(()),
            Some(token) => match given_token(headers) {
                Some(given) if token.matches(given) => Ok(()),
                _ => Err(ApiError::Token),
            },
        }
    }

    /// Whether the body of a request is read. What browsers ask first passes
    /// without a token, and has none.
    pub(super) fn admits_body(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
        let bare = *method == Method::OPTIONS && !headers.contains_key(TOKEN);
        let asks_first = bare && self.token.is_some();
        !asks_first && self.check(method, uri, headers).is_ok()
    }

    /// Lets a request to a page of this listener pass, or says why not. Unlike a
    /// token, browsers add cookies by themselves: names that a stranger can bend
    /// to this address are refused here with a token too, and so is what changes
    /// something without a word of the browser that it comes from this origin.
    pub(super) fn check_page(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), ApiError> {
        let host = host(uri, headers)?;
        if host.as_ref().is_none_or(|host| !self.knows(host)) {
            return Err(ApiError::Forbidden("Host not allowed"));
        }
        same_origin(method, host.as_ref(), headers)?;
        let own_site = headers
            .get(FETCH_SITE)
            .is_some_and(|site| site == "same-origin");
        let reads = matches!(*method, Method::GET | Method::HEAD);
        if reads || own_site || headers.contains_key(header::ORIGIN) {
            return Ok(());
        }
        Err(ApiError::Forbidden("Cross-origin requests are not allowed"))
    }

    /// Whether a request may come from where it comes from.
    fn origin(
        &self,
        method: &Method,
        host: Option<&Authority>,
        headers: &HeaderMap,
    ) -> Result<From, ApiError> {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let (first, second) = (origins.next(), origins.next());
        let allowed = |origin: &str| {
            let mut all = self.origins.iter();
            all.any(|own| own == "*" || own.eq_ignore_ascii_case(origin))
        };
        let single = first.filter(|_| second.is_none());
        match single.and_then(|origin| origin.to_str().ok()) {
            Some(origin) if allowed(origin) => Ok(From::Allowed),
            _ => same_origin(method, host, headers).map(|()| From::Here),
        }
    }

    /// Whether no stranger can make `host` lead here: an address leads where
    /// it leads, and `localhost` is never asked of a name server.
    fn knows(&self, host: &Authority) -> bool {
        let name = host.host();
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let lower = name.to_ascii_lowercase();
        bare.parse::<IpAddr>().is_ok()
            || lower == "localhost"
            || lower.ends_with(".localhost")
            || self.hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
    }
}

/// The token that a request carries: in its own header, or else as programs send
/// it that scrape metrics (`Authorization: Bearer`).
fn given_token(headers: &HeaderMap) -> Option<&str> {
    if let Some(own) = headers.get(TOKEN) {
        return own.to_str().ok();
    }
    let authorization = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = authorization.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Where a request comes from that may pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    /// No page, or one of the listener's own origin.
    Here,
    /// A page of an origin that the configuration names.
    Allowed,
}

/// The host that the request is for; `None` only in HTTP/1.0.
fn host(uri: &Uri, headers: &HeaderMap) -> Result<Option<Authority>, ApiError> {
    const BAD: ApiError = ApiError::Forbidden("Host not allowed");
    let mut values = headers.get_all(header::HOST).iter();
    let named = match (values.next(), values.next()) {
        (None, _) => None,
        (Some(value), None) => {
            let text = value.to_str().map_err(|_| BAD)?;
            Some(text.parse::<Authority>().map_err(|_| BAD)?)
        }
        (Some(_), Some(_)) => return Err(BAD),
    };
    let authority = uri.authority().cloned();
    match (authority, named) {
        (Some(target), Some(named)) if target.host() != named.host() => Err(BAD),
        (Some(target), _) => Ok(Some(target)),
        (None, named) => Ok(named),
    }
}

/// Refuses what a page of another origin sent.
fn same_origin(
    method: &Method,
    host: Option<&Authority>,
    headers: &HeaderMap,
) -> Result<(), ApiError> {
    const FOREIGN: ApiError = ApiError::Forbidden("Cross-origin requests are not allowed");
    let mut origins = headers.get_all(header::ORIGIN).iter();
    if let Some(origin) = origins.next() {
        let same = host.is_some_and(|host| is_origin_of(origin, host));
        return if same && origins.next().is_none() {
            Ok(())
        } else {
            Err(FOREIGN)
        };
    }
    // A navigation or an image has no Origin; it must not change anything.
    let site = headers.get(FETCH_SITE).map(HeaderValue::as_bytes);
    let foreign = matches!(site, Some(site) if site != b"same-origin" && site != b"none");
    let reads = matches!(*method, Method::GET | Method::HEAD);
    if foreign && !reads {
        return Err(FOREIGN);
    }
    Ok(())
}

fn is_origin_of(origin: &HeaderValue, host: &Authority) -> bool {
    let Ok(origin) = origin.to_str() else {
        return false;
    };
    let authority = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(access: &Access, method: Method, headers: &[(&str, &str)]) -> Result<(), String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            map.append(name, HeaderValue::from_str(value).expect("a value"));
        }
        let uri = Uri::from_static("/services");
        access
            .check(&method, &uri, &map)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn names_and_addresses_of_this_machine_are_known() {
        let access = Access {
            hosts: vec!["gate.example".to_owned()],
            ..Access::default()
        };
        for host in [
            "localhost:8001",
            "127.0.0.1:8001",
            "[::1]:8001",
            "10.1.2.3",
            "GATE.example",
        ] {
            check(&access, Method::POST, &[("host", host)]).expect(host);
        }
    }

    #[test]
    fn dns_rebinding_is_refused() {
        let access = Access::default();
        for host in ["evil.example:8001", "localhost.evil.example", "a b", ""] {
            check(&access, Method::GET, &[("host", host)]).expect_err(host);
        }
        check(
            &access,
            Method::GET,
            &[("host", "localhost"), ("host", "localhost")],
        )
        .expect_err("two hosts");
    }

    #[test]
    fn a_web_page_can_neither_write_nor_read() {
        let access = Access::default();
        for origin in [
            "http://evil.example",
            "null",
            "http://localhost:3000",
            "http://localhost",
        ] {
            for method in [Method::GET, Method::POST, Method::DELETE, Method::OPTIONS] {
                let headers = [("host", "localhost:8001"), ("origin", origin)];
                check(&access, method, &headers).expect_err(origin);
            }
        }
        let own = [
            ("host", "localhost:8001"),
            ("origin", "http://localhost:8001"),
        ];
        check(&access, Method::POST, &own).expect("own console");
    }

    #[test]
    fn pages_of_origins_that_are_named_get_in_and_no_others() {
        let mut access = Access {
            origins: vec!["https://console.example".to_owned()],
            ..Access::default()
        };
        let host = ("host", "localhost:8001");
        let asks = ("access-control-request-method", "PATCH");
        for token in [None, Some("s3cret-s3cret-s3cret")] {
            access.token = token.map(Secret::new);
            let named = ("origin", "https://console.example");
            check(&access, Method::OPTIONS, &[host, named, asks]).expect("asks first");
            let mut first = HeaderMap::new();
            for (name, value) in [host, named, asks] {
                first.insert(name, HeaderValue::from_static(value));
            }
            let uri = Uri::from_static("/services");
            // A stranger may not fill memory with what nobody reads.
            let read = access.admits_body(&Method::OPTIONS, &uri, &first);
            assert_eq!(read, token.is_none());
            let shown = ("kong-admin-token", "s3cret-s3cret-s3cret");
            check(&access, Method::PATCH, &[host, named, shown]).expect("named");
            let bare = check(&access, Method::PATCH, &[host, named]);
            assert_eq!(bare.is_ok(), token.is_none());
            // What is no question before a request needs the token like any other.
            let options = check(&access, Method::OPTIONS, &[host, named]);
            assert_eq!(options.is_ok(), token.is_none());
            for origin in [
                "https://evil.example",
                "https://console.example.evil.example",
                "http://console.example",
                "null",
            ] {
                let origin = ("origin", origin);
                check(&access, Method::OPTIONS, &[host, origin, asks]).expect_err(origin.1);
                check(&access, Method::GET, &[host, origin, shown]).expect_err(origin.1);
            }
            let two = [host, named, ("origin", "https://evil.example"), shown];
            check(&access, Method::GET, &two).expect_err("two origins");
        }
    }

    #[test]
    fn a_form_posted_without_origin_is_known_by_its_site() {
        let access = Access::default();
        for site in ["cross-site", "same-site"] {
            let headers = [("host", "localhost"), ("sec-fetch-site", site)];
            check(&access, Method::POST, &headers).expect_err(site);
        }
        let typed = [("host", "localhost"), ("sec-fetch-site", "none")];
        check(&access, Method::GET, &typed).expect("typed into the address bar");
    }

    #[test]
    fn a_page_is_safe_from_rebinding_and_foreign_forms_with_a_token_too() {
        let access = Access {
            token: Some(Secret::new("s3cret")),
            hosts: vec!["gate.example".to_owned()],
            origins: vec!["https://other.example".to_owned()],
        };
        let page = |method: Method, headers: &[(&str, &str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
                map.append(name, HeaderValue::from_str(value).expect("a value"));
            }
            access.check_page(&method, &Uri::from_static("/console"), &map)
        };
        let host = ("host", "gate.example");
        page(Method::GET, &[host]).expect("an address that was typed");
        page(Method::GET, &[("host", "evil.example")]).expect_err("a rebound name");
        page(Method::GET, &[]).expect_err("no name");
        page(Method::POST, &[host]).expect_err("no word of the browser");
        page(Method::POST, &[host, ("sec-fetch-site", "none")]).expect_err("no page");
        page(Method::POST, &[host, ("sec-fetch-site", "same-site")]).expect_err("a neighbour");
        page(Method::POST, &[host, ("sec-fetch-site", "same-origin")]).expect("its own");
        page(Method::POST, &[host, ("origin", "https://gate.example")]).expect("its own");
        for origin in ["https://other.example", "null", "https://evil.example"] {
            page(Method::POST, &[host, ("origin", origin)]).expect_err(origin);
        }
    }

    #[test]
    fn with_a_token_nothing_goes_without_it() {
        let access = Access {
            token: Some(Secret::new("s3cret")),
            ..Access::default()
        };
        let host = ("host", "gate.example");
        check(&access, Method::GET, &[host]).expect_err("no token");
        check(&access, Method::GET, &[host, ("kong-admin-token", "s3cre")]).expect_err("wrong");
        check(
            &access,
            Method::GET,
            &[host, ("kong-admin-token", "s3cret")],
        )
        .expect("right");
        // As Prometheus sends it. The token's own header counts before.
        let bearer = ("authorization", "Bearer s3cret");
        check(&access, Method::GET, &[host, bearer]).expect("a bearer");
        check(
            &access,
            Method::GET,
            &[host, ("authorization", "Basic s3cret")],
        )
        .expect_err("another scheme");
        let wrong = ("kong-admin-token", "wrong");
        check(&access, Method::GET, &[host, bearer, wrong]).expect_err("its own header");
    }
}
