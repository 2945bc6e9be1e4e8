//! What a session's cookie holds.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::config::CookieKind;
use doorward_net::session::seal::Sealer;

/// A session, as its cookie has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SessionState {
    #[serde(rename = "c")]
    pub(super) consumer: Uuid,
    #[serde(rename = "i")]
    pub(super) credential: Uuid,
    #[serde(rename = "g", default, skip_serializing_if = "Option::is_none")]
    pub(super) groups: Option<Box<[Box<str>]>>,
    #[serde(rename = "s")]
    pub(super) started_ms: i64,
    #[serde(rename = "r")]
    pub(super) renewed_ms: i64,
}

impl SessionState {
    /// A session that begins.
    pub(super) fn new(
        consumer: Uuid,
        credential: Uuid,
        groups: Option<Box<[Box<str>]>>,
        now_ms: i64,
    ) -> Self {
        Self {
            consumer,
            credential,
            groups,
            started_ms: now_ms,
            renewed_ms: now_ms,
        }
    }

    /// The same session, used now.
    pub(super) fn renewed(&self, now_ms: i64) -> Self {
        Self {
            renewed_ms: now_ms,
            ..self.clone()
        }
    }

    /// Whether it is the session of this consumer by this credential.
    pub(super) fn matches(&self, consumer: Uuid, credential: Uuid) -> bool {
        (self.consumer, self.credential) == (consumer, credential)
    }

    /// The session in a cookie, if it was sealed here for these cookies.
    pub(super) fn open(sealer: &Sealer, kind: &CookieKind, text: &str) -> Option<Self> {
        let plain = sealer.open(&kind.context, text).ok()?;
        serde_json::from_slice(&plain).ok()
    }

    /// The text of such a cookie.
    pub(super) fn seal(&self, sealer: &Sealer, kind: &CookieKind) -> Option<String> {
        let plain = serde_json::to_vec(self).ok()?;
        sealer.seal(&kind.context, &plain).ok()
    }
}
