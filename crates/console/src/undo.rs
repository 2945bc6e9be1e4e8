//! A change is taken back: what that does is shown before it is done.

use axum::response::Response;
use serde::Deserialize;

use super::account_change::AccountChange;
use super::broker_change::BrokerChange;
use super::change::Change;
use super::edit::{self, EntityChange};
use super::error::PageError;
use super::registry_change::RegistryChange;
use super::session::Role;
use super::visit::Visit;

/// How a change is undone, as the undo log keeps it.
#[derive(Debug, Deserialize)]
enum Undo {
    /// Of a user or a group.
    Account(AccountChange),
    /// Of a record of the token broker.
    Broker(BrokerChange),
    /// Of an entity of the gateway.
    Entity(EntityChange),
    /// Of a client or a realm.
    Registry(RegistryChange),
}

impl Undo {
    /// Who may undo it: those who may make the change.
    fn role(&self) -> Role {
        match self {
            Self::Account(_) => AccountChange::ROLE,
            Self::Broker(_) => BrokerChange::ROLE,
            Self::Entity(change) => change.role(),
            Self::Registry(_) => RegistryChange::ROLE,
        }
    }
}

/// `POST /undo/{id}`: shows what undoing the change does, before it is undone.
pub(crate) async fn ask(visit: Visit) -> Result<Response, PageError> {
    let id = visit.param(0);
    let found = visit.parts().undo.find(id).await?;
    let undo: Undo = found.ok_or(PageError::NotUndoable)?;
    if !visit.may(undo.role()) {
        return Err(PageError::Role);
    }
    match undo {
        Undo::Account(mut change) => {
            change.undoes = Some(id.to_owned());
            change.ask(&visit).await
        }
        Undo::Broker(mut change) => {
            change.undoes = Some(id.to_owned());
            change.ask(&visit).await
        }
        Undo::Entity(mut change) => {
            change.undoes = Some(id.to_owned());
            edit::ask(&visit, change).await
        }
        Undo::Registry(mut change) => {
            change.undoes = Some(id.to_owned());
            change.ask(&visit).await
        }
    }
}
