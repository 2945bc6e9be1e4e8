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

#[tokio::test]
async fn a_file_that_is_no_text_stops_nothing_else() {
    let mut door = laid_out(Setup::new(), &[("a.json", &answering("a", "/a", 201))]);
    std::fs::write(door.path("routes/bad.json"), b"{\"handler\": \"\xff\"}").expect("written");
    let check = door.run(&["check", "-c", "doorward.yaml"]);
    assert_eq!(check.status.code(), Some(1));
    let said = String::from_utf8_lossy(&check.stderr);
    assert!(said.contains("bad.json"), "{said}");
    door.start().await;
    get(&door, "/a").await.expect(201);
    assert_eq!(state(&door, "bad").await["state"], "refused");
    std::fs::write(door.path("routes/worse.json"), b"\xff").expect("written");
    put(&door, "b.json", &answering("b", "/b", 202));
    until(&door, "/b", 202).await;
    until_state(&door, "worse", "refused").await;
    put(&door, "bad.json", &answering("bad", "/mended", 203));
    until(&door, "/mended", 203).await;
    // Entities are not lost because their file can't be read.
    let entities = b"_format_version: '3.0'\nservices: []\n# \xff\n";
    std::fs::write(door.path("routes/entities.yaml"), entities).expect("written");
    door.wait_log("the error", |line| line.contains("entities.yaml"))
        .await;
    get(&door, "/a").await.expect(201);
}

#[tokio::test]
async fn routes_below_a_broken_router_come_and_go() {
    let router = json!({"handler": {"type": "Router", "config": {"directory": "below"}}});
    let door = door(&[
        ("main.json", &router.to_string()),
        ("below/a.json", &answering("a", "/a", 201)),
    ])
    .await;
    get(&door, "/a").await.expect(201);
    put(&door, "main.json", "{\"handler\": ");
    until_state(&door, "main", "stale").await;
    put(&door, "below/b.json", &answering("b", "/b", 202));
    until(&door, "/b", 202).await;
    std::fs::remove_file(door.path("routes/below/a.json")).expect("removed");
    until(&door, "/a", 404).await;
    assert_eq!(state(&door, "main").await["state"], "stale");
    put(&door, "main.json", &router.to_string());
    until_state(&door, "main", "loaded").await;
    get(&door, "/b").await.expect(202);
}

#[tokio::test]
async fn groups_of_properties_may_be_files() {
    let mut door = laid_out(Setup::new(), &[("values/u u.json", r#"{"status": 201}"#)]);
    let file = door.path("routes/values/u u.json");
    let url = url::Url::from_file_path(file).expect("a URL");
    let text = json!({
        "comment": "is none of the machine's business",
        "properties": {"urls": {"$location": url.as_str()}, "more": {"inner": {"$location": "values/u u.json"}}},
        "handler": {"type": "StaticResponseHandler", "config": {
            "status": "&{urls.status}", "headers": {"X-In": ["n${more.inner.status}"]}}},
    });
    put(&door, "a.json", &text.to_string());
    door.start().await;
    assert_eq!(get(&door, "/").await.expect(201).header("x-in"), "n201");
    assert_eq!(state(&door, "a").await["warnings"], json!([]));
    put(&door, "values/u u.json", r#"{"status": 202}"#);
    until(&door, "/", 202).await;
}
