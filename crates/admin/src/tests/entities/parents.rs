//! Records below others, and references between them.

use super::*;

#[tokio::test]
async fn children_are_seen_only_under_their_parent() {
    let api = Api::with_route().await;
    api.post("/services", json!({"name":"t","host":"h"}))
        .await
        .expect(201);
    api.get("/services/s/routes/r").await.expect(200);
    for (method, path) in [
        ("GET", "/services/t/routes/r"),
        ("DELETE", "/services/t/routes/r"),
        ("PATCH", "/services/t/routes/r"),
        ("GET", "/services/none/routes"),
        ("POST", "/services/none/routes"),
        ("PUT", "/services/none/routes/r"),
        ("DELETE", "/services/none/routes/r"),
        ("DELETE", "/services/s/routes/absent"),
        ("PATCH", "/services/s/routes/absent"),
    ] {
        let reply = api.send(method, path, json!({"hosts":["x"]})).await;
        assert_eq!(
            reply.refusal(),
            (404, "Not found".to_owned()),
            "{method} {path}"
        );
    }
    api.delete("/services/s/routes/r").await.expect(204);
}

#[tokio::test]
async fn a_nested_put_belongs_to_its_parent() {
    let api = Api::with_route().await;
    let service = api.get("/services/s").await.id();
    let route = api
        .send("PUT", "/services/s/routes/new", json!({"paths":["/n"]}))
        .await
        .expect(200);
    assert_eq!(route.json()["service"], json!({"id": service}));
    assert_eq!(route.json()["name"], "new");
}

#[tokio::test]
async fn a_parent_is_reached_through_its_child() {
    let api = Api::with_route().await;
    let service = api.get("/services/s").await.json();
    assert_eq!(
        api.get("/routes/r/service").await.expect(200).json(),
        service
    );
    let patched = api
        .send("PATCH", "/routes/r/service", json!({"host":"new"}))
        .await
        .expect(200);
    assert_eq!(patched.json()["id"], service["id"]);
    assert_eq!(api.get("/services/s").await.json()["host"], "new");
    let put = api
        .send("PUT", "/routes/r/service", json!({"host":"put"}))
        .await
        .expect(200);
    assert_eq!(put.json()["id"], service["id"]);
    assert_eq!(put.json()["name"], Value::Null);
    assert_eq!(
        api.delete("/routes/r/service").await.refusal(),
        (405, "Method not allowed".to_owned())
    );
    api.post("/routes", json!({"name":"alone","paths":["/a"]}))
        .await
        .expect(201);
    api.get("/routes/alone/service").await.expect(404);
    let made = api
        .send("PUT", "/routes/alone/service", json!({"host":"m"}))
        .await
        .expect(200);
    assert_eq!(
        api.get("/routes/alone").await.json()["service"]["id"],
        made.json()["id"]
    );
}

#[tokio::test]
async fn references_may_be_by_name() {
    let api = Api::with_route().await;
    let service = api.get("/services/s").await.id();
    let json = api
        .post("/routes", json!({"paths":["/a"],"service":{"name":"s"}}))
        .await
        .expect(201);
    assert_eq!(json.json()["service"]["id"], service);
    let form = api
        .form("POST", "/routes", "paths=/b&service.name=s")
        .await
        .expect(201);
    assert_eq!(form.json()["service"]["id"], service);
    let body = format!("paths[]=/c&service.id={service}&methods=GET&methods=PUT");
    let form = api.form("POST", "/routes", &body).await.expect(201);
    assert_eq!(form.json()["methods"], json!(["GET", "PUT"]));
    let reply = api
        .post("/routes", json!({"paths":["/a"],"service":{"name":"x"}}))
        .await
        .expect(400);
    assert_eq!(
        reply.json(),
        json!({
            "code": 13, "name": "foreign keys unresolved",
            "message": "foreign key unresolved (service.name: the foreign key cannot be resolved \
                        with '{name=\"x\"}' for an existing 'services' entity)",
            "fields": {"service": {"name": "the foreign key cannot be resolved with \
                        '{name=\"x\"}' for an existing 'services' entity"}}
        })
    );
}

#[tokio::test]
async fn the_flat_reference_of_the_older_dialect_is_understood() {
    let api = Api::with_route().await;
    let service = api.get("/services/s").await.id();
    let body = format!("name=openid-connect&service_id={service}&config.issuer=http://i");
    let plugin = api.form("POST", "/plugins", &body).await.expect(201).json();
    assert_eq!(plugin["service"], json!({"id": service}));
    let moved = api
        .send(
            "PATCH",
            &format!("/plugins/{}", plugin["id"].as_str().unwrap_or_default()),
            json!({"service_id":null}),
        )
        .await
        .expect(200)
        .json();
    assert_eq!(moved["service"], Value::Null);
    assert!(moved.get("service_id").is_none());
}
