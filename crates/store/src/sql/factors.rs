//! Second factors and recovery codes: each proof is spent in one statement.

use uuid::Uuid;

use super::{Database, Row, Tx, damaged, endings, sql};
use crate::StoreError;
use doorward_core::model::factor::{Enrolment, Kind, StoredFactor};
use doorward_core::model::grant::TokenHash;
use doorward_core::model::secret::Secret;

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

pub(super) async fn of_user(
    readers: &Database,
    user_id: Uuid,
) -> Result<Vec<StoredFactor>, StoreError> {
    let rows = sql("SELECT * FROM factors WHERE user_id = $1 ORDER BY created_ms, id")
        .bind(user_id)
        .all(readers)
        .await?;
    rows.iter().map(read).collect()
}

pub(super) async fn of_credential(
    readers: &Database,
    realm: &str,
    credential: &str,
) -> Result<Option<StoredFactor>, StoreError> {
    let row = sql("SELECT * FROM factors WHERE realm = $1 AND credential = $2")
        .bind(realm)
        .bind(credential)
        .one(readers)
        .await?;
    row.as_ref().map(read).transpose()
}

pub(super) async fn insert(
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
    .run_or_taken(tx, "the passkey")
    .await?;
    let with_codes = left(tx, factor.user_id).await? == 0;
    if with_codes {
        put_codes(tx, factor.user_id, codes).await?;
    }
    Ok(Enrolment::Kept { with_codes })
}

async fn left(tx: &mut Tx, user_id: Uuid) -> Result<i64, StoreError> {
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
pub(super) async fn spend(
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

pub(super) async fn rename(
    tx: &mut Tx,
    user_id: Uuid,
    id: Uuid,
    name: &str,
) -> Result<bool, StoreError> {
    let done = sql("UPDATE factors SET name = $1 WHERE id = $2 AND user_id = $3")
        .bind(name)
        .bind(id)
        .bind(user_id)
        .run(tx)
        .await?;
    Ok(done > 0)
}

/// Recovery codes stand in for a factor: they go with the last one.
pub(super) async fn delete(tx: &mut Tx, user_id: Uuid, id: Uuid) -> Result<bool, StoreError> {
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

pub(super) async fn reset(tx: &mut Tx, user_id: Uuid, now_ms: i64) -> Result<u64, StoreError> {
    let gone = sql("DELETE FROM factors WHERE user_id = $1")
        .bind(user_id)
        .run(tx)
        .await?;
    put_codes(tx, user_id, &[]).await?;
    endings::end_logins(tx, &user_id.to_string(), now_ms).await?;
    Ok(gone)
}

pub(super) async fn replace_codes(
    tx: &mut Tx,
    user_id: Uuid,
    codes: &[TokenHash],
) -> Result<(), StoreError> {
    put_codes(tx, user_id, codes).await
}

pub(super) async fn use_code(
    tx: &mut Tx,
    user_id: Uuid,
    code: TokenHash,
) -> Result<bool, StoreError> {
    let done = sql("DELETE FROM recovery_codes WHERE user_id = $1 AND hash = $2")
        .bind(user_id)
        .bind(code)
        .run(tx)
        .await?;
    Ok(done > 0)
}

pub(super) async fn codes_left(readers: &Database, user_id: Uuid) -> Result<u32, StoreError> {
    let row = sql("SELECT count(*) AS total FROM recovery_codes WHERE user_id = $1")
        .bind(user_id)
        .one(readers)
        .await?;
    let total = row.map_or(Ok(0), |row| row.int("total"))?;
    Ok(u32::try_from(total).unwrap_or(u32::MAX))
}
