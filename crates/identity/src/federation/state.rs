//! What travels through another provider and back: sealed, so that nobody but
//! the browser that was sent there brings it back, to the provider that it was
//! meant for, and nobody reads it on the way.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Provider;
use crate::Call;
use crate::authorize::Browser;

/// How long a browser may be away, in milliseconds.
pub(super) const AWAY_MS: i64 = 30 * 60 * 1000;

/// Longest state that is opened, in bytes.
const STATE_MAX: usize = 8 * 1024;

/// A browser's way through another provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LoginState {
    /// Where it goes on: a page of ours, relative to the realm.
    #[serde(rename = "t")]
    pub(super) to: String,
    /// When it was sent.
    #[serde(rename = "b")]
    pub(super) began_ms: i64,
    /// How long ago the user may have signed in there, in seconds.
    #[serde(rename = "a", default, skip_serializing_if = "Option::is_none")]
    pub(super) max_age: Option<i64>,
    /// The user who wants to be linked, and has signed in for that.
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    pub(super) link: Option<Uuid>,
}

/// What a state and its request are bound to.
fn purpose<'a>(call: &'a Call, provider: &'a Provider, what: &'a str) -> [&'a str; 5] {
    let written = &provider.written;
    let realm = call.realm.path.as_str();
    [
        what,
        realm,
        provider.name(),
        &written.issuer,
        &written.client_id,
    ]
}

impl LoginState {
    /// The state of a request to this provider.
    pub(super) fn seal(&self, call: &Call, browser: &Browser, provider: &Provider) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        browser.seal(&purpose(call, provider, "federation"), text)
    }

    /// The passage of a state, if it was this browser's and this provider's,
    /// and not too long ago; with it, the browser as it was then.
    pub(super) fn open(
        call: &Call,
        browser: &Browser,
        provider: &Provider,
        state: &str,
    ) -> Option<(Self, Browser)> {
        if state.len() > STATE_MAX {
            return None;
        }
        let (text, browser) = browser.open(&purpose(call, provider, "federation"), state)?;
        let login_state: Self = serde_json::from_slice(&text).ok()?;
        let age_ms = call.now_ms - login_state.began_ms;
        (0..AWAY_MS)
            .contains(&age_ms)
            .then_some((login_state, browser))
    }

    /// What the ID token must bring back.
    pub(super) fn nonce(
        browser: &Browser,
        call: &Call,
        provider: &Provider,
        state: &str,
    ) -> String {
        derived(browser, call, provider, "federation nonce", state)
    }

    /// What only we can show when the code is exchanged (RFC 7636 §4.1): the
    /// provider sees its digest before.
    pub(super) fn verifier(
        browser: &Browser,
        call: &Call,
        provider: &Provider,
        state: &str,
    ) -> String {
        derived(browser, call, provider, "federation verifier", state)
    }
}

fn derived(browser: &Browser, call: &Call, provider: &Provider, what: &str, state: &str) -> String {
    let mut parts = purpose(call, provider, what).to_vec();
    parts.push(state);
    browser.token(&parts)
}
