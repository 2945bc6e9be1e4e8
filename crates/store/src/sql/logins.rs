//! Login sessions of the gateway as a relying party, and which of them are over.

use super::{Builder, Row, Tx, damaged, sql};
use crate::{Store, StoreError};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::grant::TokenHash;
use doorward_core::model::login::{
    LOGINS_AT_ONCE, LoginPage, LoginQuery, REMOVED_KEPT_MS, SessionTombstone, StoredLogin,
};

impl Store {
    /// Keeps a login session of the gateway as a relying party.
    pub async fn insert_login(&self, login: &StoredLogin) -> Result<(), StoreError> {
        self.insert_logins(std::slice::from_ref(login)).await
    }

    /// Keeps several, or none of them.
    pub async fn insert_logins(&self, logins: &[StoredLogin]) -> Result<(), StoreError> {
        let write = self.batch.write(logins.to_vec(), |tx, logins| {
            Box::pin(async move {
                for login in logins {
                    insert(tx, login).await?;
                }
                Ok(())
            })
        });
        write.await
    }

    /// Keeps what is in a login session now and when it ends, and unlocks it if
    /// its lock is the one until `locked_ms`; says whether it is still there. If
    /// not, it stays away.
    pub async fn update_login(
        &self,
        login: &StoredLogin,
        locked_ms: i64,
    ) -> Result<bool, StoreError> {
        let of = (login.clone(), locked_ms);
        let write = self.batch.write(of, |tx, (login, locked_ms)| {
            Box::pin(update(tx, login, *locked_ms))
        });
        write.await
    }

    /// The login session of this key, over or not.
    pub async fn login(&self, key: TokenHash) -> Result<Option<StoredLogin>, StoreError> {
        let row = sql("SELECT * FROM logins WHERE key = $1").bind(key);
        row.one(&self.database)
            .await?
            .as_ref()
            .map(read)
            .transpose()
    }

    /// At most `limit` login sessions that fit, in the order of their names, from
    /// the one after `after` on.
    pub async fn logins(
        &self,
        query: &LoginQuery,
        after: Option<&str>,
        limit: u32,
    ) -> Result<LoginPage, StoreError> {
        let mut select = Builder::new("SELECT * FROM logins WHERE id > ");
        select.push_bind(after.unwrap_or_default());
        conditions(&mut select, query);
        select
            .push(" ORDER BY id LIMIT ")
            .push_bind(i64::from(limit) + 1);
        let rows = select.build().all(&self.database).await?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let logins = rows.iter().take(limit).map(read);
        Ok(LoginPage {
            more: rows.len() > limit,
            logins: logins.collect::<Result<_, _>>()?,
        })
    }

    /// Locks a login session until it is updated or unlocked, or `until_ms`;
    /// says whether nobody else has locked it. A lock that takes the place of one
    /// that is late ends later, so its end tells whose it is.
    pub async fn lock_login(
        &self,
        key: TokenHash,
        until_ms: i64,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        let of = (key, until_ms, now_ms);
        let write = self.batch.write(of, |tx, (key, until_ms, now_ms)| {
            Box::pin(lock(tx, *key, *until_ms, *now_ms))
        });
        write.await
    }

    /// Unlocks a login session if its lock is the one until `locked_ms`.
    pub async fn unlock_login(&self, key: TokenHash, locked_ms: i64) -> Result<(), StoreError> {
        let write = self.batch.write((key, locked_ms), |tx, (key, locked_ms)| {
            Box::pin(unlock(tx, *key, *locked_ms))
        });
        write.await
    }

    /// Removes login sessions that fit, a bounded number of them, and tells every
    /// node of those and of `marks`. Names the removed ones.
    pub async fn end_logins(
        &self,
        query: &LoginQuery,
        marks: &[SessionTombstone],
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<Vec<String>, StoreError> {
        let of = (query.clone(), marks.to_vec(), now_ms);
        let write = self.batch.write_audited(
            of,
            |tx, (query, marks, now_ms)| Box::pin(end(tx, Some(query), marks, *now_ms)),
            (audit, |_| true),
        );
        write.await
    }

    /// As [`Store::end_logins`] for marks alone: nothing is removed.
    pub async fn add_session_tombstones(
        &self,
        marks: &[SessionTombstone],
    ) -> Result<(), StoreError> {
        let write = self.batch.write(marks.to_vec(), |tx, marks| {
            Box::pin(async { end(tx, None, marks, 0).await.map(drop) })
        });
        write.await
    }

    /// At most `limit` marks of ended login sessions, in the order in which they
    /// were made, from the one after number `after` on.
    pub async fn session_tombstones(
        &self,
        after: i64,
        limit: u32,
    ) -> Result<Vec<(i64, SessionTombstone)>, StoreError> {
        let rows = sql("SELECT * FROM login_ends WHERE id > $1 ORDER BY id LIMIT $2")
            .bind(after)
            .bind(limit)
            .all(&self.database)
            .await?;
        let mark = |row: &Row| {
            let what = row.bytes("what")?;
            let what = what
                .as_slice()
                .try_into()
                .map_err(|_| damaged("a mark of another length"))?;
            Ok((
                row.int("id")?,
                SessionTombstone {
                    what,
                    before_ms: row.int("before_ms")?,
                    until_ms: row.int("until_ms")?,
                },
            ))
        };
        rows.iter().map(mark).collect()
    }
}

async fn insert(tx: &mut Tx, login: &StoredLogin) -> Result<(), StoreError> {
    sql("INSERT INTO logins
           (key, id, issuer, client_id, subject, sid, started_ms, used_ms, ends_ms, locked_ms,
            sealed)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, $10)")
    .bind(login.key)
    .bind(&login.id)
    .bind(&login.issuer)
    .bind(&login.client_id)
    .bind(login.subject.clone())
    .bind(login.sid.clone())
    .bind(login.started_ms)
    .bind(login.used_ms)
    .bind(login.ends_ms)
    .bind(&login.sealed)
    .run(tx)
    .await
    .map(drop)
}

/// One that has ended meanwhile does not come back. One that was used later keeps
/// its later end.
async fn update(tx: &mut Tx, login: &StoredLogin, locked_ms: i64) -> Result<bool, StoreError> {
    let done = sql("UPDATE logins SET sealed = $1, used_ms = $2,
           ends_ms = CASE WHEN ends_ms > $3 AND used_ms > $2 THEN ends_ms ELSE $3 END,
           locked_ms = CASE WHEN locked_ms = $5 THEN 0 ELSE locked_ms END
         WHERE key = $4")
    .bind(&login.sealed)
    .bind(login.used_ms)
    .bind(login.ends_ms)
    .bind(login.key)
    .bind(locked_ms)
    .run(tx)
    .await?;
    Ok(done == 1)
}

fn read(row: &Row) -> Result<StoredLogin, StoreError> {
    Ok(StoredLogin {
        key: row.hash("key")?,
        id: row.text("id")?,
        issuer: row.text("issuer")?,
        client_id: row.text("client_id")?,
        subject: row.opt_text("subject")?,
        sid: row.opt_text("sid")?,
        started_ms: row.int("started_ms")?,
        used_ms: row.int("used_ms")?,
        ends_ms: row.int("ends_ms")?,
        sealed: row.text("sealed")?,
    })
}

/// Of two who lock it at once, one is told yes.
async fn lock(tx: &mut Tx, key: TokenHash, until_ms: i64, now_ms: i64) -> Result<bool, StoreError> {
    let done = sql("UPDATE logins SET locked_ms = $1 WHERE key = $2 AND locked_ms <= $3")
        .bind(until_ms)
        .bind(key)
        .bind(now_ms)
        .run(tx)
        .await?;
    Ok(done == 1)
}

async fn unlock(tx: &mut Tx, key: TokenHash, locked_ms: i64) -> Result<(), StoreError> {
    let unlock = sql("UPDATE logins SET locked_ms = 0 WHERE key = $1 AND locked_ms = $2");
    unlock.bind(key).bind(locked_ms).run(tx).await.map(drop)
}

fn conditions(select: &mut Builder, query: &LoginQuery) {
    for (column, value) in [
        (" AND id = ", &query.id),
        (" AND issuer = ", &query.issuer),
        (" AND client_id = ", &query.client_id),
        (" AND sid = ", &query.sid),
    ] {
        if let Some(value) = value {
            select.push(column).push_bind(value.as_str());
        }
    }
    if let Some((first, others)) = query.subjects.split_first() {
        select.push(" AND subject IN (").push_bind(first.as_str());
        for other in others {
            select.push(", ").push_bind(other.as_str());
        }
        select.push(")");
    }
    if let Some(started_ms) = query.started_ms {
        select.push(" AND started_ms <= ").push_bind(started_ms);
    }
}

/// Removes at most [`LOGINS_AT_ONCE`] that fit, and marks each of them as over,
/// for nodes that hold one; their names.
async fn end(
    tx: &mut Tx,
    query: Option<&LoginQuery>,
    marks: &[SessionTombstone],
    now_ms: i64,
) -> Result<Vec<String>, StoreError> {
    let mut ended = Vec::new();
    let mut all = marks.to_vec();
    if let Some(query) = query {
        for row in remove(tx, query).await? {
            ended.push(row.text("id")?);
            all.push(SessionTombstone {
                what: SessionTombstone::of_key(&row.hash("key")?),
                before_ms: now_ms,
                until_ms: now_ms.saturating_add(REMOVED_KEPT_MS),
            });
        }
    }
    for mark in all {
        sql("INSERT INTO login_ends (what, before_ms, until_ms) VALUES ($1, $2, $3)")
            .bind(&mark.what[..])
            .bind(mark.before_ms)
            .bind(mark.until_ms)
            .run(tx)
            .await?;
    }
    Ok(ended)
}

async fn remove(tx: &mut Tx, query: &LoginQuery) -> Result<Vec<Row>, StoreError> {
    let mut delete =
        Builder::new("DELETE FROM logins WHERE key IN (SELECT key FROM logins WHERE 1 = 1");
    conditions(&mut delete, query);
    delete
        .push(" LIMIT ")
        .push_bind(LOGINS_AT_ONCE)
        .push(") RETURNING key, id");
    delete.build().all(&mut *tx).await
}
