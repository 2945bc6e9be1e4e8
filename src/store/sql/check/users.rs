//! Whether the index of users' attributes says what the users say.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Row, Tell, Tx, sql};
use crate::model::user::schema;
use crate::store::StoreError;
use crate::store::sql::users;

/// Path, position and text of a value.
type Entry = (String, i64, String);

/// Compares the users of `rows`, in the order of their ids, with what the index
/// has of them; `last` came before them.
pub(super) async fn index_agrees(
    tx: &mut Tx,
    rows: &[Row],
    last: Option<&Row>,
    tell: Tell<'_>,
) -> Result<(), StoreError> {
    let Some(end) = rows.last() else {
        return Ok(());
    };
    let begin = last.map_or(Ok(String::new()), |row| row.text("id"))?;
    let found =
        sql("SELECT user_id, path, idx, text FROM user_attr WHERE user_id > $1 AND user_id <= $2")
            .bind(begin)
            .bind(end.text("id")?)
            .all(&mut *tx)
            .await?;
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
