//! The one verifier of signed tokens (RFC 7515, 7519, 8725).
//!
//! Keys come from the caller alone: what a token's header says about keys
//! (`jwk`, `jku`, `x5c`, `x5u`) is never looked at. The claims of a token can
//! only be had from [`Unverified::verify`] and its siblings.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::algorithm::Algorithm;
use super::json;
use super::jwks::{Candidates, KeySet};

/// Longer tokens are refused unread, in bytes.
pub const TOKEN_MAX: usize = 16 * 1024;

/// Why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// Longer than [`TOKEN_MAX`].
    #[error("the token is too long")]
    TooLong,
    /// Not three parts of base64url, or no JSON objects in them.
    #[error("the token is no JSON Web Token")]
    Malformed,
    /// An encrypted token (five parts).
    #[error("the token is encrypted")]
    Encrypted,
    /// It demands an extension (`crit`) that is not understood.
    #[error("the token demands an unknown extension")]
    Critical,
    /// `none`, an unknown algorithm, or one that is not allowed here or does
    /// not fit the key.
    #[error("the token's algorithm is not allowed")]
    UnsupportedAlgorithm,
    /// The key set has no key for it.
    #[error("the token's key is not known")]
    UnknownKey,
    /// Signed with another key, or changed afterwards.
    #[error("the token's signature is wrong")]
    BadSignature,
}

/// A token whose parts have been taken apart, and nothing of it believed.
#[derive(Debug)]
pub struct Unverified<'a> {
    /// Header and payload as they are signed.
    signed: &'a str,
    payload: &'a str,
    signature: Vec<u8>,
    algorithm: Algorithm,
    kid: Option<String>,
    typ: Option<String>,
}

impl<'a> Unverified<'a> {
    /// Takes a compact JWS apart.
    ///
    /// # Errors
    /// When it is none, or can't be verified whatever the keys.
    pub fn parse(token: &'a str) -> Result<Self, VerifyError> {
        if token.len() > TOKEN_MAX {
            return Err(VerifyError::TooLong);
        }
        let mut parts = token.split('.');
        let (Some(header), Some(payload), Some(signature)) =
            (parts.next(), parts.next(), parts.next())
        else {
            return Err(VerifyError::Malformed);
        };
        match parts.count() {
            0 => {}
            2 => return Err(VerifyError::Encrypted),
            _ => return Err(VerifyError::Malformed),
        }
        let header_json = json::object(&decode(header)?).map_err(|_| VerifyError::Malformed)?;
        // `b64` changes what is signed and must be named in `crit` (RFC 7797).
        if header_json.contains_key("crit") || header_json.contains_key("b64") {
            return Err(VerifyError::Critical);
        }
        let algorithm = text(&header_json, "alg")?.ok_or(VerifyError::Malformed)?;
        Ok(Self {
            signed: &token[..header.len() + 1 + payload.len()],
            payload,
            signature: decode(signature)?,
            algorithm: Algorithm::named(algorithm).ok_or(VerifyError::UnsupportedAlgorithm)?,
            kid: text(&header_json, "kid")?.map(str::to_owned),
            typ: text(&header_json, "typ")?.map(str::to_owned),
        })
    }

    /// The algorithm that the token names.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The key that the token names.
    pub fn kid(&self) -> Option<&str> {
        self.kid.as_deref()
    }

    /// The token's media type in lower case, without `application/`.
    pub fn typ(&self) -> Option<String> {
        let typ = self.typ.as_deref()?.to_ascii_lowercase();
        Some(match typ.strip_prefix("application/") {
            Some(short) => short.to_owned(),
            None => typ,
        })
    }

    /// What is wrong with the payload, for an operator's log: no JSON object, or
    /// one in which a member is repeated. `None`: nothing.
    pub fn fault(&self) -> Option<String> {
        let payload = decode(self.payload).ok()?;
        let error = json::object(&payload).err()?;
        Some(format!("its payload can't be read: {error}"))
    }

    /// The header, for the one profile whose tokens carry their key.
    pub(super) fn header(&self) -> Result<Map<String, Value>, VerifyError> {
        let header = self.signed.split('.').next().unwrap_or_default();
        json::object(&decode(header)?).map_err(|_| VerifyError::Malformed)
    }

    /// The claims, if one of `keys` signed them.
    ///
    /// # Errors
    /// [`VerifyError::UnknownKey`] also when the token names no key and none
    /// that fits verifies it: the issuer may have rotated. Never accepts an
    /// HMAC, so a public key is never taken for a shared secret.
    pub fn verify(&self, keys: &KeySet) -> Result<Map<String, Value>, VerifyError> {
        if self.algorithm.is_symmetric() {
            return Err(VerifyError::UnsupportedAlgorithm);
        }
        let candidates = match keys.candidates(self.kid(), self.algorithm) {
            Candidates::Keys(candidates) => candidates,
            Candidates::Unfit => return Err(VerifyError::UnsupportedAlgorithm),
            Candidates::Unknown => return Err(VerifyError::UnknownKey),
        };
        let message = self.signed.as_bytes();
        let good = candidates
            .iter()
            .any(|key| key.verify_sig(message, &self.signature).is_ok());
        match (good, &self.kid) {
            (true, _) => self.claims(),
            (false, Some(_)) => Err(VerifyError::BadSignature),
            (false, None) => Err(VerifyError::UnknownKey),
        }
    }

    /// The claims, if the holder of `secret` signed them with an HMAC.
    ///
    /// # Errors
    /// [`VerifyError::UnsupportedAlgorithm`] for every other kind of signature,
    /// and when the secret is empty.
    pub fn verify_hmac(&self, secret: &[u8]) -> Result<Map<String, Value>, VerifyError> {
        let algorithm = self
            .algorithm
            .hmac()
            .filter(|_| !secret.is_empty())
            .ok_or(VerifyError::UnsupportedAlgorithm)?;
        let key = hmac::Key::new(algorithm, secret);
        hmac::verify(&key, self.signed.as_bytes(), &self.signature)
            .map_err(|_| VerifyError::BadSignature)?;
        self.claims()
    }

    /// The claims, whoever signed them: for operators who switch the check off.
    ///
    /// # Errors
    /// [`VerifyError::Malformed`] when there are none.
    pub fn claims_of_anyone(&self) -> Result<Map<String, Value>, VerifyError> {
        self.claims()
    }

    fn claims(&self) -> Result<Map<String, Value>, VerifyError> {
        json::object(&decode(self.payload)?).map_err(|_| VerifyError::Malformed)
    }
}

/// The claims of a token that says that nobody signed it (`alg` is `none`), for
/// the one profile in which that is no lie: request objects (RFC 9101 §4).
///
/// # Errors
/// [`VerifyError`] for every other token.
pub fn unsigned_claims(token: &str) -> Result<Map<String, Value>, VerifyError> {
    if token.len() > TOKEN_MAX {
        return Err(VerifyError::TooLong);
    }
    let unsigned = token.strip_suffix('.').ok_or(VerifyError::Malformed)?;
    let (header, payload) = unsigned.split_once('.').ok_or(VerifyError::Malformed)?;
    let header = json::object(&decode(header)?).map_err(|_| VerifyError::Malformed)?;
    if header.contains_key("crit") || header.contains_key("b64") {
        return Err(VerifyError::Critical);
    }
    if text(&header, "alg")? != Some("none") {
        return Err(VerifyError::UnsupportedAlgorithm);
    }
    json::object(&decode(payload)?).map_err(|_| VerifyError::Malformed)
}

fn text<'a>(header: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, VerifyError> {
    match header.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(VerifyError::Malformed),
    }
}

/// Base64url without padding, every bit accounted for: a token has one spelling.
fn decode(part: &str) -> Result<Vec<u8>, VerifyError> {
    URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| VerifyError::Malformed)
}

#[cfg(test)]
mod tests;
