//! The nodes that share the store.

use super::*;
use doorward_store::Node;

#[tokio::test]
async fn nodes_are_listed_with_what_they_serve_until_they_are_not_seen_any_more() {
    let api = Api::new().await;
    let about = api.get("/").await.expect(200).json();
    let now_ms = api.clock.now_ms();
    let other = Node {
        id: "2f1c0f0e-96a3-4d2f-8c74-0d7a36a9b0ee".to_owned(),
        hostname: "elsewhere".to_owned(),
        version: "0.0.9".to_owned(),
        started_ms: now_ms - 5_000,
        seen_ms: now_ms,
        revision: 7,
        is_current: false,
    };
    api.store.put_node(other, 0).await.expect("kept");
    api.node.beat().await;
    let expected = json!({
        "id": "2f1c0f0e-96a3-4d2f-8c74-0d7a36a9b0ee", "hostname": "elsewhere",
        "version": "0.0.9", "started_at": (now_ms - 5_000) / 1000, "last_seen": now_ms / 1000,
        "answers": true, "is_this": false, "revision": 7, "configuration_current": false,
    });
    let listed = api.get("/clustering/nodes").await.expect(200).json();
    assert_eq!(listed["data"][0], expected);
    let own = &listed["data"][1];
    assert_eq!(own["id"], about["node_id"]);
    assert_eq!(own["hostname"], about["hostname"]);
    assert_eq!(
        (&own["is_this"], &own["answers"]),
        (&json!(true), &json!(true))
    );
    let revision = own["revision"].as_i64().expect("a revision");
    api.post("/services", json!({"host": "h"}))
        .await
        .expect(201);
    let listed = api.get("/clustering/nodes").await.expect(200).json();
    assert_eq!(listed["data"][1]["revision"], revision + 1);
    // The other one was killed: it is told for a while that it does not answer.
    api.clock.advance(31_000);
    let listed = api.get("/clustering/nodes").await.expect(200).json();
    assert_eq!(listed["data"][0]["answers"], false);
    assert_eq!(listed["data"][1]["answers"], true);
    api.clock.advance(569_000);
    let listed = api.get("/clustering/nodes").await.expect(200).json();
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1));
    api.node.beat().await;
    let kept = api.store.nodes(0).await.expect("read");
    assert_eq!(
        kept.len(),
        1,
        "a heartbeat removes what is not listed any more"
    );
}

#[tokio::test]
async fn the_level_of_the_log_is_changed_for_all_nodes_where_there_is_one() {
    let api = Api::new().await;
    api.node.beat().await;
    let told = api.get("/debug/node/log-level").await.expect(200).json();
    let level = told["message"].as_str().expect("a text");
    let level = level.strip_prefix("log level: ").expect("its name");
    let path = format!("/debug/cluster/log-level/{level}");
    let same = api.send("PUT", &path, json!({})).await.expect(200).json();
    assert_eq!(same["message"], format!("log level is already {level}"));
    let now_ms = api.clock.now_ms();
    let other = Node {
        id: "2f1c0f0e-96a3-4d2f-8c74-0d7a36a9b0ee".to_owned(),
        hostname: "elsewhere".to_owned(),
        version: "0.0.9".to_owned(),
        started_ms: now_ms,
        seen_ms: now_ms,
        revision: 7,
        is_current: false,
    };
    api.store.put_node(other, 0).await.expect("kept");
    let refused = api.send("PUT", &path, json!({})).await.expect(400).json();
    let message = "other nodes share the store: change each by /debug/node/log-level";
    assert_eq!(refused["message"], message);
}

#[tokio::test]
async fn a_node_that_stops_is_not_listed_by_others() {
    let api = Api::new().await;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    api.node.beat().await;
    assert_eq!(api.store.nodes(0).await.expect("read").len(), 1);
    stop.send(true).expect("heard");
    api.node.clone().run(stopped).await;
    assert_eq!(api.store.nodes(0).await.expect("read").len(), 0);
}
