//! Secrets of the provider that are no signing keys.

use super::{Database, Tx, damaged, sql};
use crate::{Store, StoreError};
use doorward_core::model::secret::Secret;

impl Store {
    /// The secret of this name: `made`, if there was none.
    pub async fn secret(&self, name: &str, made: &Secret) -> Result<Secret, StoreError> {
        if let Some(secret) = read(&self.database, name).await? {
            return Ok(secret);
        }
        let mut tx = self.begin().await?;
        let secret = insert_or_read(&mut tx, name, made).await?;
        tx.commit().await?;
        Ok(secret)
    }

    /// Puts the secret `new` in the place of `old`, if that is what the store
    /// has of this name.
    pub async fn replace_secret(
        &self,
        name: &str,
        old: &Secret,
        new: &Secret,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        replace(&mut tx, name, old, new).await?;
        tx.commit().await
    }
}

/// The secret of this name, if there is one.
async fn read(readers: &Database, name: &str) -> Result<Option<Secret>, StoreError> {
    let row = sql("SELECT value FROM secrets WHERE name = $1").bind(name);
    let row = row.one(readers).await?;
    row.map(|row| row.text("value").map(Secret::new))
        .transpose()
}

/// Two processes that come with a new one at once are told the same.
async fn insert_or_read(tx: &mut Tx, name: &str, made: &Secret) -> Result<Secret, StoreError> {
    sql("INSERT INTO secrets (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING")
        .bind(name)
        .bind(made.expose())
        .run(tx)
        .await?;
    let row = sql("SELECT value FROM secrets WHERE name = $1").bind(name);
    let row = row.one(&mut *tx).await?;
    let row = row.ok_or_else(|| damaged("a secret that is gone"))?;
    row.text("value").map(Secret::new)
}

async fn replace(tx: &mut Tx, name: &str, old: &Secret, new: &Secret) -> Result<(), StoreError> {
    sql("UPDATE secrets SET value = $1 WHERE name = $2 AND value = $3")
        .bind(new.expose())
        .bind(name)
        .bind(old.expose())
        .run(tx)
        .await
        .map(drop)
}
