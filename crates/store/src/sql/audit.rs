//! The audit log: appended to, read, and cut off at its old end.

use serde_json::{Map, Value};

use super::database::Database;
use super::insertion::insert_all;
use super::statement::{Builder, sql};
use super::tx::Tx;
use super::write_doc;
use crate::{Store, StoreError};
use doorward_core::model::audit::{AuditQuery, AuditRecord, AuditUser, audit_id};

/// Most characters of a text that records are found by; longer than names are.
const SOUGHT: usize = 300;

impl Store {
    /// Appends records to the audit log. One that it has already is not there
    /// twice.
    pub async fn append_audit(&self, records: Vec<AuditRecord>) -> Result<(), StoreError> {
        let write = self
            .batch
            .write(records, |tx, records| Box::pin(append_all(tx, records)));
        write.await
    }

    /// The records of the audit log that fit, as they are shown: in the order of
    /// time, or the newest first.
    pub async fn audit(&self, query: &AuditQuery) -> Result<Vec<Map<String, Value>>, StoreError> {
        page(&self.database, query).await
    }

    /// Removes records of the audit log from before `before_ms`, at most `limit`;
    /// says how many went.
    pub async fn sweep_audit(&self, before_ms: i64, limit: u32) -> Result<u64, StoreError> {
        let mut tx = self.begin().await?;
        let gone = sweep(&mut tx, before_ms, limit).await?;
        tx.commit().await?;
        Ok(gone)
    }
}

pub(super) async fn append(tx: &mut Tx, record: &AuditRecord) -> Result<(), StoreError> {
    append_all(tx, std::slice::from_ref(record)).await
}

/// Appends records, many a statement.
pub(super) async fn append_all(tx: &mut Tx, records: &[AuditRecord]) -> Result<(), StoreError> {
    let head = "INSERT INTO audit
        (id, kind, realm, user_id, user_name, client_id, address, failed, doc) VALUES";
    let row = |record: &AuditRecord| {
        Ok([
            record.id.into(),
            record.kind.as_str().into(),
            stored(record.realm.as_deref()).into(),
            record.user_id.into(),
            stored(record.user_name.as_deref()).into(),
            stored(record.client_id.as_deref()).into(),
            stored(record.address.as_deref()).into(),
            record.failed.into(),
            write_doc(&record.doc)?.into(),
        ])
    };
    insert_all(tx, head, records, row, " ON CONFLICT (id) DO NOTHING").await
}

/// A record is never refused for the sake of a text in it, however long that is:
/// those that come after it would wait for ever.
fn stored(text: Option<&str>) -> Option<String> {
    let text = text?.chars().take(SOUGHT);
    Some(
        text.map(|c| if c == '\0' { '\u{fffd}' } else { c })
            .collect(),
    )
}

async fn page(
    database: &Database,
    query: &AuditQuery,
) -> Result<Vec<Map<String, Value>>, StoreError> {
    let mut wanted = Builder::new("SELECT doc FROM audit WHERE 1 = 1");
    for (column, value) in [
        (" AND realm = ", &query.realm),
        (" AND client_id = ", &query.client_id),
        (" AND address = ", &query.address),
    ] {
        if let Some(value) = value {
            wanted.push(column).push_bind(value);
        }
    }
    match &query.user {
        Some(AuditUser::Id(id)) => wanted.push(" AND user_id = ").push_bind(*id),
        Some(AuditUser::Name(name)) => wanted.push(" AND user_name = ").push_bind(name),
        None => &mut wanted,
    };
    match query.failed {
        // As the index says it.
        Some(true) => wanted.push(" AND failed = 1"),
        Some(false) => wanted.push(" AND failed = 0"),
        None => &mut wanted,
    };
    push_kinds(&mut wanted, query);
    push_time(&mut wanted, query);
    wanted.push(if query.newest_first {
        " ORDER BY id DESC LIMIT "
    } else {
        " ORDER BY id LIMIT "
    });
    wanted.push_bind(query.limit);
    let rows = wanted.build().all(database).await?;
    rows.iter().map(|row| row.doc("doc")).collect()
}

fn push_kinds(wanted: &mut Builder, query: &AuditQuery) {
    let Some((first, others)) = query.kinds.split_first() else {
        return;
    };
    if others.is_empty() {
        wanted.push(" AND kind = ").push_bind(first.as_str());
        return;
    }
    wanted.push(" AND kind IN (").push_bind(first.as_str());
    for kind in others {
        wanted.push(", ").push_bind(kind.as_str());
    }
    wanted.push(")");
}

/// Times are bounds of identifiers: the lowest ones that they could have.
fn push_time(wanted: &mut Builder, query: &AuditQuery) {
    if let Some(since_ms) = query.since_ms {
        wanted.push(" AND id >= ").push_bind(lowest(since_ms));
    }
    if let Some(until_ms) = query.until_ms {
        wanted.push(" AND id < ").push_bind(lowest(until_ms));
    }
    if let Some(after) = query.after {
        wanted.push(if query.newest_first {
            " AND id < "
        } else {
            " AND id > "
        });
        wanted.push_bind(after);
    }
}

fn lowest(at_ms: i64) -> uuid::Uuid {
    audit_id(at_ms, 0, [0; 8])
}

async fn sweep(tx: &mut Tx, before_ms: i64, limit: u32) -> Result<u64, StoreError> {
    sql("DELETE FROM audit WHERE id IN
           (SELECT id FROM audit WHERE id < $1 ORDER BY id LIMIT $2)")
    .bind(lowest(before_ms))
    .bind(limit)
    .run(tx)
    .await
}
