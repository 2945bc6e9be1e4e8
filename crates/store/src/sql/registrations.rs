//! Clients that register themselves, and the tokens that let them.

use std::sync::atomic::Ordering;

use super::{Builder, Row, Tx, clients, sql};
use crate::{Store, StoreError};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::client::Client;
use doorward_core::model::grant::TokenHash;
use doorward_core::model::registration::{InitialToken, RegistrationOutcome};

impl Store {
    /// Adds a client that registers itself, unless its realm has `most` of them
    /// already, and spends one use of the initial access token `token`, if one
    /// is needed.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when the identifier is another client's.
    pub async fn register_client(
        &self,
        client: &Client,
        most: u32,
        token: Option<TokenHash>,
        audit: Option<&PendingAudit>,
    ) -> Result<RegistrationOutcome, StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        let outcome = register(&mut tx, client, most, token).await?;
        if outcome == RegistrationOutcome::Done {
            tx.commit().await?;
        }
        // A client that nobody knew before is held by nobody: caches stay.
        self.registered.fetch_add(1, Ordering::AcqRel);
        Ok(outcome)
    }

    /// Notes that clients (realm and identifier) were used.
    pub async fn touch_clients(
        &self,
        used: &[(String, String)],
        now_ms: i64,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        touch(&mut tx, used, now_ms).await?;
        tx.commit().await
    }

    /// Removes, with all that hangs on them, registered clients of a realm that
    /// were not used since `before_ms`, at most `limit`; says how many went.
    pub async fn sweep_unused_clients(
        &self,
        realm: &str,
        before_ms: i64,
        limit: u32,
    ) -> Result<u64, StoreError> {
        let mut tx = self.begin().await?;
        let gone = sweep_unused(&mut tx, realm, before_ms, limit).await?;
        tx.commit().await?;
        if gone > 0 {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        Ok(gone)
    }

    /// Adds an initial access token.
    pub async fn insert_initial_token(
        &self,
        token: &InitialToken,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        insert_token(&mut tx, token).await?;
        tx.commit().await
    }

    /// The initial access tokens of a realm, in ascending order of their names.
    pub async fn initial_tokens(&self, realm: &str) -> Result<Vec<InitialToken>, StoreError> {
        let rows = sql("SELECT * FROM initial_tokens WHERE realm = $1 ORDER BY id")
            .bind(realm)
            .all(&self.database)
            .await?;
        rows.iter().map(read).collect()
    }

    /// Whether this is an initial access token of the realm that is good yet.
    pub async fn is_initial_token(
        &self,
        realm: &str,
        hash: TokenHash,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        let mut ask = Builder::new("SELECT id FROM initial_tokens WHERE ");
        push_good(&mut ask, realm, hash, now_ms);
        Ok(ask.build().one(&self.database).await?.is_some())
    }

    /// Removes an initial access token; says whether it was there.
    pub async fn delete_initial_token(
        &self,
        realm: &str,
        id: &str,
        audit: Option<&PendingAudit>,
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        let gone = delete_token(&mut tx, realm, id).await?;
        tx.void_unless(gone);
        tx.commit().await?;
        Ok(gone)
    }
}

/// Appends the condition that this token is good.
fn push_good(sql: &mut Builder, realm: &str, hash: TokenHash, now_ms: i64) {
    sql.push("realm = ")
        .push_bind(realm)
        .push(" AND hash = ")
        .push_bind(hash)
        .push(" AND (uses_left IS NULL OR uses_left > 0) AND (expires_ms IS NULL OR expires_ms > ")
        .push_bind(now_ms)
        .push(")");
}

/// Nothing is kept unless there is room and the token is good.
async fn register(
    tx: &mut Tx,
    client: &Client,
    most: u32,
    token: Option<TokenHash>,
) -> Result<RegistrationOutcome, StoreError> {
    let known = sql("SELECT count(*) AS known FROM clients WHERE realm = $1 AND owner = 'client'")
        .bind(&client.realm)
        .one(&mut *tx)
        .await?;
    if known.map_or(Ok(0), |row| row.int("known"))? >= i64::from(most) {
        return Ok(RegistrationOutcome::Full);
    }
    if let Some(hash) = token {
        let mut spend = Builder::new("UPDATE initial_tokens SET uses_left = uses_left - 1 WHERE ");
        push_good(&mut spend, &client.realm, hash, client.created_ms);
        if spend.build().run(tx).await? == 0 {
            return Ok(RegistrationOutcome::TokenSpent);
        }
    }
    clients::insert(tx, client).await?;
    Ok(RegistrationOutcome::Done)
}

async fn insert_token(tx: &mut Tx, token: &InitialToken) -> Result<(), StoreError> {
    sql(
        "INSERT INTO initial_tokens (hash, id, realm, note, uses_left, created_ms, expires_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(token.hash)
    .bind(&token.id)
    .bind(&token.realm)
    .bind(&token.note)
    .bind(token.uses_left)
    .bind(token.created_ms)
    .bind(token.expires_ms)
    .run(tx)
    .await
    .map(drop)
}

pub(super) fn read(row: &Row) -> Result<InitialToken, StoreError> {
    let uses_left = row.opt_int("uses_left")?;
    Ok(InitialToken {
        id: row.text("id")?,
        realm: row.text("realm")?,
        hash: row.hash("hash")?,
        note: row.text("note")?,
        uses_left: uses_left
            .map(u32::try_from)
            .transpose()
            .map_err(StoreError::damaged)?,
        created_ms: row.int("created_ms")?,
        expires_ms: row.opt_int("expires_ms")?,
    })
}

async fn delete_token(tx: &mut Tx, realm: &str, id: &str) -> Result<bool, StoreError> {
    let done = sql("DELETE FROM initial_tokens WHERE realm = $1 AND id = $2")
        .bind(realm)
        .bind(id)
        .run(tx)
        .await?;
    Ok(done > 0)
}

/// A client that is gone meanwhile is none to be noted.
async fn touch(tx: &mut Tx, used: &[(String, String)], now_ms: i64) -> Result<(), StoreError> {
    for (realm, client_id) in used {
        sql("UPDATE clients SET used_ms = $1 WHERE realm = $2 AND client_id = $3 AND used_ms < $1")
            .bind(now_ms)
            .bind(realm)
            .bind(client_id)
            .run(tx)
            .await?;
    }
    Ok(())
}

/// Removes registered clients that were not used since `before_ms`.
async fn sweep_unused(
    tx: &mut Tx,
    realm: &str,
    before_ms: i64,
    limit: u32,
) -> Result<u64, StoreError> {
    let idle = sql("SELECT client_id FROM clients
         WHERE realm = $1 AND owner = 'client' AND used_ms < $2 LIMIT $3")
    .bind(realm)
    .bind(before_ms)
    .bind(limit)
    .all(&mut *tx)
    .await?;
    for client in &idle {
        clients::remove(tx, realm, &client.text("client_id")?).await?;
    }
    Ok(idle.len() as u64)
}
