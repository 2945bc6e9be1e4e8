//! Whether the index of users' attributes says what the users say.

use std::collections::{BTreeMap, BTreeSet};

use super::{Builder, Finding, Report, Row, Tx};
use crate::StoreError;
use crate::sql::users;
use doorward_core::model::user::schema;

/// Path, position and text of a value.
type Entry = (String, i64, String);

/// Compares the users of `rows`, in the order of their ids, with what the index
/// has of them; `last` came before them.
pub(super) async fn index_agrees(
    tx: &mut Tx,
    rows: &[Row],
    last: Option<&Row>,
    tell: Report<'_>,
) -> Result<(), StoreError> {
    let Some(end) = rows.last() else {
        return Ok(());
    };
    let begin = last.map_or(Ok(String::new()), |row| row.text("id"))?;
    let mut found = Builder::new("SELECT a.user_id, a.path, a.idx, ");
    found
        .push(tx.dialect().whole_value())
        .push(" AS text FROM user_attr a WHERE a.user_id > ")
        .push_bind(begin)
        .push(" AND a.user_id <= ")
        .push_bind(end.text("id")?);
    let found = found.build().all(&mut *tx).await?;
    let mut index: BTreeMap<String, BTreeSet<Entry>> = BTreeMap::new();
    for row in found {
        let entry = (row.text("path")?, row.int("idx")?, row.text("text")?);
        index.entry(row.text("user_id")?).or_default().insert(entry);
    }
    for row in rows {
        // One that can't be read was told before.
        let Ok(user) = users::read(row) else { continue };
        let wanted = schema::indexed(&user.profile).into_iter().map(|value| {
            let position = i64::try_from(value.index).unwrap_or(i64::MAX);
            (value.path.to_owned(), position, value.text)
        });
        let held = index.remove(&user.id.to_string()).unwrap_or_default();
        if held != wanted.collect() {
            tell(Finding {
                table: "users",
                record: user.id.to_string(),
                problem: "the index of its attributes says something else".to_owned(),
            });
        }
    }
    Ok(())
}
