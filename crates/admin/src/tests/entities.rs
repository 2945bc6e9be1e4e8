//! Records of services, routes and plugins (interface 2.5 to 2.7, 4.5 to 4.7).

mod parents;

use super::*;

#[tokio::test]
async fn a_service_is_created_as_the_interface_shows() {
    let api = Api::new().await;
    let reply = api
        .post(
            "/services/",
            json!({"name":"orders","host":"example.com","port":8080,"protocol":"http","path":"/v1"}),
        )
        .await
        .expect(201);
    let mut record = reply.json();
    assert_eq!(record["id"].as_str().map(str::len), Some(36));
    record["id"] = "ID".into();
    assert_eq!(
        record,
        json!({
            "id": "ID", "name": "orders", "host": "example.com", "port": 8080,
            "protocol": "http", "path": "/v1",
            "created_at": NOW_SECS, "updated_at": NOW_SECS,
            "connect_timeout": 60000, "read_timeout": 60000, "write_timeout": 60000,
            "retries": 5,
            "enabled": true, "tags": null, "client_certificate": null, "tls_verify": null,
            "tls_verify_depth": null, "ca_certificates": null
        })
    );
    assert_eq!(
        api.get("/services/orders").await.expect(200).json()["id"],
        reply.json()["id"]
    );
}

#[tokio::test]
async fn a_route_is_created_as_the_interface_shows() {
    let api = Api::new().await;
    let service = api
        .post("/services", json!({"name":"orders","host":"h"}))
        .await
        .id();
    let reply = api
        .post(
            "/services/orders/routes",
            json!({"hosts":["orders.example.com"]}),
        )
        .await
        .expect(201);
    let mut record = reply.json();
    record["id"] = "ID".into();
    assert_eq!(
        record,
        json!({
            "id": "ID", "hosts": ["orders.example.com"], "paths": null, "methods": null,
            "protocols": ["http","https"], "strip_path": true, "preserve_host": false,
            "regex_priority": 0, "service": {"id": service},
            "created_at": NOW_SECS, "updated_at": NOW_SECS,
            "name": null, "tags": null, "headers": null, "snis": null, "sources": null,
            "destinations": null, "https_redirect_status_code": 426,
            "request_buffering": true, "response_buffering": true, "path_handling": "v0"
        })
    );
}

#[tokio::test]
async fn the_openid_connect_plugin_is_created_as_the_interface_shows() {
    let api = Api::new().await;
    let service = api
        .post("/services", json!({"name":"orders","host":"h"}))
        .await
        .id();
    let reply = api
        .form(
            "POST",
            "/services/orders/plugins/",
            "name=openid-connect&config.client_id=orders&config.client_secret=s3cret\
             &config.ssl_verify=false\
             &config.issuer=http%3A%2F%2Flocalhost%3A8000%2Foauth2%2F.well-known%2Fopenid-configuration\
             &config.scopes=openid,profile",
        )
        .await
        .expect(201);
    let record = reply.json();
    let config = &record["config"];
    for (field, value) in [
        ("client_id", json!(["orders"])),
        ("client_secret", json!(["s3cret"])),
        ("ssl_verify", json!(false)),
        (
            "issuer",
            json!("http://localhost:8000/oauth2/.well-known/openid-configuration"),
        ),
        ("scopes", json!(["openid", "profile"])),
    ] {
        assert_eq!(config[field], value, "{field}");
    }
    for (field, value) in interface_defaults() {
        assert_eq!(config[&field], value, "{field}");
    }
    let schema = plugins_schema("openid-connect");
    let fields: Vec<&String> = config.as_object().expect("an object").keys().collect();
    assert_eq!(
        fields.len(),
        schema.len(),
        "every field of the schema and no other"
    );
    let mut record = record.clone();
    record["id"] = "ID".into();
    record["config"] = "CONFIG".into();
    assert_eq!(
        record,
        json!({
            "id": "ID", "name": "openid-connect", "instance_name": null,
            "service": {"id": service}, "service_id": service, "route": null, "consumer": null,
            "consumer_group": null,
            "enabled": true, "created_at": NOW_MS, "updated_at": NOW_SECS,
            "protocols": ["grpc","grpcs","http","https"], "tags": null, "config": "CONFIG"
        })
    );
}

fn plugins_schema(name: &str) -> Vec<&'static str> {
    let kind = doorward_plugins::kind(name).expect("a kind");
    (kind.schema)()
        .fields
        .iter()
        .map(|field| field.name)
        .collect()
}

/// Interface 2.7, second table.
fn interface_defaults() -> serde_json::Map<String, Value> {
    const TABLE: &str = r#"{
        "auth_methods": ["password","client_credentials","authorization_code","bearer",
            "introspection","kong_oauth2","refresh_token","session"],
        "login_methods": ["authorization_code"], "login_tokens": ["id_token"],
        "login_action": "upstream", "login_redirect_mode": "fragment",
        "logout_methods": ["POST","DELETE"], "logout_revoke": false, "response_mode": "query",
        "bearer_token_param_type": ["header","query","body"],
        "client_credentials_param_type": ["header","query","body"],
        "id_token_param_type": ["header","query","body"],
        "password_param_type": ["header","query","body"],
        "client_arg": "client_id", "scopes_claim": ["scope"], "credential_claim": ["sub"],
        "audience_claim": ["aud"], "consumer_by": ["username","custom_id"],
        "consumer_optional": false, "jwt_session_claim": "sid",
        "introspection_hint": "access_token", "introspect_jwt_tokens": false,
        "upstream_access_token_header": "authorization:bearer", "hide_credentials": false,
        "verify_parameters": true, "verify_nonce": true, "verify_signature": true,
        "verify_claims": true, "reverify": false, "leeway": 0, "run_on_preflight": true,
        "cache_tokens": true, "cache_token_exchange": true, "cache_user_info": true,
        "cache_introspection": true, "cache_ttl": 3600, "rediscovery_lifetime": 300,
        "timeout": 10000, "keepalive": true, "http_version": 1.1,
        "forbidden_error_message": "Forbidden", "unauthorized_error_message": "Unauthorized",
        "forbidden_destroy_session": true, "session_storage": "cookie",
        "session_cookie_name": "session", "session_cookie_path": "/",
        "session_cookie_lifetime": 3600, "session_cookie_samesite": "Lax",
        "session_cookie_httponly": true, "authorization_cookie_name": "authorization",
        "authorization_cookie_path": "/", "authorization_cookie_lifetime": 600,
        "authorization_cookie_samesite": "off", "authorization_cookie_httponly": true,
        "session_memcache_host": "127.0.0.1", "session_memcache_port": 11211,
        "session_memcache_prefix": "sessions", "session_redis_host": "127.0.0.1",
        "session_redis_port": 6379, "session_redis_prefix": "sessions"
    }"#;
    serde_json::from_str(TABLE).expect("is JSON")
}

#[tokio::test]
async fn the_workspace_form_is_the_same_place() {
    let api = Api::new().await;
    let id = api
        .post("/default/services/", json!({"name":"s","host":"h"}))
        .await
        .expect(201)
        .id();
    assert_eq!(api.get("/services/s").await.id(), id);
    assert_eq!(api.get(&format!("/default/services/{id}/")).await.id(), id);
    assert_eq!(
        api.get("/default/kong").await.expect(200).json(),
        api.get("/").await.json()
    );
    assert_eq!(
        api.get("/team/services").await.refusal(),
        (404, "Workspace 'team' not found".to_owned())
    );
    assert_eq!(
        api.get("/team").await.refusal(),
        (404, "Not found".to_owned())
    );
}

#[tokio::test]
async fn patch_merges_and_put_replaces() {
    let api = Api::new().await;
    let made = api
        .post(
            "/services",
            json!({"name":"s","host":"h","path":"/x","retries":7}),
        )
        .await;
    api.clock.advance(5_000);
    let patched = api
        .send("PATCH", "/services/s", json!({"host":"i","path":null}))
        .await
        .expect(200)
        .json();
    assert_eq!(patched["id"], made.json()["id"]);
    assert_eq!(patched["host"], "i");
    assert_eq!(patched["path"], Value::Null);
    assert_eq!(patched["retries"], 7);
    assert_eq!(patched["created_at"], NOW_SECS);
    assert_eq!(patched["updated_at"], NOW_SECS + 5);
    let put = api
        .send("PUT", "/services/s", json!({"host":"j"}))
        .await
        .expect(200)
        .json();
    assert_eq!(put["id"], made.json()["id"]);
    assert_eq!(put["name"], "s");
    assert_eq!(put["retries"], 5);
    assert_eq!(put["created_at"], NOW_SECS + 5);
}

#[tokio::test]
async fn put_makes_what_is_not_there_and_answers_200() {
    let api = Api::new().await;
    let id = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    let path = format!("/services/{id}");
    assert_eq!(
        api.send("PUT", &path, json!({"host":"h"}))
            .await
            .expect(200)
            .id(),
        id
    );
    let named = api
        .send("PUT", "/services/n", json!({"host":"h"}))
        .await
        .expect(200)
        .json();
    assert_eq!(named["name"], "n");
    let plugin = api
        .send(
            "PUT",
            "/plugins/6ba7b811-9dad-11d1-80b4-00c04fd430c8",
            json!({"name":"openid-connect","service":{"id":id},"config":{"issuer":"http://i"}}),
        )
        .await
        .expect(200)
        .json();
    assert_eq!(plugin["service_id"], id);
}

#[tokio::test]
async fn what_was_read_can_be_put_back() {
    let api = Api::with_route().await;
    let plugin = api
        .post(
            "/routes/r/plugins",
            json!({"name":"openid-connect","config":{"issuer":"http://i"}}),
        )
        .await
        .expect(201);
    for path in [
        "/services/s".to_owned(),
        "/routes/r".to_owned(),
        format!("/plugins/{}", plugin.id()),
    ] {
        let read = api.get(&path).await.json();
        assert_eq!(
            api.send("PUT", &path, read.clone())
                .await
                .expect(200)
                .json(),
            read
        );
    }
}

#[tokio::test]
async fn a_plugin_is_patched_without_its_name_and_by_form() {
    let api = Api::with_route().await;
    let made = api
        .form(
            "POST",
            "/services/s/plugins",
            "name=openid-connect&config.issuer=http://i&config.leeway=5&config.scopes=a",
        )
        .await
        .expect(201);
    let path = format!("/plugins/{}", made.id());
    let patched = api
        .form(
            "PATCH",
            &path,
            "config.leeway=9&config.audience_required=x&enabled=false",
        )
        .await
        .expect(200)
        .json();
    assert_eq!(patched["config"]["leeway"], 9);
    assert_eq!(patched["config"]["scopes"], json!(["a"]));
    assert_eq!(patched["config"]["audience_required"], json!(["x"]));
    assert_eq!(patched["enabled"], false);
    assert_eq!(patched["created_at"], NOW_MS);
    let other = api.send("PATCH", &path, json!({"name":"throttling"})).await;
    assert_eq!(
        other.refusal(),
        (
            400,
            "schema violation (name: immutable field cannot be updated)".to_owned()
        )
    );
    let unknown = api.send("PATCH", &path, json!({"name":"foo"})).await;
    let message = "schema violation (name: plugin 'foo' not enabled; add it to the 'plugins' \
                   configuration property)";
    assert_eq!(unknown.refusal(), (400, message.to_owned()));
}

#[tokio::test]
async fn patch_of_nothing_is_404_with_its_key() {
    let api = Api::new().await;
    let reply = api
        .send("PATCH", "/services/nope", json!({"host":"h"}))
        .await
        .expect(404);
    assert_eq!(
        reply.json(),
        json!({"code":6,"name":"not found","fields":{},
            "message":"could not find the entity with '{name=\"nope\"}'"})
    );
    let id = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    let reply = api
        .send("PATCH", &format!("/routes/{id}"), json!({}))
        .await
        .expect(404);
    assert_eq!(
        reply.refusal().1,
        format!("could not find the entity with primary key '{{id=\"{id}\"}}'")
    );
}

#[tokio::test]
async fn delete_is_idempotent_and_takes_plugins_along() {
    let api = Api::with_route().await;
    for path in ["/services/s/plugins", "/routes/r/plugins"] {
        api.post(
            path,
            json!({"name":"openid-connect","config":{"issuer":"http://i"}}),
        )
        .await
        .expect(201);
    }
    let refused = api.delete("/services/s").await.expect(400);
    assert_eq!(
        refused.json(),
        json!({"code":4,"name":"foreign key violation","fields":{"@referenced_by":"routes"},
            "message":"an existing 'routes' entity references this 'services' entity"})
    );
    assert_eq!(api.delete("/routes/r").await.expect(204).text, "");
    assert_eq!(api.get("/plugins").await.json()["total"], 1);
    api.delete("/services/s").await.expect(204);
    api.delete("/services/s").await.expect(204);
    assert_eq!(api.get("/plugins").await.json()["data"], json!([]));
    assert_eq!(
        api.get("/services/s").await.refusal(),
        (404, "Not found".to_owned())
    );
}

#[tokio::test]
async fn put_on_the_list_of_plugins_creates_or_replaces() {
    let api = Api::new().await;
    let body = json!({"name":"openid-connect","config":{"issuer":"http://i"}});
    let mut made = api.send("PUT", "/plugins", body).await.expect(201).json();
    made["config"]["leeway"] = 3.into();
    let put = api
        .send("PUT", "/plugins", made.clone())
        .await
        .expect(200)
        .json();
    assert_eq!(put["id"], made["id"]);
    assert_eq!(put["config"]["leeway"], 3);
}

#[tokio::test]
async fn what_files_declare_is_shown_and_not_written() {
    let file = "_format_version: \"3.0\"\nservices:\n- name: s\n  host: h\n  \
                routes: [{name: r, paths: [/a]}]\n";
    let api = Api::with(file, None).await;
    assert_eq!(api.get("/services/s").await.expect(200).json()["host"], "h");
    for (method, path) in [
        ("PATCH", "/services/s"),
        ("PUT", "/services/s"),
        ("DELETE", "/services/s"),
        ("DELETE", "/services/s/routes/r"),
        ("DELETE", "/routes/r"),
        ("PATCH", "/routes/r/service"),
    ] {
        let reply = api
            .send(method, path, json!({"host":"x"}))
            .await
            .expect(409);
        assert_eq!(
            reply.json(),
            json!({
                "code": 12, "name": "operation unsupported",
                "message": "this entity is declared in conf/routes.yaml; change it there",
                "fields": {"@declared_in": "conf/routes.yaml"}
            }),
            "{method} {path}"
        );
    }
    let twin = api.post("/services", json!({"name":"s","host":"h"})).await;
    assert_eq!(
        twin.refusal(),
        (
            409,
            "UNIQUE violation detected on '{name=\"s\"}'".to_owned()
        )
    );
    // What is not declared can be added to it.
    api.post(
        "/services/s/plugins",
        json!({"name":"openid-connect","config":{"issuer":"http://i"}}),
    )
    .await
    .expect(201);
}

#[tokio::test]
async fn parallel_updates_lose_nothing() {
    let api = Arc::new(Api::with_route().await);
    let mut tasks = tokio::task::JoinSet::new();
    for (field, value) in [
        ("retries", json!(1)),
        ("port", json!(81)),
        ("read_timeout", json!(5)),
        ("write_timeout", json!(6)),
        ("path", json!("/p")),
        ("tags", json!(["t"])),
    ] {
        let api = api.clone();
        tasks.spawn(async move {
            api.send("PATCH", "/services/s", json!({field: value}))
                .await
                .expect(200);
        });
    }
    tasks.join_all().await;
    let service = api.get("/services/s").await.json();
    assert_eq!(service["retries"], 1);
    assert_eq!(service["port"], 81);
    assert_eq!(service["read_timeout"], 5);
    assert_eq!(service["write_timeout"], 6);
    assert_eq!(service["path"], "/p");
    assert_eq!(service["tags"], json!(["t"]));
}

#[tokio::test]
async fn a_service_takes_a_url() {
    let api = Api::new().await;
    let made = api
        .form("POST", "/services", "name=s&url=https://a.b/c")
        .await
        .expect(201)
        .json();
    assert_eq!(
        json!([made["protocol"], made["host"], made["port"], made["path"]]),
        json!(["https", "a.b", 443, "/c"])
    );
    assert!(made.get("url").is_none());
    let other_path = json!({"url": "/d"});
    let refused = api.send("PATCH", "/services/s", other_path).await;
    refused.expect(400);
    let patched = api
        .send("PATCH", "/services/s", json!({"url":"http://d:81"}))
        .await
        .expect(200)
        .json();
    assert_eq!(
        json!([
            patched["protocol"],
            patched["host"],
            patched["port"],
            patched["path"]
        ]),
        json!(["http", "d", 81, null])
    );
}

#[tokio::test]
async fn an_internal_upstream_must_exist() {
    let api = Api::new().await;
    api.post("/services", json!({"url":"internal://echo"}))
        .await
        .expect(201);
    assert_eq!(
        api.post("/services", json!({"url":"internal://nope"}))
            .await
            .refusal(),
        (
            400,
            "schema violation (host: expected one of: echo)".to_owned()
        )
    );
}
