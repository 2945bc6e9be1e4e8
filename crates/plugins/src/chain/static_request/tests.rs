//! The filter as configured, on requests.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::testing::{chain_filter, decide, parts, session};
use doorward_net::http::head::UpstreamRequest;

fn filter(config: Value) -> Result<Arc<dyn Filter>, ConfigError> {
    chain_filter(&parts(), "StaticRequestFilter", &config, &|_| None)
}

struct Replaced {
    request: RequestHeader,
    upstream: RequestHeader,
    exchange: Exchange,
    status: Option<StatusCode>,
}

impl Replaced {
    fn header(&self, name: &str) -> Option<&str> {
        self.request.headers.get(name)?.to_str().ok()
    }

    fn body(&self) -> &str {
        std::str::from_utf8(self.exchange.replacement.as_ref().unwrap()).unwrap()
    }
}

async fn replace(config: Value, request: &str) -> Replaced {
    let filter = filter(config).unwrap();
    let (mut session, _client) = session(request).await;
    let mut exchange = Exchange::default();
    let reply = decide(&*filter, &mut session, &mut exchange).await;
    let request = session.req_header().clone();
    let mut upstream = request.clone();
    filter.on_upstream_request(&exchange, &mut UpstreamRequest::new(&mut upstream));
    Replaced {
        request,
        upstream,
        exchange,
        status: reply.map(|reply| reply.status),
    }
}

const PLAIN: &str = "GET /a?q=1 HTTP/1.1\r\nHost: h\r\nCookie: a=b\r\nX-Name: anna\r\n\r\n";

#[tokio::test]
async fn the_request_is_another_one() {
    let config = json!({"method": "POST", "uri": "http://app:8081${request.uri.path}/x",
        "version": "HTTP/1.1", "headers": {"X-Who": ["${request.headers['X-Name'][0]}", "two"],
        "X-Null": ["${null}"]}, "entity": "hello ${request.headers['X-Name'][0]}"});
    let got = replace(config, PLAIN).await;
    assert_eq!(got.request.method, Method::POST);
    assert_eq!(got.request.uri, "http://app:8081/a/x");
    assert_eq!(got.request.headers.get_all("x-who").iter().count(), 2);
    assert_eq!(got.header("cookie"), None);
    assert_eq!(got.header("x-name"), None);
    assert_eq!(got.header("x-null"), None);
    assert_eq!(got.body(), "hello anna");
    assert_eq!(
        got.exchange.body.as_deref(),
        Some(&b"hello anna"[..]),
        "later filters see it"
    );
    let original = got.exchange.original.as_ref().unwrap();
    assert_eq!(
        (original.method.as_str(), original.uri.path()),
        ("GET", "/a")
    );
}

#[tokio::test]
async fn a_path_keeps_the_base_that_is_in_force() {
    let config = json!({"method": "GET", "uri": "/b?q=2"});
    let filter = filter(config).unwrap();
    for (now, wanted) in [
        ("https://app:8443/a?q=1", "https://app:8443/b?q=2"),
        ("/a", "/b?q=2"),
    ] {
        let (mut session, _client) = session(PLAIN).await;
        session.req_header_mut().set_uri(now.parse().unwrap());
        let mut exchange = Exchange::default();
        let reply = decide(&*filter, &mut session, &mut exchange).await;
        assert!(reply.is_none());
        assert_eq!(session.req_header().uri, wanted);
    }
}

#[tokio::test]
async fn a_form_is_the_body_of_a_post_and_the_query_of_others() {
    let form =
        json!({"a b": ["1", "${request.headers['X-Name'][0]}"], "c": ["&="], "n": ["${null}"]});
    let config = json!({"method": "POST", "uri": "/login", "form": form,
        "headers": {"Content-Type": ["text/plain"]}});
    let got = replace(config, PLAIN).await;
    assert_eq!(
        got.header("content-type"),
        Some("application/x-www-form-urlencoded")
    );
    assert_eq!(got.body(), "a+b=1&a+b=anna&c=%26%3D");
    for (uri, wanted) in [
        ("/login", "/login?a+b=1&a+b=anna&c=%26%3D"),
        (
            "http://app/login?x=1",
            "http://app/login?x=1&a+b=1&a+b=anna&c=%26%3D",
        ),
    ] {
        let config = json!({"method": "GET", "uri": uri, "form": form});
        let got = replace(config, PLAIN).await;
        assert_eq!(got.request.uri, wanted);
        assert_eq!(got.body(), "");
    }
}

#[tokio::test]
async fn the_length_of_the_clients_own_body_is_still_known() {
    let request = "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\
        Connection: x-who, Upgrade, close\r\nUpgrade: websocket\r\n\r\nhello";
    let config = json!({"method": "GET", "uri": "/", "headers": {"X-Who": ["a"]}});
    let got = replace(config, request).await;
    assert_eq!(got.header("content-length"), Some("5"));
    assert_eq!(got.header("host"), Some("h"));
    assert_eq!(got.header("connection"), Some("close"));
    assert_eq!(got.header("upgrade"), None);
    assert_eq!(got.upstream.headers.get("expect"), None);
    assert_eq!(got.body(), "");
}

#[tokio::test]
async fn nobody_waits_for_the_body_of_an_answer_to_head() {
    let head = PLAIN.replace("GET", "HEAD");
    for (method, request, wanted) in [
        ("HEAD", PLAIN, "GET"),
        ("HEAD", &head, "HEAD"),
        ("POST", &head, "POST"),
    ] {
        let got = replace(json!({"method": method, "uri": "/"}), request).await;
        assert_eq!(got.request.method.as_str(), wanted);
    }
}

#[tokio::test]
async fn a_target_that_cannot_be_had_is_an_error_of_the_route() {
    for uri in [
        "${null}",
        "${request.headers['Nope'][0]}",
        "${urlDecode(request.headers['X-In'][0])}",
        "http://${request.headers['X-In'][0]}@evil/",
        "ftp://${request.headers['X-Name'][0]}/",
        "${request.headers['X-Name'][0]}/x",
    ] {
        let request = PLAIN.replace("X-Name: anna", "X-Name: anna\r\nX-In: /%0d%0aX-Admin:1");
        let config = json!({"method": "GET", "uri": uri});
        if uri == "${null}" {
            assert_eq!(filter(config).err().unwrap().field, "uri");
            continue;
        }
        let got = replace(config, &request).await;
        assert_eq!(got.status, Some(StatusCode::INTERNAL_SERVER_ERROR), "{uri}");
        assert_eq!(got.exchange.refusal.as_deref(), Some("no_uri"));
        assert_eq!(got.request.uri, "/a?q=1", "the request is as it was");
    }
}

#[test]
fn what_cannot_be_is_refused_with_the_field_at_fault() {
    for (config, field) in [
        (json!({"uri": "/"}), "method"),
        (json!({"method": "a b", "uri": "/"}), "method"),
        (json!({"method": "CONNECT", "uri": "/"}), "method"),
        (json!({"method": "GET"}), "uri"),
        (json!({"method": "GET", "uri": "login"}), "uri"),
        (json!({"method": "GET", "uri": "http://u:p@h/"}), "uri"),
        (
            json!({"method": "GET", "uri": "/", "form": {}, "entity": "x"}),
            "entity",
        ),
        (
            json!({"method": "GET", "uri": "/", "headers": {"Content-Length": ["3"]}}),
            "headers.Content-Length",
        ),
        (
            json!({"method": "GET", "uri": "/", "headers": {"Host": ["a", "b"]}}),
            "headers.Host",
        ),
        (
            json!({"method": "GET", "uri": "/", "form": {"a": [1]}}),
            "form.a",
        ),
    ] {
        let error = filter(config.clone()).err().unwrap();
        assert_eq!(error.field, field, "{config}: {error}");
    }
}

#[test]
fn a_body_is_read_where_an_expression_looks_at_it() {
    let with =
        |entity: &str| filter(json!({"method": "POST", "uri": "/", "entity": entity})).unwrap();
    assert!(with("${request.entity.string}").needs_body());
    assert!(!with("${request.method}").needs_body());
}
