//! What devices asked for, until they got it.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, SqlitePool, Transaction};

use super::{damaged, parse_doc, sweep, taken, tokens, unavailable, write_doc};
use crate::model::device::{DEVICE_KEPT_MS, StoredDevice, Verdict};
use crate::model::grant::{StoredAccess, StoredRefresh, TokenHash};
use crate::store::StoreError;

const PENDING: i64 = 0;
const DENIED: i64 = 1;
const APPROVED: i64 = 2;

const COLUMNS: &str =
    "SELECT hash, user_code, realm, client_id, verdict, expires_ms, doc, given FROM devices";

/// Says whether the client had fewer than `most` that are still good.
pub(super) async fn insert(
    tx: &mut Transaction<'static, Sqlite>,
    device: &StoredDevice,
    most: u32,
    now_ms: i64,
) -> Result<bool, StoreError> {
    let live: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM devices WHERE realm = ? AND client_id = ? AND expires_ms > ?",
    )
    .bind(&device.realm)
    .bind(&device.client_id)
    .bind(now_ms)
    .fetch_one(&mut **tx)
    .await
    .map_err(unavailable)?;
    if live >= i64::from(most) {
        return Ok(false);
    }
    sqlx::query(
        "INSERT INTO devices (hash, user_code, realm, client_id, verdict, expires_ms, doc)
         VALUES (?, ?, ?, ?, 0, ?, ?)",
    )
    .bind(device.hash.0.as_slice())
    .bind(device.user_code.0.as_slice())
    .bind(&device.realm)
    .bind(&device.client_id)
    .bind(device.expires_ms)
    .bind(write_doc(&device.request)?)
    .execute(&mut **tx)
    .await
    .map_err(|error| taken(error, "the user code"))?;
    Ok(true)
}

pub(super) async fn by_hash(
    readers: &SqlitePool,
    hash: TokenHash,
) -> Result<Option<StoredDevice>, StoreError> {
    one(readers, &format!("{COLUMNS} WHERE hash = ?"), hash).await
}

pub(super) async fn by_user_code(
    readers: &SqlitePool,
    user_code: TokenHash,
) -> Result<Option<StoredDevice>, StoreError> {
    one(
        readers,
        &format!("{COLUMNS} WHERE user_code = ?"),
        user_code,
    )
    .await
}

async fn one(
    readers: &SqlitePool,
    statement: &str,
    hash: TokenHash,
) -> Result<Option<StoredDevice>, StoreError> {
    // Made of constants.
    let row = sqlx::query(sqlx::AssertSqlSafe(statement))
        .bind(hash.0.as_slice())
        .fetch_optional(readers)
        .await
        .map_err(unavailable)?;
    row.as_ref().map(read).transpose()
}

fn read(row: &SqliteRow) -> Result<StoredDevice, StoreError> {
    let hash = |name: &str| {
        let bytes: Vec<u8> = row.try_get(name).map_err(unavailable)?;
        let bytes = bytes.try_into();
        bytes
            .map(TokenHash)
            .map_err(|_| damaged("a hash of another length"))
    };
    let doc: String = row.try_get("doc").map_err(unavailable)?;
    let given: Option<String> = row.try_get("given").map_err(unavailable)?;
    let verdict: i64 = row.try_get("verdict").map_err(unavailable)?;
    Ok(StoredDevice {
        hash: hash("hash")?,
        user_code: hash("user_code")?,
        realm: row.try_get("realm").map_err(unavailable)?,
        client_id: row.try_get("client_id").map_err(unavailable)?,
        request: parse_doc(&doc)?,
        verdict: match (verdict, given) {
            (PENDING, _) => Verdict::Pending,
            (DENIED, _) => Verdict::Denied,
            (APPROVED, Some(given)) => Verdict::Approved(parse_doc(&given)?),
            _ => return Err(damaged("a device without its grant")),
        },
        expires_ms: row.try_get("expires_ms").map_err(unavailable)?,
    })
}

/// The conditional update decides: of two verdicts at once, one counts.
pub(super) async fn decide(
    tx: &mut Transaction<'static, Sqlite>,
    user_code: TokenHash,
    verdict: &Verdict,
    now_ms: i64,
) -> Result<bool, StoreError> {
    let (number, grant) = match verdict {
        Verdict::Pending => return Ok(false),
        Verdict::Denied => (DENIED, None),
        Verdict::Approved(grant) => (APPROVED, Some(grant)),
    };
    let done = sqlx::query(
        "UPDATE devices SET verdict = ?, given = ?, user_id = ?
         WHERE user_code = ? AND verdict = 0 AND expires_ms > ?",
    )
    .bind(number)
    .bind(grant.map(write_doc).transpose()?)
    .bind(grant.map(|grant| grant.user_id.to_string()))
    .bind(user_code.0.as_slice())
    .bind(now_ms)
    .execute(&mut **tx)
    .await
    .map_err(unavailable)?;
    Ok(done.rows_affected() == 1)
}

/// What was given is gone from here, so it is given once.
pub(super) async fn redeem(
    tx: &mut Transaction<'static, Sqlite>,
    hash: TokenHash,
    refresh: Option<&StoredRefresh>,
    access: Option<&StoredAccess>,
) -> Result<bool, StoreError> {
    let taken = sqlx::query("DELETE FROM devices WHERE hash = ? AND verdict = 2")
        .bind(hash.0.as_slice())
        .execute(&mut **tx)
        .await
        .map_err(unavailable)?;
    if taken.rows_affected() != 1 {
        return Ok(false);
    }
    tokens::insert(tx, refresh, access).await?;
    Ok(true)
}

/// Removes requests, at most `limit`, that no device needs to be told of any
/// more.
pub(super) async fn sweep(
    tx: &mut Transaction<'static, Sqlite>,
    now_ms: i64,
    limit: u32,
) -> Result<u64, StoreError> {
    let delete = "DELETE FROM devices WHERE hash IN
           (SELECT hash FROM devices WHERE expires_ms <= ? LIMIT ?)";
    sweep::expired(tx, delete, now_ms - DEVICE_KEPT_MS, limit).await
}
