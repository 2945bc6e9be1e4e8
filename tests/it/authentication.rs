//! The plugins that authenticate consumers, seen through requests to the real
//! program: from one declarative file, and through the Admin API.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::DateTime;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Door, Setup, Upstream, http};
use doorward_core::clock::Clock;

/// A route for each plugin, named like it, and consumers with their credentials.
const FILE: &str = r#"
- name: guarded
  url: @UPSTREAM@
  routes:
  - name: open
    paths: [/open]
  - name: key-auth
    paths: [/key-auth]
    plugins:
    - {name: key-auth, config: {key_names: [apikey, x-key], hide_credentials: true, realm: keys}}
  - name: basic-auth
    paths: [/basic-auth]
    plugins:
    - {name: basic-auth, config: {hide_credentials: true}}
  - name: jwt
    paths: [/jwt]
    plugins:
    - {name: jwt, config: {claims_to_verify: [exp]}}
  - name: hmac-auth
    paths: [/hmac-auth]
    plugins:
    - {name: hmac-auth, config: {enforce_headers: [date, request-line], validate_request_body: true}}
  - name: acl
    paths: [/acl]
    plugins:
    - {name: key-auth}
    - {name: acl, config: {allow: [admins]}}
  - name: either
    paths: [/either]
    plugins:
    - {name: key-auth, config: {anonymous: nobody}}
    - {name: basic-auth, config: {anonymous: nobody}}
  - name: session
    paths: [/session]
    plugins:
    - {name: session, config: {secret: "of some length", cookie_secure: false}}
    - {name: key-auth, config: {anonymous: nobody}}
  - name: both
    paths: [/both]
    plugins:
    - {name: key-auth}
    - {name: basic-auth}
consumers:
- username: anna
  custom_id: a-1
  keyauth_credentials:
  - {key: annas-key}
  basicauth_credentials:
  - {username: anna, password: "pass:word"}
  jwt_secrets:
  - {key: annas-issuer, secret: annas-secret}
  hmacauth_credentials:
  - {username: anna, secret: annas-secret}
  acls:
  - {group: admins}
  - {group: people}
- username: bert
  keyauth_credentials:
  - {key: berts-key}
  basicauth_credentials:
  - {username: bert, password: secret}
- username: nobody
  plugins:
  - {name: request-termination, config: {status_code: 418, message: "sign in", trigger: strict}}
acls:
- {consumer: bert, group: people}
"#;

async fn door() -> (Door, Upstream) {
    let upstream = Upstream::echo().await;
    let file = FILE.replace("@UPSTREAM@", &upstream.url(""));
    let door = Setup::new().services(&file).start().await;
    (door, upstream)
}

fn basic(name: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
}

fn message(answer: &Answer) -> Value {
    answer.json()["message"].clone()
}

#[tokio::test]
async fn every_plugin_of_one_file_does_what_it_is_for() {
    let (door, upstream) = door().await;
    key_auth(&door, &upstream).await;
    basic_auth(&door, &upstream).await;
    jwt(&door, &upstream).await;
    hmac_auth(&door).await;
    acl(&door, &upstream).await;
    several(&door, &upstream).await;
    session(&door, &upstream).await;
}

#[tokio::test]
async fn nobody_claims_to_be_a_consumer_where_no_plugin_asks() {
    let (door, upstream) = door().await;
    let spoofed = [
        ("x-consumer-username", "root"),
        ("x_consumer_id", "root"),
        ("x-credential-identifier", "root"),
        ("x-authenticated-userid", "root"),
        ("x-consumer-groups", "admins"),
        ("x-mine", "stays"),
    ];
    door.get_with("/open", &spoofed).await.expect(200);
    let seen = upstream.last();
    for (name, _) in &spoofed[..5] {
        assert!(seen.all(name).is_empty(), "{name}");
    }
    assert_eq!(seen.all("x-mine"), ["stays"]);
}

async fn key_auth(door: &Door, upstream: &Upstream) {
    let answer = door.get_with("/key-auth", &[]).await.expect(401);
    assert_eq!(answer.header("www-authenticate"), "Key realm=\"keys\"");
    assert_eq!(message(&answer), "No API key found in request");
    let spoofed = [
        ("apikey", "annas-key"),
        ("x-consumer-username", "root"),
        ("x_consumer_id", "root"),
        ("x-anonymous-consumer", "true"),
        ("x-consumer-groups", "admins"),
        ("x-authenticated-groups", "admins"),
    ];
    door.get_with("/key-auth", &spoofed).await.expect(200);
    let seen = upstream.last();
    assert_eq!(seen.all("x-consumer-username"), ["anna"]);
    assert_eq!(seen.all("x-consumer-custom-id"), ["a-1"]);
    assert_eq!(seen.all("x-consumer-id").len(), 1);
    assert_eq!(seen.all("x-credential-identifier")[0].len(), 36);
    for name in [
        "apikey",
        "x_consumer_id",
        "x-anonymous-consumer",
        "x-consumer-groups",
        "x-authenticated-groups",
    ] {
        assert!(seen.all(name).is_empty(), "{name}");
    }
    // The first place that has something counts, right or wrong.
    let path = "/key-auth?apikey=annas-key&a=1";
    door.get_with(path, &[("apikey", "wrong")])
        .await
        .expect(401);
    door.get_with(path, &[]).await.expect(200);
    assert_eq!(upstream.last().target, "/?a=1");
    let twice = "/key-auth?apikey=annas-key&apikey=annas-key";
    let answer = door.get_with(twice, &[]).await.expect(401);
    assert_eq!(message(&answer), "Duplicate API key found");
}

async fn basic_auth(door: &Door, upstream: &Upstream) {
    let answer = door.get_with("/basic-auth", &[]).await.expect(401);
    assert_eq!(answer.header("www-authenticate"), "Basic realm=\"service\"");
    assert_eq!(message(&answer), "Unauthorized");
    let right = basic("anna", "pass:word");
    door.get_with("/basic-auth", &[("authorization", &right)])
        .await
        .expect(200);
    let seen = upstream.last();
    assert_eq!(seen.all("x-credential-identifier"), ["anna"]);
    assert!(seen.all("authorization").is_empty());
    for (name, password) in [("anna", "pass"), ("nobody", "pass:word"), ("", "")] {
        let wrong = basic(name, password);
        door.get_with("/basic-auth", &[("authorization", &wrong)])
            .await
            .expect(401);
    }
}

fn token(algorithm: Algorithm, claims: &Value, secret: &str) -> String {
    let key = EncodingKey::from_secret(secret.as_bytes());
    jsonwebtoken::encode(&Header::new(algorithm), claims, &key).expect("a token")
}

async fn jwt(door: &Door, upstream: &Upstream) {
    let bearer = |token: &str| format!("Bearer {token}");
    let ask = async |token: &str| {
        let value = bearer(token);
        door.get_with("/jwt", &[("authorization", &value)]).await
    };
    let answer = door.get_with("/jwt", &[]).await.expect(401);
    assert_eq!(answer.header("www-authenticate"), "Bearer");
    assert_eq!(answer.body, r#"{"message":"Unauthorized"}"#);
    let now = Clock::system().now_secs();
    let claims = json!({"iss": "annas-issuer", "exp": now + 600});
    let good = token(Algorithm::HS256, &claims, "annas-secret");
    ask(&good).await.expect(200);
    let seen = upstream.last();
    assert_eq!(seen.all("x-credential-identifier"), ["annas-issuer"]);
    assert_eq!(seen.all("authorization"), [bearer(&good)]);
    door.get_with(&format!("/jwt?jwt={good}"), &[])
        .await
        .expect(200);
    let over = json!({"iss": "annas-issuer", "exp": now - 1});
    let answer = ask(&token(Algorithm::HS256, &over, "annas-secret")).await;
    assert_eq!(answer.expect(401).body, r#"{"exp":"token expired"}"#);
    for (token, text) in [
        (
            token(Algorithm::HS256, &claims, "other"),
            "Invalid signature",
        ),
        (
            token(Algorithm::HS512, &claims, "annas-secret"),
            "Invalid algorithm",
        ),
        ("a.b".to_owned(), "Bad token; invalid JSON"),
    ] {
        let answer = ask(&token).await.expect(401);
        assert_eq!(message(&answer), text);
        assert_eq!(
            answer.header("www-authenticate"),
            "Bearer error=\"invalid_token\""
        );
    }
}

/// The header of a signed request.
fn signed(secret: &str, date: &str, line: &str) -> String {
    let text = format!("date: {date}\n{line}");
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = STANDARD.encode(hmac::sign(&key, text.as_bytes()));
    format!(
        "hmac username=\"anna\", algorithm=\"hmac-sha256\", headers=\"date request-line\", \
         signature=\"{signature}\""
    )
}

async fn hmac_auth(door: &Door) {
    let date = |seconds: i64| {
        let time = Clock::system().now_secs() + seconds;
        let time = DateTime::from_timestamp(time, 0).expect("a time");
        time.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
    };
    let now = date(0);
    let right = signed("annas-secret", &now, "GET /hmac-auth?a=b HTTP/1.1");
    let ask = async |path: &str, date: &str, value: &str| {
        door.get_with(path, &[("date", date), ("authorization", value)])
            .await
    };
    ask("/hmac-auth?a=b", &now, &right).await.expect(200);
    // The same signature for something else, with another date, or too late.
    for (path, date) in [("/hmac-auth?a=c", &now), ("/hmac-auth?a=b", &date(-5))] {
        let answer = ask(path, date, &right).await.expect(401);
        assert_eq!(message(&answer), "HMAC signature does not match");
    }
    let old = date(-301);
    let late = signed("annas-secret", &old, "GET /hmac-auth?a=b HTTP/1.1");
    let answer = ask("/hmac-auth?a=b", &old, &late).await.expect(401);
    assert_eq!(answer.header("www-authenticate"), "hmac");
    let told = message(&answer);
    assert!(
        told.as_str()
            .is_some_and(|text| text.contains("a valid date"))
    );
}

async fn acl(door: &Door, upstream: &Upstream) {
    door.get_with("/acl", &[]).await.expect(401);
    door.get_with("/acl", &[("apikey", "annas-key")])
        .await
        .expect(200);
    assert_eq!(upstream.last().all("x-consumer-groups"), ["admins, people"]);
    let forged = [("apikey", "berts-key"), ("x-consumer-groups", "admins")];
    let answer = door.get_with("/acl", &forged).await.expect(403);
    assert_eq!(message(&answer), "You cannot consume this service");
}

async fn several(door: &Door, upstream: &Upstream) {
    // One of several is enough, and a plugin of the anonymous consumer is not one of
    // whoever turns out to be somebody.
    let right = basic("anna", "pass:word");
    door.get_with("/either?strict", &[]).await.expect(418);
    door.get_with("/either", &[]).await.expect(200);
    assert_eq!(upstream.last().all("x-anonymous-consumer"), ["true"]);
    for header in [("apikey", "annas-key"), ("authorization", &right)] {
        door.get_with("/either?strict", &[header]).await.expect(200);
        let seen = upstream.last();
        assert_eq!(seen.all("x-consumer-username"), ["anna"]);
        assert!(seen.all("x-anonymous-consumer").is_empty());
    }
    // Of those that are all needed the last one decides.
    let key = ("apikey", "berts-key");
    door.get_with("/both", &[key]).await.expect(401);
    door.get_with("/both", &[key, ("authorization", &right)])
        .await
        .expect(200);
    assert_eq!(upstream.last().all("x-consumer-username"), ["anna"]);
}

async fn session(door: &Door, upstream: &Upstream) {
    let answer = door.get_with("/session?strict", &[]).await.expect(418);
    assert!(!answer.headers.contains_key("set-cookie"));
    let answer = door.get_with("/session", &[("apikey", "annas-key")]).await;
    let answer = answer.expect(200);
    let (cookie, _) = answer
        .header("set-cookie")
        .split_once(';')
        .expect("a cookie");
    door.get_with("/session?strict", &[("cookie", cookie)])
        .await
        .expect(200);
    let seen = upstream.last();
    assert_eq!(seen.all("x-consumer-username"), ["anna"]);
    assert!(seen.all("cookie").is_empty());
    let logout = http::client().delete(door.proxy_url("/session?session_logout"));
    let answer = http::send(logout.header("cookie", cookie))
        .await
        .expect(200);
    assert!(answer.header("set-cookie").contains("Max-Age=0"));
}

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
