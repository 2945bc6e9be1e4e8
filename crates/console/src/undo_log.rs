//! Changes of this process that can be taken back: for an hour, from the audit log.
//!
//! What is kept here says how a change is undone. It names versions: where a record
//! has changed since, its change is not undone.

use std::collections::VecDeque;

use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;

use doorward_core::clock::random_bytes;

use super::account_change::AccountChange;
use super::edit::{self, EntityChange};
use super::error::PageError;
use super::session::Role;
use super::visit::Visit;

/// How long a change can be undone, in milliseconds.
const LIFETIME_MS: i64 = 3600 * 1000;
/// Most changes that are kept. Beyond it the oldest are forgotten.
const ENTRIES_MAX: usize = 1000;
/// Most that all of them hold together, in bytes as JSON.
const BYTES_MAX: usize = 8 << 20;

/// How a change is undone.
#[derive(Clone, Debug)]
pub(crate) enum Undo {
    /// Of a user or a group.
    Account(AccountChange),
    /// Of an entity of the gateway.
    Entity(EntityChange),
}

struct Entry {
    id: String,
    undo: Undo,
    size: usize,
    until_ms: i64,
}

/// The changes that can be undone, the oldest first.
#[derive(Default)]
pub(crate) struct UndoLog(Mutex<VecDeque<Entry>>);

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
        }
    }

    fn size(&self) -> usize {
        let text = match self {
            Self::Account(change) => serde_json::to_vec(change),
            Self::Entity(change) => serde_json::to_vec(change),
        };
        text.map_or(usize::MAX, |text| text.len())
    }
}

impl UndoLog {
    /// Keeps how the change `id` is undone.
    pub(crate) fn keep(&self, id: String, undo: Undo, now_ms: i64) {
        let size = undo.size();
        if size > BYTES_MAX {
            return;
        }
        let mut entries = self.0.lock();
        entries.retain(|entry| now_ms < entry.until_ms);
        let mut held: usize = entries.iter().map(|entry| entry.size).sum();
        while entries.len() >= ENTRIES_MAX || held + size > BYTES_MAX {
            let Some(oldest) = entries.pop_front() else {
                break;
            };
            held -= oldest.size;
        }
        entries.push_back(Entry {
            id,
            undo,
            size,
            until_ms: now_ms + LIFETIME_MS,
        });
    }

    /// The change `id` was undone.
    pub(crate) fn forget(&self, id: &str) {
        self.0.lock().retain(|entry| entry.id != id);
    }

    fn find(&self, id: &str, now_ms: i64) -> Option<Undo> {
        let entries = self.0.lock();
        let mut entries = entries.iter();
        let entry = entries.find(|entry| entry.id == id && now_ms < entry.until_ms);
        entry.map(|entry| entry.undo.clone())
    }

    /// Whether the visitor can undo the change `id`.
    pub(crate) fn offers(&self, visit: &Visit, id: &str) -> bool {
        let found = self.find(id, visit.now_ms());
        found.is_some_and(|undo| visit.may(undo.role()))
    }
}

/// `POST /undo/{id}`: shows what undoing the change does, before it is undone.
pub(crate) async fn ask(visit: Visit) -> Result<Response, PageError> {
    let id = visit.param(0);
    let found = visit.parts().undo.find(id, visit.now_ms());
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
    fn a_change_can_be_undone_for_an_hour_and_until_it_was() {
        let log = UndoLog::default();
        log.keep("a".to_owned(), undo("x"), 0);
        assert!(log.find("a", LIFETIME_MS - 1).is_some());
        assert!(log.find("a", LIFETIME_MS).is_none());
        assert!(log.find("b", 1).is_none());
        log.forget("a");
        assert!(log.find("a", 1).is_none());
    }

    #[test]
    fn changes_that_can_be_undone_are_bounded_by_number_and_size() {
        let log = UndoLog::default();
        for number in 0..ENTRIES_MAX + 5 {
            log.keep(number.to_string(), undo("x"), 0);
        }
        assert_eq!(log.0.lock().len(), ENTRIES_MAX);
        assert!(log.find("4", 1).is_none() && log.find("5", 1).is_some());
        let long = "x".repeat(BYTES_MAX / 2);
        log.keep("long".to_owned(), undo(&long), 0);
        log.keep("longer".to_owned(), undo(&long), 0);
        assert!(log.find("long", 1).is_none() && log.find("longer", 1).is_some());
        log.keep("longest".to_owned(), undo(&"x".repeat(BYTES_MAX)), 0);
        assert!(log.find("longest", 1).is_none());
    }
}
