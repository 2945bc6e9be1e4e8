//! What files say, and in which order they are asked.

use super::*;

#[tokio::test]
async fn names_decide_the_order_and_the_first_match_wins() {
    let door = door(&[
        ("z.json", &answering("a", "/both", 201)),
        ("a.json", &answering("b", "/", 202)),
        // The file's name where there is no other: upper case comes first.
        ("B.yaml", "condition: \"${request.uri.path == '/upper'}\"\nhandler: {type: StaticResponseHandler, config: {status: 203}}\n"),
    ])
    .await;
    get(&door, "/both").await.expect(201);
    get(&door, "/one").await.expect(202);
    get(&door, "/upper").await.expect(203);
    let listed = door.admin_get("/route-files").await.expect(200).json();
    let names: Vec<_> = listed["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|file| file["name"].clone())
        .collect();
    assert_eq!(names, ["B", "a", "b"]);
    assert_eq!(state(&door, "a").await["order"], 2);
    // By name, where no id is meant.
    assert!(
        state(&door, "b").await["file"]
            .as_str()
            .is_some_and(|file| file.ends_with("a.json"))
    );
    door.admin_get("/route-files/none").await.expect(404);
}

#[tokio::test]
async fn entity_routes_come_first() {
    let upstream = upstream().await;
    let service = format!(
        "- {{name: api, url: '{}', routes: [{{hosts: [files.test], paths: [/api]}}]}}\n",
        upstream.url("")
    );
    let everything = answering("all", "/", 299);
    let door = door_with(
        Setup::new().services(&service),
        &[("all.json", &everything)],
    )
    .await;
    get(&door, "/api").await.expect(200);
    get(&door, "/other").await.expect(299);
    get(&door, "/openig/api").await.expect(404);
}

#[tokio::test]
async fn a_name_is_given_once_and_the_refusal_names_the_first_file() {
    let door = door(&[
        ("a.json", &answering("same", "/a", 201)),
        ("b.json", &answering("same", "/b", 202)),
        ("c.json", &answering("c", "/c", 203)),
        (
            "c.yaml",
            "name: other\nhandler: {type: StaticResponseHandler, config: {status: 204}}\n",
        ),
    ])
    .await;
    get(&door, "/a").await.expect(201);
    get(&door, "/b").await.expect(404);
    get(&door, "/c").await.expect(203);
    door.wait_log("the name that is taken", |line| {
        line.contains("b.json:1: name: 'same'") && line.contains("a.json")
    })
    .await;
    door.wait_log("the id that is taken", |line| {
        line.contains("'c' is the id of")
    })
    .await;
    std::fs::remove_file(door.path("routes/a.json")).expect("removed");
    until(&door, "/b", 202).await;
}

#[tokio::test]
async fn tokens_come_from_properties_and_environment_and_secrets_stay_secret() {
    let text = r#"{
  // A comment, as people write them.
  "properties": {"paths": {"mine": "/&{tenant}/mine"}, "tenant": "&{tenant|nobody}"},
  "condition": "${request.uri.path == paths.mine}",
  "handler": {"type": "StaticResponseHandler", "config": {
    "status": {"$int": "&{status|201}"},
    "headers": {"X-Tenant": ["&{tenant}"], "X-Literal": ["\\&{tenant}"], "X-Expression": ["${tenant}"]}}}
}"#;
    let secret = r#"{"handler": {"type": "Chain", "config": {"handler": "ClientHandler", "filters": [
  {"type": "ThrottlingFilter", "config": {"rate": {"numberOfRequests": 1,
    "duration": "&{the.secret}"}}}]}}}"#;
    let setup = Setup::new()
        .env("TENANT", "acme")
        .env("THE_SECRET", "hunter2-is-no-duration");
    let door = door_with(setup, &[("a.json", text), ("s.json", secret)]).await;
    let answer = get(&door, "/acme/mine").await.expect(201);
    assert_eq!(answer.header("x-tenant"), "acme");
    assert_eq!(answer.header("x-literal"), "&{tenant}");
    assert_eq!(answer.header("x-expression"), "acme");
    let refused = state(&door, "s").await;
    assert_eq!(refused["state"], "refused");
    let error = refused["errors"][0].as_str().expect("an error");
    assert!(
        error.contains("s.json:3: ") && error.contains("rate.duration"),
        "{error}"
    );
    let status = door.admin_get("/status").await.expect(200).body;
    for text in [door.log_text(), refused.to_string(), status] {
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[tokio::test]
async fn a_yaml_file_says_what_its_json_twin_says() {
    let upstream = upstream().await;
    let json = r#"{"name": "j", "condition": "${find(request.uri.path, '^/twin')}", "baseURI": "@",
      "heap": [{"name": "closed", "type": "StaticResponseHandler", "config": {"status": 403, "entity": "no\n"}}],
      "handler": {"type": "Chain", "config": {"filters": [{"type": "ConditionEnforcementFilter",
        "config": {"condition": "${request.method == 'GET'}", "failureHandler": "closed"}}],
        "handler": "ReverseProxyHandler"}}}"#;
    let yaml = "
name: j
condition: ${find(request.uri.path, '^/twin')}
baseURI: '@'
heap:
- {name: closed, type: StaticResponseHandler, config: {status: 403, entity: \"no\\n\"}}
handler:
  type: Chain
  config:
    filters:
    - type: ConditionEnforcementFilter
      config: {condition: \"${request.method == 'GET'}\", failureHandler: closed}
    handler: ReverseProxyHandler
";
    for (file, text) in [("j.json", json), ("y.yaml", yaml), ("m.yml", yaml)] {
        let door = door(&[(file, &text.replace('@', &upstream.url("")))]).await;
        get(&door, "/twin").await.expect(200);
        let post = http::client()
            .post(door.proxy_url("/twin"))
            .header("host", "files.test");
        assert_eq!(http::send(post).await.expect(403).body, "no\n");
    }
}

#[tokio::test]
async fn a_thousand_files_are_read_and_one_changes() {
    let door = laid_out(Setup::new(), &[]);
    for i in 0..1000 {
        put(
            &door,
            &format!("r{i}.json"),
            &answering(&format!("r{i}"), &format!("/r{i}/"), 200 + i % 90),
        );
    }
    let mut door = door;
    door.start().await;
    get(&door, "/r0/").await.expect(200);
    get(&door, "/r999/").await.expect(209);
    put(&door, "r7.json", &answering("r7", "/r7/", 299));
    until(&door, "/r7/", 299).await;
    let counts =
        &door.admin_get("/status").await.expect(200).json()["configuration"]["route_files"];
    assert_eq!(
        *counts,
        serde_json::json!({"loaded": 1000, "stale": 0, "refused": 0})
    );
}

#[test]
fn the_examples_of_conf_are_right() {
    let door = laid_out(Setup::new(), &[]);
    let conf = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("conf");
    let mut examples = 0;
    for entry in std::fs::read_dir(conf.join("routes.d")).expect("a directory") {
        let path = entry.expect("an entry").path();
        let Some(name) = path
            .file_name()
            .and_then(|name| name.to_str()?.strip_suffix(".example"))
        else {
            continue;
        };
        put(
            &door,
            name,
            &std::fs::read_to_string(&path).expect("an example"),
        );
        examples += 1;
    }
    assert!(examples >= 2);
    let check = door.run(&["check", "-c", "doorward.yaml"]);
    let said = String::from_utf8_lossy(&check.stdout) + String::from_utf8_lossy(&check.stderr);
    assert!(check.status.success(), "{said}");
    assert!(!said.contains("WARN"), "{said}");
}
