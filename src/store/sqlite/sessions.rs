//! Sessions of `authenticate` and of the authorization endpoint.

use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row, Sqlite, SqlitePool, Transaction};

use super::{endings, parse_id, unavailable};
use crate::model::grant::{Grant, MAX_TOKEN_LIFE_MS, StoredSession, TokenHash};
use crate::model::session::{EndedSession, SessionPage, SessionQuery, SessionRecord};
use crate::store::StoreError;

type Tx = Transaction<'static, Sqlite>;

/// The new session takes the place of `old`, if there is one: that one ends,
/// unless the new one goes on with it.
pub(super) async fn insert(
    tx: &mut Tx,
    old: Option<TokenHash>,
    session: &StoredSession,
    quota: u32,
) -> Result<Vec<EndedSession>, StoreError> {
    let now_ms = session.created_ms;
    let mut ended = Vec::new();
    if let Some(old) = old {
        let sid: Option<(String, String)> =
            sqlx::query_as("DELETE FROM sessions WHERE hash = ? RETURNING realm, sid")
                .bind(old.0.as_slice())
                .fetch_optional(&mut **tx)
                .await
                .map_err(unavailable)?;
        if let Some((realm, sid)) = sid.filter(|(_, sid)| *sid != session.sid) {
            ended.push(endings::end(tx, &realm, &sid, now_ms, true).await?);
        }
    }
    let user_id = session.user_id.to_string();
    sqlx::query(
        "INSERT INTO sessions (hash, realm, user_id, created_ms, used_ms, ends_ms, sid, auth_ms)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(session.hash.0.as_slice())
    .bind(&session.realm)
    .bind(&user_id)
    .bind(session.created_ms)
    .bind(session.used_ms)
    .bind(session.ends_ms)
    .bind(&session.sid)
    .bind(session.auth_ms)
    .execute(&mut **tx)
    .await
    .map_err(unavailable)?;
    let beyond: Vec<(String, String)> = sqlx::query_as(
        "SELECT realm, sid FROM sessions WHERE user_id = ?
         ORDER BY created_ms DESC, hash LIMIT -1 OFFSET ?",
    )
    .bind(&user_id)
    .bind(quota)
    .fetch_all(&mut **tx)
    .await
    .map_err(unavailable)?;
    for (realm, sid) in beyond {
        ended.push(endings::end(tx, &realm, &sid, now_ms, true).await?);
    }
    Ok(ended)
}

fn read(row: &SqliteRow) -> Result<StoredSession, StoreError> {
    let hash: Vec<u8> = row.try_get("hash").map_err(unavailable)?;
    let hash = hash
        .try_into()
        .map_err(|_| super::damaged("a hash of another length"))?;
    let user_id: String = row.try_get("user_id").map_err(unavailable)?;
    Ok(StoredSession {
        hash: TokenHash(hash),
        realm: row.try_get("realm").map_err(unavailable)?,
        user_id: parse_id(&user_id)?,
        created_ms: row.try_get("created_ms").map_err(unavailable)?,
        used_ms: row.try_get("used_ms").map_err(unavailable)?,
        ends_ms: row.try_get("ends_ms").map_err(unavailable)?,
        sid: row.try_get("sid").map_err(unavailable)?,
        auth_ms: row.try_get("auth_ms").map_err(unavailable)?,
    })
}

pub(super) async fn by_hash(
    readers: &SqlitePool,
    hash: TokenHash,
) -> Result<Option<StoredSession>, StoreError> {
    let row = sqlx::query("SELECT * FROM sessions WHERE hash = ?")
        .bind(hash.0.as_slice())
        .fetch_optional(readers)
        .await
        .map_err(unavailable)?;
    row.as_ref().map(read).transpose()
}

pub(super) async fn by_name(
    readers: &SqlitePool,
    realm: &str,
    sid: &str,
) -> Result<Option<SessionRecord>, StoreError> {
    let row = sqlx::query(
        "SELECT s.*, u.user_name FROM sessions s JOIN users u ON u.id = s.user_id
          WHERE s.sid = ? AND s.realm = ?",
    )
    .bind(sid)
    .bind(realm)
    .fetch_optional(readers)
    .await
    .map_err(unavailable)?;
    match row {
        Some(row) => record(readers, &row).await.map(Some),
        None => Ok(None),
    }
}

async fn record(readers: &SqlitePool, row: &SqliteRow) -> Result<SessionRecord, StoreError> {
    let session = read(row)?;
    let clients: Vec<String> = sqlx::query_scalar(
        "SELECT client_id FROM session_clients WHERE sid = ? ORDER BY client_id",
    )
    .bind(&session.sid)
    .fetch_all(readers)
    .await
    .map_err(unavailable)?;
    Ok(SessionRecord {
        user_name: row.try_get("user_name").map_err(unavailable)?,
        session,
        clients,
    })
}

/// Adds to a statement on `sessions s` what `query` asks for.
pub(super) fn conditions(select: &mut QueryBuilder<Sqlite>, query: &SessionQuery) {
    if let Some(realm) = &query.realm {
        select.push(" AND s.realm = ").push_bind(realm.clone());
    }
    if let Some(user_id) = query.user_id {
        select
            .push(" AND s.user_id = ")
            .push_bind(user_id.to_string());
    }
    if let Some(client_id) = &query.client_id {
        select
            .push(" AND s.sid IN (SELECT sid FROM session_clients c WHERE c.client_id = ")
            .push_bind(client_id.clone())
            .push(" AND c.realm = s.realm)");
    }
}

pub(super) async fn page(
    readers: &SqlitePool,
    query: &SessionQuery,
    after: Option<&str>,
    limit: u32,
) -> Result<SessionPage, StoreError> {
    let mut select = QueryBuilder::<Sqlite>::new(
        "SELECT s.*, u.user_name FROM sessions s JOIN users u ON u.id = s.user_id WHERE s.sid > ",
    );
    select.push_bind(after.unwrap_or_default().to_owned());
    conditions(&mut select, query);
    select
        .push(" ORDER BY s.sid LIMIT ")
        .push_bind(i64::from(limit) + 1);
    let rows = select
        .build()
        .fetch_all(readers)
        .await
        .map_err(unavailable)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut page = SessionPage {
        more: rows.len() > limit,
        ..SessionPage::default()
    };
    for row in rows.iter().take(limit) {
        page.sessions.push(record(readers, row).await?);
    }
    Ok(page)
}

pub(super) async fn touch(
    writer: &SqlitePool,
    hash: TokenHash,
    now_ms: i64,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE sessions SET used_ms = max(used_ms, ?) WHERE hash = ?")
        .bind(now_ms)
        .bind(hash.0.as_slice())
        .execute(writer)
        .await
        .map_err(unavailable)
        .map(drop)
}

/// Notes that a grant was given in a session; says whether that is (still)
/// there. Grants without a session need no note.
pub(super) async fn note_grant(
    tx: &mut Tx,
    grant: &Grant,
    now_ms: i64,
) -> Result<bool, StoreError> {
    let Some(sid) = &grant.sid else {
        return Ok(true);
    };
    let user_id = grant.user_id.to_string();
    let offline = grant.scopes.iter().any(|scope| scope == "offline_access");
    let noted = sqlx::query(
        "INSERT INTO session_grants (grant_id, sid, realm, client_id, user_id, offline, expires_ms)
         SELECT ?, sid, realm, ?, user_id, ?, ? FROM sessions
          WHERE sid = ? AND realm = ? AND user_id = ?
         ON CONFLICT (grant_id) DO NOTHING",
    )
    .bind(&grant.id)
    .bind(&grant.client_id)
    .bind(offline)
    .bind(grant.ends_ms.max(now_ms).saturating_add(MAX_TOKEN_LIFE_MS))
    .bind(sid)
    .bind(&grant.realm)
    .bind(&user_id)
    .execute(&mut **tx)
    .await
    .map_err(unavailable)?;
    if noted.rows_affected() == 0 {
        return Ok(false);
    }
    sqlx::query(
        "INSERT INTO session_clients (sid, client_id, realm) VALUES (?, ?, ?)
         ON CONFLICT (sid, client_id) DO NOTHING",
    )
    .bind(sid)
    .bind(&grant.client_id)
    .bind(&grant.realm)
    .execute(&mut **tx)
    .await
    .map_err(unavailable)?;
    Ok(true)
}
