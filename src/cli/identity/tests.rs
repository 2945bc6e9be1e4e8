//! The commands on a store, without a process.

use clap::Parser;
use serde_json::Value;

use super::*;
use doorward_core::model::secret::Secret;

#[derive(Debug, Parser)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

/// Runs a command line on `store`; what it printed.
async fn doorward(store: &Arc<Store>, input: &str, line: &str) -> anyhow::Result<String> {
    let words = std::iter::once("doorward").chain(line.split_whitespace());
    let command = Line::try_parse_from(words)?.command;
    let json = line.contains("--json");
    let mut out = Vec::new();
    let mut context = CommandContext {
        store: Arc::clone(store),
        realm: "/".to_owned(),
        json,
        clock: Clock::manual(1_000_000),
        hashing: HashingConfig::default(),
        vault: Vault::default(),
        identity: IdentityConfig::default(),
        input: &mut input.as_bytes(),
        out: &mut out,
        pending: None,
    };
    act(command, &mut context).await?;
    Ok(String::from_utf8(out)?)
}

async fn new_store(directory: &tempfile::TempDir) -> Arc<Store> {
    let url = format!("sqlite:{}", directory.path().join("db").display());
    store::open(&url).await.expect("a store")
}

#[tokio::test]
async fn users_are_added_shown_changed_and_deleted() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = new_store(&directory).await;
    let line = "users add alice --email alice@example.com --display-name Alice --password-stdin";
    let said = doorward(&store, "Wonderland-7\n", line)
        .await
        .expect("added");
    assert!(said.contains("alice"), "{said}");
    let again = doorward(&store, "Wonderland-7\n", "users add ALICE --password-stdin").await;
    assert_eq!(again.expect_err("taken").to_string(), "ALICE is taken");

    let shown = doorward(&store, "", "users show Alice --json")
        .await
        .expect("shown");
    let record: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(record["emails"][0]["value"], "alice@example.com");
    assert!(!shown.contains("argon2"), "the hash is shown");

    let bob = "users add bob --password-stdin";
    let refused = doorward(&store, "x\n", bob).await.expect_err("too short");
    assert!(refused.to_string().contains("at least 8"), "{refused}");
    let refused = doorward(&store, "password\n", bob).await;
    let refused = refused.expect_err("guessed first").to_string();
    assert!(refused.contains("too easy to guess"), "{refused}");
    doorward(&store, "x\n", &format!("{bob} --ignore-policy"))
        .await
        .expect("added");
    let listed = doorward(&store, "", "users list").await.expect("listed");
    assert_eq!(listed.lines().count(), 2);
    let user = store
        .user_by_name("/", "alice")
        .await
        .expect("a lookup")
        .expect("alice");
    doorward(
        &store,
        "vexing kelp\n",
        "users set-password alice --password-stdin",
    )
    .await
    .expect("set");
    let changed = store
        .user_by_name("/", "alice")
        .await
        .expect("a lookup")
        .expect("alice");
    let hash = |user: &doorward_core::model::user::User| {
        user.password_hash
            .as_ref()
            .map(|hash| hash.expose().to_owned())
    };
    assert_ne!(hash(&user), hash(&changed));
    let hashed = "users set-password alice --hashed --password-stdin";
    let line = "$2b$04$V1FwC4xa88bF5r2OTd5aMeok35Jf2vagldtM5l2cnXZyln4x3Jzuu\n";
    doorward(&store, line, hashed).await.expect("set");
    let costly = doorward(&store, &line.replace("$04$", "$20$"), hashed).await;
    let costly = costly.expect_err("too costly").to_string();
    assert!(costly.contains("at most cost 15"), "{costly}");
    doorward(&store, "", "users delete alice")
        .await
        .expect("deleted");
    assert!(doorward(&store, "", "users show alice").await.is_err());
}

#[tokio::test]
async fn clients_get_a_secret_that_is_shown_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = new_store(&directory).await;
    let line =
        "clients add orders --grant client_credentials --grant password --scope openid --json";
    let said = doorward(&store, "", line).await.expect("added");
    let record: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(
        record["grant_types"],
        serde_json::json!(["client_credentials", "password"])
    );
    assert_eq!(record["client_secret"].as_str().map(str::len), Some(43));
    let shown = doorward(&store, "", "clients show orders --json")
        .await
        .expect("shown");
    assert!(!shown.contains("client_secret\""), "{shown}");
    doorward(&store, "own-secret\n", "clients add own --secret-stdin")
        .await
        .expect("added");
    let public = doorward(&store, "", "clients add app --public")
        .await
        .expect("added");
    assert!(!public.contains("secret"), "{public}");
    let line = r#"clients add robot --metadata {"token_endpoint_auth_method":"private_key_jwt","jwks_uri":"https://robot.example/keys"}"#;
    let robot = doorward(&store, "", line).await.expect("added");
    assert!(!robot.contains("secret"), "{robot}");
    let line = r#"clients add http --metadata {"jwks_uri":"http://robot.example/keys"}"#;
    assert!(
        doorward(&store, "", line).await.is_err(),
        "keys by plain http"
    );
    let listed = doorward(&store, "", "clients list").await.expect("listed");
    assert_eq!(listed.lines().count(), 4);
    doorward(&store, "", "clients delete own")
        .await
        .expect("deleted");
    assert!(doorward(&store, "", "clients delete own").await.is_err());
    assert!(
        doorward(&store, "", "clients add bad --scope a\"b")
            .await
            .is_err()
    );
}

#[tokio::test]
async fn sealed_keys_get_no_open_successor() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = new_store(&directory).await;
    let mut key =
        doorward_core::jose::keys::generate(doorward_core::model::client::SignAlg::ES256, 0, 0)
            .expect("a key");
    let vault = Vault::new(&[Secret::new("m".repeat(32))]).expect("a vault");
    key.pkcs8 = vault.seal(&key).expect("sealed").expect("another text");
    store
        .add_signing_key(&key, 0, false, None)
        .await
        .expect("stored");
    for line in ["keys rotate", "keys rotate --alg RS256 --now"] {
        let refused = doorward(&store, "", line).await.expect_err("refused");
        assert!(refused.to_string().contains("--config"), "{refused}");
    }
    assert_eq!(store.signing_keys().await.expect("keys").len(), 1);
}

#[tokio::test]
async fn keys_rotate_ahead_or_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = new_store(&directory).await;
    doorward(&store, "", "keys rotate --alg ES256 --now")
        .await
        .expect("made");
    doorward(&store, "", "keys rotate --alg ES256")
        .await
        .expect("made");
    let listed = doorward(&store, "", "keys list --json")
        .await
        .expect("listed");
    let keys: Value = serde_json::from_str(&listed).expect("JSON");
    let states: Vec<_> = keys
        .as_array()
        .expect("keys")
        .iter()
        .map(|key| &key["state"])
        .collect();
    assert_eq!(states, ["active", "next"]);
    assert!(!listed.contains("pkcs8"));
    let emergency = doorward(&store, "", "keys rotate --alg ES256 --now").await;
    emergency.expect("made, in the place of the one to come");
    let listed = doorward(&store, "", "keys list --json").await;
    let keys: Value = serde_json::from_str(&listed.expect("listed")).expect("JSON");
    let states = keys.as_array().expect("keys").iter();
    let active = states.filter(|key| key["state"] != "old");
    assert_eq!(active.count(), 1);
}

#[tokio::test]
async fn users_of_a_file_are_imported_and_refused_ones_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = new_store(&directory).await;
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (file, report) = (path("users.csv"), path("report.csv"));
    let hash = "$2b$04$V1FwC4xa88bF5r2OTd5aMeok35Jf2vagldtM5l2cnXZyln4x3Jzuu";
    let text = format!(
        "userName,displayName,password,passwordHash\n\
         anna,Anna,,{hash}\n\
         bert,Bert,correct horse,\n\
         ANNA,Again,,\n\
         carl,Carl,,{}\n\
         dora\u{202e},Dora,hunter2,\n",
        hash.replace("$04$", "$31$")
    );
    std::fs::write(&file, text).expect("written");
    let import = async |more: &str| {
        let line = format!("users import {file} --json {more}");
        doorward(&store, "", &line).await
    };
    let dry = import(&format!("--dry-run --report {report}")).await;
    assert!(dry.expect_err("refused").to_string().contains("3 records"));
    let dry = std::fs::read_to_string(&report).expect("a report");
    assert!(
        store
            .user_by_name("/", "anna")
            .await
            .expect("read")
            .is_none()
    );
    let real = import(&format!("--report {report}")).await;
    assert!(real.expect_err("refused").to_string().contains("3 records"));
    let real = std::fs::read_to_string(&report).expect("a report");
    for said in [&dry, &real] {
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines.len(), 4, "{said}");
        assert!(lines[1].contains("users.csv,4,ANNA,"), "{said}");
        assert!(lines[2].contains("users.csv,5,carl,"), "{said}");
        assert!(lines[3].contains("users.csv,6,"), "{said}");
        assert!(
            !said.contains("hunter2") && !said.contains("$2b$"),
            "{said}"
        );
    }
    let user = async |name: &str| {
        let user = store.user_by_name("/", name).await.expect("read");
        user.expect(name)
    };
    let kept = user("anna").await.password_hash.expect("a hash");
    assert_eq!(kept.expose(), hash);
    let made = user("bert").await.password_hash.expect("a hash");
    assert!(made.expose().starts_with("$argon2id$"));
    std::fs::write(&file, "userName,title\nanna,Boss\n").expect("written");
    import("--skip-existing").await.expect("skipped");
    assert!(!user("anna").await.profile.contains_key("title"));
    let said = import("--update").await.expect("updated");
    assert!(said.contains("\"updated\": 1"), "{said}");
    let anna = user("anna").await;
    assert_eq!(anna.profile["title"], "Boss");
    assert_eq!(anna.profile["displayName"], "Anna");
}

#[tokio::test]
async fn records_of_the_broker_are_made_shown_changed_and_deleted() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = new_store(&directory).await;
    let run = async |input: &str, line: &str| doorward(&store, input, line).await;
    let refused = async |line: &str| run("", line).await.expect_err("refused").to_string();
    let missing = "broker apps add shop --developer dev@x --product weather";
    assert_eq!(refused(missing).await, "there is no product weather");
    run("", "broker products add weather --set scopes=[\"READ\"]")
        .await
        .expect("added");
    assert_eq!(refused(missing).await, "there is no developer dev@x");
    run("", "broker developers create Dev@x")
        .await
        .expect("added");
    let said = run("", missing).await.expect("added");
    assert!(said.contains("\nconsumer_secret: "), "{said}");
    let imported = format!("{missing} --consumer-key shop --secret-stdin");
    let said = run("s3cret\n", &imported).await.expect("added");
    assert!(!said.contains("secret"), "{said}");
    let again = refused(&format!("{missing} --consumer-key shop")).await;
    assert_eq!(again, "application shop is there already");
    let client = store.broker_client("shop").await.expect("an answer");
    let client = client.expect("it is there").application;
    assert!(client.secret.matches("s3cret"));

    let shown = run("", "broker apps get shop --json").await.expect("shown");
    assert!(
        shown.contains(&client.id) && !shown.contains("secret"),
        "{shown}"
    );
    let change = "broker apps update shop --set status=revoked --unset products --json";
    let changed = run("", change).await.expect("changed");
    let changed: Value = serde_json::from_str(&changed).expect("JSON");
    assert_eq!(changed["status"], "revoked");
    assert_eq!(changed["products"], Value::Array(Vec::new()));
    let said = run("", "broker apps secret shop --json")
        .await
        .expect("made");
    let made: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(made["consumer_secret"].as_str().map(str::len), Some(32));
    let wrong = refused("broker apps update shop --set status=gone").await;
    assert!(wrong.contains("status"), "{wrong}");
    let wrong = refused("broker apps update shop --set consumer_secret=x").await;
    assert!(wrong.contains("--secret-stdin"), "{wrong}");
    let listed = run("", "broker applications list").await.expect("listed");
    assert_eq!(listed.lines().count(), 2, "{listed}");

    let kept = refused("broker developers delete dev@x").await;
    assert!(kept.contains("has applications"), "{kept}");
    assert_eq!(
        refused("broker revoke --token x").await,
        "there is no such token"
    );
    run("", "broker apps revoke-tokens shop")
        .await
        .expect("done");
    run("", "broker apps delete shop").await.expect("deleted");
    assert_eq!(
        refused("broker apps show shop").await,
        "there is no application shop"
    );
}
