//! The only writer: a change is compiled, then persisted, then in force.

use std::path::PathBuf;
use std::sync::Arc;

use uuid::Uuid;

use super::entities::{Entities, Record};
use crate::model::plugin::Plugin;
use crate::model::route::Route;
use crate::model::service::Service;
use crate::store::StoreError;

/// One step of a change.
#[derive(Clone, Debug)]
pub enum Change {
    /// Creates or replaces a service.
    PutService(Record<Service>),
    /// Creates or replaces a route.
    PutRoute(Record<Route>),
    /// Creates or replaces a plugin.
    PutPlugin(Record<Plugin>),
    /// Removes a service.
    DeleteService(Uuid),
    /// Removes a route, and its plugins.
    DeleteRoute(Uuid),
    /// Removes a plugin.
    DeletePlugin(Uuid),
}

/// Why a change was not made. Nothing of it is stored or in force.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// A unique name (or a plugin's place) is taken.
    #[error("UNIQUE violation detected on '{{{fields}}}'")]
    Unique {
        /// The kind of the record.
        kind: &'static str,
        /// The violated fields as the Admin API prints them, e.g. `name="foo"`.
        fields: String,
        /// The same as a JSON object, for the error's `fields`.
        detail: serde_json::Map<String, serde_json::Value>,
    },
    /// A reference to a record that does not exist.
    #[error("the foreign key '{{id=\"{id}\"}}' does not reference an existing '{entity}' entity.")]
    ForeignKey {
        /// Field that holds the reference (`service`, `route`).
        field: &'static str,
        /// Plural of the referenced kind.
        entity: &'static str,
        /// What was referenced.
        id: Uuid,
    },
    /// A record that others refer to can't be removed.
    #[error("an existing '{by}' entity references this '{entity}' entity")]
    Referenced {
        /// Plural of the kind to be removed.
        entity: &'static str,
        /// Plural of the referring kind.
        by: &'static str,
    },
    /// The record is owned by a file.
    #[error("this entity is declared in {}; change it there", file.display())]
    FileOwned {
        /// The declaring file.
        file: PathBuf,
    },
    /// The record can't be compiled: a regular expression, a plugin's config.
    #[error("{field}: {message}")]
    Invalid {
        /// Dotted path of the field, for instance `config.rate.duration`.
        field: String,
        /// What is wrong.
        message: String,
    },
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Owner of the entities and of the live snapshot.
pub struct Control {}

impl Control {
    /// The entities in force.
    pub fn entities(&self) -> Arc<Entities> {
        todo!()
    }

    /// Makes a change: `edit` sees the entities in force, alone, and says what
    /// to change; the result is checked (unique names, references), compiled,
    /// persisted and swapped in, or nothing happens.
    ///
    /// # Errors
    /// What `edit` returned, or why its changes can't be made.
    pub async fn change<R, E, F>(&self, edit: F) -> Result<R, E>
    where
        F: FnOnce(&Entities) -> Result<(Vec<Change>, R), E> + Send,
        E: From<ChangeError>,
    {
        let _ = edit;
        todo!()
    }
}
