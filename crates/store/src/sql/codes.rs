//! Authorization codes.

use super::{Tx, sessions, sql, tokens, write_doc};
use crate::{Store, StoreError};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::authorization::{Authorization, Redemption, StoredCode};
use doorward_core::model::grant::{StoredAccess, StoredRefresh, TokenHash};

impl Store {
    /// Keeps an authorization code, and notes its grant; says whether the
    /// session that it was given in is still there. If not, nothing is kept.
    pub async fn insert_code(
        &self,
        code: &StoredCode,
        audit: Option<&PendingAudit>,
    ) -> Result<bool, StoreError> {
        let write = self.batch.write_audited(
            code.clone(),
            |tx, code| Box::pin(insert(tx, code)),
            (audit, |kept| *kept),
        );
        write.await
    }

    /// The authorization code of this hash, spent or not.
    pub async fn code(&self, hash: TokenHash) -> Result<Option<StoredCode>, StoreError> {
        let row = sql("SELECT used, expires_ms, doc FROM codes WHERE hash = $1")
            .bind(hash)
            .one(&self.database)
            .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        Ok(Some(StoredCode {
            hash,
            authorization: row.doc("doc")?,
            expires_ms: row.int("expires_ms")?,
            used: row.flag("used")?,
        }))
    }

    /// Spends an authorization code and keeps what it gives: once, and never
    /// again. A second time revokes, until `revoked_until_ms`, what the first
    /// one gave.
    pub async fn redeem_code(
        &self,
        hash: TokenHash,
        refresh: Option<&StoredRefresh>,
        access: Option<&StoredAccess>,
        revoked_until_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<Redemption, StoreError> {
        let of = (hash, refresh.cloned(), access.cloned(), revoked_until_ms);
        let write = self.batch.write_audited(
            of,
            |tx, (hash, refresh, access, until_ms)| {
                let (refresh, access) = (refresh.as_ref(), access.as_ref());
                Box::pin(redeem(tx, *hash, refresh, access, *until_ms))
            },
            (audit, |outcome| *outcome == Redemption::Done),
        );
        write.await
    }
}

/// Says whether the session that it was given in is still there.
async fn insert(tx: &mut Tx, code: &StoredCode) -> Result<bool, StoreError> {
    let grant = &code.authorization.grant;
    if !sessions::note_grant(tx, grant, code.expires_ms).await? {
        return Ok(false);
    }
    sql(
        "INSERT INTO codes (hash, user_id, realm, client_id, used, expires_ms, doc, sid)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(code.hash)
    .bind(grant.user_id.to_string())
    .bind(&grant.realm)
    .bind(&grant.client_id)
    .bind(code.used)
    .bind(code.expires_ms)
    .bind(write_doc(&code.authorization)?)
    .bind(grant.sid.as_ref())
    .run(tx)
    .await?;
    Ok(true)
}

/// The conditional update decides: of two exchanges at once, exactly one finds
/// the code unused.
async fn redeem(
    tx: &mut Tx,
    hash: TokenHash,
    refresh: Option<&StoredRefresh>,
    access: Option<&StoredAccess>,
    revoked_until_ms: i64,
) -> Result<Redemption, StoreError> {
    let taken = sql("UPDATE codes SET used = 1 WHERE hash = $1 AND used = 0")
        .bind(hash)
        .run(tx)
        .await?;
    if taken == 1 {
        tokens::insert(tx, refresh, access).await?;
        return Ok(Redemption::Done);
    }
    let row = sql("SELECT doc FROM codes WHERE hash = $1")
        .bind(hash)
        .one(&mut *tx)
        .await?;
    let Some(row) = row else {
        return Ok(Redemption::Gone);
    };
    let authorization: Authorization = row.doc("doc")?;
    let grant_id = authorization.grant.id;
    tokens::revoke(tx, &grant_id, revoked_until_ms).await?;
    Ok(Redemption::Replayed(grant_id))
}
