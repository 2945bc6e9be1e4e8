//! Plugins that change bodies, count what answers cost and store answers, each seen
//! through the real program.

use serde_json::json;

use crate::support::{Answer, Door, Reply, Setup, Upstream, http, raw};

/// A door whose only service goes to `upstream`, with this plugin.
async fn door(upstream: &Upstream, plugin: &str) -> Door {
    let service = format!(
        "- name: traffic\n  url: {}\n  routes: [{{name: traffic, paths: [/t]}}]\n  \
         plugins:\n  - {plugin}\n",
        upstream.url("")
    );
    Setup::new().services(&service).start().await
}

async fn get(door: &Door, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = http::client().get(door.proxy_url(path));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    http::send(request).await
}

async fn post(door: &Door, content_type: &str, body: impl Into<reqwest::Body>) -> Answer {
    let request = http::client().post(door.proxy_url("/t"));
    http::send(request.header("content-type", content_type).body(body)).await
}

/// A whole response of HTTP/1.1.
fn response(head: &str, body: &str) -> Reply {
    let length = body.len();
    let text = format!("HTTP/1.1 200 OK\r\n{head}Content-Length: {length}\r\n\r\n{body}");
    Reply::Raw(text.into_bytes())
}

const BODY_RULES: &str = "{name: request-transformer, config: {remove: {body: [secret]}, \
    add: {body: ['from:$(headers.host)']}}}";

#[tokio::test]
async fn a_changed_body_reaches_the_upstream_with_its_own_length() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream, BODY_RULES).await;
    let host = door.proxy();
    let json = post(&door, "application/json", r#"{"secret":1,"n":1.50}"#).await;
    let seen = json.expect(200).json();
    let expected = format!(r#"{{"n":1.50,"from":"{host}"}}"#);
    assert_eq!(seen["body"], expected);
    assert_eq!(
        seen["headers"]["content-length"],
        expected.len().to_string()
    );
    let form = post(&door, "application/x-www-form-urlencoded", "secret=1&a=b").await;
    let form = form.expect(200).json()["body"].clone();
    assert_eq!(form, format!("a=b&from={}", host.replace(':', "%3A")));
    // Chunks, too.
    let mut connection = raw::Connection::open(&host).await;
    let chunks = "POST /t HTTP/1.1\r\nHost: a.test\r\nContent-Type: application/json\r\n\
                  Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
                  8\r\n{\"secret\r\n4\r\n\":1}\r\n0\r\n\r\n";
    connection.try_send(chunks.as_bytes()).await;
    let answer = connection.response().await;
    assert!(
        answer.text().contains(r#"{\"from\":\"a.test\"}"#),
        "{}",
        answer.text()
    );
}

#[tokio::test]
async fn a_body_over_the_bound_is_refused_and_never_half_changed() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream, BODY_RULES).await;
    let long = format!(r#"{{"secret":1,"a":"{}"}}"#, "x".repeat(70_000));
    post(&door, "application/json", long.clone())
        .await
        .expect(413);
    assert!(upstream.seen().is_empty());
    // A body that no rule is about passes, however long.
    let seen = post(&door, "application/octet-stream", long.clone()).await;
    assert_eq!(seen.expect(200).json()["length"], long.len());
    let malformed = post(&door, "application/json", r#"{"secret":1"#).await;
    assert_eq!(malformed.expect(200).json()["body"], r#"{"secret":1"#);
}

#[tokio::test]
async fn members_of_an_answer_are_changed_and_its_framing_is_right() {
    let upstream =
        Upstream::start(|seen| {
            match seen.target.as_str() {
        "/chunked" => Reply::Raw(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\
              \r\n7\r\n{\"gone\"\r\n3\r\n:1}\r\n0\r\n\r\n"
                .to_vec(),
        ),
        "/gzip" => response("Content-Type: application/json\r\nContent-Encoding: gzip\r\n", "{}"),
        "/long" => {
            let body = format!(r#"{{"gone":"{}"}}"#, "x".repeat(2 << 20));
            response("Content-Type: application/json\r\n", &body)
        }
        _ => {
            let encoding = seen.header("accept-encoding").unwrap_or_default();
            let body = json!({"gone": 1, "encoding": encoding}).to_string();
            response("Content-Type: application/json\r\nContent-Digest: x\r\n", &body)
        }
    }
        })
        .await;
    let rules = "{name: response-transformer, config: {remove: {json: [gone]}, \
                 add: {json: ['n:1'], json_types: [number]}}}";
    let door = door(&upstream, rules).await;
    let answer = get(&door, "/t", &[("accept-encoding", "gzip")])
        .await
        .expect(200);
    assert_eq!(answer.json(), json!({"encoding": "identity", "n": 1}));
    assert_eq!(answer.header("content-digest"), "");
    let answer = get(&door, "/t/chunked", &[]).await.expect(200);
    assert_eq!(answer.body, r#"{"n":1}"#);
    let answer = get(&door, "/t/gzip", &[]).await.expect(200);
    assert_eq!(answer.header("content-length"), "2");
    let answer = get(&door, "/t/long", &[]).await.expect(200);
    assert!(answer.body.starts_with(r#"{"gone":"x"#) && answer.body.len() > 2 << 20);
    // HTTP/1.0 knows no chunks, and HEAD no body.
    for (line, body) in [
        ("GET /t/chunked HTTP/1.0", r#"{"n":1}"#),
        ("HEAD /t HTTP/1.1", ""),
    ] {
        let mut connection = raw::Connection::open(&door.proxy()).await;
        let request = format!("{line}\r\nHost: a.test\r\nConnection: close\r\n\r\n");
        connection.try_send(request.as_bytes()).await;
        let all = connection.rest().await;
        let all = String::from_utf8_lossy(&all).into_owned();
        let (head, got) = all.split_once("\r\n\r\n").expect("a head");
        assert_eq!(got, body, "{head}");
    }
}

#[tokio::test]
async fn upstreams_say_what_answers_cost() {
    let upstream = Upstream::start(|seen| {
        let left = seen.header("x-ratelimit-remaining-video").unwrap_or("none");
        response("X-Kong-Limit: video=2\r\n", left)
    })
    .await;
    let plugin =
        "{name: response-ratelimiting, config: {limit_by: ip, limits: {video: {year: 3}}}}";
    let door = door(&upstream, plugin).await;
    let forged = [("x-ratelimit-remaining-video", "99")];
    for (told, left) in [("3", "1"), ("1", "0")] {
        let answer = get(&door, "/t", &forged).await.expect(200);
        assert_eq!(answer.body, told);
        assert_eq!(answer.header("x-ratelimit-remaining-video-year"), left);
        assert_eq!(answer.header("x-ratelimit-limit-video-year"), "3");
        assert_eq!(answer.header("x-kong-limit"), "");
    }
    let answer = get(&door, "/t", &[]).await.expect(429);
    assert_eq!(answer.body, "");
    assert_eq!(upstream.seen().len(), 3);
    // The connection to the client goes on.
    get(&door, "/t", &[]).await.expect(429);
}
