//! Clients that are to be told that a session has ended.

use sqlx::{QueryBuilder, Row, Sqlite, Transaction};

use super::{parse_id, unavailable};
use crate::model::session::{LOGOUT_TRIED_MS, LOGOUTS_OWED, Logout};
use crate::store::StoreError;

type Tx = Transaction<'static, Sqlite>;

/// Most logouts of one client among those that are taken at once: one that does
/// not answer must not keep the others waiting.
const OF_ONE_CLIENT: u32 = 4;

/// The first pause between two tries, in milliseconds; each one that follows is
/// twice as long. It must be longer than a try takes.
const PAUSE_MS: i64 = 10_000;

/// The longest pause, in milliseconds: ten minutes.
const PAUSE_MAX_MS: i64 = 600_000;

/// Puts down every client of the session that wants to be told; how many.
pub(super) async fn owe(
    tx: &mut Tx,
    (realm, sid): (&str, &str),
    user_id: &str,
    now_ms: i64,
) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "INSERT INTO logouts
           (realm, client_id, user_id, user_name, sid, tries, next_ms, until_ms)
         SELECT s.realm, s.client_id, ?1, u.user_name, s.sid, 0, ?2, ?3
           FROM session_clients s
           JOIN clients c ON c.realm = s.realm AND c.client_id = s.client_id
           JOIN users u ON u.id = ?1
          WHERE s.sid = ?4 AND s.realm = ?5
            AND c.doc ->> '$.backchannel_logout_uri' IS NOT NULL
            AND (SELECT count(*) FROM logouts l
                  WHERE l.realm = s.realm AND l.client_id = s.client_id) < ?6",
    )
    .bind(user_id)
    .bind(now_ms)
    .bind(now_ms.saturating_add(LOGOUT_TRIED_MS))
    .bind(sid)
    .bind(realm)
    .bind(LOGOUTS_OWED)
    .execute(&mut **tx)
    .await
    .map_err(unavailable)?;
    Ok(done.rows_affected())
}

/// Takes logouts that are due, none of clients in `busy`: they are due again
/// after a pause, should whoever took them not come back. Says also when the
/// next of the others is due.
pub(super) async fn take(
    tx: &mut Tx,
    busy: &[(String, String)],
    now_ms: i64,
    limit: u32,
) -> Result<(Vec<Logout>, Option<i64>), StoreError> {
    let mut update =
        QueryBuilder::<Sqlite>::new("UPDATE logouts SET tries = tries + 1, next_ms = ");
    update
        .push_bind(now_ms)
        .push(" + min(")
        .push_bind(PAUSE_MAX_MS)
        .push(", ")
        .push_bind(PAUSE_MS)
        .push(" << min(tries, 10)) WHERE id IN (SELECT id FROM (SELECT id, tries, next_ms, row_number() OVER ")
        .push("(PARTITION BY realm, client_id ORDER BY next_ms, id) AS place FROM logouts ")
        .push("WHERE next_ms <= ")
        .push_bind(now_ms);
    for (realm, client_id) in busy {
        update
            .push(" AND NOT (realm = ")
            .push_bind(realm.clone())
            .push(" AND client_id = ")
            .push_bind(client_id.clone())
            .push(")");
    }
    update
        .push(") WHERE place <= ")
        .push_bind(OF_ONE_CLIENT)
        // Every client's first one before any second one, and the new ones before
        // those that nobody answered.
        .push(" ORDER BY place, tries, next_ms LIMIT ")
        .push_bind(limit)
        .push(") RETURNING *");
    let rows = update
        .build()
        .fetch_all(&mut **tx)
        .await
        .map_err(unavailable)?;
    let mut due = Vec::with_capacity(rows.len());
    for row in &rows {
        let user_id: String = row.try_get("user_id").map_err(unavailable)?;
        due.push(Logout {
            id: row.try_get("id").map_err(unavailable)?,
            realm: row.try_get("realm").map_err(unavailable)?,
            client_id: row.try_get("client_id").map_err(unavailable)?,
            user_id: parse_id(&user_id)?,
            user_name: row.try_get("user_name").map_err(unavailable)?,
            sid: row.try_get("sid").map_err(unavailable)?,
            tries: row.try_get("tries").map_err(unavailable)?,
            until_ms: row.try_get("until_ms").map_err(unavailable)?,
        });
    }
    let next_ms = sqlx::query_scalar("SELECT min(next_ms) FROM logouts")
        .fetch_one(&mut **tx)
        .await
        .map_err(unavailable)?;
    Ok((due, next_ms))
}

pub(super) async fn settle(tx: &mut Tx, id: i64) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM logouts WHERE id = ?")
        .bind(id)
        .execute(&mut **tx)
        .await
        .map_err(unavailable)
        .map(drop)
}
