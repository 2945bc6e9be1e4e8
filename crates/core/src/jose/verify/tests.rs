#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::jose::testing::{TestKey, hs256, jwks};

fn set(keys: &[&TestKey]) -> KeySet {
    KeySet::parse(jwks(keys).to_string().as_bytes()).unwrap()
}

fn verify(token: &str, keys: &KeySet) -> Result<Map<String, Value>, VerifyError> {
    Unverified::parse(token)?.verify(keys)
}

fn header(alg: &str, kid: &str) -> String {
    json!({"alg": alg, "kid": kid}).to_string()
}

#[test]
fn every_asymmetric_algorithm_verifies() {
    let rsa = TestKey::rsa("r", false);
    let keys = [
        TestKey::ec("e2", "ES256"),
        TestKey::ec("e3", "ES384"),
        TestKey::ec("e5", "ES512"),
        TestKey::ed25519("ed"),
    ];
    let mut all: Vec<&TestKey> = keys.iter().collect();
    all.push(&rsa);
    let set = set(&all);
    assert_eq!(set.len(), 5);
    for key in &keys {
        assert!(
            verify(&key.token(&json!({"sub": "s"})), &set).is_ok(),
            "{}",
            key.alg()
        );
    }
    for alg in ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"] {
        let token = rsa.sign(&header(alg, "r"), r#"{"sub":"s"}"#);
        assert_eq!(verify(&token, &set).unwrap()["sub"], "s", "{alg}");
    }
    let token = keys[3].sign(&header("Ed25519", "ed"), "{}");
    assert!(verify(&token, &set).is_ok());
}

#[test]
fn tokens_made_by_another_implementation_verify() {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(
        &ECDSA_P256_SHA256_FIXED_SIGNING,
        &aws_lc_rs::rand::SystemRandom::new(),
    )
    .unwrap();
    let _ = jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default();
    let key = jsonwebtoken::EncodingKey::from_ec_der(pkcs8.as_ref());
    let jwk = jsonwebtoken::jwk::Jwk::from_encoding_key(&key, jsonwebtoken::Algorithm::ES256);
    let set = json!({"keys": [jwk.unwrap()]}).to_string();
    let header = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::ES256);
    let token = jsonwebtoken::encode(&header, &json!({"sub": "s"}), &key).unwrap();
    let claims = verify(&token, &KeySet::parse(set.as_bytes()).unwrap()).unwrap();
    assert_eq!(claims["sub"], "s");
}

/// The claims as the crate jsonwebtoken reads them, which knows the same key.
fn claims_by_jsonwebtoken(token: &str, key: &TestKey) -> jsonwebtoken::errors::Result<Value> {
    let _ = jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default();
    let jwk: jsonwebtoken::jwk::Jwk = serde_json::from_value(key.jwk()).unwrap();
    let key = jsonwebtoken::DecodingKey::from_jwk(&jwk)?;
    let mut validation = jsonwebtoken::Validation::new(jsonwebtoken::Algorithm::ES256);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    Ok(jsonwebtoken::decode(token, &key, &validation)?.claims)
}

/// Why the crate verifies no token here: ARCHITECTURE, "Dependencies that the design
/// names". Once it refuses these too, that reason is gone.
#[test]
fn jsonwebtoken_takes_tokens_that_have_two_meanings() {
    let key = TestKey::es256("k");
    let set = set(&[&key]);
    let critical = r#"{"alg":"ES256","kid":"k","crit":["exp2"],"exp2":1}"#;
    let unencoded = r#"{"alg":"ES256","kid":"k","b64":false}"#;
    for (header, claims, error) in [
        (critical, r#"{"sub":"s"}"#, VerifyError::Critical),
        (unencoded, r#"{"sub":"s"}"#, VerifyError::Critical),
        (
            &*header("ES256", "k"),
            r#"{"sub":"s","scope":"admin","scope":"read"}"#,
            VerifyError::Malformed,
        ),
    ] {
        let token = key.sign(header, claims);
        assert_eq!(claims_by_jsonwebtoken(&token, &key).unwrap()["sub"], "s");
        assert_eq!(verify(&token, &set), Err(error));
    }
    let es512 = TestKey::ec("k", "ES512");
    assert!(serde_json::from_value::<jsonwebtoken::Algorithm>(json!(es512.alg())).is_err());
}

#[test]
fn alg_none_is_refused_in_any_spelling() {
    let key = TestKey::es256("k");
    let set = set(&[&key]);
    for alg in ["none", "None", "NONE", "nOnE", ""] {
        let good = key.sign(&header(alg, "k"), "{}");
        let bare = format!("{}.", good.rsplit_once('.').unwrap().0);
        for token in [good, bare] {
            assert_eq!(verify(&token, &set), Err(VerifyError::UnsupportedAlgorithm));
        }
    }
}

#[test]
fn hs256_with_the_public_key_as_secret_is_refused() {
    let key = TestKey::rsa("k", false);
    let set = set(&[&key]);
    let jwk = key.jwk();
    for secret in [jwk.to_string(), jwk["n"].as_str().unwrap().to_owned()] {
        let token = hs256(secret.as_bytes(), &header("HS256", "k"), r#"{"sub":"x"}"#);
        assert_eq!(verify(&token, &set), Err(VerifyError::UnsupportedAlgorithm));
    }
}

#[test]
fn an_embedded_key_is_never_used() {
    let (ours, theirs) = (TestKey::es256("k"), TestKey::es256("k"));
    let set = set(&[&ours]);
    for extra in [
        json!({"jwk": theirs.jwk()}),
        json!({"jku": "https://evil.example/keys", "x5u": "https://evil.example/c"}),
        json!({"x5c": ["MIIB"]}),
    ] {
        let mut header = json!({"alg": "ES256", "kid": "k"});
        header
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        let token = theirs.sign(&header.to_string(), "{}");
        assert_eq!(verify(&token, &set), Err(VerifyError::BadSignature));
    }
}

#[test]
fn an_algorithm_that_does_not_fit_the_key_is_refused() {
    let (rsa, ec) = (TestKey::rsa("r", false), TestKey::es256("e"));
    let mut pinned = rsa.jwk();
    pinned["alg"] = "RS256".into();
    let set = json!({"keys": [pinned, ec.jwk()]}).to_string();
    let set = KeySet::parse(set.as_bytes()).unwrap();
    let ps = rsa.sign(&header("PS256", "r"), "{}");
    assert_eq!(verify(&ps, &set), Err(VerifyError::UnsupportedAlgorithm));
    let crossed = rsa.sign(&header("RS256", "e"), "{}");
    assert_eq!(
        verify(&crossed, &set),
        Err(VerifyError::UnsupportedAlgorithm)
    );
    assert!(verify(&rsa.sign(&header("RS256", "r"), "{}"), &set).is_ok());
}

#[test]
fn kid_is_compared_exactly() {
    let key = TestKey::es256("Key-1");
    let set = set(&[&key]);
    for kid in ["key-1", "Key-1 ", "Key-", "../Key-1", "' or 1=1 --", ""] {
        let token = key.sign(&header("ES256", kid), "{}");
        assert_eq!(verify(&token, &set), Err(VerifyError::UnknownKey), "{kid}");
    }
}

#[test]
fn without_kid_the_fitting_keys_are_tried() {
    let (one, two) = (TestKey::es256("1"), TestKey::es256("2"));
    let token = two.sign(r#"{"alg":"ES256"}"#, "{}");
    assert!(verify(&token, &set(&[&one, &two])).is_ok());
    assert_eq!(verify(&token, &set(&[&one])), Err(VerifyError::UnknownKey));
    let many: Vec<TestKey> = (0..20).map(|_| TestKey::es256("m")).collect();
    let many: Vec<&TestKey> = many.iter().chain([&two]).collect();
    assert_eq!(verify(&token, &set(&many)), Err(VerifyError::UnknownKey));
}

#[test]
fn unknown_critical_extensions_are_refused() {
    let key = TestKey::es256("k");
    for extra in [r#""crit":["exp"]"#, r#""crit":[]"#, r#""b64":false"#] {
        let header = format!(r#"{{"alg":"ES256","kid":"k",{extra}}}"#);
        let outcome = verify(&key.sign(&header, "{}"), &set(&[&key]));
        assert_eq!(outcome, Err(VerifyError::Critical));
    }
}

#[test]
fn duplicate_members_are_refused_in_header_and_claims() {
    let key = TestKey::es256("k");
    let set = set(&[&key]);
    let token = key.sign(r#"{"alg":"ES256","alg":"ES256","kid":"k"}"#, "{}");
    assert_eq!(verify(&token, &set), Err(VerifyError::Malformed));
    let token = key.sign(&header("ES256", "k"), r#"{"aud":"a","aud":"b"}"#);
    assert_eq!(verify(&token, &set), Err(VerifyError::Malformed));
}

#[test]
fn base64_has_one_spelling() {
    let key = TestKey::ed25519("k");
    let set = set(&[&key]);
    let token = key.token(&json!({"sub": "someone"}));
    assert!(verify(&token, &set).is_ok());
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let last = signature.chars().last().unwrap();
    // 64 bytes leave four unused bits in the last character.
    let twin = char::from_u32(last as u32 + 1).unwrap();
    for bad in [
        format!("{token}="),
        format!("{token}=="),
        format!("{signed}.{}{twin}", &signature[..signature.len() - 1]),
        format!("{signed}.{}", signature.replace(['-', '_'], "+")) + "+",
        format!(" {token}"),
        format!("{token}\n"),
    ] {
        assert_eq!(verify(&bad, &set), Err(VerifyError::Malformed), "{bad}");
    }
}

#[test]
fn a_huge_token_is_refused_unread() {
    let token = "a".repeat(TOKEN_MAX + 1);
    assert_eq!(Unverified::parse(&token).unwrap_err(), VerifyError::TooLong);
}

#[test]
fn what_is_no_signed_token_is_refused() {
    let key = TestKey::es256("k");
    let token = key.token(&json!({}));
    for bad in ["", ".", "..", "...", "a.b.c", "opaque", "🦀.🦀.🦀"] {
        assert_eq!(
            Unverified::parse(bad).unwrap_err(),
            VerifyError::Malformed,
            "{bad}"
        );
    }
    assert_eq!(
        Unverified::parse(&format!("{token}.x")).unwrap_err(),
        VerifyError::Malformed
    );
    assert_eq!(
        Unverified::parse(&format!("{token}.x.y")).unwrap_err(),
        VerifyError::Encrypted
    );
}

#[test]
fn every_changed_character_is_noticed() {
    let key = TestKey::es256("k");
    let set = set(&[&key]);
    let token = key.token(&json!({"sub": "s"}));
    for place in 0..token.len() {
        let mut bytes = token.clone().into_bytes();
        bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(bytes).unwrap();
        assert!(verify(&changed, &set).is_err(), "at {place}");
    }
}

#[test]
fn an_hmac_needs_the_secret_and_only_an_hmac_takes_it() {
    let token = hs256(
        b"a secret of more than 32 bytes....",
        &header("HS256", "x"),
        "{}",
    );
    let parsed = Unverified::parse(&token).unwrap();
    assert!(
        parsed
            .verify_hmac(b"a secret of more than 32 bytes....")
            .is_ok()
    );
    assert_eq!(
        parsed.verify_hmac(b"another"),
        Err(VerifyError::BadSignature)
    );
    assert_eq!(
        parsed.verify_hmac(b""),
        Err(VerifyError::UnsupportedAlgorithm)
    );
    let token = TestKey::es256("k").token(&json!({}));
    let parsed = Unverified::parse(&token).unwrap();
    assert_eq!(
        parsed.verify_hmac(b"s"),
        Err(VerifyError::UnsupportedAlgorithm)
    );
}

proptest::proptest! {
    #[test]
    fn any_text_is_refused_without_a_panic(text in ".{0,200}") {
        let keys = KeySet::default();
        proptest::prop_assert!(verify(&text, &keys).is_err());
    }

    #[test]
    fn any_header_and_payload_is_judged_without_a_panic(
        header in r#"\{("(alg|kid|typ|crit|x5c)":("ES256"|"RS256"|"none"|1|null|\[\]|\{\}),?){0,4}\}"#,
        payload in proptest::collection::vec(proptest::num::u8::ANY, 0..64),
    ) {
        let token = TestKey::ed25519("k").sign(&header, &String::from_utf8_lossy(&payload));
        proptest::prop_assert!(verify(&token, &KeySet::default()).is_err());
    }

    #[test]
    fn any_key_set_is_read_without_a_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..256)) {
        let _ = KeySet::parse(&bytes);
    }
}

#[test]
fn what_is_wrong_with_a_payload_is_said() {
    let key = TestKey::es256("k");
    let fault = |payload: &str| {
        let token = key.sign(&header("ES256", "k"), payload);
        Unverified::parse(&token).unwrap().fault()
    };
    assert_eq!(fault(r#"{"iss": "a"}"#), None);
    let twice = fault(r#"{"iss": "a", "iss": "a"}"#).expect("a fault");
    assert!(twice.contains("iss"), "{twice}");
    assert!(fault("[]").is_some());
}
