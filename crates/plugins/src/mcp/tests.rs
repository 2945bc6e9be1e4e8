#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::testing::{decide, plugin, session};

fn config() -> Value {
    json!({
        "resource": "https://mcp.test/mcp",
        "issuer": "https://login.test",
        "scopes_required": ["tools", "files"],
        "allowed_origins": ["https://app.test"],
    })
}

async fn answered(config: &Value, head: &str) -> Option<(u16, String)> {
    let filter = plugin(&KIND, config).unwrap();
    let (mut session, _client) = session(&format!("{head}\r\n\r\n")).await;
    let reply = decide(&*filter, &mut session, &mut Exchange::default()).await?;
    let challenge = reply
        .headers
        .iter()
        .find(|(name, _)| name == WWW_AUTHENTICATE);
    let challenge = challenge.map_or("", |(_, value)| value.to_str().unwrap());
    Some((reply.status.as_u16(), challenge.to_owned()))
}

#[tokio::test]
async fn who_shows_no_token_is_told_where_the_metadata_are_and_of_no_error() {
    let challenge = "Bearer resource_metadata=\
        \"https://mcp.test/.well-known/oauth-protected-resource/mcp\", scope=\"tools files\"";
    let answer = answered(&config(), "POST /mcp HTTP/1.1\r\nHost: mcp.test").await;
    assert_eq!(answer, Some((401, challenge.to_owned())));
}

#[tokio::test]
async fn a_token_in_the_query_is_refused() {
    let head = "POST /mcp?x=1&access_token=abc HTTP/1.1\r\nHost: mcp.test";
    let (status, challenge) = answered(&config(), head).await.unwrap();
    assert_eq!(status, 400);
    assert!(
        challenge.starts_with("Bearer error=\"invalid_request\", "),
        "{challenge}"
    );
}

#[tokio::test]
async fn a_page_of_another_origin_may_not_call() {
    let request =
        |origin: &str| format!("POST /mcp HTTP/1.1\r\nHost: mcp.test\r\nOrigin: {origin}");
    for foreign in [
        "https://evil.test",
        "null",
        "https://app.test.evil.test",
        "http://mcp.test",
    ] {
        let answer = answered(&config(), &request(foreign)).await;
        assert_eq!(answer, Some((403, String::new())), "{foreign}");
    }
    // They may, and need a token like everybody.
    for known in ["https://app.test", "https://mcp.test"] {
        let (status, _) = answered(&config(), &request(known)).await.unwrap();
        assert_eq!(status, 401, "{known}");
    }
}

#[tokio::test]
async fn a_page_that_asks_what_it_may_send_needs_no_token() {
    let head = "OPTIONS /mcp HTTP/1.1\r\nHost: mcp.test\r\nOrigin: https://app.test\r\n\
        Access-Control-Request-Method: POST";
    assert_eq!(answered(&config(), head).await, Some((204, String::new())));
    // An OPTIONS of a program is a request like any other.
    let head = "OPTIONS /mcp HTTP/1.1\r\nHost: mcp.test";
    assert_eq!(answered(&config(), head).await.unwrap().0, 401);
}

#[test]
fn metadata_say_what_is_set_and_nothing_else() {
    let mut config = config();
    config["resource_name"] = json!("Weather");
    let filter = plugin(&KIND, &config).unwrap();
    let resource = filter.protected_resource().unwrap();
    assert_eq!(
        (&*resource.host, resource.port, &*resource.path),
        ("mcp.test", None, "/mcp")
    );
    let metadata: Value = serde_json::from_slice(&resource.metadata).unwrap();
    let expected = json!({
        "resource": "https://mcp.test/mcp",
        "authorization_servers": ["https://login.test"],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["tools", "files"],
        "resource_name": "Weather",
    });
    assert_eq!(metadata, expected);
}

#[test]
fn what_can_be_no_resource_or_origin_is_refused() {
    for resource in [
        "/mcp",
        "urn:x",
        "https://u@a.test",
        "https://a.test?b",
        "https://a.test/\"x",
    ] {
        let config = json!({"resource": resource, "issuer": "https://login.test"});
        assert!(
            plugin(&KIND, &config).err().unwrap().contains("resource"),
            "{resource}"
        );
    }
    let mut config = config();
    config["allowed_origins"] = json!(["https://app.test/"]);
    assert!(
        plugin(&KIND, &config)
            .err()
            .unwrap()
            .contains("allowed_origins")
    );
    config["allowed_origins"] = json!([]);
    config["scopes_required"] = json!(["a b"]);
    assert!(
        plugin(&KIND, &config)
            .err()
            .unwrap()
            .contains("scopes_required")
    );
}
