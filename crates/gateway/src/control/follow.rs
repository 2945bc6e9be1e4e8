//! What other processes make of the stored entities is put in force here too.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::{
    Change, ChangeError, Control, DeclaredEntities, DeclaredError, Difference, difference,
};
use super::{stored_entities, unreadable};
use crate::entities::{Entities, Origin};
use crate::records::Resource as _;
use crate::snapshot::Snapshot;
use doorward_core::model::credential::{Credential, KeyAuth};
use doorward_store::StoreError;

/// How often it is looked for where the database does not tell.
const POLL: Duration = Duration::from_millis(500);
/// How often credentials whose time is over are removed, and how many at most.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
const SWEEP: usize = 1000;

impl Control {
    /// Follows the changes of other processes as long as `self` is there.
    pub fn follow(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        tokio::spawn(async move { run(weak).await });
    }

    /// Puts in force what the store holds now; says whether it is something
    /// else than before.
    async fn take_in(&self) -> Result<bool, DeclaredError> {
        let _alone = self.alone().await;
        let there = self.store.entities_revision().await.map_err(unreadable)?;
        if there == self.revision.load(Ordering::Acquire) {
            // The database told of a change of this process.
            return Ok(false);
        }
        self.take_in_alone().await
    }

    /// Takes in what others have changed, if they have; for who has the writer's
    /// lock.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if it can't be in force here: what is made of
    /// the old state could contradict it.
    pub(super) async fn catch_up(&self) -> Result<(), StoreError> {
        let there = self.store.entities_revision().await?;
        if there == self.revision.load(Ordering::Acquire) {
            return Ok(());
        }
        let taken = self.take_in_alone().await;
        taken.map(drop).map_err(|refused| match refused.error {
            ChangeError::Store(error) => error,
            error => {
                tracing::error!(%error, "entities of the store are not in force");
                StoreError::Conflict("entities".to_owned())
            }
        })
    }

    /// Removes stored credentials whose time is over, a bounded number at once.
    async fn sweep(self: &Arc<Self>) {
        let now_ms = self.context.parts.clock.now_ms();
        let over = |entities: &Entities| -> Vec<Change> {
            let keys = entities.credentials.keys.iter();
            keys.filter(|key| key.origin == Origin::Store && key.value.is_over(now_ms))
                .take(SWEEP)
                .map(|key| Change::delete::<Credential<KeyAuth>>(key.value.id))
                .collect()
        };
        if over(&self.entities.load()).is_empty() {
            return;
        }
        let swept = self.change(|entities| Ok::<_, ChangeError>((over(entities), ())), None);
        if let Err(error) = swept.await {
            tracing::warn!(%error, "keys whose time is over could not be removed");
        }
    }

    async fn take_in_alone(&self) -> Result<bool, DeclaredError> {
        let revision = self.store.entities_revision().await.map_err(unreadable)?;
        let stored = stored_entities(&self.store).await.map_err(unreadable)?;
        let current = self.entities.load_full();
        let wanted = DeclaredEntities {
            items: stored.items().collect(),
            ..DeclaredEntities::default()
        };
        let candidate = difference::with_stored(&current, wanted)?;
        if Difference::between(&current, &candidate).is_empty() {
            self.revision.store(revision, Ordering::Release);
            return Ok(false);
        }
        let previous = self.live.load_full();
        let snapshot = Snapshot::compile(&candidate, &self.context, Some(&previous))?;
        self.swap(Arc::new(candidate), Arc::new(snapshot));
        self.revision.store(revision, Ordering::Release);
        Ok(true)
    }
}

async fn run(weak: Weak<Control>) {
    let Some(mut changes) = weak.upgrade().map(|control| control.store.changes()) else {
        return;
    };
    let mut seen = None;
    let mut swept = Instant::now();
    while let Some(control) = weak.upgrade() {
        // A store that does not answer is told of elsewhere.
        if let Ok(version) = control.store.entities_version().await
            && seen != Some(version)
        {
            let taken = control.take_in().await;
            match &taken {
                Ok(true) => tracing::info!("entities that another process changed are in force"),
                Ok(false) => {}
                Err(refused) => {
                    let error = &refused.error;
                    tracing::error!(%error, "entities of the store are not in force");
                }
            }
            // What could not be read is looked for again.
            let unread = taken.is_err_and(|one| matches!(one.error, ChangeError::Store(_)));
            seen = (!unread).then_some(version);
        }
        if swept.elapsed() >= SWEEP_EVERY {
            swept = Instant::now();
            control.sweep().await;
        }
        // Also after a reload of the files.
        control.compact_later();
        drop(control);
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            Ok(()) = changes.changed() => {}
        }
    }
}
