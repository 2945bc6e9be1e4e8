//! Proofs of possession (RFC 9449).

use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::digest;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use doorward_core::clock::Clock;
use jsonwebtoken::jwk::{Jwk, ThumbprintHash};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use super::{FOR_DEMO, FOR_ITSELF, assert_error, with};
use crate::support::http::{client, send};
use crate::support::issuer::claims_of;
use crate::support::upstream::basic;
use crate::support::{Answer, Door, Setup};

/// A client's key.
pub(super) struct Key {
    private: EncodingKey,
    public: Jwk,
}

impl Key {
    pub(super) fn make() -> Self {
        let rng = SystemRandom::new();
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &rng);
        let private = EncodingKey::from_ec_der(der.expect("a key pair").as_ref());
        let public = Jwk::from_encoding_key(&private, Algorithm::ES256).expect("a public key");
        Self { private, public }
    }

    pub(super) fn thumbprint(&self) -> String {
        let thumbprint = self.public.thumbprint(ThumbprintHash::SHA256);
        thumbprint.expect("a thumbprint")
    }

    /// A proof for a request, with changes; null removes.
    pub(super) fn proof(&self, method: &str, url: &str, changes: Value) -> String {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let mut claims = json!({"htm": method, "htu": url, "jti": format!("proof-{serial}"),
            "iat": Clock::system().now_secs()});
        for (name, value) in changes.as_object().expect("an object") {
            claims[name] = value.clone();
        }
        let claims: serde_json::Map<String, Value> = claims
            .as_object()
            .expect("an object")
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let mut header = Header::new(Algorithm::ES256);
        header.typ = Some("dpop+jwt".to_owned());
        header.jwk = Some(self.public.clone());
        jsonwebtoken::encode(&header, &claims, &self.private).expect("a proof")
    }
}

const CLIENTS: &str = "
        - {client_id: app, token_endpoint_auth_method: none, grant_types: [password, refresh_token], scope: openid read}
        - {client_id: bound, client_secret: s, grant_types: [client_credentials], scope: read, dpop_bound_access_tokens: true}
        - {client_id: passer, client_secret: s, grant_types: [client_credentials, \"urn:ietf:params:oauth:grant-type:token-exchange\"], scope: read}
        - {client_id: provisioning, client_secret: s, grant_types: [client_credentials], scope: \"scim:write\", dpop_bound_access_tokens: true}
";

async fn door(settings: &str) -> Door {
    let section = format!(
        "
  base_url: http://@PROXY@
  realms:
    /:
      settings: {{{settings}}}
      users: [{{userName: demo, password: Ch4ng31t-demo}}]
      clients:
        - {{client_id: orders, client_secret: orders-secret, grant_types: [client_credentials, password, refresh_token], scope: openid profile read}}{CLIENTS}"
    );
    Setup::new().identity(&section).start().await
}

const TOKEN: &str = "/oauth2/access_token";

async fn ask(door: &Door, form: &[(&str, &str)], proof: &str) -> Answer {
    let request = client().post(door.proxy_url(TOKEN)).form(form);
    send(request.header("dpop", proof)).await
}

fn text(answer: &Answer, name: &str) -> String {
    answer.json()[name].as_str().expect("a text").to_owned()
}

#[tokio::test]
async fn a_token_is_bound_to_the_key_that_was_proven() {
    let door = door("").await;
    let key = Key::make();
    let url = door.proxy_url(TOKEN);
    let proof = key.proof("POST", &url, json!({}));
    let answer = ask(&door, FOR_ITSELF, &proof).await.expect(200);
    assert_eq!(answer.json()["token_type"], "DPoP");
    let token = text(&answer, "access_token");
    let claims = claims_of(&token);
    assert_eq!(claims["cnf"], json!({"jkt": key.thumbprint()}));
    assert_eq!(claims["token_type"], "DPoP");
    let request = client()
        .post(door.proxy_url("/oauth2/introspect"))
        .form(&[("token", &token)]);
    let told = send(request.header("authorization", basic("orders", "orders-secret"))).await;
    assert_eq!(told.json()["cnf"], json!({"jkt": key.thumbprint()}));
    assert_eq!(told.json()["token_type"], "DPoP");
    // The address may be spelt otherwise, and clocks differ.
    let upper = url.replace("http://", "HTTP://");
    let now = Clock::system().now_secs();
    for (htu, iat) in [
        (format!("{upper}?x=1#y"), now),
        (url.clone(), now - 10),
        (url, now + 10),
    ] {
        let proof = key.proof("POST", &htu, json!({"iat": iat}));
        ask(&door, FOR_ITSELF, &proof).await.expect(200);
    }
}

#[tokio::test]
async fn a_proof_names_the_address_at_the_host_that_was_called() {
    let section = "
  base_url: http://@PROXY@
  realms:
    /:
      clients: [{client_id: app, client_secret: s, grant_types: [client_credentials], scope: read}]
    /staff:
      hosts: [login.staff.example]
      clients: [{client_id: app, client_secret: s, grant_types: [client_credentials], scope: read}]
";
    let door = Setup::new().identity(section).start().await;
    let (base, key) = (door.proxy_url(TOKEN), Key::make());
    let port = url::Url::parse(&base)
        .expect("a URL")
        .port()
        .expect("a port");
    let of_staff = "/oauth2/realms/root/realms/staff/access_token";
    let ask = async |host: &str, path: &str, htu: &str| {
        let form = [
            ("grant_type", "client_credentials"),
            ("client_id", "app"),
            ("client_secret", "s"),
            ("scope", "read"),
        ];
        let proof = key.proof("POST", htu, json!({}));
        let request = client().post(door.proxy_url(path)).header("host", host);
        send(request.form(&form).header("dpop", proof)).await
    };
    let (staff, local) = ("login.staff.example", format!("localhost:{port}"));
    let own = format!("http://{staff}{TOKEN}");
    for (host, path, htu) in [
        (staff, TOKEN, own.clone()),
        (staff, TOKEN, format!("http://{staff}:{port}{TOKEN}")),
        (staff, of_staff, format!("http://{staff}{of_staff}")),
        (staff, of_staff, door.proxy_url(of_staff)),
        ("any.example", of_staff, door.proxy_url(of_staff)),
        (
            "any.example",
            "/oauth2/access_token?realm=/staff",
            base.clone(),
        ),
        (&local, TOKEN, format!("http://{local}{TOKEN}")),
    ] {
        let answer = ask(host, path, &htu).await;
        assert_eq!(answer.status, 200, "{host} {path} {htu}: {}", answer.body);
    }
    for (host, path, htu) in [
        // Another realm's.
        (staff, TOKEN, base.clone()),
        // It was shown to somebody else, and brought here under their name.
        ("evil.example", TOKEN, format!("http://evil.example{TOKEN}")),
        ("any.example", TOKEN, own),
        (staff, TOKEN, format!("https://{staff}{TOKEN}")),
        (staff, TOKEN, format!("http://x@{staff}{TOKEN}")),
        (&local, TOKEN, format!("http://localhost:1{TOKEN}")),
    ] {
        assert_error(ask(host, path, &htu).await, 400, "invalid_dpop_proof", "");
    }
}

#[tokio::test]
async fn a_bound_token_is_exchanged_by_whoever_proves_its_key() {
    let door = door("").await;
    let (own, other) = (Key::make(), Key::make());
    let proof = |key: &Key| key.proof("POST", &door.proxy_url(TOKEN), json!({}));
    let client_auth = [
        ("client_id", "passer"),
        ("client_secret", "s"),
        ("scope", "read"),
    ];
    let itself = [&client_auth[..], &[("grant_type", "client_credentials")]].concat();
    let bound = text(
        &ask(&door, &itself, &proof(&own)).await.expect(200),
        "access_token",
    );
    let exchange = [
        (
            "grant_type",
            "urn:ietf:params:oauth:grant-type:token-exchange",
        ),
        ("subject_token", &bound),
        (
            "subject_token_type",
            "urn:ietf:params:oauth:token-type:access_token",
        ),
    ];
    let form = [&client_auth[..], &exchange].concat();
    let unproven = send(client().post(door.proxy_url(TOKEN)).form(&form)).await;
    for answer in [unproven, ask(&door, &form, &proof(&other)).await] {
        let why = "The subject token is bound to a key that the request does not prove";
        assert_error(answer, 400, "invalid_request", why);
    }
    let answer = ask(&door, &form, &proof(&own)).await.expect(200);
    assert_eq!(answer.json()["token_type"], "DPoP");
    let claims = claims_of(&text(&answer, "access_token"));
    assert_eq!(claims["cnf"], json!({"jkt": own.thumbprint()}));
}

#[tokio::test]
async fn a_replayed_proof_is_refused() {
    let door = door("").await;
    let key = Key::make();
    let proof = key.proof("POST", &door.proxy_url(TOKEN), json!({}));
    ask(&door, FOR_ITSELF, &proof).await.expect(200);
    assert_error(
        ask(&door, FOR_ITSELF, &proof).await,
        400,
        "invalid_dpop_proof",
        "",
    );
}

#[tokio::test]
async fn a_proof_from_before_a_restart_is_refused() {
    let mut door = door("").await;
    let key = Key::make();
    let proof = key.proof("POST", &door.proxy_url(TOKEN), json!({}));
    ask(&door, FOR_ITSELF, &proof).await.expect(200);
    door.kill();
    door.start().await;
    assert_error(
        ask(&door, FOR_ITSELF, &proof).await,
        400,
        "invalid_dpop_proof",
        "The DPoP proof was used before",
    );
    let fresh = key.proof("POST", &door.proxy_url(TOKEN), json!({}));
    ask(&door, FOR_ITSELF, &fresh).await.expect(200);
}

#[tokio::test]
async fn a_nonce_is_good_at_every_node_of_a_store() {
    let mut door = door("dpop_nonce: true").await;
    let key = Key::make();
    let url = door.proxy_url(TOKEN);
    let answer = ask(&door, FOR_ITSELF, &key.proof("POST", &url, json!({}))).await;
    let nonce = answer.expect(400).header("dpop-nonce").to_owned();
    door.kill();
    door.start().await;
    let proof = key.proof("POST", &url, json!({"nonce": nonce}));
    ask(&door, FOR_ITSELF, &proof).await.expect(200);
}

#[tokio::test]
async fn a_proof_for_another_request_or_time_is_refused() {
    let door = door("").await;
    let key = Key::make();
    let url = door.proxy_url(TOKEN);
    let now = Clock::system().now_secs();
    for proof in [
        key.proof("GET", &url, json!({})),
        key.proof("POST", &door.proxy_url("/oauth2/userinfo"), json!({})),
        key.proof(
            "POST",
            "https://other.example/oauth2/access_token",
            json!({}),
        ),
        key.proof("POST", &url, json!({"iat": now - 3600})),
        key.proof("POST", &url, json!({"iat": now + 3600})),
        key.proof("POST", &url, json!({"iat": null})),
        key.proof("POST", &url, json!({"exp": now - 3600})),
        key.proof("POST", &url, json!({"nbf": now + 3600})),
        key.proof("POST", &url, json!({"jti": null})),
        key.proof("POST", &url, json!({"htu": null})),
        key.proof("POST", &url, json!({"htm": null})),
        "junk".to_owned(),
    ] {
        assert_error(
            ask(&door, FOR_ITSELF, &proof).await,
            400,
            "invalid_dpop_proof",
            "",
        );
    }
    let request = client().post(&url).form(FOR_ITSELF);
    let one = || key.proof("POST", &url, json!({}));
    let two = send(request.header("dpop", one()).header("dpop", one())).await;
    assert_error(two, 400, "invalid_dpop_proof", "");
}

#[tokio::test]
async fn a_client_that_registered_bound_tokens_gets_no_others() {
    let door = door("").await;
    let form = with(FOR_ITSELF, "client_id", "bound");
    let form = with(&form, "client_secret", "s");
    assert_error(
        door.token_request(&form).await,
        400,
        "invalid_dpop_proof",
        "",
    );
    let proof = Key::make().proof("POST", &door.proxy_url(TOKEN), json!({}));
    ask(&door, &form, &proof).await.expect(200);
}

#[tokio::test]
async fn a_refresh_token_of_a_public_client_is_bound_to_its_key() {
    let door = door("").await;
    let (key, other) = (Key::make(), Key::make());
    let url = door.proxy_url(TOKEN);
    let form = with(&with(FOR_DEMO, "client_id", "app"), "client_secret", "");
    let form = with(&form, "scope", "read");
    let proof = |key: &Key| key.proof("POST", &url, json!({}));
    let first = ask(&door, &form, &proof(&key)).await.expect(200);
    let token = text(&first, "refresh_token");
    let form = [
        ("grant_type", "refresh_token"),
        ("client_id", "app"),
        ("refresh_token", token.as_str()),
    ];
    // A thief has the token and not the key; the try does not burn it either.
    assert_error(
        ask(&door, &form, &proof(&other)).await,
        400,
        "invalid_grant",
        "",
    );
    // Without any proof the request lacks something, and the grant is as good.
    let without = door.token_request(&form).await;
    assert_error(without, 400, "invalid_request", "A DPoP proof is required");
    let second = ask(&door, &form, &proof(&key)).await.expect(200);
    assert_eq!(second.json()["token_type"], "DPoP");

    // A confidential client proves itself, and may take a new key.
    let form = with(FOR_DEMO, "scope", "read");
    let first = ask(&door, &form, &proof(&key)).await.expect(200);
    let token = text(&first, "refresh_token");
    let form = [
        ("grant_type", "refresh_token"),
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
        ("refresh_token", token.as_str()),
    ];
    let second = ask(&door, &form, &proof(&other)).await.expect(200);
    let claims = claims_of(&text(&second, "access_token"));
    assert_eq!(claims["cnf"]["jkt"], other.thumbprint());
}

async fn userinfo(door: &Door, scheme: &str, token: &str, proof: Option<String>) -> Answer {
    let request = client().get(door.proxy_url("/oauth2/userinfo"));
    let mut request = request.header("authorization", format!("{scheme} {token}"));
    if let Some(proof) = proof {
        request = request.header("dpop", proof);
    }
    send(request).await
}

fn hash(token: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, token.as_bytes()))
}

#[tokio::test]
async fn a_bound_token_is_good_with_its_proof_only() {
    let door = door("").await;
    let (key, other) = (Key::make(), Key::make());
    let form = with(FOR_DEMO, "scope", "openid");
    let proof = key.proof("POST", &door.proxy_url(TOKEN), json!({}));
    let token = text(&ask(&door, &form, &proof).await.expect(200), "access_token");
    let url = door.proxy_url("/oauth2/userinfo");
    let shown = |key: &Key, ath: &str| Some(key.proof("GET", &url, json!({"ath": ath})));
    let good = userinfo(&door, "DPoP", &token, shown(&key, &hash(&token))).await;
    assert_eq!(good.expect(200).json()["sub"], "demo");
    for (scheme, proof, error) in [
        ("Bearer", None, "invalid_token"),
        ("Bearer", shown(&key, &hash(&token)), "invalid_token"),
        ("DPoP", None, "invalid_dpop_proof"),
        ("DPoP", shown(&other, &hash(&token)), "invalid_token"),
        ("DPoP", shown(&key, &hash("other")), "invalid_dpop_proof"),
        (
            "DPoP",
            Some(key.proof("GET", &url, json!({}))),
            "invalid_dpop_proof",
        ),
    ] {
        let answer = userinfo(&door, scheme, &token, proof).await;
        let challenge = answer.header("www-authenticate").to_owned();
        assert!(
            challenge.starts_with("DPoP ") && challenge.contains("algs="),
            "{challenge}"
        );
        assert!(challenge.contains(error), "{challenge}");
        assert_error(answer, 401, error, "");
    }
    // A token that is bound to nothing proves nothing.
    let plain = text(&door.token_request(&form).await.expect(200), "access_token");
    let answer = userinfo(&door, "DPoP", &plain, shown(&key, &hash(&plain))).await;
    assert_error(answer, 401, "invalid_token", "");
}

#[tokio::test]
async fn a_bound_token_reads_and_writes_records_with_its_proof_only() {
    let door = door("").await;
    let key = Key::make();
    let proof = key.proof("POST", &door.proxy_url(TOKEN), json!({}));
    let form = with(FOR_ITSELF, "client_id", "provisioning");
    let form = with(&with(&form, "client_secret", "s"), "scope", "scim:write");
    let token = text(&ask(&door, &form, &proof).await.expect(200), "access_token");
    let proof = |method: &str, url: &str| key.proof(method, url, json!({"ath": hash(&token)}));
    let url = door.proxy_url("/v1/users");
    let read = async |scheme: &str, proof: Option<&str>| {
        let request = client().get(&url);
        let request = request.header("authorization", format!("{scheme} {token}"));
        send(match proof {
            Some(proof) => request.header("dpop", proof),
            None => request,
        })
        .await
    };
    let good = proof("GET", &url);
    let users = read("DPoP", Some(&good)).await.expect(200);
    assert_eq!(users.json()["totalResults"], 1);
    for (scheme, proof, error) in [
        ("DPoP", Some(good.as_str()), "invalid_dpop_proof"),
        ("DPoP", None, "invalid_dpop_proof"),
        ("Bearer", None, "invalid_token"),
    ] {
        let refused = read(scheme, proof).await.expect(401);
        let challenge = refused.header("www-authenticate");
        let is_whole = challenge.starts_with("DPoP ") && challenge.contains("algs=\"");
        assert!(is_whole && challenge.contains(error), "{challenge}");
    }
    // One proof is for all operations of a request, and for both kinds of a search.
    let user = |name: &str| {
        json!({"method": "POST", "path": "/Users", "bulkId": name,
            "data": {"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"],
                "userName": name, "password": format!("Ch4ng31t-{name}")}})
    };
    let bulk = json!({"schemas": ["urn:ietf:params:scim:api:messages:2.0:BulkRequest"],
        "Operations": [user("ann"), user("bob")]});
    let search = json!({"schemas": ["urn:ietf:params:scim:api:messages:2.0:SearchRequest"]});
    for (path, body) in [("/scim/v2/Bulk", bulk), ("/scim/v2/.search", search)] {
        let url = door.proxy_url(path);
        let request = client().post(&url).header("dpop", proof("POST", &url));
        let request = request.header("authorization", format!("DPoP {token}"));
        let answer = send(request.json(&body)).await.expect(200);
        let body = answer.json();
        match body["Operations"].as_array() {
            Some(done) => assert!(done.iter().all(|one| one["status"] == "201"), "{body}"),
            None => assert_eq!(body["totalResults"], 3, "{body}"),
        }
    }
}

#[tokio::test]
async fn a_token_that_came_with_a_proof_is_refused_in_its_scheme() {
    let door = door("").await;
    for (scheme, wanted) in [("DPoP", "DPoP "), ("Bearer", "Bearer ")] {
        let answer = userinfo(&door, scheme, "made-up", None).await;
        let challenge = answer.header("www-authenticate").to_owned();
        assert!(challenge.starts_with(wanted), "{challenge}");
        assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
        assert_eq!(
            challenge.contains("algs=\""),
            scheme == "DPoP",
            "{challenge}"
        );
        assert_error(answer, 401, "invalid_token", "");
    }
    let request = client().post(door.proxy_url("/oauth2/userinfo"));
    let request = request.header("authorization", "Bearer made-up");
    let twice = send(request.form(&[("access_token", "made-up")])).await;
    let challenge = twice.header("www-authenticate").to_owned();
    assert_eq!(challenge, "Bearer error=\"invalid_request\"");
    assert_error(twice, 400, "invalid_request", "");
    let request = client().get(door.proxy_url("/oauth2/userinfo"));
    let request = request.header("authorization", "Bearer made-up");
    let twice = send(request.header("authorization", "Bearer made-up")).await;
    assert_error(twice, 400, "invalid_request", "");
}

#[tokio::test]
async fn where_nonces_are_demanded_a_proof_needs_one_of_ours() {
    let door = door("dpop_nonce: true").await;
    let key = Key::make();
    let url = door.proxy_url(TOKEN);
    let form = with(FOR_DEMO, "scope", "openid");
    let asked = ask(&door, &form, &key.proof("POST", &url, json!({}))).await;
    let nonce = asked.header("dpop-nonce").to_owned();
    assert!(!nonce.is_empty());
    assert_error(asked, 400, "use_dpop_nonce", "");
    let made_up = json!({"nonce": "A".repeat(32)});
    let answer = ask(&door, &form, &key.proof("POST", &url, made_up)).await;
    assert_error(answer, 400, "use_dpop_nonce", "");
    let with_nonce = key.proof("POST", &url, json!({"nonce": nonce}));
    let token = text(
        &ask(&door, &form, &with_nonce).await.expect(200),
        "access_token",
    );
    let url = door.proxy_url("/oauth2/userinfo");
    let proof = key.proof("GET", &url, json!({"ath": hash(&token)}));
    let asked = userinfo(&door, "DPoP", &token, Some(proof)).await;
    assert!(asked.header("www-authenticate").contains("use_dpop_nonce"));
    let nonce = asked.expect(401).header("dpop-nonce").to_owned();
    let proof = key.proof("GET", &url, json!({"ath": hash(&token), "nonce": nonce}));
    userinfo(&door, "DPoP", &token, Some(proof))
        .await
        .expect(200);
    // Who brings no proof needs no nonce.
    door.token_request(&form).await.expect(200);
}
