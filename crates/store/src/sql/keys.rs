//! Signing keys.

use super::{Row, Tx, damaged, sql};
use crate::{Store, StoreError};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::client::SignAlg;
use doorward_core::model::grant::StoredKey;
use doorward_core::model::secret::Secret;

impl Store {
    /// All signing keys.
    pub async fn signing_keys(&self) -> Result<Vec<StoredKey>, StoreError> {
        let rows = sql("SELECT * FROM signing_keys ORDER BY active_from_ms, kid")
            .all(&self.database)
            .await?;
        rows.iter().map(read).collect()
    }

    /// Adds a signing key, unless there is one of its algorithm that becomes
    /// active at its time or later; with `displaces`, those leave the published
    /// set instead. The older ones of its algorithm leave it at
    /// `others_expire_ms`. Says whether it was added.
    pub async fn add_signing_key(
        &self,
        key: &StoredKey,
        others_expire_ms: i64,
        displaces: bool,
        audit: Option<&PendingAudit>,
    ) -> Result<bool, StoreError> {
        add(
            self.begin_audited(audit).await?,
            key,
            others_expire_ms,
            displaces,
        )
        .await
    }

    /// Puts the private key `new` in the place of `old`, if that is what the
    /// store has for `kid`.
    pub async fn replace_private_key(
        &self,
        kid: &str,
        old: &Secret,
        new: &Secret,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        replace(&mut tx, kid, old, new).await?;
        tx.commit().await
    }
}

pub(super) fn read(row: &Row) -> Result<StoredKey, StoreError> {
    let alg = row.text("alg")?;
    Ok(StoredKey {
        kid: row.text("kid")?,
        alg: SignAlg::parse(&alg).ok_or_else(|| damaged(format!("algorithm `{alg}`")))?,
        pkcs8: Secret::new(row.text("pkcs8")?),
        created_ms: row.int("created_ms")?,
        active_from_ms: row.int("active_from_ms")?,
        expires_ms: row.opt_int("expires_ms")?,
    })
}

/// The check for a newer key makes two processes that rotate at once agree on
/// one successor. With `displaces` those to come are withdrawn instead: they
/// never signed.
async fn add(
    mut tx: Tx,
    key: &StoredKey,
    others_expire_ms: i64,
    displaces: bool,
) -> Result<bool, StoreError> {
    if displaces {
        withdraw_later(&mut tx, key).await?;
    }
    let newer = sql("SELECT count(*) AS newer FROM signing_keys
         WHERE alg = $1 AND active_from_ms >= $2 AND (expires_ms IS NULL OR expires_ms > $3)")
    .bind(key.alg.as_str())
    .bind(key.active_from_ms)
    .bind(key.created_ms)
    .one(&mut tx)
    .await?;
    if newer.map_or(Ok(0), |row| row.int("newer"))? > 0 {
        return Ok(false);
    }
    sql("UPDATE signing_keys SET expires_ms = $1
         WHERE alg = $2 AND (expires_ms IS NULL OR expires_ms > $3)")
    .bind(others_expire_ms)
    .bind(key.alg.as_str())
    .bind(others_expire_ms)
    .run(&mut tx)
    .await?;
    sql(
        "INSERT INTO signing_keys (kid, alg, pkcs8, created_ms, active_from_ms, expires_ms)
         VALUES ($1, $2, $3, $4, $5, $6)",
    )
    .bind(&key.kid)
    .bind(key.alg.as_str())
    .bind(key.pkcs8.expose())
    .bind(key.created_ms)
    .bind(key.active_from_ms)
    .bind(key.expires_ms)
    .run(&mut tx)
    .await?;
    tx.commit().await?;
    Ok(true)
}

async fn withdraw_later(tx: &mut Tx, key: &StoredKey) -> Result<(), StoreError> {
    sql("UPDATE signing_keys SET expires_ms = $1
         WHERE alg = $2 AND active_from_ms >= $3 AND (expires_ms IS NULL OR expires_ms > $4)")
    .bind(key.created_ms)
    .bind(key.alg.as_str())
    .bind(key.active_from_ms)
    .bind(key.created_ms)
    .run(tx)
    .await
    .map(drop)
}

async fn replace(tx: &mut Tx, kid: &str, old: &Secret, new: &Secret) -> Result<(), StoreError> {
    sql("UPDATE signing_keys SET pkcs8 = $1 WHERE kid = $2 AND pkcs8 = $3")
        .bind(new.expose())
        .bind(kid)
        .bind(old.expose())
        .run(tx)
        .await
        .map(drop)
}
