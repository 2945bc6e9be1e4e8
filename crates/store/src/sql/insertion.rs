//! Rows that are inserted together.

use super::bind::Value;
use super::statement::Builder;
use super::tx::Tx;
use crate::StoreError;

/// How many rows go into one statement: few texts, which stay prepared.
const ROWS: [usize; 4] = [64, 16, 4, 1];

/// Inserts `rows`, many a statement: `head` ends with `VALUES`, `row` gives the
/// values of a row, and `tail` follows the last one.
pub(super) async fn insert_all<R, const N: usize>(
    tx: &mut Tx,
    head: &'static str,
    rows: &[R],
    row: impl Fn(&R) -> Result<[Value; N], StoreError>,
    tail: &'static str,
) -> Result<(), StoreError> {
    let mut rest = rows;
    while let Some(&count) = ROWS.iter().find(|count| **count <= rest.len()) {
        let (chunk, behind) = rest.split_at(count);
        rest = behind;
        let mut insert = Builder::with_many_values(head, tx.dialect());
        for (position, values) in chunk.iter().map(&row).enumerate() {
            insert.push(if position == 0 { " (" } else { ", (" });
            for (column, value) in values?.into_iter().enumerate() {
                if column > 0 {
                    insert.push(", ");
                }
                insert.push_bind(value);
            }
            insert.push(")");
        }
        insert.push(tail);
        insert.build().run(tx).await?;
    }
    Ok(())
}
