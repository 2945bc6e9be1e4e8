//! Whether all that is stored makes sense: read only, beside whoever writes.

mod records;
mod references;
mod users;

use super::dialect::Dialect;
use super::transfer::piece;
use super::transfer::tables::{TABLES, Table, Type};
use super::{Builder, Row, Store, Tx, sql};
use crate::StoreError;
use doorward_core::hex;

/// Rows in memory at once.
const PIECE: u32 = 500;

/// Most findings of one kind in one table that are told.
const FINDINGS: u32 = 100;

/// Something that is wrong in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The table; of the file as a whole: `database`.
    pub table: &'static str,
    /// Which record.
    pub record: String,
    /// What is wrong with it.
    pub problem: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.table, self.record, self.problem)
    }
}

/// Where findings are told.
type Report<'a> = &'a mut (dyn FnMut(Finding) + Send);

impl Store {
    /// Looks at everything that is stored at one moment, and tells what is wrong;
    /// `progress` hears how many records were read since the last time. Gives
    /// the number of records.
    ///
    /// # Errors
    /// When the database can't be read.
    pub async fn check(
        &self,
        tell: &mut (dyn FnMut(Finding) + Send),
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<u64, StoreError> {
        let mut tx = self.database.snapshot().await?;
        tx.without_limits().await?;
        if tx.dialect() == Dialect::Sqlite {
            integrity(&mut tx, tell).await?;
        }
        let mut all = 0;
        for table in TABLES {
            let mut last: Option<Row> = None;
            loop {
                let rows = piece(&mut tx, table, last.as_ref(), PIECE).await?;
                for row in &rows {
                    if let Err(error) = records::parse(table.name, row) {
                        tell(Finding {
                            table: table.name,
                            record: name(table, row),
                            problem: error.to_string(),
                        });
                    }
                }
                if table.name == "users" {
                    users::index_agrees(&mut tx, &rows, last.as_ref(), tell).await?;
                }
                all += rows.len() as u64;
                progress(rows.len() as u64);
                if rows.len() < PIECE as usize {
                    break;
                }
                last = rows.into_iter().last();
            }
        }
        references::all(&mut tx, tell).await?;
        Ok(all)
    }
}

/// What SQLite itself finds (pragmas `integrity_check`, `foreign_key_check`).
async fn integrity(tx: &mut Tx, tell: Report<'_>) -> Result<(), StoreError> {
    let finding = |record: String, problem: String| Finding {
        table: "database",
        record,
        problem,
    };
    for row in sql("PRAGMA integrity_check").all(&mut *tx).await? {
        let problem = row.text("integrity_check")?;
        if problem != "ok" {
            tell(finding("file".to_owned(), problem));
        }
    }
    for row in sql("PRAGMA foreign_key_check").all(&mut *tx).await? {
        let (table, parent) = (row.text("table")?, row.text("parent")?);
        tell(finding(
            table,
            format!("refers to {parent} that there are not"),
        ));
    }
    Ok(())
}

/// The key of a row, as people can look for it. Of hashes the beginning.
fn name(table: &Table, row: &Row) -> String {
    let key = table.columns[..table.key].iter();
    let cells = key.map(|(name, holds)| match holds {
        Type::Text => row.opt_text(name).ok().flatten().unwrap_or_default(),
        Type::Int => row
            .int(name)
            .map(|number| number.to_string())
            .unwrap_or_default(),
        Type::Bytes => abbreviated(&row.opt_bytes(name).ok().flatten().unwrap_or_default()),
    });
    cells.collect::<Vec<_>>().join(" ")
}

fn abbreviated(hash: &[u8]) -> String {
    let shown = hash.get(..6).unwrap_or(hash);
    format!("{}…", hex::encode(shown))
}
