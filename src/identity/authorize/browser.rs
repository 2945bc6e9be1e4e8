//! What ties a form to the browser that it was given to.
//!
//! The browser holds a random secret in a cookie; forms carry digests made
//! with it and with a secret of ours. Nothing is kept here, several tabs work at
//! once, and neither other sites and clients nor the browser itself can make a
//! form of ours, or a time.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use subtle::ConstantTimeEq;

use crate::clock::random_bytes;
use crate::identity::{Call, cookies};

pub(in crate::identity) const COOKIE: &str = "doorward-browser";

/// How long a form that was shown can be answered, in milliseconds: an hour.
pub(in crate::identity) const SHOWN_MS: i64 = 3600 * 1000;

/// The browser that sent a request.
#[derive(Debug)]
pub(in crate::identity) struct Browser {
    secret: String,
    /// What digests are made with.
    key: hmac::Key,
    /// Whether it is to be given the secret.
    new: bool,
}

impl Browser {
    /// The browser of this call, known or new.
    pub(in crate::identity) fn of(call: &Call) -> Self {
        let live = call.state.live();
        let known = cookies::value(call.headers(), &cookies::name(&live, COOKIE));
        let known = known.filter(|secret| (32..=64).contains(&secret.len()));
        let made = || URL_SAFE_NO_PAD.encode(random_bytes::<24>());
        let secret = known.map_or_else(made, str::to_owned);
        Self {
            key: call.state.clients.browser_key(&secret),
            new: known.is_none(),
            secret,
        }
    }

    /// Gives a new browser its secret.
    pub(in crate::identity) fn remember(&self, call: &Call, response: &mut Response) {
        if self.new {
            let live = call.state.live();
            let name = cookies::name(&live, COOKIE);
            cookies::set(response, &live, &name, &self.secret);
        }
    }

    fn mac(&self, parts: &[&str]) -> String {
        let mut context = hmac::Context::with_key(&self.key);
        for part in parts {
            // With its length, so that no two lists of parts look alike.
            context.update(&part.len().to_be_bytes());
            context.update(part.as_bytes());
        }
        URL_SAFE_NO_PAD.encode(context.sign())
    }

    /// A text that only this browser can bring back, for this purpose, and
    /// nobody can read.
    pub(in crate::identity) fn seal(&self, purpose: &[&str], mut text: Vec<u8>) -> String {
        let (key, aad) = (self.sealing_key(), self.mac(purpose));
        let sealed = key.and_then(|key| {
            let nonce = key.seal_in_place_append_tag(Aad::from(aad.as_bytes()), &mut text);
            nonce.ok()
        });
        let mut whole = sealed.map_or_else(Vec::new, |nonce| nonce.as_ref().to_vec());
        whole.append(&mut text);
        URL_SAFE_NO_PAD.encode(whole)
    }

    /// What was sealed for this browser and purpose.
    pub(in crate::identity) fn open(&self, purpose: &[&str], sealed: &str) -> Option<Vec<u8>> {
        let mut whole = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, text) = whole.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let aad = self.mac(purpose);
        let key = self.sealing_key()?;
        let opened = key.open_in_place(nonce, Aad::from(aad.as_bytes()), text);
        opened.ok().map(|text| text.to_vec())
    }

    fn sealing_key(&self) -> Option<RandomizedNonceKey> {
        let key = hmac::sign(&self.key, b"doorward sealing");
        RandomizedNonceKey::new(&AES_256_GCM, key.as_ref()).ok()
    }

    /// The token of a form for this purpose.
    pub(in crate::identity) fn token(&self, purpose: &[&str]) -> String {
        self.mac(purpose)
    }

    /// Whether a form came from a page that this browser was shown for this
    /// purpose, and not from another site.
    pub(in crate::identity) fn sent(
        &self,
        call: &Call,
        purpose: &[&str],
        token: Option<&str>,
    ) -> bool {
        let site = call.headers().get("sec-fetch-site");
        let foreign = site.is_some_and(|site| site == "cross-site" || site == "same-site");
        let token = token.unwrap_or_default();
        let right: bool = self.mac(purpose).as_bytes().ct_eq(token.as_bytes()).into();
        !foreign && !self.new && right
    }

    /// A value that only this browser can bring back, for this purpose and
    /// within an hour.
    pub(in crate::identity) fn carry(
        &self,
        call: &Call,
        purpose: &[&str],
        value: &impl Serialize,
    ) -> String {
        // Records of ours always can be written.
        let text = serde_json::to_vec(&(call.now_ms, value)).unwrap_or_default();
        self.seal(purpose, text)
    }

    /// The value of [`Browser::carry`].
    pub(in crate::identity) fn brought<T: DeserializeOwned>(
        &self,
        call: &Call,
        purpose: &[&str],
        sealed: &str,
    ) -> Option<T> {
        let text = self.open(purpose, sealed).filter(|_| !self.new)?;
        let (made_ms, value): (i64, T) = serde_json::from_slice(&text).ok()?;
        let fresh = (made_ms..made_ms + SHOWN_MS).contains(&call.now_ms);
        fresh.then_some(value)
    }

    /// A mark that says that this browser was shown `query` at `now_ms`.
    pub(super) fn since(&self, query: &str, now_ms: i64) -> String {
        format!(
            "{now_ms}.{}",
            self.mac(&["since", query, &now_ms.to_string()])
        )
    }

    /// When this browser was first shown `query`, by the mark that it brings.
    pub(super) fn first_shown(&self, query: &str, mark: Option<&str>, now_ms: i64) -> Option<i64> {
        let (time, mac) = mark?.split_once('.')?;
        let right: bool = self
            .mac(&["since", query, time])
            .as_bytes()
            .ct_eq(mac.as_bytes())
            .into();
        let time: i64 = time.parse().ok()?;
        (right && (time..time + SHOWN_MS).contains(&now_ms)).then_some(time)
    }
}
