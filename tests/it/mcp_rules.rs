//! Rules of the plugin `mcp`: what a caller may call, and see in lists.

use serde_json::{Value, json};

use crate::mcp::{door, door_that_needs, door_with, token, users_token};
use crate::support::http::{self, Answer};
use crate::support::{Door, Reply, Upstream};

pub(crate) const RULES: &str = "
      rules:
      - {tools: [pay], scopes_required: [write]}
      - {tools: [weather, 'read_*']}
      - {methods: [tools/call], action: deny}
";

/// A server of the protocol that names sessions and lists four tools.
pub(crate) async fn server() -> Upstream {
    Upstream::start(|seen| {
        let message: Value = serde_json::from_slice(&seen.body).unwrap_or_default();
        let result = match message["method"].as_str() {
            Some("tools/list") => {
                let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
                let names = ["weather", "read_file", "pay", "delete"];
                json!({"tools": names.map(tool), "nextCursor": "more"})
            }
            _ => seen.json(),
        };
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
        let session = match message["method"].as_str() {
            Some("initialize") => "Mcp-Session-Id: s-1\r\n",
            _ => "",
        };
        let (media_type, answer) = match seen.header("accept") {
            Some("text/event-stream") => ("text/event-stream", format!("data: {answer}\n\n")),
            _ => ("application/json", answer),
        };
        let length = answer.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\n{session}Content-Length: {length}\r\n\r\n"
        );
        Reply::Raw(format!("{head}{answer}").into_bytes())
    })
    .await
}

/// Sends this body with these headers.
pub(crate) async fn post(door: &Door, token: &str, body: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = http::client()
        .post(door.proxy_url("/mcp"))
        .bearer_auth(token)
        .header("content-type", "application/json")
        .body(body.to_owned());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    http::send(request).await
}

pub(crate) fn tool(name: &str) -> String {
    let params = json!({"name": name, "arguments": {}});
    json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_needs_what_its_rule_says_and_the_list_shows_no_other() {
    let upstream = server().await;
    let door = door_with(&upstream, RULES).await;
    let resource = door.proxy_url("/mcp");
    let token = token(&door, "openid read", Some(&resource)).await;

    post(&door, &token, &tool("weather"), &[]).await.expect(200);
    post(&door, &token, &tool("read_file"), &[])
        .await
        .expect(200);
    let reached = upstream.seen().len();

    // A scope would help: the client is told which.
    let refused = post(&door, &token, &tool("pay"), &[]).await.expect(403);
    let challenge = refused.header("www-authenticate");
    let metadata = door.proxy_url("/.well-known/oauth-protected-resource/mcp");
    assert!(
        challenge.starts_with("Bearer error=\"insufficient_scope\", "),
        "{challenge}"
    );
    assert!(challenge.contains("scope=\"read write\""), "{challenge}");
    assert!(
        challenge.contains(&format!("resource_metadata=\"{metadata}\"")),
        "{challenge}"
    );
    assert_eq!(refused.json()["id"], 7);

    // Nothing would help: the call fails, and the client's session goes on.
    let refused = post(&door, &token, &tool("delete"), &[]).await.expect(200);
    assert_eq!(refused.header("www-authenticate"), "");
    assert_eq!(refused.json()["error"]["code"], -32003);
    assert_eq!(refused.json()["id"], 7);
    let both = format!("[{},{}]", tool("weather"), tool("delete"));
    let refused = post(&door, &token, &both, &[]).await.expect(200);
    let codes = [0, 1].map(|n| refused.json()[n]["error"]["code"].clone());
    assert_eq!(codes, [-32003, -32003], "{}", refused.body);
    // An answer to a request of the server is none itself, and has no answer.
    let answered = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    let both = format!("[{answered},{}]", tool("delete"));
    let refused = post(&door, &token, &both, &[]).await.expect(200);
    let ids: Vec<_> = refused
        .json()
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["id"].clone())
        .collect();
    assert_eq!(ids, [7], "{}", refused.body);
    let unasked = tool("delete").replace("\"id\":7,", "");
    assert_ne!(unasked, tool("delete"));
    post(&door, &token, &unasked, &[]).await.expect(403);
    assert_eq!(upstream.seen().len(), reached, "nothing was forwarded");

    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    for accept in ["application/json", "text/event-stream"] {
        let answer = post(&door, &token, &list, &[("accept", accept)])
            .await
            .expect(200);
        let message = answer.body.trim_start_matches("data: ").trim();
        let message: Value = serde_json::from_str(message).expect("a message");
        let tools = message["result"]["tools"].as_array().expect("a list");
        let names: Vec<_> = tools.iter().map(|tool| tool["name"].clone()).collect();
        assert_eq!(names, ["weather", "read_file"], "{accept}");
        assert_eq!(message["result"]["nextCursor"], "more");
    }

    let metrics = http::send(http::client().get(door.admin_url("/metrics")))
        .await
        .body;
    for line in [
        "doorward_mcp_calls_total{method=\"tools/call\",name=\"read_*\",decision=\"allow\"} 1",
        "doorward_mcp_calls_total{method=\"tools/call\",name=\"pay\",decision=\"step_up\"} 1",
        "doorward_mcp_calls_total{method=\"tools/call\",name=\"other\",decision=\"deny\"} 4",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    let log = door
        .wait_log("the call", |log| log.contains("\"mcp_name\":\"pay\""))
        .await;
    assert!(!log.contains("arguments"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_can_never_have_a_scope_is_not_told_to_step_up() {
    let upstream = server().await;
    let door = door_with(&upstream, RULES).await;
    let resource = door.proxy_url("/mcp");
    let form = [
        ("grant_type", "client_credentials"),
        ("client_id", "other"),
        ("client_secret", "other-secret"),
        ("scope", "openid read"),
        ("resource", resource.as_str()),
    ];
    let token = door.token(&form).await;
    let refused = post(&door, &token, &tool("pay"), &[]).await.expect(200);
    assert_eq!(refused.header("www-authenticate"), "");
    let error = &refused.json()["error"];
    assert_eq!(error["code"], -32003);
    assert_eq!(error["message"], "the client can't have a scope for this");
    assert_eq!(refused.json()["id"], 7);
    // What has no answer is refused by the transport, and still without a challenge.
    let unasked = tool("pay").replace("\"id\":7,", "");
    let refused = post(&door, &token, &unasked, &[]).await.expect(403);
    assert_eq!(refused.header("www-authenticate"), "");
    let both = format!("[{},{}]", tool("weather"), tool("pay"));
    let refused = post(&door, &token, &both, &[]).await.expect(200);
    assert_eq!(refused.json()[1]["error"]["code"], -32003);
    assert_eq!(upstream.seen().len(), 0, "nothing was forwarded");
    let url = door.admin_url("/metrics");
    let metrics = http::send(http::client().get(url)).await.body;
    let pay = "doorward_mcp_calls_total{method=\"tools/call\",name=\"pay\",decision=";
    let line = format!("{pay}\"step_up_impossible\"}} 3");
    assert!(metrics.contains(&line), "{metrics}");
    assert!(!metrics.contains(&format!("{pay}\"step_up\"")), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_can_never_have_a_scope_of_every_call_is_not_told_to_step_up() {
    let upstream = server().await;
    for rules in [RULES, ""] {
        let door = door_that_needs(&upstream, "write", rules).await;
        let resource = door.proxy_url("/mcp");
        // It could have the scope, and is told so.
        let able = token(&door, "openid read", Some(&resource)).await;
        let refused = post(&door, &able, &tool("weather"), &[]).await.expect(403);
        let challenge = refused.header("www-authenticate");
        assert!(
            challenge.contains("error=\"insufficient_scope\""),
            "{challenge}"
        );
        assert!(challenge.contains("scope=\"write\""), "{challenge}");

        let form = [
            ("grant_type", "client_credentials"),
            ("client_id", "other"),
            ("client_secret", "other-secret"),
            ("scope", "openid read"),
            ("resource", resource.as_str()),
        ];
        let unable = door.token(&form).await;
        let refused = post(&door, &unable, &tool("weather"), &[])
            .await
            .expect(200);
        assert_eq!(refused.header("www-authenticate"), "");
        let error = &refused.json()["error"];
        assert_eq!(error["code"], -32003);
        assert_eq!(error["message"], "the client can't have a scope for this");
        assert_eq!(refused.json()["id"], 7);
        // What has no answer is refused by the transport, and still without a challenge.
        let unasked = tool("weather").replace("\"id\":7,", "");
        for answer in [
            post(&door, &unable, &unasked, &[]).await,
            post(&door, &unable, "no message", &[]).await,
            http::send(http::client().get(&resource).bearer_auth(&unable)).await,
        ] {
            assert_eq!(answer.expect(403).header("www-authenticate"), "");
        }
        assert_eq!(upstream.seen().len(), 0, "nothing was forwarded");
        let url = door.admin_url("/metrics");
        let metrics = http::send(http::client().get(url)).await.body;
        let counted = metrics.lines().any(|line| {
            line.starts_with("doorward_mcp_calls_total{method=\"tools/call\"")
                && line.ends_with("decision=\"step_up_impossible\"} 2")
        });
        assert!(counted, "{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_is_not_smuggled_past_the_rules() {
    let upstream = server().await;
    let door = door_with(&upstream, RULES).await;
    let resource = door.proxy_url("/mcp");
    let token = token(&door, "openid read", Some(&resource)).await;
    let call = |params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#)
    };
    let good = tool("weather");
    let none: &[(&str, &str)] = &[];
    for (body, headers, status, code) in [
        (
            call(r#"{"name":"weather","name":"delete"}"#),
            none,
            400,
            -32600,
        ),
        (
            call(r#"{"name":"weather","Name":"delete"}"#),
            none,
            400,
            -32600,
        ),
        (
            call(r#"{"name":"weather","\u006eame":"delete"}"#),
            none,
            400,
            -32600,
        ),
        (format!("{good}{good}"), none, 400, -32700),
        (
            format!("[{good}]"),
            &[("mcp-protocol-version", "2025-06-18")],
            400,
            -32600,
        ),
        (good.clone(), &[("mcp-name", "delete")], 400, -32020),
        (good.clone(), &[("mcp-method", "tools/list")], 400, -32020),
        (
            good.clone(),
            &[("mcp-name", "=?base64?ZGVsZXRl?=")],
            400,
            -32020,
        ),
        (
            good.clone(),
            &[("mcp-protocol-version", "2026-07-28")],
            400,
            -32020,
        ),
        (
            tool("delete"),
            &[("mcp-name", "weather"), ("mcp-method", "tools/call")],
            400,
            -32020,
        ),
        (String::new(), none, 400, -32700),
        ("x".repeat((1 << 20) + 1), none, 413, -32600),
    ] {
        let answer = post(&door, &token, &body, headers).await;
        let shown = body.get(..body.len().min(200));
        assert_eq!(
            answer.status, status,
            "{shown:?} {headers:?} {}",
            answer.body
        );
        assert_eq!(
            answer.json()["error"]["code"],
            code,
            "{shown:?} {headers:?}"
        );
    }
    let upgrade = http::client().get(door.proxy_url("/mcp"));
    let upgrade = upgrade.header("connection", "upgrade");
    let upgrade = upgrade.header("upgrade", "websocket");
    http::send(upgrade.bearer_auth(&token)).await.expect(403);
    assert_eq!(upstream.seen().len(), 0);
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "=?base64?d2VhdGhlcg==?="),
    ];
    post(&door, &token, &good, &headers).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_call_is_read_and_comes_to_the_server_whole() {
    let upstream = server().await;
    let door = door_with(&upstream, RULES).await;
    let resource = door.proxy_url("/mcp");
    let token = token(&door, "openid read", Some(&resource)).await;
    for length in [10, 65_000, 70_000, 131_072, 500_000] {
        let arguments = json!({"text": "y".repeat(length)});
        let params = json!({"arguments": arguments, "name": "weather"});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let body = body.to_string();
        post(&door, &token, &body, &[]).await.expect(200);
        let last = upstream.last();
        assert_eq!(last.length, body.len() as u64);
        assert_eq!(last.body, &body.as_bytes()[..last.body.len()]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_of_somebody_else_is_not_there() {
    let upstream = server().await;
    let door = door(&upstream).await;
    let resource = door.proxy_url("/mcp");
    let first = token(&door, "openid read", Some(&resource)).await;
    let other = users_token(&door, &resource).await;
    let begin = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize"}).to_string();
    let call = tool("weather");
    let session = [("mcp-session-id", "s-1")];

    // Nobody has opened it.
    post(&door, &first, &call, &session).await.expect(404);
    let opened = post(&door, &first, &begin, &[]).await.expect(200);
    assert_eq!(opened.header("mcp-session-id"), "s-1");
    post(&door, &first, &call, &session).await.expect(200);
    let reached = upstream.seen().len();
    let refused = post(&door, &other, &call, &session).await.expect(404);
    assert_eq!(refused.json()["error"]["code"], -32001);
    let spelled = [("mcp_session_id", "s-1")];
    post(&door, &other, &call, &spelled).await.expect(404);
    let end = |token: &str| {
        let request = http::client().delete(door.proxy_url("/mcp"));
        http::send(request.bearer_auth(token).header("mcp-session-id", "s-1"))
    };
    end(&other).await.expect(404);
    assert_eq!(upstream.seen().len(), reached, "nothing was forwarded");
    // The owner ends it: then it is nobody's.
    end(&first).await.expect(200);
    post(&door, &first, &call, &session).await.expect(404);
}
