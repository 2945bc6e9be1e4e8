//! What the digests and seals of one secret are made with.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq;

/// The key of one secret of a browser.
#[derive(Clone, Debug)]
pub(super) struct Key(hmac::Key);

impl Key {
    pub(super) const fn new(key: hmac::Key) -> Self {
        Self(key)
    }

    /// A digest of these parts.
    pub(super) fn mac(&self, parts: &[&str]) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            // With its length, so that no two lists of parts look alike.
            context.update(&part.len().to_be_bytes());
            context.update(part.as_bytes());
        }
        URL_SAFE_NO_PAD.encode(context.sign())
    }

    /// Whether `mac` is the digest of these parts.
    pub(super) fn made(&self, parts: &[&str], mac: &str) -> bool {
        self.mac(parts).as_bytes().ct_eq(mac.as_bytes()).into()
    }

    /// A text that nobody can read, and that opens for this purpose alone.
    pub(super) fn seal(&self, purpose: &[&str], mut text: Vec<u8>) -> String {
        let (key, aad) = (self.sealing(), self.mac(purpose));
        let sealed = key.and_then(|key| {
            let nonce = key.seal_in_place_append_tag(Aad::from(aad.as_bytes()), &mut text);
            nonce.ok()
        });
        let mut whole = sealed.map_or_else(Vec::new, |nonce| nonce.as_ref().to_vec());
        whole.append(&mut text);
        URL_SAFE_NO_PAD.encode(whole)
    }

    /// What was sealed for this purpose.
    pub(super) fn open(&self, purpose: &[&str], sealed: &str) -> Option<Vec<u8>> {
        let mut whole = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, text) = whole.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let aad = self.mac(purpose);
        let opened = self
            .sealing()?
            .open_in_place(nonce, Aad::from(aad.as_bytes()), text);
        opened.ok().map(|text| text.to_vec())
    }

    fn sealing(&self) -> Option<RandomizedNonceKey> {
        let key = hmac::sign(&self.0, b"doorward sealing");
        RandomizedNonceKey::new(&AES_256_GCM, key.as_ref()).ok()
    }
}
