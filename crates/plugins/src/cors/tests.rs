#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::testing::{decide, plugin, session};

type Headers = HeaderMap;

/// The one value of a header; those of `Vary` are a list.
fn text(headers: &Headers, name: &str) -> Option<String> {
    let all = headers.get_all(name).iter();
    let all: Vec<&str> = all.map(|value| value.to_str().unwrap()).collect();
    assert!(all.len() <= 1 || name == "vary", "{name}");
    (!all.is_empty()).then(|| all.join(", "))
}

/// Headers of the answer to a GET; `None`: without an origin.
async fn simple(config: &Value, origin: Option<&str>) -> Headers {
    let filter = plugin(&KIND, config).unwrap();
    let line = origin.map_or(String::new(), |origin| format!("Origin: {origin}\r\n"));
    let request = format!("GET / HTTP/1.1\r\nHost: a.test\r\n{line}\r\n");
    let (mut session, _client) = session(&request).await;
    let mut exchange = Exchange::default();
    assert!(
        decide(&*filter, &mut session, &mut exchange)
            .await
            .is_none()
    );
    let mut response = ResponseHeader::build(StatusCode::OK, None).unwrap();
    response
        .insert_header("Access-Control-Allow-Origin", "https://upstream.test")
        .unwrap();
    response.insert_header("Vary", "Accept-Encoding").unwrap();
    filter.on_response_to(session.req_header(), &exchange, &mut response);
    let mut own = ResponseHeader::build(StatusCode::FORBIDDEN, None).unwrap();
    filter.on_own_response(session.req_header(), &exchange, &mut own);
    let name = "access-control-allow-origin";
    assert_eq!(text(&own.headers, name), text(&response.headers, name));
    response.headers.clone()
}

/// Status and headers of the answer to a preflight.
async fn preflight(config: &Value, lines: &str) -> Option<(u16, Headers)> {
    let filter = plugin(&KIND, config).unwrap();
    let request = format!("OPTIONS / HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n");
    let (mut session, _client) = session(&request).await;
    let reply = decide(&*filter, &mut session, &mut Exchange::default()).await?;
    Some((reply.status.as_u16(), reply.headers.into_iter().collect()))
}

const ASKS: &str = "Origin: https://app.test\r\nAccess-Control-Request-Method: PUT\r\n";
const ALLOW_ORIGIN: &str = "access-control-allow-origin";

#[tokio::test]
async fn without_origins_every_origin_is_allowed_and_no_answer_varies() {
    for config in [json!({}), json!({"origins": []}), json!({"origins": ["*"]})] {
        for origin in [None, Some("https://app.test")] {
            let headers = simple(&config, origin).await;
            assert_eq!(text(&headers, ALLOW_ORIGIN).as_deref(), Some("*"));
            assert_eq!(text(&headers, "vary").as_deref(), Some("Accept-Encoding"));
        }
    }
}

#[tokio::test]
async fn one_plain_origin_is_told_to_everybody() {
    let config = json!({"origins": ["https://app.test"]});
    for origin in [None, Some("https://app.test"), Some("https://evil.test")] {
        let headers = simple(&config, origin).await;
        assert_eq!(
            text(&headers, ALLOW_ORIGIN).as_deref(),
            Some("https://app.test")
        );
        assert_eq!(
            text(&headers, "vary").as_deref(),
            Some("Accept-Encoding, Origin")
        );
    }
}

#[tokio::test]
async fn all_that_an_answer_varies_by_stays() {
    let filter = plugin(&KIND, &json!({"origins": ["https://app.test"]})).unwrap();
    let (session, _client) = session("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    for (before, after) in [
        (
            &["Accept-Encoding", "Cookie"][..],
            "Accept-Encoding, Cookie, Origin",
        ),
        (&["Cookie", "accept, ORIGIN"], "Cookie, accept, ORIGIN"),
        (&["Cookie", "*"], "Cookie, *"),
    ] {
        let mut response = ResponseHeader::build(StatusCode::OK, None).unwrap();
        for value in before {
            response.append_header("Vary", *value).unwrap();
        }
        let exchange = Exchange::default();
        filter.on_response_to(session.req_header(), &exchange, &mut response);
        assert_eq!(text(&response.headers, "vary").as_deref(), Some(after));
    }
}

#[tokio::test]
async fn of_several_origins_the_one_that_asks_is_told() {
    let config = json!({"origins": [
        "https://app.test:443", "http://b.test:8080", "https?://c[0-9]\\.test:[0-9]+",
        "(.*[.])?d\\.test"
    ]});
    for (origin, told) in [
        ("https://app.test", Some("https://app.test")),
        ("https://app.test:443", Some("https://app.test")),
        ("http://app.test", None),
        ("http://b.test:8080", Some("http://b.test:8080")),
        ("http://b.test", None),
        ("http://c1.test:81", Some("http://c1.test:81")),
        ("https://x.d.test", Some("https://x.d.test")),
        ("https://d.test:8443", Some("https://d.test:8443")),
        // Expressions are for the whole text.
        ("https://d.test.evil.test", None),
        ("https://evil-d.test", None),
        ("https://evil.test/.d.test:1x", None),
        ("https://evil.test/.d.test", None),
        ("null", None),
        ("", None),
    ] {
        let headers = simple(&config, Some(origin)).await;
        assert_eq!(text(&headers, ALLOW_ORIGIN).as_deref(), told, "{origin}");
        assert_eq!(
            text(&headers, "vary").as_deref(),
            Some("Accept-Encoding, Origin")
        );
    }
    assert_eq!(text(&simple(&config, None).await, ALLOW_ORIGIN), None);
}

#[tokio::test]
async fn an_asterisk_among_several_is_an_asterisk() {
    let config = json!({"origins": ["https://app.test", "*"]});
    let headers = simple(&config, Some("https://app.test")).await;
    assert_eq!(
        text(&headers, ALLOW_ORIGIN).as_deref(),
        Some("https://app.test")
    );
    let headers = simple(&config, Some("https://other.test")).await;
    assert_eq!(text(&headers, ALLOW_ORIGIN).as_deref(), Some("*"));
}

#[tokio::test]
async fn credentials_never_go_with_an_asterisk() {
    let any = json!({"credentials": true});
    let headers = simple(&any, Some("https://app.test")).await;
    assert_eq!(
        text(&headers, ALLOW_ORIGIN).as_deref(),
        Some("https://app.test")
    );
    assert_eq!(
        text(&headers, "vary").as_deref(),
        Some("Accept-Encoding, Origin")
    );
    let name = "access-control-allow-credentials";
    assert_eq!(text(&headers, name).as_deref(), Some("true"));
    let headers = simple(&any, None).await;
    assert_eq!(text(&headers, ALLOW_ORIGIN).as_deref(), Some("*"));
    assert_eq!(text(&headers, name), None);
    assert_eq!(plugin(&KIND, &any).unwrap().warnings().len(), 1);

    let listed = json!({"credentials": true, "origins": ["https://a.test", "https://b.test"]});
    let headers = simple(&listed, Some("https://evil.test")).await;
    assert_eq!(text(&headers, ALLOW_ORIGIN), None);
    assert_eq!(text(&headers, name).as_deref(), Some("true"));
    assert!(plugin(&KIND, &listed).unwrap().warnings().is_empty());
}

#[tokio::test]
async fn a_preflight_is_answered_before_any_upstream_sees_it() {
    let lines = format!("{ASKS}Access-Control-Request-Headers: x-a, x-b\r\n");
    let config = json!({"max_age": 3600, "exposed_headers": ["x-c"]});
    let (status, headers) = preflight(&config, &lines).await.unwrap();
    assert_eq!(status, 200);
    let header = |name| text(&headers, name);
    assert_eq!(header(ALLOW_ORIGIN).as_deref(), Some("*"));
    assert_eq!(
        header("access-control-allow-headers").as_deref(),
        Some("x-a, x-b")
    );
    let methods = header("access-control-allow-methods").unwrap();
    assert_eq!(
        methods,
        "GET,HEAD,PUT,PATCH,POST,DELETE,OPTIONS,TRACE,CONNECT"
    );
    assert_eq!(header("access-control-max-age").as_deref(), Some("3600"));
    assert_eq!(header("access-control-expose-headers"), None);

    let config = json!({"headers": ["A", "B"], "methods": ["GET"], "origins": ["x.*", "b"]});
    let (status, headers) = preflight(&config, &lines).await.unwrap();
    assert_eq!(status, 200);
    assert_eq!(text(&headers, ALLOW_ORIGIN), None);
    assert_eq!(
        text(&headers, "access-control-allow-headers").as_deref(),
        Some("A,B")
    );
    assert_eq!(
        text(&headers, "access-control-allow-methods").as_deref(),
        Some("GET")
    );
}

#[tokio::test]
async fn options_without_origin_or_method_is_no_preflight() {
    for lines in [
        "",
        "Origin: https://app.test\r\n",
        "Access-Control-Request-Method: GET\r\n",
    ] {
        assert!(preflight(&json!({}), lines).await.is_none());
    }
    let passes = json!({"preflight_continue": true});
    assert!(preflight(&passes, ASKS).await.is_none());
}

#[tokio::test]
async fn a_private_network_is_opened_where_that_is_wanted_and_asked() {
    let name = "access-control-allow-private-network";
    let asks = format!("{ASKS}Access-Control-Request-Private-Network: true\r\n");
    for (allowed, lines, told) in [
        (true, asks.as_str(), Some("true")),
        (true, ASKS, None),
        (false, asks.as_str(), None),
    ] {
        let config = json!({ "private_network": allowed });
        let (_, headers) = preflight(&config, lines).await.unwrap();
        assert_eq!(text(&headers, name).as_deref(), told);
    }
}

#[tokio::test]
async fn exposed_headers_are_told_with_answers() {
    let headers = simple(&json!({"exposed_headers": ["X-A", "X-B"]}), None).await;
    let exposed = text(&headers, "access-control-expose-headers");
    assert_eq!(exposed.as_deref(), Some("X-A,X-B"));
}

#[test]
fn what_is_no_expression_and_no_method_is_refused() {
    let refused = |config| plugin(&KIND, &config).err().unwrap();
    let message = refused(json!({"origins": ["("]}));
    assert!(message.contains("'(' is not a valid regex"), "{message}");
    let message = refused(json!({"methods": ["GETT"]}));
    assert!(message.contains("expected one of: GET, HEAD"), "{message}");
}
