//! Private keys as JSON Web Keys (RFC 7517, RFC 7518 §6, RFC 8037 §2).

use aws_lc_rs::signature::{EcdsaKeyPair, Ed25519KeyPair, RsaKeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use super::{JWT, Key, KeyError, Material, SignAlg, Signer, header};

/// The members of an RSA key in the order of `RSAPrivateKey` (RFC 8017 A.1.2).
const RSA_MEMBERS: [&str; 8] = ["n", "e", "d", "p", "q", "dp", "dq", "qi"];

impl Signer {
    /// The signer of a private key given by the members of its JWK. Its `kid`
    /// is that of the JWK, or else the key's thumbprint.
    ///
    /// # Errors
    /// [`KeyError::Unusable`] when members are missing, malformed or don't
    /// belong together, or make no key of this algorithm.
    pub fn from_jwk<'a>(
        alg: SignAlg,
        member: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<Self, KeyError> {
        let unusable = KeyError::Unusable(alg);
        let bytes = |name: &str| {
            let text = member(name).map(|text| URL_SAFE_NO_PAD.decode(text));
            let bytes = text.and_then(Result::ok);
            bytes
                .filter(|bytes| !bytes.is_empty())
                .map(Zeroizing::new)
                .ok_or(unusable)
        };
        let key = match Material::of(alg) {
            Material::Rsa(encoding) => {
                let members: Result<Vec<_>, _> =
                    RSA_MEMBERS.iter().map(|name| bytes(name)).collect();
                let pair = RsaKeyPair::from_der(&rsa_der(&members?)).map_err(|_| unusable)?;
                Key::Rsa(pair, encoding)
            }
            Material::Ec(curve, name) => {
                let (d, x, y) = (bytes("d")?, bytes("x")?, bytes("y")?);
                let point = [&[4][..], &x, &y].concat();
                let pair = EcdsaKeyPair::from_private_key_and_public_key(curve, &d, &point);
                Key::Ec(pair.map_err(|_| unusable)?, name)
            }
            Material::Ed => {
                let pair = Ed25519KeyPair::from_seed_and_public_key(&bytes("d")?, &bytes("x")?);
                Key::Ed(pair.map_err(|_| unusable)?)
            }
            Material::Hmac(_) => return Err(unusable),
        };
        let mut signer = Self::with(alg, member("kid").map(str::to_owned), key);
        if signer.kid.is_none() {
            signer.kid = Some(signer.thumbprint());
            signer.header = header(alg, signer.kid.as_deref(), JWT);
        }
        Ok(signer)
    }
}

/// `RSAPrivateKey` with version 0 and these numbers, DER.
fn rsa_der(numbers: &[Zeroizing<Vec<u8>>]) -> Zeroizing<Vec<u8>> {
    let mut inside = Zeroizing::new(vec![0x02, 0x01, 0x00]);
    for number in numbers {
        let significant = number.iter().skip_while(|byte| **byte == 0);
        let mut bytes: Vec<u8> = significant.copied().collect();
        // A leading bit would make it negative.
        if bytes.first().is_none_or(|first| first & 0x80 != 0) {
            bytes.insert(0, 0);
        }
        element(0x02, &bytes, &mut inside);
    }
    let mut der = Zeroizing::new(Vec::with_capacity(inside.len() + 6));
    element(0x30, &inside, &mut der);
    der
}

/// Appends an element; no RSA key comes near 16 MiB.
fn element(tag: u8, content: &[u8], der: &mut Vec<u8>) {
    der.push(tag);
    let length = (content.len() as u32).to_be_bytes();
    match content.len() {
        0..0x80 => der.push(length[3]),
        0x80..0x100 => der.extend([0x81, length[3]]),
        0x100..0x1_0000 => der.extend([0x82, length[2], length[3]]),
        _ => der.extend([0x83, length[1], length[2], length[3]]),
    }
    der.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::jose::jwks::KeySet;
    use crate::jose::verify::Unverified;

    fn signer(alg: SignAlg, jwk: &Value) -> Result<Signer, KeyError> {
        Signer::from_jwk(alg, |name| jwk.get(name)?.as_str())
    }

    /// RFC 8037 A.1.
    fn ed25519() -> Value {
        json!({"kty": "OKP", "crv": "Ed25519", "kid": "mine",
            "d": "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
            "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"})
    }

    /// RFC 7515 A.3.
    fn p256() -> Value {
        json!({"kty": "EC", "crv": "P-256",
            "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
            "d": "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI"})
    }

    #[test]
    fn what_a_private_jwk_signs_its_public_one_verifies() {
        for (alg, jwk) in [(SignAlg::EdDSA, ed25519()), (SignAlg::ES256, p256())] {
            let signer = signer(alg, &jwk).expect("a key");
            let token = signer.sign(&json!({"sub": "a"})).expect("signed");
            let keys = json!({"keys": [signer.public_jwk()]}).to_string();
            let keys = KeySet::parse(keys.as_bytes()).expect("keys");
            let parsed = Unverified::parse(&token).expect("a token");
            assert_eq!(parsed.kid(), signer.kid());
            assert!(parsed.verify(&keys).is_ok(), "{alg:?}");
        }
        let named = signer(SignAlg::EdDSA, &ed25519()).expect("a key");
        assert_eq!(named.kid(), Some("mine"));
    }

    #[test]
    fn halves_of_different_keys_make_no_key() {
        let mut jwk = p256();
        jwk["d"] = json!("AAAQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI");
        assert!(signer(SignAlg::ES256, &jwk).is_err());
        for missing in ["d", "x", "y"] {
            let mut jwk = p256();
            jwk[missing] = Value::Null;
            assert!(signer(SignAlg::ES256, &jwk).is_err(), "{missing}");
        }
        assert!(signer(SignAlg::RS256, &p256()).is_err());
        assert!(signer(SignAlg::HS256, &p256()).is_err());
    }
}
