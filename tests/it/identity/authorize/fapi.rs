//! A client of the profile `fapi2` (FAPI 2.0 Security Profile).

use aws_lc_rs::digest;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use doorward_core::clock::Clock;
use serde_json::{Value, json};

use super::browser::Browser;
use super::{CHALLENGE, VERIFIER, told};
use crate::identity::assert_error;
use crate::identity::dpop::Key;
use crate::support::http::{client, send};
use crate::support::issuer::claims_of;
use crate::support::{Answer, Door, Issuer, Setup};

const CALLBACK: &str = "https://bank.example/cb";
const TOKEN: &str = "/oauth2/access_token";

async fn door(keys: &Issuer) -> Door {
    let section = format!(
        "
  base_url: http://@PROXY@
  realms:
    /:
      settings: {{code_lifetime: 600, plain_pkce: true, pushed_request_lifetime: 60}}
      users: [{{userName: demo, password: Ch4ng31t-demo}}]
      clients:
        - client_id: bank
          profile: fapi2
          token_endpoint_auth_method: private_key_jwt
          jwks: {{keys: [{public}]}}
          grant_types: [authorization_code, refresh_token, client_credentials]
          redirect_uris: [\"{CALLBACK}\"]
          require_consent: false
          scope: openid accounts
",
        public = keys.public_key(),
    );
    let orders = "
- name: orders
  protocol: internal
  host: echo
  routes: [{name: orders, paths: [/orders], strip_path: false}]
  plugins:
  - name: openid-connect
    config: {issuer: 'http://@PROXY@/oauth2', auth_methods: [bearer], proof_of_possession_dpop: strict}
";
    let setup = Setup::new().identity(&section);
    setup.services(orders).start().await
}

/// A client assertion, with changes; null removes.
fn assertion(keys: &Issuer, door: &Door, changes: Value) -> String {
    let now = keys.claims()["iat"].as_i64().expect("a time");
    let mut all = json!({"iss": "bank", "sub": "bank", "scope": null, "exp": now + 60,
        "aud": door.proxy_url("/oauth2"), "jti": format!("{:?}", std::time::Instant::now())});
    for (name, value) in changes.as_object().expect("an object") {
        all[name] = value.clone();
    }
    keys.sign(&keys.claims_with(all))
}

async fn post(
    door: &Door,
    path: &str,
    (assertion, proof): (&str, Option<&Key>),
    form: &[(&str, &str)],
) -> Answer {
    let url = door.proxy_url(path);
    let proof = proof.map(|key| key.proof("POST", &url, json!({})));
    post_with(door, path, (assertion, proof), form).await
}

async fn post_with(
    door: &Door,
    path: &str,
    (assertion, proof): (&str, Option<String>),
    form: &[(&str, &str)],
) -> Answer {
    let proven = [
        (
            "client_assertion_type",
            "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        ),
        ("client_assertion", assertion),
    ];
    let url = door.proxy_url(path);
    let mut request = client().post(&url).form(&[&proven[..], form].concat());
    if let Some(proof) = proof {
        request = request.header("dpop", proof);
    }
    send(request).await
}

const REQUEST: [(&str, &str); 7] = [
    ("client_id", "bank"),
    ("response_type", "code"),
    ("redirect_uri", CALLBACK),
    ("scope", "openid accounts"),
    ("state", "s-1"),
    ("code_challenge", CHALLENGE),
    ("code_challenge_method", "S256"),
];

#[tokio::test]
async fn a_client_of_the_profile_is_served_from_push_to_refresh() {
    let keys = Issuer::start().await;
    let door = door(&keys).await;
    let key = Key::make();
    let by = || assertion(&keys, &door, json!({}));
    let answer = post(&door, "/oauth2/par", (&by(), Some(&key)), &REQUEST).await;
    let body = answer.expect(201).json();
    assert_eq!(body["expires_in"], 60);
    let uri: String = body["request_uri"].as_str().expect("a text").to_owned();
    let uri: String = url::form_urlencoded::byte_serialize(uri.as_bytes()).collect();
    let browser = Browser::new(&door);
    let page = browser
        .get(&format!(
            "/oauth2/authorize?client_id=bank&request_uri={uri}"
        ))
        .await
        .expect(200);
    let answer = browser.sign_in(&page, "demo").await.expect(302);
    let answer = told(&answer, CALLBACK);
    assert_eq!(answer["iss"], door.proxy_url("/oauth2"));
    let names: Vec<&str> = answer.keys().map(String::as_str).collect();
    assert_eq!(names, ["code", "iss", "state"], "nothing besides");

    let form = [
        ("grant_type", "authorization_code"),
        ("code", &answer["code"]),
        ("redirect_uri", CALLBACK),
        ("code_verifier", VERIFIER),
    ];
    let answer = post(&door, TOKEN, (&by(), Some(&key)), &form).await;
    let body = answer.expect(200).json();
    assert_eq!(body["token_type"], "DPoP");
    let id_token = body["id_token"].as_str().expect("an ID token");
    let header = id_token.split('.').next().expect("a header");
    let header = claims_of(&format!(".{header}"));
    assert_eq!(header["alg"], "ES256", "the realm's is RS256");
    let claims = claims_of(id_token);
    for claim in ["auditTrackingId", "tokenName", "tokenType", "realm", "sid"] {
        assert_eq!(claims.get(claim), None, "{claim}");
    }

    let refresh = body["refresh_token"].as_str().expect("a token");
    let form = [("grant_type", "refresh_token"), ("refresh_token", refresh)];
    for _ in 0..2 {
        let answer = post(&door, TOKEN, (&by(), Some(&key)), &form).await;
        let body = answer.expect(200).json();
        assert_eq!(body["token_type"], "DPoP");
        let next = body.get("refresh_token").and_then(Value::as_str);
        assert!(next.is_none_or(|next| next == refresh), "{body}");
    }
    let answer = post(&door, TOKEN, (&by(), None), &form).await;
    assert_error(answer, 400, "invalid_request", "A DPoP proof is required");
}

/// An RSA key, which is good for PS256 and RS256.
struct RsaKey(RsaKeyPair);

impl RsaKey {
    /// A proof by `alg` with a key that says `jwk_alg` of itself.
    fn proof(&self, (alg, jwk_alg): (&str, Option<&str>), claims: &Value) -> String {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let public = self.0.public_key();
        let n = public.modulus().big_endian_without_leading_zero();
        let e = public.exponent().big_endian_without_leading_zero();
        let mut jwk = json!({"kty": "RSA", "n": encode(n), "e": encode(e)});
        if let Some(jwk_alg) = jwk_alg {
            jwk["alg"] = json!(jwk_alg);
        }
        let header = json!({"typ": "dpop+jwt", "alg": alg, "jwk": jwk});
        let mut all = json!({"jti": format!("{:?}", std::time::Instant::now()),
            "iat": Clock::system().now_secs()});
        for (name, value) in claims.as_object().expect("an object") {
            all[name] = value.clone();
        }
        let (header, all) = (header.to_string(), all.to_string());
        let text = format!("{}.{}", encode(header.as_bytes()), encode(all.as_bytes()));
        let encoding: &'static dyn RsaEncoding = match alg {
            "PS256" => &RSA_PSS_SHA256,
            _ => &RSA_PKCS1_SHA256,
        };
        let mut signature = vec![0; self.0.public_modulus_len()];
        let random = SystemRandom::new();
        let signed = self
            .0
            .sign(encoding, &random, text.as_bytes(), &mut signature);
        signed.expect("signed");
        format!("{text}.{}", encode(&signature))
    }
}

#[tokio::test]
async fn a_proof_by_a_weak_algorithm_is_refused_at_resources_as_at_endpoints() {
    let keys = Issuer::start().await;
    let door = door(&keys).await;
    let key = RsaKey(RsaKeyPair::generate(KeySize::Rsa2048).expect("a key pair"));
    let by = || assertion(&keys, &door, json!({}));
    let of = |path: &str, how: (&str, Option<&str>)| {
        key.proof(how, &json!({"htm": "POST", "htu": door.proxy_url(path)}))
    };
    // By another algorithm than the profile allows, or than the key itself.
    for how in [
        ("RS256", None),
        ("PS256", Some("RS256")),
        ("RS256", Some("PS256")),
    ] {
        let proof = Some(of("/oauth2/par", how));
        let answer = post_with(&door, "/oauth2/par", (&by(), proof), &REQUEST).await;
        assert_error(answer, 400, "invalid_dpop_proof", "");
    }
    let proof = Some(of("/oauth2/par", ("PS256", Some("PS256"))));
    let answer = post_with(&door, "/oauth2/par", (&by(), proof), &REQUEST).await;
    let uri = answer.expect(201).json()["request_uri"].clone();
    let uri = uri.as_str().expect("a text").as_bytes();
    let uri: String = url::form_urlencoded::byte_serialize(uri).collect();
    let browser = Browser::new(&door);
    let page = format!("/oauth2/authorize?client_id=bank&request_uri={uri}");
    let page = browser.get(&page).await.expect(200);
    let answer = browser.sign_in(&page, "demo").await.expect(302);
    let answer = told(&answer, CALLBACK);
    let form = [
        ("grant_type", "authorization_code"),
        ("code", &answer["code"]),
        ("redirect_uri", CALLBACK),
        ("code_verifier", VERIFIER),
    ];
    let proof = Some(of(TOKEN, ("PS256", None)));
    let answer = post_with(&door, TOKEN, (&by(), proof), &form).await;
    let token = answer.expect(200).json()["access_token"].clone();
    let token = token.as_str().expect("a token");
    let hash = digest::digest(&digest::SHA256, token.as_bytes());
    let orders = door.proxy_url("/orders");
    let claims = json!({"htm": "GET", "htu": orders, "ath": URL_SAFE_NO_PAD.encode(hash)});
    for (how, status) in [(("RS256", None), 401), (("PS256", None), 200)] {
        let request = client().get(&orders);
        let request = request.header("authorization", format!("DPoP {token}"));
        let answer = send(request.header("dpop", key.proof(how, &claims))).await;
        answer.expect(status);
    }
    let userinfo = door.proxy_url("/oauth2/userinfo");
    let claims = json!({"htm": "GET", "htu": userinfo, "ath": URL_SAFE_NO_PAD.encode(hash)});
    for (how, status) in [
        (("RS256", None), 401),
        (("RS256", Some("PS256")), 401),
        (("PS256", Some("RS256")), 401),
        (("PS256", None), 200),
        (("PS256", Some("PS256")), 200),
    ] {
        let request = client().get(&userinfo);
        let request = request.header("authorization", format!("DPoP {token}"));
        let answer = send(request.header("dpop", key.proof(how, &claims))).await;
        let answer = answer.expect(status);
        if status == 401 {
            let challenge = answer.header("www-authenticate");
            let wanted = "DPoP error=\"invalid_dpop_proof\", algs=\"PS256 ES256 EdDSA\"";
            assert_eq!(challenge, wanted, "{how:?}");
        }
    }
}

#[tokio::test]
async fn requests_below_the_profile_are_refused() {
    let keys = Issuer::start().await;
    let door = door(&keys).await;
    let issuer = door.proxy_url("/oauth2");
    for audience in [
        json!([issuer]),
        json!([issuer, "https://other.example"]),
        json!(door.proxy_url(TOKEN)),
        json!(door.proxy_url("/oauth2/par")),
    ] {
        let by = assertion(&keys, &door, json!({"aud": audience}));
        let answer = post(&door, "/oauth2/par", (&by, None), &REQUEST).await;
        assert_error(answer, 401, "invalid_client", "JWT is not valid");
    }
    for (name, value) in [
        ("code_challenge", ""),
        ("code_challenge_method", "plain"),
        ("code_challenge_method", ""),
        ("redirect_uri", ""),
        ("response_type", "code id_token"),
    ] {
        let by = assertion(&keys, &door, json!({}));
        let form = crate::identity::with(&REQUEST, name, value);
        let answer = post(&door, "/oauth2/par", (&by, None), &form).await;
        let answer = answer.expect(400);
        assert_eq!(answer.header("cache-control"), "no-store", "{name}");
    }
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(REQUEST);
    let plain = format!("/oauth2/authorize?{}", query.finish());
    let browser = Browser::new(&door);
    let answer = told(&browser.get(&plain).await, CALLBACK);
    assert_eq!(answer["error"], "invalid_request");
    let nothing = browser.get("/oauth2/authorize?client_id=bank").await;
    assert_eq!(told(&nothing, CALLBACK)["error"], "invalid_request");

    let form = [("grant_type", "client_credentials"), ("scope", "accounts")];
    let by = assertion(&keys, &door, json!({}));
    let answer = post(&door, TOKEN, (&by, None), &form).await;
    assert_error(answer, 400, "invalid_dpop_proof", "");
}
