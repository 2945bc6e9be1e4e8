//! Request objects (RFC 9101, OpenID Connect Core §6).

use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::browser::{Browser, shown_error};
use super::{CHALLENGE, told};
use crate::identity::assert_error;
use crate::support::http::{client, send};
use crate::support::issuer::forge;
use crate::support::{Answer, Door, Issuer, Reply, Setup, Upstream};

const CALLBACK: &str = "https://app.example/cb";
const SECRET: &str = "a-secret-of-at-least-32-bytes-length";

/// A door whose clients have the keys of `keys`, and request objects at
/// `source`.
async fn door(keys: &Issuer, source: &str) -> Door {
    let client = |id: &str, more: &str| {
        format!(
            "
        - client_id: {id}
          client_secret: {SECRET}
          grant_types: [authorization_code]
          redirect_uris: [\"{CALLBACK}\"]
          scope: openid email
          require_consent: false
{more}"
        )
    };
    let jwks = format!("          jwks: {{keys: [{}]}}\n", keys.public_key());
    let section = format!(
        "
  base_url: http://@PROXY@
  realms:
    /:
      settings: {{unsigned_request_objects: true}}
      users: [{{userName: demo, password: Ch4ng31t-demo}}]
      clients:{}{}{}{}{}{}",
        client(
            "app",
            &format!("{jwks}          request_uris: [\"{source}/request.jwt\"]\n")
        ),
        client(
            "strict",
            &format!("{jwks}          require_signed_request_object: true\n")
        ),
        client("lax", "          request_object_signing_alg: none\n"),
        client(
            "signing",
            &format!("{jwks}          request_object_signing_alg: ES256\n")
        ),
        client("hmac", "          request_object_signing_alg: HS256\n"),
        client(
            "pinned",
            &format!("{jwks}          request_object_signing_alg: PS256\n")
        ),
    );
    Setup::new().identity(&section).start().await
}

/// The claims of an object of `id` that passes, with changes; null removes.
fn claims(keys: &Issuer, door: &Door, id: &str, changes: Value) -> Value {
    let now = keys.claims()["iat"].as_i64().expect("a time");
    let mut all = json!({
        "iss": id, "aud": door.proxy_url("/oauth2"), "sub": null, "exp": now + 60,
        "client_id": id, "response_type": "code", "redirect_uri": CALLBACK,
        "scope": "openid", "state": "inside", "nonce": "n-1", "max_age": 3600,
        "code_challenge": CHALLENGE, "code_challenge_method": "S256",
    });
    for (name, value) in changes.as_object().expect("an object") {
        all[name] = value.clone();
    }
    keys.claims_with(all)
}

fn object(keys: &Issuer, door: &Door, id: &str, changes: Value) -> String {
    keys.sign(&claims(keys, door, id, changes))
}

/// The path of a request with this object, and what OpenID Connect wants
/// beside it.
fn path(id: &str, object: &str, more: &[(&str, &str)]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs([
        ("client_id", id),
        ("response_type", "code"),
        ("scope", "openid"),
    ]);
    if !object.is_empty() {
        query.append_pair("request", object);
    }
    query.extend_pairs(more);
    format!("/oauth2/authorize?{}", query.finish())
}

async fn signed_in(door: &Door) -> Browser<'_> {
    let browser = Browser::new(door);
    let plain = [("redirect_uri", CALLBACK)];
    let page = browser.get(&path("app", "", &plain)).await.expect(200);
    browser.sign_in(&page, "demo").await.expect(302);
    browser
}

#[track_caller]
fn assert_code(answer: &Answer, state: &str) {
    let answer = told(answer, CALLBACK);
    assert!(answer.contains_key("code"), "{answer:?}");
    assert_eq!(answer.get("state").map(String::as_str), Some(state));
}

#[tokio::test]
async fn what_the_client_signed_wins_over_what_stands_beside_it() {
    let keys = Issuer::start().await;
    let door = door(&keys, &keys.url()).await;
    let browser = signed_in(&door).await;
    let outside = [
        ("state", "outside"),
        ("redirect_uri", "https://evil.example/"),
    ];
    let good = object(&keys, &door, "app", json!({}));
    assert_code(&browser.get(&path("app", &good, &outside)).await, "inside");
    // Beside it may stand what it does not say, unless nothing may.
    let silent = json!({"state": null});
    let partial = object(&keys, &door, "app", silent.clone());
    assert_code(
        &browser.get(&path("app", &partial, &outside)).await,
        "outside",
    );
    let partial = object(&keys, &door, "strict", silent);
    let answer = told(
        &browser.get(&path("strict", &partial, &outside)).await,
        CALLBACK,
    );
    assert!(answer.contains_key("code") && !answer.contains_key("state"));
    // Nothing beside it at all.
    let good = object(&keys, &door, "strict", json!({}));
    let alone = format!("/oauth2/authorize?client_id=strict&request={good}");
    assert_code(&browser.get(&alone).await, "inside");
    let metadata = "/oauth2/.well-known/openid-configuration";
    let metadata = door.get("a.test", metadata).await.json();
    assert_eq!(metadata["request_parameter_supported"], true);
    assert_eq!(metadata["request_uri_parameter_supported"], true);
    assert_eq!(metadata["require_request_uri_registration"], true);
    let algs = metadata["request_object_signing_alg_values_supported"].as_array();
    let algs = algs.expect("a list");
    assert!(algs.contains(&json!("RS256")) && algs.contains(&json!("none")));
}

#[tokio::test]
async fn malformed_and_forged_request_objects_are_refused() {
    let keys = Issuer::start().await;
    let stranger = Issuer::start().await;
    let door = door(&keys, &keys.url()).await;
    let browser = signed_in(&door).await;
    let now = keys.claims()["iat"].as_i64().expect("a time");
    let good = object(&keys, &door, "app", json!({}));
    let parts: Vec<&str> = good.split('.').collect();
    let tampered = forge(
        &json!({}),
        &claims(&keys, &door, "app", json!({"state": "x"})),
        b"",
    );
    let tampered = tampered.split('.').nth(1).expect("a payload").to_owned();
    let all = claims(&keys, &door, "app", json!({}));
    let hmac = |secret: &[u8]| {
        let key = jsonwebtoken::EncodingKey::from_secret(secret);
        jsonwebtoken::encode(&jsonwebtoken::Header::default(), &all, &key).expect("a token")
    };
    let typed = |typ: &str| forge(&json!({"alg": "ES256", "typ": typ}), &all, &[7; 64]);
    let with = |changes: Value| object(&keys, &door, "app", changes);
    for bad in [
        // Tampered with, signed by somebody else, not signed.
        format!("{}.{tampered}.{}", parts[0], parts[2]),
        stranger.sign(&all),
        forge(&json!({"alg": "None"}), &all, b""),
        forge(&json!({"alg": "none"}), &all, &[7; 64]),
        forge(&json!({"alg": "none", "crit": ["b64"]}), &all, b""),
        forge(
            &json!({"alg": "ES256", "jwk": stranger.public_key()}),
            &all,
            &[7; 64],
        ),
        hmac(keys.public_key().to_string().as_bytes()),
        hmac(SECRET.as_bytes()),
        // Something else than a request object.
        typed("at+jwt"),
        typed("dpop+jwt"),
        format!("{good}.x.y"),
        "junk".to_owned(),
        "..".to_owned(),
        format!("{}.{}", good, "A".repeat(20_000)),
        // Of another client, for another server, out of time.
        with(json!({"iss": "strict"})),
        with(json!({"iss": 5})),
        with(json!({"client_id": "strict"})),
        with(json!({"aud": "https://other.example"})),
        with(json!({"aud": door.proxy_url("/oauth2/")})),
        with(json!({"aud": []})),
        with(json!({"exp": now - 60})),
        with(json!({"exp": "soon"})),
        with(json!({"nbf": now + 120})),
        with(json!({"iat": now + 120})),
        // Good as a client assertion, too.
        with(json!({"sub": "app"})),
        // Nested.
        with(json!({"request": good})),
        with(json!({"request_uri": "https://app.example/r"})),
    ] {
        let beside = [("redirect_uri", CALLBACK), ("state", "outside")];
        let answer = browser.get(&path("app", &bad, &beside)).await;
        let answer = told(&answer, CALLBACK);
        assert_eq!(answer["error"], "invalid_request_object", "{bad}");
        assert_eq!(answer["state"], "outside");
        // Where nothing says who may be told, it is shown.
        let page = browser.get(&path("app", &bad, &[])).await.expect(400);
        assert_eq!(shown_error(&page), "invalid_request_object");
    }
    // The registered algorithm is the only one.
    let other = object(&keys, &door, "pinned", json!({}));
    let page = browser.get(&path("pinned", &other, &[])).await.expect(400);
    assert_eq!(shown_error(&page), "invalid_request_object");
}

#[tokio::test]
async fn an_object_that_disagrees_with_what_stands_beside_it_is_refused() {
    let keys = Issuer::start().await;
    let door = door(&keys, &keys.url()).await;
    let browser = signed_in(&door).await;
    let beside = [("redirect_uri", CALLBACK)];
    for changes in [
        json!({"response_type": "id_token"}),
        json!({"response_type": "code id_token"}),
        json!({"scope": "email"}),
    ] {
        let object = object(&keys, &door, "app", changes);
        let answer = told(&browser.get(&path("app", &object, &beside)).await, CALLBACK);
        assert_eq!(answer["error"], "invalid_request");
    }
    let good = object(&keys, &door, "app", json!({}));
    let both = [beside[0], ("request_uri", "https://app.example/r")];
    let answer = told(&browser.get(&path("app", &good, &both)).await, CALLBACK);
    assert_eq!(answer["error"], "invalid_request");
    // The redirect URI in it must be the client's, however well it is signed.
    let evil = json!({"redirect_uri": "https://evil.example/"});
    let evil = object(&keys, &door, "app", evil);
    let page = browser.get(&path("app", &evil, &beside)).await.expect(400);
    assert_eq!(shown_error(&page), "redirect_uri_mismatch");
}

#[tokio::test]
async fn unsigned_and_hmac_objects_count_where_they_are_registered() {
    let keys = Issuer::start().await;
    let door = door(&keys, &keys.url()).await;
    let browser = signed_in(&door).await;
    let none = |id: &str| {
        let header = json!({"alg": "none"});
        forge(&header, &claims(&keys, &door, id, json!({})), b"")
    };
    assert_code(
        &browser.get(&path("lax", &none("lax"), &[])).await,
        "inside",
    );
    // Who registered nothing may choose.
    assert_code(
        &browser.get(&path("app", &none("app"), &[])).await,
        "inside",
    );
    for id in ["strict", "hmac", "pinned", "signing"] {
        let page = browser.get(&path(id, &none(id), &[])).await.expect(400);
        assert_eq!(shown_error(&page), "invalid_request_object", "{id}");
    }
    let hmac = |secret: &str| {
        let key = jsonwebtoken::EncodingKey::from_secret(secret.as_bytes());
        let claims = claims(&keys, &door, "hmac", json!({}));
        jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).expect("a token")
    };
    assert_code(
        &browser.get(&path("hmac", &hmac(SECRET), &[])).await,
        "inside",
    );
    let page = browser
        .get(&path("hmac", &hmac("guess"), &[]))
        .await
        .expect(400);
    assert_eq!(shown_error(&page), "invalid_request_object");
}

#[tokio::test]
async fn unsigned_objects_are_not_supported_unless_client_or_realm_say_so() {
    let section = super::IDENTITY.replace(
        "        - client_id: native\n",
        "        - client_id: native\n          request_object_signing_alg: none\n",
    );
    let door = Setup::new().identity(&section).start().await;
    let browser = Browser::new(&door);
    let metadata = "/oauth2/.well-known/openid-configuration";
    let metadata = door.get("a.test", metadata).await.json();
    let algs = metadata["request_object_signing_alg_values_supported"].as_array();
    assert!(!algs.expect("a list").contains(&json!("none")));
    for (id, callback, registered) in [
        ("native", "http://127.0.0.1/cb", true),
        ("trusted", "https://trusted.example/cb", false),
    ] {
        let inside = json!({"client_id": id, "redirect_uri": callback, "state": "inside"});
        let object = forge(&json!({"alg": "none"}), &inside, b"");
        let beside = [("redirect_uri", callback), ("state", "outside")];
        let answer = browser.get(&path(id, &object, &beside)).await;
        let answer = told(&answer, callback);
        let refused = answer["error"] == "request_not_supported";
        let state = if registered { "inside" } else { "outside" };
        assert_eq!(
            (refused, answer["state"].as_str()),
            (!registered, state),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn a_request_object_with_a_member_twice_is_refused() {
    let keys = Issuer::start().await;
    let door = door(&keys, &keys.url()).await;
    let browser = signed_in(&door).await;
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let inside = format!(
        r#"{{"client_id":"lax","client_id":"lax","redirect_uri":"{CALLBACK}","redirect_uri":"{CALLBACK}"}}"#
    );
    for object in [
        format!("{}.{}.", part(r#"{"alg":"none"}"#), part(&inside)),
        format!("{}.{}.", part(r#"{"alg":"none","alg":"none"}"#), part("{}")),
        format!("{}.{}.", part(r#"{"alg":"none"}"#), part("[]")),
        format!("{}.{}=.", part(r#"{"alg":"none"}"#), part("{}")),
    ] {
        let page = browser.get(&path("lax", &object, &[])).await.expect(400);
        assert_eq!(shown_error(&page), "invalid_request_object", "{object}");
    }
}

#[tokio::test]
async fn a_client_that_must_sign_its_requests_is_not_served_otherwise() {
    let keys = Issuer::start().await;
    let door = door(&keys, &keys.url()).await;
    let browser = signed_in(&door).await;
    let beside = [("redirect_uri", CALLBACK)];
    let answer = told(&browser.get(&path("strict", "", &beside)).await, CALLBACK);
    assert_eq!(answer["error"], "invalid_request");
    let push = async |form: &[(&str, &str)]| {
        let form = [&[("client_id", "strict"), ("client_secret", SECRET)], form].concat();
        send(client().post(door.proxy_url("/oauth2/par")).form(&form)).await
    };
    let plain = [
        ("response_type", "code"),
        ("redirect_uri", CALLBACK),
        ("scope", "openid"),
    ];
    assert_error(push(&plain).await, 400, "invalid_request", "");
    for missing in ["iss", "aud"] {
        let object = object(&keys, &door, "strict", json!({missing: null}));
        let answer = push(&[("request", &object)]).await;
        assert_error(answer, 400, "invalid_request_object", "");
    }
    let object = object(&keys, &door, "strict", json!({}));
    let body = push(&[("request", &object), ("state", "outside")]).await;
    let body = body.expect(201).json();
    let uri = body["request_uri"].as_str().expect("a text");
    let path = format!("/oauth2/authorize?client_id=strict&request_uri={uri}");
    assert_code(&browser.get(&path).await, "inside");
}

#[tokio::test]
async fn an_object_too_long_for_addresses_leads_through_sign_in() {
    let keys = Issuer::start().await;
    let door = door(&keys, &keys.url()).await;
    let browser = Browser::new(&door);
    // Its client is done with it in a minute; its user may take longer.
    let long = json!({"padding": "x".repeat(7000)});
    let object = object(&keys, &door, "app", long);
    assert!(object.len() > 9000);
    let answer = browser.get(&path("app", &object, &[])).await.expect(302);
    let short = answer.header("location").to_owned();
    assert!(short.len() < 300, "{short}");
    let page = browser.get(&short).await.expect(200);
    let answer = browser.sign_in(&page, "demo").await.expect(302);
    assert_code(&answer, "inside");
    // By POST as well, and again.
    let fields = [
        ("client_id", "app"),
        ("response_type", "code"),
        ("scope", "openid"),
        ("request", object.as_str()),
    ];
    let stranger = client().post(door.proxy_url("/oauth2/authorize"));
    let answer = send(stranger.form(&fields)).await.expect(303);
    assert_eq!(answer.header("location"), short);
}

#[tokio::test]
async fn an_object_is_fetched_from_where_its_client_registered() {
    let keys = Issuer::start().await;
    let served: Arc<Mutex<String>> = Arc::default();
    let source = {
        let served = Arc::clone(&served);
        Upstream::start(move |_| {
            let text = served.lock().expect("a text");
            let length = text.len();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
            Reply::Raw(format!("{head}{text}").into_bytes())
        })
        .await
    };
    let door = door(&keys, &source.url("")).await;
    *served.lock().expect("a text") = object(&keys, &door, "app", json!({}));
    let browser = Browser::new(&door);
    let uri = source.url("/request.jwt");
    let by_reference = |uri: &str| path("app", "", &[("request_uri", uri)]);
    let page = browser.get(&by_reference(&uri)).await.expect(200);
    let answer = browser.sign_in(&page, "demo").await.expect(302);
    assert_code(&answer, "inside");
    assert_eq!(source.seen().len(), 1, "once for all its pages");
    // Another version, another fragment.
    *served.lock().expect("a text") = object(&keys, &door, "app", json!({"state": "new"}));
    assert_code(
        &browser.get(&by_reference(&format!("{uri}#2"))).await,
        "new",
    );
    assert_eq!(source.seen().len(), 2);
    // What is there is no request object.
    "<html>".clone_into(&mut served.lock().expect("a text"));
    let beside = format!(
        "{}&redirect_uri={CALLBACK}",
        by_reference(&format!("{uri}#3"))
    );
    let answer = told(&browser.get(&beside).await, CALLBACK);
    assert_eq!(answer["error"], "invalid_request_object");
}

#[tokio::test]
async fn ssrf_by_a_request_uri_that_is_not_registered_is_not_even_tried() {
    let keys = Issuer::start().await;
    let source = Upstream::echo().await;
    let door = door(&keys, &source.url("")).await;
    let browser = signed_in(&door).await;
    let registered = source.url("/request.jwt");
    for uri in [
        source.url("/other.jwt"),
        format!("{registered}?x"),
        format!("{registered}/"),
        registered.replace("http://", "http://me@"),
        registered.replace("127.0.0.1", "localhost"),
        "file:///etc/passwd".to_owned(),
        "http://169.254.169.254/latest".to_owned(),
        "urn:example:other".to_owned(),
        format!("{registered}#{}", "x".repeat(600)),
    ] {
        let page = browser
            .get(&path("app", "", &[("request_uri", &uri)]))
            .await;
        assert_eq!(
            shown_error(&page.expect(400)),
            "invalid_request_uri",
            "{uri}"
        );
    }
    // Nor does another client have what this one registered.
    let other = path("strict", "", &[("request_uri", &registered)]);
    let page = browser.get(&other).await.expect(400);
    assert_eq!(shown_error(&page), "invalid_request_uri");
    assert_eq!(source.seen().len(), 0);
}

#[tokio::test]
async fn a_request_object_does_not_authenticate_its_client() {
    let keys = Issuer::start().await;
    let section = format!(
        "
  base_url: http://@PROXY@
  realms:
    /:
      clients:
        - client_id: app
          token_endpoint_auth_method: private_key_jwt
          jwks: {{keys: [{}]}}
          grant_types: [client_credentials]
          scope: read
",
        keys.public_key()
    );
    let door = Setup::new().identity(&section).start().await;
    let object = object(&keys, &door, "app", json!({}));
    let fields = [
        ("grant_type", "client_credentials"),
        (
            "client_assertion_type",
            "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        ),
        ("client_assertion", object.as_str()),
    ];
    let url = door.proxy_url("/oauth2/access_token");
    let answer = send(client().post(url).form(&fields)).await;
    assert_error(answer, 401, "invalid_client", "JWT is not valid");
}
