//! What devices asked for, until they got it.

use super::{Row, Tx, damaged, parse_doc, sql, tokens, write_doc};
use crate::{Store, StoreError};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::device::{Poll, StoredDevice, Verdict};
use doorward_core::model::grant::{StoredAccess, StoredRefresh, TokenHash};

const PENDING: i64 = 0;
const DENIED: i64 = 1;
const APPROVED: i64 = 2;

impl Store {
    /// Keeps what a device asks for, unless its client has `most` such requests
    /// already that are still good; says whether it is kept.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when the user code is another device's.
    pub async fn insert_device(
        &self,
        device: &StoredDevice,
        most: u32,
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<bool, StoreError> {
        let of = (device.clone(), most, now_ms);
        let write = self.batch.write_audited(
            of,
            |tx, (device, most, now_ms)| Box::pin(insert(tx, device, *most, *now_ms)),
            (audit, |fits| *fits),
        );
        write.await
    }

    /// The device's request of this device code, also a while after it expired.
    pub async fn device(&self, hash: TokenHash) -> Result<Option<StoredDevice>, StoreError> {
        let row = sql("SELECT * FROM devices WHERE hash = $1").bind(hash);
        row.one(&self.database)
            .await?
            .as_ref()
            .map(read)
            .transpose()
    }

    /// The device's request of this user code, also a while after it expired.
    pub async fn device_of_user(
        &self,
        user_code: TokenHash,
    ) -> Result<Option<StoredDevice>, StoreError> {
        let row = sql("SELECT * FROM devices WHERE user_code = $1").bind(user_code);
        row.one(&self.database)
            .await?
            .as_ref()
            .map(read)
            .transpose()
    }

    /// Notes that a device asks at `now_ms`, which may do so every `interval_s`
    /// seconds at first; says whether that is too soon. Then it has to wait
    /// longer from now on (RFC 8628 §3.5), at every node.
    pub async fn poll_device(
        &self,
        hash: TokenHash,
        interval_s: u32,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        let of = (hash, interval_s, now_ms);
        let write = self.batch.write(of, |tx, (hash, interval_s, now_ms)| {
            Box::pin(poll(tx, *hash, *interval_s, *now_ms))
        });
        write.await
    }

    /// Keeps the user's verdict on a device's request, if it is the first one
    /// and in time; says whether it is. Of two at once, one counts.
    pub async fn decide_device(
        &self,
        user_code: TokenHash,
        verdict: &Verdict,
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<bool, StoreError> {
        let of = (user_code, verdict.clone(), now_ms);
        let write = self.batch.write_audited(
            of,
            |tx, (user_code, verdict, now_ms)| Box::pin(decide(tx, *user_code, verdict, *now_ms)),
            (audit, |decided| *decided),
        );
        write.await
    }

    /// Forgets an approved device's request and keeps what it gives: once, and
    /// never again. Says whether this was the time.
    pub async fn redeem_device(
        &self,
        hash: TokenHash,
        refresh: Option<&StoredRefresh>,
        access: Option<&StoredAccess>,
        audit: Option<&PendingAudit>,
    ) -> Result<bool, StoreError> {
        let of = (hash, refresh.cloned(), access.cloned());
        let write = self.batch.write_audited(
            of,
            |tx, (hash, refresh, access)| {
                Box::pin(redeem(tx, *hash, refresh.as_ref(), access.as_ref()))
            },
            (audit, |given| *given),
        );
        write.await
    }
}

/// Says whether the client had fewer than `most` that are still good.
async fn insert(
    tx: &mut Tx,
    device: &StoredDevice,
    most: u32,
    now_ms: i64,
) -> Result<bool, StoreError> {
    let live = sql(
        "SELECT count(*) AS live FROM devices WHERE realm = $1 AND client_id = $2 AND expires_ms > $3",
    )
    .bind(&device.realm)
    .bind(&device.client_id)
    .bind(now_ms)
    .one(&mut *tx).await?;
    if live.map_or(Ok(0), |row| row.int("live"))? >= i64::from(most) {
        return Ok(false);
    }
    sql(
        "INSERT INTO devices (hash, user_code, realm, client_id, verdict, expires_ms, doc)
         VALUES ($1, $2, $3, $4, 0, $5, $6)",
    )
    .bind(device.hash)
    .bind(device.user_code)
    .bind(&device.realm)
    .bind(&device.client_id)
    .bind(device.expires_ms)
    .bind(write_doc(&device.request)?)
    .run_unless_taken(tx, "the user code")
    .await?;
    Ok(true)
}

pub(super) fn read(row: &Row) -> Result<StoredDevice, StoreError> {
    let given = row.opt_text("given")?;
    Ok(StoredDevice {
        hash: row.hash("hash")?,
        user_code: row.hash("user_code")?,
        realm: row.text("realm")?,
        client_id: row.text("client_id")?,
        request: row.doc("doc")?,
        verdict: match (row.int("verdict")?, given) {
            (PENDING, _) => Verdict::Pending,
            (DENIED, _) => Verdict::Denied,
            (APPROVED, Some(given)) => Verdict::Approved(parse_doc(&given)?),
            _ => return Err(damaged("a device without its grant")),
        },
        expires_ms: row.int("expires_ms")?,
    })
}

/// Of two polls at once, one finds what the other wrote.
async fn poll(
    tx: &mut Tx,
    hash: TokenHash,
    interval_s: u32,
    now_ms: i64,
) -> Result<bool, StoreError> {
    let row = sql("SELECT polled_ms, interval_s FROM devices WHERE hash = $1").bind(hash);
    let Some(row) = row.one(&mut *tx).await? else {
        return Ok(false);
    };
    let last = Poll {
        last_ms: row.opt_int("polled_ms")?,
        interval_s: row.opt_int("interval_s")?.unwrap_or(interval_s.into()),
    };
    let (next, too_soon) = last.follow(now_ms);
    sql("UPDATE devices SET polled_ms = $1, interval_s = $2 WHERE hash = $3")
        .bind(next.last_ms)
        .bind(next.interval_s)
        .bind(hash)
        .run(tx)
        .await?;
    Ok(too_soon)
}

/// The conditional update decides: of two verdicts at once, one counts.
async fn decide(
    tx: &mut Tx,
    user_code: TokenHash,
    verdict: &Verdict,
    now_ms: i64,
) -> Result<bool, StoreError> {
    let (number, grant) = match verdict {
        Verdict::Pending => return Ok(false),
        Verdict::Denied => (DENIED, None),
        Verdict::Approved(grant) => (APPROVED, Some(grant)),
    };
    let done = sql("UPDATE devices SET verdict = $1, given = $2, user_id = $3
         WHERE user_code = $4 AND verdict = 0 AND expires_ms > $5")
    .bind(number)
    .bind(grant.map(write_doc).transpose()?)
    .bind(grant.map(|grant| grant.user_id.to_string()))
    .bind(user_code)
    .bind(now_ms)
    .run(tx)
    .await?;
    Ok(done == 1)
}

/// What was given is gone from here, so it is given once.
async fn redeem(
    tx: &mut Tx,
    hash: TokenHash,
    refresh: Option<&StoredRefresh>,
    access: Option<&StoredAccess>,
) -> Result<bool, StoreError> {
    let taken = sql("DELETE FROM devices WHERE hash = $1 AND verdict = 2")
        .bind(hash)
        .run(tx)
        .await?;
    if taken != 1 {
        return Ok(false);
    }
    tokens::insert(tx, refresh, access).await?;
    Ok(true)
}
