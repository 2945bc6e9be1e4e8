//! Each field of the plugins that guard a route, as the imitated gateway documents it:
//! statuses, bodies, challenges and what the upstream gets, from the real program.

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Door, Reply, Setup, Upstream, eventually, http, raw};
use doorward_core::clock::Clock;

const FILE: &str = r#"
- name: guarded
  url: @UPSTREAM@
  routes:
  - name: places
    paths: [/places]
    plugins:
    - name: jwt
      config: {uri_param_names: [t, u], cookie_names: [c], header_names: [x-token, authorization], realm: r}
  - name: kid
    paths: [/kid]
    plugins: [{name: jwt, config: {key_claim_name: kid}}]
  - name: base64
    paths: [/base64]
    plugins: [{name: jwt, config: {secret_is_base64: true}}]
  - name: times
    paths: [/times]
    plugins: [{name: jwt, config: {claims_to_verify: [exp, nbf], maximum_expiration: 100}}]
  - name: untimed
    paths: [/untimed]
    plugins: [{name: jwt}]
  - name: nobody
    paths: [/nobody]
    plugins: [{name: jwt, config: {anonymous: nobody, run_on_preflight: false}}]
  - name: nowhere
    paths: [/nowhere]
    plugins: [{name: jwt, config: {anonymous: missing}}]
  - name: options
    paths: [/options]
    plugins: [{name: jwt, config: {run_on_preflight: false}}]
  - name: keys
    paths: [/keys]
    plugins:
    - {name: key-auth, config: {key_names: [x_key, k], key_in_header: false, key_in_body: true, hide_credentials: true}}
  - name: key-options
    paths: [/key-options]
    plugins: [{name: key-auth, config: {run_on_preflight: false, realm: k}}]
  - name: denied
    paths: [/denied]
    plugins: [{name: key-auth}, {name: acl, config: {deny: [people], hide_groups_header: true}}]
  - name: remembered
    paths: [/remembered]
    plugins:
    - {name: key-auth, config: {anonymous: nobody}}
    - {name: session, config: {remember: true, remember_rolling_timeout: 3600}}
  - name: stored
    paths: [/stored]
    plugins:
    - {name: key-auth, config: {anonymous: nobody}}
    - name: session
      config: {storage: kong, request_headers: [id, subject], response_headers: [timeout]}
consumers:
- username: anna
  keyauth_credentials: [{key: annas-key}]
  jwt_secrets:
  - {key: hs, secret: c2VjcmV0}
  - {key: hs512, secret: long, algorithm: HS512}
  - {key: es, algorithm: ES256, rsa_public_key: "@ES@"}
  - {key: ed, algorithm: EdDSA, rsa_public_key: "@ED@"}
  acls: [{group: people}]
- username: bert
  keyauth_credentials: [{key: berts-key}]
- username: nobody
"#;

/// A door with the file, its upstream, and the keys of two credentials.
async fn door() -> (Door, Upstream, [KeyPair; 2]) {
    let upstream = Upstream::echo().await;
    let pair = |algorithm| KeyPair::generate_for(algorithm).expect("a key");
    let keys = [pair(&PKCS_ECDSA_P256_SHA256), pair(&PKCS_ED25519)];
    let line = |key: &KeyPair| {
        key.public_key_pem()
            .replace("\r\n", "\n")
            .replace('\n', "\\n")
    };
    let file = FILE
        .replace("@UPSTREAM@", &upstream.url(""))
        .replace("@ES@", &line(&keys[0]))
        .replace("@ED@", &line(&keys[1]));
    let door = Setup::new().services(&file).start().await;
    (door, upstream, keys)
}

fn hs(claims: &Value, secret: &[u8]) -> String {
    let key = EncodingKey::from_secret(secret);
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), claims, &key).expect("a token")
}

async fn bearer(door: &Door, path: &str, token: &str) -> Answer {
    let value = format!("Bearer {token}");
    door.get_with(path, &[("authorization", &value)]).await
}

async fn ask(door: &Door, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = http::client().request(method, door.proxy_url(path));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    http::send(request).await
}

/// A refusal of `jwt`: compact JSON without an identifier, and a challenge.
fn refused(answer: Answer, body: &str, challenge: &str) {
    let answer = answer.expect(401);
    assert_eq!(answer.body, body);
    assert_eq!(answer.header("www-authenticate"), challenge, "{body}");
    let json = "application/json; charset=utf-8";
    assert_eq!(answer.header("content-type"), json);
}

fn message(text: &str) -> String {
    json!({ "message": text }).to_string()
}

#[tokio::test]
async fn tokens_of_jwt_are_looked_for_in_every_place_that_is_named() {
    let (door, upstream, _) = door().await;
    let good = hs(&json!({"iss": "hs"}), b"c2VjcmV0");
    let bearer = format!("Bearer {good}");
    let cookie = format!("a=b; c={good}");
    let (first, second) = (format!("/places?t={good}"), format!("/places?u={good}"));
    for (path, headers) in [
        ("/places", vec![("authorization", bearer.as_str())]),
        ("/places", vec![("x-token", &bearer)]),
        ("/places", vec![("cookie", &cookie)]),
        (&first, vec![]),
        (&second, vec![("cookie", &cookie), ("x-token", &bearer)]),
    ] {
        door.get_with(path, &headers).await.expect(200);
        let seen = upstream.last();
        assert_eq!(seen.all("x-consumer-username"), ["anna"]);
        assert_eq!(seen.all("x-credential-identifier"), ["hs"]);
        assert!(seen.all("x-anonymous-consumer").is_empty());
        // The token goes on as it came.
        for (name, value) in headers {
            assert_eq!(seen.all(name), [value]);
        }
    }
    // The parameter of the default is none where others are named.
    let challenge = "Bearer realm=\"r\"";
    let nothing = message("Unauthorized");
    for path in ["/places".to_owned(), format!("/places?jwt={good}")] {
        refused(door.get_with(&path, &[]).await, &nothing, challenge);
    }
    for value in [
        good.as_str(),
        "Bearer",
        "Bearer ",
        "Basic x",
        &format!("Token {good}"),
    ] {
        let answer = door.get_with("/places", &[("authorization", value)]).await;
        refused(answer, &nothing, challenge);
    }
    let answer = door
        .get_with(&first, &[("authorization", "Bearer x.y.z")])
        .await;
    let several = message("Multiple tokens provided");
    let with_error = "Bearer realm=\"r\" error=\"invalid_token\"";
    refused(answer, &several, with_error);
}

#[tokio::test]
async fn each_step_of_jwt_refuses_in_the_imitated_words() {
    let (door, _upstream, [es, ed]) = door().await;
    let challenge = "Bearer error=\"invalid_token\"";
    let hs = |claims: Value| hs(&claims, b"c2VjcmV0");
    let good = hs(json!({"iss": "hs"}));
    let parts: Vec<&str> = good.split('.').collect();
    let none = "eyJhbGciOiJub25lIn0";
    for (token, text) in [
        ("x".to_owned(), "Bad token; invalid JSON"),
        (format!("{none}.{}.", parts[1]), "Bad token; invalid alg"),
        (
            format!("{}.W10.{}", parts[0], parts[2]),
            "Bad token; invalid claims",
        ),
        (
            format!("{}.{}.*", parts[0], parts[1]),
            "Bad token; invalid signature",
        ),
        (hs(json!({"sub": "hs"})), "No mandatory 'iss' in claims"),
        (hs(json!({"iss": ""})), "Invalid 'iss' in claims"),
        (
            hs(json!({"iss": "who"})),
            "No credentials found for given 'iss'",
        ),
        (hs(json!({"iss": "hs512"})), "Invalid algorithm"),
        (hs(json!({"iss": "es"})), "Invalid algorithm"),
        (
            format!("{}.{}.AAAA", parts[0], parts[1]),
            "Invalid signature",
        ),
    ] {
        let answer = bearer(&door, "/untimed", &token).await;
        refused(answer, &message(text), challenge);
    }
    // Good ones of other algorithms, and one whose signature has a wrong length.
    let signed = |algorithm, claims: &Value, key: &EncodingKey| {
        jsonwebtoken::encode(&Header::new(algorithm), claims, key).expect("a token")
    };
    let es = EncodingKey::from_ec_pem(es.serialize_pem().as_bytes()).expect("a key");
    let es = signed(Algorithm::ES256, &json!({"iss": "es"}), &es);
    let ed = EncodingKey::from_ed_pem(ed.serialize_pem().as_bytes()).expect("a key");
    let ed = signed(Algorithm::EdDSA, &json!({"iss": "ed"}), &ed);
    for token in [&es, &ed] {
        bearer(&door, "/untimed", token).await.expect(200);
        let short = token.get(..token.len() - 2).expect("a signature");
        let answer = bearer(&door, "/untimed", short).await;
        refused(answer, &message("Invalid signature"), challenge);
    }
}

#[tokio::test]
async fn jwt_finds_its_credential_and_judges_times_as_it_is_told() {
    let (door, _upstream, _) = door().await;
    let challenge = "Bearer error=\"invalid_token\"";
    // By another claim, which may stand in the head of the token.
    let mut header = Header::new(Algorithm::HS256);
    header.kid = Some("hs".to_owned());
    let key = EncodingKey::from_secret(b"c2VjcmV0");
    let of_head = jsonwebtoken::encode(&header, &json!({}), &key).expect("a token");
    bearer(&door, "/kid", &of_head).await.expect(200);
    let of_payload = hs(&json!({"kid": "hs"}), b"c2VjcmV0");
    bearer(&door, "/kid", &of_payload).await.expect(200);
    let answer = bearer(&door, "/kid", &hs(&json!({"iss": "hs"}), b"c2VjcmV0")).await;
    refused(answer, &message("No mandatory 'kid' in claims"), challenge);
    // Secrets in Base64 are what they stand for, and no longer themselves.
    let decoded = hs(&json!({"iss": "hs"}), b"secret");
    bearer(&door, "/base64", &decoded).await.expect(200);
    refused(
        bearer(&door, "/untimed", &decoded).await,
        &message("Invalid signature"),
        challenge,
    );
    // Times.
    let now = Clock::system().now_secs();
    for (exp, nbf, body) in [
        (json!(now + 60), json!(now - 1), None),
        (
            json!(now - 1),
            json!(now - 1),
            Some(r#"{"exp":"token expired"}"#),
        ),
        (
            json!(now + 60),
            json!(now + 60),
            Some(r#"{"nbf":"token not valid yet"}"#),
        ),
        (
            json!("soon"),
            Value::Null,
            Some(r#"{"nbf":"must be a number","exp":"must be a number"}"#),
        ),
        (
            json!(now + 1000),
            json!(now - 1),
            Some(r#"{"exp":"exceeds maximum allowed expiration"}"#),
        ),
    ] {
        let token = hs(&json!({"iss": "hs", "exp": exp, "nbf": nbf}), b"c2VjcmV0");
        bearer(&door, "/untimed", &token).await.expect(200);
        let answer = bearer(&door, "/times", &token).await;
        match body {
            None => drop(answer.expect(200)),
            Some(body) => refused(answer, body, challenge),
        }
    }
}

#[tokio::test]
async fn jwt_lets_in_whom_its_fields_say_without_a_token() {
    let (door, upstream, _) = door().await;
    let forged = [
        ("x-consumer-username", "root"),
        ("x-consumer-groups", "people"),
    ];
    let answer = door.get_with("/nobody", &forged).await.expect(200);
    assert_eq!(answer.header("www-authenticate"), "");
    let seen = upstream.last();
    assert_eq!(seen.all("x-consumer-username"), ["nobody"]);
    assert_eq!(seen.all("x-anonymous-consumer"), ["true"]);
    assert!(seen.all("x-credential-identifier").is_empty());
    bearer(&door, "/nobody", "x.y.z").await.expect(200);
    assert_eq!(upstream.last().all("x-anonymous-consumer"), ["true"]);
    let answer = bearer(&door, "/nowhere", "x.y.z").await.expect(500);
    assert_eq!(answer.json()["message"], "An unexpected error occurred");
    assert_eq!(answer.header("www-authenticate"), "");
    // OPTIONS, whatever it says of itself.
    ask(&door, Method::OPTIONS, "/options", &forged)
        .await
        .expect(200);
    let seen = upstream.last();
    for (name, _) in forged {
        assert!(seen.all(name).is_empty(), "{name}");
    }
    ask(&door, Method::OPTIONS, "/untimed", &[])
        .await
        .expect(401);
    door.get_with("/options", &[]).await.expect(401);
}

/// A refusal with a message and an identifier.
fn told(answer: Answer, status: u16, text: &str, challenge: &str) {
    let answer = answer.expect(status);
    assert_eq!(answer.json()["message"], text);
    assert_eq!(answer.json()["request_id"].as_str().map(str::len), Some(32));
    assert_eq!(answer.header("www-authenticate"), challenge, "{text}");
}

#[tokio::test]
async fn key_auth_reads_the_places_that_are_switched_on_and_hides_what_it_has_read() {
    let (door, upstream, _) = door().await;
    let none = "No API key found in request";
    told(
        door.get_with("/keys", &[("x_key", "annas-key")]).await,
        401,
        none,
        "Key",
    );
    told(door.get_with("/keys?x_key", &[]).await, 401, none, "Key");
    told(door.get_with("/keys?k=&a=1", &[]).await, 401, none, "Key");
    told(
        door.get_with("/keys?k=wrong", &[]).await,
        401,
        "Unauthorized",
        "Key",
    );
    let twice = "/keys?k=annas-key&k=annas-key";
    told(
        door.get_with(twice, &[]).await,
        401,
        "Duplicate API key found",
        "Key",
    );
    door.get_with("/keys?b=%20&k=annas-key&a=1", &[("k", "x")])
        .await
        .expect(200);
    let seen = upstream.last();
    assert_eq!(seen.target, "/?b=%20&a=1");
    assert!(seen.all("k").is_empty());
    for (content_type, body, rest) in [
        (
            "application/json",
            r#"{"a":1,"k":"annas-key"}"#,
            r#"{"a":1}"#,
        ),
        (
            "application/x-www-form-urlencoded",
            "k=annas-key&a=1",
            "a=1",
        ),
    ] {
        let request = http::client().post(door.proxy_url("/keys"));
        let request = request.header("content-type", content_type).body(body);
        let answer = http::send(request).await.expect(200);
        assert_eq!(answer.json()["body"], rest);
    }
    let path = "/key-options";
    ask(&door, Method::OPTIONS, path, &[]).await.expect(200);
    told(door.get_with(path, &[]).await, 401, none, "Key realm=\"k\"");
}

#[tokio::test]
async fn refusals_have_the_form_that_the_client_accepts() {
    let (door, _upstream, _) = door().await;
    for (accept, content_type, part) in [
        (
            "application/json",
            "application/json; charset=utf-8",
            "\"message\"",
        ),
        ("text/html", "text/html; charset=utf-8", "<html"),
        (
            "text/plain",
            "text/plain; charset=utf-8",
            "No API key found in request",
        ),
        (
            "application/xml",
            "application/xml; charset=utf-8",
            "<message>",
        ),
        (
            "image/png",
            "application/json; charset=utf-8",
            "\"message\"",
        ),
    ] {
        let answer = door.get_with("/denied", &[("accept", accept)]).await;
        let answer = answer.expect(401);
        assert_eq!(answer.header("content-type"), content_type, "{accept}");
        assert!(answer.body.contains(part), "{accept}: {}", answer.body);
    }
}

#[tokio::test]
async fn acl_denies_members_and_hides_groups() {
    let (door, upstream, _) = door().await;
    let anna = [("apikey", "annas-key"), ("x-consumer-groups", "others")];
    let answer = door.get_with("/denied", &anna).await;
    told(answer, 403, "You cannot consume this service", "");
    let bert = [("apikey", "berts-key"), ("x-consumer-groups", "people")];
    door.get_with("/denied", &bert).await.expect(200);
    assert!(upstream.last().all("x-consumer-groups").is_empty());
}

#[tokio::test]
async fn a_browser_that_is_remembered_needs_no_credential_until_it_signs_out() {
    let (door, upstream, _) = door().await;
    let known = [("apikey", "annas-key")];
    let given = cookies(&door.get_with("/remembered", &known).await.expect(200));
    let [session, remember] = given.as_slice() else {
        panic!("two cookies: {given:?}");
    };
    assert!(session.starts_with("session="), "{session}");
    let attributes: Vec<&str> = remember.split("; ").skip(1).collect();
    let [common @ .., expires, age] = attributes.as_slice() else {
        panic!("attributes: {remember}");
    };
    assert_eq!(common, ["Path=/", "SameSite=Strict", "Secure", "HttpOnly"]);
    assert!(expires.starts_with("Expires="), "{remember}");
    assert_eq!(*age, "Max-Age=3600");
    // The browser has ended since, and its session with it.
    let shown = remember.split(';').next().expect("a pair");
    let answer = door.get_with("/remembered", &[("cookie", shown)]).await;
    assert_eq!(cookies(&answer.expect(200)).len(), 2);
    let seen = upstream.last();
    assert_eq!(seen.all("x-consumer-username"), ["anna"]);
    assert!(seen.all("cookie").is_empty() && seen.all("x-anonymous-consumer").is_empty());
    let out = "/remembered?session_logout=1";
    let answer = ask(&door, Method::POST, out, &[("cookie", shown)]).await;
    let gone = cookies(&answer.expect(200));
    assert!(
        gone.len() == 1 && gone[0].starts_with("remember=;"),
        "{gone:?}"
    );
}

fn cookies(answer: &Answer) -> Vec<String> {
    let all = answer.headers.get_all("set-cookie").iter();
    let text = |value: &reqwest::header::HeaderValue| value.to_str().expect("text").to_owned();
    all.map(text).collect()
}

#[tokio::test]
async fn a_session_in_the_store_outlives_the_process_and_ends_where_operators_end_it() {
    let (mut door, upstream, _) = door().await;
    let known = [("apikey", "annas-key")];
    let answer = door.get_with("/stored", &known).await.expect(200);
    let given = cookies(&answer);
    let [cookie] = given.as_slice() else {
        panic!("one cookie: {given:?}");
    };
    let timeout: u64 = answer.header("session-timeout").parse().expect("seconds");
    assert!((900..=945).contains(&timeout), "{timeout}");
    let shown = cookie.split(';').next().expect("a pair").to_owned();
    // It was stored before the answer went.
    let listed = door
        .admin_get("/openid-connect/sessions?issuer=session")
        .await;
    let listed = listed.expect(200).json()["data"][0].clone();
    door.signal("TERM");
    assert!(door.wait_exit().await.success());
    door.start().await;
    let forged = [
        ("cookie", shown.as_str()),
        ("session-subject", "forged"),
        ("x-consumer-username", "bert"),
    ];
    door.get_with("/stored", &forged).await.expect(200);
    let seen = upstream.last();
    assert_eq!(seen.all("x-consumer-username"), ["anna"]);
    assert_eq!(
        seen.all("session-id"),
        [listed["id"].as_str().expect("an id")]
    );
    assert_eq!(seen.all("session-subject"), seen.all("x-consumer-id"));
    assert!(seen.all("cookie").is_empty() && seen.all("x-anonymous-consumer").is_empty());
    // Nodes look again after a second.
    let path = format!(
        "/openid-connect/sessions/{}",
        listed["id"].as_str().expect("an id")
    );
    door.admin_delete(&path).await.expect(204);
    eventually("the session is over", || async {
        let cookie = [("cookie", shown.as_str())];
        door.get_with("/stored", &cookie).await.expect(200);
        let anonymous = upstream.last().all("x-anonymous-consumer").is_empty();
        (!anonymous).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_session_in_the_store_begins_with_a_change_of_protocol_too() {
    let upstream = Upstream::start(|seen| match seen.header("upgrade") {
        Some(_) => Reply::WebSocket,
        None => Reply::Json(200, seen.json()),
    })
    .await;
    let file = FILE.replace("@UPSTREAM@", &upstream.url(""));
    let (routes, consumers) = file.split_once("consumers:").expect("consumers");
    let (service, _) = routes.split_once("  - name: places").expect("routes");
    let (_, stored) = routes.split_once("  - name: stored").expect("the route");
    let consumers = consumers.split_once("  jwt_secrets").expect("anna").0;
    let file =
        format!("{service}  - name: stored{stored}consumers:{consumers}- username: nobody\n");
    let door = Setup::new().services(&file).start().await;
    let mut socket = raw::Connection::open(&door.proxy()).await;
    let request = "GET /stored HTTP/1.1\r\nHost: a.test\r\napikey: annas-key\r\n\
        Connection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    socket.try_send(request.as_bytes()).await;
    let head = socket.head().await;
    assert_eq!(head.status, 101);
    let cookie = head.header("set-cookie");
    assert!(
        cookie.is_some_and(|cookie| cookie.starts_with("session=")),
        "{cookie:?}"
    );
    let sessions = door
        .admin_get("/openid-connect/sessions?issuer=session")
        .await;
    let sessions = sessions.expect(200).json();
    assert_eq!(
        sessions["data"].as_array().map(Vec::len),
        Some(1),
        "{sessions}"
    );
}
