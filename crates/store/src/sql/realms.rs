//! Realms.

use serde_json::{Map, Value};

use super::{Row, Tx, sql, write_doc};
use crate::{Store, StoreError};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::registration::{RealmRemoval, StoredRealm};

impl Store {
    /// All realms, in ascending order of their paths.
    pub async fn realms(&self) -> Result<Vec<StoredRealm>, StoreError> {
        let rows = sql("SELECT path, owner, settings FROM realms ORDER BY path")
            .all(&self.database)
            .await?;
        let realm = |row: &Row| {
            Ok(StoredRealm {
                path: row.text("path")?,
                declared: row.text("owner")? == "file",
                settings: row.doc("settings")?,
            })
        };
        rows.iter().map(realm).collect()
    }

    /// Adds a realm.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when there is one of this path.
    pub async fn insert_realm(
        &self,
        realm: &StoredRealm,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        insert(&mut tx, realm).await?;
        tx.commit().await
    }

    /// Replaces the settings of a realm made in the store, if they are still
    /// `seen`; `None`: whatever they are.
    ///
    /// # Errors
    /// [`StoreError::FileOwned`] for a realm that the file declares;
    /// [`StoreError::Conflict`] when they are others, or it is gone.
    pub async fn update_realm(
        &self,
        realm: &StoredRealm,
        seen: Option<&Map<String, Value>>,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        update(&mut tx, realm, seen).await?;
        tx.commit().await
    }

    /// Removes a realm in which nothing is left, if its settings are still `seen`;
    /// `None`: whatever they are.
    ///
    /// # Errors
    /// [`StoreError::FileOwned`] for a realm that the file declares;
    /// [`StoreError::Conflict`] when its settings are others.
    pub async fn delete_realm(
        &self,
        path: &str,
        seen: Option<&Map<String, Value>>,
        audit: Option<&PendingAudit>,
    ) -> Result<RealmRemoval, StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        let outcome = delete(&mut tx, path, seen).await?;
        tx.void_unless(outcome == RealmRemoval::Done);
        tx.commit().await?;
        Ok(outcome)
    }
}

async fn insert(tx: &mut Tx, realm: &StoredRealm) -> Result<(), StoreError> {
    sql("INSERT INTO realms (path, owner, settings) VALUES ($1, 'store', $2)")
        .bind(&realm.path)
        .bind(write_doc(&realm.settings)?)
        .run_unless_taken(tx, &realm.path)
        .await
        .map(drop)
}

async fn update(
    tx: &mut Tx,
    realm: &StoredRealm,
    seen: Option<&Map<String, Value>>,
) -> Result<(), StoreError> {
    refuse_declared(tx, &realm.path).await?;
    if let Some(seen) = seen
        && own(tx, &realm.path).await?.as_ref() != Some(seen)
    {
        return Err(StoreError::Conflict(realm.path.clone()));
    }
    let done = sql("UPDATE realms SET settings = $1 WHERE path = $2")
        .bind(write_doc(&realm.settings)?)
        .bind(&realm.path)
        .run(tx)
        .await?;
    match done {
        0 => Err(StoreError::Conflict(realm.path.clone())),
        _ => Ok(()),
    }
}

/// What a realm sets itself.
async fn own(tx: &mut Tx, path: &str) -> Result<Option<Map<String, Value>>, StoreError> {
    let row = sql("SELECT settings FROM realms WHERE path = $1")
        .bind(path)
        .one(&mut *tx)
        .await?;
    row.map(|row| row.doc("settings")).transpose()
}

async fn refuse_declared(tx: &mut Tx, path: &str) -> Result<(), StoreError> {
    let row = sql("SELECT owner FROM realms WHERE path = $1")
        .bind(path)
        .one(&mut *tx)
        .await?;
    match row {
        Some(row) if row.text("owner")? == "file" => Err(StoreError::FileOwned(path.to_owned())),
        _ => Ok(()),
    }
}

async fn delete(
    tx: &mut Tx,
    path: &str,
    seen: Option<&Map<String, Value>>,
) -> Result<RealmRemoval, StoreError> {
    refuse_declared(tx, path).await?;
    if let Some(seen) = seen
        && own(tx, path).await?.is_some_and(|own| own != *seen)
    {
        return Err(StoreError::Conflict(path.to_owned()));
    }
    let below = format!("{path}/");
    let inside = sql("SELECT (SELECT count(*) FROM users WHERE realm = $1)
              + (SELECT count(*) FROM user_groups WHERE realm = $1)
              + (SELECT count(*) FROM clients WHERE realm = $1)
              + (SELECT count(*) FROM realms WHERE substr(path, 1, length($2)) = $2) AS inside")
    .bind(path)
    .bind(below)
    .one(&mut *tx)
    .await?;
    let inside = inside.map_or(Ok(0), |row| row.int("inside"))?;
    if path == "/" || inside > 0 {
        return Ok(RealmRemoval::Inhabited);
    }
    let done = sql("DELETE FROM realms WHERE path = $1")
        .bind(path)
        .run(tx)
        .await?;
    Ok(match done {
        0 => RealmRemoval::Absent,
        _ => RealmRemoval::Done,
    })
}
