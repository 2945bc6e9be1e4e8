//! Authorization requests that are kept for clients.

use super::{Tx, sql, write_doc};
use crate::{Store, StoreError};
use doorward_core::model::authorization::StoredRequest;
use doorward_core::model::grant::TokenHash;

impl Store {
    /// Keeps an authorization request, unless more than `most_bytes` would be
    /// kept for its client then, also of those that are over and were not swept
    /// yet; says whether it is kept. One that is kept already lasts as long as
    /// the new one would.
    pub async fn keep_request(
        &self,
        request: &StoredRequest,
        most_bytes: u32,
    ) -> Result<bool, StoreError> {
        let of = (request.clone(), most_bytes);
        let write = self.batch.write(of, |tx, (request, most_bytes)| {
            Box::pin(keep(tx, request, *most_bytes))
        });
        write.await
    }

    /// The authorization request of this hash.
    pub async fn authorization_request(
        &self,
        hash: TokenHash,
    ) -> Result<Option<StoredRequest>, StoreError> {
        let row =
            sql("SELECT realm, client_id, begins_ms, ends_ms, doc FROM requests WHERE hash = $1")
                .bind(hash)
                .one(&self.database)
                .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        Ok(Some(StoredRequest {
            hash,
            realm: row.text("realm")?,
            client_id: row.text("client_id")?,
            begins_ms: row.int("begins_ms")?,
            ends_ms: row.int("ends_ms")?,
            kept: row.doc("doc")?,
        }))
    }

    /// Lets an authorization request last until `ends_ms` at least.
    pub async fn prolong_request(&self, hash: TokenHash, ends_ms: i64) -> Result<(), StoreError> {
        let write = self.batch.write((hash, ends_ms), |tx, (hash, ends_ms)| {
            Box::pin(prolong(tx, *hash, *ends_ms))
        });
        write.await
    }

    /// Removes an authorization request; says whether it was there. Of two who
    /// take it at once, one is told yes.
    pub async fn take_request(&self, hash: TokenHash) -> Result<bool, StoreError> {
        let write = self.batch.write(hash, |tx, hash| Box::pin(take(tx, *hash)));
        write.await
    }
}

/// One statement, so that no two at once exceed the limit together.
async fn keep(tx: &mut Tx, request: &StoredRequest, most_bytes: u32) -> Result<bool, StoreError> {
    let done = sql(
        "INSERT INTO requests (hash, realm, client_id, begins_ms, ends_ms, doc)
         SELECT $1, $2, $3, $4, $5, $6 WHERE NOT EXISTS
           (SELECT 1 FROM request_bytes
             WHERE realm = $2 AND client_id = $3 AND bytes + length($6) > $7)
         ON CONFLICT (hash) DO UPDATE SET
           begins_ms = CASE WHEN requests.begins_ms > excluded.begins_ms
                            THEN requests.begins_ms ELSE excluded.begins_ms END,
           ends_ms = CASE WHEN requests.ends_ms > excluded.ends_ms
                          THEN requests.ends_ms ELSE excluded.ends_ms END",
    )
    .bind(request.hash)
    .bind(&request.realm)
    .bind(&request.client_id)
    .bind(request.begins_ms)
    .bind(request.ends_ms)
    .bind(write_doc(&request.kept)?)
    .bind(most_bytes)
    .run(tx)
    .await?;
    Ok(done == 1)
}

async fn prolong(tx: &mut Tx, hash: TokenHash, ends_ms: i64) -> Result<(), StoreError> {
    sql("UPDATE requests SET ends_ms = $1 WHERE hash = $2 AND ends_ms < $1")
        .bind(ends_ms)
        .bind(hash)
        .run(tx)
        .await
        .map(drop)
}

/// Of two who take it at once, one finds it.
async fn take(tx: &mut Tx, hash: TokenHash) -> Result<bool, StoreError> {
    let done = sql("DELETE FROM requests WHERE hash = $1")
        .bind(hash)
        .run(tx)
        .await?;
    Ok(done == 1)
}
