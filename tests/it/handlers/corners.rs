//! What is easily forgotten: tries again, failures, upstreams in the process.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::{chain, door, echo, header, login, path_is, route, says};
use crate::support::raw::Connection;
use crate::support::upstream::Reply;
use crate::support::{Upstream, http};

/// A handler that tries again.
fn insistent() -> Value {
    json!({"type": "ClientHandler", "config": {"retries": {"enabled": true, "count": 3}}})
}

#[tokio::test]
async fn a_post_that_takes_the_place_of_a_get_is_not_sent_twice() {
    let upstream = Upstream::start(|_| Reply::Close).await;
    let tree = chain(vec![login(&upstream)], insistent());
    let door = door(&[("login", json!({"handler": tree}))]).await;
    door.get("a.test", "/in?u=a").await.expect(502);
    assert_eq!(upstream.seen().len(), 1);
    assert_eq!(upstream.last().method, "POST");
}

#[tokio::test]
async fn a_post_that_takes_the_place_of_a_get_is_not_repeated_for_a_kept_connection() {
    let met = AtomicUsize::new(0);
    let upstream = Upstream::start(move |_| match met.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::Json(200, json!({})),
        _ => Reply::Close,
    })
    .await;
    let tree = chain(vec![login(&upstream)], json!("ClientHandler"));
    let door = door(&[("login", json!({"handler": tree}))]).await;
    // One connection stays with one worker, which keeps upstreams' for itself.
    let mut connection = Connection::open(&door.proxy()).await;
    for (user, status) in [("a", 200), ("b", 502)] {
        let request = format!("GET /in?u={user} HTTP/1.1\r\nHost: a.test\r\n\r\n");
        connection.send(request.as_bytes()).await;
        assert_eq!(connection.response().await.status, status);
    }
    let connections: Vec<_> = upstream.seen().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [0, 0]);
}

#[tokio::test]
async fn a_get_that_takes_the_place_of_a_post_is_tried_again() {
    let upstream = Upstream::start(|_| Reply::Close).await;
    let get = json!({"type": "StaticRequestFilter", "config": {
        "method": "GET", "uri": upstream.url("/")}});
    let door = door(&[("get", json!({"handler": chain(vec![get], insistent())}))]).await;
    let request = http::client().post(door.proxy_url("/")).body("x");
    http::send(request).await.expect(502);
    assert_eq!(upstream.seen().len(), 4);
}

#[tokio::test]
async fn upstreams_are_told_the_path_that_the_client_asked_for() {
    let upstream = echo().await;
    let tree = chain(vec![login(&upstream)], json!("ClientHandler"));
    let door = door(&[("login", json!({"handler": tree}))]).await;
    door.get("a.test", "/in/%7Ea?u=a").await.expect(200);
    let seen = upstream.last();
    assert_eq!(seen.target, "/login");
    assert_eq!(seen.header("x-forwarded-path"), Some("/in/~a"));
}

/// A route to the upstream `echo` of this process.
fn to_echo(filters: Vec<Value>) -> Value {
    json!({"baseURI": "internal://echo", "handler": chain(filters, json!("ReverseProxyHandler"))})
}

#[tokio::test]
async fn filters_see_that_a_body_is_too_long_for_the_process() {
    let door = door(&[("echo", to_echo(vec![header("RESPONSE", "X-Front", "yes")]))]).await;
    let mut connection = Connection::open(&door.proxy()).await;
    connection
        .send(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1000000000\r\n\r\nabc")
        .await;
    let answer = connection.head().await;
    assert_eq!(
        (answer.status, answer.header("x-front")),
        (413, Some("yes"))
    );
}

#[tokio::test]
async fn a_switch_replaces_answers_of_the_process() {
    let switch = json!({"type": "SwitchFilter", "config": {"onResponse": [
        {"condition": "${response.status.code == 200 and find(request.uri.path, '^/other')}",
         "handler": says(203, "instead of ${response.status.code}")}]}});
    let filters = vec![header("RESPONSE", "X-Front", "yes"), switch];
    let door = door(&[("echo", to_echo(filters))]).await;
    let mut connection = Connection::open(&door.proxy()).await;
    for path in ["/other", "/", "/other"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n");
        connection.send(request.as_bytes()).await;
        let answer = connection.response().await;
        let replaced = answer.text() == "instead of 200";
        assert_eq!(replaced, path == "/other", "{}", answer.text());
        assert_eq!(answer.status, if replaced { 203 } else { 200 });
        assert_eq!(answer.header("x-front"), Some("yes"));
    }
}

#[tokio::test]
async fn an_upstream_that_is_too_slow_is_seen_by_filters_and_switches() {
    let upstream = Upstream::start(|_| Reply::Hang).await;
    let client = json!({"type": "ClientHandler", "config": {"soTimeout": "200 ms"}});
    let switch = json!({"type": "SwitchFilter", "config": {"onResponse": [
        {"condition": "${response.status.code == 504 and find(request.uri.path, '^/page')}",
         "handler": says(503, "later")}]}});
    let seen = header("RESPONSE", "X-Seen", "a ${response.status.code}");
    let tree = chain(vec![seen, switch], client);
    let door = door(&[("slow", route(&upstream, "/", tree))]).await;
    let answer = door.get("a.test", "/").await.expect(504);
    assert_eq!(answer.header("x-seen"), "a 504");
    let answer = door.get("a.test", "/page").await.expect(503);
    assert_eq!(
        (answer.header("x-seen"), answer.body.as_str()),
        ("a 503", "later")
    );
}

#[tokio::test]
async fn a_line_break_that_an_expression_decodes_injects_no_header() {
    let answering = |value: &str| {
        json!({"type": "StaticResponseHandler", "config": {
            "status": 200, "headers": {"X-Said": [value], "X-Kept": ["1"]}, "entity": "done"}})
    };
    let door = door(&[
        (
            "form",
            json!({"condition": path_is("/form"), "handler": answering("${request.form.said[0]}")}),
        ),
        (
            "query",
            json!({"handler": answering("${urlDecode(request.queryParams.said[0])}")}),
        ),
    ])
    .await;
    for (said, shown) in [
        ("fine", Some("fine")),
        ("a%0d%0aX-Admin:%201", None),
        ("a%0aX-Admin:1", None),
    ] {
        let mut connection = Connection::open(&door.proxy()).await;
        let body = format!("said={said}");
        let form = format!(
            "POST /form HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n\r\n{body}",
            body.len()
        );
        let query = format!(
            "GET /query?said={} HTTP/1.1\r\nHost: a.test\r\n\r\n",
            said.replace('%', "%25")
        );
        for request in [form, query] {
            connection.send(request.as_bytes()).await;
            let answer = connection.response().await;
            assert_eq!((answer.status, answer.text().as_str()), (200, "done"));
            assert_eq!(answer.header("x-said"), shown, "{request}");
            assert_eq!(answer.header("x-admin"), None, "{request}");
            assert_eq!(answer.header("x-kept"), Some("1"));
        }
    }
}
