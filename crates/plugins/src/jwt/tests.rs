use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::json;

use super::*;
use crate::authentication::testing::{Outcome, ask, entry, filter, parts_with};
use crate::testing::plugin;
use doorward_core::jose::algorithm::Algorithm;
use doorward_core::jose::keys::{KeyRing, generate};
use doorward_core::jose::vault::Vault;
use doorward_core::model::client::SignAlg;
use doorward_core::model::secret::Secret;

/// A pair of keys: what signs, and the public half in PEM.
struct Pair {
    ring: KeyRing,
    alg: SignAlg,
    pem: String,
}

impl Pair {
    fn new(alg: SignAlg) -> Self {
        let stored = generate(alg, 0, 0).expect("a key");
        let ring = KeyRing::parse(&[stored], &Vault::default(), &KeyRing::default());
        let ring = ring.expect("a ring");
        let pem = pem(&ring.jwks(0)["keys"][0]);
        Self { ring, alg, pem }
    }

    fn sign(&self, claims: &Value) -> String {
        let signer = self.ring.signer(self.alg, 0).expect("a signer");
        signer.sign(claims).expect("a token")
    }
}

/// The public key of an elliptic curve as PEM (RFC 5480).
fn pem(jwk: &Value) -> String {
    let part = |name: &str| {
        let text = jwk[name].as_str().expect("a coordinate");
        URL_SAFE_NO_PAD.decode(text).expect("base64url")
    };
    // The header of a P-256 key in DER, and its point.
    let mut der = vec![
        0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08,
        0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04,
    ];
    der.extend(part("x"));
    der.extend(part("y"));
    let text = STANDARD.encode(der);
    format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n")
}

fn jwt(config: &Value, pair: Option<&Pair>) -> Arc<dyn Filter> {
    let parts = parts_with(|directory| {
        let mut put = |name: &str, key: TokenKey| {
            directory.tokens.put(name.as_bytes().into(), entry(key));
        };
        let secret = Secret::new("c2VjcmV0");
        put("anna", TokenKey::new(Algorithm::Hs256, Some(&secret), None));
        put("bert", TokenKey::new(Algorithm::Hs256, None, None));
        if let Some(pair) = pair {
            let pem = Some(pair.pem.as_str());
            put("carl", TokenKey::new(Algorithm::Es256, Some(&secret), pem));
        }
    });
    filter(&KIND, config, &parts)
}

fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

fn token(header: &Value, claims: &Value, secret: &[u8]) -> String {
    let signed = format!("{}.{}", part(header), part(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes()));
    format!("{signed}.{signature}")
}

fn good(claims: &Value) -> String {
    token(&json!({"alg": "HS256"}), claims, b"c2VjcmV0")
}

async fn send(filter: &dyn Filter, token: &str) -> Outcome {
    ask(
        filter,
        &format!("GET / HTTP/1.1\r\nAuthorization: Bearer {token}"),
    )
    .await
}

#[tokio::test]
async fn a_token_may_be_in_several_places_if_it_is_one() {
    let filter = jwt(&json!({"cookie_names": ["c"]}), None);
    let good = good(&json!({"iss": "anna"}));
    for (lines, status) in [
        (
            format!("GET / HTTP/1.1\r\nAuthorization: Bearer {good}"),
            200,
        ),
        (
            format!("GET / HTTP/1.1\r\nAuthorization: bearer {good}"),
            200,
        ),
        (format!("GET /?jwt={good} HTTP/1.1"), 200),
        (format!("GET /?jwt=&jwt={good} HTTP/1.1"), 200),
        (format!("GET / HTTP/1.1\r\nCookie: a=b; c={good}"), 200),
        (
            format!("GET /?jwt={good} HTTP/1.1\r\nCookie: c={good}"),
            200,
        ),
        (format!("GET /?jwt={good} HTTP/1.1\r\nCookie: c=other"), 401),
        (format!("GET /?jwt={good}&jwt=other HTTP/1.1"), 401),
        (
            format!("GET / HTTP/1.1\r\nAuthorization: Basic {good}"),
            401,
        ),
        ("GET / HTTP/1.1".to_owned(), 401),
    ] {
        let outcome = ask(&*filter, &lines).await;
        let got = outcome.reply.map_or(200, |reply| reply.status.as_u16());
        assert_eq!(got, status, "{lines}");
    }
    let lines = format!("GET /?jwt={good}&jwt=other HTTP/1.1");
    let message = ask(&*filter, &lines).await.message();
    let expected = r#"{"message":"Multiple tokens provided"}"#;
    assert_eq!(message.as_deref(), Some(expected));
}

#[tokio::test]
async fn each_refusal_has_its_words() {
    let filter = jwt(&json!({}), None);
    let hs256 = json!({"alg": "HS256"});
    let anna = json!({"iss": "anna"});
    let key = b"c2VjcmV0";
    let changed = {
        let token = good(&anna);
        let (_, signature) = token.rsplit_once('.').expect("a signature");
        format!(
            "{}.{}.{signature}",
            part(&hs256),
            part(&json!({"iss": "anna", "a": 1}))
        )
    };
    for (token, message) in [
        ("x".to_owned(), "Bad token; invalid JSON"),
        ("a.b.c.d".to_owned(), "Bad token; invalid JSON"),
        (
            token(&json!({"alg": "none"}), &anna, key),
            "Bad token; invalid alg",
        ),
        (
            token(&json!({"typ": "JWT"}), &anna, key),
            "Bad token; invalid alg",
        ),
        (
            token(&json!({"alg": "HS256", "crit": ["exp"]}), &anna, key),
            "Bad token; invalid JSON",
        ),
        (token(&hs256, &json!([1]), key), "Bad token; invalid claims"),
        (
            format!("{}.{}.!", part(&hs256), part(&anna)),
            "Bad token; invalid signature",
        ),
        (
            token(&hs256, &json!({}), key),
            "No mandatory 'iss' in claims",
        ),
        (
            token(&hs256, &json!({"iss": 1}), key),
            "No mandatory 'iss' in claims",
        ),
        (
            token(&hs256, &json!({"iss": ""}), key),
            "Invalid 'iss' in claims",
        ),
        (
            token(&hs256, &json!({"iss": "x"}), key),
            "No credentials found for given 'iss'",
        ),
        (
            token(&json!({"alg": "HS512"}), &anna, key),
            "Invalid algorithm",
        ),
        (
            token(&hs256, &json!({"iss": "bert"}), b""),
            "Invalid key/secret",
        ),
        (token(&hs256, &anna, b"other"), "Invalid signature"),
        (changed, "Invalid signature"),
    ] {
        let outcome = send(&*filter, &token).await;
        let expected = json!({"message": message}).to_string();
        assert_eq!(outcome.message(), Some(expected), "{token}");
        assert_eq!(outcome.challenge(), Some("Bearer error=\"invalid_token\""));
    }
}

#[tokio::test]
async fn a_public_key_is_never_taken_for_a_secret() {
    let pair = Pair::new(SignAlg::ES256);
    let filter = jwt(&json!({}), Some(&pair));
    let carl = json!({"iss": "carl"});
    let good = pair.sign(&carl);
    for _ in 0..2 {
        assert_eq!(send(&*filter, &good).await.consumer(), Some("anna"));
    }
    // A token that was verified before, with another end.
    let (signed, _) = good.rsplit_once('.').expect("a signature");
    let forged = format!("{signed}.{}", URL_SAFE_NO_PAD.encode([0; 64]));
    assert!(send(&*filter, &forged).await.consumer().is_none());
    // The classic: the public key, which everybody has, as the secret of an HMAC.
    for (header, secret) in [
        (json!({"alg": "HS256"}), pair.pem.as_bytes()),
        (json!({"alg": "HS256"}), b"c2VjcmV0".as_slice()),
        (json!({"alg": "none"}), b"".as_slice()),
        (json!({"alg": "ES256"}), pair.pem.as_bytes()),
    ] {
        let outcome = send(&*filter, &token(&header, &carl, secret)).await;
        assert!(outcome.consumer().is_none(), "{header}");
    }
    // And the other way round: a signature of somebody's own for an HMAC credential.
    let outcome = send(&*filter, &pair.sign(&json!({"iss": "anna"}))).await;
    assert!(outcome.consumer().is_none());
}

#[tokio::test]
async fn times_are_verified_if_they_are_to_be() {
    let all = json!({"claims_to_verify": ["exp", "nbf"], "maximum_expiration": 100});
    let (strict, loose) = (jwt(&all, None), jwt(&json!({}), None));
    // The clock of the tests stands at the epoch.
    for (claims, fault) in [
        (json!({"exp": 1, "nbf": 0}), ""),
        (json!({"exp": 0, "nbf": 0}), r#"{"exp":"token expired"}"#),
        (
            json!({"exp": 1, "nbf": 1}),
            r#"{"nbf":"token not valid yet"}"#,
        ),
        (
            json!({"exp": "1"}),
            r#"{"nbf":"must be a number","exp":"must be a number"}"#,
        ),
        (
            json!({"exp": 101, "nbf": 0}),
            r#"{"exp":"exceeds maximum allowed expiration"}"#,
        ),
    ] {
        let mut claims = claims;
        claims["iss"] = json!("anna");
        let token = good(&claims);
        let message = send(&*strict, &token).await.message();
        assert_eq!(message.as_deref().unwrap_or_default(), fault, "{claims}");
        assert!(send(&*loose, &token).await.reply.is_none());
    }
    let refused = plugin(&KIND, &json!({"maximum_expiration": 5})).err();
    assert!(refused.is_some_and(|told| told.contains("expected to contain: exp")));
    let wrong = json!({"maximum_expiration": 5, "secret_is_base64": "perhaps"});
    let refused = plugin(&KIND, &wrong).err().unwrap_or_default();
    for told in [
        "expected to contain: exp",
        "secret_is_base64: expected a boolean",
    ] {
        assert!(refused.contains(told), "{refused}");
    }
}

#[tokio::test]
async fn the_credential_may_be_named_elsewhere_and_its_secret_be_base64() {
    let config = json!({"key_claim_name": "kid", "secret_is_base64": true, "realm": "r"});
    let filter = jwt(&config, None);
    let header = json!({"alg": "HS256", "kid": "anna"});
    let outcome = send(&*filter, &token(&header, &json!({}), b"secret")).await;
    assert_eq!(outcome.consumer(), Some("anna"));
    let outcome = send(&*filter, &token(&header, &json!({}), b"c2VjcmV0")).await;
    let challenge = outcome.challenge().map(str::to_owned);
    let expected = "Bearer realm=\"r\" error=\"invalid_token\"";
    assert_eq!(challenge.as_deref(), Some(expected));
}
