//! Names of users that are free again, and never again the `sub` of another
//! user by themselves.

use uuid::Uuid;

use super::{Builder, Row, Tx, sql};
use crate::{Store, StoreError};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::user::{RetiredName, User, name as user_name};

impl Store {
    /// The retired names of a realm whose keys come behind `after`, in order.
    pub async fn retired_names(
        &self,
        realm: &str,
        after: &str,
        most: u32,
    ) -> Result<Vec<RetiredName>, StoreError> {
        // The retired names of a realm, in their order.
        let rows = sql(
            "SELECT * FROM retired_names WHERE realm = $1 AND user_key > $2
              ORDER BY user_key LIMIT $3",
        )
        .bind(realm)
        .bind(after)
        .bind(i64::from(most))
        .all(&self.database)
        .await?;
        rows.iter().map(read).collect()
    }

    /// Lets a retired name be the `sub` of whoever has it or gets it; says whether
    /// it was retired.
    pub async fn release_name(
        &self,
        realm: &str,
        name: &str,
        audit: Option<&PendingAudit>,
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        let released = release(&mut tx, realm, name).await?;
        tx.void_unless(released);
        self.changed(tx.commit().await)?;
        Ok(released)
    }
}

/// Notes that the user of this identifier gives its name up, unless the name was
/// another user's before. `next_key` is that of the name it gets, if it stays.
pub(super) async fn retire(
    tx: &mut Tx,
    id: &str,
    next_key: Option<&str>,
    now_ms: i64,
) -> Result<(), StoreError> {
    sql(
        "INSERT INTO retired_names (realm, user_key, user_name, user_id, retired_ms)
         SELECT realm, user_key, user_name, id, $1 FROM users
          WHERE id = $2 AND user_key <> coalesce($3, '')
         ON CONFLICT DO NOTHING",
    )
    .bind(now_ms)
    .bind(id)
    .bind(next_key)
    .run(tx)
    .await
    .map(drop)
}

/// Adds the expression that says whether the name of `user` was another user's:
/// as a name, or as the identifier that tokens may call that one by.
pub(super) fn push_reused(select: &mut Builder, user: &User) {
    let own_id = user.id.to_string();
    select
        .push("(SELECT count(*) FROM retired_names WHERE realm = ")
        .push_bind(&user.realm)
        .push(" AND user_key = ")
        .push_bind(user_name::key(&user.user_name))
        .push(" AND user_id <> ")
        .push_bind(own_id.as_str())
        .push(")");
    let Ok(named) = Uuid::parse_str(user.user_name.trim()) else {
        return;
    };
    let named = named.to_string();
    if named != own_id {
        select
            .push(" + (SELECT count(*) FROM users WHERE id = ")
            .push_bind(named.as_str())
            .push(") + (SELECT count(*) FROM retired_names WHERE user_id = ")
            .push_bind(named.as_str())
            .push(")");
    }
}

fn read(row: &Row) -> Result<RetiredName, StoreError> {
    Ok(RetiredName {
        realm: row.text("realm")?,
        key: row.text("user_key")?,
        user_name: row.text("user_name")?,
        user_id: row.id("user_id")?,
        retired_ms: row.int("retired_ms")?,
    })
}

/// Lets the name be the `sub` of whoever has it or gets it; says whether it was
/// retired.
async fn release(tx: &mut Tx, realm: &str, name: &str) -> Result<bool, StoreError> {
    let key = user_name::key(name);
    let done = sql("DELETE FROM retired_names WHERE realm = $1 AND user_key = $2")
        .bind(realm)
        .bind(&key)
        .run(tx)
        .await?;
    sql("UPDATE users SET name_reused = 0 WHERE realm = $1 AND user_key = $2")
        .bind(realm)
        .bind(&key)
        .run(tx)
        .await?;
    Ok(done > 0)
}
