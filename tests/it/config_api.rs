//! `/config` and `doorward config`: all entities as one document.

use serde_json::{Value, json};

use crate::support::{Answer, Door, Reply, Setup, Upstream, http};

async fn door() -> (Door, Upstream) {
    let upstream = Upstream::start(|_| Reply::Json(200, json!({}))).await;
    let own = format!(
        "- {{name: own, url: '{}', routes: [{{name: own, hosts: [own.test]}}]}}\n",
        upstream.url("")
    );
    let door = Setup::new().services(&own).start().await;
    door.expose("made", &upstream.url(""), "made.test").await;
    let pool = json!({"name": "pool", "tags": ["a"]});
    door.admin_post("/upstreams", &pool).await.expect(201);
    let target = json!({"target": "127.0.0.1:9", "weight": 3});
    let targets = door.admin_post("/upstreams/pool/targets", &target).await;
    targets.expect(201);
    (door, upstream)
}

async fn post(door: &Door, query: &str, yaml: &str) -> Answer {
    let request = http::client()
        .post(door.admin_url(&format!("/config{query}")))
        .header("content-type", "application/yaml")
        .body(yaml.to_owned());
    http::send(request).await
}

async fn exported(door: &Door) -> String {
    let answer = door.admin_get("/config").await.expect(200).json();
    answer["config"].as_str().expect("a text").to_owned()
}

#[tokio::test]
async fn what_is_exported_and_imported_changes_nothing() {
    let (door, _upstream) = door().await;
    let before = exported(&door).await;
    let dry = post(&door, "?check=1", &before).await.expect(200).json();
    for kind in ["created", "updated", "deleted"] {
        assert_eq!(dry[kind], json!([]), "{dry}");
    }
    let answer = post(&door, "", &before).await.expect(201).json();
    assert_eq!(answer["upstreams"].as_object().map(|o| o.len()), Some(1));
    post(&door, "?check_hash=1", &before).await.expect(304);
    assert_eq!(exported(&door).await, before);
    let wrapped = json!({"config": before});
    door.admin_post("/config", &wrapped).await.expect(201);
    door.admin_form("/config", &[("config", &before)])
        .await
        .expect(201);
    assert_eq!(exported(&door).await, before);
    door.get("own.test", "/").await.expect(200);
    door.get("made.test", "/").await.expect(200);
}

#[tokio::test]
async fn a_document_takes_the_place_of_what_is_stored() {
    let (mut door, upstream) = door().await;
    let text = format!(
        "_format_version: \"3.0\"\nservices:\n- name: made\n  url: {}\n  routes:\n  \
         - {{name: other, hosts: [other.test]}}\n",
        upstream.url("")
    );
    let service = door.admin_get("/services/made").await.expect(200).json();
    let dry = post(&door, "?check=1", &text).await.expect(200).json();
    assert_eq!(dry["created"].as_array().map(Vec::len), Some(1), "{dry}");
    assert_eq!(dry["deleted"].as_array().map(Vec::len), Some(3), "{dry}");
    door.get("other.test", "/").await.expect(404);
    post(&door, "", &text).await.expect(201);
    door.get("other.test", "/").await.expect(200);
    door.get("made.test", "/").await.expect(404);
    door.get("own.test", "/").await.expect(200);
    door.admin_get("/upstreams/pool").await.expect(404);
    let after = door.admin_get("/services/made").await.expect(200).json();
    assert_eq!(after, service, "a service that was not changed is the same");
    door.kill();
    door.start().await;
    door.get("other.test", "/").await.expect(200);
    door.get("made.test", "/").await.expect(404);
}

#[tokio::test]
async fn a_wrong_document_changes_nothing_and_says_what_is_wrong() {
    let (door, _upstream) = door().await;
    let before = exported(&door).await;
    let text = "_format_version: \"3.0\"\nservices:\n- {name: good, host: h}\n\
                - {name: bad, port: 99999999, routes: [{paths: [x]}]}\npartials: [{name: v}]\n";
    let answer = post(&door, "?flatten_errors=1", text)
        .await
        .expect(400)
        .json();
    assert_eq!(answer["code"], 14);
    assert_eq!(answer["name"], "invalid declarative configuration");
    let message = answer["message"].as_str().expect("a text");
    assert!(
        message.starts_with("declarative config is invalid: "),
        "{message}"
    );
    assert_eq!(answer["fields"]["services"][0], Value::Null);
    assert_eq!(
        answer["fields"]["services"][1]["host"],
        "required field missing"
    );
    let flattened = answer["flattened_errors"].as_array().expect("a list");
    assert_eq!(flattened.len(), 2, "{answer}");
    assert_eq!(flattened[0]["entity_name"], "bad");
    assert_eq!(exported(&door).await, before);
    for text in ["", "[1]", "a: [", "services: []"] {
        let status = post(&door, "", text).await.status;
        assert_eq!(status, 400, "{text:?}");
    }
    // What a file owns can be repeated, not changed.
    let text = "_format_version: \"3.0\"\nservices: [{name: own, host: elsewhere}]\n";
    let refused = post(&door, "", text).await.expect(409);
    assert!(refused.body.contains("routes.yaml"), "{}", refused.body);
    let token = "_format_version: \"3.0\"\nservices: [{name: a, host: '&{home}'}]\n";
    post(&door, "", token).await.expect(400);
    assert_eq!(exported(&door).await, before);
}

#[tokio::test]
async fn flattened_errors_name_plugins_and_what_they_are_nested_in() {
    let (door, _upstream) = door().await;
    let id = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    let text = format!(
        "_format_version: \"3.0\"\nservices:\n- id: {id}\n  name: s\n  host: h\n  retries: x\n  \
         plugins:\n  - {{name: throttling, tags: [t], config: {{rate: 5}}}}\n  \
         routes:\n  - {{name: r, paths: [x]}}\n"
    );
    let answer = post(&door, "?flatten_errors=1", &text).await;
    let answer = answer.expect(400).json();
    let flattened = answer["flattened_errors"].as_array().expect("a list");
    let of = |kind: &str| {
        let mut all = flattened.iter();
        all.find(|error| error["entity_type"] == kind)
            .unwrap_or_else(|| panic!("no {kind} in {answer}"))
    };
    let (service, plugin, route) = (of("service"), of("plugin"), of("route"));
    assert_eq!(
        service["entity"],
        json!({"id": id, "name": "s", "host": "h", "retries": "x"})
    );
    assert_eq!(plugin["entity_name"], "throttling");
    assert_eq!(plugin["entity_tags"], json!(["t"]));
    assert_eq!(plugin["entity"]["service"], json!({"id": id}));
    assert_eq!(plugin["errors"][0]["field"], "config.rate");
    assert_eq!(route["entity_name"], "r");
    assert_eq!(route["entity"]["service"], json!({"id": id}));
}

#[tokio::test]
async fn the_command_line_exports_and_imports_with_and_without_an_instance() {
    use std::os::unix::fs::PermissionsExt;
    let (mut door, _upstream) = door().await;
    let before = exported(&door).await;
    let run = |door: &Door, arguments: &[&str]| {
        let mut all = vec!["config"];
        all.extend(arguments);
        all.extend(["-c", "doorward.yaml"]);
        let output = door.run(&all);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(run(&door, &["export"]), before);
    run(&door, &["export", "-o", "out.yaml"]);
    let mode = std::fs::metadata(door.path("out.yaml"))
        .expect("a file")
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    assert!(run(&door, &["import", "out.yaml"]).contains("nothing to change"));
    door.kill();
    let offline = run(&door, &["export"]);
    // Times of what files declare are those of the start.
    let without_times = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.contains("ated_at:"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(without_times(&offline), without_times(&before));
    let told = run(&door, &["import", "out.yaml", "--check"]);
    assert!(told.contains("deleted: 0"), "{told}");
}

/// A file of the imitated gateway with a plugin that nobody runs here.
const FOREIGN: &str = "_format_version: \"3.0\"
services:
- name: foreign
  url: http://127.0.0.1:9
  plugins:
  - name: pre-function
    config: {access: [\"return 1\"]}
  - name: cors
";

#[tokio::test]
async fn a_file_with_foreign_plugins_is_imported_without_them_and_says_so() {
    let (mut door, _upstream) = door().await;
    door.write("foreign.yaml", FOREIGN);
    let run = |door: &Door, more: &[&str]| {
        let arguments = ["config", "import", "foreign.yaml", "-c", "doorward.yaml"];
        let output = door.run(&[&arguments, more].concat());
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), told)
    };
    for running in [true, false] {
        if !running {
            door.kill();
        }
        let (code, told) = run(&door, &[]);
        assert_eq!(code, Some(1), "{told}");
        assert!(
            told.contains("--skip-unsupported imports the rest"),
            "{told}"
        );
        assert!(told.contains("not run: it runs code of"), "{told}");
        let (code, told) = run(&door, &["--skip-unsupported"]);
        assert_eq!(code, Some(0), "{told}");
        let line = "left out: foreign.yaml:6: services[0].plugins[0].name: 'pre-function' is a \
                    plugin that Doorward does not run";
        assert!(told.contains(line), "{told}");
    }
    door.start().await;
    let plugins = door.admin_get("/services/foreign/plugins").await;
    let plugins = plugins.expect(200).json();
    assert_eq!(
        plugins["data"].as_array().map(Vec::len),
        Some(1),
        "{plugins}"
    );
    assert_eq!(plugins["data"][0]["name"], "cors");
}

#[tokio::test]
async fn check_names_a_foreign_plugin_with_file_and_line() {
    let door = Setup::new().lay_out();
    door.write("foreign.yaml", FOREIGN);
    door.write("main.yaml", "entities: [foreign.yaml]\n");
    let output = door.run(&["check", "-c", "main.yaml"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    let line = "foreign.yaml:6: services[0].plugins[0].name: 'pre-function' is a plugin that \
                Doorward does not run: it runs code of the configuration";
    assert!(told.contains(line), "{told}");
}
