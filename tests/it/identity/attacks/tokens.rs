//! Attacks with tokens: forged ones, those of another kind, those of others.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use super::{APP, CALLBACK, OTHER, ask, code, door, post, text, tokens, told, userinfo};
use crate::support::http::{client, send};
use crate::support::issuer::claims_of;
use crate::support::{Door, Issuer};

fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// The status at every endpoint that takes an access token; all the same.
async fn is_refused(door: &Door, token: &str, what: &str) {
    assert_eq!(userinfo(door, token).await, 401, "{what}: userinfo");
    let path = format!("/oauth2/tokeninfo?access_token={token}");
    let answer = door.get("127.0.0.1", &path).await;
    assert_eq!(answer.status, 401, "{what}: tokeninfo");
    assert_eq!(told(door, token).await, json!({"active": false}), "{what}");
    let users = door.get_as(token, "127.0.0.1", "/v1/users").await;
    assert_eq!(users.status, 401, "{what}: users");
}

#[tokio::test]
async fn forged_tokens() {
    let door = door().await;
    let stranger = Issuer::start().await;
    let good = text(&tokens(&door).await, "access_token");
    let claims = claims_of(&good);
    let keys = door.get("127.0.0.1", "/oauth2/connect/jwk_uri").await.body;
    let parts: Vec<_> = good.split('.').collect();
    let header: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[0]).expect("base64"))
        .expect("a header");
    let hmac = |secret: &[u8]| {
        let mut header = Header::new(Algorithm::HS256);
        header.kid = claims["kid"].as_str().map(str::to_owned);
        jsonwebtoken::encode(&header, &claims, &EncodingKey::from_secret(secret)).expect("a token")
    };
    let with = |changes: Value| {
        let mut header = header.clone();
        for (name, value) in changes.as_object().expect("an object") {
            header[name] = value.clone();
        }
        format!("{}.{}.{}", part(&header), parts[1], parts[2])
    };
    let raised = {
        let mut claims = claims.clone();
        claims["sub"] = json!("alice");
        format!("{}.{}.{}", parts[0], part(&claims), parts[2])
    };
    let url = stranger.url();
    let key = stranger.public_key();
    for (what, token) in [
        (
            "alg none",
            format!("{}.{}.", part(&json!({"alg": "none"})), parts[1]),
        ),
        (
            "alg nOnE",
            format!("{}.{}.", part(&json!({"alg": "nOnE"})), parts[1]),
        ),
        ("no signature", format!("{}.{}.", parts[0], parts[1])),
        ("another subject", raised),
        ("the key set as a secret", hmac(keys.as_bytes())),
        ("the empty secret", hmac(b"")),
        ("the client's secret", hmac(APP[1].1.as_bytes())),
        ("a stranger's key", stranger.sign(&claims)),
        ("a key in the header", with(json!({"jwk": key}))),
        (
            "an address of keys",
            with(json!({"jku": format!("{url}/keys")})),
        ),
        (
            "an address of certificates",
            with(json!({"x5u": format!("{url}/keys")})),
        ),
        ("an unknown extension", with(json!({"crit": ["x"], "x": 1}))),
        (
            "a path for a key",
            with(json!({"kid": "../../../../dev/null"})),
        ),
        ("a query for a key", with(json!({"kid": "' OR 1=1 --"}))),
        ("no base64", format!("{good}=")),
        ("a part too many", format!("{good}.x")),
        ("endless", format!("{good}{}", "A".repeat(20_000))),
    ] {
        if what == "endless" {
            assert_ne!(userinfo(&door, &token).await, 200);
            continue;
        }
        is_refused(&door, &token, what).await;
    }
    assert_eq!(stranger.key_fetches(), 0, "a token's own address was asked");
    assert_eq!(userinfo(&door, &good).await, 200);
}

#[tokio::test]
async fn tokens_of_another_kind() {
    let door = door().await;
    let all = tokens(&door).await;
    let access = text(&all, "access_token");
    let (id, refresh) = (text(&all, "id_token"), text(&all, "refresh_token"));
    let code = code(&door, "/").await;
    assert_eq!(userinfo(&door, &id).await, 401, "an ID token");
    assert_eq!(userinfo(&door, &refresh).await, 401, "a refresh token");
    assert_eq!(userinfo(&door, &code).await, 401, "a code");
    for token in [&access, &id, &code] {
        let fields = [
            ("grant_type", "refresh_token"),
            ("refresh_token", token.as_str()),
        ];
        let answer = ask(&door, &fields).await.expect(400).json();
        assert_eq!(answer["error"], "invalid_grant");
    }
    for token in [&access, &id, &refresh] {
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", token.as_str()),
            ("redirect_uri", CALLBACK),
        ];
        let answer = ask(&door, &fields).await.expect(400).json();
        assert_eq!(answer["error"], "invalid_grant");
    }
    // Nor does a token stand for a client.
    let fields = [
        ("grant_type", "client_credentials"),
        (
            "client_assertion_type",
            "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        ),
        ("client_assertion", &id),
    ];
    post(&door, "access_token", &fields).await.expect(401);
    // Or an access token for the proof of who is signed out.
    let path = format!("/oauth2/connect/endSession?id_token_hint={access}");
    door.get("127.0.0.1", &path).await.expect(400);
}

#[tokio::test]
async fn what_one_client_was_given_another_one_does_not_use() {
    let door = door().await;
    let all = tokens(&door).await;
    let refresh = text(&all, "refresh_token");
    let code = code(&door, "/").await;
    for fields in [
        vec![
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.as_str()),
        ],
        vec![
            ("grant_type", "authorization_code"),
            ("code", code.as_str()),
            ("redirect_uri", CALLBACK),
        ],
    ] {
        let stolen = [&OTHER[..], &fields].concat();
        let answer = post(&door, "access_token", &stolen).await;
        assert_eq!(answer.expect(400).json()["error"], "invalid_grant");
    }
    let scan = [&OTHER[..], &[("token", refresh.as_str())]].concat();
    let told = post(&door, "introspect", &scan).await.expect(200).json();
    assert_eq!(told, json!({"active": false}));
    post(&door, "token/revoke", &scan).await.expect(400);
    // A thief does not take it from its owner.
    let own = [
        ("grant_type", "refresh_token"),
        ("refresh_token", refresh.as_str()),
    ];
    ask(&door, &own).await.expect(200);
}

#[tokio::test]
async fn what_one_realm_gave_is_nothing_in_another() {
    let door = door().await;
    let all = tokens(&door).await;
    let access = text(&all, "access_token");
    let refresh = text(&all, "refresh_token");
    let alpha = "realms/root/realms/alpha";
    let endpoint = format!("{alpha}/access_token");
    for fields in [
        vec![
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.as_str()),
        ],
        vec![
            ("grant_type", "authorization_code"),
            ("code", &code(&door, "/").await),
            ("redirect_uri", CALLBACK),
        ],
    ] {
        let there = [&APP[..], &fields].concat();
        let answer = post(&door, &endpoint, &there).await;
        assert_eq!(answer.expect(400).json()["error"], "invalid_grant");
    }
    let fields = [&APP[..], &[("token", access.as_str())]].concat();
    let told = post(&door, &format!("{alpha}/introspect"), &fields).await;
    assert_eq!(told.expect(200).json(), json!({"active": false}));
    let request = client().get(door.proxy_url(&format!("/oauth2/{alpha}/userinfo")));
    send(request.bearer_auth(&access)).await.expect(401);
    // Nor does a client of one realm exist in the other.
    let fields = [&OTHER[..], &[("grant_type", "client_credentials")]].concat();
    post(&door, &endpoint, &fields).await.expect(401);
    // The code of the other realm is as good there as nothing is here.
    let there = code(&door, "/alpha").await;
    let here = [
        ("grant_type", "authorization_code"),
        ("code", there.as_str()),
        ("redirect_uri", CALLBACK),
    ];
    ask(&door, &here).await.expect(400);
}

#[tokio::test]
async fn a_refresh_asks_for_more_than_was_granted() {
    let door = door().await;
    let all = tokens(&door).await;
    let refresh = text(&all, "refresh_token");
    let fields = [
        ("grant_type", "refresh_token"),
        ("refresh_token", refresh.as_str()),
        ("scope", "openid read"),
    ];
    let answer = ask(&door, &fields).await.expect(400).json();
    assert_eq!(answer["error"], "invalid_scope");
}

#[tokio::test]
async fn algorithm_confusion_in_an_id_token_hint() {
    let door = door().await;
    let id = text(&tokens(&door).await, "id_token");
    let claims = claims_of(&id);
    let keys = door.get("127.0.0.1", "/oauth2/connect/jwk_uri").await.body;
    let secret = EncodingKey::from_secret(keys.as_bytes());
    let hmac = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &secret);
    let none = format!("{}.{}.", part(&json!({"alg": "none"})), part(&claims));
    for hint in [hmac.expect("a token"), none] {
        let path = format!("/oauth2/connect/endSession?id_token_hint={hint}");
        door.get("127.0.0.1", &path).await.expect(400);
        let path = format!(
            "/oauth2/authorize?client_id=app&response_type=code&scope=openid&prompt=none\
             &redirect_uri=https%3A%2F%2Fapp.example%2Fcb&id_token_hint={hint}"
        );
        let answer = door.get("127.0.0.1", &path).await.expect(302);
        assert!(answer.header("location").contains("error=invalid_request"));
    }
}
