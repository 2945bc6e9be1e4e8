//! The Admin API: records, lists, updates, nested and flat forms.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Setup, Upstream, http};

#[tokio::test]
async fn a_service_record_has_every_field_and_default() {
    let door = Setup::new().start().await;
    let body = json!({"name": "users", "host": "127.0.0.1", "port": 9000,
                      "protocol": "http", "path": "/v1"});
    let answer = door.admin_post("/services/", &body).await.expect(201);
    assert!(
        answer
            .header("content-type")
            .starts_with("application/json")
    );
    let record = answer.json();
    for (field, value) in [
        ("name", json!("users")),
        ("host", json!("127.0.0.1")),
        ("port", json!(9000)),
        ("protocol", json!("http")),
        ("path", json!("/v1")),
        ("connect_timeout", json!(60000)),
        ("read_timeout", json!(60000)),
        ("write_timeout", json!(60000)),
        ("retries", json!(5)),
    ] {
        assert_eq!(record[field], value, "{field}");
    }
    assert_uuid(&record["id"]);
    assert_seconds(&record["created_at"]);
    assert_seconds(&record["updated_at"]);

    let id = record["id"].as_str().expect("an id");
    for key in [id, "users"] {
        let read = door
            .admin_get(&format!("/services/{key}"))
            .await
            .expect(200);
        assert_eq!(read.json(), record, "by {key}");
    }
}

#[tokio::test]
async fn a_route_record_has_every_field_and_default() {
    let door = Setup::new().start().await;
    let service = json!({"name": "users", "host": "127.0.0.1"});
    let service = door
        .admin_post("/services", &service)
        .await
        .expect(201)
        .json();
    let route = json!({"hosts": ["users.test"]});
    let record = door
        .admin_post("/services/users/routes", &route)
        .await
        .expect(201)
        .json();
    for (field, value) in [
        ("hosts", json!(["users.test"])),
        ("paths", Value::Null),
        ("methods", Value::Null),
        ("protocols", json!(["http", "https"])),
        ("strip_path", json!(true)),
        ("preserve_host", json!(false)),
        ("regex_priority", json!(0)),
        ("service", json!({"id": service["id"]})),
    ] {
        assert_eq!(record[field], value, "{field}");
    }
    assert_uuid(&record["id"]);
    assert_seconds(&record["created_at"]);
    assert_seconds(&record["updated_at"]);
}

#[tokio::test]
async fn the_openid_connect_form_gives_a_record_with_every_default() {
    let door = Setup::new().start().await;
    let service = json!({"name": "users", "host": "127.0.0.1"});
    let service = door
        .admin_post("/services", &service)
        .await
        .expect(201)
        .json();
    let form = [
        ("name", "openid-connect"),
        ("config.client_id", "orders"),
        ("config.client_secret", "orders-secret"),
        ("config.ssl_verify", "false"),
        ("config.issuer", &door.proxy_url("/oauth2")),
        ("config.scopes", "openid"),
    ];
    let answer = door.admin_form("/services/users/plugins/", &form).await;
    let record = answer.expect(201).json();
    assert_uuid(&record["id"]);
    assert_eq!(record["name"], "openid-connect");
    assert_eq!(record["service_id"], service["id"]);
    assert_eq!(record["enabled"], true);
    let created = record["created_at"].as_i64().expect("an integer");
    assert!(created > 1_600_000_000_000, "milliseconds: {created}");

    let config = &record["config"];
    assert_eq!(config["client_id"], json!(["orders"]));
    assert_eq!(config["client_secret"], json!(["orders-secret"]));
    assert_eq!(config["issuer"], door.proxy_url("/oauth2"));
    assert_eq!(config["scopes"], json!(["openid"]));
    assert_eq!(config["ssl_verify"], false);
    for (field, value) in plugin_defaults().as_object().expect("an object") {
        assert_eq!(&config[field], value, "{field}");
    }
}

/// The table of interface 2.7.
fn plugin_defaults() -> Value {
    serde_yaml::from_str(
        r#"
auth_methods: [password, client_credentials, authorization_code, bearer,
               introspection, kong_oauth2, refresh_token, session]
login_methods: [authorization_code]
login_tokens: [id_token]
login_action: upstream
login_redirect_mode: fragment
logout_methods: [POST, DELETE]
logout_revoke: false
response_mode: query
bearer_token_param_type: [header, query, body]
client_credentials_param_type: [header, query, body]
id_token_param_type: [header, query, body]
password_param_type: [header, query, body]
client_arg: client_id
scopes_claim: [scope]
credential_claim: [sub]
audience_claim: [aud]
consumer_by: [username, custom_id]
consumer_optional: false
jwt_session_claim: sid
introspection_hint: access_token
introspect_jwt_tokens: false
upstream_access_token_header: authorization:bearer
hide_credentials: false
verify_parameters: true
verify_nonce: true
verify_signature: true
verify_claims: true
reverify: false
leeway: 0
run_on_preflight: true
cache_tokens: true
cache_token_exchange: true
cache_user_info: true
cache_introspection: true
cache_ttl: 3600
rediscovery_lifetime: 300
timeout: 10000
keepalive: true
http_version: 1.1
forbidden_error_message: Forbidden
unauthorized_error_message: Unauthorized
forbidden_destroy_session: true
session_storage: cookie
session_cookie_name: session
session_cookie_path: /
session_cookie_lifetime: 3600
session_cookie_samesite: Lax
session_cookie_httponly: true
authorization_cookie_name: authorization
authorization_cookie_path: /
authorization_cookie_lifetime: 600
authorization_cookie_samesite: "off"
authorization_cookie_httponly: true
session_memcache_host: 127.0.0.1
session_memcache_port: 11211
session_memcache_prefix: sessions
session_redis_host: 127.0.0.1
session_redis_port: 6379
session_redis_prefix: sessions
"#,
    )
    .expect("the table")
}

#[tokio::test]
async fn the_workspace_prefixed_form_is_the_same_record() {
    let door = Setup::new().start().await;
    let service = json!({"name": "users", "host": "127.0.0.1"});
    let made = door
        .admin_post("/default/services/", &service)
        .await
        .expect(201);
    let read = door.admin_get("/services/users").await.expect(200);
    assert_eq!(made.json(), read.json());
    let unknown = door.admin_get("/nowhere/services").await.expect(404).json();
    assert_eq!(unknown["message"], "Workspace 'nowhere' not found");
}

#[tokio::test]
async fn a_list_is_read_page_by_page_without_loss() {
    let door = Setup::new().start().await;
    for n in 0..5 {
        let service = json!({"name": format!("s{n}"), "host": "127.0.0.1"});
        door.admin_post("/services", &service).await.expect(201);
    }
    let mut names = Vec::new();
    let mut path = "/services?size=2".to_owned();
    loop {
        let page = door.admin_get(&path).await.expect(200).json();
        let data = page["data"].as_array().expect("a list").clone();
        assert!(data.len() <= 2);
        names.extend(data.iter().map(|s| s["name"].to_string()));
        let Some(next) = page["next"].as_str() else {
            assert!(page.get("offset").is_none(), "no offset on the last page");
            break;
        };
        assert!(page["offset"].is_string());
        path = next.to_owned();
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 5, "{names:?}");
}

#[tokio::test]
async fn patch_merges_and_put_replaces() {
    let door = Setup::new().start().await;
    let body = json!({"name": "users", "host": "127.0.0.1", "path": "/v1", "retries": 1});
    let made = door.admin_post("/services", &body).await.expect(201).json();

    let patch = json!({"retries": 3});
    let patched = door
        .admin_json(Method::PATCH, "/services/users", &patch)
        .await
        .expect(200)
        .json();
    assert_eq!(patched["retries"], 3);
    assert_eq!(patched["path"], "/v1");
    assert_eq!(patched["id"], made["id"]);

    let put = json!({"host": "127.0.0.2"});
    let replaced = door
        .admin_json(Method::PUT, "/services/users", &put)
        .await
        .expect(200)
        .json();
    assert_eq!(replaced["name"], "users");
    assert_eq!(replaced["host"], "127.0.0.2");
    assert_eq!(replaced["path"], Value::Null);
    assert_eq!(replaced["retries"], 5);

    let id = "7f1f21bd-4a5e-4a0c-8e3c-0f6f3b0b7c11";
    let put = json!({"name": "made-by-put", "host": "127.0.0.1"});
    let path = format!("/services/{id}");
    let made = door.admin_json(Method::PUT, &path, &put).await.expect(200);
    assert_eq!(made.json()["id"], id);
}

#[tokio::test]
async fn delete_is_idempotent_and_refuses_what_is_referenced() {
    let door = Setup::new().start().await;
    door.expose("users", "http://127.0.0.1:9", "users.test")
        .await;
    let refused = door
        .admin_delete("/services/users")
        .await
        .expect(400)
        .json();
    assert_eq!(refused["code"], 4);

    let routes = door
        .admin_get("/services/users/routes")
        .await
        .expect(200)
        .json();
    let route = routes["data"][0]["id"].as_str().expect("an id").to_owned();
    for _ in 0..2 {
        door.admin_delete(&format!("/routes/{route}"))
            .await
            .expect(204);
    }
    door.admin_delete("/services/users").await.expect(204);
    let missing = door.admin_get("/services/users").await.expect(404).json();
    assert_eq!(missing["message"], "Not found");
}

#[tokio::test]
async fn a_plugin_can_be_made_under_a_route_a_service_or_flat() {
    let door = Setup::new().start().await;
    door.expose("users", "http://127.0.0.1:9", "users.test")
        .await;
    let service = door.admin_get("/services/users").await.json()["id"].clone();
    let route = door.admin_get("/services/users/routes").await.json()["data"][0]["id"].clone();
    let config = json!({"rate": {"numberOfRequests": 6, "duration": "10 s"}});
    let plugin = json!({"name": "throttling", "config": config});

    let path = format!("/routes/{}/plugins", route.as_str().expect("an id"));
    let on_route = door.admin_post(&path, &plugin).await.expect(201).json();
    assert_eq!(on_route["route"]["id"], route);
    let on_service = door.admin_post("/services/users/plugins", &plugin).await;
    let on_service = on_service.expect(201).json();
    assert_eq!(on_service["service_id"], service);
    let twice = door
        .admin_post("/services/users/plugins", &plugin)
        .await
        .expect(409);
    assert_eq!(twice.json()["name"], "unique constraint violation");
    let global = door
        .admin_post("/plugins", &plugin)
        .await
        .expect(201)
        .json();
    assert_eq!(global["service"], Value::Null);

    let all = door.admin_get("/plugins").await.expect(200).json();
    assert_eq!(all["data"].as_array().map(Vec::len), Some(3));
    let path = format!(
        "/services/users/plugins/{}",
        on_service["id"].as_str().expect("an id")
    );
    door.admin_get(&path).await.expect(200);
    let foreign = format!(
        "/services/identity/plugins/{}",
        on_service["id"].as_str().expect("an id")
    );
    door.admin_get(&foreign).await.expect(404);
}

#[tokio::test]
async fn forms_spell_lists_and_nested_fields() {
    let door = Setup::new().start().await;
    let service = [
        ("name", "users"),
        ("url", "https://127.0.0.1/base"),
        ("retries", "2"),
    ];
    let service = door
        .admin_form("/services", &service)
        .await
        .expect(201)
        .json();
    assert_eq!(service["protocol"], "https");
    assert_eq!(service["port"], 443);
    assert_eq!(service["path"], "/base");
    assert_eq!(service["retries"], 2);
    assert!(service.get("url").is_none(), "url is a shorthand");

    let route = [
        ("hosts[]", "a.test"),
        ("hosts[]", "b.test"),
        ("methods", "GET"),
        ("strip_path", "false"),
    ];
    let route = door.admin_form("/services/users/routes", &route).await;
    let route = route.expect(201).json();
    assert_eq!(route["hosts"], json!(["a.test", "b.test"]));
    assert_eq!(route["methods"], json!(["GET"]));
    assert_eq!(route["strip_path"], false);

    let plugin = [
        ("name", "throttling"),
        ("config.rate.numberOfRequests", "6"),
        ("config.rate.duration", "10 s"),
    ];
    let plugin = door.admin_form("/services/users/plugins", &plugin).await;
    let config = plugin.expect(201).json()["config"].clone();
    assert_eq!(config["rate"]["numberOfRequests"], 6);
    assert_eq!(config["rate"]["duration"], "10 s");
}

#[tokio::test]
async fn what_a_file_declares_is_changed_in_the_file() {
    let door = Setup::new().start().await;
    let declared = door
        .admin_get("/services/identity")
        .await
        .expect(200)
        .json();
    assert_eq!(declared["protocol"], "internal");
    let patch = json!({"retries": 1});
    let refused = door
        .admin_json(Method::PATCH, "/services/identity", &patch)
        .await;
    let refused = refused.expect(409).json();
    let message = refused["message"].as_str().expect("a message");
    assert!(message.contains("routes.yaml"), "{message}");
    door.admin_delete("/services/identity").await.expect(409);
    let taken = json!({"name": "identity", "host": "127.0.0.1"});
    door.admin_post("/services", &taken).await.expect(409);
}

#[tokio::test]
async fn unknown_paths_and_methods_have_their_answers() {
    let door = Setup::new().start().await;
    let answer = door.admin_get("/services/x/y/z").await.expect(404).json();
    assert_eq!(answer["message"], "Not found");
    let answer = door.admin_delete("/services").await.expect(405).json();
    assert_eq!(answer["message"], "Method not allowed");
    let url = door.admin_url("/services");
    let options = http::send(http::client().request(Method::OPTIONS, url)).await;
    let options = options.expect(204);
    assert!(
        options.header("allow").contains("POST"),
        "{:?}",
        options.headers
    );
    let root = door.admin_get("/").await.expect(200);
    assert!(!root.header("server").is_empty());
    let version = root.json()["version"].as_str().map(str::to_owned);
    let version = version.expect("a version");
    assert!(
        version.starts_with(|c: char| c.is_ascii_digit()),
        "{version}"
    );
}

#[tokio::test]
async fn a_change_is_in_force_for_the_next_request() {
    let upstream = Upstream::echo().await;
    let door = Setup::new().start().await;
    for round in 0..20 {
        let host = format!("h{round}.test");
        door.expose(&format!("s{round}"), &upstream.url(""), &host)
            .await;
        door.get(&host, "/").await.expect(200);
    }
}

#[tokio::test]
async fn a_web_page_cannot_drive_the_admin_api() {
    let door = Setup::new().start().await;
    let service = json!({"name": "planted", "host": "127.0.0.1"});
    let url = door.admin_url("/services");
    for (header, value) in [
        ("host", "evil.example:8001"),
        ("origin", "http://evil.example"),
    ] {
        let request = http::client()
            .post(&url)
            .json(&service)
            .header(header, value);
        let answer = http::send(request).await;
        assert!(
            (400..500).contains(&answer.status),
            "{header}: {}",
            answer.status
        );
    }
    door.admin_get("/services/planted").await.expect(404);
}

fn assert_uuid(value: &Value) {
    let text = value.as_str().expect("an id");
    assert!(uuid::Uuid::parse_str(text).is_ok(), "{text}");
}

fn assert_seconds(value: &Value) {
    let seconds = value.as_i64().expect("an integer");
    assert!(
        (1_600_000_000..10_000_000_000).contains(&seconds),
        "{seconds}"
    );
}
