//! Applications, ready to be checked.

use aws_lc_rs::constant_time::verify_slices_are_equal;

use doorward_core::model::credential::{KeyDigest, OAuth2};

/// An application that asks for tokens.
#[derive(Debug)]
pub struct Client {
    /// What it is looked up by.
    pub(super) client_id: Box<str>,
    secret: Option<KeyDigest>,
    /// Where browsers may be led back to; `None`: it was never said.
    pub(super) redirect_uris: Option<Box<[Box<str>]>>,
    /// Whether it can't keep a secret.
    pub(super) is_public: bool,
}

impl Client {
    /// What its record says.
    pub fn new(record: &OAuth2) -> Self {
        let secret = record.client_secret.as_ref();
        let uris = record.redirect_uris.as_ref();
        Self {
            client_id: record.client_id.as_deref().unwrap_or_default().into(),
            secret: secret.map(|secret| KeyDigest::of(secret.expose())),
            redirect_uris: uris.map(|uris| uris.iter().map(|uri| uri.as_str().into()).collect()),
            is_public: record.client_type == "public",
        }
    }

    /// Whether this is its secret.
    pub(super) fn fits(&self, secret: Option<&str>) -> bool {
        let (Some(own), Some(secret)) = (&self.secret, secret) else {
            return false;
        };
        are_equal(own, secret)
    }
}

/// Compares a text with a secret of which the hash is known, in a time that says
/// nothing of either.
pub(super) fn are_equal(secret: &KeyDigest, text: &str) -> bool {
    let sent = KeyDigest::of_sent(text.as_bytes());
    verify_slices_are_equal(secret.bytes(), sent.bytes()).is_ok()
}
