//! Filling a store with an export: all of it in one transaction, or nothing.

use std::io::BufRead;

use super::format::{FORMAT, Head, Line, Reader};
use super::tables::{DERIVED, TABLES, Table};
use super::{Builder, Rows, Store, TransferError, Tx, users};
use crate::StoreError;
use crate::sql::bind::Value;
use crate::sql::migrate;

/// Values in one statement: databases bind at most 32,766.
const BOUND: usize = 4_000;

impl Store {
    /// Puts an export in the place of what the store holds, which must be
    /// nothing unless `replace`; tells `progress` how many rows were read since
    /// the last time.
    ///
    /// # Errors
    /// [`TransferError`]; then nothing has changed.
    pub async fn import(
        &self,
        input: &mut (dyn BufRead + Send),
        replace: bool,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<Rows, TransferError> {
        let (mut reader, head) = Reader::open(input)?;
        fits(&head)?;
        let mut tx = self.database.begin().await?;
        tx.without_limits().await?;
        tx.expect_many().await?;
        if !replace {
            is_empty(&mut tx).await?;
        }
        clear(&mut tx).await?;
        let mut filling = RowBuffer::default();
        let rows = loop {
            match reader.next()? {
                Line::Section(table, columns) => {
                    filling.write(&mut tx, reader.number).await?;
                    filling.begin(table, columns);
                }
                Line::Row(values) => {
                    filling.rows.push(values);
                    if filling.is_full() {
                        progress(filling.rows.len() as u64);
                        filling.write(&mut tx, reader.number).await?;
                    }
                }
                Line::End(rows) => {
                    progress(filling.rows.len() as u64);
                    filling.write(&mut tx, reader.number).await?;
                    break rows;
                }
            }
        };
        for table in TABLES.iter().filter(|table| table.numbered) {
            tx.number_on(table.name).await?;
        }
        tx.commit().await?;
        self.changed(Ok(()))?;
        Ok(rows)
    }
}

fn fits(head: &Head) -> Result<(), TransferError> {
    let version = || head.version.clone();
    if head.format > FORMAT || head.schema > migrate::CURRENT {
        return Err(TransferError::Newer(version()));
    }
    if head.schema < migrate::CURRENT {
        return Err(TransferError::Older(version()));
    }
    Ok(())
}

/// Whether there is nothing but what a new store has: the top-level realm.
async fn is_empty(tx: &mut Tx) -> Result<(), TransferError> {
    for table in TABLES {
        let mut select = Builder::new("SELECT 1 AS one FROM ");
        select.push(table.name);
        if table.name == "realms" {
            select.push(" WHERE path <> '/'");
        }
        select.push(" LIMIT 1");
        if select.build().one(&mut *tx).await?.is_some() {
            return Err(TransferError::NotEmpty(table.name));
        }
    }
    Ok(())
}

async fn clear(tx: &mut Tx) -> Result<(), StoreError> {
    for table in TABLES.iter().rev() {
        let mut delete = Builder::new("DELETE FROM ");
        delete.push(table.name);
        delete.build().run(tx).await?;
    }
    for table in DERIVED {
        let mut delete = Builder::new("DELETE FROM ");
        delete.push(table);
        delete.build().run(tx).await?;
    }
    Ok(())
}

/// Rows that go into their table together.
#[derive(Default)]
struct RowBuffer {
    table: Option<&'static Table>,
    columns: Vec<usize>,
    rows: Vec<Vec<Value>>,
}

impl RowBuffer {
    fn begin(&mut self, table: &'static Table, columns: Vec<usize>) {
        self.table = Some(table);
        self.columns = columns;
    }

    fn is_full(&self) -> bool {
        (self.rows.len() + 1) * self.columns.len() > BOUND
    }

    /// Writes the rows that wait; `line` is that of the last one.
    async fn write(&mut self, tx: &mut Tx, line: u64) -> Result<(), TransferError> {
        let rows = std::mem::take(&mut self.rows);
        let Some(table) = self.table.filter(|_| !rows.is_empty()) else {
            return Ok(());
        };
        let wrong = |error: StoreError| TransferError::Line {
            line,
            reason: format!("or one of the {} before it: {error}", rows.len()),
        };
        self.insert(table, &rows).run(tx).await.map_err(wrong)?;
        if table.name == "users" {
            for row in &rows {
                users::index_of(tx, &self.cells(table, row))
                    .await
                    .map_err(wrong)?;
            }
        }
        Ok(())
    }

    fn insert(&self, table: &Table, rows: &[Vec<Value>]) -> crate::sql::statement::Statement {
        let mut insert = Builder::new("INSERT INTO ");
        insert.push(table.name).push(" (");
        for (at, column) in self.columns.iter().enumerate() {
            insert.push(if at == 0 { "" } else { ", " });
            insert.push(table.columns[*column].0);
        }
        insert.push(") VALUES ");
        for (at, row) in rows.iter().enumerate() {
            insert.push(if at == 0 { "(" } else { ", (" });
            for (at, value) in row.iter().enumerate() {
                insert.push(if at == 0 { "" } else { ", " });
                insert.push_bind(value.clone());
            }
            insert.push(")");
        }
        insert.build()
    }

    /// A row's texts by the names of their columns.
    fn cells<'r>(&self, table: &Table, row: &'r [Value]) -> Vec<(&'static str, &'r str)> {
        let named = self.columns.iter().map(|column| table.columns[*column].0);
        let texts = named.zip(row).filter_map(|(name, value)| match value {
            Value::Text(Some(text)) => Some((name, text.as_str())),
            _ => None,
        });
        texts.collect()
    }
}
