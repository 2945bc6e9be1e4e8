//! The plugin `mcp`: a server of the Model Context Protocol as a protected resource
//! of the provider in the same process.

use serde_json::{Value, json};
use url::Url;

use crate::support::door::IDENTITY;
use crate::support::http::{self, Answer};
use crate::support::{Door, Reply, Setup, Upstream};

/// A door before an MCP server at `/mcp`, whose provider lets clients register.
async fn door(upstream: &Upstream) -> Door {
    door_with(upstream, "").await
}

/// The same with further lines of the plugin's configuration.
pub(crate) async fn door_with(upstream: &Upstream, rules: &str) -> Door {
    let settings = "
  realms:
    /:
      settings:
        resources: [\"http://@PROXY@/mcp\"]
        registration: {mode: open}
";
    let clients = IDENTITY.replace("\n  realms:\n    /:\n", "");
    let service = format!(
        "
- name: mcp
  url: {}
  routes:
  - {{name: mcp, paths: [/mcp], strip_path: false}}
  plugins:
  - name: mcp
    config:
      resource: http://@PROXY@/mcp
      issuer: http://@PROXY@/oauth2
      scopes_required: [read]
      allowed_origins: [\"https://app.test\"]
{rules}
",
        upstream.url("")
    );
    let identity = format!("\n  base_url: http://@PROXY@{settings}{clients}");
    Setup::new()
        .identity(&identity)
        .services(&service)
        .start()
        .await
}

/// A token of the client `orders` for itself, and what else `pairs` ask.
async fn token(door: &Door, scope: &str, resource: Option<&str>) -> String {
    let mut pairs = vec![
        ("grant_type", "client_credentials"),
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
        ("scope", scope),
    ];
    pairs.extend(resource.map(|resource| ("resource", resource)));
    let answer = door.token_request(&pairs).await.expect(200);
    answer.json()["access_token"]
        .as_str()
        .expect("a token")
        .to_owned()
}

/// A token of alice for the server.
async fn users_token(door: &Door, resource: &str) -> String {
    token_of(door, "alice", resource).await
}

/// A token of a user for the server; the password has the name.
pub(crate) async fn token_of(door: &Door, name: &str, resource: &str) -> String {
    let password = format!("Ch4ng31t-{name}");
    let pairs = [
        ("grant_type", "password"),
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
        ("username", name),
        ("password", password.as_str()),
        ("scope", "openid read"),
        ("resource", resource),
    ];
    let answer = door.token_request(&pairs).await.expect(200);
    answer.json()["access_token"]
        .as_str()
        .expect("a token")
        .to_owned()
}

/// A call of the protocol.
async fn call(door: &Door, token: Option<&str>) -> Answer {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let mut request = http::client().post(door.proxy_url("/mcp")).json(&message);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    http::send(request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_finds_the_provider_and_its_token_is_for_the_server_alone() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream).await;
    let resource = door.proxy_url("/mcp");

    // The challenge leads to the metadata, these to the provider, that to its own.
    let refused = call(&door, None).await.expect(401);
    let challenge = refused.header("www-authenticate").to_owned();
    let metadata = door.proxy_url("/.well-known/oauth-protected-resource/mcp");
    assert_eq!(
        challenge,
        format!("Bearer resource_metadata=\"{metadata}\", scope=\"read\"")
    );
    let answer = http::send(http::client().get(&metadata)).await.expect(200);
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.header("access-control-allow-origin"), "*");
    let metadata = answer.json();
    assert_eq!(metadata["resource"], resource);
    let server = metadata["authorization_servers"][0]
        .as_str()
        .expect("a server");
    let discovery = format!("{server}/.well-known/openid-configuration");
    let provider = http::send(http::client().get(discovery))
        .await
        .expect(200)
        .json();
    assert_eq!(provider["issuer"], server);
    let root = door.proxy_url("/.well-known/oauth-protected-resource");
    let at_root = http::send(http::client().get(root))
        .await
        .expect(200)
        .json();
    assert_eq!(at_root, metadata);

    let good = token(&door, "openid read", Some(&resource)).await;
    let answer = call(&door, Some(&good)).await.expect(200);
    let seen: Value = answer.json();
    assert_eq!(
        seen["headers"]["authorization"],
        Value::Null,
        "the server sees no token"
    );
    assert!(!answer.body.contains(&good));

    let other = token(&door, "openid read", None).await;
    let refused = call(&door, Some(&other)).await.expect(401);
    let challenge = refused.header("www-authenticate");
    assert!(
        challenge.starts_with("Bearer error=\"invalid_token\", "),
        "{challenge}"
    );

    let poor = token(&door, "openid profile", Some(&resource)).await;
    let refused = call(&door, Some(&poor)).await.expect(403);
    let challenge = refused.header("www-authenticate");
    assert!(
        challenge.contains("error=\"insufficient_scope\""),
        "{challenge}"
    );
    assert!(challenge.contains("scope=\"read\""), "{challenge}");
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_for_a_server_that_nobody_named_is_not_given() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream).await;
    let pairs = [
        ("grant_type", "client_credentials"),
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
        ("scope", "read"),
        ("resource", "https://elsewhere.test/mcp"),
    ];
    let answer = door.token_request(&pairs).await.expect(400);
    assert_eq!(answer.json()["error"], "invalid_target");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_editor_registers_with_a_scheme_of_its_own_and_any_local_port() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream).await;
    let client = json!({
        "client_name": "Editor",
        "redirect_uris": [
            "cursor://anysphere.cursor-mcp/oauth/callback",
            "https://www.cursor.com/agents/mcp/oauth/callback",
            "http://localhost:8787/callback",
        ],
        "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "scope": "email",
    });
    let url = door.proxy_url("/oauth2/connect/register");
    let registered = http::send(http::client().post(&url).json(&client))
        .await
        .expect(201)
        .json();
    assert_eq!(registered["application_type"], "native");
    let id = registered["client_id"].as_str().expect("an identifier");
    let authorize = |redirect: &str, resource: &str| {
        let query = [
            ("response_type", "code"),
            ("client_id", id),
            ("redirect_uri", redirect),
            ("resource", resource),
            ("state", "s"),
            (
                "code_challenge",
                "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
            ),
            ("code_challenge_method", "S256"),
        ];
        let address = door.proxy_url("/oauth2/authorize");
        let address = Url::parse_with_params(&address, query).expect("an address");
        http::send(http::client().get(address))
    };
    let resource = door.proxy_url("/mcp");
    for good in [
        "cursor://anysphere.cursor-mcp/oauth/callback",
        "http://localhost:51004/callback",
    ] {
        // The sign-in page, not an error.
        let answer = authorize(good, &resource).await;
        assert!(
            [200, 302].contains(&answer.status),
            "{good}: {}",
            answer.body
        );
        assert!(!answer.header("location").contains("error="), "{good}");
    }
    for bad in [
        "http://localhost.evil.test:51004/callback",
        "http://localhost:51004/other",
    ] {
        let answer = authorize(bad, &resource).await;
        assert_eq!(answer.status, 400, "{bad}");
        assert_eq!(answer.header("location"), "");
    }
    // It registered no scope that the server wants, and asks for one when told to.
    for (scope, known) in [("email profile", true), ("email admin", false)] {
        let query = [
            ("response_type", "code"),
            ("client_id", id),
            ("redirect_uri", "http://localhost:51004/callback"),
            ("scope", scope),
            (
                "code_challenge",
                "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
            ),
            ("code_challenge_method", "S256"),
        ];
        let address = door.proxy_url("/oauth2/authorize");
        let address = Url::parse_with_params(&address, query).expect("an address");
        let answer = http::send(http::client().get(address)).await;
        let refused = answer.header("location").contains("error=invalid_scope");
        assert_eq!(refused, !known, "{scope}: {}", answer.header("location"));
    }
    let scheme =
        json!({"redirect_uris": ["javascript://x/alert"], "token_endpoint_auth_method": "none"});
    http::send(http::client().post(&url).json(&scheme))
        .await
        .expect(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_nobody_knows_may_register_where_anybody_may() {
    let upstream = Upstream::echo().await;
    let open = door(&upstream).await;
    let closed = Setup::new().start().await;
    for (door, allowed) in [(&open, "*"), (&closed, "")] {
        let url = door.proxy_url("/oauth2/connect/register");
        let preflight = http::client()
            .request(reqwest::Method::OPTIONS, &url)
            .header("origin", "http://localhost:6274")
            .header("access-control-request-method", "POST");
        let preflight = http::send(preflight).await;
        assert_eq!(preflight.header("access-control-allow-origin"), allowed);
        let client = json!({"redirect_uris": ["http://localhost:6274/oauth/callback"],
            "token_endpoint_auth_method": "none"});
        let registration = http::client().post(&url).json(&client);
        let answer = http::send(registration.header("origin", "http://localhost:6274")).await;
        assert_eq!(answer.header("access-control-allow-origin"), allowed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_origin_is_refused_and_a_known_one_may_read() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream).await;
    let from = |origin: &'static str, method| {
        let request = http::client().request(method, door.proxy_url("/mcp"));
        request
            .header("origin", origin)
            .header("access-control-request-method", "POST")
    };
    http::send(from("https://evil.test", reqwest::Method::POST))
        .await
        .expect(403);
    let preflight = http::send(from("https://app.test", reqwest::Method::OPTIONS))
        .await
        .expect(204);
    assert_eq!(
        preflight.header("access-control-allow-origin"),
        "https://app.test"
    );
    assert!(
        preflight
            .header("access-control-allow-headers")
            .contains("MCP-Protocol-Version")
    );
    // Tools name the headers that repeat their parameters.
    let names = "content-type, Mcp-Param-Region,x-forwarded-user, mcp-param-a";
    let preflight = from("https://app.test", reqwest::Method::OPTIONS)
        .header("access-control-request-headers", names);
    let preflight = http::send(preflight).await.expect(204);
    let allowed = preflight.header("access-control-allow-headers");
    assert!(
        allowed.ends_with("Last-Event-ID, mcp-param-region, mcp-param-a"),
        "{allowed}"
    );
    let refused = http::send(from("https://app.test", reqwest::Method::POST))
        .await
        .expect(401);
    assert_eq!(
        refused.header("access-control-allow-origin"),
        "https://app.test"
    );
    assert!(
        refused
            .header("access-control-expose-headers")
            .contains("WWW-Authenticate")
    );
    assert_eq!(upstream.seen().len(), 0);
}

const RULES: &str = "
      rules:
      - {tools: [pay], scopes_required: [write]}
      - {tools: [weather, 'read_*']}
      - {methods: [tools/call], action: deny}
";

/// A server of the protocol that names sessions and lists four tools.
async fn server() -> Upstream {
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
async fn post(door: &Door, token: &str, body: &str, headers: &[(&str, &str)]) -> Answer {
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

fn tool(name: &str) -> String {
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
