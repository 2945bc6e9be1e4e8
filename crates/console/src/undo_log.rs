//! Changes that can be taken back: for an hour, from the audit log.
//!
//! What is kept here says how a change is undone. It names versions: where a record
//! has changed since, its change is not undone.

use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use doorward_admin::AdminService;
use doorward_core::clock::random_bytes;
use doorward_net::session::seal::{SealError, Sealer};

use super::error::PageError;
use super::session::Role;
use super::visit::Visit;

/// How long a change can be undone, in milliseconds.
const LIFETIME_MS: i64 = 3600 * 1000;
/// Longest of them, in bytes as JSON. A longer one is not undone.
const BYTES_MAX: usize = 256 << 10;

/// How a change is undone, by the kind of what undoes it.
pub(crate) struct UndoEntry<'a, C> {
    pub(crate) kind: &'static str,
    /// Who may undo it: those who may make the change.
    pub(crate) role: Role,
    pub(crate) change: &'a C,
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

fn sealer(secret: &[u8]) -> Result<Sealer, SealError> {
    Sealer::new("console undo", [secret])
}

/// What undoes the change `id`, sealed for it alone; `None` if it is too long.
fn sealed(sealer: &Sealer, id: &str, undo: &Value) -> Option<String> {
    let plain = serde_json::to_vec(undo).ok()?;
    if plain.len() > BYTES_MAX {
        return None;
    }
    sealer.seal(id.as_bytes(), &plain).ok()
}

fn opened<T: DeserializeOwned>(sealer: &Sealer, id: &str, sealed: &str) -> Option<T> {
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
    pub(crate) async fn keep<C: Serialize>(&self, id: String, kept: UndoEntry<'_, C>, now_ms: i64) {
        let undo = json!({kept.kind: kept.change});
        let Some(sealed) = sealed(&self.sealer, &id, &undo) else {
            return;
        };
        let kept = (kept.role.name(), sealed.as_str());
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

    /// What undoes the change `id`: an enumeration of the kinds that were kept.
    pub(crate) async fn find<T: DeserializeOwned>(&self, id: &str) -> Result<Option<T>, PageError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn undo(text: &str) -> Value {
        json!({"Account": {"displayName": text}})
    }

    #[test]
    fn what_undoes_a_change_is_sealed_for_it_alone() {
        let [own, other] = [b"secret", b"others"].map(|secret| sealer(secret).expect("a key"));
        let text = sealed(&own, "a", &undo("a hidden text")).expect("sealed");
        assert!(!text.contains("hidden"), "{text}");
        assert!(opened::<Value>(&own, "a", &text).is_some());
        assert!(
            opened::<Value>(&own, "b", &text).is_none(),
            "of another change"
        );
        assert!(
            opened::<Value>(&other, "a", &text).is_none(),
            "of another store"
        );
        let long = undo(&"x".repeat(BYTES_MAX));
        assert_eq!(sealed(&own, "a", &long), None);
    }
}
