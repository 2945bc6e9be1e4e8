//! OAuth clients.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, SqlitePool, Transaction};

use super::{damaged, parse_doc, taken, tokens, unavailable, write_doc};
use crate::model::client::{Client, ClientSecret};
use crate::model::grant::{MAX_TOKEN_LIFE_MS, TokenHash};
use crate::model::registration::ClientQuery;
use crate::model::secret::Secret;
use crate::model::user::Owner;
use crate::store::StoreError;

fn read(row: &SqliteRow) -> Result<Client, StoreError> {
    let owner: String = row.try_get("owner").map_err(unavailable)?;
    let doc: String = row.try_get("doc").map_err(unavailable)?;
    let plain: Option<String> = row.try_get("secret").map_err(unavailable)?;
    let salt: Option<Vec<u8>> = row.try_get("salt").map_err(unavailable)?;
    let digest: Option<Vec<u8>> = row.try_get("digest").map_err(unavailable)?;
    let registration: Option<Vec<u8>> = row.try_get("registration").map_err(unavailable)?;
    let registration = registration.map(|hash| hash.try_into().map(TokenHash));
    Ok(Client {
        realm: row.try_get("realm").map_err(unavailable)?,
        metadata: parse_doc(&doc)?,
        secret: match (plain, salt, digest) {
            (Some(plain), _, _) => ClientSecret::Plain(Secret::new(plain)),
            (None, Some(salt), Some(digest)) => ClientSecret::Digest { salt, digest },
            _ => ClientSecret::None,
        },
        owner: Owner::parse(&owner).ok_or_else(|| damaged(format!("owner `{owner}`")))?,
        registration: registration.transpose().map_err(|_| damaged("a hash"))?,
        created_ms: row.try_get("created_ms").map_err(unavailable)?,
        updated_ms: row.try_get("updated_ms").map_err(unavailable)?,
    })
}

pub(super) async fn by_id(
    readers: &SqlitePool,
    realm: &str,
    client_id: &str,
) -> Result<Option<Client>, StoreError> {
    let row = sqlx::query("SELECT * FROM clients WHERE realm = ? AND client_id = ?")
        .bind(realm)
        .bind(client_id)
        .fetch_optional(readers)
        .await
        .map_err(unavailable)?;
    row.as_ref().map(read).transpose()
}

pub(super) async fn all(readers: &SqlitePool, realm: &str) -> Result<Vec<Client>, StoreError> {
    let rows = sqlx::query("SELECT * FROM clients WHERE realm = ? ORDER BY client_id")
        .bind(realm)
        .fetch_all(readers)
        .await
        .map_err(unavailable)?;
    rows.iter().map(read).collect()
}

pub(super) async fn find(
    readers: &SqlitePool,
    realm: &str,
    query: &ClientQuery,
) -> Result<Vec<Client>, StoreError> {
    let rows = sqlx::query(
        "SELECT * FROM clients
         WHERE realm = ?1 AND client_id > ?2
           AND (?3 IS NULL OR owner = ?3)
           AND (?4 IS NULL OR instr(lower(client_id), lower(?4)) > 0
                OR instr(lower(coalesce(doc ->> 'client_name', '')), lower(?4)) > 0)
         ORDER BY client_id LIMIT ?5",
    )
    .bind(realm)
    .bind(query.after.as_deref().unwrap_or_default())
    .bind(query.owner.map(Owner::as_str))
    .bind(query.text.as_deref())
    .bind(query.limit)
    .fetch_all(readers)
    .await
    .map_err(unavailable)?;
    rows.iter().map(read).collect()
}

/// The columns of a secret: salt, digest, itself.
type Kept<'a> = (Option<&'a [u8]>, Option<&'a [u8]>, Option<&'a str>);

fn kept(secret: &ClientSecret) -> Kept<'_> {
    match secret {
        ClientSecret::None => (None, None, None),
        ClientSecret::Digest { salt, digest } => (Some(salt), Some(digest), None),
        ClientSecret::Plain(secret) => (None, None, Some(secret.expose())),
    }
}

pub(super) async fn update(
    mut tx: Transaction<'static, Sqlite>,
    client: &Client,
    seen_ms: i64,
) -> Result<(), StoreError> {
    let id = &client.metadata.client_id;
    refuse_file_owned(&mut tx, &client.realm, id).await?;
    let (salt, digest, plain) = kept(&client.secret);
    let done = sqlx::query(
        "UPDATE clients SET salt = ?, digest = ?, secret = ?, updated_ms = ?, doc = ?
         WHERE realm = ? AND client_id = ? AND updated_ms = ?",
    )
    .bind(salt)
    .bind(digest)
    .bind(plain)
    .bind(client.updated_ms)
    .bind(write_doc(&client.metadata)?)
    .bind(&client.realm)
    .bind(id)
    .bind(seen_ms)
    .execute(&mut *tx)
    .await
    .map_err(unavailable)?;
    if done.rows_affected() == 0 {
        return Err(StoreError::Conflict(id.clone()));
    }
    tx.commit().await.map_err(unavailable)
}

pub(super) async fn addresses(
    readers: &SqlitePool,
    realm: &str,
) -> Result<Vec<String>, StoreError> {
    sqlx::query_scalar(
        "SELECT value FROM clients, json_each(doc, '$.redirect_uris') WHERE realm = ?1
         UNION
         SELECT value FROM clients, json_each(doc, '$.allowed_origins') WHERE realm = ?1",
    )
    .bind(realm)
    .fetch_all(readers)
    .await
    .map_err(unavailable)
}

pub(super) async fn insert(
    tx: &mut Transaction<'static, Sqlite>,
    client: &Client,
) -> Result<(), StoreError> {
    let (salt, digest, plain) = kept(&client.secret);
    sqlx::query(
        "INSERT INTO clients
           (realm, client_id, owner, salt, digest, secret, created_ms, updated_ms, doc,
            registration, used_ms)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(&client.realm)
    .bind(&client.metadata.client_id)
    .bind(client.owner.as_str())
    .bind(salt)
    .bind(digest)
    .bind(plain)
    .bind(client.created_ms)
    .bind(client.updated_ms)
    .bind(write_doc(&client.metadata)?)
    .bind(client.registration.as_ref().map(|hash| hash.0.as_slice()))
    .bind(client.created_ms)
    .execute(&mut **tx)
    .await
    .map_err(|error| taken(error, &client.metadata.client_id))
    .map(drop)
}

/// Removes the client and all that hangs on it, whoever owns it; the grants that
/// were revoked, and whether there was one.
pub(super) async fn remove(
    tx: &mut Transaction<'static, Sqlite>,
    realm: &str,
    client_id: &str,
) -> Result<(bool, Vec<String>), StoreError> {
    let grants = revoke_grants(tx, realm, client_id).await?;
    for statement in [
        "DELETE FROM refresh_tokens WHERE realm = ? AND client_id = ?",
        "DELETE FROM codes WHERE realm = ? AND client_id = ?",
        "DELETE FROM devices WHERE realm = ? AND client_id = ?",
        "DELETE FROM requests WHERE realm = ? AND client_id = ?",
        "DELETE FROM consents WHERE realm = ? AND client_id = ?",
        "DELETE FROM session_grants WHERE realm = ? AND client_id = ?",
        "DELETE FROM session_clients WHERE realm = ? AND client_id = ?",
        "DELETE FROM logouts WHERE realm = ? AND client_id = ?",
    ] {
        sqlx::query(statement)
            .bind(realm)
            .bind(client_id)
            .execute(&mut **tx)
            .await
            .map_err(unavailable)?;
    }
    let gone = sqlx::query("DELETE FROM clients WHERE realm = ? AND client_id = ?")
        .bind(realm)
        .bind(client_id)
        .execute(&mut **tx)
        .await
        .map_err(unavailable)?;
    Ok((gone.rows_affected() > 0, grants))
}

/// Others may have exchanged the client's tokens for their own: those are of the
/// same grants.
async fn revoke_grants(
    tx: &mut Transaction<'static, Sqlite>,
    realm: &str,
    client_id: &str,
) -> Result<Vec<String>, StoreError> {
    let grants: Vec<(String, i64)> = sqlx::query_as(
        "SELECT grant_id, max(until_ms) FROM (
           SELECT grant_id, doc ->> '$.ends_ms' + ?3 AS until_ms FROM refresh_tokens
            WHERE realm = ?1 AND client_id = ?2
            UNION ALL
           SELECT grant_id, expires_ms FROM session_grants
            WHERE realm = ?1 AND client_id = ?2)
          GROUP BY grant_id",
    )
    .bind(realm)
    .bind(client_id)
    .bind(MAX_TOKEN_LIFE_MS)
    .fetch_all(&mut **tx)
    .await
    .map_err(unavailable)?;
    let mut revoked = Vec::with_capacity(grants.len());
    for (grant_id, until_ms) in grants {
        tokens::revoke(tx, &grant_id, until_ms).await?;
        revoked.push(grant_id);
    }
    Ok(revoked)
}

async fn refuse_file_owned(
    tx: &mut Transaction<'static, Sqlite>,
    realm: &str,
    client_id: &str,
) -> Result<(), StoreError> {
    let owner: Option<String> =
        sqlx::query_scalar("SELECT owner FROM clients WHERE realm = ? AND client_id = ?")
            .bind(realm)
            .bind(client_id)
            .fetch_optional(&mut **tx)
            .await
            .map_err(unavailable)?;
    if owner.as_deref() == Some(Owner::File.as_str()) {
        return Err(StoreError::FileOwned(client_id.to_owned()));
    }
    Ok(())
}

pub(super) async fn delete(
    mut tx: Transaction<'static, Sqlite>,
    realm: &str,
    client_id: &str,
) -> Result<Option<Vec<String>>, StoreError> {
    refuse_file_owned(&mut tx, realm, client_id).await?;
    let (gone, grants) = remove(&mut tx, realm, client_id).await?;
    tx.commit().await.map_err(unavailable)?;
    Ok(gone.then_some(grants))
}
