//! Making the store agree with what the configuration file declares.

use std::collections::{HashMap, HashSet};

use super::{Builder, Tx, clients, parse_doc, sql, users, write_doc, write_searched_doc};
use crate::{Declared, Store, StoreError};
use doorward_core::model::client::{Client, ClientMetadata};
use doorward_core::model::user::{Owner, User, name as user_name};

impl Store {
    /// Makes the store hold exactly these records owned by the file: new ones
    /// are added, changed ones changed, those no longer declared removed with
    /// all that hangs on them. Unchanged ones are not touched.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when a name belongs to a record of the store.
    pub async fn sync_declared(&self, declared: Declared, now_ms: i64) -> Result<(), StoreError> {
        self.changed(sync(self.begin().await?, declared, now_ms).await)
    }
}

async fn sync(mut tx: Tx, declared: Declared, now_ms: i64) -> Result<(), StoreError> {
    // One statement for any number of realms.
    let dialect = tx.dialect();
    let mut insert = Builder::new("INSERT INTO realms (path, owner) SELECT value, 'file' FROM (");
    dialect.push_each_text(&mut insert, write_doc(&declared.realms)?);
    insert.push(") AS declared WHERE true ON CONFLICT (path) DO NOTHING");
    insert.build().run(&mut tx).await?;
    sync_users(&mut tx, declared.users, now_ms).await?;
    sync_clients(&mut tx, declared.clients, now_ms).await?;
    drop_realms(&mut tx, &declared.realms).await?;
    tx.commit().await
}

async fn sync_users(tx: &mut Tx, declared: Vec<User>, now_ms: i64) -> Result<(), StoreError> {
    let rows = sql("SELECT * FROM users WHERE owner = 'file'")
        .all(&mut *tx)
        .await?;
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
    let rows = sql("SELECT realm, client_id, created_ms, doc FROM clients WHERE owner = 'file'")
        .all(&mut *tx)
        .await?;
    let mut known = HashMap::new();
    for row in &rows {
        let key = (row.text("realm")?, row.text("client_id")?);
        known.insert(key, (row.int("created_ms")?, row.text("doc")?));
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
    sql("UPDATE clients SET updated_ms = $1, doc = $2 WHERE realm = $3 AND client_id = $4")
        .bind(client.updated_ms)
        .bind(write_searched_doc(&client.metadata)?)
        .bind(&client.realm)
        .bind(&client.metadata.client_id)
        .run(tx)
        .await
        .map(drop)
}

/// A realm that is no longer declared goes once nothing lives in it.
async fn drop_realms(tx: &mut Tx, declared: &Vec<String>) -> Result<(), StoreError> {
    let dialect = tx.dialect();
    let mut delete = Builder::new("DELETE FROM realms WHERE owner = 'file' AND path NOT IN (");
    dialect.push_each_text(&mut delete, write_doc(declared)?);
    delete.push(
        ") AND path NOT IN (SELECT realm FROM users)
           AND path NOT IN (SELECT realm FROM clients)",
    );
    delete.build().run(tx).await.map(drop)
}
