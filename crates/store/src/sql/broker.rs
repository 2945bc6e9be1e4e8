//! The token broker's records.

use std::collections::HashMap;

use super::{Builder, Database, Row, Tx, damaged, sql, write_doc};
use crate::{Store, StoreError};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::broker::{ClientRecords, Kind, Record, Removal};
use doorward_core::model::client::ClientSecret;
use doorward_core::model::user::Owner;

/// The member of applications that says up to when their tokens are revoked.
const REVOKED: &str = "tokens_revoked_ms";

impl Store {
    /// At most `limit` of the token broker's records of a kind, in ascending
    /// order of their identifiers, from the one after `after` on.
    pub async fn broker_records(
        &self,
        kind: Kind,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Record>, StoreError> {
        let rows = sql("SELECT * FROM broker_records WHERE kind = $1 AND id > $2
             ORDER BY id LIMIT $3")
        .bind(kind.as_str())
        .bind(after.unwrap_or_default())
        .bind(limit)
        .all(&self.database)
        .await?;
        rows.iter().map(|row| read(kind, row)).collect()
    }

    /// The token broker's record of this kind and identifier.
    pub async fn broker_record(&self, kind: Kind, id: &str) -> Result<Option<Record>, StoreError> {
        one(&self.database, kind, id).await
    }

    /// The application of this consumer key, with its developer and products.
    pub async fn broker_client(&self, key: &str) -> Result<Option<ClientRecords>, StoreError> {
        let row = sql("SELECT * FROM broker_records WHERE key = $1")
            .bind(key)
            .one(&self.database)
            .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let application = read(Kind::Application, &row)?;
        let developer = match &application.parent {
            Some(parent) => one(&self.database, Kind::Developer, parent).await?,
            None => None,
        };
        let mut products = Vec::new();
        let named: Vec<&str> = products_of(&application).collect();
        if let [first, names @ ..] = named.as_slice() {
            let mut select = Builder::new("SELECT * FROM broker_records WHERE kind = ");
            select.push_bind(Kind::Product.as_str());
            select.push(" AND id IN (").push_bind(*first);
            for name in names {
                select.push(", ").push_bind(*name);
            }
            select.push(")");
            let rows = select.build().all(&self.database).await?;
            let read = rows.iter().map(|row| read(Kind::Product, row));
            products = read.collect::<Result<_, _>>()?;
        }
        Ok(Some(ClientRecords {
            application,
            developer,
            products,
        }))
    }

    /// Adds a record of the token broker.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when its identifier or its key is another's;
    /// [`StoreError::Absent`] for an application without developer or product.
    pub async fn insert_broker_record(
        &self,
        record: &Record,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        insert(&mut tx, record).await?;
        tx.commit().await
    }

    /// Replaces a record of the token broker that was last changed at `seen_ms`;
    /// `record.updated_ms` must be greater.
    ///
    /// # Errors
    /// [`StoreError::FileOwned`] for one that the file declares;
    /// [`StoreError::Conflict`] when it was changed meanwhile, or is gone;
    /// [`StoreError::Taken`] when its key is another's; [`StoreError::Absent`] for
    /// an application that newly refers to what is not there.
    pub async fn update_broker_record(
        &self,
        record: &Record,
        seen_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        update(&mut tx, record, seen_ms).await?;
        tx.commit().await
    }

    /// Removes a record of the token broker. Who names when it was last changed (`seen_ms`)
    /// removes it if it was not changed since.
    ///
    /// # Errors
    /// [`StoreError::FileOwned`] for one that the file declares.
    pub async fn delete_broker_record(
        &self,
        (kind, id): (Kind, &str),
        seen_ms: Option<i64>,
        audit: Option<&PendingAudit>,
    ) -> Result<Removal, StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        let removal = delete(&mut tx, (kind, id), seen_ms).await?;
        if removal == Removal::Done {
            tx.commit().await?;
        }
        Ok(removal)
    }

    /// Revokes all tokens that an application, by its identifier, got of the token
    /// broker up to now, whoever owns its record; says whether it was there.
    pub async fn revoke_broker_client(
        &self,
        id: &str,
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        let there = revoke_all(&mut tx, id, now_ms).await?;
        if there {
            tx.commit().await?;
        }
        Ok(there)
    }

    /// Makes the store hold exactly these of the token broker's records owned by
    /// the file. Tokens that were revoked stay so.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when a name belongs to a record of the store.
    pub async fn sync_broker(&self, declared: Vec<Record>, now_ms: i64) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        sync(&mut tx, declared, now_ms).await?;
        tx.commit().await
    }
}

fn read(kind: Kind, row: &Row) -> Result<Record, StoreError> {
    let owner = row.text("owner")?;
    let (salt, digest) = (row.opt_bytes("salt")?, row.opt_bytes("digest")?);
    Ok(Record {
        kind,
        id: row.text("id")?,
        key: row.opt_text("key")?,
        parent: row.opt_text("parent")?,
        doc: row.doc("doc")?,
        secret: match (salt, digest) {
            (Some(salt), Some(digest)) => ClientSecret::Digest { salt, digest },
            _ => ClientSecret::None,
        },
        owner: Owner::parse(&owner).ok_or_else(|| damaged(format!("owner `{owner}`")))?,
        created_ms: row.int("created_ms")?,
        updated_ms: row.int("updated_ms")?,
        made_up: false,
    })
}

/// The columns of a secret. Only a digest is ever kept.
fn secret_columns(secret: &ClientSecret) -> (Option<&[u8]>, Option<&[u8]>) {
    match secret {
        ClientSecret::Digest { salt, digest } => (Some(salt), Some(digest)),
        ClientSecret::None | ClientSecret::Plain(_) => (None, None),
    }
}

async fn one(readers: &Database, kind: Kind, id: &str) -> Result<Option<Record>, StoreError> {
    let row = sql("SELECT * FROM broker_records WHERE kind = $1 AND id = $2")
        .bind(kind.as_str())
        .bind(id)
        .one(readers)
        .await?;
    row.map(|row| read(kind, &row)).transpose()
}

async fn insert(tx: &mut Tx, record: &Record) -> Result<(), StoreError> {
    check_references(tx, record, None).await?;
    put(tx, record).await
}

/// Refuses an application whose developer, or a product of which, there is not;
/// what `old` names already may be gone.
async fn check_references(
    tx: &mut Tx,
    record: &Record,
    old: Option<&Record>,
) -> Result<(), StoreError> {
    let developer = record.parent.as_deref();
    let known = |id: &str| old.is_some_and(|old| products_of(old).any(|one| one == id));
    let developer = developer.filter(|id| old.and_then(|old| old.parent.as_deref()) != Some(id));
    let developer = developer.map(|id| (Kind::Developer, id));
    let products = products_of(record).filter(|id| !known(id));
    let wanted = products.map(|id| (Kind::Product, id)).chain(developer);
    for (kind, id) in wanted {
        let found = sql("SELECT id FROM broker_records WHERE kind = $1 AND id = $2")
            .bind(kind.as_str())
            .bind(id)
            .one(&mut *tx)
            .await?;
        if found.is_none() {
            let id = id.to_owned();
            return Err(StoreError::Absent(kind.as_str(), id));
        }
    }
    Ok(())
}

/// The names of an application's products.
fn products_of(record: &Record) -> impl Iterator<Item = &str> {
    let of_application = record.kind == Kind::Application;
    let names = record.doc.get("products").filter(|_| of_application);
    let names = names.and_then(|names| names.as_array());
    names.into_iter().flatten().filter_map(|name| name.as_str())
}

async fn put(tx: &mut Tx, record: &Record) -> Result<(), StoreError> {
    let (salt, digest) = secret_columns(&record.secret);
    sql("INSERT INTO broker_records
           (kind, id, key, parent, owner, salt, digest, created_ms, updated_ms, doc)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)")
    .bind(record.kind.as_str())
    .bind(&record.id)
    .bind(record.key.as_deref())
    .bind(record.parent.as_deref())
    .bind(record.owner.as_str())
    .bind(salt)
    .bind(digest)
    .bind(record.created_ms)
    .bind(record.updated_ms)
    .bind(write_doc(&record.doc)?)
    .run_unless_taken(tx, record.key.as_deref().unwrap_or(&record.id))
    .await
    .map(drop)
}

async fn update(tx: &mut Tx, record: &Record, seen_ms: i64) -> Result<(), StoreError> {
    refuse_file_owned(tx, record.kind, &record.id).await?;
    let old = sql("SELECT * FROM broker_records WHERE kind = $1 AND id = $2")
        .bind(record.kind.as_str())
        .bind(&record.id)
        .one(&mut *tx)
        .await?;
    let old = old.map(|row| read(record.kind, &row)).transpose()?;
    check_references(tx, record, old.as_ref()).await?;
    let (salt, digest) = secret_columns(&record.secret);
    let done = sql("UPDATE broker_records
            SET key = $1, parent = $2, salt = $3, digest = $4, updated_ms = $5, doc = $6
          WHERE kind = $7 AND id = $8 AND updated_ms = $9")
    .bind(record.key.as_deref())
    .bind(record.parent.as_deref())
    .bind(salt)
    .bind(digest)
    .bind(record.updated_ms)
    .bind(write_doc(&record.doc)?)
    .bind(record.kind.as_str())
    .bind(&record.id)
    .bind(seen_ms)
    .run_unless_taken(tx, record.key.as_deref().unwrap_or(&record.id))
    .await?;
    if done == 0 {
        return Err(StoreError::Conflict(record.id.clone()));
    }
    Ok(())
}

/// Notes that all tokens of an application up to now are revoked, whoever owns
/// its record: that is no change of what it was declared as.
async fn revoke_all(tx: &mut Tx, id: &str, now_ms: i64) -> Result<bool, StoreError> {
    let kind = Kind::Application;
    let row = sql("SELECT * FROM broker_records WHERE kind = $1 AND id = $2")
        .bind(kind.as_str())
        .bind(id)
        .one(&mut *tx)
        .await?;
    let Some(row) = row else {
        return Ok(false);
    };
    let mut record = read(kind, &row)?;
    let last_ms = revoked_ms(&record).max(now_ms);
    record.doc.insert(REVOKED.to_owned(), last_ms.into());
    // Whoever changes the record meanwhile does so with this.
    sql("UPDATE broker_records SET doc = $1, updated_ms = $2 WHERE kind = $3 AND id = $4")
        .bind(write_doc(&record.doc)?)
        .bind(now_ms.max(record.updated_ms + 1))
        .bind(kind.as_str())
        .bind(id)
        .run(tx)
        .await
        .map(|changed| changed > 0)
}

/// Up to when the tokens of an application are revoked.
fn revoked_ms(record: &Record) -> i64 {
    let revoked = record.doc.get(REVOKED);
    revoked.and_then(|ms| ms.as_i64()).unwrap_or_default()
}

/// A developer with applications stays: their clients would lose theirs.
async fn delete(
    tx: &mut Tx,
    (kind, id): (Kind, &str),
    seen_ms: Option<i64>,
) -> Result<Removal, StoreError> {
    refuse_file_owned(tx, kind, id).await?;
    let row = sql("SELECT updated_ms FROM broker_records WHERE kind = $1 AND id = $2")
        .bind(kind.as_str())
        .bind(id)
        .one(&mut *tx)
        .await?;
    let Some(row) = row else {
        return Ok(Removal::Missing);
    };
    let updated_ms = row.int("updated_ms")?;
    if seen_ms.is_some_and(|seen_ms| seen_ms != updated_ms) {
        return Ok(Removal::Stale);
    }
    if kind == Kind::Developer {
        let application = sql("SELECT id FROM broker_records WHERE parent = $1 LIMIT 1")
            .bind(id)
            .one(&mut *tx)
            .await?;
        if application.is_some() {
            return Ok(Removal::InUse);
        }
    }
    remove(tx, kind, id).await?;
    Ok(Removal::Done)
}

async fn remove(tx: &mut Tx, kind: Kind, id: &str) -> Result<u64, StoreError> {
    sql("DELETE FROM broker_records WHERE kind = $1 AND id = $2")
        .bind(kind.as_str())
        .bind(id)
        .run(tx)
        .await
}

async fn refuse_file_owned(tx: &mut Tx, kind: Kind, id: &str) -> Result<(), StoreError> {
    let row = sql("SELECT owner FROM broker_records WHERE kind = $1 AND id = $2")
        .bind(kind.as_str())
        .bind(id)
        .one(&mut *tx)
        .await?;
    match row.map(|row| row.text("owner")).transpose()? {
        Some(owner) if owner == Owner::File.as_str() => {
            Err(StoreError::FileOwned(format!("{} {id}", kind.as_str())))
        }
        _ => Ok(()),
    }
}

/// Makes the records owned by the file exactly `declared`. An application that
/// is known by its key stays the same one.
async fn sync(tx: &mut Tx, declared: Vec<Record>, now_ms: i64) -> Result<(), StoreError> {
    let mut known = HashMap::new();
    for kind in [Kind::Product, Kind::Developer, Kind::Application] {
        let rows = sql("SELECT * FROM broker_records WHERE owner = 'file' AND kind = $1")
            .bind(kind.as_str())
            .all(&mut *tx)
            .await?;
        for row in &rows {
            let record = read(kind, row)?;
            remove(tx, kind, &record.id).await?;
            let name = record.key.clone().unwrap_or_else(|| record.id.clone());
            known.insert((kind, name), record);
        }
    }
    for mut record in declared {
        (record.created_ms, record.updated_ms) = (now_ms, now_ms);
        record.owner = Owner::File;
        let name = record.key.clone().unwrap_or_else(|| record.id.clone());
        if let Some(old) = known.remove(&(record.kind, name)) {
            record.created_ms = old.created_ms;
            record.keep_identifiers(&old);
            // What was revoked stays so, whatever the file says.
            let revoked_ms = revoked_ms(&record).max(revoked_ms(&old));
            if record.kind == Kind::Application {
                record.doc.insert(REVOKED.to_owned(), revoked_ms.into());
            }
        }
        put(tx, &record).await?;
    }
    Ok(())
}
