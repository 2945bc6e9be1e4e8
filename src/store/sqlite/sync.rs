//! Making the store agree with what the configuration file declares.

use std::collections::{HashMap, HashSet};

use sqlx::{Row, Sqlite, Transaction};

use super::{clients, parse_doc, unavailable, users, write_doc};
use crate::model::client::{Client, ClientMetadata};
use crate::model::user::{Owner, User, name as user_name};
use crate::store::{Declared, StoreError};

type Tx = Transaction<'static, Sqlite>;

pub(super) async fn declared(
    mut tx: Tx,
    declared: Declared,
    now_ms: i64,
) -> Result<(), StoreError> {
    // One statement for any number of realms.
    sqlx::query(
        "INSERT INTO realms (path, owner) SELECT value, 'file' FROM json_each(?) WHERE true
         ON CONFLICT (path) DO NOTHING",
    )
    .bind(write_doc(&declared.realms)?)
    .execute(&mut *tx)
    .await
    .map_err(unavailable)?;
    sync_users(&mut tx, declared.users, now_ms).await?;
    sync_clients(&mut tx, declared.clients, now_ms).await?;
    drop_realms(&mut tx, &declared.realms).await?;
    tx.commit().await.map_err(unavailable)
}

async fn sync_users(tx: &mut Tx, declared: Vec<User>, now_ms: i64) -> Result<(), StoreError> {
    let rows = sqlx::query("SELECT * FROM users WHERE owner = 'file'")
        .fetch_all(&mut **tx)
        .await
        .map_err(unavailable)?;
    let mut known = HashMap::new();
    for row in &rows {
        let user = users::read(row)?;
        known.insert((user.realm.clone(), user_name::key(&user.user_name)), user);
    }
    let wanted: HashSet<_> = declared.iter().map(user_key).collect();
    for (key, user) in &known {
        if !wanted.contains(key) {
            users::remove(tx, &user.id.to_string(), now_ms).await?;
        }
    }
    for mut user in declared {
        match known.get(&user_key(&user)) {
            None => {
                (user.version, user.created_ms, user.updated_ms) = (1, now_ms, now_ms);
                users::insert(tx, &user).await?;
            }
            Some(old) if same_user(old, &user) => {}
            Some(old) => {
                user.id = old.id;
                user.version = old.version + 1;
                user.updated_ms = now_ms;
                users::update(tx, &user).await?;
            }
        }
    }
    Ok(())
}

fn user_key(user: &User) -> (String, String) {
    (user.realm.clone(), user_name::key(&user.user_name))
}

fn same_user(old: &User, new: &User) -> bool {
    old.user_name == new.user_name && old.active == new.active && old.profile == new.profile
}

async fn sync_clients(tx: &mut Tx, declared: Vec<Client>, now_ms: i64) -> Result<(), StoreError> {
    let rows =
        sqlx::query("SELECT realm, client_id, created_ms, doc FROM clients WHERE owner = 'file'")
            .fetch_all(&mut **tx)
            .await
            .map_err(unavailable)?;
    let mut known = HashMap::new();
    for row in &rows {
        let realm: String = row.try_get("realm").map_err(unavailable)?;
        let client_id: String = row.try_get("client_id").map_err(unavailable)?;
        let created_ms: i64 = row.try_get("created_ms").map_err(unavailable)?;
        let doc: String = row.try_get("doc").map_err(unavailable)?;
        known.insert((realm, client_id), (created_ms, doc));
    }
    let key = |client: &Client| (client.realm.clone(), client.metadata.client_id.clone());
    let wanted: HashSet<_> = declared.iter().map(key).collect();
    for gone in known.keys().filter(|key| !wanted.contains(*key)) {
        clients::remove(tx, &gone.0, &gone.1).await?;
    }
    for mut client in declared {
        client.owner = Owner::File;
        (client.created_ms, client.updated_ms) = (now_ms, now_ms);
        if let Some((created_ms, doc)) = known.get(&key(&client)) {
            if same_client(doc, &client.metadata)? {
                continue;
            }
            client.created_ms = *created_ms;
            update_client(tx, &client).await?;
        } else {
            clients::insert(tx, &client).await?;
        }
    }
    Ok(())
}

/// Compared as JSON: what the store holds may have been written by an older
/// version with fewer members.
fn same_client(doc: &str, new: &ClientMetadata) -> Result<bool, StoreError> {
    let old: serde_json::Value = parse_doc(doc)?;
    Ok(serde_json::to_value(new).is_ok_and(|new| new == old))
}

async fn update_client(tx: &mut Tx, client: &Client) -> Result<(), StoreError> {
    sqlx::query("UPDATE clients SET updated_ms = ?, doc = ? WHERE realm = ? AND client_id = ?")
        .bind(client.updated_ms)
        .bind(write_doc(&client.metadata)?)
        .bind(&client.realm)
        .bind(&client.metadata.client_id)
        .execute(&mut **tx)
        .await
        .map_err(unavailable)
        .map(drop)
}

/// A realm that is no longer declared goes once nothing lives in it.
async fn drop_realms(tx: &mut Tx, declared: &Vec<String>) -> Result<(), StoreError> {
    sqlx::query(
        "DELETE FROM realms WHERE owner = 'file'
           AND path NOT IN (SELECT value FROM json_each(?))
           AND path NOT IN (SELECT realm FROM users)
           AND path NOT IN (SELECT realm FROM clients)",
    )
    .bind(write_doc(declared)?)
    .execute(&mut **tx)
    .await
    .map_err(unavailable)
    .map(drop)
}
