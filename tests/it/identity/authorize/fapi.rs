//! A client of the profile `fapi2` (FAPI 2.0 Security Profile).

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
    Setup::new().identity(&section).start().await
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
    let proven = [
        (
            "client_assertion_type",
            "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        ),
        ("client_assertion", assertion),
    ];
    let url = door.proxy_url(path);
    let mut request = client().post(&url).form(&[&proven[..], form].concat());
    if let Some(key) = proof {
        request = request.header("dpop", key.proof("POST", &url, json!({})));
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
    assert_error(answer, 400, "invalid_dpop_proof", "");
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
