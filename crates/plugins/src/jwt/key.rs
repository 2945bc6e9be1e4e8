//! What the tokens of a credential are verified with.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::token::Token;
use doorward_core::jose::algorithm::Algorithm;
use doorward_core::jose::pem::PublicKey;
use doorward_core::model::secret::Secret;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The one algorithm of a credential, and its key.
pub struct TokenKey {
    algorithm: Algorithm,
    material: Material,
}

/// The kinds of keys. The algorithm alone says which one a credential has.
enum Material {
    Secret {
        /// The bytes of the text.
        text: Box<hmac::Key>,
        /// What the text says in Base64.
        decoded: Option<Box<hmac::Key>>,
    },
    Public(PublicKey),
    /// There is none: no token is good.
    Nothing,
}

impl TokenKey {
    /// The key of a credential.
    pub fn new(algorithm: Algorithm, secret: Option<&Secret>, public: Option<&str>) -> Self {
        let material = match hmac_of(algorithm) {
            Some(hmac) => secret.and_then(|secret| Material::secret(hmac, secret)),
            None => public
                .and_then(|pem| PublicKey::read(algorithm, pem))
                .map(Material::Public),
        };
        Self {
            algorithm,
            material: material.unwrap_or(Material::Nothing),
        }
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Whether the owner of the key has signed a token. `None`: there is no key.
    pub(super) fn has_signed(&self, token: &Token<'_>, base64: bool) -> Option<bool> {
        let message = token.signed.as_bytes();
        let key = match &self.material {
            Material::Nothing => return None,
            Material::Public(key) => return Some(key.has_signed(message, &token.signature)),
            Material::Secret { decoded, .. } if base64 => decoded.as_ref()?,
            Material::Secret { text, .. } => text,
        };
        Some(hmac::verify(key, message, &token.signature).is_ok())
    }
}

impl Material {
    /// An empty secret is none: everybody knows it.
    fn secret(hmac: hmac::Algorithm, secret: &Secret) -> Option<Self> {
        let text = secret.expose();
        let key = |bytes: &[u8]| (!bytes.is_empty()).then(|| Box::new(hmac::Key::new(hmac, bytes)));
        let decoded = BASE64.decode(text).ok();
        Some(Self::Secret {
            text: key(text.as_bytes())?,
            decoded: decoded.and_then(|bytes| key(&bytes)),
        })
    }
}

fn hmac_of(algorithm: Algorithm) -> Option<hmac::Algorithm> {
    match algorithm {
        Algorithm::Hs256 => Some(hmac::HMAC_SHA256),
        Algorithm::Hs384 => Some(hmac::HMAC_SHA384),
        Algorithm::Hs512 => Some(hmac::HMAC_SHA512),
        _ => None,
    }
}

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TokenKey").field(&self.algorithm).finish()
    }
}
