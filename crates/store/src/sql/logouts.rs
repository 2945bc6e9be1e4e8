//! Clients that are to be told that a session has ended.

use super::{Builder, Tx, sql};
use crate::{Store, StoreError};
use doorward_core::model::session::{LOGOUT_TRIED_MS, LOGOUTS_OWED, Logout};

/// Most logouts of one client among those that are taken at once: one that does
/// not answer must not keep the others waiting.
const OF_ONE_CLIENT: u32 = 4;

/// The first pause between two tries, in milliseconds; each one that follows is
/// twice as long. It must be longer than a try takes.
const PAUSE_MS: i64 = 10_000;

/// How often the pause doubles before it is the longest.
const DOUBLED: u32 = 6;

/// The longest pause, in milliseconds: ten minutes.
const PAUSE_MAX_MS: i64 = 600_000;

impl Store {
    /// Takes at most `limit` logouts that are due, but none of the clients in
    /// `busy` (realm and identifier): each is due again after a pause that grows,
    /// should its taker not settle it. Says also when the next one is due.
    pub async fn take_logouts(
        &self,
        busy: &[(String, String)],
        now_ms: i64,
        limit: u32,
    ) -> Result<(Vec<Logout>, Option<i64>), StoreError> {
        let mut tx = self.begin().await?;
        let taken = take(&mut tx, busy, now_ms, limit).await?;
        tx.commit().await?;
        Ok(taken)
    }

    /// Removes a logout: the client was told, or is told no more.
    pub async fn settle_logout(&self, id: i64) -> Result<(), StoreError> {
        let write = self.batch.write(id, |tx, id| Box::pin(settle(tx, *id)));
        write.await
    }
}

/// Puts down every client of the session that wants to be told; how many.
pub(super) async fn owe(
    tx: &mut Tx,
    (realm, sid): (&str, &str),
    user_id: &str,
    now_ms: i64,
) -> Result<u64, StoreError> {
    let dialect = tx.dialect();
    let mut insert = Builder::new(
        "INSERT INTO logouts
           (realm, client_id, user_id, user_name, sid, tries, next_ms, until_ms)
         SELECT s.realm, s.client_id, u.id, CASE WHEN u.name_reused = 0 THEN u.user_name ELSE u.id END, s.sid, 0, ",
    );
    insert
        .push_bind(now_ms)
        .push(", ")
        .push_bind(now_ms.saturating_add(LOGOUT_TRIED_MS))
        .push(
            " FROM session_clients s
              JOIN clients c ON c.realm = s.realm AND c.client_id = s.client_id
              JOIN users u ON u.id = ",
        )
        .push_bind(user_id)
        .push(" WHERE s.sid = ")
        .push_bind(sid)
        .push(" AND s.realm = ")
        .push_bind(realm)
        .push(" AND ");
    dialect.push_is_notified(&mut insert);
    insert
        .push(
            " AND (SELECT count(*) FROM logouts l
                    WHERE l.realm = s.realm AND l.client_id = s.client_id) < ",
        )
        .push_bind(LOGOUTS_OWED);
    insert.build().run(tx).await
}

/// Takes logouts that are due, none of clients in `busy`: they are due again
/// after a pause, should whoever took them not come back. Says also when the
/// next of the others is due.
async fn take(
    tx: &mut Tx,
    busy: &[(String, String)],
    now_ms: i64,
    limit: u32,
) -> Result<(Vec<Logout>, Option<i64>), StoreError> {
    let mut update = Builder::new("UPDATE logouts SET tries = tries + 1, next_ms = ");
    update.push_bind(now_ms).push(" + CASE tries ");
    for tries in 0..DOUBLED {
        let pause_ms = (PAUSE_MS << tries).min(PAUSE_MAX_MS);
        update
            .push(" WHEN ")
            .push_bind(tries)
            .push(" THEN ")
            .push_bind(pause_ms);
    }
    update.push(" ELSE ").push_bind(PAUSE_MAX_MS).push(
        " END WHERE id IN (SELECT id FROM (SELECT id, tries, next_ms, row_number() OVER
          (PARTITION BY realm, client_id ORDER BY next_ms, id) AS place FROM logouts
          WHERE next_ms <= ",
    );
    update.push_bind(now_ms);
    for (realm, client_id) in busy {
        update
            .push(" AND NOT (realm = ")
            .push_bind(realm.clone())
            .push(" AND client_id = ")
            .push_bind(client_id.clone())
            .push(")");
    }
    update
        .push(") AS due WHERE place <= ")
        .push_bind(OF_ONE_CLIENT)
        // Every client's first one before any second one, and the new ones before
        // those that nobody answered.
        .push(" ORDER BY place, tries, next_ms LIMIT ")
        .push_bind(limit)
        .push(") RETURNING *");
    let rows = update.build().all(&mut *tx).await?;
    let mut due = Vec::with_capacity(rows.len());
    for row in &rows {
        due.push(Logout {
            id: row.int("id")?,
            realm: row.text("realm")?,
            client_id: row.text("client_id")?,
            user_id: row.id("user_id")?,
            user_name: row.text("user_name")?,
            sid: row.text("sid")?,
            tries: row.count("tries")?,
            until_ms: row.int("until_ms")?,
        });
    }
    let next = sql("SELECT min(next_ms) AS next_ms FROM logouts");
    let next = next.one(&mut *tx).await?;
    let next_ms = next.map_or(Ok(None), |row| row.opt_int("next_ms"))?;
    Ok((due, next_ms))
}

async fn settle(tx: &mut Tx, id: i64) -> Result<(), StoreError> {
    sql("DELETE FROM logouts WHERE id = $1")
        .bind(id)
        .run(tx)
        .await
        .map(drop)
}
