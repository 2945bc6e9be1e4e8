//! What users let clients have.

use uuid::Uuid;

use super::{ReadSource, Row, Tx, sql, tokens};
use crate::{Store, StoreError};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::grant::{Consent, MAX_TOKEN_LIFE_MS};

impl Store {
    /// The scopes that a user let a client have.
    pub async fn consent(&self, user_id: Uuid, client_id: &str) -> Result<Vec<String>, StoreError> {
        granted_scopes(&self.database, user_id, client_id).await
    }

    /// Adds to the scopes that a user lets a client have.
    pub async fn add_consent(
        &self,
        realm: &str,
        user_id: Uuid,
        client_id: &str,
        scopes: &[String],
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        add(&mut tx, realm, user_id, client_id, scopes, now_ms).await?;
        tx.commit().await
    }

    /// What a user agreed to, by client, in ascending order of clients: at most
    /// 500.
    pub async fn consents(&self, user_id: Uuid) -> Result<Vec<Consent>, StoreError> {
        // What a user agreed to, by client.
        let rows = sql(
            "SELECT client_id, scopes, given_ms FROM consents WHERE user_id = $1
              ORDER BY client_id LIMIT $2",
        )
        .bind(user_id)
        .bind(SHOWN_MAX)
        .all(&self.database)
        .await?;
        let read = |row: &Row| {
            let scopes = row.text("scopes")?;
            let scopes = scopes.split(' ').filter(|scope| !scope.is_empty());
            Ok(Consent {
                client_id: row.text("client_id")?,
                scopes: scopes.map(str::to_owned).collect(),
                given_ms: row.int("given_ms")?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// Takes back what a user let a client have, and revokes every grant that the
    /// user gave it: those.
    pub async fn withdraw_consent(
        &self,
        realm: &str,
        user_id: Uuid,
        client_id: &str,
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<Vec<String>, StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        let grants = withdraw(&mut tx, realm, user_id, client_id, now_ms).await?;
        tx.commit().await?;
        Ok(grants)
    }
}

async fn granted_scopes(
    on: impl Into<ReadSource<'_>>,
    user_id: Uuid,
    client_id: &str,
) -> Result<Vec<String>, StoreError> {
    let row = sql("SELECT scopes FROM consents WHERE user_id = $1 AND client_id = $2")
        .bind(user_id)
        .bind(client_id)
        .one(on)
        .await?;
    let scopes = row.map_or(Ok(String::new()), |row| row.text("scopes"))?;
    let scopes = scopes.split(' ').filter(|scope| !scope.is_empty());
    Ok(scopes.map(str::to_owned).collect())
}

/// What was agreed to before stays agreed to.
async fn add(
    tx: &mut Tx,
    realm: &str,
    user_id: Uuid,
    client_id: &str,
    scopes: &[String],
    now_ms: i64,
) -> Result<(), StoreError> {
    let mut all = granted_scopes(&mut *tx, user_id, client_id).await?;
    all.extend(scopes.iter().cloned());
    all.sort_unstable();
    all.dedup();
    sql(
        "INSERT INTO consents (user_id, realm, client_id, scopes, given_ms)
         VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (user_id, client_id)
         DO UPDATE SET scopes = excluded.scopes, given_ms = excluded.given_ms",
    )
    .bind(user_id)
    .bind(realm)
    .bind(client_id)
    .bind(all.join(" "))
    .bind(now_ms)
    .run(tx)
    .await
    .map(drop)
}

/// Most consents that are listed.
const SHOWN_MAX: u32 = 500;

/// Takes back what a user let a client have, with all that was granted to it.
async fn withdraw(
    tx: &mut Tx,
    realm: &str,
    user_id: Uuid,
    client_id: &str,
    now_ms: i64,
) -> Result<Vec<String>, StoreError> {
    sql("DELETE FROM consents WHERE user_id = $1 AND realm = $2 AND client_id = $3")
        .bind(user_id)
        .bind(realm)
        .bind(client_id)
        .run(&mut *tx)
        .await?;
    let rows = sql("SELECT grant_id FROM refresh_tokens
          WHERE user_id = $1 AND realm = $2 AND client_id = $3
          UNION SELECT grant_id FROM session_grants
          WHERE user_id = $1 AND realm = $2 AND client_id = $3")
    .bind(user_id)
    .bind(realm)
    .bind(client_id)
    .all(&mut *tx)
    .await?;
    let mut grants = Vec::new();
    for row in rows {
        let grant_id = row.text("grant_id")?;
        let until_ms = now_ms.saturating_add(MAX_TOKEN_LIFE_MS);
        tokens::revoke(tx, &grant_id, until_ms).await?;
        grants.push(grant_id);
    }
    for statement in [
        "DELETE FROM session_grants WHERE user_id = $1 AND realm = $2 AND client_id = $3",
        "DELETE FROM codes WHERE user_id = $1 AND realm = $2 AND client_id = $3 AND used = 0",
    ] {
        sql(statement)
            .bind(user_id)
            .bind(realm)
            .bind(client_id)
            .run(&mut *tx)
            .await?;
    }
    Ok(grants)
}
