//! Administration of the store from the command line.

use std::io::Write as _;
use std::process::{Output, Stdio};

use crate::support::{Door, Setup};

/// Runs `doorward ARGUMENTS -c doorward.yaml` with `input` on standard input.
fn run(door: &Door, arguments: &[&str], input: &str) -> Output {
    let mut child = door
        .command(&[arguments, &["-c", "doorward.yaml"]].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("piped");
    // A command that does not read may be gone already.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

/// What it printed on standard output, having succeeded.
#[track_caller]
fn printed(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn users_are_added_shown_changed_and_deleted_while_it_runs() {
    let door = Setup::new().start().await;
    let add = [
        "users",
        "add",
        "carol",
        "--email",
        "carol@example.com",
        "--password-stdin",
    ];
    printed(&run(&door, &add, "Ch4ng31t-carol\n"));
    door.user_token("carol", "openid").await;
    assert!(printed(&run(&door, &["users", "list"], "")).contains("carol"));
    let shown = printed(&run(&door, &["users", "show", "carol"], ""));
    assert!(shown.contains("carol@example.com"), "{shown}");
    assert!(
        !shown.contains("argon2") && !shown.contains("Ch4ng31t"),
        "{shown}"
    );

    let twice = run(&door, &add, "x-another-password\n");
    assert!(!twice.status.success());
    assert!(String::from_utf8_lossy(&twice.stderr).contains("carol"));

    let set = ["users", "set-password", "carol", "--password-stdin"];
    printed(&run(&door, &set, "Another-1-carol\n"));
    let fields = |password| {
        [
            ("grant_type", "password"),
            ("client_id", "orders"),
            ("client_secret", "orders-secret"),
            ("username", "carol"),
            ("password", password),
            ("scope", "openid"),
        ]
    };
    door.token_request(&fields("Ch4ng31t-carol"))
        .await
        .expect(400);
    door.token_request(&fields("Another-1-carol"))
        .await
        .expect(200);

    printed(&run(&door, &["users", "delete", "carol"], ""));
    door.token_request(&fields("Another-1-carol"))
        .await
        .expect(400);
    assert!(!printed(&run(&door, &["users", "list"], "")).contains("carol"));
}

#[tokio::test]
async fn a_client_gets_a_secret_that_is_shown_once() {
    let door = Setup::new().start().await;
    let add = ["clients", "add", "robot", "--scope", "read", "--json"];
    let made: serde_json::Value =
        serde_json::from_str(&printed(&run(&door, &add, ""))).expect("JSON");
    let secret = made["client_secret"].as_str().expect("a secret");
    let fields = [
        ("grant_type", "client_credentials"),
        ("client_id", "robot"),
        ("client_secret", secret),
        ("scope", "read"),
    ];
    door.token_request(&fields).await.expect(200);
    let shown = printed(&run(&door, &["clients", "show", "robot"], ""));
    assert!(
        shown.contains("robot") && !shown.contains(secret),
        "{shown}"
    );
    let database = std::fs::read(door.path("data/doorward.db")).expect("the database");
    let log = std::fs::read(door.path("data/doorward.db-wal")).unwrap_or_default();
    for bytes in [database, log] {
        let found = bytes
            .windows(secret.len())
            .any(|piece| piece == secret.as_bytes());
        assert!(!found, "the secret is stored as it is");
    }
}

#[tokio::test]
async fn keys_rotate_without_breaking_tokens() {
    let door = Setup::new().start().await;
    // The larger key is made beside the first requests.
    door.wait_log("the last key", |line| line.contains("RS256"))
        .await;
    let token = door.client_token("read").await;
    let before = printed(&run(&door, &["keys", "list"], ""));
    assert!(
        before.contains("ES256") && before.contains("RS256"),
        "{before}"
    );
    printed(&run(&door, &["keys", "rotate"], ""));
    let after = printed(&run(&door, &["keys", "list"], ""));
    assert!(after.lines().count() > before.lines().count(), "{after}");
    let path = format!("/oauth2/tokeninfo?access_token={token}");
    door.get("a.test", &path).await.expect(200);
    door.client_token("read").await;
}

#[tokio::test]
async fn secrets_on_the_command_line_are_not_needed_and_wrong_names_are_told() {
    let door = Setup::new().start().await;
    let missing = run(&door, &["users", "show", "nobody"], "");
    assert!(!missing.status.success());
    let error = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(error.contains("nobody"), "{error}");
    let realm = run(&door, &["users", "list", "--realm", "/nowhere"], "");
    assert!(!realm.status.success());
    assert!(String::from_utf8_lossy(&realm.stderr).contains("nowhere"));
}
