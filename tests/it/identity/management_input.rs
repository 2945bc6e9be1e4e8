//! Bad input where clients register themselves, and where operators
//! administer clients and realms.

use std::fmt::Write;

use serde_json::json;

use super::assert_error;
use crate::support::http::{client, send};
use crate::support::{Answer, Door, Setup};

const IDENTITY: &str = "
  base_url: http://@PROXY@
  realms:
    /:
      settings: {registration: {mode: open, rate_per_minute: 0}}
      clients:
        - {client_id: declared, client_secret: declared-secret, grant_types: [client_credentials]}
";

const JSON: &str = "application/json";

async fn door() -> Door {
    Setup::new().identity(IDENTITY).start().await
}

async fn register(door: &Door, kind: &str, body: impl Into<reqwest::Body>) -> Answer {
    let request = client().post(door.proxy_url("/oauth2/connect/register"));
    send(request.header("content-type", kind).body(body)).await
}

async fn manage(door: &Door, path: &str, kind: &str, body: impl Into<reqwest::Body>) -> Answer {
    let request = client().post(door.admin_url(path));
    send(request.header("content-type", kind).body(body)).await
}

/// Whatever was sent, the provider goes on.
async fn is_well(door: &Door) {
    let good = r#"{"redirect_uris": ["https://a.example/cb"]}"#;
    register(door, JSON, good).await.expect(201);
}

const REPEATED: &str = r#"{"redirect_uris": ["https://a.example/cb"],
    "redirect_uris": ["https://evil.example/cb"]}"#;

#[tokio::test]
async fn a_repeated_member_is_refused() {
    let door = door().await;
    let nested = r#"{"redirect_uris": ["https://a.example/cb"],
        "jwks": {"keys": [], "keys": []}}"#;
    for body in [REPEATED, nested] {
        let answer = register(&door, JSON, body).await;
        let text = "The body must be one JSON object, no member twice";
        assert_error(answer, 400, "invalid_client_metadata", text);
        for path in [
            "/identity/clients",
            "/identity/realms",
            "/identity/initial-tokens",
        ] {
            manage(&door, path, JSON, body).await.expect(400);
        }
    }
    let tagged = r##"{"client_id": "x", "client_name#de": "a", "client_name#de": "b"}"##;
    manage(&door, "/identity/clients", JSON, tagged)
        .await
        .expect(400);
}

#[tokio::test]
async fn another_content_type_is_refused() {
    let door = door().await;
    let body = r#"{"redirect_uris": ["https://a.example/cb"]}"#;
    for kind in [
        "application/x-www-form-urlencoded",
        "text/plain",
        "application/jsonx",
        "application/jose",
        "",
    ] {
        let answer = register(&door, kind, body).await;
        let text = "The body must be application/json";
        assert_error(answer, 400, "invalid_client_metadata", text);
        manage(&door, "/identity/clients", kind, body)
            .await
            .expect(415);
    }
    register(&door, "Application/JSON ; charset=utf-8", body)
        .await
        .expect(201);
}

#[tokio::test]
async fn an_oversized_body_is_refused() {
    let door = door().await;
    let long = format!(r#"{{"client_name": "{}"}}"#, "x".repeat(300 * 1024));
    register(&door, JSON, long.clone()).await.expect(413);
    manage(&door, "/identity/clients", JSON, long)
        .await
        .expect(413);
    is_well(&door).await;
}

#[tokio::test]
async fn invalid_utf8_is_refused() {
    let door = door().await;
    let body = b"{\"redirect_uris\": [\"https://a.example/cb\"], \"client_name\": \"\xff\xfe\"}";
    let answer = register(&door, JSON, body.to_vec()).await;
    assert_error(answer, 400, "invalid_client_metadata", "");
    let answer = manage(&door, "/identity/clients", JSON, body.to_vec()).await;
    answer.expect(400);
    manage(&door, "/identity/clients?realm=%ff", JSON, "{}")
        .await
        .expect(400);
    let odd = r#"{"client_id": "x", "client_name": "\ud800"}"#;
    manage(&door, "/identity/clients", JSON, odd)
        .await
        .expect(400);
}

#[tokio::test]
async fn what_is_no_object_is_refused() {
    let door = door().await;
    for body in [
        "",
        "[]",
        "null",
        "5",
        "\"x\"",
        "{",
        "{}{}",
        "{} x",
        "{'a': 1}",
        "\u{feff}{}",
    ] {
        let answer = register(&door, JSON, body).await;
        assert_eq!(answer.status, 400, "{body:?}");
        assert!(answer.json()["error"].is_string(), "{body:?}");
        if !body.is_empty() {
            let answer = manage(&door, "/identity/clients", JSON, body).await;
            assert_eq!(answer.status, 400, "{body:?}");
        }
    }
}

#[tokio::test]
async fn deep_nesting_is_refused() {
    let door = door().await;
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let body = format!(r#"{{"contacts": {deep}}}"#);
    let answer = register(&door, JSON, body.clone()).await;
    assert_error(answer, 400, "invalid_client_metadata", "");
    manage(&door, "/identity/clients", JSON, body)
        .await
        .expect(400);
    is_well(&door).await;
}

#[tokio::test]
async fn huge_lists_are_refused() {
    let door = door().await;
    let mut list = String::new();
    for number in 0..1000 {
        let _ = write!(list, "\"https://a.example/{number}\",");
    }
    let list = list.trim_end_matches(',');
    let body = format!(r#"{{"redirect_uris": [{list}]}}"#);
    let answer = register(&door, JSON, body).await;
    let text = "redirect_uris: is too long, or has control characters";
    assert_error(answer, 400, "invalid_redirect_uri", text);
    let mut tags = String::new();
    for number in 0..100 {
        let _ = write!(tags, "\"client_name#x{number}\": \"x\",");
    }
    let body = format!(r#"{{{tags} "redirect_uris": ["https://a.example/cb"]}}"#);
    let answer = register(&door, JSON, body).await;
    assert_error(answer, 400, "invalid_client_metadata", "");
}

#[tokio::test]
async fn unknown_members_are_refused_of_operators_by_name() {
    let door = door().await;
    let answer = manage(&door, "/identity/clients", JSON, r#"{"surprise": 1}"#).await;
    let body = answer.expect(400).json();
    assert_eq!(body["fields"]["surprise"], "unknown field");
    let answer = manage(
        &door,
        "/identity/realms",
        JSON,
        r#"{"path": "/x", "surprise": 1}"#,
    );
    assert_eq!(
        answer.await.expect(400).json()["fields"]["surprise"],
        "unknown field"
    );
    let body = r#"{"path": "/x", "settings": {"surprise": 1}}"#;
    let answer = manage(&door, "/identity/realms", JSON, body)
        .await
        .expect(400);
    assert!(answer.body.contains("surprise"), "{}", answer.body);
    let answer = manage(
        &door,
        "/identity/initial-tokens",
        JSON,
        r#"{"surprise": 1}"#,
    );
    assert!(answer.await.expect(400).body.contains("surprise"));
}

#[tokio::test]
async fn an_unknown_realm_is_not_found() {
    let door = door().await;
    for path in [
        "/oauth2/nowhere/connect/register",
        "/oauth2/realms/root/realms/nowhere/connect/register",
        "/oauth2/realms/root/realms/%2e%2e/connect/register",
    ] {
        let request = client().post(door.proxy_url(path)).json(&json!({}));
        let status = send(request).await.status;
        assert!(matches!(status, 400 | 404), "{path}: {status}");
    }
    for realm in ["nowhere", "..", "/a/../b", "%00", "x%2f%2fy"] {
        for path in ["clients", "initial-tokens"] {
            let path = format!("/identity/{path}?realm={realm}");
            let answer = door.admin_get(&path).await;
            assert_eq!(answer.status, 404, "{path}: {}", answer.body);
        }
    }
    manage(&door, "/identity/clients?realm=/&realm=/x", JSON, "{}")
        .await
        .expect(400);
}

#[tokio::test]
async fn tricks_with_paths_reach_no_other_record() {
    let door = door().await;
    for path in [
        "/identity/clients/..%2f..%2fservices",
        "/identity/clients/declared%00",
        "/identity/clients/DECLARED",
        "/identity/clients/%64eclared%2f",
        "/identity/clients/declared/secret/x",
        "/identity/realms/..%2f",
        "/identity//keys/../clients/x",
    ] {
        let answer = door.admin_get(path).await;
        assert!(
            matches!(answer.status, 400 | 404),
            "{path}: {}",
            answer.status
        );
    }
    door.admin_get("/identity/clients/%64eclared")
        .await
        .expect(200);
    for path in [
        "/", "//", "/a//b", "/../a", "/.", "/a b", "/realms", "\u{0}",
    ] {
        let body = json!({"path": path}).to_string();
        let answer = manage(&door, "/identity/realms", JSON, body).await;
        assert!(
            matches!(answer.status, 400 | 409),
            "{path}: {}",
            answer.status
        );
    }
}

#[tokio::test]
async fn a_wrong_method_is_told_the_right_ones() {
    let door = door().await;
    let request = client().patch(door.proxy_url("/oauth2/connect/register"));
    let answer = send(request).await;
    assert_eq!(answer.header("allow"), "GET, POST, PUT, DELETE");
    assert_error(answer, 405, "method_not_allowed", "");
    let request = client().put(door.admin_url("/identity/clients"));
    let answer = send(request).await.expect(405);
    assert!(answer.header("allow").contains("POST"));
}

#[tokio::test]
async fn a_repeated_client_id_in_the_address_is_refused() {
    let door = door().await;
    let path = "/oauth2/connect/register?client_id=a&client_id=b";
    let answer = door.get_as("token", "a.test", path).await;
    assert_error(answer, 400, "invalid_request", "");
    let twice = client()
        .get(door.proxy_url("/oauth2/connect/register?client_id=declared"))
        .header("authorization", "Bearer a")
        .header("authorization", "Bearer b");
    assert_error(send(twice).await, 401, "invalid_token", "");
}

#[tokio::test]
async fn texts_with_control_characters_are_refused_and_not_echoed() {
    let door = door().await;
    for text in ["a\u{0}b", "a\r\nSet-Cookie: x=1", "\u{85}"] {
        let body = json!({"redirect_uris": ["https://a.example/cb"], "client_name": text});
        let answer = register(&door, JSON, body.to_string()).await;
        assert!(answer.header("set-cookie").is_empty());
        assert_error(answer, 400, "invalid_client_metadata", "");
    }
    let name = "\u{202e}\"\\<script>";
    let body = json!({"redirect_uris": [], (name): 1, "scope": name});
    let answer = register(&door, JSON, body.to_string()).await.expect(400);
    let text = answer.json()["error_description"]
        .as_str()
        .map(str::to_owned);
    let text = text.expect("a description");
    assert!(
        text.bytes().all(|byte| matches!(byte, 0x20..=0x7e)),
        "{text}"
    );
}
