//! Clients of MCP servers by other makers, as they are: what each of them sends is sent
//! here by hand, from its first call to the page on which its user signs in.

use serde_json::{Value, json};
use url::Url;

use crate::mcp::service;
use crate::support::http::{client, send};
use crate::support::{Answer, Door, Setup, Upstream};

/// What a client is known to do.
struct Quirk {
    name: &'static str,
    registers: &'static [&'static str],
    application_type: Option<&'static str>,
    /// The address that it comes back to, by another port perhaps.
    back: &'static str,
    /// The place of the metadata that it looks at, without having called before.
    metadata: &'static str,
    scope: AskedScope,
}

enum AskedScope {
    Nothing,
    OpenId,
    OfChallenge,
    OfResource,
    OfProvider,
}

const BY_PATH: &str = "/.well-known/oauth-protected-resource/mcp";
const AT_ROOT: &str = "/.well-known/oauth-protected-resource";

const QUIRKS: [Quirk; 8] = [
    Quirk {
        name: "Claude on the web",
        registers: &["https://claude.ai/api/mcp/auth_callback"],
        application_type: None,
        back: "https://claude.ai/api/mcp/auth_callback",
        metadata: BY_PATH,
        scope: AskedScope::OpenId,
    },
    Quirk {
        name: "Claude Code",
        registers: &["http://localhost:1/callback"],
        application_type: None,
        back: "http://localhost:53682/callback",
        metadata: BY_PATH,
        scope: AskedScope::OfResource,
    },
    Quirk {
        name: "ChatGPT",
        registers: &["https://chatgpt.com/connector/oauth/a1B2c3"],
        application_type: None,
        back: "https://chatgpt.com/connector/oauth/a1B2c3",
        metadata: AT_ROOT,
        scope: AskedScope::OfChallenge,
    },
    Quirk {
        name: "Codex",
        registers: &["http://127.0.0.1:1455/callback"],
        application_type: None,
        back: "http://127.0.0.1:41234/callback",
        metadata: BY_PATH,
        scope: AskedScope::OfProvider,
    },
    Quirk {
        name: "VS Code",
        registers: &[
            "http://127.0.0.1/",
            "http://127.0.0.1:33418/",
            "https://vscode.dev/redirect",
        ],
        application_type: None,
        back: "http://127.0.0.1:58211/",
        metadata: BY_PATH,
        scope: AskedScope::OfResource,
    },
    Quirk {
        name: "Copilot on the command line",
        registers: &["http://127.0.0.1:1/callback"],
        application_type: Some("native"),
        back: "http://127.0.0.1:40404/callback",
        metadata: BY_PATH,
        scope: AskedScope::Nothing,
    },
    Quirk {
        name: "the inspector's command line",
        registers: &["http://127.0.0.1:6276/oauth/callback"],
        application_type: None,
        back: "http://127.0.0.1:6276/oauth/callback",
        metadata: BY_PATH,
        scope: AskedScope::OfResource,
    },
    Quirk {
        name: "the Python SDK",
        registers: &["http://localhost:3030/callback"],
        application_type: None,
        back: "http://localhost:3030/callback",
        metadata: BY_PATH,
        scope: AskedScope::OfProvider,
    },
];

async fn door() -> Door {
    let upstream = Upstream::echo().await;
    let identity = "
  base_url: http://@PROXY@
  realms:
    /:
      settings:
        resources: [\"http://@PROXY@/mcp\"]
        registration: {mode: open, scope: openid read write}
";
    let config = "      scopes_required: [read]\n      scopes_supported: [read, write]";
    let service = service(&upstream.url(""), config);
    let setup = Setup::new().identity(identity).services(&service);
    setup.start().await
}

async fn get(address: impl AsRef<str>) -> Answer {
    send(client().get(address.as_ref())).await
}

fn words(value: &Value) -> String {
    let words: Vec<_> = value.as_array().into_iter().flatten().collect();
    let words = words.into_iter().filter_map(Value::as_str);
    words.collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_comes_from_its_first_call_to_the_page_of_its_user() {
    let door = door().await;
    for quirk in QUIRKS {
        let name = quirk.name;
        let found = get(door.proxy_url(quirk.metadata)).await.expect(200).json();
        assert_eq!(found["resource"], door.proxy_url("/mcp"), "{name}");
        let issuer = found["authorization_servers"][0].as_str().expect("one");
        let metadata = issuer.replace("/oauth2", "/.well-known/oauth-authorization-server/oauth2");
        let provider = get(metadata).await.expect(200).json();
        assert_eq!(provider["issuer"], issuer, "{name}");

        let mut record = json!({"client_name": name, "redirect_uris": quirk.registers,
            "token_endpoint_auth_method": "none", "response_types": ["code"],
            "grant_types": ["authorization_code", "refresh_token"]});
        if let Some(kind) = quirk.application_type {
            record["application_type"] = json!(kind);
        }
        let register = provider["registration_endpoint"].as_str().expect("one");
        let registered = send(client().post(register).json(&record)).await;
        let registered = registered.expect(201).json();
        assert_eq!(registered.get("client_secret"), None, "{name}");

        let refused = send(client().post(door.proxy_url("/mcp"))).await;
        let challenge = refused.expect(401).header("www-authenticate").to_owned();
        assert!(challenge.ends_with("scope=\"read\""), "{challenge}");
        let scope = match quirk.scope {
            AskedScope::Nothing => String::new(),
            AskedScope::OpenId => "openid".to_owned(),
            AskedScope::OfChallenge => "read".to_owned(),
            AskedScope::OfResource => words(&found["scopes_supported"]),
            AskedScope::OfProvider => words(&provider["scopes_supported"]),
        };
        let resource = door.proxy_url("/mcp");
        let mut query = vec![
            ("response_type", "code"),
            ("client_id", registered["client_id"].as_str().expect("one")),
            ("redirect_uri", quirk.back),
            ("resource", &resource),
            ("state", "s"),
            (
                "code_challenge",
                "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
            ),
            ("code_challenge_method", "S256"),
        ];
        if !scope.is_empty() {
            query.push(("scope", &scope));
        }
        let authorize = provider["authorization_endpoint"].as_str().expect("one");
        let address = Url::parse_with_params(authorize, query).expect("an address");
        let page = get(address).await;
        assert!([200, 302].contains(&page.status), "{name}: {}", page.body);
        let place = page.header("location");
        assert!(!place.contains("error="), "{name}, {scope}: {place}");
        assert!(!place.starts_with(quirk.back), "{name}: {place}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_of_what_is_no_resource_are_missing_and_no_challenge() {
    let door = door().await;
    // Clients try these, and take a challenge or a page for the metadata.
    for path in ["/other", "/mcp/", "/mcp/x"] {
        let missing = get(door.proxy_url(&format!("{AT_ROOT}{path}"))).await;
        let missing = missing.expect(404);
        assert!(missing.json().is_object(), "{}", missing.body);
        assert_eq!(missing.header("www-authenticate"), "");
    }
}
