//! Schemathesis sends what the descriptions in OpenAPI admit, and what they do not,
//! to the running program, and finds no answer that they do not name.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{finish, root};
use crate::support::{Door, Setup, http};

/// What every answer is held to.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_schema_conformance,response_headers_conformance";

/// The provider and the broker, with what the descriptions speak of switched on.
const IDENTITY: &str = "
  base_url: http://@PROXY@
  hashing: {memory_kib: 64, passes: 1}
  lockout: {failures: 3}
  mail: {smtp: {host: 127.0.0.1, port: 9, tls: none, from: \"a@example.com\"}}
  realms:
    /:
      settings:
        registration: {mode: open}
        users_scope: scim:read
        groups_scope: scim:read
        ldap: {urls: [\"ldap://127.0.0.1:9\"], user_dn: \"uid={name},dc=example\", timeout: 1}
        federation:
        - {name: other, issuer: \"http://127.0.0.1:9\", client_id: a, client_secret: a-secret-of-another}
      users: [{userName: demo, password: Ch4ng31t-demo}]
      clients:
        - client_id: orders
          client_secret: orders-secret
          grant_types: [client_credentials, password, refresh_token]
          scope: openid profile scim:read scim:write me:write
broker:
  products: [{name: weather, proxies: [weather], scopes: [openid]}]
  developers: [{email: dev@example.com}]
  applications:
  - {name: orders, developer: dev@example.com, products: [weather], consumer_key: orders, consumer_secret: orders-secret}
";

/// Services whose plugins keep something: answers, buckets, sessions, tokens.
const SERVICES: &str = "
- name: cached
  protocol: internal
  host: echo
  routes: [{name: cached, paths: [/cached]}]
  plugins: [{name: proxy-cache, config: {strategy: memory, content_type: [application/json]}}]
- name: limited
  protocol: internal
  host: echo
  routes: [{name: limited, paths: [/limited]}]
  plugins:
  - {name: throttling, config: {rate: {numberOfRequests: 1000, duration: 1 hour}}}
- name: signed
  protocol: internal
  host: echo
  routes: [{name: signed, paths: [/signed]}]
  plugins:
  - name: openid-connect
    config:
      issuer: http://@PROXY@/oauth2
      client_id: [orders]
      client_secret: [orders-secret]
      auth_methods: [password, session]
      session_storage: store
- name: weather
  protocol: internal
  host: echo
  routes: [{name: weather, paths: [/weather]}]
  plugins:
  - {name: token-broker, config: {base_path: /weather, token_endpoint: 'http://@PROXY@/oauth2/access_token'}}
";

/// A route file, of which the Admin API tells.
const HANDLER: &str = r#"{"condition": "${find(request.uri.path, '^/static')}",
    "handler": {"type": "StaticResponseHandler", "config": {"status": 200}}}"#;

/// A door whose records the requests in `tests/clients/description_*.py` are about.
async fn door() -> Door {
    let mut door = Setup::new().identity(IDENTITY).services(SERVICES).lay_out();
    let main = std::fs::read_to_string(door.path("doorward.yaml")).expect("the file");
    let entities = r#"entities: ["handler.json", "#;
    door.write("doorward.yaml", &main.replace("entities: [", entities));
    door.write("handler.json", HANDLER);
    door.start().await;
    door
}

/// Runs Schemathesis; whether it found nothing, and what it printed.
async fn run(door: &Door, description: &Value, url: &str, arguments: &[&str]) -> (bool, String) {
    let title = description["info"]["title"].as_str();
    let kind = title.and_then(|title| title.split(' ').next_back());
    door.write("description.json", &description.to_string());
    let mut command = Command::new(root().join("target/clients/venv/bin/schemathesis"));
    command
        .current_dir(door.dir())
        .args(["run", "description.json", "--url", url])
        .args(["--checks", CHECKS, "--generation-deterministic"])
        // Two threads trip over Python's own parser now and then.
        .args(["--workers", "1"])
        .args(["--continue-on-failure", "--no-shrink", "--no-color"])
        .args(["--suppress-health-check", "all", "--warnings", "off"])
        .args(arguments)
        .env("NO_PROXY", "127.0.0.1")
        .env("SCHEMATHESIS_HOOKS", "description_requests")
        .env("PYTHONPATH", root().join("tests/clients"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("DOORWARD_ADMIN", door.admin_url(""))
        .env("DOORWARD_BASE", door.proxy_url(""))
        .env("DOORWARD_DESCRIPTION", kind.expect("a title").to_lowercase())
        .env("DOORWARD_STATUSES", door.path(STATUSES))
        .stdin(Stdio::null());
    let ended = tokio::task::spawn_blocking(move || finish(command));
    let output = ended.await.expect("the program is waited for");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (output.status.success(), text)
}

/// As [`run`], where nothing may be found.
async fn holds(door: &Door, description: &Value, url: &str, arguments: &[&str]) {
    let (is_good, text) = run(door, description, url, arguments).await;
    assert!(is_good, "{text}");
    assert!(text.contains(" passed"), "{text}");
}

/// Where the statuses of all answers are written, a line each.
const STATUSES: &str = "statuses.txt";

/// Operations that succeed at nothing here, and why.
const UNREACHED: &[(&str, &str)] = &[
    ("GET /acme", "no certificates are ordered"),
    ("GET /cache/{key}", "nothing is cached of entities"),
    ("GET /sessions/{id}", "no plugin `session` uses the store"),
    ("DELETE /v1/Me", "users may not delete themselves"),
    ("GET /oauth2/authorize/login", "it needs the form of a page"),
    (
        "POST /oauth2/authorize/login",
        "it needs the form of a page",
    ),
    ("POST /oauth2/device/user", "it needs the form of a page"),
    ("GET /oauth2/federation/{id}", "the other provider is away"),
    ("GET /oauth2/federation/{id}/callback", "the other is away"),
    ("POST /oauth2/federation/{id}/callback", "the other is away"),
    ("GET /oauth2/password/reset", "a link arrives by mail"),
    ("POST /oauth2/password/reset", "a link arrives by mail"),
    ("GET /oauth2/theme/{id}", "there is no theme"),
];

/// Fails the test unless each operation of the description has had an answer of
/// success, or is listed as one that can't have any.
fn succeeded(door: &Door, description: &Value) {
    let text = std::fs::read_to_string(door.path(STATUSES)).expect("the statuses");
    let mut good = BTreeSet::new();
    for line in text.lines() {
        let (operation, status) = line.rsplit_once(' ').expect("a status");
        // A page may lead the browser on.
        if status.starts_with('2') || status == "302" || status == "303" {
            good.insert(operation);
        }
    }
    let paths = description["paths"].as_object().expect("paths");
    let operations = paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().expect("methods").keys();
        methods.map(move |method| format!("{} {path}", method.to_uppercase()))
    });
    let is_excused = |name: &str| UNREACHED.iter().any(|(excused, _)| *excused == name);
    let wrong: Vec<_> = operations
        .filter(|name| good.contains(&**name) == is_excused(name))
        .collect();
    assert_eq!(wrong, [""; 0], "no success, or one against the list");
}

async fn admin(door: &Door) -> Value {
    door.admin_get("/openapi.json").await.expect(200).json()
}

#[tokio::test]
#[ignore = "needs python and its packages, which `make test` installs"]
async fn the_admin_api_answers_within_its_description() {
    let door = door().await;
    let description = admin(&door).await;
    // Each deletes records of its own, so nothing else misses them.
    let fuzz = ["--phases", "fuzzing", "--max-examples", "3"];
    holds(&door, &description, &door.admin_url(""), &fuzz).await;
    succeeded(&door, &description);
}

#[tokio::test]
#[ignore = "needs python and its packages, which `make test` installs"]
async fn the_provider_answers_within_its_description() {
    let door = door().await;
    let answer = door.admin_get("/openapi/provider.json").await;
    let description = answer.expect(200).json();
    let url = door.proxy_url("");
    let asked = [
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
        ("grant_type", "client_credentials"),
        ("scope", "scim:read scim:write"),
    ];
    let token = door.token_request(&asked).await.expect(200).json();
    let token = token["access_token"].as_str().expect("a token");
    let bearer = format!("Authorization: Bearer {token}");
    let request = http::client().post(door.proxy_url("/json/authenticate"));
    let request = request.header("x-service-username", "demo");
    let request = request.header("x-service-password", "Ch4ng31t-demo");
    let session = http::send(request).await.expect(200).json();
    let session = session["tokenId"].as_str().expect("a session");
    let session = format!("iPlanetDirectoryPro: {session}");
    // Good requests prove by themselves who sends them.
    let few = ["--phases", "fuzzing", "--max-examples", "2"];
    holds(&door, &description, &url, &few).await;
    succeeded(&door, &description);
    let phases = ["--phases", "coverage,fuzzing", "--max-examples", "4"];
    for (paths, proof) in [
        ("^/oauth2/", ["--auth", "orders:orders-secret"]),
        ("^/v1/|info$", ["--header", &bearer]),
        ("^/json/", ["--header", &session]),
    ] {
        let only = ["--include-path-regex", paths];
        let arguments = [&only[..], &phases, &proof].concat();
        holds(&door, &description, &url, &arguments).await;
    }
}

#[tokio::test]
#[ignore = "needs python and its packages, which `make test` installs"]
async fn the_token_broker_answers_within_its_description() {
    let door = door().await;
    let answer = door.admin_get("/openapi/token-broker.json").await;
    let description = answer.expect(200).json();
    let url = door.proxy_url("/weather");
    let few = ["--phases", "fuzzing", "--max-examples", "2"];
    holds(&door, &description, &url, &few).await;
    succeeded(&door, &description);
    let proof = ["--auth", "orders:orders-secret"];
    let phases = ["--phases", "coverage,fuzzing", "--max-examples", "4"];
    holds(&door, &description, &url, &[&phases[..], &proof].concat()).await;
}

#[tokio::test]
#[ignore = "needs python and its packages, which `make test` installs"]
async fn an_answer_outside_of_a_description_is_found() {
    let door = door().await;
    let whole = admin(&door).await;
    let only = ["--include-path", "/status", "--phases", "fuzzing"];
    let few = [&only[..], &["--max-examples", "1"]].concat();
    holds(&door, &whole, &door.admin_url(""), &few).await;
    let mut other = whole;
    let answers = &mut other["paths"]["/status"]["get"]["responses"];
    let answers = answers.as_object_mut().expect("answers");
    let answer = answers.remove("200").expect("an answer");
    answers.insert("202".to_owned(), answer);
    let (is_good, text) = run(&door, &other, &door.admin_url(""), &few).await;
    assert!(!is_good && text.contains("Undocumented"), "{text}");
}
