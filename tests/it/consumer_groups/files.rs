//! Groups of consumers in files, in imports and in exports.

use serde_json::json;

use super::{door, ends, members, status, stored};
use crate::support::{Answer, Door, Setup, http};

async fn import(door: &Door, query: &str, text: &str) -> Answer {
    let request = http::client()
        .post(door.admin_url(&format!("/config{query}")))
        .header("content-type", "application/yaml")
        .body(text.to_owned());
    http::send(request).await
}

#[tokio::test]
async fn groups_are_exported_and_imported_whole() {
    let (door, _upstream) = stored().await;
    let both = json!({"consumer": ["anna", "bert"]});
    let path = "/consumer_groups/gold/consumers";
    door.admin_post(path, &both).await.expect(201);
    let plugins = "/consumer_groups/gold/plugins";
    door.admin_post(plugins, &ends(418, &json!({})))
        .await
        .expect(201);
    let export = door.admin_get("/config").await.expect(200).json();
    let export = export["config"].as_str().expect("a document").to_owned();
    let again = import(&door, "?check=1", &export).await.expect(200).json();
    for what in ["created", "updated", "deleted"] {
        assert_eq!(again[what], json!([]), "{what} of {again}");
    }
    door.admin_delete("/consumer_groups/gold").await.expect(204);
    import(&door, "", &export).await.expect(201);
    assert_eq!(members(&door, path).await, ["anna", "bert"]);
    let host = [("apikey", "annas"), ("host", "one.test")];
    assert_eq!(door.get_with("/", &host).await.status, 418);
    // Without identifiers the same records are meant.
    let text = "_format_version: '3.0'\nconsumers:\n- {username: anna, groups: [gold]}\n\
                consumer_groups:\n- name: gold\n";
    let change = import(&door, "?check=1", text).await.expect(200).json();
    assert_eq!(change["created"], json!([]), "{change}");
    import(&door, "", text).await.expect(201);
    assert_eq!(members(&door, path).await, ["anna"]);
}

#[tokio::test]
async fn records_of_files_are_changed_in_their_files() {
    let (door, _upstream) = door("").await;
    let declared = "/consumer_groups/silver/consumers?declared=true";
    assert_eq!(members(&door, declared).await, ["anna", "bert"]);
    let own = "/consumer_groups/silver/consumers";
    assert!(members(&door, own).await.is_empty());
    door.admin_delete("/consumer_groups/gold").await.expect(409);
    let member = "/consumer_groups/silver/consumers/bert";
    door.admin_get(member).await.expect(200);
    door.admin_delete(member).await.expect(409);
    door.admin_delete(own).await.expect(409);
    // A member of the store in a group of a file is the store's.
    let carl = json!({"consumer": "carl"});
    door.admin_post(own, &carl).await.expect(201);
    assert_eq!(members(&door, own).await, ["carl"]);
    door.admin_delete("/consumer_groups/silver/consumers/carl")
        .await
        .expect(204);
}

/// A file of the commercial edition: one plugin of the group is not run here.
const COMMERCIAL: &str = "_format_version: '3.0'
consumer_groups:
- name: tin
  plugins:
  - {name: rate-limiting-advanced, config: {limit: [5], window_size: [30]}}
  - {name: request-termination, config: {status_code: 418}}
consumers:
- {username: dora, keyauth_credentials: [{key: doras}], groups: [{name: tin}]}
";

#[tokio::test]
async fn an_import_without_what_is_not_run_keeps_groups_and_members() {
    let (door, _upstream) = stored().await;
    let keys = "plugins: [{name: key-auth}]\nservices:\n- name: api\n  protocol: internal\n  \
                host: echo\n  routes: [{name: api, paths: [/api]}]\n";
    door.write("foreign.yaml", &format!("{COMMERCIAL}{keys}"));
    let import = ["config", "import", "foreign.yaml", "-c", "doorward.yaml"];
    let output = door.run(&[&import[..], &["--skip-unsupported"]].concat());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{told}");
    let left_out: Vec<&str> = told
        .lines()
        .filter(|line| line.contains("left out: foreign"))
        .collect();
    assert_eq!(left_out.len(), 1, "{told}");
    assert!(
        left_out[0].contains("foreign.yaml:5: consumer_groups[0].plugins[0].name"),
        "{told}"
    );
    assert_eq!(
        members(&door, "/consumer_groups/tin/consumers").await,
        ["dora"]
    );
    assert_eq!(status(&door, "/api", "doras").await, 418);
}

#[tokio::test]
async fn check_takes_groups_and_names_the_line_of_a_group_that_there_is_not() {
    let door = Setup::new().lay_out();
    door.write("main.yaml", "entities: [groups.yaml]\n");
    let check = |text: &str| {
        door.write("groups.yaml", text);
        let output = door.run(&["check", "-c", "main.yaml"]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), told)
    };
    let good = "_format_version: '3.0'\nconsumers:\n- username: anna\n  groups:\n  \
                - {name: gold}\nconsumer_groups:\n- name: gold\n";
    let (code, told) = check(good);
    assert_eq!(code, Some(0), "{told}");
    let (code, told) = check(&good.replace("- name: gold", "- name: tin"));
    assert_eq!(code, Some(1), "{told}");
    let line = "groups.yaml:5: consumers[0].groups[0]: no consumer_group named 'gold' is declared";
    assert!(told.contains(line), "{told}");
}
