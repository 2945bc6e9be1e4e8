//! `/throttling`.

use serde_json::json;

use super::Api;

async fn with_throttling() -> Api {
    let api = Api::with_route().await;
    let plugin = json!({
        "name": "throttling",
        "instance_name": "limits",
        "config": {"rate": {"numberOfRequests": 6, "duration": "10 s"}},
    });
    api.post("/routes/r/plugins", plugin).await.expect(201);
    api
}

#[tokio::test]
async fn a_filter_is_found_by_id_or_name_and_shows_what_it_holds() {
    let api = with_throttling().await;
    let list = api.get("/throttling").await.expect(200).json();
    let id = list["data"][0]["plugin"]["id"].as_str().expect("an id");
    for key in [id, "limits"] {
        let body = api
            .get(&format!("/throttling/{key}"))
            .await
            .expect(200)
            .json();
        assert_eq!(body["plugin"]["instance_name"], "limits");
        assert_eq!(body["buckets"], 0);
        assert_eq!(body["maximum"], 1_000_000);
        assert_eq!(body["shadow"], false);
        assert_eq!(body["counters"], "local");
        assert_eq!(body["hottest"], json!([]));
    }
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let api = with_throttling().await;
    api.get("/throttling/nope").await.expect(404);
    api.delete("/throttling/nope/all").await.expect(404);
    let missing = api.delete("/throttling/limits/somebody").await.refusal();
    assert_eq!(
        missing,
        (404, "nothing is counted of this partition".to_owned())
    );
    let disabled = json!({"enabled": false});
    let id = api.get("/throttling/limits").await.json()["plugin"]["id"].clone();
    let path = format!("/plugins/{}", id.as_str().expect("an id"));
    api.send("PATCH", &path, disabled).await.expect(200);
    let refusal = api.get("/throttling/limits").await.refusal();
    assert_eq!(refusal, (404, "the plugin is not enabled".to_owned()));
    api.raw(
        "PUT",
        "/throttling/limits",
        &[("host", "localhost:8001")],
        "",
    )
    .await
    .expect(405);
}
