//! Whom handlers ask, and how the gateway proves there who it is.

use serde_json::json;

use super::{door_with, get_with, laid_out, until_state};
use crate::support::{Door, Setup};

/// A resource server that asks through the handler `asking` of its heap.
fn guarded(handler: &serde_json::Value, heap: serde_json::Value) -> String {
    json!({
        "name": "rs", "condition": "${find(request.uri.path, '^/rs')}",
        "heap": heap,
        "handler": handler,
    })
    .to_string()
}

fn resource_server() -> serde_json::Value {
    json!({"type": "Chain", "config": {
        "filters": [{"type": "OAuth2ResourceServerFilter", "config": {
            "requireHttps": false, "scopes": ["read"],
            "accessTokenResolver": {"type": "TokenIntrospectionAccessTokenResolver", "config": {
                "endpoint": "http://@PROXY@/oauth2/introspect",
                "providerHandler": "asking"}}}}],
        "handler": {"type": "StaticResponseHandler", "config": {"status": 204}}}})
}

fn asking(client: serde_json::Value) -> serde_json::Value {
    json!([
        {"name": "asking", "type": "Chain", "config": {
            "filters": [{"type": "ClientSecretBasicAuthenticationFilter", "config": {
                "clientId": "orders", "clientSecretId": "client.secret.id",
                "secretsProvider": "secrets"}}],
            "handler": client}},
        {"name": "secrets", "type": "SystemAndEnvSecretStore"}])
}

fn setup() -> Setup {
    Setup::new().env("CLIENT_SECRET_ID", "b3JkZXJzLXNlY3JldA==")
}

async fn is_served(door: &Door) {
    until_state(door, "rs", "loaded").await;
    assert_eq!(super::get(door, "/rs").await.status, 401);
    let bearer = format!("Bearer {}", door.client_token("read").await);
    let answer = get_with(door, "/rs", &[("authorization", &bearer)]).await;
    assert_eq!(answer.status, 204);
}

#[tokio::test]
async fn a_chain_of_the_heap_proves_who_the_gateway_is() {
    let route = guarded(&resource_server(), asking(json!("ForgeRockClientHandler")));
    let door = door_with(setup(), &[("rs.json", &route)]).await;
    is_served(&door).await;
    // It is for the gateway's own requests, and lets no client in.
    let chain = guarded(&json!("asking"), asking(json!("ForgeRockClientHandler")));
    super::put(&door, "rs.json", &chain);
    let state = until_state(&door, "rs", "stale").await;
    let told = state["errors"].to_string();
    assert!(
        told.contains("handler: is for requests that the gateway makes"),
        "{told}"
    );
}

#[tokio::test]
async fn tls_options_mean_the_same_for_endpoints_and_upstreams() {
    for (trust, warning) in [
        (
            json!("TrustAllManager"),
            "accepts the certificate of any impostor",
        ),
        (
            json!([{"type": "TrustAllManager"}]),
            "accepts the certificate of any impostor",
        ),
        (
            json!({"type": "TrustManager", "config": {"keystore": "k"}}),
            "has no effect",
        ),
    ] {
        let client = json!({"type": "ClientHandler", "config": {
            "tls": {"type": "ClientTlsOptions", "config": {"trustManager": trust}}}});
        let route = guarded(&resource_server(), asking(client.clone()));
        let upstream = json!({"handler": client, "baseURI": "https://127.0.0.1:1",
            "condition": "${find(request.uri.path, '^/up')}"});
        let files = [
            ("rs.json", route.as_str()),
            ("up.json", &upstream.to_string()),
        ];
        let door = door_with(setup(), &files).await;
        for id in ["rs", "up"] {
            let state = until_state(&door, id, "loaded").await;
            let told = state["warnings"].to_string();
            assert!(told.contains(warning), "{id} {trust}: {told}");
        }
        is_served(&door).await;
    }
}

#[tokio::test]
async fn a_router_that_is_not_there_is_refused_when_the_file_is_read() {
    let route = |base: &str| json!({"handler": "ClientHandler", "baseURI": base}).to_string();
    let fixed = route("internal://identity");
    let mut door = laid_out(Setup::new().identity("null"), &[("fixed.json", &fixed)]);
    door.write("routes.yaml", "_format_version: \"3.0\"\n");
    let outcome = door.run(&["check", "-c", "doorward.yaml"]);
    let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert_eq!(outcome.status.code(), Some(1), "{told}");
    assert!(
        told.contains("baseURI: internal://identity: there is no such router"),
        "{told}"
    );
    // One that only requests show is told once, however many there are.
    let dynamic = route("internal://${request.headers['X-To'][0]}");
    super::put(&door, "fixed.json", &dynamic);
    door.start().await;
    for _ in 0..3 {
        let answer = get_with(&door, "/", &[("x-to", "identity")]).await;
        assert_eq!(answer.status, 502);
    }
    get_with(&door, "/", &[("x-to", "echo")]).await.expect(200);
    const UNUSABLE: &str = "a base URI can't be used";
    door.wait_log("the warning", |line| line.contains(UNUSABLE))
        .await;
    let log = door.log_text();
    assert_eq!(log.matches(UNUSABLE).count(), 1, "{log}");
}

#[tokio::test]
async fn an_answer_is_not_replaced_by_a_second_upstreams() {
    let login = json!({"type": "Chain", "config": {
        "filters": [{"type": "StaticRequestFilter", "config": {
            "method": "POST", "uri": "http://127.0.0.1:1/login"}}],
        "handler": "ClientHandler"}});
    let route = json!({"baseURI": "http://127.0.0.1:1", "handler": {"type": "Chain", "config": {
        "filters": [{"type": "SwitchFilter", "config": {"onResponse": [
            {"condition": "${response.status.code == 401}", "handler": login}]}}],
        "handler": "ClientHandler"}}});
    let door = laid_out(Setup::new(), &[("login.json", &route.to_string())]);
    let outcome = door.run(&["check", "-c", "doorward.yaml"]);
    let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert_eq!(outcome.status.code(), Some(1), "{told}");
    assert!(
        told.contains("onResponse[0].handler: must answer by itself"),
        "{told}"
    );
    assert!(told.contains("is told by onRequest"), "{told}");
}
