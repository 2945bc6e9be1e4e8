//! Credentials that are made through the Admin API.

use super::*;

/// Admin listeners without and with the setting of who needs secrets shown.
const HIDING: &str = r#"{listen: "@ADMIN@"}"#;
const SHOWING: &str = r#"{listen: "@ADMIN@", show_credentials: true}"#;

/// A door whose service needs a key, and the consumers anna and bert.
async fn managed(upstream: &Upstream, admin: &str) -> Door {
    let door = Setup::new().admin(admin).start().await;
    door.expose("api", &upstream.url(""), "api.test").await;
    for plugin in ["key-auth", "basic-auth"] {
        let plugin = json!({"name": plugin, "config": {"anonymous": "nobody"}});
        door.admin_post("/services/api/plugins", &plugin)
            .await
            .expect(201);
    }
    let closed = json!({"name": "request-termination", "config": {"status_code": 401}});
    for name in ["anna", "bert", "nobody"] {
        door.admin_post("/consumers", &json!({"username": name}))
            .await
            .expect(201);
    }
    door.admin_post("/consumers/nobody/plugins", &closed)
        .await
        .expect(201);
    door
}

async fn knock(door: &Door, name: &str, value: &str) -> Answer {
    let request = http::client().get(door.proxy_url("/"));
    let request = request.header("host", "api.test").header(name, value);
    http::send(request).await
}

#[tokio::test]
async fn keys_of_the_admin_api_work_and_are_shown_once() {
    let upstream = Upstream::echo().await;
    let door = managed(&upstream, HIDING).await;
    let made = door
        .admin_post("/consumers/anna/key-auth", &json!({}))
        .await
        .expect(201)
        .json();
    let key = made["key"].as_str().expect("a key").to_owned();
    assert_eq!(key.len(), 32);
    knock(&door, "apikey", &key).await.expect(200);
    let id = made["id"].as_str().expect("an id");
    for path in [
        format!("/consumers/anna/key-auth/{id}"),
        format!("/consumers/anna/key-auth/{key}"),
        format!("/key-auths/{key}"),
    ] {
        let shown = door.admin_get(&path).await.expect(200).json();
        assert_eq!((&shown["id"], &shown["key"]), (&json!(id), &json!("**")));
    }
    // Another consumer's, and somebody's who is gone.
    let other = format!("/consumers/bert/key-auth/{id}");
    door.admin_get(&other).await.expect(404);
    let owner = door.admin_get(&format!("/key-auths/{key}/consumer")).await;
    assert_eq!(owner.expect(200).json()["username"], "anna");
    let twice = door
        .admin_post("/consumers/bert/key-auth", &json!({"key": key}))
        .await
        .expect(409);
    assert!(!twice.body.contains(&key), "{}", twice.body);
    // What is read can be written back.
    let back = json!({"key": "**", "tags": ["a"]});
    let path = format!("/consumers/anna/key-auth/{id}");
    door.admin_json(Method::PUT, &path, &back).await.expect(200);
    knock(&door, "apikey", &key).await.expect(200);
    door.admin_delete("/consumers/anna").await.expect(204);
    knock(&door, "apikey", &key).await.expect(401);
    door.admin_get(&format!("/key-auths/{id}"))
        .await
        .expect(404);
    assert!(!door.log_text().contains(&key));
}

#[tokio::test]
async fn keys_end_with_their_time_and_survive_a_restart_before() {
    let upstream = Upstream::echo().await;
    let mut door = managed(&upstream, HIDING).await;
    for (key, ttl) in [("short", 1), ("long", 600)] {
        let body = json!({"key": key, "ttl": ttl});
        let made = door.admin_post("/consumers/anna/key-auth", &body).await;
        let left = made.expect(201).json()["ttl"].as_i64();
        assert_eq!(left, Some(ttl));
    }
    tokio::time::sleep(std::time::Duration::from_millis(2100)).await;
    knock(&door, "apikey", "short").await.expect(401);
    door.admin_get("/key-auths/short").await.expect(404);
    let list = door.admin_get("/key-auths").await.expect(200).json();
    assert_eq!(list["data"].as_array().map(Vec::len), Some(1));
    // The name is free again.
    let again = json!({"key": "short"});
    door.admin_post("/consumers/bert/key-auth", &again)
        .await
        .expect(201);
    door.kill();
    door.start().await;
    for key in ["short", "long"] {
        knock(&door, "apikey", key).await.expect(200);
    }
    let path = "/key-auths/long";
    let forever = json!({"ttl": 0});
    let made = door.admin_json(Method::PATCH, path, &forever).await;
    assert_eq!(made.expect(200).json()["ttl"], Value::Null);
}

#[tokio::test]
async fn passwords_are_stored_as_hashes_and_guessing_them_is_braked() {
    let upstream = Upstream::echo().await;
    let door = managed(&upstream, SHOWING).await;
    let made = door
        .admin_post(
            "/consumers/anna/basic-auth",
            &json!({"username": "anna", "password": "open sesame"}),
        )
        .await
        .expect(201)
        .json();
    let hash = made["password"].as_str().expect("a hash");
    assert!(hash.starts_with("$argon2id$"), "{hash}");
    let right = basic("anna", "open sesame");
    for _ in 0..3 {
        knock(&door, "authorization", &right).await.expect(200);
    }
    // The hash is no password, but can be written back as one.
    let stolen = basic("anna", hash);
    knock(&door, "authorization", &stolen).await.expect(401);
    let body = json!({"username": "anna", "password": hash, "tags": ["a"]});
    let path = format!(
        "/consumers/anna/basic-auth/{}",
        made["id"].as_str().unwrap_or("")
    );
    let put = door.admin_json(Method::PUT, &path, &body).await.expect(200);
    assert_eq!(put.json()["password"], hash);
    knock(&door, "authorization", &right).await.expect(200);
    for guess in 0..40 {
        let wrong = basic("anna", &guess.to_string());
        knock(&door, "authorization", &wrong).await.expect(401);
    }
    // Who is known already goes on.
    knock(&door, "authorization", &right).await.expect(200);
}

#[tokio::test]
async fn every_scheme_has_its_paths() {
    let upstream = Upstream::echo().await;
    let door = managed(&upstream, SHOWING).await;
    for (nested, flat, entity, body, key) in [
        (
            "key-auth",
            "key-auths",
            "keyauth_credentials",
            json!({"key": "k"}),
            "k",
        ),
        (
            "basic-auth",
            "basic-auths",
            "basicauth_credentials",
            json!({"username": "u", "password": "p"}),
            "u",
        ),
        (
            "jwt",
            "jwts",
            "jwt_secrets",
            json!({"key": "i", "tags": ["t"]}),
            "i",
        ),
        (
            "hmac-auth",
            "hmac-auths",
            "hmacauth_credentials",
            json!({"username": "h"}),
            "h",
        ),
        ("acls", "acls", "acls", json!({"group": "g"}), "g"),
    ] {
        let list = format!("/consumers/anna/{nested}");
        let made = door.admin_post(&list, &body).await.expect(201).json();
        let id = made["id"].as_str().expect("an id");
        assert!(made.get("updated_at").is_none(), "{made}");
        let item = format!("{list}/{key}");
        assert_eq!(door.admin_get(&item).await.expect(200).json(), made);
        let flat_item = format!("/{flat}/{id}");
        assert_eq!(door.admin_get(&flat_item).await.expect(200).json(), made);
        let owner = door.admin_get(&format!("{flat_item}/consumer")).await;
        assert_eq!(owner.expect(200).json()["username"], "anna");
        door.admin_post(&list, &body).await.expect(409);
        let alone = door
            .admin_post(&format!("/{flat}"), &body)
            .await
            .expect(400);
        assert_eq!(alone.json()["fields"]["consumer"], "required field missing");
        let tagged = json!({"tags": ["x"]});
        let patched = door.admin_json(Method::PATCH, &item, &tagged).await;
        assert_eq!(patched.expect(200).json()["tags"], json!(["x"]));
        let chosen = door.admin_get(&format!("/{flat}?tags=x")).await.json();
        assert_eq!(chosen["data"][0]["id"], id);
        door.admin_get(&format!("/schemas/{entity}"))
            .await
            .expect(200);
        door.admin_delete(&format!("{list}/none")).await.expect(404);
        door.admin_delete(&format!("/{flat}/none"))
            .await
            .expect(204);
        door.admin_delete(&item).await.expect(204);
        door.admin_json(Method::PUT, &item, &body).await.expect(200);
        door.admin_get(&item).await.expect(200);
    }
    door.admin_delete("/consumers/anna").await.expect(204);
    for flat in ["key-auths", "basic-auths", "jwts", "hmac-auths", "acls"] {
        let left = door.admin_get(&format!("/{flat}")).await.expect(200).json();
        assert_eq!(left["data"], json!([]), "{flat}");
    }
}

#[tokio::test]
async fn what_is_exported_is_read_back_with_its_hashes() {
    let upstream = Upstream::echo().await;
    let door = managed(&upstream, HIDING).await;
    let key = json!({"key": "annas-key"});
    door.admin_post("/consumers/anna/key-auth", &key)
        .await
        .expect(201);
    let login = json!({"username": "anna", "password": "open sesame"});
    door.admin_post("/consumers/anna/basic-auth", &login)
        .await
        .expect(201);
    let export = door.admin_get("/config").await.expect(200).json();
    let text = export["config"].as_str().expect("a document");
    assert!(!text.contains("annas-key") && !text.contains("open sesame"));
    door.admin_delete("/consumers/anna").await.expect(204);
    door.admin_post("/config", &json!({"config": text}))
        .await
        .expect(201);
    knock(&door, "apikey", "annas-key").await.expect(200);
    let right = basic("anna", "open sesame");
    knock(&door, "authorization", &right).await.expect(200);
}

#[tokio::test]
async fn the_declarative_tool_comes_to_rest() {
    let upstream = Upstream::echo().await;
    let door = managed(&upstream, SHOWING).await;
    let anna = door.admin_get("/consumers/anna").await.json()["id"].clone();
    let anna = anna.as_str().expect("an id");
    // Ids are the tool's, and what is not in its files is left to the gateway.
    for (number, (nested, flat, fields)) in [
        ("key-auth", "key-auths", json!({"key": "one"})),
        ("key-auth", "key-auths", json!({"key": "two"})),
        (
            "jwt",
            "jwts",
            json!({"key": "i", "secret": "s", "algorithm": "HS384"}),
        ),
        (
            "hmac-auth",
            "hmac-auths",
            json!({"username": "h", "secret": "s"}),
        ),
        ("acls", "acls", json!({"group": "g"})),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("6ba7b810-9dad-11d1-80b4-00c04fd430c{number}");
        let mut wanted = fields;
        wanted["id"] = json!(id);
        wanted["consumer"] = json!({"id": anna});
        wanted["tags"] = json!(["team"]);
        let path = format!("/consumers/{anna}/{nested}/{id}");
        door.admin_json(Method::PUT, &path, &wanted)
            .await
            .expect(200);
        let path = format!("/{flat}?size=1000&tags=team");
        let list = door.admin_get(&path).await.expect(200).json();
        let listed = list["data"].as_array().expect("a list");
        let there = listed.iter().find(|record| record["id"] == id);
        let there = there.expect("it is listed");
        for (field, value) in wanted.as_object().expect("an object") {
            assert_eq!(&there[field], value, "{nested} {field}");
        }
    }
}
