//! Proofs of possession (RFC 9449 §4): a token that carries the key it is
//! signed with. The one place where a key of a header is looked at.

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use super::algorithm::Algorithm;
use super::claims::{CLOCK_SKEW, time};
use super::jwks::KeySet;
use super::verify::Unverified;

/// Longer proofs are refused unread, in bytes.
const PROOF_MAX: usize = 4096;

/// The text is no proof: not signed, not with the key in it, or that key is
/// none to prove anything with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no proof of possession")]
pub struct InvalidProof;

/// A proof whose signature was checked with the key in it.
#[derive(Debug)]
pub struct Proof {
    /// Its claims; what they mean for a request is the caller's question.
    pub claims: Map<String, Value>,
    /// The thumbprint of the key (RFC 7638): what tokens are bound to.
    pub thumbprint: String,
    /// The algorithm that it is signed with.
    pub algorithm: Algorithm,
}

impl Proof {
    /// Whether it is good at `now`, in seconds since the epoch, as far as it bounds
    /// itself by `exp` and `nbf` (RFC 7519 §4.1.4, §4.1.5). Clocks may differ by
    /// [`CLOCK_SKEW`]. Its age is the caller's question.
    pub fn is_within_its_bounds(&self, now: i64) -> bool {
        let (Ok(end), Ok(begin)) = (time(&self.claims, "exp"), time(&self.claims, "nbf")) else {
            return false;
        };
        end.is_none_or(|end| end > now.saturating_sub(CLOCK_SKEW))
            && begin.is_none_or(|begin| begin <= now.saturating_add(CLOCK_SKEW))
    }
}

/// Reads a proof.
///
/// # Errors
/// [`InvalidProof`] for other types, symmetric algorithms, private keys and wrong
/// signatures (RFC 9449 §4.3).
pub fn read(text: &str) -> Result<Proof, InvalidProof> {
    if text.len() > PROOF_MAX {
        return Err(InvalidProof);
    }
    let token = Unverified::parse(text).map_err(|_| InvalidProof)?;
    if token.typ().as_deref() != Some("dpop+jwt") || token.algorithm().is_symmetric() {
        return Err(InvalidProof);
    }
    let header = token.header().map_err(|_| InvalidProof)?;
    let jwk = header
        .get("jwk")
        .and_then(Value::as_object)
        .ok_or(InvalidProof)?;
    let private = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];
    if private.iter().any(|member| jwk.contains_key(*member)) {
        return Err(InvalidProof);
    }
    let members = public_members(jwk).ok_or(InvalidProof)?;
    let canonical = Value::Object(members.clone()).to_string();
    let digest = digest::digest(&digest::SHA256, canonical.as_bytes());
    let mut key = members;
    // What the key says of its use binds its owner, too (RFC 7517 §4.2 to §4.4).
    for name in ["use", "key_ops", "alg"] {
        if let Some(value) = jwk.get(name) {
            key.insert(name.to_owned(), value.clone());
        }
    }
    if let Some(kid) = token.kid() {
        key.insert("kid".to_owned(), json!(kid));
    }
    let set = json!({ "keys": [key] }).to_string();
    let set = KeySet::parse(set.as_bytes()).map_err(|_| InvalidProof)?;
    Ok(Proof {
        claims: token.verify(&set).map_err(|_| InvalidProof)?,
        thumbprint: URL_SAFE_NO_PAD.encode(digest),
        algorithm: token.algorithm(),
    })
}

/// The required members of a public key, in lexicographic order.
fn public_members(jwk: &Map<String, Value>) -> Option<Map<String, Value>> {
    let names: &[&str] = match jwk.get("kty")?.as_str()? {
        "EC" => &["crv", "kty", "x", "y"],
        "OKP" => &["crv", "kty", "x"],
        "RSA" => &["e", "kty", "n"],
        _ => return None,
    };
    let member = |name: &&str| {
        let value = jwk.get(*name).filter(|value| value.is_string())?;
        Some(((*name).to_owned(), value.clone()))
    };
    names.iter().map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jose::testing::{TestKey, hs256};

    fn proof(key: &TestKey, header: Value) -> String {
        let mut all = json!({"typ": "dpop+jwt", "alg": key.alg(), "jwk": key.jwk()});
        for (name, value) in header.as_object().expect("an object") {
            all[name] = value.clone();
        }
        key.sign(&all.to_string(), r#"{"jti":"1"}"#)
    }

    #[test]
    fn a_proof_is_verified_with_the_key_in_it() {
        for key in [
            TestKey::es256("k"),
            TestKey::ed25519("k"),
            TestKey::rsa("k", false),
        ] {
            let read = read(&proof(&key, json!({}))).expect("a proof");
            assert_eq!(read.claims["jti"], "1");
            assert_eq!(read.thumbprint.len(), 43);
            let named = proof(&key, json!({"kid": "other"}));
            let named = super::read(&named).expect("a proof");
            assert_eq!(named.thumbprint, read.thumbprint);
        }
    }

    #[test]
    fn a_proof_is_signed_as_the_key_in_it_says() {
        let key = TestKey::rsa("k", false);
        let with = |name: &str, value: Value, alg: &str| {
            let mut jwk = key.jwk();
            jwk[name] = value;
            read(&proof(&key, json!({"alg": alg, "jwk": jwk})))
        };
        for (name, value, alg) in [
            ("alg", json!("PS256"), "RS256"),
            ("alg", json!("RS256"), "PS256"),
            ("alg", json!("RSA-OAEP"), "RS256"),
            ("alg", json!(["RS256"]), "RS256"),
            ("use", json!("enc"), "RS256"),
            ("key_ops", json!(["encrypt"]), "RS256"),
            ("key_ops", json!("verify"), "RS256"),
        ] {
            assert!(with(name, value.clone(), alg).is_err(), "{name} {value}");
        }
        for (name, value, alg) in [
            ("alg", json!("PS256"), "PS256"),
            ("alg", json!("RS256"), "RS256"),
            ("use", json!("sig"), "PS256"),
            ("key_ops", json!(["verify"]), "PS256"),
            ("ext", json!(true), "RS256"),
        ] {
            assert!(with(name, value.clone(), alg).is_ok(), "{name} {value}");
        }
    }

    #[test]
    fn what_proves_no_possession_is_refused() {
        let (key, other) = (TestKey::es256("k"), TestKey::es256("k"));
        let mut private = key.jwk();
        private["d"] = json!("AAAA");
        let symmetric = json!({"typ": "dpop+jwt", "alg": "HS256",
            "jwk": {"kty": "oct", "k": "AAAA"}});
        for bad in [
            proof(&key, json!({"typ": "JWT"})),
            proof(&key, json!({"typ": null})),
            proof(&key, json!({"jwk": other.jwk()})),
            proof(&key, json!({"jwk": private})),
            proof(&key, json!({"jwk": null})),
            proof(&key, json!({"jwk": "x"})),
            proof(&key, json!({"alg": "none"})),
            proof(&key, json!({"alg": "RS256"})),
            hs256(&[0, 0, 0], &symmetric.to_string(), "{}"),
            "x".repeat(5000),
            String::new(),
        ] {
            assert!(read(&bad).is_err(), "{bad}");
        }
    }
}
