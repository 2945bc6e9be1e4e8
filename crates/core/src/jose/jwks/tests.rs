#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::jose::testing::{TestKey, jwks};

fn usable(jwk: &Value) -> bool {
    let document = json!({"keys": [jwk]}).to_string();
    !KeySet::parse(document.as_bytes()).unwrap().is_empty()
}

fn with(jwk: &Value, name: &str, value: Value) -> Value {
    let mut jwk = jwk.clone();
    jwk[name] = value;
    jwk
}

#[test]
fn only_signature_keys_are_kept() {
    let key = TestKey::es256("k").jwk();
    assert!(usable(&key));
    assert!(usable(&with(&key, "alg", json!("ES256"))));
    assert!(usable(&with(&key, "key_ops", json!(["verify"]))));
    for (name, value) in [
        ("use", json!("enc")),
        ("key_ops", json!(["sign"])),
        ("alg", json!("RS256")),
        ("alg", json!("HS256")),
        ("alg", json!("none")),
        ("kty", json!("oct")),
        ("crv", json!("secp256k1")),
        ("x", json!("AAAA")),
        ("y", json!("")),
    ] {
        assert!(!usable(&with(&key, name, value.clone())), "{name} {value}");
    }
    assert!(!usable(&json!({"kty": "oct", "k": "c2VjcmV0", "kid": "k"})));
}

#[test]
fn a_point_off_the_curve_is_refused() {
    let (one, two) = (TestKey::es256("1").jwk(), TestKey::es256("2").jwk());
    assert!(!usable(&with(&one, "y", two["y"].clone())));
}

#[test]
fn rsa_below_2048_bits_is_refused() {
    let key = TestKey::rsa("k", false).jwk();
    assert!(usable(&key));
    let n = bytes(key["n"].as_str().unwrap()).unwrap();
    let short = URL_SAFE_NO_PAD.encode(&n[128..]);
    assert!(!usable(&with(&key, "n", short.into())));
    let padded: Vec<u8> = [&[0_u8][..], &n].concat();
    assert!(usable(&with(
        &key,
        "n",
        URL_SAFE_NO_PAD.encode(padded).into()
    )));
    for exponent in ["", "AA", "AQ", "Ag"] {
        assert!(!usable(&with(&key, "e", exponent.into())), "e={exponent}");
    }
}

#[test]
fn one_bad_key_does_not_spoil_the_set() {
    let good = TestKey::ed25519("k").jwk();
    let document = json!({"keys": [1, {"kty": "new"}, {}, null, good]}).to_string();
    assert_eq!(KeySet::parse(document.as_bytes()).unwrap().len(), 1);
}

#[test]
fn what_is_no_key_set_is_an_error() {
    for bad in [
        "",
        "[]",
        "{}",
        r#"{"keys":{}}"#,
        r#"{"keys":[],"keys":[]}"#,
        "<html>",
    ] {
        assert!(KeySet::parse(bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn a_set_knows_whether_a_key_is_gone() {
    let parse = |keys: &[&TestKey]| KeySet::parse(jwks(keys).to_string().as_bytes()).unwrap();
    let (one, two) = (TestKey::es256("1"), TestKey::es256("2"));
    let replaced = TestKey::es256("1");
    assert!(parse(&[&two, &one]).holds_all(&parse(&[&one])));
    assert!(!parse(&[&two]).holds_all(&parse(&[&one, &two])));
    assert!(!parse(&[&replaced]).holds_all(&parse(&[&one])));
}
