//! The plugin `mcp`: a server of the Model Context Protocol as a protected resource
//! of the provider in the same process.

use serde_json::{Value, json};
use url::Url;

use crate::support::door::IDENTITY;
use crate::support::http::{self, Answer};
use crate::support::{Door, Setup, Upstream};

/// A door before an MCP server at `/mcp`, whose provider lets clients register.
pub(crate) async fn door(upstream: &Upstream) -> Door {
    door_with(upstream, "").await
}

/// A service of a server at `/mcp`, with these further lines of the plugin's
/// configuration.
pub(crate) fn service(url: &str, config: &str) -> String {
    format!(
        "
- name: mcp
  url: {url}
  routes:
  - {{name: mcp, paths: [/mcp], strip_path: false}}
  plugins:
  - name: mcp
    config:
      resource: http://@PROXY@/mcp
      issuer: http://@PROXY@/oauth2
{config}
"
    )
}

/// The same with further lines of the plugin's configuration.
pub(crate) async fn door_with(upstream: &Upstream, rules: &str) -> Door {
    door_that_needs(upstream, "read", rules).await
}

/// The same, where every call needs this scope.
pub(crate) async fn door_that_needs(upstream: &Upstream, scope: &str, rules: &str) -> Door {
    let settings = "
  realms:
    /:
      settings:
        resources: [\"http://@PROXY@/mcp\"]
        registration: {mode: open}
";
    let clients = IDENTITY.replace("\n  realms:\n    /:\n", "");
    let config = format!(
        "      scopes_required: [{scope}]
      allowed_origins: [\"https://app.test\"]
{rules}"
    );
    let service = service(&upstream.url(""), &config);
    let identity = format!("\n  base_url: http://@PROXY@{settings}{clients}");
    Setup::new()
        .identity(&identity)
        .services(&service)
        .start()
        .await
}

/// A token of the client `orders` for itself, and what else `pairs` ask.
pub(crate) async fn token(door: &Door, scope: &str, resource: Option<&str>) -> String {
    let mut pairs = vec![
        ("grant_type", "client_credentials"),
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
        ("scope", scope),
    ];
    pairs.extend(resource.map(|resource| ("resource", resource)));
    door.token(&pairs).await
}

/// A token of alice for the server.
pub(crate) async fn users_token(door: &Door, resource: &str) -> String {
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
    door.token(&pairs).await
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
async fn a_server_with_two_names_is_the_resource_that_the_client_has_called() {
    let upstream = Upstream::echo().await;
    let identity = "
  base_url: http://@PROXY@
  realms:
    /:
      settings:
        resources: [\"http://@PROXY@/mcp\", \"http://localhost:@PROXY_PORT@/mcp\", \"http://@PROXY@/other\"]
      clients:
      - {client_id: orders, client_secret: orders-secret, grant_types: [client_credentials], scope: read}
";
    let aliases = "      resource_aliases: [\"http://localhost:@PROXY_PORT@/mcp\"]";
    let service = service(&upstream.url(""), aliases);
    let setup = Setup::new().identity(identity).services(&service);
    let door = setup.start().await;
    let (first, other) = (door.proxy_url("/mcp"), door.proxy_url("/other"));
    let second = first.replace("127.0.0.1", "localhost");
    for resource in [&first, &second] {
        let refused = http::send(http::client().post(resource)).await.expect(401);
        let challenge = refused.header("www-authenticate");
        let place = resource.replace("/mcp", "/.well-known/oauth-protected-resource");
        let expected = format!("Bearer resource_metadata=\"{place}/mcp\"");
        assert_eq!(challenge, expected);
        for place in [format!("{place}/mcp"), place] {
            let metadata = http::send(http::client().get(place)).await.expect(200);
            assert_eq!(metadata.json()["resource"], **resource);
        }
        // It is one server: the token is good by either name.
        let token = token(&door, "read", Some(resource)).await;
        for called in [&first, &second] {
            let call = http::client().post(called).bearer_auth(&token);
            let page = called.replace("/mcp", "");
            http::send(call.header("origin", page)).await.expect(200);
        }
    }
    let reached = upstream.seen().len();
    let token = token(&door, "read", Some(&other)).await;
    call(&door, Some(&token)).await.expect(401);
    // A name that the configuration does not know is none of the challenge.
    let request = http::client().post(&first).header("host", "evil.test");
    let refused = http::send(request).await.expect(401);
    assert!(!refused.header("www-authenticate").contains("evil"));
    assert_eq!(upstream.seen().len(), reached, "nothing else was forwarded");
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
    // The server is not asked whether it knows the page.
    let good = token(&door, "openid read", Some(&door.proxy_url("/mcp"))).await;
    let call = from("https://app.test", reqwest::Method::POST).bearer_auth(good);
    let answer = http::send(call).await.expect(200);
    assert_eq!(
        answer.header("access-control-allow-origin"),
        "https://app.test"
    );
    assert_eq!(upstream.last().header("origin"), None);
}
