//! Second factors and recovery codes: each proof is spent in one statement.

use uuid::Uuid;

use super::{Row, Tx, damaged, endings, sql};
use crate::{Store, StoreError};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::factor::{Enrolment, Kind, StoredFactor};
use doorward_core::model::grant::TokenHash;
use doorward_core::model::secret::Secret;

/// The factors of a user.
const OF_USER: &str = "SELECT * FROM factors WHERE user_id = $1 ORDER BY created_ms, id";

impl Store {
    /// The second factors of a user, the oldest first.
    pub async fn factors(&self, user_id: Uuid) -> Result<Vec<StoredFactor>, StoreError> {
        let rows = sql(OF_USER).bind(user_id).all(&self.database).await?;
        rows.iter().map(read).collect()
    }

    /// The passkey of this identifier (base64url).
    pub async fn factor_of_credential(
        &self,
        realm: &str,
        credential: &str,
    ) -> Result<Option<StoredFactor>, StoreError> {
        let row = sql("SELECT * FROM factors WHERE realm = $1 AND credential = $2")
            .bind(realm)
            .bind(credential)
            .one(&self.database)
            .await?;
        row.as_ref().map(read).transpose()
    }

    /// Adds a factor, unless its user has `most` of them, and these recovery
    /// codes, if the user has none.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when the passkey is known already;
    /// [`StoreError::Conflict`] when the user is gone.
    pub async fn insert_factor(
        &self,
        factor: &StoredFactor,
        most: u32,
        codes: &[TokenHash],
        audit: Option<&PendingAudit>,
    ) -> Result<Enrolment, StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        let kept = insert(&mut tx, factor, most, codes).await?;
        tx.commit().await?;
        Ok(kept)
    }

    /// Spends a proof: notes that a factor was used, and `secret` if it is to be
    /// kept in another way, if `counter` is more than the last one, or both are
    /// 0. Says whether it was. Of two who bring the same proof, one is told yes.
    pub async fn use_factor(
        &self,
        id: Uuid,
        counter: i64,
        secret: Option<&Secret>,
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        let spent = spend(&mut tx, id, counter, secret, now_ms).await?;
        tx.commit().await?;
        Ok(spent)
    }

    /// Calls a factor of a user otherwise; says whether it was there.
    pub async fn rename_factor(
        &self,
        user_id: Uuid,
        id: Uuid,
        name: &str,
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin().await?;
        let done = rename(&mut tx, user_id, id, name).await?;
        tx.commit().await?;
        Ok(done)
    }

    /// Removes a factor of a user, and with the last one the recovery codes; says
    /// whether it was there.
    pub async fn delete_factor(
        &self,
        user_id: Uuid,
        id: Uuid,
        audit: Option<&PendingAudit>,
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        let done = delete(&mut tx, user_id, id).await?;
        tx.void_unless(done);
        tx.commit().await?;
        Ok(done)
    }

    /// Removes all factors and recovery codes of a user, whose sessions and
    /// refresh tokens end, if the factors `are_meant`. Says how many factors went;
    /// `None`: they are others, and nothing is changed.
    pub async fn reset_factors(
        &self,
        user_id: Uuid,
        are_meant: impl Fn(&[StoredFactor]) -> bool,
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<Option<u64>, StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        if !are_meant(&of_user(&mut tx, user_id).await?) {
            tx.void_unless(false);
            tx.commit().await?;
            return Ok(None);
        }
        let gone = reset(&mut tx, user_id, now_ms).await?;
        self.changed(tx.commit().await)?;
        Ok(Some(gone))
    }

    /// Puts these recovery codes in the place of a user's others.
    pub async fn replace_recovery_codes(
        &self,
        user_id: Uuid,
        codes: &[TokenHash],
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        replace_codes(&mut tx, user_id, codes).await?;
        tx.commit().await
    }

    /// Spends a recovery code of a user; says whether it was one. Of two who
    /// bring the same, one is told yes.
    pub async fn use_recovery_code(
        &self,
        user_id: Uuid,
        code: TokenHash,
        audit: Option<&PendingAudit>,
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        let used = use_code(&mut tx, user_id, code).await?;
        tx.commit().await?;
        Ok(used)
    }

    /// How many recovery codes a user has left.
    pub async fn recovery_codes_left(&self, user_id: Uuid) -> Result<u32, StoreError> {
        let row = sql("SELECT count(*) AS total FROM recovery_codes WHERE user_id = $1")
            .bind(user_id)
            .one(&self.database)
            .await?;
        let total = row.map_or(Ok(0), |row| row.int("total"))?;
        Ok(u32::try_from(total).unwrap_or(u32::MAX))
    }
}

fn read(row: &Row) -> Result<StoredFactor, StoreError> {
    let kind = row.text("kind")?;
    Ok(StoredFactor {
        id: row.id("id")?,
        realm: row.text("realm")?,
        user_id: row.id("user_id")?,
        kind: Kind::parse(&kind).ok_or_else(|| damaged(format!("factor `{kind}`")))?,
        name: row.text("name")?,
        credential: row.opt_text("credential")?,
        secret: Secret::new(row.text("secret")?),
        counter: row.int("counter")?,
        created_ms: row.int("created_ms")?,
        used_ms: row.opt_int("used_ms")?,
    })
}

async fn insert(
    tx: &mut Tx,
    factor: &StoredFactor,
    most: u32,
    codes: &[TokenHash],
) -> Result<Enrolment, StoreError> {
    let there = sql("SELECT id FROM users WHERE id = $1")
        .bind(factor.user_id)
        .one(&mut *tx)
        .await?;
    if there.is_none() {
        return Err(StoreError::Conflict(factor.user_id.to_string()));
    }
    let has = sql("SELECT count(*) AS total FROM factors WHERE user_id = $1")
        .bind(factor.user_id)
        .one(&mut *tx)
        .await?;
    if has.map_or(Ok(0), |row| row.int("total"))? >= i64::from(most) {
        return Ok(Enrolment::Full);
    }
    sql(
        "INSERT INTO factors (id, realm, user_id, kind, name, credential, secret, counter,
                              created_ms, used_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    )
    .bind(factor.id)
    .bind(&factor.realm)
    .bind(factor.user_id)
    .bind(factor.kind.as_str())
    .bind(&factor.name)
    .bind(factor.credential.as_deref())
    .bind(factor.secret.expose())
    .bind(factor.counter)
    .bind(factor.created_ms)
    .bind(factor.used_ms)
    .run_unless_taken(tx, "the passkey")
    .await?;
    let with_codes = count_codes(tx, factor.user_id).await? == 0;
    if with_codes {
        put_codes(tx, factor.user_id, codes).await?;
    }
    Ok(Enrolment::Kept { with_codes })
}

async fn count_codes(tx: &mut Tx, user_id: Uuid) -> Result<i64, StoreError> {
    let row = sql("SELECT count(*) AS total FROM recovery_codes WHERE user_id = $1")
        .bind(user_id)
        .one(tx)
        .await?;
    row.map_or(Ok(0), |row| row.int("total"))
}

async fn put_codes(tx: &mut Tx, user_id: Uuid, codes: &[TokenHash]) -> Result<(), StoreError> {
    sql("DELETE FROM recovery_codes WHERE user_id = $1")
        .bind(user_id)
        .run(tx)
        .await?;
    for code in codes {
        sql("INSERT INTO recovery_codes (user_id, hash) VALUES ($1, $2)")
            .bind(user_id)
            .bind(*code)
            .run(tx)
            .await?;
    }
    Ok(())
}

/// The condition decides: of two who bring the same proof, one counts.
async fn spend(
    tx: &mut Tx,
    id: Uuid,
    counter: i64,
    secret: Option<&Secret>,
    now_ms: i64,
) -> Result<bool, StoreError> {
    let done = sql(
        "UPDATE factors SET counter = $1, used_ms = $2, secret = coalesce($3, secret)
         WHERE id = $4 AND (counter < $1 OR (counter = 0 AND $1 = 0))",
    )
    .bind(counter)
    .bind(now_ms)
    .bind(secret.map(Secret::expose))
    .bind(id)
    .run(tx)
    .await?;
    Ok(done > 0)
}

async fn rename(tx: &mut Tx, user_id: Uuid, id: Uuid, name: &str) -> Result<bool, StoreError> {
    let done = sql("UPDATE factors SET name = $1 WHERE id = $2 AND user_id = $3")
        .bind(name)
        .bind(id)
        .bind(user_id)
        .run(tx)
        .await?;
    Ok(done > 0)
}

/// Recovery codes stand in for a factor: they go with the last one.
async fn delete(tx: &mut Tx, user_id: Uuid, id: Uuid) -> Result<bool, StoreError> {
    let done = sql("DELETE FROM factors WHERE id = $1 AND user_id = $2")
        .bind(id)
        .bind(user_id)
        .run(tx)
        .await?;
    sql("DELETE FROM recovery_codes WHERE user_id = $1
            AND NOT EXISTS (SELECT 1 FROM factors f WHERE f.user_id = $1)")
    .bind(user_id)
    .run(tx)
    .await?;
    Ok(done > 0)
}

async fn of_user(tx: &mut Tx, user_id: Uuid) -> Result<Vec<StoredFactor>, StoreError> {
    let rows = sql(OF_USER).bind(user_id).all(tx).await?;
    rows.iter().map(read).collect()
}

async fn reset(tx: &mut Tx, user_id: Uuid, now_ms: i64) -> Result<u64, StoreError> {
    let gone = sql("DELETE FROM factors WHERE user_id = $1")
        .bind(user_id)
        .run(tx)
        .await?;
    put_codes(tx, user_id, &[]).await?;
    endings::end_logins(tx, &user_id.to_string(), now_ms).await?;
    Ok(gone)
}

async fn replace_codes(tx: &mut Tx, user_id: Uuid, codes: &[TokenHash]) -> Result<(), StoreError> {
    put_codes(tx, user_id, codes).await
}

async fn use_code(tx: &mut Tx, user_id: Uuid, code: TokenHash) -> Result<bool, StoreError> {
    let done = sql("DELETE FROM recovery_codes WHERE user_id = $1 AND hash = $2")
        .bind(user_id)
        .bind(code)
        .run(tx)
        .await?;
    Ok(done > 0)
}
