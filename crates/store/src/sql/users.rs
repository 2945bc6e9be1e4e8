//! Users, and the index of their attributes.

use serde_json::{Map, Value};
use uuid::Uuid;

use super::bind::Value as Cell;
use super::dialect::Dialect;
use super::filter::Records;
use super::page::Total;
use super::write_searched_doc;
use super::{Builder, Database, Row, Tx, damaged, endings, page, parse_doc, retired_names, sql};
use crate::{Store, StoreError, UserPage};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::query::UserQuery;
use doorward_core::model::secret::Secret;
use doorward_core::model::user::{Owner, User, name as user_name, schema};

const ACTIVE: &str = "active";
const DEACTIVATED: &str = "deactivated";

impl Store {
    /// The user of this id.
    pub async fn user(&self, realm: &str, id: Uuid) -> Result<Option<User>, StoreError> {
        by_id(&self.database, realm, id).await
    }

    /// The user of this name, whatever its case.
    pub async fn user_by_name(&self, realm: &str, name: &str) -> Result<Option<User>, StoreError> {
        let row = sql("SELECT * FROM users WHERE realm = $1 AND user_key = $2")
            .bind(realm)
            .bind(user_name::key(name))
            .one(&self.database)
            .await?;
        row.as_ref().map(read).transpose()
    }

    /// The users that satisfy a query.
    ///
    /// # Errors
    /// [`StoreError::TooLong`] when so much must be read for it that it was given
    /// up, and [`StoreError::Crowded`] when too many lists are read already.
    pub async fn users(&self, realm: &str, query: &UserQuery) -> Result<UserPage, StoreError> {
        let records = (Records::Users, Total::Counted);
        let page = page::read(&self.database, records, realm, query).await?;
        Ok(UserPage {
            users: page.rows.iter().map(read).collect::<Result<_, _>>()?,
            total: page.total,
            more: page.more,
        })
    }

    /// The users of one page of a query, without counting those of all pages.
    ///
    /// # Errors
    /// Those of [`Store::users`].
    pub async fn users_uncounted(
        &self,
        realm: &str,
        query: &UserQuery,
    ) -> Result<Vec<User>, StoreError> {
        let records = (Records::Users, Total::Omitted);
        let page = page::read(&self.database, records, realm, query).await?;
        page.rows.iter().map(read).collect()
    }

    /// Adds a user.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when the name is another user's.
    pub async fn insert_user(
        &self,
        user: &User,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        insert(&mut tx, user).await?;
        self.changed(tx.commit().await)
    }

    /// Replaces a user whose version is one less than `user.version`. What one
    /// has begun who is no longer active ends.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when it is not, or the user is gone;
    /// [`StoreError::Taken`] when the new name is another user's.
    pub async fn update_user(
        &self,
        user: &User,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        update(&mut tx, user).await?;
        self.changed(tx.commit().await)
    }

    /// As [`Store::update_user`], with a new password hash: refresh tokens and
    /// sessions of the user end.
    pub async fn update_user_and_password(
        &self,
        user: &User,
        hash: &Secret,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        update(&mut tx, user).await?;
        update_password(&mut tx, user, hash).await?;
        self.changed(tx.commit().await)
    }

    /// Sets the password hash of a user made in the store; its refresh tokens
    /// and sessions end. Who names the hash that was `seen` sets it in the place
    /// of that one or not at all.
    ///
    /// # Errors
    /// [`StoreError::FileOwned`] for a user that the file declares;
    /// [`StoreError::Conflict`] when the user is gone, or has another hash.
    pub async fn set_password(
        &self,
        id: Uuid,
        hash: &Secret,
        seen: Option<&Secret>,
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        let tx = self.begin_audited(audit).await?;
        self.changed(set_password(tx, id, (seen, hash), now_ms).await)
    }

    /// Puts the password hash `new` in the place of `old`, if that is the
    /// user's still; says whether it was. With `ends`, refresh tokens and
    /// sessions of the user end.
    pub async fn replace_hash(
        &self,
        id: Uuid,
        old: Option<&Secret>,
        new: Option<&Secret>,
        ends: bool,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        let tx = self.begin().await?;
        let done = replace_hash(tx, id, (old, new), ends, now_ms).await;
        if ends { self.changed(done) } else { done }
    }

    /// Removes a user with its tokens and sessions; says whether it was there.
    /// Who names the version that was `seen` removes that one or nothing.
    ///
    /// # Errors
    /// [`StoreError::FileOwned`] for a user that the file declares, and
    /// [`StoreError::Conflict`] for another version.
    pub async fn delete_user(
        &self,
        id: Uuid,
        seen: Option<i64>,
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<bool, StoreError> {
        self.changed(delete(self.begin_audited(audit).await?, id, seen, now_ms).await)
    }
}

pub(super) fn read(row: &Row) -> Result<User, StoreError> {
    let owner = row.text("owner")?;
    Ok(User {
        id: row.id("id")?,
        realm: row.text("realm")?,
        user_name: row.text("user_name")?,
        name_reused: row.int("name_reused")? != 0,
        password_hash: row.opt_text("password")?.map(Secret::new),
        active: row.text("status")? == ACTIVE,
        owner: Owner::parse(&owner).ok_or_else(|| damaged(format!("owner `{owner}`")))?,
        version: row.int("version")?,
        created_ms: row.int("created_ms")?,
        updated_ms: row.int("updated_ms")?,
        profile: row.doc("doc")?,
    })
}

pub(super) async fn by_id(
    readers: &Database,
    realm: &str,
    id: Uuid,
) -> Result<Option<User>, StoreError> {
    let row = sql("SELECT * FROM users WHERE id = $1 AND realm = $2")
        .bind(id.to_string())
        .bind(realm)
        .one(readers)
        .await?;
    row.as_ref().map(read).transpose()
}

fn status(user: &User) -> &'static str {
    if user.active { ACTIVE } else { DEACTIVATED }
}

pub(super) async fn insert(tx: &mut Tx, user: &User) -> Result<(), StoreError> {
    let mut insert = Builder::new("INSERT INTO users ");
    insert.push(COLUMNS).push(" VALUES ");
    push_row(&mut insert, user)?;
    insert.build().run_unless_taken(tx, &user.user_name).await?;
    index(tx, user).await
}

/// The columns of [`push_row`].
pub(super) const COLUMNS: &str = "(id, realm, user_name, user_key, password, status, owner, \
                                  version, created_ms, updated_ms, doc, name_reused)";

/// Adds the row of a new user to an insertion.
pub(super) fn push_row(insert: &mut Builder, user: &User) -> Result<(), StoreError> {
    insert
        .push("(")
        .push_bind(user.id)
        .push(", ")
        .push_bind(&user.realm)
        .push(", ")
        .push_bind(&user.user_name)
        .push(", ")
        .push_bind(user_name::key(&user.user_name))
        .push(", ")
        .push_bind(user.password_hash.as_ref().map(Secret::expose))
        .push(", ")
        .push_bind(status(user))
        .push(", ")
        .push_bind(user.owner.as_str())
        .push(", ")
        .push_bind(user.version)
        .push(", ")
        .push_bind(user.created_ms)
        .push(", ")
        .push_bind(user.updated_ms)
        .push(", ")
        .push_bind(write_searched_doc(&user.profile)?)
        .push(", ");
    retired_names::push_reused(insert, user);
    insert.push(")");
    Ok(())
}

pub(super) async fn update(tx: &mut Tx, user: &User) -> Result<(), StoreError> {
    let key = user_name::key(&user.user_name);
    let id = user.id.to_string();
    retired_names::retire(tx, &id, Some(&key), user.updated_ms).await?;
    let mut update = Builder::new("UPDATE users SET user_name = ");
    update
        .push_bind(&user.user_name)
        .push(", name_reused = CASE WHEN user_key = ")
        .push_bind(key.as_str())
        .push(" THEN name_reused ELSE ");
    retired_names::push_reused(&mut update, user);
    update
        .push(" END, user_key = ")
        .push_bind(key.as_str())
        .push(", status = ")
        .push_bind(status(user))
        .push(", version = ")
        .push_bind(user.version)
        .push(", updated_ms = ")
        .push_bind(user.updated_ms)
        .push(", doc = ")
        .push_bind(write_searched_doc(&user.profile)?)
        .push(" WHERE id = ")
        .push_bind(id.as_str())
        .push(" AND realm = ")
        .push_bind(&user.realm)
        .push(" AND version = ")
        .push_bind(user.version - 1);
    let update = update.build();
    let done = update.run_unless_taken(tx, &user.user_name).await?;
    if done == 0 {
        return Err(StoreError::Conflict(user.user_name.clone()));
    }
    sql("DELETE FROM user_attr WHERE user_id = $1")
        .bind(user.id.to_string())
        .run(tx)
        .await?;
    if !user.active {
        endings::end_logins(tx, &user.id.to_string(), user.updated_ms).await?;
    }
    index(tx, user).await
}

/// Rows in one statement: databases bind at most 32,766 values.
const INDEXED_AT_ONCE: usize = 500;

async fn index(tx: &mut Tx, user: &User) -> Result<(), StoreError> {
    index_profile(tx, &user.id.to_string(), &user.realm, &user.profile).await
}

/// Makes the index of a user that was imported, from its columns of text.
pub(super) async fn index_of(
    tx: &mut Tx,
    cells: &[(&'static str, &str)],
) -> Result<(), StoreError> {
    let cell = |wanted: &str| {
        let found = cells.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, text)| *text)
    };
    let (Some(id), Some(realm), Some(doc)) = (cell("id"), cell("realm"), cell("doc")) else {
        return Err(damaged("a user without id, realm or doc"));
    };
    index_profile(tx, id, realm, &parse_doc(doc)?).await
}

async fn index_profile(
    tx: &mut Tx,
    id: &str,
    realm: &str,
    profile: &Map<String, Value>,
) -> Result<(), StoreError> {
    for values in schema::indexed(profile).chunks(INDEXED_AT_ONCE) {
        let mut rows = IndexRows::new(tx.dialect());
        for value in values {
            rows.push(id, realm, value);
        }
        rows.insert.build().run(tx).await?;
    }
    Ok(())
}

/// The statement that puts values into the index.
pub(super) struct IndexRows {
    pub(super) insert: Builder,
    dialect: Dialect,
    is_first: bool,
}

impl IndexRows {
    pub(super) fn new(dialect: Dialect) -> Self {
        let mut insert = Builder::with_many_values(dialect.insert(), dialect);
        insert.push(match dialect {
            Dialect::Sqlite => " INTO user_attr (user_id, path, idx, realm, text) VALUES ",
            Dialect::Postgres => " INTO user_attr (user_id, path, idx, realm, text, tail) VALUES ",
        });
        Self {
            insert,
            dialect,
            is_first: true,
        }
    }

    /// Adds a value of the user `id`.
    pub(super) fn push(&mut self, id: impl Into<Cell>, realm: &str, value: &schema::IndexedValue) {
        let (text, tail) = self.dialect.cut(&value.text);
        let begin = if self.is_first { "(" } else { ", (" };
        self.is_first = false;
        self.insert.push(begin).push_bind(id);
        self.insert.push(", ").push_bind(value.path);
        let index = i64::try_from(value.index).unwrap_or(i64::MAX);
        self.insert.push(", ").push_bind(index);
        self.insert.push(", ").push_bind(realm);
        self.insert.push(", ").push_bind(text);
        if self.dialect == Dialect::Postgres {
            self.insert.push(", ").push_bind(tail);
        }
        self.insert.push(")");
    }
}

async fn update_password(tx: &mut Tx, user: &User, hash: &Secret) -> Result<(), StoreError> {
    let id = user.id.to_string();
    sql("UPDATE users SET password = $1 WHERE id = $2")
        .bind(hash.expose())
        .bind(&id)
        .run(tx)
        .await?;
    endings::end_logins(tx, &id, user.updated_ms).await
}

/// Owner, name and version of a user.
async fn owner(tx: &mut Tx, id: &str) -> Result<Option<(String, String, i64)>, StoreError> {
    let row = sql("SELECT owner, user_name, version FROM users WHERE id = $1")
        .bind(id)
        .one(&mut *tx)
        .await?;
    let read = |row: Row| {
        let name = row.text("user_name")?;
        Ok((row.text("owner")?, name, row.int("version")?))
    };
    row.map(read).transpose()
}

fn refuse_file_owned(owner: &str, name: &str) -> Result<(), StoreError> {
    if owner == Owner::File.as_str() {
        return Err(StoreError::FileOwned(name.to_owned()));
    }
    Ok(())
}

async fn set_password(
    mut tx: Tx,
    id: Uuid,
    (seen, hash): (Option<&Secret>, &Secret),
    now_ms: i64,
) -> Result<(), StoreError> {
    let id = id.to_string();
    let Some((owner, name, _)) = owner(&mut tx, &id).await? else {
        return Err(StoreError::Conflict(id));
    };
    refuse_file_owned(&owner, &name)?;
    let done = sql(
        "UPDATE users SET password = $1, version = version + 1, updated_ms = $2
          WHERE id = $3 AND coalesce(password, '') = coalesce($4, password, '')",
    );
    let done = done.bind(hash.expose()).bind(now_ms).bind(&id);
    let done = done.bind(seen.map(Secret::expose)).run(&mut tx).await?;
    if done == 0 {
        return Err(StoreError::Conflict(name));
    }
    endings::end_logins(&mut tx, &id, now_ms).await?;
    tx.commit().await
}

async fn replace_hash(
    mut tx: Tx,
    id: Uuid,
    (old, new): (Option<&Secret>, Option<&Secret>),
    ends: bool,
    now_ms: i64,
) -> Result<bool, StoreError> {
    let id = id.to_string();
    let done =
        sql("UPDATE users SET password = $1 WHERE id = $2 AND password IS NOT DISTINCT FROM $3")
            .bind(new.map(Secret::expose))
            .bind(&id)
            .bind(old.map(Secret::expose))
            .run(&mut tx)
            .await?;
    if done == 0 {
        return Ok(false);
    }
    if ends {
        endings::end_logins(&mut tx, &id, now_ms).await?;
    }
    tx.commit().await?;
    Ok(true)
}

async fn delete(mut tx: Tx, id: Uuid, seen: Option<i64>, now_ms: i64) -> Result<bool, StoreError> {
    let id = id.to_string();
    let Some((owner, name, version)) = owner(&mut tx, &id).await? else {
        return Ok(false);
    };
    refuse_file_owned(&owner, &name)?;
    if seen.is_some_and(|seen| seen != version) {
        return Err(StoreError::Conflict(name));
    }
    remove(&mut tx, &id, now_ms).await?;
    tx.commit().await?;
    Ok(true)
}

/// Removes the user, whoever owns it; what hangs on it goes by foreign keys.
pub(super) async fn remove(tx: &mut Tx, id: &str, now_ms: i64) -> Result<(), StoreError> {
    endings::end_logins(tx, id, now_ms).await?;
    // Who leaves a group so changes it as much as who is taken out.
    sql("UPDATE user_groups SET version = version + 1,
            updated_ms = CASE WHEN updated_ms < $1 THEN $1 ELSE updated_ms END
          WHERE id IN (SELECT group_id FROM group_members WHERE user_id = $2)")
    .bind(now_ms)
    .bind(id)
    .run(tx)
    .await?;
    retired_names::retire(tx, id, None, now_ms).await?;
    sql("DELETE FROM users WHERE id = $1")
        .bind(id)
        .run(tx)
        .await
        .map(drop)
}
