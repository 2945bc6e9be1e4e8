//! What a session's cookie holds.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use doorward_core::clock::random_uuid;
use doorward_net::session::seal::Sealer;

/// A session, as its cookie has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SessionState {
    /// What it is called where it is shown. It opens nothing; cookies of older
    /// versions have none.
    #[serde(rename = "n", default, skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<Box<str>>,
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
            id: Some(random_uuid().to_string().into()),
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

    /// The session in a text that was sealed for `context`.
    pub(super) fn open(sealer: &Sealer, context: &[u8], text: &str) -> Option<Self> {
        let plain = sealer.open(context, text).ok()?;
        serde_json::from_slice(&plain).ok()
    }

    /// The text of it for `context`.
    pub(super) fn seal(&self, sealer: &Sealer, context: &[u8]) -> Option<String> {
        let plain = serde_json::to_vec(self).ok()?;
        sealer.seal(context, &plain).ok()
    }
}
