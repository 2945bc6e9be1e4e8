//! What files refer to: other files, and files that can't be read.

use serde_json::json;

use super::*;

const PAIRS: [(&str, &str); 2] = [
    ("one", "Basic b3JkZXJzOm9uZQ=="),
    ("two", "Basic b3JkZXJzOnR3bw=="),
];

#[tokio::test]
async fn a_rotated_secret_file_is_picked_up() {
    let upstream = Upstream::start(|_| {
        Reply::Json(
            200,
            json!({"active": true, "scope": "a", "token_type": "Bearer"}),
        )
    })
    .await;
    let credentials = json!({"type": "ClientSecretBasicAuthenticationFilter", "config": {
        "clientId": "orders", "clientSecretId": "agent",
        "secretsProvider": {"type": "FileSystemSecretStore",
            "config": {"directory": "&{ig.dir}", "format": "PLAIN"}}}});
    let filter = json!({"type": "OAuth2ResourceServerFilter", "config": {
        "scopes": ["a"], "requireHttps": false,
        "accessTokenResolver": {"type": "TokenIntrospectionAccessTokenResolver", "config": {
            "endpoint": upstream.url("/introspect"),
            "providerHandler": {"type": "Chain", "config": {
                "filters": [credentials], "handler": "ForgeRockClientHandler"}}}}}});
    let mut door = laid_out(Setup::new(), &[("secrets/agent", PAIRS[0].0)]);
    let text = json!({
        "properties": {"ig": {"dir": door.path("routes/secrets")}},
        "handler": {"type": "Chain", "config": {"filters": [filter],
            "handler": {"type": "StaticResponseHandler", "config": {"status": 200}}}},
    });
    put(&door, "rs.json", &text.to_string());
    door.start().await;
    for (secret, header) in PAIRS {
        put(&door, "secrets/agent", secret);
        let mut tokens = 0;
        eventually("the secret to be used", || {
            tokens += 1;
            let token = format!("Bearer {secret}-{tokens}");
            let (door, upstream) = (&door, &upstream);
            async move {
                let headers = [("authorization", token.as_str())];
                get_with(door, "/", &headers).await.expect(200);
                (upstream.last().all("authorization") == [header]).then_some(())
            }
        })
        .await;
    }
    // One that is gone is told, and the good version stays.
    std::fs::remove_file(door.path("routes/secrets/agent")).expect("removed");
    let stale = until_state(&door, "rs", "stale").await.to_string();
    assert!(stale.contains("agent") && !stale.contains("two"), "{stale}");
    get_with(&door, "/", &[("authorization", "Bearer more")])
        .await
        .expect(200);
    put(&door, "secrets/agent", "three");
    until_state(&door, "rs", "loaded").await;
}

#[tokio::test]
async fn files_that_expressions_read_are_followed() {
    let mut door = laid_out(
        Setup::new(),
        &[("values/text", "one"), ("values/p.properties", "a = 1")],
    );
    let (text, lines) = (
        door.path("routes/values/text"),
        door.path("routes/values/p.properties"),
    );
    let add = json!({
        "X-Text": [format!("${{read('{}')}}", text.display())],
        "X-Line": [format!("${{readProperties('{}')['a']}}", lines.display())],
    });
    let filter = json!({"type": "HeaderFilter", "config": {"messageType": "RESPONSE", "add": add}});
    let route = json!({"handler": {"type": "Chain", "config": {"filters": [filter],
        "handler": {"type": "StaticResponseHandler", "config": {"status": 200,
            "entity": format!("${{read('{}')}}", text.display())}}}}});
    put(&door, "a.json", &route.to_string());
    door.start().await;
    let answer = get(&door, "/").await.expect(200);
    assert_eq!((answer.header("x-text"), &*answer.body), ("one", "one"));
    put(&door, "values/text", "two");
    put(&door, "values/p.properties", "a = 2");
    eventually("both to change", || async {
        let answer = get(&door, "/").await;
        let now = (
            answer.header("x-text"),
            answer.header("x-line"),
            &*answer.body,
        );
        (now == ("two", "2", "two")).then_some(())
    })
    .await;
}
