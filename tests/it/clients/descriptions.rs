//! Schemathesis sends what the descriptions in OpenAPI admit, and what they do not,
//! to the running program, and finds no answer that they do not name.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{finish, root};
use crate::support::{Door, Setup, http};

/// What every answer is held to.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_schema_conformance,response_headers_conformance";

/// Records that the parameters of paths name, so that requests come beyond a 404.
const PARAMETERS: &str = "[parameters]
\"path.services\" = \"web\"
\"path.routes\" = \"web\"
\"path.consumers\" = \"ann\"
\"path.upstreams\" = \"pool\"
\"path.targets\" = \"127.0.0.1:9\"
\"path.key_sets\" = \"set\"
\"path.vaults\" = \"env\"
\"path.entity\" = \"services\"
\"path.name\" = \"cors\"
\"path.tags\" = \"tag\"
\"path.path\" = \"staff\"
";

/// The provider, with what the descriptions speak of switched on.
const IDENTITY: &str = "
  base_url: http://@PROXY@
  hashing: {memory_kib: 64, passes: 1}
  realms:
    /:
      settings: {registration: {mode: open}, users_scope: 'scim:read', groups_scope: 'scim:read'}
      users: [{userName: demo, password: Ch4ng31t-demo}]
      clients:
        - client_id: orders
          client_secret: orders-secret
          grant_types: [client_credentials, password, refresh_token]
          scope: openid profile scim:read scim:write
";

/// A door with records, and what Schemathesis is told of it.
async fn door() -> Door {
    let door = Setup::new().identity(IDENTITY).start().await;
    let web = json!({"name": "web", "url": "http://127.0.0.1:9", "tags": ["tag"]});
    for (path, body) in [
        ("/services", web),
        (
            "/services/web/routes",
            json!({"name": "web", "hosts": ["web.test"]}),
        ),
        ("/consumers", json!({"username": "ann"})),
        ("/upstreams", json!({"name": "pool"})),
        ("/upstreams/pool/targets", json!({"target": "127.0.0.1:9"})),
        ("/key-sets", json!({"name": "set"})),
        ("/vaults", json!({"name": "env", "prefix": "my-env"})),
        ("/identity/realms", json!({"path": "/staff"})),
    ] {
        door.admin_post(path, &body).await.expect(201);
    }
    door.write("schemathesis.toml", PARAMETERS);
    door
}

/// Runs Schemathesis; whether it found nothing, and what it printed.
async fn run(door: &Door, description: &Value, url: &str, arguments: &[&str]) -> (bool, String) {
    door.write("description.json", &description.to_string());
    let mut command = Command::new(root().join("target/clients/venv/bin/schemathesis"));
    command
        .current_dir(door.dir())
        .args(["--config-file", "schemathesis.toml"])
        .args(["run", "description.json", "--url", url])
        .args(["--checks", CHECKS, "--generation-deterministic"])
        // Two threads trip over Python's own parser now and then.
        .args(["--workers", "1"])
        .args(["--continue-on-failure", "--no-shrink", "--no-color"])
        .args(["--suppress-health-check", "all", "--warnings", "off"])
        .args(arguments)
        .env("NO_PROXY", "127.0.0.1")
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

async fn admin(door: &Door) -> Value {
    door.admin_get("/openapi.json").await.expect(200).json()
}

#[tokio::test]
#[ignore = "needs python and its packages, which `make test` installs"]
async fn the_admin_api_answers_within_its_description() {
    let door = door().await;
    let url = door.admin_url("");
    let only = ["--exclude-path-regex", "^/(identity|broker)/"];
    let fuzz = ["--phases", "fuzzing", "--max-examples", "2"];
    // What is deleted could not be asked for afterwards.
    let kept = ["--exclude-method", "DELETE"];
    let description = admin(&door).await;
    holds(
        &door,
        &description,
        &url,
        &[&only[..], &fuzz, &kept].concat(),
    )
    .await;
    let deleted = ["--include-method", "DELETE"];
    let once = ["--phases", "fuzzing", "--max-examples", "1"];
    let deleted = [&once[..], &deleted].concat();
    holds(&door, &description, &url, &deleted).await;
}

#[tokio::test]
#[ignore = "needs python and its packages, which `make test` installs"]
async fn provider_and_broker_are_administered_within_the_description() {
    let door = door().await;
    let only = ["--include-path-regex", "^/(identity|broker)/"];
    let fuzz = ["--phases", "fuzzing", "--max-examples", "4"];
    // What is deleted could not be asked for afterwards.
    let kept = ["--exclude-method", "DELETE"];
    let description = admin(&door).await;
    let arguments = [&only[..], &fuzz, &kept].concat();
    holds(&door, &description, &door.admin_url(""), &arguments).await;
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
    // And of somebody who proves nothing.
    let few = ["--phases", "fuzzing", "--max-examples", "1"];
    holds(&door, &description, &url, &few).await;
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
