//! Entities below their parents on the Admin API (gateway-admin-api §2).

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::raw::exchange;
use crate::support::{Answer, Door, Setup};

const UNUSED: &str = "6ba7b810-9dad-41d1-80b4-00c04fd430c8";

/// A door with the services `a` and `b`, the consumers `anna` and `bob`, the routes
/// `ra` and `rb` of the services, and the upstreams `ua` and `ub`.
async fn door() -> Door {
    let door = Setup::new().start().await;
    for name in ["a", "b"] {
        let service = json!({"name": name, "host": "a.test"});
        door.admin_post("/services", &service).await.expect(201);
        let route = json!({"name": format!("r{name}"), "paths": [format!("/{name}")]});
        let path = format!("/services/{name}/routes");
        door.admin_post(&path, &route).await.expect(201);
        let upstream = json!({"name": format!("u{name}")});
        door.admin_post("/upstreams", &upstream).await.expect(201);
    }
    for name in ["anna", "bob"] {
        let consumer = json!({"username": name});
        door.admin_post("/consumers", &consumer).await.expect(201);
    }
    door
}

async fn put(door: &Door, path: &str, body: &Value) -> Answer {
    door.admin_json(Method::PUT, path, body).await
}

/// The member `id` of what `path` shows.
async fn id(door: &Door, path: &str) -> Value {
    door.admin_get(path).await.expect(200).json()["id"].clone()
}

fn assert_not_found(answer: Answer, what: &str) {
    assert_eq!(answer.status, 404, "{what}: {}", answer.body);
    assert_eq!(answer.json()["message"], "Not found", "{what}");
    assert_eq!(answer.json()["code"], Value::Null, "{what}");
}

#[tokio::test]
async fn a_put_below_a_parent_makes_the_child() {
    let door = door().await;
    let route = put(&door, "/services/a/routes/new", &json!({"paths": ["/new"]})).await;
    let route = route.expect(200).json();
    assert_eq!(route["name"], "new");
    assert_eq!(route["service"]["id"], id(&door, "/services/a").await);

    let path = format!("/consumers/anna/key-auth/{UNUSED}");
    let key = put(&door, &path, &json!({"key": "k"})).await.expect(200);
    assert_eq!(key.json()["id"], UNUSED);
    assert_eq!(
        key.json()["consumer"]["id"],
        id(&door, "/consumers/anna").await
    );
    let path = format!("/routes/ra/plugins/{UNUSED}");
    let plugin = put(&door, &path, &json!({"name": "key-auth"})).await;
    let plugin = plugin.expect(200).json();
    assert_eq!(plugin["route"]["id"], id(&door, "/routes/ra").await);

    let nobody = put(&door, "/services/none/routes/x", &json!({"paths": ["/x"]})).await;
    assert_not_found(nobody, "a parent that is not there");
}

#[tokio::test]
async fn a_put_below_a_parent_takes_the_child_of_another() {
    let door = door().await;
    let route = id(&door, "/routes/ra").await;
    let body = json!({"name": "ra", "paths": ["/moved"]});
    let path = format!("/services/b/routes/{}", route.as_str().expect("an id"));
    let moved = put(&door, &path, &body).await.expect(200).json();
    assert_eq!((&moved["id"], &moved["name"]), (&route, &json!("ra")));
    assert_eq!(moved["service"]["id"], id(&door, "/services/b").await);
    // By its name, too.
    let body = json!({"paths": ["/back"]});
    let moved = put(&door, "/services/a/routes/ra", &body).await.expect(200);
    assert_eq!(moved.json()["id"], route);
    assert_not_found(
        door.admin_get("/services/b/routes/ra").await,
        "of the old parent",
    );

    let key = json!({"key": "annas", "id": UNUSED});
    let made = door.admin_post("/consumers/anna/key-auth", &key).await;
    made.expect(201);
    let path = format!("/consumers/bob/key-auth/{UNUSED}");
    put(&door, &path, &json!({"key": "bobs"})).await.expect(200);
    let list = door.admin_get("/consumers/anna/key-auth").await;
    assert_eq!(list.expect(200).json()["data"], json!([]));
}

#[tokio::test]
async fn a_patch_or_delete_below_a_parent_is_for_its_own_children() {
    let door = door().await;
    let plugin = json!({"name": "key-auth", "id": UNUSED});
    door.admin_post("/routes/ra/plugins", &plugin)
        .await
        .expect(201);
    let key = json!({"username": "u", "password": "p"});
    door.admin_post("/consumers/anna/basic-auth", &key)
        .await
        .expect(201);
    let target = json!({"target": "a.test:80"});
    door.admin_post("/upstreams/ua/targets", &target)
        .await
        .expect(201);
    for path in [
        "/services/b/routes/ra",
        "/services/b/routes/none",
        "/services/none/routes/ra",
        &format!("/routes/rb/plugins/{UNUSED}"),
        "/routes/ra/plugins/none",
        "/consumers/bob/basic-auth/u",
        "/consumers/anna/basic-auth/none",
        "/consumers/anna/acls/none",
        "/upstreams/ub/targets/a.test:80",
        "/upstreams/ua/targets/b.test:80",
    ] {
        let patch = door.admin_json(Method::PATCH, path, &json!({})).await;
        assert_not_found(patch, path);
        assert_not_found(door.admin_delete(path).await, path);
    }
    // A target is changed by a PUT, and not made.
    let put = put(&door, "/upstreams/ub/targets/a.test:80", &json!({})).await;
    assert_not_found(put, "a target");
    // Nothing is gone.
    for path in [
        &format!("/routes/ra/plugins/{UNUSED}"),
        "/services/a/routes/ra",
        "/consumers/anna/basic-auth/u",
    ] {
        door.admin_get(path).await.expect(200);
        door.admin_delete(path).await.expect(204);
    }
    // At the top, what is gone can be deleted again.
    door.admin_delete("/routes/ra").await.expect(204);
}

#[tokio::test]
async fn a_group_of_one_consumer_is_not_taken_by_its_name_from_another() {
    let door = door().await;
    for name in ["anna", "bob"] {
        let path = format!("/consumers/{name}/acls/admins");
        let member = put(&door, &path, &json!({})).await.expect(200).json();
        assert_eq!(member["group"], "admins");
        let again = put(&door, &path, &json!({"tags": ["t"]})).await.expect(200);
        assert_eq!(again.json()["id"], member["id"]);
    }
    let all = door.admin_get("/acls").await.expect(200).json();
    assert_eq!(all["data"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn taking_a_route_that_a_file_declares_is_refused() {
    let file = "- name: declared\n  host: a.test\n  routes: [{name: own, paths: [/own]}]\n";
    let door = Setup::new().services(file).start().await;
    let service = json!({"name": "thief", "host": "b.test"});
    door.admin_post("/services", &service).await.expect(201);
    let body = json!({"paths": ["/own"]});
    put(&door, "/services/thief/routes/own", &body)
        .await
        .expect(409);
    door.admin_get("/services/declared/routes/own")
        .await
        .expect(200);
}

#[tokio::test]
async fn what_is_not_utf_8_is_refused_as_what_it_is() {
    let door = door().await;
    for (target, status, message) in [
        ("/services/%FF", 404, "Not found"),
        ("/services/a/routes/%C3", 404, "Not found"),
        ("/services/a%zz", 404, "Not found"),
        ("/services?tags=%FF", 400, "Cannot parse query: not UTF-8"),
        (
            "/services?size=%4",
            400,
            "Cannot parse query: broken percent-encoding",
        ),
    ] {
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            door.admin()
        );
        let answer = exchange(&door.admin(), request.as_bytes()).await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, status, "{target}: {}", answer.text());
        let body: Value = serde_json::from_slice(&answer.body).expect("JSON");
        assert_eq!(body["message"], message, "{target}");
    }
}
