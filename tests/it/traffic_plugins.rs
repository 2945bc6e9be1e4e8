//! Plugins that change bodies, count what answers cost and store answers, each seen
//! through the real program.

use jsonwebtoken::{EncodingKey, Header};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::raw::Connection;
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
            let body = format!(r#"{{"gone":"{}"}}"#, "x".repeat(9 << 20));
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
    let answer = door
        .get_with("/t", &[("accept-encoding", "gzip")])
        .await
        .expect(200);
    assert_eq!(answer.json(), json!({"encoding": "identity", "n": 1}));
    assert_eq!(answer.header("content-digest"), "");
    let answer = door.get_with("/t/chunked", &[]).await.expect(200);
    assert_eq!(answer.body, r#"{"n":1}"#);
    let answer = door.get_with("/t/gzip", &[]).await.expect(200);
    assert_eq!(answer.header("content-length"), "2");
    let answer = door.get_with("/t/long", &[]).await.expect(200);
    assert!(answer.body.starts_with(r#"{"gone":"x"#) && answer.body.len() > 9 << 20);
    // HTTP/1.0 knows no chunks, and HEAD no body.
    for (line, connection, body) in [
        ("GET /t/chunked HTTP/1.0", "close", r#"{"n":1}"#),
        (
            "GET /t HTTP/1.0",
            "keep-alive",
            r#"{"encoding":"identity","n":1}"#,
        ),
        ("HEAD /t HTTP/1.1", "close", ""),
    ] {
        let request = format!("{line}\r\nHost: a.test\r\nConnection: {connection}\r\n\r\n");
        let mut connection = raw::Connection::open(&door.proxy()).await;
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
        let answer = door.get_with("/t", &forged).await.expect(200);
        assert_eq!(answer.body, told);
        assert_eq!(answer.header("x-ratelimit-remaining-video-year"), left);
        assert_eq!(answer.header("x-ratelimit-limit-video-year"), "3");
        assert_eq!(answer.header("x-kong-limit"), "");
    }
    let answer = door.get_with("/t", &[]).await.expect(429);
    assert_eq!(answer.body, "");
    assert_eq!(upstream.seen().len(), 3);
    // The connection to the client goes on.
    door.get_with("/t", &[]).await.expect(429);
}

const CACHE: &str = "{name: proxy-cache, config: {strategy: memory, \
    content_type: [text/plain, 'text/plain; charset=utf-8', application/json]}}";

#[tokio::test]
async fn an_answer_is_stored_shown_to_operators_and_forgotten() {
    // Caches behind the gateway tell the age by it.
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    let upstream = Upstream::start(|seen| match seen.target.as_str() {
        "/cookie" => response("Content-Type: text/plain\r\nSet-Cookie: a=1\r\n", "cookie"),
        "/open" => Reply::Raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhalf".to_vec()),
        _ => response(
            &format!("Content-Type: text/plain\r\nX-Origin: yes\r\nDate: {DATE}\r\n"),
            &seen.target,
        ),
    })
    .await;
    let door = door(&upstream, CACHE).await;
    let status = |answer: &Answer| answer.header("x-cache-status").to_owned();
    let first = door.get_with("/t/a?b=1", &[]).await.expect(200);
    assert_eq!(status(&first), "Miss");
    let second = door.get_with("/t/a?b=1", &[]).await.expect(200);
    assert_eq!(status(&second), "Hit");
    assert_eq!(second.body, first.body);
    assert_eq!(second.header("x-origin"), "yes");
    assert_eq!(second.header("age"), "0");
    assert_eq!(second.header("date"), DATE);
    assert_eq!(upstream.seen().len(), 1);
    // What is not to be stored is not.
    for path in ["/t/cookie", "/t/open"] {
        for _ in 0..2 {
            let answer = door.get_with(path, &[]).await.expect(200);
            assert_eq!(status(&answer), "Bypass", "{path}");
        }
    }
    let key = second.header("x-cache-key");
    let entry = door
        .admin_get(&format!("/proxy-cache/{key}"))
        .await
        .expect(200)
        .json();
    assert_eq!(entry["body"], "/a?b=1");
    assert_eq!(entry["headers"]["x-origin"], "yes");
    let plugins = door
        .admin_get("/plugins?declared=true")
        .await
        .expect(200)
        .json();
    let id = plugins["data"][0]["id"].as_str().expect("an id");
    let path = format!("/proxy-cache/{id}/caches/{key}");
    door.admin_get(&path).await.expect(200);
    door.admin_delete(&path).await.expect(204);
    let gone = door.admin_delete(&path).await.expect(404);
    assert_eq!(gone.body, "");
    assert_eq!(status(&door.get_with("/t/a?b=1", &[]).await), "Miss");
    door.admin_delete("/proxy-cache").await.expect(204);
    assert_eq!(status(&door.get_with("/t/a?b=1", &[]).await), "Miss");
}

#[tokio::test]
async fn cache_poisoning_by_host_query_and_override_reaches_nobody_else() {
    let upstream = Upstream::start(|seen| {
        let of = |name| seen.header(name).unwrap_or_default().to_owned();
        let body = format!(
            "{} {} {}",
            seen.target,
            of("x-forwarded-host"),
            of("x-original-url")
        );
        response("Content-Type: text/plain\r\n", &body)
    })
    .await;
    let door = door(&upstream, CACHE).await;
    let poison = [
        ("/t/p", ("host", "evil.test")),
        ("/t/p?utm=<script>", ("x-a", "1")),
        ("/t/p", ("x-forwarded-host", "evil.test")),
        ("/t/p", ("x-original-url", "/evil")),
    ];
    for (path, header) in poison {
        door.get_with(path, &[header]).await.expect(200);
    }
    let answer = door.get_with("/t/p", &[]).await.expect(200);
    assert!(
        !answer.body.contains("evil") && !answer.body.contains("script"),
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn a_stored_answer_is_changed_as_the_upstreams_would_be() {
    let upstream =
        Upstream::start(|_| response("Content-Type: application/json\r\n", r#"{"a":1}"#)).await;
    let plugins = format!(
        "{CACHE}\n  - {{name: response-transformer, config: {{add: {{json: ['b:2'], \
         headers: ['X-Added:1']}}, append: {{headers: ['X-More:1']}}}}}}"
    );
    let door = door(&upstream, &plugins).await;
    for status in ["Miss", "Hit", "Hit"] {
        let answer = door.get_with("/t", &[]).await.expect(200);
        assert_eq!(answer.header("x-cache-status"), status);
        assert_eq!(answer.json(), json!({"a": 1, "b": "2"}));
        assert_eq!(answer.header("x-added"), "1");
        assert_eq!(answer.headers.get_all("x-more").iter().count(), 1);
    }
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn users_behind_one_credential_do_not_get_one_anothers_stored_answers() {
    let upstream = Upstream::start(|seen| {
        let of = |name| seen.header(name).unwrap_or("nobody").to_owned();
        let body = format!("{} {}", of("authorization"), of("x-token"));
        response("Content-Type: text/plain\r\n", &body)
    })
    .await;
    let services = format!(
        "
- name: jwt
  url: {0}
  routes: [{{name: jwt, paths: [/jwt]}}]
  plugins:
  - {{name: jwt, config: {{header_names: [x-token, authorization]}}}}
  - {CACHE}
- name: key
  url: {0}
  routes: [{{name: key, paths: [/key]}}]
  plugins:
  - {{name: key-auth, config: {{hide_credentials: true}}}}
  - {CACHE}
- name: anonymous
  url: {0}
  routes: [{{name: anonymous, paths: [/anonymous]}}]
  plugins:
  - {{name: key-auth, config: {{anonymous: app}}}}
  - {CACHE}
consumers:
- username: app
  keyauth_credentials: [{{key: apps-key}}]
  jwt_secrets: [{{key: issuer, secret: apps-secret}}]
",
        upstream.url("")
    );
    let door = Setup::new().services(&services).start().await;
    let key = EncodingKey::from_secret(b"apps-secret");
    let token = |user: &str| {
        let claims = json!({"iss": "issuer", "sub": user});
        let token = jsonwebtoken::encode(&Header::default(), &claims, &key);
        format!("Bearer {}", token.expect("a token"))
    };
    let (anna, bert) = (token("anna"), token("bert"));
    let app = ("apikey", "apps-key");
    let (basic_anna, basic_bert) = ("Basic YW5uYTph", "Basic YmVydDpi");
    for (path, one, other) in [
        (
            "/jwt",
            vec![("authorization", anna.as_str())],
            vec![("authorization", bert.as_str())],
        ),
        ("/jwt", vec![("x-token", &anna)], vec![("x-token", &bert)]),
        (
            "/key",
            vec![app, ("authorization", basic_anna)],
            vec![app, ("authorization", basic_bert)],
        ),
    ] {
        for (headers, status) in [
            (&one, "Miss"),
            (&other, "Miss"),
            (&one, "Hit"),
            (&other, "Hit"),
        ] {
            let answer = door.get_with(path, headers).await.expect(200);
            let (_, own) = headers[headers.len() - 1];
            assert!(answer.body.contains(own), "{path}: {}", answer.body);
            assert_eq!(answer.header("x-cache-status"), status, "{path}");
        }
    }
    // What nobody has verified goes around the cache, for the anonymous consumer too.
    for credential in [basic_anna, basic_bert] {
        let headers = [("authorization", credential)];
        let answer = door.get_with("/anonymous", &headers).await.expect(200);
        assert_eq!(answer.header("x-cache-status"), "Bypass");
        assert!(answer.body.contains(credential));
    }
}

#[tokio::test]
async fn what_clients_ask_of_a_cache_counts_where_that_is_configured() {
    let upstream = Upstream::start(|seen| {
        if seen.header("range").is_some() {
            let part = "HTTP/1.1 206 Partial Content\r\nContent-Type: text/plain\r\n\
                        Content-Range: bytes 0-1/4\r\nContent-Length: 2\r\n\r\nwh";
            return Reply::Raw(part.as_bytes().to_vec());
        }
        response(
            "Content-Type: text/plain\r\nETag: \"e\"\r\nCache-Control: max-age=60\r\n",
            "whole",
        )
    })
    .await;
    let strict = CACHE.replace("strategy: memory", "strategy: memory, cache_control: true");
    let services = format!(
        "
- name: loose
  url: {0}
  routes: [{{name: loose, paths: [/loose]}}]
  plugins: [{CACHE}]
- name: strict
  url: {0}
  routes: [{{name: strict, paths: [/strict]}}]
  plugins: [{strict}]
",
        upstream.url("")
    );
    let door = Setup::new().services(&services).start().await;
    let control = |directive| ("cache-control", directive);
    let range = ("range", "bytes=0-1");
    let condition = ("if-none-match", "\"e\"");
    for (path, header, code, status, body) in [
        // A part is not stored, and the whole will do for it.
        ("/loose", range, 206, "Bypass", "wh"),
        ("/loose", control("only-if-cached"), 200, "Miss", "whole"),
        ("/loose", range, 200, "Hit", "whole"),
        ("/loose", condition, 200, "Hit", "whole"),
        ("/loose", control("no-store"), 200, "Hit", "whole"),
        ("/loose", control("max-age=0"), 200, "Hit", "whole"),
        ("/strict", control("only-if-cached"), 504, "", ""),
        ("/strict", condition, 200, "Miss", "whole"),
        ("/strict", condition, 200, "Hit", "whole"),
        ("/strict", control("only-if-cached"), 200, "Hit", "whole"),
        ("/strict", control("no-store"), 200, "Bypass", "whole"),
        ("/strict", control("no-cache"), 200, "Bypass", "whole"),
        ("/strict", control("min-fresh=120"), 200, "Refresh", "whole"),
        ("/strict", control("max-age=3600"), 200, "Hit", "whole"),
    ] {
        let answer = door.get_with(path, &[header]).await.expect(code);
        let told = (answer.header("x-cache-status"), answer.body.as_str());
        assert_eq!(told, (status, body), "{path} {header:?}");
    }
}

#[tokio::test]
async fn an_answer_to_head_is_stored_with_the_length_of_what_get_gets() {
    let upstream = Upstream::start(|seen| match seen.target.as_str() {
        "/unknown" => Reply::Raw(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\
              \r\n"
                .to_vec(),
        ),
        _ => Reply::Raw(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\n".to_vec(),
        ),
    })
    .await;
    let door = door(&upstream, "{name: proxy-cache, config: {strategy: memory}}").await;
    for (path, length) in [("/t", Some("5")), ("/t/unknown", None)] {
        for status in ["Miss", "Hit"] {
            let request = http::client().head(door.proxy_url(path));
            let answer = request.send().await.expect("an answer");
            let header = |name: &str| {
                let value = answer.headers().get(name);
                value.map(|value| value.to_str().expect("text"))
            };
            assert_eq!(header("x-cache-status"), Some(status), "{path}");
            assert_eq!(header("content-length"), length, "{path} {status}");
        }
    }
    assert_eq!(upstream.seen().len(), 2);
}

#[tokio::test]
async fn an_answer_to_head_that_another_filter_replaces_is_not_stored() {
    let upstream = Upstream::start(|_| {
        let head = "Content-Type: text/plain\r\nX-Kong-Limit: video=1\r\nContent-Length: 5\r\n";
        Reply::Raw(format!("HTTP/1.1 200 OK\r\n{head}\r\n").into())
    })
    .await;
    let plugins = "{name: response-ratelimiting, config: {limit_by: ip, \
                   limits: {video: {year: 1}}}}\n  \
                   - {name: proxy-cache, config: {strategy: memory}}";
    let door = door(&upstream, plugins).await;
    for (path, status, stored) in [("/t/first", 200, 200), ("/t/second", 429, 404)] {
        let request = http::client().head(door.proxy_url(path));
        let answer = request.send().await.expect("an answer");
        assert_eq!(answer.status(), status, "{path}");
        let key = answer.headers()["x-cache-key"].to_str().expect("text");
        door.admin_get(&format!("/proxy-cache/{key}"))
            .await
            .expect(stored);
    }
}

/// A server that answers one request, and changes the protocol of the next one, for the
/// same cost: what it gets afterwards, to the end.
async fn changer(listener: TcpListener) -> Vec<u8> {
    let cost = "X-Kong-Limit: video=1";
    for answer in [
        format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n{cost}\r\n\r\n"),
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             {cost}\r\n\r\nof the other protocol"
        ),
    ] {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a head"));
        }
        stream.write_all(answer.as_bytes()).await.expect("sent");
        if answer.contains(" 101 ") {
            let mut after = Vec::new();
            // A connection that is cut off has ended, too.
            let _ = stream.read_to_end(&mut after).await;
            return after;
        }
    }
    Vec::new()
}

#[tokio::test]
async fn a_filter_that_refuses_a_change_of_protocol_ends_it_on_both_sides() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = tokio::spawn(changer(listener));
    let services = format!(
        "- name: sockets\n  url: http://{address}\n  retries: 0\n  routes:\n  - name: all\n    \
         paths: [/]\n    plugins:\n    - name: response-ratelimiting\n      config: \
         {{limit_by: ip, limits: {{video: {{year: 1}}}}}}\n"
    );
    let door = Setup::new().services(&services).start().await;
    door.get_with("/", &[]).await.expect(200);
    let mut client = Connection::open(&door.proxy()).await;
    let request = "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    client.send(request.as_bytes()).await;
    let answer = client.response().await;
    assert_eq!(answer.status, 429, "{}", answer.text());
    assert_eq!(answer.header("upgrade"), None);
    assert_eq!(answer.header("x-kong-limit"), None);
    client.try_send(b"of the other protocol").await;
    // Nothing but answers of HTTP may follow.
    let rest = client.rest().await;
    assert!(
        rest.is_empty() || rest.starts_with(b"HTTP/1.1 400 "),
        "{rest:?}"
    );
    assert_eq!(server.await.expect("ends"), b"");
}
