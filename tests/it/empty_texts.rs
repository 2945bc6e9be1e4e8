//! Empty texts in the Admin API: the imitated gateway takes none.

use serde_json::{Value, json};

use crate::support::{Answer, Setup, Upstream};

fn assert_empty(answer: Answer, field: &str) {
    let message = format!("schema violation ({field}: length must be at least 1)");
    assert_eq!(answer.status, 400, "{field}: {}", answer.body);
    assert_eq!(answer.json()["message"], message);
}

#[tokio::test]
async fn an_empty_secret_is_refused() {
    let door = Setup::new().start().await;
    let anna = json!({"username": "anna"});
    door.admin_post("/consumers", &anna).await.expect(201);
    for (kind, mut body, field) in [
        ("key-auth", json!({}), "key"),
        ("basic-auth", json!({"username": "anna"}), "password"),
        ("jwt", json!({"key": "anna"}), "secret"),
        ("hmac-auth", json!({"username": "anna"}), "secret"),
        ("oauth2", json!({"name": "app"}), "client_secret"),
    ] {
        body[field] = "".into();
        let path = format!("/consumers/anna/{kind}");
        assert_empty(door.admin_post(&path, &body).await, field);
        let list = door.admin_get(&path).await.expect(200).json();
        assert_eq!(list["data"], json!([]), "{kind}");
    }
}

#[tokio::test]
async fn an_empty_text_in_a_plugins_configuration_is_refused() {
    let upstream = Upstream::echo().await;
    let service = format!("- {{name: web, url: '{}'}}\n", upstream.url(""));
    let door = Setup::new().services(&service).start().await;
    for (name, config, field) in [
        ("acl", json!({"allow": [""]}), "config.allow.1"),
        ("bot-detection", json!({"deny": [""]}), "config.deny.1"),
        (
            "request-termination",
            json!({"message": ""}),
            "config.message",
        ),
        ("key-auth", json!({"anonymous": ""}), "config.anonymous"),
        ("cors", json!({"origins": [""]}), "config.origins.1"),
    ] {
        let plugin: Value = json!({"name": name, "config": config});
        assert_empty(door.admin_post("/plugins", &plugin).await, field);
    }
}
