//! The registry, as operators see and change it.

use std::path::PathBuf;

use super::Broker;
use crate::token_broker::records;
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::broker::{Kind, Record, Removal};
use doorward_store::StoreError;

impl Broker {
    /// The file that declares what is not to be changed elsewhere.
    pub fn file(&self) -> PathBuf {
        self.names.load().file.clone()
    }

    /// At most `limit` records of a kind after `after`.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn page(
        &self,
        kind: Kind,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Record>, StoreError> {
        self.store.broker_records(kind, after, limit).await
    }

    /// The record of this kind and identifier; an application's may be its
    /// consumer key.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn record(&self, kind: Kind, id: &str) -> Result<Option<Record>, StoreError> {
        let id = match kind {
            Kind::Developer => records::developer_id(id),
            Kind::Product | Kind::Application => id.to_owned(),
        };
        let found = self.store.broker_record(kind, &id).await?;
        if found.is_some() || kind != Kind::Application {
            return Ok(found);
        }
        let by_key = self.store.broker_client(&id).await?;
        Ok(by_key.map(|client| client.application))
    }

    /// Adds a record.
    ///
    /// # Errors
    /// [`StoreError::Taken`], [`StoreError::Absent`].
    pub async fn insert(
        &self,
        record: &Record,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        self.changed(self.store.insert_broker_record(record, audit).await)
    }

    /// Replaces a record that was last changed at `seen_ms`.
    ///
    /// # Errors
    /// [`StoreError::FileOwned`], [`StoreError::Conflict`], [`StoreError::Taken`],
    /// [`StoreError::Absent`].
    pub async fn update(
        &self,
        record: &Record,
        seen_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        self.changed(
            self.store
                .update_broker_record(record, seen_ms, audit)
                .await,
        )
    }

    /// Removes a record, if it was last changed at `seen_ms` where that is named.
    ///
    /// # Errors
    /// [`StoreError::FileOwned`].
    pub async fn delete(
        &self,
        record: (Kind, &str),
        seen_ms: Option<i64>,
        audit: Option<&PendingAudit>,
    ) -> Result<Removal, StoreError> {
        self.changed(
            self.store
                .delete_broker_record(record, seen_ms, audit)
                .await,
        )
    }

    /// Revokes all tokens that an application, by its identifier, got up to now,
    /// whoever owns its record; says whether it was there.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn revoke_all(
        &self,
        id: &str,
        audit: Option<&PendingAudit>,
    ) -> Result<bool, StoreError> {
        let now_ms = self.now_ms();
        self.changed(self.store.revoke_broker_client(id, now_ms, audit).await)
    }

    fn changed<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        self.forget();
        outcome
    }
}
