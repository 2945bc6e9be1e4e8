//! How clients prove who they are, and how others fail to.

use serde_json::{Value, json};

use super::assert_error;
use crate::support::http::{client, send};
use crate::support::issuer::forge;
use crate::support::upstream::basic;
use crate::support::{Answer, Door, Issuer, Setup};

const TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
const SECRET: &str = "a-secret-of-at-least-32-bytes-length";

/// A door with a client a method; the keys of `signer` are those of `signed`
/// and at the address of `remote`.
async fn door(keys: &Issuer) -> Door {
    let clients = format!(
        "
  base_url: http://@PROXY@
  realms:
    /:
      settings: {{default_scope: a}}
      clients:
        - {{client_id: both, client_secret: \"se:cr et%+\", grant_types: [client_credentials], scope: a}}
        - {{client_id: basic, client_secret: s, token_endpoint_auth_method: client_secret_basic, grant_types: [client_credentials], scope: a}}
        - {{client_id: post, client_secret: s, token_endpoint_auth_method: client_secret_post, grant_types: [client_credentials], scope: a}}
        - {{client_id: hmac, client_secret: {SECRET}, token_endpoint_auth_method: client_secret_jwt, grant_types: [client_credentials], scope: a}}
        - {{client_id: signed, token_endpoint_auth_method: private_key_jwt, grant_types: [client_credentials], scope: a, jwks: {{keys: [{public}]}}}}
        - {{client_id: pinned, token_endpoint_auth_method: private_key_jwt, token_endpoint_auth_signing_alg: PS256, grant_types: [client_credentials], scope: a, jwks: {{keys: [{public}]}}}}
        - {{client_id: remote, token_endpoint_auth_method: private_key_jwt, grant_types: [client_credentials], scope: a, jwks_uri: \"{url}/keys\"}}
    /alpha:
      clients:
        - {{client_id: signed, token_endpoint_auth_method: private_key_jwt, grant_types: [client_credentials], scope: a, jwks: {{keys: [{public}]}}}}
",
        public = keys.public_key(),
        url = keys.url(),
    );
    Setup::new().identity(&clients).start().await
}

/// Claims of an assertion of `id` that passes, with changes; null removes.
fn claims(keys: &Issuer, door: &Door, id: &str, changes: Value) -> Value {
    static SERIAL: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let serial = SERIAL.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mut all = json!({"iss": id, "sub": id, "aud": door.proxy_url("/oauth2"),
        "jti": format!("id-{serial}"), "scope": null});
    let now = keys.claims()["iat"].as_i64().expect("a time");
    all["exp"] = json!(now + 60);
    for (name, value) in changes.as_object().expect("an object") {
        all[name] = value.clone();
    }
    keys.claims_with(all)
}

async fn bring(door: &Door, assertion: &str) -> Answer {
    bring_to(door, "/oauth2/access_token", assertion, &[]).await
}

async fn bring_to(door: &Door, path: &str, assertion: &str, more: &[(&str, &str)]) -> Answer {
    let mut form = vec![
        ("grant_type", "client_credentials"),
        ("client_assertion_type", TYPE),
        ("client_assertion", assertion),
    ];
    form.extend_from_slice(more);
    send(client().post(door.proxy_url(path)).form(&form)).await
}

#[tokio::test]
async fn a_client_authenticates_only_in_the_way_it_registered() {
    let door = door(&Issuer::start().await).await;
    let url = door.proxy_url("/oauth2/access_token");
    let form = [("grant_type", "client_credentials")];
    for (id, by_header, status) in [
        ("basic", true, 200),
        ("basic", false, 401),
        ("post", true, 401),
        ("post", false, 200),
        ("hmac", true, 401),
        ("hmac", false, 401),
    ] {
        let secret = if id == "hmac" { SECRET } else { "s" };
        let request = client().post(&url);
        let request = if by_header {
            request
                .form(&form)
                .header("authorization", basic(id, secret))
        } else {
            request.form(&[form[0], ("client_id", id), ("client_secret", secret)])
        };
        let answer = send(request).await.expect(status);
        if status == 401 {
            let text = "Invalid authentication method for accessing this endpoint.";
            assert_error(answer, 401, "invalid_client", text);
        }
    }
}

#[tokio::test]
async fn both_halves_of_a_basic_header_are_form_encoded() {
    let door = door(&Issuer::start().await).await;
    let post = |value: String| {
        let request = client().post(door.proxy_url("/oauth2/access_token"));
        let request = request.form(&[("grant_type", "client_credentials")]);
        send(request.header("authorization", value))
    };
    post(basic("both", "se%3Acr+et%25%2B")).await.expect(200);
    // The secret may hold a colon as it is: the first one divides.
    post(basic("both", "se:cr+et%25%2b")).await.expect(200);
    let text = "URLDecoder: Illegal hex characters in escape (%) pattern";
    assert_error(
        post(basic("both", "se:cr et%+")).await,
        400,
        "invalid_request",
        text,
    );
    let wrong = post(basic("both", "other")).await.expect(401);
    assert_eq!(wrong.header("www-authenticate"), "Basic realm=\"/\"");
    assert_error(
        post("Bearer abc".to_owned()).await,
        401,
        "invalid_client",
        "",
    );
}

#[tokio::test]
async fn two_ways_to_authenticate_at_once_are_refused() {
    let keys = Issuer::start().await;
    let door = door(&keys).await;
    let url = door.proxy_url("/oauth2/access_token");
    let both = [
        ("grant_type", "client_credentials"),
        ("client_id", "post"),
        ("client_secret", "s"),
    ];
    let request = client().post(&url).form(&both);
    let answer = send(request.header("authorization", basic("post", "s"))).await;
    assert_error(
        answer,
        400,
        "invalid_request",
        "Client authentication failed",
    );
    let good = || keys.sign(&claims(&keys, &door, "signed", json!({})));
    let answer = bring_to(&door, "/oauth2/access_token", &good(), &both[2..]).await;
    assert_error(answer, 400, "invalid_request", "");
    let other = [("client_id", "remote")];
    let answer = bring_to(&door, "/oauth2/access_token", &good(), &other).await;
    assert_error(answer, 401, "invalid_client", "");
    let same = [("client_id", "signed")];
    bring_to(&door, "/oauth2/access_token", &good(), &same)
        .await
        .expect(200);
}

#[tokio::test]
async fn credentials_in_the_address_are_refused() {
    let door = door(&Issuer::start().await).await;
    let url = door.proxy_url("/oauth2/access_token?client_id=post&client_secret=s");
    let form = [("grant_type", "client_credentials")];
    let answer = send(client().post(url).form(&form)).await;
    assert_error(answer, 400, "invalid_request", "");
}

#[tokio::test]
async fn an_assertion_signed_with_a_registered_key_authenticates() {
    let keys = Issuer::start().await;
    let door = door(&keys).await;
    for id in ["signed", "remote"] {
        for audience in [
            json!(door.proxy_url("/oauth2")),
            json!(door.proxy_url("/oauth2/access_token")),
            json!(["https://other.example", door.proxy_url("/oauth2")]),
        ] {
            let assertion = keys.sign(&claims(&keys, &door, id, json!({"aud": audience})));
            bring(&door, &assertion).await.expect(200);
        }
    }
    // Under the other path form, by the address that was called.
    let path = "/oauth2/realms/root/access_token";
    let called = json!({"aud": door.proxy_url(path)});
    let assertion = keys.sign(&claims(&keys, &door, "signed", called));
    bring_to(&door, path, &assertion, &[]).await.expect(200);
}

#[tokio::test]
async fn an_assertion_signed_with_the_secret_authenticates() {
    let keys = Issuer::start().await;
    let door = door(&keys).await;
    for alg in [
        jsonwebtoken::Algorithm::HS256,
        jsonwebtoken::Algorithm::HS512,
    ] {
        let key = jsonwebtoken::EncodingKey::from_secret(SECRET.as_bytes());
        let header = jsonwebtoken::Header::new(alg);
        let claims = claims(&keys, &door, "hmac", json!({}));
        let assertion = jsonwebtoken::encode(&header, &claims, &key).expect("a token");
        bring(&door, &assertion).await.expect(200);
    }
}

#[tokio::test]
async fn an_assertion_is_good_once_even_after_a_restart() {
    let keys = Issuer::start().await;
    let mut door = door(&keys).await;
    let assertion = keys.sign(&claims(&keys, &door, "signed", json!({})));
    let anonymous = keys.sign(&claims(&keys, &door, "signed", json!({"jti": null})));
    for assertion in [&assertion, &anonymous] {
        bring(&door, assertion).await.expect(200);
        assert_error(
            bring(&door, assertion).await,
            401,
            "invalid_client",
            "JWT is not valid",
        );
    }
    door.kill();
    door.start().await;
    assert_error(
        bring(&door, &assertion).await,
        401,
        "invalid_client",
        "JWT is not valid",
    );
}

#[tokio::test]
async fn an_assertion_for_somebody_else_is_refused() {
    let keys = Issuer::start().await;
    let door = door(&keys).await;
    for audience in [
        json!("https://other.example"),
        json!(door.proxy_url("/oauth2/realms/root/realms/alpha")),
        json!(format!("{}/", door.proxy_url("/oauth2"))),
        json!([]),
        json!({}),
        Value::Null,
    ] {
        let assertion = keys.sign(&claims(&keys, &door, "signed", json!({"aud": audience})));
        let text = "Audience validation failed";
        assert_error(bring(&door, &assertion).await, 401, "invalid_client", text);
    }
    // The same client of another realm is another client.
    let assertion = keys.sign(&claims(&keys, &door, "signed", json!({})));
    let path = "/oauth2/realms/root/realms/alpha/access_token";
    let answer = bring_to(&door, path, &assertion, &[]).await;
    assert_error(answer, 401, "invalid_client", "Audience validation failed");
}

#[tokio::test]
async fn an_assertion_out_of_its_time_is_refused() {
    let keys = Issuer::start().await;
    let door = door(&keys).await;
    let now = keys.claims()["iat"].as_i64().expect("a time");
    for (changes, text) in [
        (json!({"exp": now - 60}), "JWT has expired"),
        (json!({"exp": null}), "JWT is not valid"),
        (json!({"exp": now + 86_400}), "JWT is not valid"),
        (json!({"iat": now + 120}), "JWT is not valid"),
        (json!({"nbf": now + 120}), "JWT is not valid"),
        (json!({"nbf": "now"}), "JWT is not valid"),
    ] {
        let assertion = keys.sign(&claims(&keys, &door, "signed", changes));
        assert_error(bring(&door, &assertion).await, 401, "invalid_client", text);
    }
    // Clocks of honest machines differ a little.
    let ahead = json!({"iat": now + 5, "nbf": now + 5});
    let assertion = keys.sign(&claims(&keys, &door, "signed", ahead));
    bring(&door, &assertion).await.expect(200);
}

#[tokio::test]
async fn issuer_and_subject_of_an_assertion_must_both_be_the_client() {
    let keys = Issuer::start().await;
    let door = door(&keys).await;
    for changes in [
        json!({"iss": "remote"}),
        json!({"sub": "remote"}),
        json!({"sub": null}),
        json!({"iss": null}),
        json!({"iss": "", "sub": ""}),
    ] {
        let assertion = keys.sign(&claims(&keys, &door, "signed", changes));
        let text = "JWT is not valid";
        assert_error(bring(&door, &assertion).await, 401, "invalid_client", text);
    }
}

#[tokio::test]
async fn algorithm_confusion_in_an_assertion_is_refused() {
    let keys = Issuer::start().await;
    let door = door(&keys).await;
    let public = keys.public_key().to_string();
    let hmac = |id: &str, secret: &[u8]| {
        let key = jsonwebtoken::EncodingKey::from_secret(secret);
        let claims = claims(&keys, &door, id, json!({}));
        jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).expect("a token")
    };
    let none = forge(
        &json!({"alg": "none"}),
        &claims(&keys, &door, "signed", json!({})),
        b"",
    );
    let embedded = forge(
        &json!({"alg": "ES256", "jwk": keys.public_key()}),
        &claims(&keys, &door, "signed", json!({})),
        &[7; 64],
    );
    for assertion in [
        // The public key as if it were a shared secret.
        hmac("signed", public.as_bytes()),
        none,
        embedded,
        // A good signature, by an algorithm that this client did not register.
        keys.sign(&claims(&keys, &door, "pinned", json!({}))),
        // A client of another method.
        hmac("post", b"s"),
        hmac("hmac", b"a-wrong-secret-of-more-than-32-bytes"),
        keys.sign(&claims(&keys, &door, "hmac", json!({}))),
    ] {
        let text = "JWT is not valid";
        assert_error(bring(&door, &assertion).await, 401, "invalid_client", text);
    }
}

#[tokio::test]
async fn an_answer_does_not_tell_whether_a_client_exists() {
    let keys = Issuer::start().await;
    let stranger = Issuer::start().await;
    let door = door(&keys).await;
    let nobody = keys.sign(&claims(&keys, &door, "nobody", json!({})));
    let forged = stranger.sign(&claims(&keys, &door, "signed", json!({})));
    let (nobody, forged) = (bring(&door, &nobody).await, bring(&door, &forged).await);
    assert_eq!((nobody.status, &nobody.body), (forged.status, &forged.body));
    let try_secret = |id: &'static str| {
        let form = [
            ("grant_type", "client_credentials"),
            ("client_id", id),
            ("client_secret", "guess"),
        ];
        send(
            client()
                .post(door.proxy_url("/oauth2/access_token"))
                .form(&form),
        )
    };
    let (nobody, known) = (try_secret("nobody").await, try_secret("post").await);
    assert_eq!((nobody.status, &nobody.body), (known.status, &known.body));
}

#[tokio::test]
async fn malformed_assertions_are_refused_alike() {
    let keys = Issuer::start().await;
    let door = door(&keys).await;
    let good = keys.sign(&claims(&keys, &door, "signed", json!({})));
    for broken in [
        "x",
        "a.b.c",
        "..",
        &good[..good.len() - 2],
        &format!("{good}.x.y"),
    ] {
        assert_error(
            bring(&door, broken).await,
            401,
            "invalid_client",
            "JWT is not valid",
        );
    }
    let form = [
        ("grant_type", "client_credentials"),
        ("client_assertion_type", "urn:example:other"),
        ("client_assertion", &good),
    ];
    let answer = send(
        client()
            .post(door.proxy_url("/oauth2/access_token"))
            .form(&form),
    )
    .await;
    assert_error(answer, 401, "invalid_client", "");
}

#[tokio::test]
async fn rotated_keys_are_fetched_once_and_junk_key_names_do_not_hammer_their_source() {
    let keys = Issuer::start().await;
    let door = door(&keys).await;
    let assertion = || keys.sign(&claims(&keys, &door, "remote", json!({})));
    bring(&door, &assertion()).await.expect(200);
    assert_eq!(keys.key_fetches(), 1);
    let old = assertion();
    keys.rotate("second");
    bring(&door, &assertion()).await.expect(200);
    assert_eq!(keys.key_fetches(), 2);
    // The key that was withdrawn is good no more.
    bring(&door, &old).await.expect(401);
    for junk in 0..10 {
        let header = json!({"alg": "ES256", "kid": format!("junk-{junk}")});
        let junk = forge(
            &header,
            &claims(&keys, &door, "remote", json!({})),
            &[7; 64],
        );
        bring(&door, &junk).await.expect(401);
    }
    assert!(keys.key_fetches() <= 3, "{}", keys.key_fetches());
}

#[tokio::test]
async fn a_changed_secret_counts_at_once() {
    let door = door(&Issuer::start().await).await;
    let add = |secret: &'static str| {
        let store = format!("sqlite:{}", door.path("data/doorward.db").display());
        door.run(&[
            "clients", "add", "late", "--scope", "a", "--secret", secret, "--store", &store,
        ])
    };
    let ask = |secret: &'static str| {
        let form = [
            ("grant_type", "client_credentials"),
            ("client_id", "late"),
            ("client_secret", secret),
        ];
        send(
            client()
                .post(door.proxy_url("/oauth2/access_token"))
                .form(&form),
        )
    };
    assert!(add("first").status.success());
    ask("first").await.expect(200);
    let store = format!("sqlite:{}", door.path("data/doorward.db").display());
    assert!(
        door.run(&["clients", "delete", "late", "--store", &store])
            .status
            .success()
    );
    assert!(add("second").status.success());
    ask("second").await.expect(200);
}
