//! What ties a form to the browser that it was given to.
//!
//! The browser holds a random secret in a cookie; forms carry digests made
//! with it and with a secret of ours. Nothing is kept here, several tabs work at
//! once, and neither other sites and clients nor the browser itself can make a
//! form of ours, or a time.
//!
//! Tabs that are opened at the very same moment, by a browser that has no secret
//! yet, are given one each, and of cookies of one name browsers keep the last.
//! So each secret also is in a cookie whose name is of its own, which goes when
//! no form of it can be answered any more.

mod key;
mod secrets;

use axum::response::Response;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Call, cookies};
use key::Key;
use secrets::{Secrets, name_of};

pub(crate) const COOKIE: &str = "doorward-browser";

/// How long a form that was shown can be answered, in milliseconds: an hour.
pub(crate) const SHOWN_MS: i64 = 3600 * 1000;

/// The browser that sent a request.
#[derive(Debug)]
pub(crate) struct Browser {
    /// Of the secret that it got last: what is given to it now is made with it.
    key: Key,
    /// Of the other ones that it has: what it brings may be of these.
    others: Vec<Key>,
    /// The secret that it is to be given, if it has none.
    new: Option<String>,
    /// The names of cookies that it has too many of.
    surplus: Vec<String>,
}

impl Browser {
    /// The browser of this call, known or new.
    pub(crate) fn of(call: &Call) -> Self {
        let live = &call.live;
        let shown = Secrets::of(call.headers(), &cookies::name(live, COOKIE));
        let key = |secret: &str| Key::new(call.state.clients.browser_key(secret));
        let (last, others) = match shown.all.split_first() {
            Some((last, others)) => (Some(*last), others),
            None => (None, &[][..]),
        };
        let new = last.is_none().then(secrets::make);
        let secret = last.or(new.as_deref()).unwrap_or_default();
        Self {
            key: key(secret),
            others: others.iter().map(|secret| key(secret)).collect(),
            surplus: shown.surplus.into_iter().map(str::to_owned).collect(),
            new,
        }
    }

    /// Gives a new browser its secret; has one with too many forget some.
    pub(crate) fn remember(&self, call: &Call, response: &mut Response) {
        let live = &call.live;
        let name = cookies::name(live, COOKIE);
        if let Some(secret) = &self.new {
            cookies::set(response, live, &name, secret);
            let own = name_of(&name, secret);
            cookies::set_for(response, live, &own, secret, SHOWN_MS / 1000);
        }
        for name in &self.surplus {
            cookies::clear(response, live, name);
        }
    }

    fn keys(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.key).chain(&self.others)
    }

    /// A text that only this browser can bring back, for this purpose, and
    /// nobody can read.
    pub(crate) fn seal(&self, purpose: &[&str], text: Vec<u8>) -> String {
        self.key.seal(purpose, text)
    }

    /// What was sealed for this browser and purpose, and the browser with the
    /// secret that it was sealed with.
    pub(crate) fn open(&self, purpose: &[&str], sealed: &str) -> Option<(Vec<u8>, Self)> {
        self.keys().find_map(|key| {
            let alone = Self {
                key: key.clone(),
                others: Vec::new(),
                new: None,
                surplus: Vec::new(),
            };
            Some((key.open(purpose, sealed)?, alone))
        })
    }

    /// The token of a form for this purpose.
    pub(crate) fn token(&self, purpose: &[&str]) -> String {
        self.key.mac(purpose)
    }

    /// Whether a form came from a page that this browser was shown for this
    /// purpose, and not from another site.
    pub(crate) fn sent(&self, call: &Call, purpose: &[&str], token: Option<&str>) -> bool {
        let site = call.headers().get("sec-fetch-site");
        let foreign = site.is_some_and(|site| site == "cross-site" || site == "same-site");
        let token = token.unwrap_or_default();
        let right = self.keys().any(|key| key.made(purpose, token));
        !foreign && self.new.is_none() && right
    }

    /// A value that only this browser can bring back, for this purpose and
    /// within an hour.
    pub(crate) fn carry(&self, call: &Call, purpose: &[&str], value: &impl Serialize) -> String {
        // Records of ours always can be written.
        let text = serde_json::to_vec(&(call.now_ms, value)).unwrap_or_default();
        self.seal(purpose, text)
    }

    /// The value of [`Browser::carry`].
    pub(crate) fn brought<T: DeserializeOwned>(
        &self,
        call: &Call,
        purpose: &[&str],
        sealed: &str,
    ) -> Option<T> {
        let (text, _) = self.open(purpose, sealed).filter(|_| self.new.is_none())?;
        let (made_ms, value): (i64, T) = serde_json::from_slice(&text).ok()?;
        let fresh = (made_ms..made_ms + SHOWN_MS).contains(&call.now_ms);
        fresh.then_some(value)
    }

    /// A mark that says that this browser was shown `query` at `now_ms`.
    pub(super) fn since(&self, query: &str, now_ms: i64) -> String {
        let mac = self.key.mac(&["since", query, &now_ms.to_string()]);
        format!("{now_ms}.{mac}")
    }

    /// When this browser was first shown `query`, by the mark that it brings.
    pub(super) fn first_shown(&self, query: &str, mark: Option<&str>, now_ms: i64) -> Option<i64> {
        let (time, mac) = mark?.split_once('.')?;
        let right = self
            .keys()
            .any(|key| key.made(&["since", query, time], mac));
        let time: i64 = time.parse().ok()?;
        (right && (time..time + SHOWN_MS).contains(&now_ms)).then_some(time)
    }
}
