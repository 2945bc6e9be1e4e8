//! The plugins that authenticate consumers, seen through requests to the real
//! program: from one declarative file, and through the Admin API.

mod credentials;

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
