//! Telling clients that a session has ended (OpenID Connect Back-Channel Logout
//! 1.0).

use tokio::sync::Notify;

/// The way to the task that tells them.
#[derive(Debug, Default)]
pub(super) struct Logouts {
    due: Notify,
}

impl Logouts {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// There may be somebody to be told.
    pub(super) fn wake(&self) {
        self.due.notify_one();
    }
}
