//! Changes that can be taken back: for an hour, from the audit log.
//!
//! What is kept here says how a change is undone. It names versions: where a record
//! has changed since, its change is not undone.

use std::collections::HashSet;

use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use doorward_admin::AdminService;
use doorward_core::clock::random_bytes;
use doorward_net::session::seal::{SealError, Sealer};

use super::account_change::AccountChange;
use super::change::Change;
use super::edit::{self, EntityChange};
use super::error::PageError;
use super::registry_change::RegistryChange;
use super::session::Role;
use super::visit::Visit;

/// How long a change can be undone, in milliseconds.
const LIFETIME_MS: i64 = 3600 * 1000;
/// Longest of them, in bytes as JSON. A longer one is not undone.
const BYTES_MAX: usize = 256 << 10;

/// How a change is undone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Undo {
    /// Of a user or a group.
    Account(AccountChange),
    /// Of an entity of the gateway.
    Entity(EntityChange),
    /// Of a client or a realm.
    Registry(RegistryChange),
}

/// The changes that can be undone. They are in the store, sealed: a deleted record may
/// hold secrets.
pub(crate) struct UndoLog {
    admin: AdminService,
    sealer: Sealer,
}

/// A new name of a change, for `details.change` of its audit record.
pub(crate) fn change_id() -> String {
    URL_SAFE_NO_PAD.encode(random_bytes::<16>())
}

impl Undo {
    /// Who may undo it: those who may make the change.
    fn role(&self) -> Role {
        match self {
            Self::Account(change) => change.role(),
            Self::Entity(change) => change.role(),
            Self::Registry(change) => change.role(),
        }
    }
}

fn sealer(secret: &[u8]) -> Result<Sealer, SealError> {
    Sealer::new("console undo", [secret])
}

/// What undoes the change `id`, sealed for it alone; `None` if it is too long.
fn sealed(sealer: &Sealer, id: &str, undo: &Undo) -> Option<String> {
    let plain = serde_json::to_vec(undo).ok()?;
    if plain.len() > BYTES_MAX {
        return None;
    }
    sealer.seal(id.as_bytes(), &plain).ok()
}

fn opened(sealer: &Sealer, id: &str, sealed: &str) -> Option<Undo> {
    let plain = sealer.open(id.as_bytes(), sealed).ok()?;
    serde_json::from_slice(&plain).ok()
}

impl UndoLog {
    pub(crate) fn new(admin: AdminService, secret: &[u8]) -> Result<Self, SealError> {
        let sealer = sealer(secret)?;
        Ok(Self { admin, sealer })
    }

    /// Keeps how the change `id` is undone. The change is made already, so a failure is
    /// told in the log alone.
    pub(crate) async fn keep(&self, id: String, undo: Undo, now_ms: i64) {
        let Some(sealed) = sealed(&self.sealer, &id, &undo) else {
            return;
        };
        let kept = (undo.role().name(), sealed.as_str());
        let until_ms = now_ms + LIFETIME_MS;
        if let Err(error) = self.admin.put_undo(&id, kept, until_ms).await {
            tracing::warn!(%error, "a change in the console can't be undone");
        }
    }

    /// The change `id` was undone.
    pub(crate) async fn forget(&self, id: &str) {
        if let Err(error) = self.admin.delete_undo(id).await {
            tracing::warn!(%error, "a change in the console is offered to be undone again");
        }
    }

    async fn find(&self, id: &str) -> Result<Option<Undo>, PageError> {
        let found = self.admin.undo(id).await;
        let found = found.map_err(|_| PageError::Unavailable)?;
        Ok(found.and_then(|text| opened(&self.sealer, id, &text)))
    }

    /// The changes that the visitor can undo.
    pub(crate) async fn offered(&self, visit: &Visit) -> HashSet<String> {
        let all = self.admin.undos().await.unwrap_or_default();
        all.into_iter()
            .filter(|(_, role)| Role::named(role).is_some_and(|role| visit.may(role)))
            .map(|(id, _)| id)
            .collect()
    }
}

/// `POST /undo/{id}`: shows what undoing the change does, before it is undone.
pub(crate) async fn ask(visit: Visit) -> Result<Response, PageError> {
    let id = visit.param(0);
    let found = visit.parts().undo.find(id).await?;
    let undo = found.ok_or(PageError::NotUndoable)?;
    if !visit.may(undo.role()) {
        return Err(PageError::Role);
    }
    match undo {
        Undo::Account(mut change) => {
            change.undoes = Some(id.to_owned());
            change.ask(&visit).await
        }
        Undo::Entity(change) => edit::ask(&visit, change).await,
        Undo::Registry(mut change) => {
            change.undoes = Some(id.to_owned());
            change.ask(&visit).await
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::account_change::What;
    use super::*;

    fn undo(text: &str) -> Undo {
        let body = json!({"displayName": text});
        Undo::Account(AccountChange::new("/", What::CreateGroup { body }))
    }

    #[test]
    fn what_undoes_a_change_is_sealed_for_it_alone() {
        let [own, other] = [b"secret", b"others"].map(|secret| sealer(secret).expect("a key"));
        let text = sealed(&own, "a", &undo("a hidden text")).expect("sealed");
        assert!(!text.contains("hidden"), "{text}");
        assert!(opened(&own, "a", &text).is_some());
        assert!(opened(&own, "b", &text).is_none(), "of another change");
        assert!(opened(&other, "a", &text).is_none(), "of another store");
        let long = undo(&"x".repeat(BYTES_MAX));
        assert_eq!(sealed(&own, "a", &long), None);
    }
}
