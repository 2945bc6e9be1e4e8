//! Consumers: tokens that stand for them, and plugins of theirs.

use serde_json::json;

use crate::support::{Door, Setup, Upstream, http};

/// A door whose service `api` maps the subjects of tokens to consumers, of
/// whom there is one: `demo`.
async fn door(upstream: &Upstream, more: &str) -> Door {
    let service = format!(
        "- name: api\n  url: {}\n  routes: [{{name: api, hosts: [api.test]}}]\n  plugins:\n  \
         - name: openid-connect\n    config: {{issuer: 'http://@PROXY@/oauth2', \
         consumer_claim: [sub]{more}}}\n",
        upstream.url("")
    );
    let door = Setup::new().services(&service).start().await;
    let demo = json!({"username": "demo", "custom_id": "d-1"});
    door.admin_post("/consumers", &demo).await.expect(201);
    door
}

/// Throttling to one request, at a place of the Admin API.
async fn throttle(door: &Door, path: &str, requests: u32) {
    let plugin = json!({"name": "throttling",
        "config": {"rate": {"numberOfRequests": requests, "duration": "6 hours"}}});
    door.admin_post(path, &plugin).await.expect(201);
}

#[tokio::test]
async fn the_upstream_is_told_the_consumer_whatever_the_client_says() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream, "").await;
    let token = door.user_token("demo", "openid").await;
    let request = http::client()
        .get(door.proxy_url("/"))
        .header("host", "api.test")
        .header("x-consumer-username", "root")
        .header("x_consumer_id", "root")
        .header("x-anonymous-consumer", "true")
        .bearer_auth(&token);
    http::send(request).await.expect(200);
    let seen = upstream.last();
    assert_eq!(seen.all("x-consumer-username"), ["demo"]);
    assert_eq!(seen.all("x-consumer-custom-id"), ["d-1"]);
    assert_eq!(seen.all("x-consumer-id").len(), 1);
    assert!(seen.all("x_consumer_id").is_empty());
    assert!(seen.all("x-anonymous-consumer").is_empty());
}

#[tokio::test]
async fn a_token_of_nobody_is_refused_until_there_is_somebody() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream, "").await;
    let token = door.user_token("alice", "openid").await;
    let refused = door.get_as(&token, "api.test", "/").await.expect(403);
    assert_eq!(refused.json()["message"], "Forbidden");
    let alice = json!({"username": "alice"});
    door.admin_post("/consumers", &alice).await.expect(201);
    door.get_as(&token, "api.test", "/").await.expect(200);
    door.admin_delete("/consumers/alice").await.expect(204);
    door.get_as(&token, "api.test", "/").await.expect(403);
}

#[tokio::test]
async fn throttling_of_a_consumer_touches_nobody_else() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream, ", consumer_optional: true").await;
    throttle(&door, "/consumers/demo/plugins", 2).await;
    let demo = door.user_token("demo", "openid").await;
    let alice = door.user_token("alice", "openid").await;
    for status in [200, 200, 429] {
        door.get_as(&demo, "api.test", "/").await.expect(status);
    }
    for _ in 0..4 {
        door.get_as(&alice, "api.test", "/").await.expect(200);
    }
}

#[tokio::test]
async fn a_consumers_plugin_goes_before_the_routes_and_a_disabled_one_is_none() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream, ", consumer_optional: true").await;
    throttle(&door, "/routes/api/plugins", 1).await;
    throttle(&door, "/consumers/demo/plugins", 3).await;
    let demo = door.user_token("demo", "openid").await;
    for status in [200, 200, 200, 429] {
        door.get_as(&demo, "api.test", "/").await.expect(status);
    }
    let plugins = door.admin_get("/consumers/demo/plugins").await.json();
    let id = plugins["data"][0]["id"].as_str().expect("an id");
    let disabled = json!({"enabled": false});
    let path = format!("/plugins/{id}");
    door.admin_json(reqwest::Method::PATCH, &path, &disabled)
        .await
        .expect(200);
    for status in [200, 429] {
        door.get_as(&demo, "api.test", "/").await.expect(status);
    }
}

#[tokio::test]
async fn strangers_are_the_anonymous_consumer() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream, ", anonymous: guest").await;
    let guest = json!({"username": "guest"});
    door.get("api.test", "/").await.expect(401);
    door.admin_post("/consumers", &guest).await.expect(201);
    throttle(&door, "/consumers/guest/plugins", 1).await;
    door.get("api.test", "/").await.expect(200);
    let seen = upstream.last();
    assert_eq!(seen.all("x-consumer-username"), ["guest"]);
    assert_eq!(seen.all("x-anonymous-consumer"), ["true"]);
    door.get("api.test", "/").await.expect(429);
    let demo = door.user_token("demo", "openid").await;
    door.get_as(&demo, "api.test", "/").await.expect(200);
}
