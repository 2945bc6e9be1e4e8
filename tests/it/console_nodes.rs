//! The nodes that share the store, in the console and over REST.

use serde_json::{Value, json};

use crate::console::Browser;
use crate::support::{Door, Setup};

async fn nodes(door: &Door) -> Vec<Value> {
    let listed = door.admin_get("/clustering/nodes").await.expect(200).json();
    listed["data"].as_array().expect("a list").clone()
}

#[tokio::test]
async fn a_node_that_was_killed_stays_listed_for_a_while_and_one_that_stopped_does_not() {
    let mut door = Setup::new().start().await;
    let first = nodes(&door).await;
    assert_eq!(first.len(), 1, "{first:?}");
    assert_eq!(first[0]["is_this"], true);
    let about = door.admin_get("/").await.expect(200).json();
    assert_eq!(first[0]["id"], about["node_id"]);
    // It may be killed before its first heartbeat is in the store.
    let mut killed = Value::Null;
    while killed.is_null() {
        door.kill();
        door.start().await;
        let others = nodes(&door).await.into_iter();
        killed = others
            .filter(|node| node["is_this"] == false)
            .map(|node| node["id"].clone())
            .next()
            .unwrap_or_default();
    }
    let service = json!({"name": "a", "host": "a.example"});
    door.admin_post("/services", &service).await.expect(201);
    let own = nodes(&door).await.pop().expect("a node");
    let mut browser = Browser::new(&door);
    let page = browser.get("/console").await.expect(200).body;
    let table = page.split("id=\"nodes\"").nth(1).expect("a table");
    for shown in [&killed, &own["id"], &about["hostname"]] {
        let shown = shown.as_str().expect("text");
        assert!(table.contains(shown), "{shown}: {table}");
    }
    assert!(table.contains("(this one)"), "{table}");
    let stopped = own["id"].clone();
    door.signal("TERM");
    assert!(door.wait_exit().await.success());
    door.start().await;
    let left = nodes(&door).await;
    let is_listed = |id: &Value| left.iter().any(|node| node["id"] == *id);
    assert!(is_listed(&killed), "{left:?}");
    assert!(!is_listed(&stopped), "{left:?}");
}
