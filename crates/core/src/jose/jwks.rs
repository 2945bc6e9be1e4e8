//! JSON Web Key sets (RFC 7517) as a verifier uses them: public keys, parsed
//! once, each usable with the algorithms that fit it and no others.

use std::sync::Arc;

use aws_lc_rs::signature::ParsedPublicKey;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use smallvec::SmallVec;

use super::algorithm::{Algorithm, RsaComponents};
use super::json;

/// More keys of one set are ignored.
const KEYS_MAX: usize = 256;
/// More keys that could fit one token are not tried.
const CANDIDATES_MAX: usize = 4;

/// Why a document is no key set.
#[derive(Debug, thiserror::Error)]
pub enum JwksError {
    /// Not a JSON object, or one with repeated members.
    #[error("not a JSON object: {0}")]
    Json(#[from] serde_json::Error),
    /// No `keys` array.
    #[error("no array `keys`")]
    NoKeys,
}

/// Public keys of an issuer.
#[derive(Clone, Debug, Default)]
pub struct KeySet {
    keys: Vec<Key>,
}

/// A public key.
#[derive(Clone)]
pub struct Key {
    kid: Option<String>,
    /// The parsed key, for each algorithm it may be used with.
    verifiers: SmallVec<[(Algorithm, ParsedPublicKey); 1]>,
    /// As it was published, but for what is nobody's business.
    jwk: Arc<Map<String, Value>>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key")
            .field("kid", &self.kid)
            .field("algorithms", &self.algorithms().collect::<Vec<_>>())
            .finish()
    }
}

/// Which keys of a set may verify a token.
#[derive(Debug)]
pub enum Candidates<'a> {
    /// These, by `kid` if the token names one.
    Keys(SmallVec<[&'a ParsedPublicKey; 1]>),
    /// The set has the named key, but not for the token's algorithm.
    Unfit,
    /// The set has no such key: its owner may have rotated.
    Unknown,
}

impl KeySet {
    /// Reads a key set. Keys that can't be used here (encryption keys, shared
    /// secrets, unknown types, RSA below 2048 bits) are left out.
    ///
    /// # Errors
    /// When the document as a whole is no key set.
    pub fn parse(document: &[u8]) -> Result<Self, JwksError> {
        let document = json::object(document)?;
        let keys = document
            .get("keys")
            .and_then(Value::as_array)
            .ok_or(JwksError::NoKeys)?;
        let keys = keys
            .iter()
            .filter_map(Value::as_object)
            .filter_map(Key::parse)
            .take(KEYS_MAX)
            .collect();
        Ok(Self { keys })
    }

    /// Adds the keys of `other`.
    pub fn extend(&mut self, other: Self) {
        let room = KEYS_MAX.saturating_sub(self.keys.len());
        self.keys.extend(other.keys.into_iter().take(room));
    }

    /// The number of usable keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key is usable.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys that may verify a token with these header fields. `kid` is
    /// compared exactly; without one, the few keys that fit `algorithm`.
    pub fn candidates(&self, kid: Option<&str>, algorithm: Algorithm) -> Candidates<'_> {
        let mut known = false;
        let mut fitting = SmallVec::new();
        for key in &self.keys {
            if kid.is_some() && key.kid.as_deref() != kid {
                continue;
            }
            known = true;
            if let Some(verifier) = key.verifier(algorithm)
                && fitting.len() < CANDIDATES_MAX
            {
                fitting.push(verifier);
            }
        }
        match (fitting.is_empty(), known && kid.is_some()) {
            (false, _) => Candidates::Keys(fitting),
            (true, true) => Candidates::Unfit,
            (true, false) => Candidates::Unknown,
        }
    }

    /// The key that a token with these header fields was verified with, as it
    /// was published; `None` where that can't be told from others.
    pub fn jwk(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<&Map<String, Value>> {
        let fits = |key: &&Key| {
            (kid.is_none() || key.kid.as_deref() == kid) && key.verifier(algorithm).is_some()
        };
        let mut fitting = self.keys.iter().filter(fits);
        let first = fitting.next()?;
        (kid.is_some() || fitting.next().is_none()).then_some(&*first.jwk)
    }

    /// The keys as they were published, without anything private.
    pub fn published(&self) -> impl Iterator<Item = &Map<String, Value>> {
        self.keys.iter().map(|key| &*key.jwk)
    }

    /// Whether every key of `older` is still here: if not, what was verified
    /// with `older` must be verified again.
    pub fn holds_all(&self, older: &Self) -> bool {
        older
            .keys
            .iter()
            .all(|key| self.keys.iter().any(|mine| mine.same(key)))
    }
}

impl Key {
    fn parse(jwk: &Map<String, Value>) -> Option<Self> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        if jwk.get("use").is_some_and(|usage| usage != "sig") {
            return None;
        }
        if let Some(operations) = jwk.get("key_ops") {
            let operations = operations.as_array()?;
            if !operations.iter().any(|operation| operation == "verify") {
                return None;
            }
        }
        let pinned = match jwk.get("alg") {
            None | Some(Value::Null) => None,
            Some(name) => Some(Algorithm::named(name.as_str()?)?),
        };
        let verifiers = match (text("kty")?, text("crv")) {
            ("RSA", _) => rsa(&number(text("n")?)?, &number(text("e")?)?, pinned),
            ("EC", Some("P-256")) => point(Algorithm::Es256, text("x")?, text("y")?)?,
            ("EC", Some("P-384")) => point(Algorithm::Es384, text("x")?, text("y")?)?,
            ("EC", Some("P-521")) => point(Algorithm::Es512, text("x")?, text("y")?)?,
            ("OKP", Some("Ed25519")) => edwards(text("x")?)?,
            _ => return None,
        };
        let fits = |algorithm| pinned.is_none_or(|pinned| pinned == algorithm);
        let key = Self {
            kid: text("kid").map(str::to_owned),
            verifiers: verifiers.into_iter().filter(|(a, _)| fits(*a)).collect(),
            jwk: Arc::new(public(jwk)),
        };
        (!key.verifiers.is_empty()).then_some(key)
    }

    fn verifier(&self, algorithm: Algorithm) -> Option<&ParsedPublicKey> {
        self.verifiers
            .iter()
            .find(|(fitting, _)| *fitting == algorithm)
            .map(|(_, key)| key)
    }

    fn algorithms(&self) -> impl Iterator<Item = Algorithm> + '_ {
        self.verifiers.iter().map(|(algorithm, _)| *algorithm)
    }

    fn same(&self, other: &Self) -> bool {
        let material = |key: &Self| key.verifiers.first().map(|(_, key)| key.as_ref().to_vec());
        self.kid == other.kid
            && self.algorithms().eq(other.algorithms())
            && material(self) == material(other)
    }
}

/// A key without its private members, should somebody have published them.
fn public(jwk: &Map<String, Value>) -> Map<String, Value> {
    let private = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];
    let mut jwk = jwk.clone();
    jwk.retain(|name, _| !private.contains(&name.as_str()));
    jwk
}

type Verifiers = SmallVec<[(Algorithm, ParsedPublicKey); 1]>;

/// Whether an RSA key of this modulus and exponent, without leading zeros, proves anything:
/// it has 2048 to 8192 bits.
pub(super) fn is_sound_rsa(modulus: &[u8], exponent: &[u8]) -> bool {
    let bits = modulus.len() * 8
        - modulus
            .first()
            .map_or(0, |top| top.leading_zeros() as usize);
    // An exponent of 1 makes every text its own signature; AWS-LC takes it.
    let sound = exponent.last().is_some_and(|low| low % 2 == 1) && exponent != [1];
    (2048..=8192).contains(&bits) && sound && exponent.len() <= 4
}

fn rsa(modulus: &[u8], exponent: &[u8], pinned: Option<Algorithm>) -> Verifiers {
    if !is_sound_rsa(modulus, exponent) {
        return Verifiers::new();
    }
    Algorithm::RSA
        .into_iter()
        .filter(|algorithm| pinned.is_none_or(|pinned| pinned == *algorithm))
        .filter_map(|algorithm| {
            let components = RsaComponents {
                n: modulus,
                e: exponent,
            };
            let key = components.to_parsed_public_key(algorithm.rsa()?).ok()?;
            Some((algorithm, key))
        })
        .collect()
}

fn point(algorithm: Algorithm, x: &str, y: &str) -> Option<Verifiers> {
    let (parameters, length) = algorithm.curve()?;
    let mut point = vec![4]; // uncompressed
    for coordinate in [x, y] {
        let coordinate = bytes(coordinate)?;
        if coordinate.len() != length {
            return None;
        }
        point.extend_from_slice(&coordinate);
    }
    let key = ParsedPublicKey::new(parameters, point).ok()?;
    Some(SmallVec::from_iter([(algorithm, key)]))
}

fn edwards(x: &str) -> Option<Verifiers> {
    let (parameters, length) = Algorithm::EdDsa.curve()?;
    let x = bytes(x).filter(|x| x.len() == length)?;
    let key = ParsedPublicKey::new(parameters, x).ok()?;
    Some(SmallVec::from_iter([(Algorithm::EdDsa, key)]))
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// A big-endian number; some issuers prepend a sign byte, which is dropped.
fn number(text: &str) -> Option<Vec<u8>> {
    let mut number = bytes(text)?;
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.drain(..zeros);
    (!number.is_empty()).then_some(number)
}

#[cfg(test)]
mod tests;
