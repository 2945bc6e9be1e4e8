//! Refresh tokens, opaque access tokens and revocations.

use super::batch::IssuedTokens;
use super::insertion::insert_all;
use super::{Row, Tx, broker_tokens, row, sql, write_doc};
use crate::{Store, StoreError};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::broker::{origin_grant, origin_token};
use doorward_core::model::grant::{
    Exchange, Revocation, Rotation, SpentRefresh, StoredAccess, StoredRefresh, TokenHash,
};

impl Store {
    /// Keeps what was issued: a refresh token, an opaque access token, or both.
    pub async fn record_tokens(
        &self,
        refresh: Option<&StoredRefresh>,
        access: Option<&StoredAccess>,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        let tokens = IssuedTokens {
            refresh: refresh.cloned(),
            access: access.cloned(),
        };
        self.batch.keep_issued(tokens, audit).await
    }

    /// The refresh tokens of this family, unless their grant is gone.
    pub async fn refresh_tokens(
        &self,
        family: TokenHash,
    ) -> Result<Option<StoredRefresh>, StoreError> {
        let row = sql("SELECT current, previous, salt, rotated_ms, expires_ms, doc
               FROM refresh_tokens WHERE family = $1")
        .bind(family)
        .one(&self.database)
        .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        Ok(Some(StoredRefresh {
            family,
            current: row.hash("current")?,
            previous: spent(&row)?,
            grant: row.doc("doc")?,
            expires_ms: row.int("expires_ms")?,
        }))
    }

    /// Exchanges a refresh token for its successor, and keeps `access`: once,
    /// and never again. A second exchange revokes the grant instead, unless it
    /// comes within the time of grace and the successor was not used yet.
    pub async fn exchange_refresh_token(
        &self,
        exchange: Exchange,
        access: Option<&StoredAccess>,
        audit: Option<&PendingAudit>,
    ) -> Result<Rotation, StoreError> {
        let of = (exchange, access.cloned());
        let write = self.batch.write_audited(
            of,
            |tx, (exchange, access)| Box::pin(rotate(tx, exchange, access.as_ref())),
            (audit, |rotation| {
                matches!(rotation, Rotation::Done | Rotation::Again(_))
            }),
        );
        write.await
    }

    /// Revokes every token of a grant; `until_ms` is when the last would die.
    pub async fn revoke_grant(
        &self,
        grant_id: &str,
        until_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        let of = (grant_id.to_owned(), until_ms);
        let write = self.batch.write_audited(
            of,
            |tx, (grant_id, until_ms)| Box::pin(revoke(tx, grant_id, *until_ms)),
            (audit, |_| true),
        );
        write.await
    }

    /// Revokes one access token: by its identifier, and by its hash in case it
    /// is kept; `until_ms` is when it would die.
    pub async fn revoke_access_token(
        &self,
        hash: TokenHash,
        token_id: &str,
        until_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        let of = (hash, token_id.to_owned(), until_ms);
        let write = self.batch.write_audited(
            of,
            |tx, (hash, token_id, until_ms)| {
                Box::pin(revoke_access(tx, *hash, token_id, *until_ms))
            },
            (audit, |_| true),
        );
        write.await
    }

    /// Everything that is revoked, and until when that matters.
    pub async fn revocations(&self) -> Result<Vec<(Revocation, i64)>, StoreError> {
        let grants = sql("SELECT grant_id, expires_ms FROM revoked_grants")
            .all(&self.database)
            .await?;
        let tokens = sql("SELECT token_id, expires_ms FROM revoked_tokens")
            .all(&self.database)
            .await?;
        let until = |row: &Row| row.int("expires_ms");
        let grant = |row: &Row| Ok((Revocation::Grant(row.text("grant_id")?), until(row)?));
        let token = |row: &Row| Ok((Revocation::Token(row.text("token_id")?), until(row)?));
        let grants = grants.iter().map(grant);
        grants.chain(tokens.iter().map(token)).collect()
    }

    /// The opaque access token of this hash.
    pub async fn access_token(&self, hash: TokenHash) -> Result<Option<StoredAccess>, StoreError> {
        let row = sql("SELECT grant_id, expires_ms, doc FROM access_tokens WHERE hash = $1")
            .bind(hash)
            .one(&self.database)
            .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        Ok(Some(StoredAccess {
            hash,
            grant_id: row.text("grant_id")?,
            claims: row.doc("doc")?,
            expires_ms: row.int("expires_ms")?,
        }))
    }

    /// Remembers `what` until `until_ms`; says whether it was new. Of two who
    /// bring the same at once, one is told yes.
    pub async fn remember(
        &self,
        what: TokenHash,
        until_ms: i64,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        let of = (what, until_ms, now_ms);
        let write = self.batch.write(of, |tx, (what, until_ms, now_ms)| {
            Box::pin(remember(tx, *what, *until_ms, *now_ms))
        });
        write.await
    }

    /// Whether `what` is remembered at `now_ms`.
    pub async fn has_seen(&self, what: TokenHash, now_ms: i64) -> Result<bool, StoreError> {
        let row = sql("SELECT 1 AS there FROM seen WHERE hash = $1 AND expires_ms > $2")
            .bind(what)
            .bind(now_ms)
            .one(&self.database)
            .await?;
        Ok(row.is_some())
    }
}

pub(super) async fn insert(
    tx: &mut Tx,
    refresh: Option<&StoredRefresh>,
    access: Option<&StoredAccess>,
) -> Result<(), StoreError> {
    insert_refresh(tx, refresh.as_slice()).await?;
    insert_access(tx, access.as_slice()).await
}

/// Keeps what was issued to several at once.
pub(super) async fn insert_issued(tx: &mut Tx, issued: &[&IssuedTokens]) -> Result<(), StoreError> {
    let refresh: Vec<_> = issued.iter().filter_map(|of| of.refresh.as_ref()).collect();
    insert_refresh(tx, &refresh).await?;
    let access: Vec<_> = issued.iter().filter_map(|of| of.access.as_ref()).collect();
    insert_access(tx, &access).await
}

async fn insert_refresh(tx: &mut Tx, tokens: &[&StoredRefresh]) -> Result<(), StoreError> {
    let head = "INSERT INTO refresh_tokens
        (family, grant_id, realm, client_id, user_id, current, expires_ms, doc, ends_ms) VALUES";
    let row = |token: &&StoredRefresh| {
        Ok([
            token.family.into(),
            (&token.grant.id).into(),
            (&token.grant.realm).into(),
            (&token.grant.client_id).into(),
            token.grant.user_id.to_string().into(),
            token.current.into(),
            token.expires_ms.into(),
            write_doc(&token.grant)?.into(),
            token.grant.ends_ms.into(),
        ])
    };
    insert_all(tx, head, tokens, row, "").await
}

async fn insert_access(tx: &mut Tx, tokens: &[&StoredAccess]) -> Result<(), StoreError> {
    let head = "INSERT INTO access_tokens (hash, grant_id, expires_ms, doc) VALUES";
    let row = |token: &&StoredAccess| {
        Ok([
            token.hash.into(),
            (&token.grant_id).into(),
            token.expires_ms.into(),
            write_doc(&token.claims)?.into(),
        ])
    };
    insert_all(tx, head, tokens, row, "").await
}

fn spent(row: &Row) -> Result<Option<SpentRefresh>, StoreError> {
    let previous = row.opt_hash("previous")?;
    let salt = row.opt_bytes("salt")?;
    let rotated_ms = row.opt_int("rotated_ms")?;
    let (Some(previous), Some(salt), Some(rotated_ms)) = (previous, salt, rotated_ms) else {
        return Ok(None);
    };
    Ok(Some(SpentRefresh {
        hash: previous,
        salt,
        rotated_ms,
    }))
}

/// The conditional update decides: of two exchanges at once, exactly one finds
/// the token in force.
async fn rotate(
    tx: &mut Tx,
    exchange: &Exchange,
    access: Option<&StoredAccess>,
) -> Result<Rotation, StoreError> {
    let taken = if exchange.successor == exchange.presented {
        sql("UPDATE refresh_tokens SET expires_ms = $1 WHERE family = $2 AND current = $3")
            .bind(exchange.expires_ms)
    } else {
        sql("UPDATE refresh_tokens
                SET previous = current, current = $1, salt = $2, rotated_ms = $3, expires_ms = $4
              WHERE family = $5 AND current = $6")
        .bind(exchange.successor)
        .bind(exchange.salt.as_slice())
        .bind(exchange.now_ms)
        .bind(exchange.expires_ms)
    };
    let taken = taken
        .bind(exchange.family)
        .bind(exchange.presented)
        .run(tx)
        .await?;
    if taken == 1 {
        insert(tx, None, access).await?;
        return Ok(Rotation::Done);
    }
    let row =
        sql("SELECT grant_id, previous, salt, rotated_ms FROM refresh_tokens WHERE family = $1")
            .bind(exchange.family)
            .one(&mut *tx)
            .await?;
    let Some(row) = row else {
        return Ok(Rotation::Gone);
    };
    // While it is the previous one, its successor has not been used.
    let again = spent(&row)?.filter(|spent| {
        spent.hash == exchange.presented && spent.is_in_grace(exchange.now_ms, exchange.grace_ms)
    });
    if let Some(spent) = again {
        insert(tx, None, access).await?;
        let TokenHash(salt) = row::hash(&spent.salt)?;
        return Ok(Rotation::Again(salt));
    }
    let grant_id = row.text("grant_id")?;
    revoke(tx, &grant_id, exchange.revoked_until_ms).await?;
    Ok(Rotation::Reused)
}

pub(super) async fn revoke(tx: &mut Tx, grant_id: &str, until_ms: i64) -> Result<(), StoreError> {
    for statement in [
        "DELETE FROM refresh_tokens WHERE grant_id = $1",
        "DELETE FROM access_tokens WHERE grant_id = $1",
    ] {
        sql(statement).bind(grant_id).run(tx).await?;
    }
    broker_tokens::end_origin(tx, &origin_grant(grant_id), until_ms).await?;
    sql(
        "INSERT INTO revoked_grants (grant_id, expires_ms) VALUES ($1, $2)
         ON CONFLICT (grant_id) DO UPDATE SET expires_ms = excluded.expires_ms
         WHERE revoked_grants.expires_ms < excluded.expires_ms",
    )
    .bind(grant_id)
    .bind(until_ms)
    .run(tx)
    .await
    .map(drop)
}

async fn revoke_access(
    tx: &mut Tx,
    hash: TokenHash,
    token_id: &str,
    until_ms: i64,
) -> Result<(), StoreError> {
    sql("DELETE FROM access_tokens WHERE hash = $1")
        .bind(hash)
        .run(tx)
        .await?;
    broker_tokens::end_origin(tx, &origin_token(token_id), until_ms).await?;
    sql(
        "INSERT INTO revoked_tokens (token_id, expires_ms) VALUES ($1, $2)
         ON CONFLICT (token_id) DO NOTHING",
    )
    .bind(token_id)
    .bind(until_ms)
    .run(tx)
    .await
    .map(drop)
}

/// What has expired and was not yet swept counts as new.
async fn remember(
    tx: &mut Tx,
    what: TokenHash,
    until_ms: i64,
    now_ms: i64,
) -> Result<bool, StoreError> {
    let done = sql("INSERT INTO seen (hash, expires_ms) VALUES ($1, $2)
         ON CONFLICT (hash) DO UPDATE SET expires_ms = excluded.expires_ms
         WHERE seen.expires_ms <= $3")
    .bind(what)
    .bind(until_ms)
    .bind(now_ms)
    .run(tx)
    .await?;
    Ok(done == 1)
}
