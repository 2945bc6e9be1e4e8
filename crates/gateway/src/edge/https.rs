//! HTTPS for everybody: requests without TLS are led to it, and browsers are told to
//! stay there (RFC 6797).

use std::fmt;

use http::{HeaderValue, StatusCode, header};
use pingora::http::RequestHeader;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

use doorward_net::http::authority;
use doorward_net::http::challenges::HttpChallenges;
use doorward_net::http::reply::{Reply, ReplyBody};

/// Where certificate authorities look for answers to challenges, over plain HTTP
/// (RFC 8555 §8.3).
const ACME: &str = "/.well-known/acme-challenge/";
/// The port that addresses with `https` need not name.
const HTTPS: u16 = 443;
/// The shortest `max-age` with which browsers' lists take a host up, in seconds.
const PRELOAD_AGE: u64 = 31_536_000;

/// Whether requests without TLS are redirected, and with which status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HttpsRedirect(Option<StatusCode>);

impl HttpsRedirect {
    /// Whether any request is redirected.
    pub fn is_on(self) -> bool {
        self.0.is_some()
    }

    /// The answer to a request that came without TLS; `port` is that of the TLS
    /// listener as clients know it, 0 if something in front speaks TLS.
    pub(crate) fn answer(self, request: &RequestHeader, port: u16) -> Option<Reply> {
        let status = self.0.filter(|_| !is_challenge(request.uri.path()))?;
        redirection(status, request, port)
    }
}

/// Whether certificate authorities ask for this path.
fn is_challenge(path: &str) -> bool {
    challenge_token(path).is_some()
}

/// The token of a path that certificate authorities ask for. Behind the path is a token
/// and nothing else: one that leads elsewhere is no challenge.
pub(crate) fn challenge_token(path: &str) -> Option<&str> {
    let token = path.strip_prefix(ACME)?;
    let in_token = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (!token.is_empty() && token.bytes().all(in_token)).then_some(token)
}

/// The answer to the challenge with this token, if an order waits for it.
pub(crate) async fn answer_challenge(
    challenges: &dyn HttpChallenges,
    token: &str,
) -> Option<Reply> {
    let authorization = challenges.answer(token).await?;
    let mut reply = Reply::empty(StatusCode::OK);
    reply.body = ReplyBody::Raw("application/octet-stream", authorization.into());
    Some(reply)
}

/// The redirect to the same address over TLS, where the request has one.
pub(crate) fn redirection(status: StatusCode, request: &RequestHeader, port: u16) -> Option<Reply> {
    let (host, _) = authority::of(request).filter(|(host, _)| !host.is_empty())?;
    let target = request.uri.path_and_query()?;
    if !target.path().starts_with('/') {
        return None;
    }
    let port = match port {
        0 | HTTPS => String::new(),
        port => format!(":{port}"),
    };
    let location = HeaderValue::try_from(format!("https://{host}{port}{target}")).ok()?;
    Some(Reply::empty(status).header(header::LOCATION, location))
}

impl<'de> Deserialize<'de> for HttpsRedirect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RedirectVisitor)
    }
}

struct RedirectVisitor;

impl Visitor<'_> for RedirectVisitor {
    type Value = HttpsRedirect;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false, 301, 302, 307 or 308")
    }

    fn visit_bool<E: Error>(self, is_on: bool) -> Result<HttpsRedirect, E> {
        // It keeps the method, and browsers remember it.
        Ok(HttpsRedirect(
            is_on.then_some(StatusCode::PERMANENT_REDIRECT),
        ))
    }

    fn visit_u64<E: Error>(self, code: u64) -> Result<HttpsRedirect, E> {
        let status = match code {
            301 => StatusCode::MOVED_PERMANENTLY,
            302 => StatusCode::FOUND,
            307 => StatusCode::TEMPORARY_REDIRECT,
            308 => StatusCode::PERMANENT_REDIRECT,
            _ => {
                let message = format!("{code} is none of true, false, 301, 302, 307, 308");
                return Err(E::custom(message));
            }
        };
        Ok(HttpsRedirect(Some(status)))
    }

    fn visit_i64<E: Error>(self, code: i64) -> Result<HttpsRedirect, E> {
        self.visit_u64(u64::try_from(code).unwrap_or_default())
    }
}

/// What `Strict-Transport-Security` tells browsers.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hsts {
    /// Seconds for which a browser comes by TLS only.
    pub max_age: u64,
    /// Whether this holds for all hosts below as well.
    pub include_subdomains: bool,
    /// Whether browsers' makers may take the host up in their lists.
    pub preload: bool,
}

impl Default for Hsts {
    fn default() -> Self {
        Self {
            max_age: PRELOAD_AGE,
            include_subdomains: false,
            preload: false,
        }
    }
}

impl Hsts {
    /// Whether the lists of browsers' makers would take it.
    ///
    /// # Errors
    /// What `preload` lacks.
    pub fn check(&self) -> Result<(), String> {
        let is_listable = self.include_subdomains && self.max_age >= PRELOAD_AGE;
        if self.preload && !is_listable {
            return Err(format!(
                "needs include_subdomains: true, and a max_age of at least {PRELOAD_AGE}"
            ));
        }
        Ok(())
    }

    /// The value of the header. Ask once: it lives as long as the process, so that
    /// workers share no count of who holds it.
    pub fn value(&self) -> HeaderValue {
        let mut text = format!("max-age={}", self.max_age);
        if self.include_subdomains {
            text.push_str("; includeSubDomains");
        }
        if self.preload {
            text.push_str("; preload");
        }
        HeaderValue::from_static(text.leak())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(host: &str, path: &[u8], port: u16) -> Option<String> {
        let mut request = RequestHeader::build("GET", path, None).expect("a request");
        request.insert_header("host", host).expect("a header");
        let reply = redirection(StatusCode::FOUND, &request, port)?;
        let (_, value) = reply.headers.first().expect("a location");
        Some(value.to_str().expect("a text").to_owned())
    }

    #[test]
    fn the_address_over_tls_has_the_port_that_clients_know() {
        let plain = "a.test:8000";
        let located = |port| location(plain, b"/p?q=1", port);
        assert_eq!(located(0).as_deref(), Some("https://a.test/p?q=1"));
        assert_eq!(located(443), located(0));
        assert_eq!(located(8443).as_deref(), Some("https://a.test:8443/p?q=1"));
        let address = location("[::1]:80", b"/", 0);
        assert_eq!(address.as_deref(), Some("https://[::1]/"));
    }

    #[test]
    fn a_host_that_is_none_leads_nowhere() {
        for host in ["", "a@b.test", "a.test/x", "a b", "a.test#"] {
            assert_eq!(location(host, b"/", 0), None, "{host}");
        }
        assert_eq!(
            location("a.test", b"//b.test/x", 0).as_deref(),
            Some("https://a.test//b.test/x")
        );
    }

    #[test]
    fn only_a_token_is_a_challenge() {
        assert!(is_challenge("/.well-known/acme-challenge/aZ09-_"));
        for rest in ["", "../../p", "a/../../p", "%2e%2e/p", "a/b", "..", ".\\p"] {
            assert!(!is_challenge(&format!("{ACME}{rest}")), "{rest}");
        }
        assert!(!is_challenge("/p"));
    }

    #[test]
    fn preload_needs_what_the_lists_ask_for() {
        let hsts = |max_age, include_subdomains| Hsts {
            max_age,
            include_subdomains,
            preload: true,
        };
        hsts(PRELOAD_AGE - 1, true).check().expect_err("too short");
        hsts(PRELOAD_AGE, false).check().expect_err("no subdomains");
        let good = hsts(PRELOAD_AGE, true);
        good.check().expect("good");
        let value = "max-age=31536000; includeSubDomains; preload";
        assert_eq!(good.value(), value);
    }
}
