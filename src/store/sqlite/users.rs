//! Users, and the index of their attributes.

use serde_json::{Map, Value};
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row, Sqlite, SqlitePool, Transaction};
use uuid::Uuid;

use super::{damaged, endings, filter, parse_doc, parse_id, taken, unavailable, write_doc};
use crate::model::query::UserQuery;
use crate::model::secret::Secret;
use crate::model::user::{Owner, User, name as user_name, schema};
use crate::store::{StoreError, UserPage};

const ACTIVE: &str = "active";
const DEACTIVATED: &str = "deactivated";

pub(super) fn read(row: &SqliteRow) -> Result<User, StoreError> {
    let text = |column: &str| row.try_get::<String, _>(column).map_err(unavailable);
    let number = |column: &str| row.try_get::<i64, _>(column).map_err(unavailable);
    let owner = text("owner")?;
    let password: Option<String> = row.try_get("password").map_err(unavailable)?;
    Ok(User {
        id: parse_id(&text("id")?)?,
        realm: text("realm")?,
        user_name: text("user_name")?,
        password_hash: password.map(Secret::new),
        active: text("status")? == ACTIVE,
        owner: Owner::parse(&owner).ok_or_else(|| damaged(format!("owner `{owner}`")))?,
        version: number("version")?,
        created_ms: number("created_ms")?,
        updated_ms: number("updated_ms")?,
        profile: parse_doc::<Map<String, Value>>(&text("doc")?)?,
    })
}

pub(super) async fn by_id(
    readers: &SqlitePool,
    realm: &str,
    id: Uuid,
) -> Result<Option<User>, StoreError> {
    let row = sqlx::query("SELECT * FROM users WHERE id = ? AND realm = ?")
        .bind(id.to_string())
        .bind(realm)
        .fetch_optional(readers)
        .await
        .map_err(unavailable)?;
    row.as_ref().map(read).transpose()
}

pub(super) async fn by_name(
    readers: &SqlitePool,
    realm: &str,
    name: &str,
) -> Result<Option<User>, StoreError> {
    let row = sqlx::query("SELECT * FROM users WHERE realm = ? AND user_key = ?")
        .bind(realm)
        .bind(user_name::key(name))
        .fetch_optional(readers)
        .await
        .map_err(unavailable)?;
    row.as_ref().map(read).transpose()
}

pub(super) async fn page(
    readers: &SqlitePool,
    realm: &str,
    query: &UserQuery,
) -> Result<UserPage, StoreError> {
    // One read transaction: the count and the page speak of the same moment.
    let mut tx = readers.begin().await.map_err(unavailable)?;
    // `+` keeps the realm's index out of the plan (SQLite, query planner).
    let realm_is = if filter::leads(&query.filter) {
        "+u.realm = "
    } else {
        "u.realm = "
    };
    let mut count = QueryBuilder::<Sqlite>::new("SELECT count(*) FROM users u WHERE ");
    count.push(realm_is);
    count.push_bind(realm.to_owned()).push(" AND ");
    filter::push(&mut count, realm, &query.filter);
    let total: i64 = count
        .build_query_scalar()
        .fetch_one(&mut *tx)
        .await
        .map_err(unavailable)?;

    let mut select = QueryBuilder::<Sqlite>::new("SELECT u.* FROM users u WHERE ");
    select.push(realm_is);
    select.push_bind(realm.to_owned()).push(" AND ");
    filter::push(&mut select, realm, &query.filter);
    if let Some(after) = &query.after {
        select.push(" AND u.user_key > ").push_bind(after.clone());
    }
    select
        .push(" ORDER BY u.user_key LIMIT ")
        .push_bind(i64::from(query.limit) + 1)
        .push(" OFFSET ")
        .push_bind(i64::from(query.skip));
    let rows = select
        .build()
        .fetch_all(&mut *tx)
        .await
        .map_err(unavailable)?;
    let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
    Ok(UserPage {
        users: rows
            .iter()
            .take(limit)
            .map(read)
            .collect::<Result<_, _>>()?,
        total: u64::try_from(total).unwrap_or_default(),
        more: rows.len() > limit,
    })
}

fn status(user: &User) -> &'static str {
    if user.active { ACTIVE } else { DEACTIVATED }
}

pub(super) async fn insert(
    tx: &mut Transaction<'static, Sqlite>,
    user: &User,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO users (id, realm, user_name, user_key, password, status, owner, version,
                            created_ms, updated_ms, doc)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(user.id.to_string())
    .bind(&user.realm)
    .bind(&user.user_name)
    .bind(user_name::key(&user.user_name))
    .bind(user.password_hash.as_ref().map(Secret::expose))
    .bind(status(user))
    .bind(user.owner.as_str())
    .bind(user.version)
    .bind(user.created_ms)
    .bind(user.updated_ms)
    .bind(write_doc(&user.profile)?)
    .execute(&mut **tx)
    .await
    .map_err(|error| taken(error, &user.user_name))?;
    index(tx, user).await
}

pub(super) async fn update(
    tx: &mut Transaction<'static, Sqlite>,
    user: &User,
) -> Result<(), StoreError> {
    let done = sqlx::query(
        "UPDATE users SET user_name = ?, user_key = ?, status = ?, version = ?, updated_ms = ?,
                          doc = ?
         WHERE id = ? AND realm = ? AND version = ?",
    )
    .bind(&user.user_name)
    .bind(user_name::key(&user.user_name))
    .bind(status(user))
    .bind(user.version)
    .bind(user.updated_ms)
    .bind(write_doc(&user.profile)?)
    .bind(user.id.to_string())
    .bind(&user.realm)
    .bind(user.version - 1)
    .execute(&mut **tx)
    .await
    .map_err(|error| taken(error, &user.user_name))?;
    if done.rows_affected() == 0 {
        return Err(StoreError::Conflict(user.user_name.clone()));
    }
    sqlx::query("DELETE FROM user_attr WHERE user_id = ?")
        .bind(user.id.to_string())
        .execute(&mut **tx)
        .await
        .map_err(unavailable)?;
    if !user.active {
        endings::end_logins(tx, &user.id.to_string(), user.updated_ms).await?;
    }
    index(tx, user).await
}

async fn index(tx: &mut Transaction<'static, Sqlite>, user: &User) -> Result<(), StoreError> {
    let id = user.id.to_string();
    for value in schema::indexed(&user.profile) {
        sqlx::query(
            "INSERT INTO user_attr (user_id, path, idx, realm, text) VALUES (?, ?, ?, ?, ?)",
        )
        .bind(&id)
        .bind(value.path)
        .bind(i64::try_from(value.index).unwrap_or(i64::MAX))
        .bind(&user.realm)
        .bind(value.text)
        .execute(&mut **tx)
        .await
        .map_err(unavailable)?;
    }
    Ok(())
}

async fn owner(
    tx: &mut Transaction<'static, Sqlite>,
    id: &str,
) -> Result<Option<(String, String)>, StoreError> {
    sqlx::query_as("SELECT owner, user_name FROM users WHERE id = ?")
        .bind(id)
        .fetch_optional(&mut **tx)
        .await
        .map_err(unavailable)
}

fn refuse_file_owned(owner: &str, name: &str) -> Result<(), StoreError> {
    if owner == Owner::File.as_str() {
        return Err(StoreError::FileOwned(name.to_owned()));
    }
    Ok(())
}

pub(super) async fn set_password(
    mut tx: Transaction<'static, Sqlite>,
    id: Uuid,
    hash: &Secret,
    now_ms: i64,
) -> Result<(), StoreError> {
    let id = id.to_string();
    let Some((owner, name)) = owner(&mut tx, &id).await? else {
        return Err(StoreError::Conflict(id));
    };
    refuse_file_owned(&owner, &name)?;
    sqlx::query(
        "UPDATE users SET password = ?, version = version + 1, updated_ms = ? WHERE id = ?",
    )
    .bind(hash.expose())
    .bind(now_ms)
    .bind(&id)
    .execute(&mut *tx)
    .await
    .map_err(unavailable)?;
    endings::end_logins(&mut tx, &id, now_ms).await?;
    tx.commit().await.map_err(unavailable)
}

pub(super) async fn replace_hash(
    mut tx: Transaction<'static, Sqlite>,
    id: Uuid,
    (old, new): (Option<&Secret>, Option<&Secret>),
    ends: bool,
    now_ms: i64,
) -> Result<bool, StoreError> {
    let id = id.to_string();
    let done = sqlx::query("UPDATE users SET password = ? WHERE id = ? AND password IS ?")
        .bind(new.map(Secret::expose))
        .bind(&id)
        .bind(old.map(Secret::expose))
        .execute(&mut *tx)
        .await
        .map_err(unavailable)?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    if ends {
        endings::end_logins(&mut tx, &id, now_ms).await?;
    }
    tx.commit().await.map_err(unavailable)?;
    Ok(true)
}

pub(super) async fn delete(
    mut tx: Transaction<'static, Sqlite>,
    id: Uuid,
    now_ms: i64,
) -> Result<bool, StoreError> {
    let id = id.to_string();
    let Some((owner, name)) = owner(&mut tx, &id).await? else {
        return Ok(false);
    };
    refuse_file_owned(&owner, &name)?;
    remove(&mut tx, &id, now_ms).await?;
    tx.commit().await.map_err(unavailable)?;
    Ok(true)
}

/// Removes the user, whoever owns it; what hangs on it goes by foreign keys.
pub(super) async fn remove(
    tx: &mut Transaction<'static, Sqlite>,
    id: &str,
    now_ms: i64,
) -> Result<(), StoreError> {
    endings::end_logins(tx, id, now_ms).await?;
    sqlx::query("DELETE FROM users WHERE id = ?")
        .bind(id)
        .execute(&mut **tx)
        .await
        .map_err(unavailable)
        .map(drop)
}
