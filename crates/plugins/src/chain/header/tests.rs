//! The filter as configured, on requests and answers.
#![expect(clippy::unwrap_used, reason = "tests")]

use http::StatusCode;
use serde_json::json;

use super::*;
use crate::testing::{chain_filter, decide, parts, session};
use doorward_net::http::head::UpstreamRequest;

fn filter(config: Value) -> Result<Arc<dyn Filter>, ConfigError> {
    chain_filter(&parts(), "HeaderFilter", &config, &|_| None)
}

fn refused(config: Value) -> String {
    filter(config).err().unwrap().to_string()
}

/// The fields called `name` after the filter, as later filters and as the
/// upstream see them; `own`: what the gateway writes in between.
async fn sent(config: Value, head: &str, own: &[(&'static str, &str)]) -> (HeaderList, HeaderList) {
    let filter = filter(config).unwrap();
    let request = format!("GET /a?q=1 HTTP/1.1\r\n{head}\r\n\r\n");
    let (mut session, _client) = session(&request).await;
    let mut exchange = Exchange::default();
    assert!(
        decide(&*filter, &mut session, &mut exchange)
            .await
            .is_none()
    );
    let mut upstream = session.req_header().clone();
    for (name, value) in own {
        upstream.insert_header(*name, *value).unwrap();
    }
    filter.on_upstream_request(&exchange, &mut UpstreamRequest::new(&mut upstream));
    (seen(session.req_header()), seen(&upstream))
}

type HeaderList = Vec<(String, String)>;

fn seen(request: &RequestHeader) -> HeaderList {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let fields = request.headers.iter();
    fields
        .map(|(name, value)| (name.to_string(), text(value)))
        .collect()
}

fn all<'a>(fields: &'a HeaderList, name: &str) -> Vec<&'a str> {
    let fields = fields.iter().filter(|(of, _)| of == name);
    fields.map(|(_, value)| value.as_str()).collect()
}

#[tokio::test]
async fn fields_are_removed_first_and_then_added_beside_what_is_there() {
    let config = json!({"messageType": "request", "remove": ["x-a", "X-Gone"],
        "add": {"X-A": ["new", "${request.uri.path}"], "X-B": "more", "X-Null": ["${null}"]}});
    let head = "Host: h\r\nX-A: old\r\nX-B: there\r\nX-Gone: 1\r\nx-gone: 2";
    let (fields, upstream) = sent(config, head, &[]).await;
    assert_eq!(all(&fields, "x-a"), ["new", "/a"]);
    assert_eq!(all(&fields, "x-b"), ["there", "more"]);
    assert!(all(&fields, "x-gone").is_empty());
    assert!(all(&fields, "x-null").is_empty());
    assert_eq!(fields, upstream);
}

#[tokio::test]
async fn what_was_removed_is_gone_before_values_are_made() {
    let config = json!({"messageType": "REQUEST", "remove": ["X-A"],
        "add": {"X-A": ["${request.headers['X-A'][0]}"], "X-B": ["${1}", "${true}"]}});
    let (fields, _) = sent(config, "Host: h\r\nX-A: old", &[]).await;
    assert!(all(&fields, "x-a").is_empty());
    assert!(all(&fields, "x-b").is_empty(), "only texts are values");
}

#[tokio::test]
async fn an_expression_cannot_inject_a_header() {
    let parts = parts();
    let config = json!({"messageType": "REQUEST",
        "add": {"X-Name": ["${urlDecode(request.headers['X-In'][0])}"]}});
    let filter = chain_filter(&parts, "HeaderFilter", &config, &|_| None).unwrap();
    let illegal = parts.metrics.decision("HeaderFilter", "illegal_value");
    for (count, value) in ["a%0d%0aX-Admin:%201", "a%0ab", "a%00b", "%7f"]
        .iter()
        .enumerate()
    {
        let request = format!("GET / HTTP/1.1\r\nHost: h\r\nX-In: {value}\r\n\r\n");
        let (mut session, _client) = session(&request).await;
        let mut exchange = Exchange::default();
        assert!(
            decide(&*filter, &mut session, &mut exchange)
                .await
                .is_none()
        );
        let fields = seen(session.req_header());
        assert!(all(&fields, "x-name").is_empty(), "{fields:?}");
        assert!(all(&fields, "x-admin").is_empty());
        assert_eq!(illegal.get(), count as u64 + 1);
    }
}

#[tokio::test]
async fn a_client_cannot_nominate_an_added_field_away() {
    let config = json!({"messageType": "REQUEST", "add": {"X-User": ["anna"]}});
    let head = "Host: h\r\nConnection: close, X-USER ,x-other";
    let (fields, _) = sent(config, head, &[]).await;
    assert_eq!(all(&fields, "connection"), ["close, x-other"]);
}

#[tokio::test]
async fn a_client_cannot_send_a_removed_field_in_another_spelling() {
    let config = json!({"messageType": "REQUEST", "remove": ["X-User-Id"]});
    let head = "Host: h\r\nX_User_Id: eve\r\nX-User_Id: eve\r\nx-user-id: eve\r\nX_Other: y";
    let (fields, _) = sent(config, head, &[]).await;
    let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["host", "x_other"]);
}

#[tokio::test]
async fn fields_of_the_gateway_are_replaced_where_an_operator_says_so() {
    let own = &[
        ("x-forwarded-for", "10.0.0.1, 10.0.0.2"),
        ("x-forwarded-proto", "http"),
        ("host", "backend:80"),
    ];
    let config = json!({"messageType": "REQUEST", "remove": ["host", "X-Forwarded-For"],
        "add": {"Host": ["app.example.com:8443"], "X-Forwarded-Proto": ["https"]}});
    let head = "Host: h\r\nX-Forwarded-Proto: gopher";
    let (fields, upstream) = sent(config, head, own).await;
    assert_eq!(all(&fields, "host"), ["app.example.com:8443"]);
    assert_eq!(all(&fields, "x-forwarded-proto"), ["https"]);
    assert_eq!(all(&upstream, "host"), ["app.example.com:8443"]);
    assert_eq!(all(&upstream, "x-forwarded-proto"), ["https"]);
    assert!(all(&upstream, "x-forwarded-for").is_empty());
    let config = json!({"messageType": "REQUEST", "remove": ["host"],
        "add": {"Host": ["${request.headers['X-In'][0]}"]}});
    for bad in ["a b", "a/b", "u@h", "a, b", ""] {
        let head = format!("Host: h\r\nX-In: {bad}");
        let (_, upstream) = sent(config.clone(), &head, own).await;
        assert_eq!(all(&upstream, "host"), ["backend:80"], "{bad}");
    }
}

#[tokio::test]
async fn answers_get_values_of_the_request_and_of_the_answer() {
    let config = json!({"messageType": "Response", "remove": ["Server", "X-Down"], "add": {
        "X-Path": ["${request.uri.path}"], "Set-Cookie": ["a=1", "b=2"],
        "X-Status": ["${toString(response.status.code)}"],
        "X-Bad": ["${urlDecode(response.headers['X-Up'][0])}"]}});
    let filter = filter(config).unwrap();
    let (mut session, _client) = session("GET /a HTTP/1.1\r\nHost: h\r\nX-Down: q\r\n\r\n").await;
    let mut exchange = Exchange::default();
    assert!(
        decide(&*filter, &mut session, &mut exchange)
            .await
            .is_none()
    );
    assert!(
        session.req_header().headers.contains_key("x-down"),
        "is not of the request"
    );
    let mut response = ResponseHeader::build(StatusCode::IM_A_TEAPOT, None).unwrap();
    for (name, value) in [("Server", "x"), ("X-Up", "a%0d%0ab"), ("Set-Cookie", "z=0")] {
        response.append_header(name, value).unwrap();
    }
    filter.on_response_to(session.req_header(), &exchange, &mut response);
    let value = |name: &str| {
        response
            .headers
            .get(name)
            .map(|value| value.to_str().unwrap())
    };
    assert_eq!(value("x-path"), Some("/a"));
    assert_eq!(value("x-status"), Some("418"));
    assert_eq!((value("server"), value("x-bad")), (None, None));
    assert_eq!(response.headers.get_all("set-cookie").iter().count(), 3);
}

#[test]
fn framing_and_connection_fields_are_refused_when_files_load() {
    for message in ["REQUEST", "RESPONSE"] {
        for name in [
            "Content-Length",
            "transfer-encoding",
            "Connection",
            "Upgrade",
            "TE",
        ] {
            let error = refused(json!({"messageType": message, "remove": [name]}));
            assert!(error.starts_with("remove: "), "{error}");
            let error = refused(json!({"messageType": message, "add": {name: ["1"]}}));
            assert!(error.starts_with(&format!("add.{name}: ")), "{error}");
        }
    }
}

#[test]
fn what_cannot_be_is_refused_with_the_field_at_fault() {
    for (config, field) in [
        (json!({}), "messageType"),
        (json!({"messageType": "BOTH"}), "messageType"),
        (json!({"messageType": "REQUEST", "remove": "a b"}), "remove"),
        (json!({"messageType": "REQUEST", "remove": [1]}), "remove"),
        (json!({"messageType": "REQUEST", "add": ["X"]}), "add"),
        (
            json!({"messageType": "REQUEST", "add": {"X:": ["1"]}}),
            "add.X:",
        ),
        (
            json!({"messageType": "REQUEST", "add": {"X": ["a\r\nb"]}}),
            "add.X",
        ),
        (
            json!({"messageType": "REQUEST", "add": {"X": ["${nope("]}}),
            "add.X",
        ),
        (
            json!({"messageType": "REQUEST", "add": {"Host": ["a"]}}),
            "add.Host",
        ),
        (
            json!({"messageType": "REQUEST", "remove": ["Host"], "add": {"Host": ["a/b"]}}),
            "add.Host",
        ),
    ] {
        let error = filter(config.clone()).err().unwrap();
        assert_eq!(error.field, field, "{config}: {error}");
    }
}

#[test]
fn settings_without_meaning_are_told() {
    let config = json!({"messageType": "REQUEST", "replace": {}, "add": {"X": ["${null}"]}});
    let warnings = filter(config).unwrap().warnings();
    assert!(
        warnings
            .iter()
            .any(|warning| warning.starts_with("replace has no meaning"))
    );
    assert!(
        warnings
            .iter()
            .any(|warning| warning.starts_with("add.X has a value that is never"))
    );
    let config = json!({"messageType": "RESPONSE", "remove": ["Server"]});
    assert!(filter(config).unwrap().warnings().is_empty());
}
