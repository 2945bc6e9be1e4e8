//! Requests by which another proxy asks whether a client's request may pass.
//!
//! A service with `protocol: internal` and `host: forward-auth` answers them. The
//! sub-request becomes the request that it speaks of; the route's own filters decide
//! on that, and what they would tell an upstream is told to the proxy.

pub mod allowed_hosts;
pub(crate) mod dialect;

use std::borrow::Cow;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use pingora::Result;
use pingora::http::RequestHeader;

use super::context::Ctx;
use super::{head, responses};
use allowed_hosts::{AllowedHosts, bare};
use dialect::Dialect;
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_net::http::session::Session;
use doorward_plugin_api::filter::Code;
use doorward_plugin_api::identity;

/// What services call it.
pub const NAME: &str = "forward-auth";

/// A sub-request of a stranger.
pub(super) const UNTRUSTED: Code = Code::new(
    "forward_auth_untrusted",
    403,
    "a sub-request of forward-auth comes from a peer that is not in proxy.trusted_ips",
);
/// A sub-request about a host that is none of those allowed.
pub(super) const HOST_REFUSED: Code = Code::new(
    "forward_auth_host",
    403,
    "a sub-request speaks of a host that is not in proxy.forward_auth_hosts",
);
/// A sub-request that is about nothing.
pub(super) const MALFORMED: Code = Code::new(
    "forward_auth_malformed",
    400,
    "a sub-request does not say which request it speaks of",
);

/// The request that a sub-request speaks of.
struct Spoken {
    secure: Option<bool>,
    host: String,
    target: PathAndQuery,
    method: Option<Method>,
}

/// Makes the request that it speaks of out of a sub-request.
pub(super) fn restore(
    session: &mut Session,
    ctx: &mut Ctx,
    allowed: &AllowedHosts,
) -> Result<(), Reply> {
    let refuse = |ctx: &mut Ctx, code: Code, message: &'static str| {
        ctx.exchange.refusal = Some(Cow::Borrowed(code.code));
        let status = StatusCode::from_u16(code.status).unwrap_or(StatusCode::FORBIDDEN);
        Err(Reply::message(status, message))
    };
    if !ctx.exchange.trusted {
        return refuse(ctx, UNTRUSTED, "Sub-requests are for trusted proxies alone");
    }
    let request = session.req_header();
    let path = ctx.path(request).to_owned();
    let matched = path.get(ctx.matched..).unwrap_or_default();
    let Some((dialect, rest)) = Dialect::of(matched) else {
        let message = "expected /forward-auth, /auth-request or /ext-authz behind the route's path";
        return Err(Reply::message(StatusCode::NOT_FOUND, message));
    };
    let Some(spoken) = spoken(request, dialect, rest) else {
        return refuse(
            ctx,
            MALFORMED,
            "The sub-request does not say what it is about",
        );
    };
    let own = own_host(request);
    let is_own = own
        .as_deref()
        .is_some_and(|own| bare(own).eq_ignore_ascii_case(bare(&spoken.host)));
    if !is_own && !allowed.has(&spoken.host) {
        return refuse(ctx, HOST_REFUSED, "The host is none of forward_auth_hosts");
    }
    ctx.path = Some(path.into());
    if let Some(secure) = spoken.secure {
        ctx.exchange.secure = secure;
    }
    ctx.dialect = Some(dialect);
    let Ok(host) = HeaderValue::try_from(&spoken.host) else {
        return refuse(
            ctx,
            MALFORMED,
            "The sub-request does not say what it is about",
        );
    };
    rewrite(session.req_header_mut(), host, spoken, dialect);
    Ok(())
}

fn own_host(request: &RequestHeader) -> Option<String> {
    match request.headers.get(header::HOST) {
        Some(host) => host.to_str().ok().map(str::to_owned),
        None => request.uri.authority().map(ToString::to_string),
    }
}

/// The one value of a header; several are none.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first.trim())
}

fn spoken(request: &RequestHeader, dialect: Dialect, rest: &str) -> Option<Spoken> {
    let headers = &request.headers;
    let method = |name| {
        let text = single(headers, name)?;
        Method::from_bytes(text.as_bytes()).ok()
    };
    let spoken = match dialect {
        Dialect::ForwardAuth => Spoken {
            secure: None,
            host: single(headers, "x-forwarded-host")
                .map(|chain| {
                    chain
                        .rsplit(',')
                        .next()
                        .unwrap_or_default()
                        .trim()
                        .to_owned()
                })
                .or_else(|| own_host(request))?,
            target: target(single(headers, "x-forwarded-uri")?)?,
            method: method("x-forwarded-method"),
        },
        Dialect::AuthRequest => {
            let uri: Uri = single(headers, "x-original-url")?.parse().ok()?;
            let secure = match uri.scheme_str()? {
                "https" => true,
                "http" => false,
                _ => return None,
            };
            let authority = uri.authority()?;
            Spoken {
                secure: Some(secure),
                host: (!authority.as_str().contains('@')).then(|| authority.to_string())?,
                target: target(uri.path_and_query()?.as_str())?,
                method: method("x-original-method"),
            }
        }
        Dialect::ExtAuthz => {
            let rest = if rest.is_empty() { "/" } else { rest };
            let query = request.uri.query();
            let text = query.map_or_else(|| rest.to_owned(), |query| format!("{rest}?{query}"));
            Spoken {
                secure: None,
                host: own_host(request)?,
                target: target(&text)?,
                method: None,
            }
        }
    };
    Some(spoken)
}

fn target(text: &str) -> Option<PathAndQuery> {
    let target = PathAndQuery::try_from(text).ok()?;
    text.starts_with('/').then_some(target)
}

fn rewrite(request: &mut RequestHeader, host: HeaderValue, spoken: Spoken, dialect: Dialect) {
    // An answer to HEAD would have no end for who has sent GET.
    let kept = [Method::HEAD, Method::CONNECT, Method::TRACE];
    let method = spoken.method.filter(|method| !kept.contains(method));
    if let Some(method) = method.filter(|_| request.method != Method::HEAD) {
        request.set_method(method);
    }
    request.set_uri(Uri::from(spoken.target));
    // Who is calling is for the filters to say.
    for name in &identity::HEADERS {
        request.remove_header(name);
    }
    for name in [
        "x-forwarded-path",
        "x-forwarded-prefix",
        "x-original-url",
        "x-original-method",
    ] {
        request.remove_header(name);
    }
    if dialect != Dialect::ForwardAuth {
        request.remove_header("x-forwarded-port");
    }
    // Names and values that are already those of a message.
    let _ = request.insert_header("x-forwarded-host", host.clone());
    let _ = request.insert_header(header::HOST, host);
}

/// A refusal as the proxy in front understands it: only browsers are led to sign in.
pub(super) fn adapt(session: &Session, ctx: &Ctx, mut reply: Reply) -> Reply {
    let Some(dialect) = ctx.dialect else {
        return reply;
    };
    let request = session.req_header();
    if reply.status.is_redirection() && !is_browser(request) {
        return Reply::message(StatusCode::UNAUTHORIZED, "Unauthorized");
    }
    if dialect == Dialect::AuthRequest {
        let status = reply.status;
        if status.is_redirection() {
            reply.status = StatusCode::UNAUTHORIZED;
            reply.body = ReplyBody::Empty;
        } else if status.is_client_error() && status != StatusCode::UNAUTHORIZED {
            reply.status = StatusCode::FORBIDDEN;
        }
    }
    reply
}

fn is_browser(request: &RequestHeader) -> bool {
    let accept = request.headers.get_all(header::ACCEPT).iter();
    let mut accept = accept.filter_map(|value| value.to_str().ok());
    request.method == Method::GET && accept.any(|accept| accept.contains("text/html"))
}

/// Headers of the request that the proxy has sent itself, or that are about its
/// connection.
fn is_of_proxy(name: &HeaderName) -> bool {
    const OWN: [&str; 13] = [
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "cookie",
        "host",
        "location",
        "set-cookie",
        "te",
        "transfer-encoding",
        "upgrade",
        "via",
        "x-real-ip",
    ];
    let name = name.as_str();
    OWN.contains(&name) || name.starts_with("x-forwarded-") || name.starts_with("x-kong-")
}

/// The request as an upstream would get it, before the gateway adds to it.
pub(super) fn draft(session: &Session) -> RequestHeader {
    let mut request = session.req_header().clone();
    head::strip_hop_by_hop(&mut request);
    request
}

/// Tells the proxy that the request may pass, and what filters would tell an
/// upstream of it. `request` is what the upstream would get without them.
pub(super) async fn pass(
    mut request: RequestHeader,
    session: &mut Session,
    ctx: &mut Ctx,
) -> Result<()> {
    let before = request.headers.clone();
    let mut changed = UpstreamRequest::new(&mut request);
    for link in ctx.filters() {
        link.filter.on_upstream_request(&ctx.exchange, &mut changed);
    }
    drop(changed);
    let mut reply = Reply::empty(StatusCode::OK);
    for name in request.headers.keys() {
        let now = request.headers.get_all(name);
        if !is_of_proxy(name) && now != before.get_all(name) {
            let values = now.iter().map(|value| (name.clone(), value.clone()));
            reply.headers.extend(values);
        }
    }
    let no_store = HeaderValue::from_static("no-store");
    reply.headers.push((header::CACHE_CONTROL, no_store));
    // To filters it is an upstream's answer; none may store it.
    ctx.exchange.stored = true;
    responses::stored(session, ctx, reply, None).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_redirect_to_a_host_that_is_not_allowed() {
        let hosts = AllowedHosts::new(&["app.example".to_owned(), "*.apps.example".to_owned()]);
        for host in [
            "app.example",
            "APP.example:8443",
            "a.apps.example",
            "a.b.apps.example",
        ] {
            assert!(hosts.has(host), "{host}");
        }
        for host in [
            "evil.example",
            "app.example.evil.test",
            "apps.example",
            "xapp.example",
            ".apps.example",
        ] {
            assert!(!hosts.has(host), "{host}");
        }
    }

    fn request(target: &str, fields: &[(&'static str, &str)]) -> RequestHeader {
        let mut request = RequestHeader::build("GET", target.as_bytes(), None).expect("a request");
        for (name, value) in fields {
            request.append_header(*name, *value).expect("a field");
        }
        request
    }

    #[test]
    fn each_dialect_says_which_request_it_speaks_of() {
        let text = |request: &RequestHeader, path: &str| {
            let (dialect, rest) = Dialect::of(path)?;
            let spoken = spoken(request, dialect, rest)?;
            Some(format!("{} {}", spoken.host, spoken.target))
        };
        let traefik = [
            ("host", "auth.example"),
            ("x-forwarded-host", "app.example"),
            ("x-forwarded-uri", "/a?b=c"),
        ];
        let traefik = request("/auth/forward-auth", &traefik);
        assert_eq!(
            text(&traefik, "/forward-auth").as_deref(),
            Some("app.example /a?b=c")
        );
        assert_eq!(text(&traefik, "/auth-request"), None);
        let nginx = request(
            "/x",
            &[("x-original-url", "https://app.example:8443/a?b=c")],
        );
        assert_eq!(
            text(&nginx, "/auth-request").as_deref(),
            Some("app.example:8443 /a?b=c")
        );
        let envoy = request(
            "/x?b=c",
            &[("host", "app.example"), ("x-forwarded-uri", "/forged")],
        );
        assert_eq!(
            text(&envoy, "/ext-authz/a").as_deref(),
            Some("app.example /a?b=c")
        );
        assert_eq!(
            text(&envoy, "/ext-authz").as_deref(),
            Some("app.example /?b=c")
        );
        assert_eq!(text(&envoy, "/other"), None);
    }

    #[test]
    fn what_two_readers_could_take_for_different_requests_is_none() {
        for fields in [
            vec![
                ("x-original-url", "https://a.example/"),
                ("x-original-url", "https://b.example/"),
            ],
            vec![("x-original-url", "/a")],
            vec![("x-original-url", "ftp://a.example/")],
            vec![("x-original-url", "https://user@a.example/")],
        ] {
            let request = request("/", &fields);
            assert!(
                spoken(&request, Dialect::AuthRequest, "").is_none(),
                "{fields:?}"
            );
        }
        for uri in ["https://evil.test/", "a", ""] {
            let request = request("/", &[("host", "a"), ("x-forwarded-uri", uri)]);
            assert!(
                spoken(&request, Dialect::ForwardAuth, "").is_none(),
                "{uri}"
            );
        }
    }
}
