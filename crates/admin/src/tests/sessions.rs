//! Sessions of the `session` plugin, and what is cached.

use super::*;
use doorward_core::model::grant::TokenHash;
use doorward_core::model::login::StoredLogin;

fn login(id: &str, issuer: &str, now_ms: i64) -> StoredLogin {
    StoredLogin {
        key: TokenHash::of(id),
        id: id.to_owned(),
        issuer: issuer.to_owned(),
        client_id: "default".to_owned(),
        subject: None,
        sid: None,
        started_ms: now_ms - 5_000,
        used_ms: now_ms,
        ends_ms: now_ms + 60_000,
        sealed: "sealed".to_owned(),
    }
}

#[tokio::test]
async fn sessions_are_listed_shown_and_ended_and_what_they_hold_is_not_told() {
    let api = Api::new().await;
    let now_ms = api.clock.now_ms();
    let ids = [
        "1f1c0f0e-96a3-4d2f-8c74-0d7a36a9b0ee",
        "2f1c0f0e-96a3-4d2f-8c74-0d7a36a9b0ee",
    ];
    for (id, issuer) in [
        (ids[0], "session"),
        (ids[1], "session"),
        ("other", "https://op"),
    ] {
        let stored = api.store.insert_login(&login(id, issuer, now_ms)).await;
        stored.expect("stored");
    }
    let first = api.get("/sessions?size=1").await.expect(200).json();
    let expected = json!({
        "id": ids[0], "session_id": ids[0], "data": null, "ttl": 60,
        "created_at": (now_ms - 5_000).div_euclid(1000),
        "expires": (now_ms + 60_000).div_euclid(1000),
    });
    assert_eq!(first["data"], json!([expected]));
    let next = first["next"].as_str().expect("a next page");
    assert!(next.starts_with("/sessions?"), "{next}");
    let second = api.get(next).await.expect(200).json();
    assert_eq!(second["data"][0]["id"], ids[1]);
    assert!(second["next"].is_null());
    let one = format!("/sessions/{}", ids[0]);
    assert_eq!(api.get(&one).await.expect(200).json(), expected);
    // Sessions of other plugins are neither shown nor ended here.
    api.get("/sessions/other").await.expect(404);
    api.delete("/sessions/other").await.expect(204);
    api.get("/openid-connect/sessions/other").await.expect(200);
    api.delete(&one).await.expect(204);
    api.get(&one).await.expect(404);
    api.delete(&one).await.expect(204);
    api.post("/sessions", json!({})).await.expect(405);
    api.get("/sessions?sort=1").await.expect(400);
    // One whose time is up is not there any more.
    api.clock.advance(60_000);
    api.get(&format!("/sessions/{}", ids[1])).await.expect(404);
}

#[tokio::test]
async fn nothing_is_cached_of_entities() {
    let api = Api::new().await;
    let made = api
        .post("/services", json!({"name": "s", "host": "h"}))
        .await;
    made.expect(201);
    let missing = api.get("/cache/services:s:::::").await.expect(404).json();
    assert_eq!(missing["message"], "Not found");
    api.delete("/cache/services:s:::::").await.expect(204);
    api.delete("/cache").await.expect(204);
    api.get("/services/s").await.expect(200);
}
