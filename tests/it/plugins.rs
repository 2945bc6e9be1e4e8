//! Which plugin applies to a request, and since when.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Door, Setup, Upstream};

/// The JSON of a throttling plugin that lets `count` requests a day pass.
fn daily(count: u64) -> Value {
    let rate = json!({"numberOfRequests": count, "duration": "1 day"});
    json!({"name": "throttling", "config": {"rate": rate}})
}

/// A door with the service `api` for host `api.test`.
async fn door_to(upstream: &Upstream) -> Door {
    let door = Setup::new().start().await;
    door.expose("api", &upstream.url(""), "api.test").await;
    door
}

async fn made(door: &Door, path: &str, body: &Value) -> String {
    let record = door.admin_post(path, body).await.expect(201).json();
    record["id"].as_str().expect("an id").to_owned()
}

/// How many requests for `api.test` pass before one is refused.
async fn passing(door: &Door) -> usize {
    let mut count = 0;
    while door.get("api.test", "/").await.status == 200 {
        count += 1;
        assert!(count < 50, "nothing is refused");
    }
    count
}

#[tokio::test]
async fn the_most_specific_configuration_applies_alone() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream).await;
    made(&door, "/plugins", &daily(7)).await;
    assert_eq!(passing(&door).await, 7);
    let on_service = made(&door, "/services/api/plugins", &daily(5)).await;
    assert_eq!(passing(&door).await, 5);
    let routes = door.admin_get("/services/api/routes").await.json();
    let route = routes["data"][0]["id"].as_str().expect("an id");
    let on_route = made(&door, &format!("/routes/{route}/plugins"), &daily(3)).await;
    assert_eq!(passing(&door).await, 3);

    // What goes uncovers what it covered, with the bucket as it was left.
    door.admin_delete(&format!("/plugins/{on_route}"))
        .await
        .expect(204);
    assert_eq!(passing(&door).await, 0);
    door.admin_delete(&format!("/plugins/{on_service}"))
        .await
        .expect(204);
    assert_eq!(passing(&door).await, 0);
}

#[tokio::test]
async fn a_disabled_plugin_is_as_if_it_were_not_there() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream).await;
    made(&door, "/plugins", &daily(4)).await;
    let on_service = made(&door, "/services/api/plugins", &daily(2)).await;
    assert_eq!(passing(&door).await, 2);
    let path = format!("/plugins/{on_service}");
    let off = json!({"enabled": false});
    door.admin_json(Method::PATCH, &path, &off)
        .await
        .expect(200);
    assert_eq!(passing(&door).await, 4);
    let on = json!({"enabled": true});
    door.admin_json(Method::PATCH, &path, &on).await.expect(200);
    assert_eq!(passing(&door).await, 2);
}

#[tokio::test]
async fn tokens_are_checked_before_requests_are_counted() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream).await;
    made(&door, "/services/api/plugins", &daily(1)).await;
    let config = json!({"issuer": door.proxy_url("/oauth2")});
    let plugin = json!({"name": "openid-connect", "config": config});
    made(&door, "/services/api/plugins", &plugin).await;
    for _ in 0..5 {
        door.get("api.test", "/").await.expect(401);
    }
    let token = door.client_token("read").await;
    door.get_as(&token, "api.test", "/").await.expect(200);
    door.get_as(&token, "api.test", "/").await.expect(429);
}

#[tokio::test]
async fn plugins_go_with_their_route_and_their_service() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream).await;
    let routes = door.admin_get("/services/api/routes").await.json();
    let route = routes["data"][0]["id"].as_str().expect("an id").to_owned();
    let on_route = made(&door, &format!("/routes/{route}/plugins"), &daily(3)).await;
    let on_service = made(&door, "/services/api/plugins", &daily(3)).await;
    door.admin_delete(&format!("/routes/{route}"))
        .await
        .expect(204);
    door.admin_get(&format!("/plugins/{on_route}"))
        .await
        .expect(404);
    door.admin_delete("/services/api").await.expect(204);
    door.admin_get(&format!("/plugins/{on_service}"))
        .await
        .expect(404);
}

#[tokio::test]
async fn a_switched_off_service_has_no_routes() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream).await;
    door.get("api.test", "/").await.expect(200);
    let off = json!({"enabled": false});
    door.admin_json(Method::PATCH, "/services/api", &off)
        .await
        .expect(200);
    door.get("api.test", "/").await.expect(404);
}

#[tokio::test]
async fn the_identity_provider_can_be_throttled_like_any_service() {
    let throttled = "
- name: identity
  protocol: internal
  host: identity
  routes:
  - {name: identity, paths: [/oauth2, /json, /v1, /scim/v2, /.well-known], strip_path: false}
  plugins:
  - {name: throttling, config: {rate: {numberOfRequests: 2, duration: 1 day}}}
";
    let mut door = Setup::new().lay_out();
    door.write(
        "routes.yaml",
        &format!("_format_version: \"3.0\"\nservices:{throttled}"),
    );
    door.start().await;
    let fields = [("grant_type", "nonsense")];
    for _ in 0..2 {
        assert_ne!(door.token_request(&fields).await.status, 429);
    }
    door.token_request(&fields).await.expect(429);
}
