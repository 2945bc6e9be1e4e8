//! Sessions that a long answer or a WebSocket is of. No request reads them again,
//! and in a Redis or memcached another node may end them without a word.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::session::open_session::OpenSession;
use crate::session::storage::Storage;
use crate::session::{Refusal, Sessions};

impl Sessions {
    /// Looks a session up again in the background where nobody has for a while. A
    /// storage that does not answer ends nothing.
    pub(crate) fn look_again(self: &Arc<Self>, held: &Arc<OpenSession>, now_ms: i64) {
        let (Some(storage @ Storage::Remote(_)), Some(handle)) = (&self.storage, &held.handle)
        else {
            return;
        };
        let due = held.look_at_ms.load(Ordering::Relaxed);
        let next = now_ms.saturating_add(storage.read_ms());
        let (set, fail) = (Ordering::Relaxed, Ordering::Relaxed);
        if now_ms < due
            || held
                .look_at_ms
                .compare_exchange(due, next, set, fail)
                .is_err()
        {
            return;
        }
        let (sessions, held, handle) = (Arc::clone(self), Arc::clone(held), handle.clone());
        tokio::spawn(async move {
            let found = sessions.load(&handle, now_ms).await;
            if matches!(found, Ok(Err(Refusal::SessionOver))) {
                sessions.note_end(&held, now_ms);
            }
        });
    }

    /// Notes that a session of a storage is over, for what lasts here. Once: a
    /// browser may go on to show it.
    pub(crate) fn note_end(&self, held: &OpenSession, now_ms: i64) {
        if !held.is_over(&self.storages.revoked_sessions) {
            self.storages
                .revoked_sessions
                .add_of_user(&held.end_mark(now_ms));
        }
    }
}
