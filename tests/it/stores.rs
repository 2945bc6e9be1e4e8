//! The real program on PostgreSQL, one node and two.
//!
//! `cargo test` alone leaves these out: they need PostgreSQL's programs.

pub(crate) use doorward_store::testing::postgres;

use postgres::Cluster;
use serde_json::{Value, json};

use crate::page_commands::blocks_tried_by;
use crate::support::door::IDENTITY;
use crate::support::ports::Port;
use crate::support::tls::Authority;
use crate::support::{Answer, Door, Setup, Upstream, eventually, http};

async fn node(database: &str) -> Door {
    // Nodes are one provider: of one name, wherever they listen.
    let identity = format!("\n  base_url: http://door.test{IDENTITY}");
    let setup = Setup::new().identity(&identity).store(database);
    setup.start().await
}

async fn sign_in(door: &Door, user: &str, password: &str) -> Answer {
    let request = http::client().post(door.proxy_url("/json/authenticate"));
    let request = request.header("X-Service-Username", user);
    let request = request.header("X-Service-Password", password);
    http::send(
        request
            .header("content-type", "application/json")
            .body("{}"),
    )
    .await
}

async fn password_grant(door: &Door, user: &str, password: &str) -> Answer {
    door.token_request(&[
        ("grant_type", "password"),
        ("username", user),
        ("password", password),
        ("scope", "openid profile"),
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
    ])
    .await
}

async fn refresh(door: &Door, token: &Value) -> Answer {
    door.token_request(&[
        ("grant_type", "refresh_token"),
        ("refresh_token", token.as_str().expect("a refresh token")),
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
    ])
    .await
}

fn run(door: &Door, arguments: &[&str]) -> String {
    let output = door.run(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL"]
async fn a_node_on_postgresql_keeps_users_tokens_and_entities_over_restarts() {
    let mut door = node(&Cluster::shared().database("one_node")).await;
    let upstream = Upstream::echo().await;
    door.expose("api", &upstream.url(""), "api.test").await;
    sign_in(&door, "demo", "Ch4ng31t-demo").await.expect(200);
    sign_in(&door, "demo", "wrong").await.expect(401);
    let first = password_grant(&door, "demo", "Ch4ng31t-demo").await;
    let first = first.expect(200).json();
    let config = ["-c", "doorward.yaml"];
    run(&door, &[&["realms", "add", "/staff"], &config[..]].concat());
    assert!(run(&door, &[&["users", "list"], &config[..]].concat()).contains("alice"));
    door.kill();
    door.start().await;
    door.get("api.test", "/").await.expect(200);
    let second = refresh(&door, &first["refresh_token"]).await;
    let second = second.expect(200).json();
    refresh(&door, &first["refresh_token"]).await.expect(400);
    refresh(&door, &second["refresh_token"]).await.expect(400);
    assert!(run(&door, &[&["realms", "list"], &config[..]].concat()).contains("/staff"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL"]
async fn two_nodes_learn_of_each_others_changes() {
    let database = Cluster::shared().database("two_nodes");
    let (a, b) = (node(&database).await, node(&database).await);
    let upstream = Upstream::echo().await;
    a.expose("api", &upstream.url(""), "api.test").await;
    eventually("the route of the other node", || async {
        (b.get("api.test", "/").await.status == 200).then_some(())
    })
    .await;
    // A token of one is known to the other, until either revokes it.
    let tokens = password_grant(&a, "demo", "Ch4ng31t-demo").await;
    let tokens = tokens.expect(200).json();
    let access = tokens["access_token"].as_str().expect("a token").to_owned();
    let info = |door: &Door| {
        let url = door.proxy_url("/oauth2/tokeninfo");
        http::send(http::client().get(url).bearer_auth(&access))
    };
    info(&b).await.expect(200);
    let revoke = http::client().post(a.proxy_url("/oauth2/token/revoke"));
    let revoke = revoke.basic_auth("orders", Some("orders-secret"));
    http::send(revoke.form(&[("token", &access)]))
        .await
        .expect(200);
    eventually("the revocation by the other node", || async {
        (info(&b).await.status != 200).then_some(())
    })
    .await;
    // A client and a realm that one is told of are the other's too.
    let client = json!({"client_id": "late", "grant_types": ["client_credentials"],
        "scope": "openid", "token_endpoint_auth_method": "client_secret_post"});
    let made = a.admin_post("/identity/clients", &client).await;
    let made = made.expect(201).json();
    let secret = made["client_secret"].as_str().expect("a secret");
    let pairs = [
        ("grant_type", "client_credentials"),
        ("client_id", "late"),
        ("client_secret", secret),
        ("scope", "openid"),
    ];
    a.token_request(&pairs).await.expect(200);
    eventually("the client of the other node", || async {
        (b.token_request(&pairs).await.status == 200).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL"]
async fn of_two_nodes_one_exchanges_a_refresh_token() {
    let database = Cluster::shared().database("exchange");
    let (a, b) = (node(&database).await, node(&database).await);
    for _ in 0..5 {
        let tokens = password_grant(&a, "demo", "Ch4ng31t-demo").await;
        let token = tokens.expect(200).json()["refresh_token"].clone();
        let (one, two) = tokio::join!(refresh(&a, &token), refresh(&b, &token));
        let statuses = [one.status, two.status];
        assert!(
            statuses == [200, 400] || statuses == [400, 200],
            "{statuses:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL"]
async fn while_the_server_is_away_requests_fail_and_then_go_on() {
    let cluster = Cluster::start("");
    let mut door = node(&cluster.database("away")).await;
    let mut refused = 0;
    let tokens = password_grant(&door, "demo", "Ch4ng31t-demo").await;
    let token = tokens.expect(200).json()["refresh_token"].clone();
    cluster.stop();
    for _ in 0..5 {
        let answer = password_grant(&door, "demo", "Ch4ng31t-demo").await;
        assert_eq!(answer.status, 503, "{}", answer.body);
        refused += 1;
    }
    cluster.go_on();
    eventually("the store to answer again", || async {
        (password_grant(&door, "demo", "Ch4ng31t-demo").await.status == 200).then_some(())
    })
    .await;
    refresh(&door, &token).await.expect(200);
    assert!(refused > 0 && door.exited().is_none());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL"]
async fn no_password_of_the_database_is_logged() {
    let url = Cluster::shared().database("quiet") + "&password=hush-hush";
    let door = node(&url).await;
    run(&door, &["users", "list", "-c", "doorward.yaml"]);
    assert!(!door.log_text().contains("hush-hush"));
    let broken = Setup::new()
        .store("postgres://u:hush-hush@127.0.0.1:1/x")
        .lay_out();
    let output = broken.run(&["run", "-c", "doorward.yaml"]);
    assert!(!output.status.success());
    let said = [output.stdout, output.stderr].concat();
    assert!(!String::from_utf8_lossy(&said).contains("hush-hush"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL"]
async fn a_server_is_spoken_to_over_tls_if_it_is_the_one_that_is_meant() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = authority.client("127.0.0.1");
    let port = Port::reserve();
    let settings = format!(
        "\"listen_addresses='127.0.0.1,127.0.0.2'\" port={} ssl=on \
         \"ssl_cert_file='../server.crt'\" \"ssl_key_file='../server.key'\"",
        port.number()
    );
    let files = [("server.crt", &*server.cert), ("server.key", &*server.key)];
    let _cluster = Cluster::start_with(&settings, &files);
    let url = |host: &str, rest: &str| {
        let port = port.number();
        format!("postgres://doorward@{host}:{port}/postgres?{rest}")
    };
    let good = url("127.0.0.1", "sslmode=verify-full&sslrootcert=@DIR@/ca.pem");
    let mut door = Setup::new().store(&good).lay_out();
    door.write("ca.pem", &authority.pem());
    door.write("stranger.pem", &stranger.pem());
    door.start().await;
    password_grant(&door, "demo", "Ch4ng31t-demo")
        .await
        .expect(200);
    let asked = sqlx::PgPool::connect(&url("127.0.0.1", "sslmode=require")).await;
    let connections = "SELECT count(*) FILTER (WHERE ssl), count(*) FROM pg_stat_ssl
                         JOIN pg_stat_activity USING (pid) WHERE application_name = 'doorward'";
    let counted = sqlx::query_as::<_, (i64, i64)>(connections);
    let (secure, all) = counted
        .fetch_one(&asked.expect("connected"))
        .await
        .expect("counted");
    assert!(secure > 0 && secure == all, "{secure} of {all}");
    let check = |url: &str| door.run(&["store", "check", "--store", &door.fill(url)]);
    assert!(check(&good).status.success());
    // The name is not looked at.
    let another_name = url("127.0.0.2", "sslmode=verify-ca&sslrootcert=@DIR@/ca.pem");
    assert!(check(&another_name).status.success());
    for (host, rest) in [
        (
            "127.0.0.1",
            "sslmode=verify-full&sslrootcert=@DIR@/stranger.pem",
        ),
        (
            "127.0.0.1",
            "sslmode=verify-ca&sslrootcert=@DIR@/stranger.pem",
        ),
        ("127.0.0.1", "sslmode=verify-full"),
        ("127.0.0.2", "sslmode=verify-full&sslrootcert=@DIR@/ca.pem"),
    ] {
        let refused = check(&url(host, rest));
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success(), "{host} {rest}");
        assert!(said.contains("certificate"), "{host} {rest}: {said}");
    }
}

/// PostgreSQL's own programs in front of the path of `bash`.
fn with_programs(bash: &mut std::process::Command) -> &mut std::process::Command {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let folders = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    let set = bash.get_envs().find(|(name, _)| *name == "PATH");
    let set = set.and_then(|(_, value)| value).expect("a path").to_owned();
    let path = folders.fold(set, |path, folder| {
        let mut path = path;
        path.push(":");
        path.push(folder);
        path
    });
    bash.env("PATH", path)
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn the_copies_of_the_page_on_back_ups_hold_the_store() {
    let blocks = blocks_tried_by("the_copies_of_the_page_on_back_ups_hold_the_store");
    let [(_, sqlite), (_, dump)] = &blocks[..] else {
        panic!("{blocks:?}")
    };
    let has_demo = |door: &Door, store: &str| {
        run(door, &["store", "check", "--store", store]);
        let users = run(door, &["users", "list", "--store", store]);
        assert!(users.contains("demo"), "{store}: {users}");
    };
    let door = Setup::new().store("sqlite:data/doorward.db").start().await;
    let output = door.shell(sqlite);
    assert!(output.status.success(), "{output:?}");
    has_demo(&door, "sqlite:copy.db");
    let cluster = Cluster::shared();
    let address = cluster.database("page_backup");
    let door = Setup::new().store(&address).start().await;
    let restored = cluster.database("page_backup_restored");
    let commands = format!("{dump}\npg_restore --no-owner --dbname=\"$RESTORED\" doorward.dump");
    let mut bash = door.bash(&commands);
    with_programs(&mut bash)
        .env("DATABASE", &address)
        .env("RESTORED", &restored);
    let output = bash.output().expect("bash starts");
    assert!(output.status.success(), "{output:?}");
    has_demo(&door, &restored);
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn the_imports_of_the_pages_fill_a_database() {
    let blocks = blocks_tried_by("the_imports_of_the_pages_fill_a_database");
    assert_eq!(blocks.len(), 2, "{blocks:?}");
    for (number, (page, block)) in blocks.iter().enumerate() {
        let door = Setup::new().start().await;
        run(
            &door,
            &["store", "export", "backup.jsonl", "-c", "doorward.yaml"],
        );
        let database = Cluster::shared().database(&format!("page_import_{number}"));
        let address = block
            .split_whitespace()
            .find(|word| word.contains("postgres://"));
        let address = address.expect("an address").trim_matches('\'');
        let commands = block
            .replace('\'', "")
            .replace(address, &format!("'{database}'"));
        let output = door.shell(&commands);
        assert!(output.status.success(), "{page}: {output:?}");
        let users = run(&door, &["users", "list", "--store", &database]);
        assert!(users.contains("demo"), "{page}: {users}");
    }
}
