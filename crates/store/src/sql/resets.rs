//! Links by which people choose new passwords.

use uuid::Uuid;

use super::{Row, Tx, endings, sql, users};
use crate::{Store, StoreError};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::grant::TokenHash;
use doorward_core::model::reset::StoredReset;
use doorward_core::model::secret::Secret;
use doorward_core::model::user::Owner;

impl Store {
    /// Keeps a link by which a user chooses a new password; the user's oldest
    /// ones beyond `most` are good no more.
    pub async fn insert_reset(
        &self,
        reset: &StoredReset,
        most: u32,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        insert(&mut tx, reset, most).await?;
        tx.commit().await
    }

    /// The link of this token hash, good or not.
    pub async fn reset(&self, hash: TokenHash) -> Result<Option<StoredReset>, StoreError> {
        let row = sql("SELECT * FROM password_resets WHERE hash = $1").bind(hash);
        let row = row.one(&self.database).await?;
        row.as_ref().map(read).transpose()
    }

    /// Spends a link for a new password hash: once, and only while the password
    /// in force is the one from when it was made. Every other link of the user
    /// goes, and sessions and refresh tokens end. Says whose it was.
    pub async fn reset_password(
        &self,
        hash: TokenHash,
        password: &Secret,
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<Option<Uuid>, StoreError> {
        self.changed(spend(self.begin_audited(audit).await?, hash, password, now_ms).await)
    }
}

fn read(row: &Row) -> Result<StoredReset, StoreError> {
    Ok(StoredReset {
        hash: row.hash("hash")?,
        realm: row.text("realm")?,
        user_id: row.id("user_id")?,
        bound: row.hash("bound")?,
        expires_ms: row.int("expires_ms")?,
    })
}

/// Keeps a link; the user's oldest ones beyond `most` are good no more.
async fn insert(tx: &mut Tx, reset: &StoredReset, most: u32) -> Result<(), StoreError> {
    sql(
        "INSERT INTO password_resets (hash, realm, user_id, bound, expires_ms)
         VALUES ($1, $2, $3, $4, $5)",
    )
    .bind(reset.hash)
    .bind(&reset.realm)
    .bind(reset.user_id)
    .bind(reset.bound)
    .bind(reset.expires_ms)
    .run(tx)
    .await?;
    sql(
        "DELETE FROM password_resets WHERE user_id = $1 AND hash NOT IN
           (SELECT hash FROM password_resets WHERE user_id = $1
             ORDER BY expires_ms DESC, hash LIMIT $2)",
    )
    .bind(reset.user_id)
    .bind(most)
    .run(tx)
    .await
    .map(drop)
}

/// Spends a link for a new password, if it is good.
async fn spend(
    mut tx: Tx,
    hash: TokenHash,
    password: &Secret,
    now_ms: i64,
) -> Result<Option<Uuid>, StoreError> {
    let row = sql("DELETE FROM password_resets WHERE hash = $1 RETURNING *").bind(hash);
    let Some(row) = row.one(&mut tx).await? else {
        return Ok(None);
    };
    let reset = read(&row)?;
    let id = reset.user_id.to_string();
    let row = sql("SELECT * FROM users WHERE id = $1").bind(&id);
    let user = row.one(&mut tx).await?;
    let user = user.as_ref().map(users::read).transpose()?;
    let user = user.filter(|user| {
        let same = StoredReset::bound_to(user.password_hash.as_ref()) == reset.bound;
        same && user.active && user.owner != Owner::File && now_ms < reset.expires_ms
    });
    if user.is_none() {
        // The link is gone all the same.
        tx.void_unless(false);
        tx.commit().await?;
        return Ok(None);
    }
    sql("UPDATE users SET password = $1, version = version + 1, updated_ms = $2 WHERE id = $3")
        .bind(password.expose())
        .bind(now_ms)
        .bind(&id)
        .run(&mut tx)
        .await?;
    sql("DELETE FROM password_resets WHERE user_id = $1")
        .bind(&id)
        .run(&mut tx)
        .await?;
    endings::end_logins(&mut tx, &id, now_ms).await?;
    tx.commit().await?;
    Ok(Some(reset.user_id))
}
