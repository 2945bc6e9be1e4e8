//! How a process learns which sessions other nodes have ended, and tells them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::session::storage::{StorageError, Storages};
use doorward_core::clock::Clock;
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::login::{LoginQuery, SessionTombstone};
use doorward_store::{Store, StoreError};

/// How often marks are looked for where nobody says that there are some.
const POLL: Duration = Duration::from_secs(1);
/// Marks of one look.
const LOOK: u32 = 10_000;
/// How often what is over is forgotten, in looks.
const ROUND: u32 = 60;
/// The longest time for which a mark is kept, in milliseconds: ten years.
const FOR_EVER: i64 = 3_650 * 86_400_000;

/// Longest wait for the marks at the start: those of a store that does not answer
/// come later.
const START: Duration = Duration::from_secs(10);

/// Follows the marks of the store until nobody needs them any more; those that are
/// `seen` are known.
pub(crate) fn follow(storages: &Arc<Storages>, clock: Clock, seen: i64) {
    let weak = Arc::downgrade(storages);
    tokio::spawn(run(weak, clock, seen));
}

/// Adds the marks that are in the store at the start. Names the last one.
pub(crate) async fn catch_up(storages: &Storages, store: &Store, clock: &Clock) -> i64 {
    let mut seen = 0;
    let looked = tokio::time::timeout(START, storages.look(store, clock, &mut seen)).await;
    if !matches!(looked, Ok(Ok(()))) {
        tracing::warn!("which sessions have ended is not known yet: the store does not say");
    }
    seen
}

async fn run(weak: Weak<Storages>, clock: Clock, mut seen: i64) {
    let mut tick = 0_u32;
    let store = weak
        .upgrade()
        .and_then(|storages| storages.store.get().cloned());
    let Some(store) = store else { return };
    let mut changes = store.changes();
    while let Some(storages) = weak.upgrade() {
        // What does not answer is said by whoever asks for a session.
        let _ = storages.look(&store, &clock, &mut seen).await;
        if tick.is_multiple_of(ROUND) {
            storages.revoked_sessions.prune(clock.now_ms());
        }
        tick = tick.wrapping_add(1);
        drop(storages);
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            Ok(()) = changes.changed() => {}
        }
    }
}

impl Storages {
    /// Adds the marks of the store from behind the one that was seen last.
    async fn look(&self, store: &Store, clock: &Clock, seen: &mut i64) -> Result<(), StoreError> {
        loop {
            let marks = store.session_tombstones(*seen, LOOK).await?;
            let full = marks.len() >= LOOK as usize;
            for (id, mark) in marks {
                *seen = id;
                if mark.until_ms > clock.now_ms() {
                    self.revoked_sessions.add(&mark);
                }
            }
            if !full {
                return Ok(());
            }
        }
    }

    /// Notes how long a session of a plugin may live; `None`: for ever.
    pub(crate) fn lives(&self, longest_ms: Option<i64>) {
        let longest_ms = longest_ms.unwrap_or(FOR_EVER);
        self.longest_ms.fetch_max(longest_ms, Ordering::Relaxed);
    }

    /// The mark that ends the sessions that have `what` in common and began
    /// before `now_ms`.
    pub(crate) fn mark(
        &self,
        what: doorward_core::model::login::TombstoneKey,
        now_ms: i64,
    ) -> SessionTombstone {
        let longest_ms = self.longest_ms.load(Ordering::Relaxed);
        SessionTombstone {
            what,
            before_ms: now_ms,
            until_ms: now_ms.saturating_add(longest_ms.max(60_000)),
        }
    }

    /// Ends sessions here at once, and on nodes with the same store: those that
    /// `query` finds in it, and those of `marks` wherever they are. Names the
    /// first ones.
    ///
    /// # Errors
    /// [`StorageError`] when the store gives no answer or there is no room for
    /// more marks. Here they have ended all the same, as far as there is room.
    pub(crate) async fn end(
        &self,
        query: &LoginQuery,
        marks: &[SessionTombstone],
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<Vec<String>, StorageError> {
        // Whatever has no room: the others have, and what the store keeps is gone.
        let full = marks
            .iter()
            .filter(|mark| !self.revoked_sessions.add(mark))
            .count()
            > 0;
        let store = self.store()?;
        let mut all = store.end_logins(query, marks, now_ms, audit).await?;
        let mut last = all.len();
        while last >= doorward_core::model::login::LOGINS_AT_ONCE as usize {
            let more = store.end_logins(query, &[], now_ms, audit).await?;
            last = more.len();
            all.extend(more);
        }
        if full {
            tracing::error!("too many ended sessions are remembered: no more can be");
            return Err(StorageError);
        }
        Ok(all)
    }

    /// As [`Storages::end`], for a session that only a cookie holds and whose user
    /// signs out.
    pub(crate) async fn end_of_user(&self, mark: SessionTombstone) -> Result<(), StorageError> {
        // What has no room here must not take that of providers elsewhere.
        if !self.revoked_sessions.add_of_user(&mark) {
            return Err(StorageError);
        }
        Ok(self.store()?.add_session_tombstones(&[mark]).await?)
    }
}
