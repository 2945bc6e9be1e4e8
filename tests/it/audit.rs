//! The audit log, by driving the program: everything is told, and no secret.

mod kinds;

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Door, Setup, eventually, http};

/// What `Setup::new` declares, and a client that people sign in to.
const SHOP: &str = "
        - client_id: shop
          client_secret: shop-secret
          redirect_uris: [\"https://shop.example/cb\"]
          grant_types: [authorization_code, refresh_token]
          scope: openid profile";

async fn door() -> Door {
    let mut door = Setup::new().lay_out();
    let last = "          scope: openid read\n";
    door.edit("doorward.yaml", last, &format!("{last}{}\n", &SHOP[1..]));
    door.start().await;
    door
}

/// Every record of the log, once `enough` of them are there.
async fn records(door: &Door, query: &str, enough: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let path = format!("/audit/export?{query}");
    eventually("the records", || async {
        let text = door.admin_get(&path).await.expect(200).body;
        let records: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("a record a line"))
            .collect();
        enough(&records).then_some(records)
    })
    .await
}

/// Every record of the log, once each of these events is told with its outcome.
async fn told(door: &Door, expected: &[(&str, &str)]) -> Vec<Value> {
    records(door, "", |records| {
        let is_told = |(event, outcome)| records.iter().any(|record| is(record, event, outcome));
        let missing = expected.iter().filter(|wanted| !is_told(**wanted));
        let missing: Vec<_> = missing.collect();
        if !missing.is_empty() {
            eprintln!("not told yet: {missing:?}");
        }
        missing.is_empty()
    })
    .await
}

fn is(record: &Value, event: &str, outcome: &str) -> bool {
    record["event"] == event && record["outcome"] == outcome
}

/// What a flow was done with that nobody may read in the log.
#[derive(Default)]
struct Secrets(BTreeSet<String>);

impl Secrets {
    fn add(&mut self, secret: &Value) -> String {
        let secret = secret.as_str().expect("a text").to_owned();
        self.0.insert(secret.clone());
        secret
    }

    /// Also the parts of tokens.
    fn assert_absent(&self, text: &str) {
        for secret in &self.0 {
            assert!(
                !text.contains(secret.as_str()),
                "{secret} is in the audit log"
            );
            for part in secret.split('.').filter(|part| part.len() > 30) {
                assert!(!text.contains(part), "{part} is in the audit log");
            }
        }
    }
}

async fn sign_in(door: &Door, name: &str, password: &str) -> http_answer::Json {
    let request = http::client()
        .post(door.proxy_url("/json/authenticate"))
        .header("X-OpenAM-Username", name)
        .header("X-OpenAM-Password", password)
        .header("Accept-API-Version", "resource=2.0");
    let answer = http::send(request).await;
    (answer.status, answer.json())
}

mod http_answer {
    pub(super) type Json = (u16, serde_json::Value);
}

/// Agrees to a request as a script does, and gives the code.
async fn code(door: &Door, session: &str) -> String {
    let query = "client_id=shop&response_type=code&scope=openid&redirect_uri=https%3A%2F%2Fshop.example%2Fcb&state=s";
    let request = http::client()
        .post(door.proxy_url(&format!("/oauth2/authorize?{query}")))
        .header("cookie", format!("iPlanetDirectoryPro={session}"))
        .form(&[
            ("decision", "allow"),
            ("csrf", session),
            ("save_consent", "on"),
        ]);
    let answer = http::send(request).await;
    let to = answer.header("location").to_owned();
    let to = url::Url::parse(&to).unwrap_or_else(|_| panic!("{} {}", answer.status, answer.body));
    let code = to.query_pairs().find(|(name, _)| name == "code");
    code.unwrap_or_else(|| panic!("no code: {to}"))
        .1
        .into_owned()
}

async fn grants(door: &Door, secrets: &mut Secrets) {
    let orders = [("client_id", "orders"), ("client_secret", "orders-secret")];
    let ask = async |more: &[(&str, &str)]| {
        let all: Vec<_> = orders.iter().chain(more).copied().collect();
        door.token_request(&all).await
    };
    let own = ask(&[("grant_type", "client_credentials"), ("scope", "read")]).await;
    let own = secrets.add(&own.expect(200).json()["access_token"]);
    let user = ask(&[
        ("grant_type", "password"),
        ("username", "demo"),
        ("password", "Ch4ng31t-demo"),
        ("scope", "openid"),
    ]);
    let user = user.await.expect(200).json();
    let old = secrets.add(&user["refresh_token"]);
    secrets.add(&user["access_token"]);
    secrets.add(&user["id_token"]);
    let refresh = [
        ("grant_type", "refresh_token"),
        ("refresh_token", old.as_str()),
    ];
    let next = ask(&refresh).await.expect(200).json();
    secrets.add(&next["refresh_token"]);
    ask(&refresh).await.expect(400);
    let revoke = http::client().post(door.proxy_url("/oauth2/token/revoke"));
    let fields = [orders[0], orders[1], ("token", own.as_str())];
    http::send(revoke.form(&fields)).await.expect(200);
    door.get_as(&own, "a.test", "/oauth2/userinfo")
        .await
        .expect(401);
    let wrong = [
        ("grant_type", "client_credentials"),
        ("client_id", "orders"),
        ("client_secret", "guess-of-a-secret"),
    ];
    door.token_request(&wrong).await.expect(401);
    secrets.add(&"guess-of-a-secret".into());
}

async fn people(door: &Door, secrets: &mut Secrets) {
    let (status, _) = sign_in(door, "demo", "Guessed-Pass-7").await;
    assert_eq!(status, 401);
    secrets.add(&"Guessed-Pass-7".into());
    // A password in the place of a name.
    sign_in(door, "Ch4ng31t-demo", "demo").await;
    let (_, body) = sign_in(door, "demo", "Ch4ng31t-demo").await;
    let session = secrets.add(&body["tokenId"]);
    let code = code(door, &session).await;
    secrets.0.insert(code.clone());
    let fields = [
        ("grant_type", "authorization_code"),
        ("client_id", "shop"),
        ("client_secret", "shop-secret"),
        ("redirect_uri", "https://shop.example/cb"),
        ("code", code.as_str()),
    ];
    let tokens = door.token_request(&fields).await.expect(200).json();
    secrets.add(&tokens["refresh_token"]);
    door.token_request(&fields).await.expect(400);
    let logout = http::client()
        .post(door.proxy_url("/json/sessions?_action=logout"))
        .header("iPlanetDirectoryPro", &session)
        .header("Accept-API-Version", "resource=3.1");
    http::send(logout).await.expect(200);
}

async fn administration(door: &Door, secrets: &mut Secrets) {
    let client = json!({"client_id": "made", "client_secret": "secret-of-made",
        "grant_types": ["client_credentials"], "scope": "a"});
    door.admin_post("/identity/clients", &client)
        .await
        .expect(201);
    secrets.add(&"secret-of-made".into());
    door.admin_post("/identity/clients", &client)
        .await
        .expect(409);
    let patch = json!({"client_name": "Made"});
    let patched = door.admin_json(Method::PATCH, "/identity/clients/made", &patch);
    patched.await.expect(200);
    let path = "/identity/clients/made/secret";
    let rotated = door.admin_post(path, &json!({})).await.expect(200).json();
    secrets.add(&rotated["client_secret"]);
    door.admin_delete("/identity/clients/made")
        .await
        .expect(204);
    let realm = json!({"path": "/staff"});
    door.admin_post("/identity/realms", &realm)
        .await
        .expect(201);
    door.admin_delete("/identity/realms/staff")
        .await
        .expect(204);
    let token = door
        .admin_post("/identity/initial-tokens", &json!({}))
        .await;
    let token = token.expect(201).json();
    secrets.add(&token["initial_access_token"]);
    let path = format!(
        "/identity/initial-tokens/{}",
        token["id"].as_str().expect("an id")
    );
    door.admin_delete(&path).await.expect(204);
    door.admin_post("/identity/keys/rotate", &json!({"alg": "ES256"}))
        .await
        .expect(201);
    let service = json!({"name": "told", "host": "127.0.0.1"});
    door.admin_post("/services", &service).await.expect(201);
    door.admin_post("/services", &service).await.expect(409);
    let patch = json!({"retries": 2});
    door.admin_json(Method::PATCH, "/services/told", &patch)
        .await
        .expect(200);
    door.admin_delete("/services/told").await.expect(204);
    door.admin_delete("/services/told").await.expect(204);
    for (words, input) in [
        ("users add bob --password-stdin", "Bobs-Pass-word-1\n"),
        (
            "users set-password bob --password-stdin",
            "Bobs-Pass-word-2\n",
        ),
        ("users delete bob", ""),
    ] {
        cli(door, words, input);
    }
    secrets.add(&"Bobs-Pass-word-1".into());
    secrets.add(&"Bobs-Pass-word-2".into());
}

fn cli(door: &Door, words: &str, input: &str) -> String {
    use std::io::Write as _;
    use std::process::Stdio;
    let words: Vec<&str> = words
        .split_whitespace()
        .chain(["-c", "doorward.yaml"])
        .collect();
    let mut child = door
        .command(&words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(input.as_bytes()).expect("written");
    drop(stdin);
    let output = child.wait_with_output().expect("the program ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{words:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

#[tokio::test]
async fn everything_that_happens_is_told_and_no_secret_of_it() {
    let door = door().await;
    let mut secrets = Secrets::default();
    for secret in ["Ch4ng31t-demo", "orders-secret", "shop-secret"] {
        secrets.add(&secret.into());
    }
    grants(&door, &mut secrets).await;
    people(&door, &mut secrets).await;
    administration(&door, &mut secrets).await;
    door.signal("HUP");
    let expected = [
        ("process.start", "success"),
        ("config.reload", "success"),
        ("token.issue", "success"),
        ("token.issue", "failure"),
        ("token.revoke", "success"),
        ("token.refuse", "failure"),
        ("grant.revoke", "success"),
        ("session.begin", "success"),
        ("session.begin", "failure"),
        ("session.end", "success"),
        ("code.issue", "success"),
        ("consent.give", "success"),
        ("user.create", "success"),
        ("password.change", "success"),
        ("user.delete", "success"),
        ("client.create", "success"),
        ("client.create", "failure"),
        ("client.update", "success"),
        ("client.secret", "success"),
        ("client.delete", "success"),
        ("realm.create", "success"),
        ("realm.delete", "success"),
        ("initial_token.create", "success"),
        ("initial_token.delete", "success"),
        ("key.rotate", "success"),
        ("entity.create", "success"),
        ("entity.create", "failure"),
        ("entity.update", "success"),
        ("entity.delete", "success"),
    ];
    let all = told(&door, &expected).await;
    let text = door.admin_get("/audit/export").await.expect(200).body;
    secrets.assert_absent(&text);
    assert!(!text.contains("argon2"), "a hash is in the audit log");
    assert_details(&all);
}

fn assert_details(all: &[Value]) {
    let find = |event: &str, outcome: &str| {
        let found = all.iter().find(|record| is(record, event, outcome));
        found.unwrap_or_else(|| panic!("{event} {outcome}"))
    };
    let refused = find("session.begin", "failure");
    assert_eq!(refused["user"]["name"], "demo");
    assert_eq!(refused["reason"], "credentials");
    assert_eq!(refused["address"], "127.0.0.1");
    let begun = find("session.begin", "success");
    assert_eq!(begun["actor"]["type"], "user");
    assert_eq!(begun["actor"]["id"], begun["user"]["id"]);
    assert!(begun["request_id"].is_string(), "{begun}");
    let own = all
        .iter()
        .find(|one| one["details"]["grant_type"] == "client_credentials");
    let own = own.expect("a token of a client");
    assert_eq!(own["actor"], json!({"type": "client", "id": "orders"}));
    assert!(own["tracking_id"].is_string(), "{own}");
    let causes: BTreeSet<_> = all
        .iter()
        .filter(|one| one["event"] == "grant.revoke")
        .map(|one| one["details"]["cause"].as_str().unwrap_or_default())
        .collect();
    assert!(causes.contains("refresh_token_reuse"), "{causes:?}");
    assert!(causes.contains("code_reuse"), "{causes:?}");
    let updated = find("entity.update", "success");
    assert_eq!(updated["details"]["members"], json!(["retries"]));
    assert_eq!(updated["details"]["name"], "told");
    let deleted = all.iter().filter(|one| one["event"] == "entity.delete");
    assert_eq!(deleted.count(), 1, "what was not there was not deleted");
    let changed = find("client.update", "success");
    assert_eq!(changed["client"], "made");
    assert_eq!(changed["actor"]["type"], "admin");
    assert_eq!(changed["details"]["members"], json!(["client_name"]));
    let added = find("user.create", "success");
    assert_eq!(added["actor"]["type"], "cli");
    assert_eq!(added["user"]["name"], "bob");
}

#[tokio::test]
async fn records_are_asked_for_by_what_they_say() {
    let door = door().await;
    for n in 0..5 {
        let client = json!({"client_id": format!("c{n}"), "client_secret": "a-long-enough-secret"});
        door.admin_post("/identity/clients", &client)
            .await
            .expect(201);
    }
    sign_in(&door, "demo", "wrong").await;
    let refused = |records: &[Value]| {
        records
            .iter()
            .any(|one| is(one, "session.begin", "failure"))
    };
    records(&door, "", refused).await;
    let get = async |query: &str| door.admin_get(&format!("/audit?{query}")).await;
    let count = async |query: &str| {
        let body = get(query).await.expect(200).json();
        body["data"].as_array().expect("records").len()
    };
    assert_eq!(count("client=c3").await, 1);
    assert_eq!(count("kind=client.create").await, 5);
    assert_eq!(count("kind=client.*,session.begin&since=1h").await, 6);
    assert_eq!(count("user=DEMO&outcome=failure").await, 1);
    assert_eq!(
        count("address=127.0.0.1&kind=client.create&realm=/").await,
        5
    );
    assert_eq!(count("realm=/other").await, 0);
    assert_eq!(count("until=2020-01-01").await, 0);
    let mut path = "/audit?kind=client.create&size=2".to_owned();
    let mut seen = Vec::new();
    loop {
        let page = door.admin_get(&path).await.expect(200).json();
        let data = page["data"].as_array().expect("records").clone();
        seen.extend(
            data.iter()
                .map(|one| one["client"].as_str().expect("a client").to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => next.clone_into(&mut path),
            None => break,
        }
    }
    assert_eq!(seen, ["c4", "c3", "c2", "c1", "c0"]);
    for (query, option) in [
        ("kind=nothing", "kind"),
        ("since=yesterday", "since"),
        ("colour=red", "colour"),
        ("outcome=maybe", "outcome"),
    ] {
        let body = get(query).await.expect(400).json();
        assert!(body["options"][option].is_string(), "{body}");
    }
    get("size=0").await.expect(400);
    get("offset=x").await.expect(400);
    let stream = http::client().get(door.admin_url("/audit?kind=client.create"));
    let stream = http::send(stream.header("accept", "application/x-ndjson"))
        .await
        .expect(200);
    assert_eq!(stream.header("content-type"), "application/x-ndjson");
    assert_eq!(stream.body.lines().count(), 5);
    let listed = cli(&door, "audit list --kind client.create --json", "");
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed.as_array().map(Vec::len), Some(5));
    let exported = cli(&door, "audit export --client c1", "");
    assert_eq!(exported.lines().count(), 1);
}

#[tokio::test]
async fn what_was_noted_is_written_when_the_process_stops_in_order() {
    let mut door = Setup::new().lay_out();
    let file = "audit: {file: \"@DIR@/audit.jsonl\"}\ntelemetry:";
    door.edit("doorward.yaml", "telemetry:", &door.fill(file));
    door.start().await;
    door.client_token("read").await;
    door.signal("TERM");
    assert!(door.wait_exit().await.success());
    let text = std::fs::read_to_string(door.path("audit.jsonl")).expect("the file");
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a record a line"))
        .collect();
    for wanted in ["process.start", "token.issue", "process.stop"] {
        assert!(
            events.iter().any(|one| one["event"] == wanted),
            "{wanted} is not in {text}"
        );
    }
    let stored = cli(&door, "audit export", "");
    assert_eq!(stored.lines().count(), events.len());
}

#[tokio::test]
async fn a_store_is_exported_imported_and_checked() {
    let mut door = door().await;
    let (_, body) = sign_in(&door, "demo", "Ch4ng31t-demo").await;
    let session = body["tokenId"].as_str().expect("a session").to_owned();
    code(&door, &session).await;
    cli(
        &door,
        "users add carol --email carol@example.com --password-stdin",
        "Carols-Pass-1\n",
    );
    let service = json!({"name": "kept", "host": "127.0.0.1"});
    door.admin_post("/services", &service).await.expect(201);
    // Beside the running server.
    cli(&door, "store export backup.jsonl", "");
    cli(&door, "store check", "");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(door.path("backup.jsonl"))
            .expect("the file")
            .permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    let again = door.run(&["store", "import", "backup.jsonl", "-c", "doorward.yaml"]);
    assert!(!again.status.success());
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(said.contains("the store is not empty"), "{said}");
    // A server would go on with what it holds in memory.
    let forced = [
        "store",
        "import",
        "backup.jsonl",
        "--force",
        "-c",
        "doorward.yaml",
    ];
    let beside = door.run(&forced);
    assert!(!beside.status.success());
    let said = String::from_utf8_lossy(&beside.stderr).into_owned();
    let server = format!("another server has it, process {}", door.pid());
    assert!(said.contains("where no server works on it"), "{said}");
    assert!(said.contains(&server), "{said}");
    door.admin_get("/services/kept").await.expect(200);
    door.signal("TERM");
    door.wait_exit().await;
    cli(&door, "store import backup.jsonl --force", "");
    door.edit("doorward.yaml", "data/doorward.db", "data/other.db");
    cli(&door, "store import backup.jsonl", "");
    cli(&door, "store check", "");
    door.start().await;
    door.admin_get("/services/kept").await.expect(200);
    let active = http::client()
        .post(door.proxy_url("/json/sessions?_action=validate"))
        .header("iPlanetDirectoryPro", &session)
        .header("Accept-API-Version", "resource=2.1")
        .json(&json!({"tokenId": session}));
    let active = http::send(active).await.expect(200).json();
    assert_eq!(active["valid"], true, "{active}");
    let (status, _) = sign_in(&door, "carol", "Carols-Pass-1").await;
    assert_eq!(status, 200);
    let told = cli(&door, "audit export --kind store.export,store.import", "");
    assert_eq!(told.lines().count(), 1, "that of the import: {told}");
}

#[ignore = "needs PostgreSQL"]
#[tokio::test(flavor = "multi_thread")]
async fn a_store_goes_to_postgresql_and_back() {
    let door = door().await;
    let (_, body) = sign_in(&door, "demo", "Ch4ng31t-demo").await;
    code(&door, body["tokenId"].as_str().expect("a session")).await;
    cli(&door, "tokens add", "");
    let url = crate::stores::postgres::Cluster::shared().database("carried");
    let rows = |name: &str| {
        let text = std::fs::read_to_string(door.path(name)).expect("the export");
        let lines = text.lines().map(str::to_owned);
        lines
            .filter(|line| !line.starts_with("{\"doorward\""))
            .collect::<Vec<_>>()
    };
    cli(&door, "store export a.jsonl --no-audit", "");
    cli(&door, &format!("store import a.jsonl --store {url}"), "");
    cli(&door, &format!("store check --store {url}"), "");
    cli(
        &door,
        &format!("store export b.jsonl --no-audit --store {url}"),
        "",
    );
    cli(
        &door,
        "store import b.jsonl --store sqlite:data/back.db",
        "",
    );
    cli(
        &door,
        "store export c.jsonl --no-audit --store sqlite:data/back.db",
        "",
    );
    cli(&door, "store check --store sqlite:data/back.db", "");
    let last = |name: &str| rows(name).len() - 1;
    let (a, b, c) = (rows("a.jsonl"), rows("b.jsonl"), rows("c.jsonl"));
    // The last line has the digest of all, with the time in the first.
    assert_eq!(a[..last("a.jsonl")], b[..last("b.jsonl")]);
    assert_eq!(a[..last("a.jsonl")], c[..last("c.jsonl")]);
    // Rows that the database numbers go on behind those that came.
    cli(
        &door,
        &format!("users add later --no-password --store {url}"),
        "",
    );
}

#[tokio::test]
async fn a_deletion_of_what_is_not_there_leaves_one_record_that_it_failed() {
    let door = door().await;
    let users = door.admin_get("/identity/users?name=demo").await;
    let user = users.expect(200).json()["data"][0]["id"].clone();
    let user = user.as_str().expect("an id");
    let link = format!("/identity/users/{user}/identities/{}", uuid::Uuid::nil());
    for (path, kind) in [
        ("/identity/clients/ghost", "client.delete"),
        ("/identity/retired-names?name=ghost", "name.release"),
        (&*link, "link.delete"),
    ] {
        door.admin_delete(path).await.expect(404);
        let there = |records: &[Value]| !records.is_empty();
        let records = records(&door, &format!("kind={kind}"), there).await;
        let outcomes: Vec<_> = records.iter().map(|one| &one["outcome"]).collect();
        assert_eq!(outcomes, ["failure"], "{kind}");
    }
}
