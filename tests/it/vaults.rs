//! References to secrets that only the environment has.

use serde_json::json;

use crate::support::{Setup, http};

const SECRET: &str = "only-the-environment-has-this-secret";

fn setup() -> Setup {
    let service = "
- name: own
  url: http://127.0.0.1:9
  routes: [{name: own, paths: [/own]}]
  plugins:
  - {name: session, config: {secret: '{vault://env/session-secret}'}}
";
    Setup::new()
        .services(service)
        .env("SESSION_SECRET", SECRET)
        .env(
            "TEAM_SESSION",
            r#"{"current": "a-secret-of-the-team-for-sessions"}"#,
        )
        .env("EMPTY", "")
}

#[tokio::test]
async fn records_and_exports_show_references_and_never_secrets() {
    let door = setup().start().await;
    let plugin = json!({"name": "session", "config": {"secret": "{vault://env/session-secret}"}});
    let made = door
        .admin_post("/plugins", &plugin)
        .await
        .expect(201)
        .json();
    assert_eq!(made["config"]["secret"], "{vault://env/session-secret}");
    let export = door.admin_get("/config").await.expect(200).body;
    assert!(export.contains("{vault://env/session-secret}"), "{export}");
    assert!(!export.contains(SECRET), "{export}");
    assert!(!door.log_text().contains(SECRET));
    let schema = door.admin_get("/schemas/plugins/session").await.expect(200);
    assert!(schema.body.contains("\"referenceable\":true"));
}

#[tokio::test]
async fn a_secret_that_is_not_there_is_refused_and_never_empty() {
    let door = setup().start().await;
    for (reference, why) in [
        (
            "{vault://env/nowhere}",
            "the environment variable NOWHERE is not set",
        ),
        (
            "{vault://env/empty}",
            "the environment variable EMPTY: it is empty",
        ),
        ("{vault://team/session}", "no vault 'team'"),
        ("{vault://env}", "expected {vault://VAULT/RESOURCE}"),
        (
            "{vault://env/team-session/old}",
            "it is no JSON object with a text 'old'",
        ),
    ] {
        let plugin = json!({"name": "session", "config": {"secret": reference}});
        let answer = door.admin_post("/plugins", &plugin).await.expect(400);
        assert!(answer.body.contains(why), "{}", answer.body);
        assert!(answer.body.contains("config"), "{}", answer.body);
    }
    door.write(
        "wrong.yaml",
        "_format_version: \"3.0\"\nplugins:\n- name: session\n  \
        config:\n    secret: '{vault://env/nowhere}'\n",
    );
    door.write("main.yaml", "entities: [wrong.yaml]\n");
    let output = door.run(&["check", "-c", "main.yaml"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains("wrong.yaml:5: plugins[0].config.secret: {vault://env/nowhere} can't"),
        "{told}"
    );
}

#[tokio::test]
async fn a_vault_of_the_environment_has_a_prefix_of_its_own() {
    let door = setup().start().await;
    let vault = json!({"prefix": "team", "name": "env", "config": {"prefix": "team-"}});
    door.admin_post("/vaults", &vault).await.expect(201);
    door.admin_post("/vaults", &vault).await.expect(409);
    for (wrong, why) in [
        (
            json!({"prefix": "env", "name": "env"}),
            "must not be one of: env",
        ),
        (
            json!({"prefix": "other", "name": "hcv"}),
            "vault 'hcv' is not installed",
        ),
        (json!({"prefix": "X", "name": "env"}), "invalid value: X"),
    ] {
        let answer = door.admin_post("/vaults", &wrong).await.expect(400);
        assert!(answer.body.contains(why), "{}", answer.body);
    }
    let secret = "{vault://team/session/current}";
    let plugin = json!({"name": "session", "config": {"secret": secret}});
    door.admin_post("/plugins", &plugin).await.expect(201);
    let shown = door.admin_get("/vaults/team").await.expect(200).json();
    assert_eq!(shown["config"]["prefix"], "team-");
    // What a reference needs stays, and a change of it counts at once.
    door.admin_delete("/vaults/team").await.expect(400);
    let other = http::client()
        .patch(door.admin_url("/vaults/team"))
        .json(&json!({"config": {"prefix": "nobody-"}}));
    let answer = http::send(other).await.expect(400);
    assert!(
        answer.body.contains("NOBODY_SESSION is not set"),
        "{}",
        answer.body
    );
}
