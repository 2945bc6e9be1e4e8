//! Tokens and codes of the `oauth2` plugin.

use super::{Row, Tx, sql, write_doc};
use crate::{Store, StoreError};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::grant::TokenHash;
use doorward_core::model::oauth2::{OAUTH2_TOKENS_MAX, StoredOAuth2Code, StoredOAuth2Token};
use uuid::Uuid;

impl Store {
    /// Keeps an authorization code.
    pub async fn insert_oauth2_code(&self, code: &StoredOAuth2Code) -> Result<(), StoreError> {
        let write = self
            .batch
            .write(code.clone(), |tx, code| Box::pin(insert_code(tx, code)));
        write.await
    }

    /// The authorization code of this hash, if it was not spent.
    pub async fn oauth2_code(
        &self,
        hash: TokenHash,
    ) -> Result<Option<StoredOAuth2Code>, StoreError> {
        let row = sql("SELECT * FROM oauth2_codes WHERE hash = $1")
            .bind(hash)
            .one(&self.database)
            .await?;
        let read = |row: &Row| {
            Ok(StoredOAuth2Code {
                hash: row.hash("hash")?,
                credential: row.id("credential")?,
                expires_ms: row.int("expires_ms")?,
                facts: row.doc("doc")?,
            })
        };
        row.as_ref().map(read).transpose()
    }

    /// Spends an authorization code for a token. Of two at once, one is told yes.
    pub async fn redeem_oauth2_code(
        &self,
        code: TokenHash,
        token: &StoredOAuth2Token,
    ) -> Result<bool, StoreError> {
        let write = self
            .batch
            .write((code, token.clone()), |tx, (code, token)| {
                Box::pin(redeem(tx, *code, token))
            });
        write.await
    }

    /// Keeps a token. Beyond [`OAUTH2_TOKENS_MAX`] of its credential the oldest go.
    /// Whether it was kept: another one may have one of its hashes or its id.
    pub async fn insert_oauth2_token(
        &self,
        token: &StoredOAuth2Token,
        audit: Option<&PendingAudit>,
    ) -> Result<bool, StoreError> {
        let write = self.batch.write_audited(
            token.clone(),
            |tx, token| Box::pin(insert(tx, token)),
            (audit, |kept| *kept),
        );
        write.await
    }

    /// Puts `token` in the place of the one with the refresh token `presented`, which
    /// stays in force only if both have the same. Of two at once, one is told yes,
    /// unless the refresh token stays.
    pub async fn replace_oauth2_token(
        &self,
        old: Uuid,
        presented: TokenHash,
        token: &StoredOAuth2Token,
    ) -> Result<bool, StoreError> {
        let of = (old, presented, token.clone());
        let write = self.batch.write(of, |tx, (old, presented, token)| {
            Box::pin(replace(tx, *old, *presented, token))
        });
        write.await
    }

    /// The token with this access token, over or not.
    pub async fn oauth2_token(
        &self,
        access: TokenHash,
    ) -> Result<Option<StoredOAuth2Token>, StoreError> {
        let select = sql("SELECT * FROM oauth2_tokens WHERE access = $1").bind(access);
        let row = select.one(&self.database).await?;
        row.as_ref().map(read).transpose()
    }

    /// The token with this refresh token, over or not.
    pub async fn oauth2_refresh(
        &self,
        refresh: TokenHash,
    ) -> Result<Option<StoredOAuth2Token>, StoreError> {
        let select = sql("SELECT * FROM oauth2_tokens WHERE refresh = $1").bind(refresh);
        let row = select.one(&self.database).await?;
        row.as_ref().map(read).transpose()
    }

    /// The token with this id, over or not.
    pub async fn oauth2_token_of(&self, id: Uuid) -> Result<Option<StoredOAuth2Token>, StoreError> {
        let select = sql("SELECT * FROM oauth2_tokens WHERE id = $1").bind(id);
        let row = select.one(&self.database).await?;
        row.as_ref().map(read).transpose()
    }

    /// Tokens in the order of their ids, of all credentials or of one, behind `after`.
    pub async fn oauth2_tokens(
        &self,
        credential: Option<Uuid>,
        after: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<StoredOAuth2Token>, StoreError> {
        let after = after.unwrap_or(Uuid::nil());
        let select = match credential {
            Some(credential) => sql(
                "SELECT * FROM oauth2_tokens WHERE id > $1 AND credential = $2
                  ORDER BY id LIMIT $3",
            )
            .bind(after)
            .bind(credential),
            None => {
                sql("SELECT * FROM oauth2_tokens WHERE id > $1 ORDER BY id LIMIT $2").bind(after)
            }
        };
        let rows = select.bind(limit).all(&self.database).await?;
        rows.iter().map(read).collect()
    }

    /// Ends the token with this id; whether there was one.
    pub async fn delete_oauth2_token(
        &self,
        id: Uuid,
        audit: Option<&PendingAudit>,
    ) -> Result<bool, StoreError> {
        let write = self.batch.write_audited(
            id,
            |tx, id| Box::pin(delete(tx, *id)),
            (audit, |done| *done),
        );
        self.changed(write.await)
    }
}

async fn insert_code(tx: &mut Tx, code: &StoredOAuth2Code) -> Result<(), StoreError> {
    sql("INSERT INTO oauth2_codes (hash, credential, expires_ms, doc) VALUES ($1, $2, $3, $4)")
        .bind(code.hash)
        .bind(code.credential)
        .bind(code.expires_ms)
        .bind(write_doc(&code.facts)?)
        .run(tx)
        .await
        .map(drop)
}

async fn redeem(
    tx: &mut Tx,
    code: TokenHash,
    token: &StoredOAuth2Token,
) -> Result<bool, StoreError> {
    let spent = sql("DELETE FROM oauth2_codes WHERE hash = $1 AND expires_ms > $2")
        .bind(code)
        .bind(token.created_ms)
        .run(tx)
        .await?;
    if spent == 0 {
        return Ok(false);
    }
    insert(tx, token).await
}

async fn insert(tx: &mut Tx, token: &StoredOAuth2Token) -> Result<bool, StoreError> {
    sql("DELETE FROM oauth2_tokens WHERE id IN
           (SELECT id FROM oauth2_tokens WHERE credential = $1
             ORDER BY created_ms DESC LIMIT 100 OFFSET $2)")
    .bind(token.credential)
    .bind(OAUTH2_TOKENS_MAX - 1)
    .run(tx)
    .await?;
    let kept = sql(
        "INSERT INTO oauth2_tokens (id, access, refresh, credential, created_ms, ends_ms, doc)
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
    )
    .bind(token.id)
    .bind(token.access)
    .bind(token.refresh)
    .bind(token.credential)
    .bind(token.created_ms)
    .bind(token.ends_ms)
    .bind(write_doc(&token.facts)?)
    .run(tx)
    .await?;
    Ok(kept == 1)
}

async fn replace(
    tx: &mut Tx,
    old: Uuid,
    presented: TokenHash,
    token: &StoredOAuth2Token,
) -> Result<bool, StoreError> {
    // The condition decides: of two at once, the second one has another refresh token
    // before it.
    let done = sql("UPDATE oauth2_tokens
            SET id = $1, access = $2, refresh = $3, created_ms = $4, ends_ms = $5, doc = $6
          WHERE id = $7 AND refresh = $8")
    .bind(token.id)
    .bind(token.access)
    .bind(token.refresh)
    .bind(token.created_ms)
    .bind(token.ends_ms)
    .bind(write_doc(&token.facts)?)
    .bind(old)
    .bind(presented)
    .run(tx)
    .await?;
    Ok(done == 1)
}

async fn delete(tx: &mut Tx, id: Uuid) -> Result<bool, StoreError> {
    let gone = sql("DELETE FROM oauth2_tokens WHERE id = $1").bind(id);
    Ok(gone.run(tx).await? == 1)
}

/// Reads a row.
pub(super) fn read(row: &Row) -> Result<StoredOAuth2Token, StoreError> {
    Ok(StoredOAuth2Token {
        id: row.id("id")?,
        access: row.hash("access")?,
        refresh: row.opt_hash("refresh")?,
        credential: row.id("credential")?,
        created_ms: row.int("created_ms")?,
        ends_ms: row.opt_int("ends_ms")?,
        facts: row.doc("doc")?,
    })
}
