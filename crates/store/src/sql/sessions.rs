//! Sessions of `authenticate` and of the authorization endpoint.

use super::{Builder, Database, Row, Tx, endings, sql};
use crate::{Store, StoreError};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::grant::{Grant, MAX_TOKEN_LIFE_MS, StoredSession, TokenHash};
use doorward_core::model::session::{EndedSession, SessionPage, SessionQuery, SessionRecord};

impl Store {
    /// Keeps a session; the user's oldest ones beyond `quota` end: those.
    pub async fn insert_session(
        &self,
        session: &StoredSession,
        quota: u32,
        audit: Option<&PendingAudit>,
    ) -> Result<Vec<EndedSession>, StoreError> {
        let of = (session.clone(), quota);
        let write = self.batch.write_audited(
            of,
            |tx, (session, quota)| Box::pin(insert(tx, None, session, *quota)),
            (audit, |_| true),
        );
        write.await
    }

    /// Keeps a session in the place of the one of hash `old`, if that is there:
    /// nobody who holds the old token has the new one's rights. Unless both have
    /// one name, the old one ends. Names the sessions that ended.
    pub async fn replace_session(
        &self,
        old: TokenHash,
        session: &StoredSession,
        quota: u32,
        audit: Option<&PendingAudit>,
    ) -> Result<Vec<EndedSession>, StoreError> {
        let of = (old, session.clone(), quota);
        let write = self.batch.write_audited(
            of,
            |tx, (old, session, quota)| Box::pin(insert(tx, Some(*old), session, *quota)),
            (audit, |_| true),
        );
        write.await
    }

    /// The session of this token hash.
    pub async fn session(&self, hash: TokenHash) -> Result<Option<StoredSession>, StoreError> {
        let row = sql("SELECT * FROM sessions WHERE hash = $1")
            .bind(hash)
            .one(&self.database)
            .await?;
        row.as_ref().map(read).transpose()
    }

    /// Notes that a session was used.
    pub async fn touch_session(&self, hash: TokenHash, now_ms: i64) -> Result<(), StoreError> {
        let write = self.batch.write((hash, now_ms), |tx, (hash, now_ms)| {
            Box::pin(touch(tx, *hash, *now_ms))
        });
        write.await
    }

    /// The session that ID tokens of the realm call `sid`, lapsed or not.
    pub async fn session_named(
        &self,
        realm: &str,
        sid: &str,
    ) -> Result<Option<SessionRecord>, StoreError> {
        let row = sql(
            "SELECT s.*, u.user_name FROM sessions s JOIN users u ON u.id = s.user_id
              WHERE s.sid = $1 AND s.realm = $2",
        )
        .bind(sid)
        .bind(realm)
        .one(&self.database)
        .await?;
        match row {
            Some(row) => record(&self.database, &row).await.map(Some),
            None => Ok(None),
        }
    }

    /// At most `limit` sessions that fit, in the order of their names, from the
    /// one after `after` on.
    pub async fn sessions(
        &self,
        query: &SessionQuery,
        after: Option<&str>,
        limit: u32,
    ) -> Result<SessionPage, StoreError> {
        let mut select = Builder::new(
            "SELECT s.*, u.user_name FROM sessions s JOIN users u ON u.id = s.user_id WHERE s.sid > ",
        );
        select.push_bind(after.unwrap_or_default().to_owned());
        conditions(&mut select, query);
        select
            .push(" ORDER BY s.sid LIMIT ")
            .push_bind(i64::from(limit) + 1);
        let rows = select.build().all(&self.database).await?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut page = SessionPage {
            more: rows.len() > limit,
            ..SessionPage::default()
        };
        for row in rows.iter().take(limit) {
            page.sessions.push(record(&self.database, row).await?);
        }
        Ok(page)
    }

    /// Notes that `grant` was given in its session; says whether that is still
    /// there. With a code, [`Store::insert_code`] does it.
    pub async fn begin_grant(&self, grant: &Grant, now_ms: i64) -> Result<bool, StoreError> {
        let of = (grant.clone(), now_ms);
        let write = self.batch.write(of, |tx, (grant, now_ms)| {
            Box::pin(note_grant(tx, grant, *now_ms))
        });
        write.await
    }
}

/// The new session takes the place of `old`, if there is one: that one ends,
/// unless the new one goes on with it.
async fn insert(
    tx: &mut Tx,
    old: Option<TokenHash>,
    session: &StoredSession,
    quota: u32,
) -> Result<Vec<EndedSession>, StoreError> {
    let now_ms = session.created_ms;
    let mut ended = Vec::new();
    if let Some(old) = old {
        let gone = sql("DELETE FROM sessions WHERE hash = $1 RETURNING realm, sid")
            .bind(old)
            .one(&mut *tx)
            .await?;
        if let Some(gone) = gone {
            let (realm, sid) = (gone.text("realm")?, gone.text("sid")?);
            if sid != session.sid {
                ended.push(endings::end(tx, &realm, &sid, now_ms, true).await?);
            }
        }
    }
    sql(
        "INSERT INTO sessions (hash, realm, user_id, created_ms, used_ms, ends_ms, sid, auth_ms,
                               amr, agent, address)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
    )
    .bind(session.hash)
    .bind(&session.realm)
    .bind(session.user_id.to_string())
    .bind(session.created_ms)
    .bind(session.used_ms)
    .bind(session.ends_ms)
    .bind(&session.sid)
    .bind(session.auth_ms)
    .bind(session.amr.join(" "))
    .bind(&session.agent)
    .bind(&session.address)
    .run(tx)
    .await?;
    for (realm, sid) in over_quota(tx, session, quota).await? {
        ended.push(endings::end(tx, &realm, &sid, now_ms, true).await?);
    }
    Ok(ended)
}

/// Realm and name of the user's oldest sessions beyond `quota`; a sign-in never
/// ends the one that it began.
async fn over_quota(
    tx: &mut Tx,
    begun: &StoredSession,
    quota: u32,
) -> Result<Vec<(String, String)>, StoreError> {
    let user_id = begun.user_id.to_string();
    // By its index alone: a user may have many, and each sign-in counts them.
    let held = sql("SELECT count(*) AS held FROM sessions WHERE user_id = $1")
        .bind(&user_id)
        .one(&mut *tx)
        .await?;
    let held = held.map_or(Ok(0), |row| row.int("held"))?;
    let over = held - i64::from(quota.max(1));
    if over <= 0 {
        return Ok(Vec::new());
    }
    let oldest = sql(
        "SELECT realm, sid FROM sessions WHERE user_id = $1 AND hash <> $2
         ORDER BY created_ms, hash DESC LIMIT $3",
    )
    .bind(&user_id)
    .bind(begun.hash)
    .bind(over)
    .all(tx)
    .await?;
    endings::names(oldest)
}

pub(super) fn read(row: &Row) -> Result<StoredSession, StoreError> {
    let amr = row.text("amr")?;
    let amr = amr.split(' ').filter(|word| !word.is_empty());
    Ok(StoredSession {
        hash: row.hash("hash")?,
        realm: row.text("realm")?,
        user_id: row.id("user_id")?,
        created_ms: row.int("created_ms")?,
        used_ms: row.int("used_ms")?,
        ends_ms: row.int("ends_ms")?,
        sid: row.text("sid")?,
        auth_ms: row.int("auth_ms")?,
        amr: amr.map(str::to_owned).collect(),
        agent: row.text("agent")?,
        address: row.text("address")?,
    })
}

async fn record(readers: &Database, row: &Row) -> Result<SessionRecord, StoreError> {
    let session = read(row)?;
    let clients = sql("SELECT client_id FROM session_clients WHERE sid = $1 ORDER BY client_id")
        .bind(&session.sid)
        .all(readers)
        .await?;
    Ok(SessionRecord {
        user_name: row.text("user_name")?,
        session,
        clients: clients
            .iter()
            .map(|row| row.text("client_id"))
            .collect::<Result<_, _>>()?,
    })
}

/// Adds to a statement on `sessions s` what `query` asks for.
pub(super) fn conditions(select: &mut Builder, query: &SessionQuery) {
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

async fn touch(tx: &mut Tx, hash: TokenHash, now_ms: i64) -> Result<(), StoreError> {
    sql("UPDATE sessions SET used_ms = $1 WHERE hash = $2 AND used_ms < $1")
        .bind(now_ms)
        .bind(hash)
        .run(tx)
        .await
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
    let noted = sql(
        "INSERT INTO session_grants (grant_id, sid, realm, client_id, user_id, offline, expires_ms)
         SELECT $1, sid, realm, $2, user_id, $3, $4 FROM sessions
          WHERE sid = $5 AND realm = $6 AND user_id = $7
         ON CONFLICT (grant_id) DO NOTHING",
    )
    .bind(&grant.id)
    .bind(&grant.client_id)
    .bind(offline)
    .bind(grant.ends_ms.max(now_ms).saturating_add(MAX_TOKEN_LIFE_MS))
    .bind(sid)
    .bind(&grant.realm)
    .bind(&user_id)
    .run(tx)
    .await?;
    if noted == 0 {
        return Ok(false);
    }
    sql(
        "INSERT INTO session_clients (sid, client_id, realm) VALUES ($1, $2, $3)
         ON CONFLICT (sid, client_id) DO NOTHING",
    )
    .bind(sid)
    .bind(&grant.client_id)
    .bind(&grant.realm)
    .run(tx)
    .await?;
    Ok(true)
}
