//! The plugin `mcp`: a server of the Model Context Protocol as a protected resource
//! of the provider in the same process.

use serde_json::{Value, json};
use url::Url;

use crate::support::door::IDENTITY;
use crate::support::http::{self, Answer};
use crate::support::{Door, Setup, Upstream};

/// A door before an MCP server at `/mcp`, whose provider lets clients register.
async fn door(upstream: &Upstream) -> Door {
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
    let scheme =
        json!({"redirect_uris": ["javascript://x/alert"], "token_endpoint_auth_method": "none"});
    http::send(http::client().post(&url).json(&scheme))
        .await
        .expect(400);
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
