//! The end of sessions: with each one its grants end, and the clients that were
//! signed in through it are put down to be told.

use super::{Builder, Row, Tx, broker_tokens, logouts, sessions, sql, tokens};
use crate::{Store, StoreError};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::grant::MAX_TOKEN_LIFE_MS;
use doorward_core::model::session::{ENDED_AT_ONCE, EndedSession, Ending};

impl Store {
    /// Ends the sessions that `which` means: revokes every grant that was given
    /// in them and has no `offline_access`, and puts down the clients that are
    /// to be told. Names what has ended.
    pub async fn end_sessions(
        &self,
        which: &Ending,
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<Vec<EndedSession>, StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        let ended = end_all(&mut tx, which, now_ms).await?;
        tx.commit().await?;
        Ok(ended)
    }
}

/// Ends every session that `which` means, up to a bound.
async fn end_all(
    tx: &mut Tx,
    which: &Ending,
    now_ms: i64,
) -> Result<Vec<EndedSession>, StoreError> {
    let told = !matches!(which, Ending::Lapsed { told: false, .. });
    let mut ended = Vec::new();
    for (realm, sid) in sessions_to_end(tx, which, now_ms).await? {
        ended.push(end(tx, &realm, &sid, now_ms, told).await?);
    }
    Ok(ended)
}

/// Realm and name of the sessions that are meant.
async fn sessions_to_end(
    tx: &mut Tx,
    which: &Ending,
    now_ms: i64,
) -> Result<Vec<(String, String)>, StoreError> {
    let mut select = Builder::new("SELECT s.realm, s.sid FROM sessions s WHERE ");
    match which {
        // Also if it is no more: what was given in it may be left.
        Ending::Named { realm, sid } => return Ok(vec![(realm.clone(), sid.clone())]),
        Ending::Token(hash) => {
            select.push("s.hash = ").push_bind(*hash);
        }
        Ending::Every(query) => {
            select.push("true");
            sessions::conditions(&mut select, query);
        }
        Ending::Lapsed {
            unused_since_ms, ..
        } => {
            select
                .push("s.hash IN (SELECT hash FROM sessions WHERE used_ms <= ")
                .push_bind(*unused_since_ms)
                .push(" UNION SELECT hash FROM sessions WHERE ends_ms <= ")
                .push_bind(now_ms)
                .push(")");
        }
    }
    select.push(" LIMIT ").push_bind(i64::from(ENDED_AT_ONCE));
    names(select.build().all(&mut *tx).await?)
}

/// Realm and name of sessions.
pub(super) fn names(rows: Vec<Row>) -> Result<Vec<(String, String)>, StoreError> {
    let name = |row: &Row| Ok((row.text("realm")?, row.text("sid")?));
    rows.iter().map(name).collect()
}

/// Ends the session of this name, if it is still there, and the grants that
/// were to live only as long.
pub(super) async fn end(
    tx: &mut Tx,
    realm: &str,
    sid: &str,
    now_ms: i64,
    told: bool,
) -> Result<EndedSession, StoreError> {
    let user_id = owner(tx, realm, sid).await?;
    let mut ended = EndedSession {
        realm: realm.to_owned(),
        sid: sid.to_owned(),
        clients: Vec::new(),
        grants: Vec::new(),
        told: 0,
    };
    let Some(user_id) = user_id else {
        return Ok(ended);
    };
    if told {
        ended.told = logouts::owe(tx, (realm, sid), &user_id, now_ms).await?;
    }
    sql("DELETE FROM sessions WHERE sid = $1 AND realm = $2")
        .bind(sid)
        .bind(realm)
        .run(tx)
        .await?;
    sql("DELETE FROM codes WHERE user_id = $1 AND sid = $2 AND used = 0")
        .bind(&user_id)
        .bind(sid)
        .run(tx)
        .await?;
    let clients =
        sql("DELETE FROM session_clients WHERE sid = $1 AND realm = $2 RETURNING client_id")
            .bind(sid)
            .bind(realm)
            .all(&mut *tx)
            .await?;
    for client in clients {
        ended.clients.push(client.text("client_id")?);
    }
    let grants =
        sql("DELETE FROM session_grants WHERE sid = $1 AND realm = $2 RETURNING grant_id, offline")
            .bind(sid)
            .bind(realm)
            .all(&mut *tx)
            .await?;
    for grant in grants {
        if !grant.flag("offline")? {
            let grant_id = grant.text("grant_id")?;
            let until_ms = now_ms.saturating_add(MAX_TOKEN_LIFE_MS);
            tokens::revoke(tx, &grant_id, until_ms).await?;
            ended.grants.push(grant_id);
        }
    }
    Ok(ended)
}

/// Whose the session is, or was.
async fn owner(tx: &mut Tx, realm: &str, sid: &str) -> Result<Option<String>, StoreError> {
    let row = sql("SELECT user_id FROM sessions WHERE sid = $1 AND realm = $2
          UNION SELECT user_id FROM session_grants WHERE sid = $1 AND realm = $2 LIMIT 1")
    .bind(sid)
    .bind(realm)
    .one(&mut *tx)
    .await?;
    row.map(|row| row.text("user_id")).transpose()
}

/// Ends everything that a user has begun: sessions, refresh tokens, also those
/// with `offline_access`, codes, and what the token broker gave.
pub(super) async fn end_logins(tx: &mut Tx, user_id: &str, now_ms: i64) -> Result<(), StoreError> {
    let sessions = sql("SELECT realm, sid FROM sessions WHERE user_id = $1
          UNION SELECT realm, sid FROM session_grants WHERE user_id = $1")
    .bind(user_id)
    .all(&mut *tx)
    .await?;
    for (realm, sid) in names(sessions)? {
        end(tx, &realm, &sid, now_ms, true).await?;
    }
    let grants = sql("SELECT DISTINCT grant_id FROM refresh_tokens WHERE user_id = $1")
        .bind(user_id)
        .all(&mut *tx)
        .await?;
    for grant in grants {
        let grant_id = grant.text("grant_id")?;
        tokens::revoke(tx, &grant_id, now_ms.saturating_add(MAX_TOKEN_LIFE_MS)).await?;
    }
    for statement in [
        "DELETE FROM codes WHERE user_id = $1",
        "DELETE FROM devices WHERE user_id = $1",
    ] {
        sql(statement).bind(user_id).run(tx).await?;
    }
    broker_tokens::end(tx, user_id, now_ms).await
}
