//! Attacks on a server behind the plugin `mcp`: tokens and sessions of others, pages
//! that take its name, and messages that readers could take for different ones.

use serde_json::{Value, json};

use crate::mcp::{door, door_with, token, users_token};
use crate::mcp_rules::{RULES, post, server, tool};
use crate::support::http::{self, Answer};
use crate::support::{Door, Reply, Setup, Upstream};

/// A door before two servers of one provider, which has a second realm.
async fn two_servers(upstream: &Upstream) -> Door {
    let identity = "
  base_url: http://@PROXY@
  realms:
    /:
      settings:
        resources: [\"http://@PROXY@/one\", \"http://@PROXY@/two\"]
      clients: &clients
      - client_id: orders
        client_secret: orders-secret
        grant_types: [client_credentials]
        scope: read
    /alpha:
      settings:
        resources: [\"http://@PROXY@/one\"]
      clients: *clients
";
    let server = |name: &str| {
        format!(
            "
- name: {name}
  url: {}
  routes:
  - {{name: {name}, paths: [/{name}], strip_path: false}}
  plugins:
  - name: mcp
    config: {{resource: \"http://@PROXY@/{name}\", issuer: \"http://@PROXY@/oauth2\"}}
",
            upstream.url("")
        )
    };
    let services = server("one") + &server("two");
    let setup = Setup::new().identity(identity).services(&services);
    setup.start().await
}

async fn call_at(door: &Door, path: &str, token: &str, session: Option<&str>) -> Answer {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize"});
    let request = http::client().post(door.proxy_url(path)).json(&message);
    let mut request = request.bearer_auth(token);
    if let Some(session) = session {
        request = request.header("mcp-session-id", session);
    }
    http::send(request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_another_server_or_another_realm_is_refused() {
    let upstream = Upstream::echo().await;
    let door = two_servers(&upstream).await;
    let one = door.proxy_url("/one");
    let two = door.proxy_url("/two");
    let own = token(&door, "read", Some(&one)).await;
    call_at(&door, "/one", &own, None).await.expect(200);
    let of_other_server = token(&door, "read", Some(&two)).await;
    let url = door.proxy_url("/oauth2/realms/root/realms/alpha/access_token");
    let form = [
        ("grant_type", "client_credentials"),
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
        ("scope", "read"),
        ("resource", &one),
    ];
    let answer = http::send(http::client().post(url).form(&form)).await;
    let of_other_realm = answer.expect(200).json()["access_token"]
        .as_str()
        .expect("a token")
        .to_owned();
    let reached = upstream.seen().len();
    for token in [&of_other_server, &of_other_realm] {
        let refused = call_at(&door, "/one", token, None).await.expect(401);
        let challenge = refused.header("www-authenticate");
        let begin = "Bearer error=\"invalid_token\", resource_metadata=\"";
        assert!(challenge.starts_with(begin), "{challenge}");
        assert!(
            challenge.contains("/oauth-protected-resource/one\""),
            "{challenge}"
        );
    }
    assert_eq!(upstream.seen().len(), reached, "nothing was forwarded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_one_server_is_none_of_another() {
    let upstream = server().await;
    let door = two_servers(&upstream).await;
    let one = token(&door, "read", Some(&door.proxy_url("/one"))).await;
    let two = token(&door, "read", Some(&door.proxy_url("/two"))).await;
    let opened = call_at(&door, "/one", &one, None).await.expect(200);
    let session = Some(opened.header("mcp-session-id"));
    call_at(&door, "/one", &one, session).await.expect(200);
    call_at(&door, "/two", &two, session).await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_has_bound_its_name_to_this_address_is_refused() {
    let upstream = server().await;
    let door = door(&upstream).await;
    let resource = door.proxy_url("/mcp");
    let good = users_token(&door, &resource).await;
    let host = door.proxy().replace("127.0.0.1", "evil.test");
    let from = |method, path: &str| {
        let request = http::client().request(method, door.proxy_url(path));
        request.header("host", &host).bearer_auth(&good)
    };
    // A page's origin is refused, whatever else it has found out.
    let origin = format!("http://{host}");
    for origin in [origin.as_str(), "null", "http://127.0.0.1", ""] {
        let request = from(reqwest::Method::POST, "/mcp").header("origin", origin);
        let answer = http::send(request.body(tool("weather"))).await;
        assert_eq!(answer.status, 403, "{origin}");
        assert_eq!(answer.header("access-control-allow-origin"), "");
    }
    // Nor is anything of the configuration made of the name that it has taken.
    let request = http::client().get(door.proxy_url("/mcp"));
    let refused = http::send(request.header("host", &host)).await.expect(401);
    let challenge = refused.header("www-authenticate");
    assert!(!challenge.contains("evil.test"), "{challenge}");
    let metadata = "/.well-known/oauth-protected-resource/mcp";
    let answer = http::send(from(reqwest::Method::GET, metadata)).await;
    assert_eq!(answer.status, 404, "{}", answer.body);
    assert_eq!(upstream.seen().len(), 0);
    // The server behind learns the name that it is configured with.
    let request = http::client().post(&resource).bearer_auth(&good);
    http::send(request.body(tool("weather"))).await.expect(200);
    let host = upstream.address().to_string();
    assert_eq!(upstream.last().header("host"), Some(&*host));
}

/// A message that calls `weather`, with these texts in three places of it.
fn call_with(before: &str, params: &str, after: &str) -> String {
    let head = r#""jsonrpc":"2.0","id":1,"method":"tools/call""#;
    format!(r#"{before}{{{head},"params":{{"name":"weather"{params}}}}}{after}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_readers_could_take_for_two_is_refused() {
    let upstream = server().await;
    let door = door_with(&upstream, RULES).await;
    let resource = door.proxy_url("/mcp");
    let token = token(&door, "openid read", Some(&resource)).await;
    let deep = |depth| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        call_with("", &format!(r#","arguments":{{"a":{open}{close}}}"#), "")
    };
    for (body, code) in [
        (
            call_with("", r#","params":{"name":"delete"}"#, ""),
            0, // A member of the parameters that has no meaning.
        ),
        (call_with("", r#","\u004eame":"delete""#, ""), -32600),
        (call_with("", r#","NAME":"delete""#, ""), -32600),
        (
            call_with("", r#","arguments":{"a":[{"b":1,"\u0062":2}]}"#, ""),
            -32600,
        ),
        (call_with("", r#","_meta":{"x":{"y":1,"y":2}}"#, ""), -32600),
        (
            call_with("", "}, \"param\u{17f}\": {\"name\":\"delete\"", ""),
            -32600,
        ),
        (
            call_with("", r#"},"\u0070arams":{"name":"delete""#, ""),
            -32600,
        ),
        (call_with("", r#"},"method":"ping","x":{"#, ""), -32600),
        (call_with("\u{feff}", "", ""), -32700),
        (call_with("", r#" /* "name" */ "#, ""), -32700),
        (call_with("// x\n", "", ""), -32700),
        (call_with("", "", "x"), -32700),
        (call_with("", "", "\0"), -32700),
        (call_with("", "", "\n{}"), -32700),
        (call_with("", ",", ""), -32700),
        (call_with("", r#","arguments":{"n":1e999}"#, ""), -32700),
        (call_with("", r#","arguments":{"n":NaN}"#, ""), -32700),
        (call_with("", r#","arguments":{"n":0x10}"#, ""), -32700),
        (call_with("", r#","arguments":{'n':1}"#, ""), -32700),
        (call_with("", ",\"arguments\":{\"n\":\"a\nb\"}", ""), -32700),
        (call_with("", r#","arguments":{"n":"\ud800"}"#, ""), -32700),
        (
            call_with(
                "",
                r#","arguments":{"n":123456789012345678901234567890}"#,
                "",
            ),
            0,
        ),
        (deep(50), 0),
        (deep(200), -32700),
        (deep(100_000), -32700),
    ] {
        let answer = post(&door, &token, &body, &[]).await;
        let shown = body.get(..body.len().min(200));
        let status = if code == 0 { 200 } else { 400 };
        assert_eq!(answer.status, status, "{shown:?} {}", answer.body);
        assert_eq!(answer.json()["error"]["code"].as_i64().unwrap_or(0), code);
    }
    let passed = upstream.seen().len();
    assert_eq!(passed, 3, "the three that mean one thing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_in_another_encoding_is_refused() {
    let upstream = server().await;
    let door = door_with(&upstream, RULES).await;
    let resource = door.proxy_url("/mcp");
    let token = token(&door, "openid read", Some(&resource)).await;
    let good = tool("weather");
    let with = |name: &str, value: &str, body: Vec<u8>| {
        let request = http::client().post(&resource).bearer_auth(&token);
        http::send(request.header(name, value).body(body))
    };
    let plain = || good.clone().into_bytes();
    for media_type in [
        "application/json",
        "application/json; charset=utf-8",
        "application/json;charset=\"UTF-8\"",
        "application/json ; profile=x ; charset=utf-8 ; q=1",
    ] {
        let answer = with("content-type", media_type, plain()).await;
        assert_eq!(answer.status, 200, "{media_type}");
    }
    let passed = upstream.seen().len();
    // `+AG4-ame` is `name` in UTF-7, so a reader of it would find that twice.
    for media_type in [
        "application/json; charset=utf-7",
        "application/json; charset = utf-7",
        "application/json;charset\t=utf-7",
        "application/json; charset=\"utf-7\"",
        "application/json; charset='utf-7'",
        "application/json; charset*=utf-7",
        "application/json; charset=utf-8; charset=utf-7",
        "application/json; charset=utf-8utf-7",
        "application/json; x=\"; charset=utf-7; \"",
        "application/json, application/json; charset=utf-16",
    ] {
        let answer = with("content-type", media_type, plain()).await;
        assert_eq!(answer.status, 400, "{media_type}");
        assert_eq!(answer.json()["error"]["code"], -32700);
    }
    for coding in ["gzip", "br", "deflate", "identity, br", "x-unknown", ""] {
        let answer = with("content-encoding", coding, plain()).await;
        assert_eq!(answer.status, 400, "{coding}");
        assert_eq!(answer.json()["error"]["code"], -32700);
    }
    let utf_16 =
        |order: fn(u16) -> [u8; 2]| -> Vec<u8> { good.encode_utf16().flat_map(order).collect() };
    for body in [utf_16(u16::to_le_bytes), utf_16(u16::to_be_bytes)] {
        let answer = with("content-type", "application/json", body).await;
        assert_eq!(answer.json()["error"]["code"], -32700);
    }
    assert_eq!(upstream.seen().len(), passed, "nothing was forwarded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_refused_in_every_revision_that_has_none() {
    let upstream = server().await;
    let door = door_with(&upstream, RULES).await;
    let resource = door.proxy_url("/mcp");
    let token = token(&door, "openid read", Some(&resource)).await;
    let batch = format!("[{},{}]", tool("weather"), tool("read_file"));
    for version in [
        "2024-11-05",
        "2025-06-18",
        "2025-11-25",
        "2026-07-28",
        "9",
        "",
    ] {
        let headers = [("mcp-protocol-version", version)];
        let answer = post(&door, &token, &batch, &headers).await;
        assert_eq!(answer.status, 400, "{version}");
    }
    let twice = [
        ("mcp-protocol-version", "2025-03-26"),
        ("mcp-protocol-version", "2025-06-18"),
    ];
    post(&door, &token, &batch, &twice).await.expect(400);
    assert_eq!(upstream.seen().len(), 0);
    let headers = [("mcp-protocol-version", "2025-03-26")];
    post(&door, &token, &batch, &headers).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_a_server_can_not_name_what_is_denied_by_a_second_member() {
    let twofold = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[],"tools":[{"name":"delete"}]}}"#;
    let upstream = Upstream::start(move |_| {
        let length = twofold.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        Reply::Raw(format!("{head}{twofold}").into_bytes())
    })
    .await;
    let door = door_with(&upstream, RULES).await;
    let resource = door.proxy_url("/mcp");
    let token = token(&door, "openid read", Some(&resource)).await;
    let list: Value = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let answer = post(&door, &token, &list.to_string(), &[]).await;
    assert!(!answer.body.contains("delete"), "{}", answer.body);
}
