//! Realms.

use serde_json::{Map, Value};
use sqlx::{Sqlite, SqlitePool, Transaction};

use super::{parse_doc, taken, unavailable, write_doc};
use crate::model::registration::{RealmRemoval, StoredRealm};
use crate::store::StoreError;

type Tx = Transaction<'static, Sqlite>;

pub(super) async fn all(readers: &SqlitePool) -> Result<Vec<StoredRealm>, StoreError> {
    let rows: Vec<(String, String, String)> =
        sqlx::query_as("SELECT path, owner, settings FROM realms ORDER BY path")
            .fetch_all(readers)
            .await
            .map_err(unavailable)?;
    let realm = |(path, owner, settings): (String, String, String)| {
        Ok(StoredRealm {
            path,
            declared: owner == "file",
            settings: parse_doc(&settings)?,
        })
    };
    rows.into_iter().map(realm).collect()
}

pub(super) async fn insert(tx: &mut Tx, realm: &StoredRealm) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO realms (path, owner, settings) VALUES (?, 'store', ?)")
        .bind(&realm.path)
        .bind(write_doc(&realm.settings)?)
        .execute(&mut **tx)
        .await
        .map_err(|error| taken(error, &realm.path))
        .map(drop)
}

pub(super) async fn update(
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
    let done = sqlx::query("UPDATE realms SET settings = ? WHERE path = ?")
        .bind(write_doc(&realm.settings)?)
        .bind(&realm.path)
        .execute(&mut **tx)
        .await
        .map_err(unavailable)?;
    match done.rows_affected() {
        0 => Err(StoreError::Conflict(realm.path.clone())),
        _ => Ok(()),
    }
}

/// What a realm sets itself.
async fn own(tx: &mut Tx, path: &str) -> Result<Option<Map<String, Value>>, StoreError> {
    let settings: Option<String> = sqlx::query_scalar("SELECT settings FROM realms WHERE path = ?")
        .bind(path)
        .fetch_optional(&mut **tx)
        .await
        .map_err(unavailable)?;
    settings.as_deref().map(parse_doc).transpose()
}

async fn refuse_declared(tx: &mut Tx, path: &str) -> Result<(), StoreError> {
    let owner: Option<String> = sqlx::query_scalar("SELECT owner FROM realms WHERE path = ?")
        .bind(path)
        .fetch_optional(&mut **tx)
        .await
        .map_err(unavailable)?;
    match owner.as_deref() {
        Some("file") => Err(StoreError::FileOwned(path.to_owned())),
        _ => Ok(()),
    }
}

pub(super) async fn delete(tx: &mut Tx, path: &str) -> Result<RealmRemoval, StoreError> {
    refuse_declared(tx, path).await?;
    let below = format!("{path}/");
    let inside: i64 = sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM users WHERE realm = ?1)
              + (SELECT count(*) FROM clients WHERE realm = ?1)
              + (SELECT count(*) FROM realms WHERE substr(path, 1, length(?2)) = ?2)",
    )
    .bind(path)
    .bind(below)
    .fetch_one(&mut **tx)
    .await
    .map_err(unavailable)?;
    if path == "/" || inside > 0 {
        return Ok(RealmRemoval::Inhabited);
    }
    let done = sqlx::query("DELETE FROM realms WHERE path = ?")
        .bind(path)
        .execute(&mut **tx)
        .await
        .map_err(unavailable)?;
    Ok(match done.rows_affected() {
        0 => RealmRemoval::Absent,
        _ => RealmRemoval::Done,
    })
}
