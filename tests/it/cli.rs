//! Administration of the store from the command line.

use std::io::Write as _;
use std::process::{Output, Stdio};

use crate::support::{Door, Setup, eventually};

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

/// What it said on standard error, having failed.
#[track_caller]
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_str(&printed(output)).expect("JSON")
}

/// The status of a token request of the client `robot`.
async fn robot(door: &Door, secret: &str) -> u16 {
    let fields = [
        ("grant_type", "client_credentials"),
        ("client_id", "robot"),
        ("client_secret", secret),
        ("scope", "read"),
    ];
    door.token_request(&fields).await.status
}

#[tokio::test]
async fn a_client_is_changed_member_by_member_while_it_runs() {
    let door = Setup::new().start().await;
    let add = "clients add robot --scope read --name Robot --json";
    let add: Vec<_> = add.split(' ').collect();
    let made = json(&run(&door, &add, ""));
    let secret = made["client_secret"].as_str().expect("a secret");
    assert_eq!(robot(&door, secret).await, 200);

    let update = [
        "clients",
        "update",
        "robot",
        "--set",
        "access_token_lifetime=60",
        "--set",
        "client_name#de=Roboter",
        "--metadata",
        "-",
        "--unset",
        "client_name",
        "--json",
    ];
    let changed = json(&run(
        &door,
        &update,
        r#"{"contacts": ["ops@robot.example"]}"#,
    ));
    assert_eq!(changed["access_token_lifetime"], 60);
    assert_eq!(changed["client_name#de"], "Roboter");
    assert_eq!(changed["contacts"][0], "ops@robot.example");
    assert!(changed.get("client_name").is_none());
    assert!(changed.get("client_secret").is_none(), "it stays");
    assert_eq!(robot(&door, secret).await, 200);

    let other = ["clients", "secret", "robot", "--json"];
    let other = json(&run(&door, &other, ""));
    let other = other["client_secret"]
        .as_str()
        .expect("a secret")
        .to_owned();
    crate::support::eventually("the other secret", || async {
        let old = robot(&door, secret).await == 401;
        (old && robot(&door, &other).await == 200).then_some(())
    })
    .await;
    let shown = printed(&run(&door, &["clients", "show", "robot"], ""));
    assert!(
        !shown.contains(&other) && shown.contains("Roboter"),
        "{shown}"
    );
    let listed = json(&run(
        &door,
        &["clients", "list", "--search", "ROB", "--json"],
        "",
    ));
    assert_eq!(listed.as_array().map(Vec::len), Some(1));
    let listed = printed(&run(&door, &["clients", "list", "--owner", "file"], ""));
    assert!(
        listed.contains("orders\t") && !listed.contains("robot\t"),
        "{listed}"
    );
    printed(&run(&door, &["clients", "delete", "robot"], ""));
    let error = refused(&run(&door, &["clients", "show", "robot"], ""));
    assert!(
        error.contains("there is no client robot in realm /"),
        "{error}"
    );
}

#[tokio::test]
async fn what_is_wrong_with_a_client_is_said_by_name() {
    let door = Setup::new().start().await;
    printed(&run(&door, &["clients", "add", "robot"], ""));
    for (arguments, wanted) in [
        (
            &["--set", "surprise=1"][..],
            "surprise: unknown field; a client has: client_id, ",
        ),
        (
            &["--set", "scope=5"],
            "scope: expected a string, not a number",
        ),
        (
            &["--set", "jwks_uri=http://a.example/"],
            "jwks_uri: must be an https URL",
        ),
        (&["--set", "scope"], "--set scope: write it as NAME=VALUE"),
        (&["--set", "client_id=other"], "client_id: can't be changed"),
        (
            &["--set", "client_secret=x"],
            "a secret comes by --secret-stdin or --secret",
        ),
        (&["--metadata", "{"], "this is no JSON object"),
        (&["--metadata", "@missing.json"], "missing.json"),
        (&[], "nothing to change"),
    ] {
        let arguments = [&["clients", "update", "robot"], arguments].concat();
        let error = refused(&run(&door, &arguments, ""));
        assert!(error.contains(wanted), "{arguments:?}: {error}");
    }
    for (arguments, wanted) in [
        (
            "clients update orders --set scope=a",
            "is declared in the configuration file",
        ),
        (
            "clients secret orders",
            "is declared in the configuration file",
        ),
        (
            "clients delete orders",
            "is declared in the configuration file",
        ),
        (
            "clients add robot",
            "there is a client robot in realm / already",
        ),
        (
            "clients update nobody --set scope=a",
            "there is no client nobody",
        ),
        (
            "clients list --realm /nowhere",
            "the store has no realm /nowhere; it has /",
        ),
        ("tokens delete nothing", "there is no token nothing"),
        ("keys show nothing", "there is no key nothing"),
        ("realms show /nowhere", "there is no realm /nowhere"),
        (
            "realms update / --set code_lifetime=5",
            "is declared in the configuration file",
        ),
    ] {
        let arguments: Vec<_> = arguments.split(' ').collect();
        let error = refused(&run(&door, &arguments, ""));
        assert!(error.contains(wanted), "{arguments:?}: {error}");
    }
}

#[tokio::test]
async fn realms_and_their_tokens_are_administered_while_it_runs() {
    let door = Setup::new().start().await;
    let add = [
        "realms",
        "add",
        "/staff",
        "--set",
        "registration.mode=token",
        "--json",
    ];
    let made = json(&run(&door, &add, ""));
    assert_eq!(made["path"], "/staff");
    assert_eq!(made["effective_settings"]["registration"]["mode"], "token");
    assert_eq!(
        made["issuer"],
        door.proxy_url("/oauth2/realms/root/realms/staff")
    );
    let path = "/oauth2/staff/.well-known/openid-configuration";
    crate::support::eventually("the realm", || async {
        let metadata = door.get("a.test", path).await;
        let named = metadata.body.contains("registration_endpoint");
        named.then_some(())
    })
    .await;

    let token = [
        "tokens", "add", "--uses", "2", "--note", "n", "--realm", "/staff", "--json",
    ];
    let token = json(&run(&door, &token, ""));
    let text = token["initial_access_token"].as_str().expect("a token");
    let listed = printed(&run(&door, &["tokens", "list", "--realm", "/staff"], ""));
    assert!(
        listed.contains("\t2\t") && !listed.contains(text),
        "{listed}"
    );
    let register = crate::support::http::client()
        .post(door.proxy_url("/oauth2/staff/connect/register"))
        .bearer_auth(text)
        .json(&serde_json::json!({"redirect_uris": ["https://a.example/cb"]}));
    crate::support::http::send(register).await.expect(201);
    let listed = json(&run(
        &door,
        &["clients", "list", "--realm", "staff", "--json"],
        "",
    ));
    assert_eq!(listed[0]["owner"], "client");
    let id = listed[0]["client_id"].as_str().expect("text");
    let not_yet = refused(&run(&door, &["realms", "delete", "/staff"], ""));
    assert!(not_yet.contains("is not empty"), "{not_yet}");
    printed(&run(
        &door,
        &["clients", "delete", id, "--realm", "/staff"],
        "",
    ));
    let id = token["id"].as_str().expect("text");
    printed(&run(
        &door,
        &["tokens", "delete", id, "--realm", "/staff"],
        "",
    ));

    let set = ["realms", "update", "/staff", "--set", "code_lifetime=5000"];
    let error = refused(&run(&door, &set, ""));
    assert!(
        error.contains("/staff.settings.code_lifetime: must be from 1 to 600"),
        "{error}"
    );
    let set = ["realms", "update", "/staff", "--set", "cod_lifetime=5"];
    let error = refused(&run(&door, &set, ""));
    assert!(
        error.contains("cod_lifetime") && error.contains("code_lifetime"),
        "{error}"
    );
    let unset = [
        "realms",
        "update",
        "/staff",
        "--unset",
        "registration",
        "--json",
    ];
    let changed = json(&run(&door, &unset, ""));
    assert_eq!(
        changed["effective_settings"]["registration"]["mode"],
        "disabled"
    );
    let listed = printed(&run(&door, &["realms", "list"], ""));
    assert!(
        listed.contains("/\tfile\t") && listed.contains("/staff\tstore\t"),
        "{listed}"
    );
    printed(&run(&door, &["realms", "delete", "/staff"], ""));
}

#[test]
fn the_file_is_named_before_the_command_or_behind_it_or_is_the_usual_one() {
    let door = Setup::new().lay_out();
    for arguments in [
        ["-c", "doorward.yaml", "check"],
        ["check", "--config", "doorward.yaml"],
    ] {
        assert_eq!(printed(&door.run(&arguments)), "doorward.yaml: ok\n");
    }
    std::fs::create_dir(door.path("conf")).expect("a folder");
    std::fs::copy(door.path("doorward.yaml"), door.path("conf/doorward.yaml")).expect("a copy");
    std::fs::copy(door.path("routes.yaml"), door.path("conf/routes.yaml")).expect("a copy");
    assert_eq!(printed(&door.run(&["check"])), "conf/doorward.yaml: ok\n");
    std::fs::remove_file(door.path("conf/doorward.yaml")).expect("removed");
    let machine = "/etc/doorward/doorward.yaml";
    if std::path::Path::new(machine).exists() {
        return;
    }
    let refused = door.run(&["check"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains(machine), "{told}");
}

#[test]
fn manual_pages_are_printed_and_written_for_each_command() {
    let door = Setup::new().lay_out();
    let page = printed(&door.run(&["man"]));
    assert!(page.contains(".TH doorward 1"), "{page}");
    printed(&door.run(&["man", "pages"]));
    for name in ["doorward.1", "doorward-run.1", "doorward-check.1"] {
        let page = std::fs::read_to_string(door.path("pages").join(name)).expect(name);
        assert!(page.contains(".SH OPTIONS"), "{page}");
    }
}

#[tokio::test]
async fn the_help_of_each_command_has_examples() {
    let door = Setup::new().lay_out();
    for command in ["clients", "realms", "tokens", "keys"] {
        let help = door.run(&[command, "--help"]);
        let text = printed(&help);
        assert!(text.contains("Examples:") && text.contains(&format!("doorward {command} ")));
    }
}

#[tokio::test]
async fn a_provider_that_nothing_leads_to_is_told_to_the_operator() {
    let mut door = Setup::new().lay_out();
    let told = "identity: no service leads to the provider, so its addresses answer 404";
    door.edit("doorward.yaml", "identity:", "identity:\n  mount: false");
    let check = |door: &Door| {
        let output = door.run(&["check", "-c", "doorward.yaml"]);
        assert!(output.status.success(), "{}", printed(&output));
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (printed(&output) + &errors).contains(told)
    };
    assert!(!check(&door));
    door.edit("routes.yaml", "host: identity", "host: echo");
    assert!(check(&door));
    door.start().await;
    assert!(door.log_text().contains(told), "{}", door.log_text());
}

#[tokio::test]
async fn a_provider_that_nothing_leads_to_is_mounted_until_something_does() {
    let mut door = Setup::new().lay_out();
    let routes = "_format_version: \"3.0\"\nservices:\n- name: own\n  protocol: internal\n  \
        host: echo\n  routes: [{name: own, paths: [/oauth2/own], strip_path: false}]\n";
    door.write("routes.yaml", routes);
    door.start().await;
    assert!(
        door.log_text().contains("identity.mount: false"),
        "{}",
        door.log_text()
    );
    let metadata = "/oauth2/.well-known/openid-configuration";
    let address = door.proxy_url("");
    let host = address
        .trim_start_matches("http://")
        .trim_end_matches('/')
        .to_owned();
    let found = door.get(&host, metadata).await.expect(200);
    assert!(
        found.json()["issuer"]
            .as_str()
            .is_some_and(|issuer| issuer.ends_with("/oauth2"))
    );
    // A route of the operator comes first, and other hosts have no provider.
    let own = door.get(&host, "/oauth2/own").await.expect(200);
    assert_eq!(own.json()["path"], "/oauth2/own");
    door.get("api.test", metadata).await.expect(404);
    let url = door.proxy_url(metadata);
    let explained = printed(&run(&door, &["explain", "GET", &url], ""));
    assert!(
        explained.contains("mounted by default (identity.mount)"),
        "{explained}"
    );
    // A service that leads there takes its place for good.
    let service = "- name: provider\n  protocol: internal\n  host: identity\n";
    door.write("routes.yaml", &format!("{routes}{service}"));
    eventually("the mount to be gone", || async {
        (door.get(&host, metadata).await.status == 404).then_some(())
    })
    .await;
    door.write("routes.yaml", routes);
    eventually("the service to be gone", || async {
        let services = door.admin_get("/services/provider").await;
        (services.status == 404).then_some(())
    })
    .await;
    door.get(&host, metadata).await.expect(404);
}
