//! Compilation of changes on threads that may wait: filters read files when they are
//! built, and some compile what they read.

use std::panic::resume_unwind;
use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;
use tokio::task::spawn_blocking;

use super::{ChangeError, Control};
use crate::entities::Entities;
use crate::snapshot::{self, Snapshot};
use doorward_core::model::plugin::Plugin;
use doorward_store::StoreError;

impl Control {
    /// Whether the filter of `plugin` could be built, if it is enabled; changes nothing.
    ///
    /// # Errors
    /// What a change that puts it in force would be refused with.
    pub async fn check_plugin(self: &Arc<Self>, plugin: Plugin) -> Result<(), ChangeError> {
        let control = self.clone();
        let check = move || {
            let entities = control.entities();
            snapshot::check_plugin(&plugin, &control.context.parts, &entities)
        };
        Ok(off_the_workers(check).await??)
    }

    /// Compiles what a change leads to. The writer's lock goes with it: where the client
    /// leaves meanwhile, the next change waits for the end of this compilation.
    ///
    /// # Errors
    /// The first entity that can't be in force.
    pub(super) async fn compile_change(
        self: &Arc<Self>,
        alone: OwnedMutexGuard<()>,
        entities: Entities,
        previous: Arc<Snapshot>,
    ) -> Result<(OwnedMutexGuard<()>, Entities, Snapshot), ChangeError> {
        let control = self.clone();
        let compile = move || {
            let snapshot = Snapshot::compile(&entities, &control.context, Some(&previous))?;
            Ok((alone, entities, snapshot))
        };
        off_the_workers(compile).await?
    }
}

/// What `work` answers, which may wait for files.
async fn off_the_workers<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ChangeError> {
    match spawn_blocking(work).await {
        Ok(done) => Ok(done),
        Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
        Err(_) => {
            let why = "the process ends".to_owned();
            Err(StoreError::Unavailable(why, None).into())
        }
    }
}
