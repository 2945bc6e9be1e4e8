//! Writing the whole store.

use std::io::Write;

use super::format::{FORMAT, Head, Lines};
use super::tables::{AUDIT, TABLES, Table, Type};
use super::{Builder, Rows, Store, TransferError, Tx};
use crate::StoreError;
use crate::sql::bind::Value;
use crate::sql::migrate;
use crate::sql::row::Row;

/// Rows in memory at once.
const PIECE: u32 = 1000;

impl Store {
    /// Writes everything that the store holds at one moment, with the audit log
    /// if `audit`; tells `progress` how many rows were written since the last
    /// time. Others write meanwhile as they like.
    ///
    /// # Errors
    /// [`TransferError::File`] when `out` takes no more; else those of the store.
    pub async fn export(
        &self,
        out: &mut (dyn Write + Send),
        audit: bool,
        now_ms: i64,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<Rows, TransferError> {
        let mut tx = self.database.snapshot().await?;
        tx.without_limits().await?;
        let mut lines = Lines::new(out);
        lines.head(&Head {
            doorward: "store".to_owned(),
            format: FORMAT,
            schema: migrate::CURRENT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            time_ms: now_ms,
        })?;
        for table in TABLES.iter().filter(|table| audit || table.name != AUDIT) {
            lines.section(table)?;
            let mut last: Option<Row> = None;
            loop {
                let rows = piece(&mut tx, table, last.as_ref(), PIECE).await?;
                for row in &rows {
                    lines.row(table, row)?;
                }
                progress(rows.len() as u64);
                if rows.len() < PIECE as usize {
                    break;
                }
                last = rows.into_iter().last();
            }
        }
        lines.foot()
    }
}

/// The rows of a table in the order of its key, at most `limit`, behind `last`.
pub(in crate::sql) async fn piece(
    tx: &mut Tx,
    table: &Table,
    last: Option<&Row>,
    limit: u32,
) -> Result<Vec<Row>, StoreError> {
    let mut select = Builder::new("SELECT ");
    for (at, (name, _)) in table.columns.iter().enumerate() {
        select.push(if at == 0 { "" } else { ", " }).push(name);
    }
    select.push(" FROM ").push(table.name);
    if let Some(last) = last {
        select.push(" WHERE (");
        push_keys(&mut select, table);
        select.push(") > (");
        for (at, (name, holds)) in table.columns[..table.key].iter().enumerate() {
            select.push(if at == 0 { "" } else { ", " });
            select.push_bind(key(last, name, *holds)?);
        }
        select.push(")");
    }
    select.push(" ORDER BY ");
    push_keys(&mut select, table);
    select.push(" LIMIT ").push_bind(limit);
    select.build().all(tx).await
}

fn push_keys(select: &mut Builder, table: &Table) {
    for (at, name) in table.keys().enumerate() {
        select.push(if at == 0 { "" } else { ", " }).push(name);
    }
}

fn key(row: &Row, name: &str, holds: Type) -> Result<Value, StoreError> {
    Ok(match holds {
        Type::Text => Value::Text(row.opt_text(name)?),
        Type::Int => Value::Int(row.opt_int(name)?),
        Type::Bytes => Value::Bytes(row.opt_bytes(name)?),
    })
}
