//! Whether a record can be read.

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::StoreError;
use crate::sql::row::Row;
use crate::sql::{acme, clients, damaged, devices, keys, oauth2, registrations, sessions, users};
use doorward_core::model::authorization::{Authorization, SavedRequest};
use doorward_core::model::grant::Grant;
use doorward_core::model::oauth2::OAuth2Facts;
use doorward_core::model::user::name as user_name;

/// Reads the row as the store does when somebody asks for it.
pub(super) fn parse(table: &str, row: &Row) -> Result<(), StoreError> {
    match table {
        "entities" => entity(row),
        "realms" => row.doc::<Map<String, Value>>("settings").map(drop),
        "users" => user(row),
        "clients" => client(row),
        "signing_keys" => keys::read(row).map(drop),
        "initial_tokens" => registrations::read(row).map(drop),
        "sessions" => sessions::read(row).map(drop),
        "devices" => devices::read(row).map(drop),
        "codes" => grant(row, &row.doc::<Authorization>("doc")?.grant),
        "refresh_tokens" => {
            row.hash("family")?;
            row.hash("current")?;
            grant(row, &row.doc("doc")?)
        }
        "access_tokens" => {
            row.hash("hash")?;
            row.doc::<Map<String, Value>>("doc").map(drop)
        }
        "requests" => row.doc::<SavedRequest>("doc").map(drop),
        "oauth2_tokens" => oauth2::read(row).map(drop),
        "oauth2_codes" => row.doc::<OAuth2Facts>("doc").map(drop),
        "acme_certificates" => acme::certificate(row).map(drop),
        "seen" => row.hash("hash").map(drop),
        "audit" => audited(row),
        _ => Ok(()),
    }
}

fn entity(row: &Row) -> Result<(), StoreError> {
    let id = row.id("id")?;
    let doc: Map<String, Value> = row.doc("doc")?;
    let own = doc.get("id").and_then(Value::as_str);
    match own.map(Uuid::try_parse) {
        Some(Ok(own)) if own == id => Ok(()),
        _ => Err(damaged("the record has another id than the row")),
    }
}

fn user(row: &Row) -> Result<(), StoreError> {
    let user = users::read(row)?;
    if row.text("user_key")? != user_name::key(&user.user_name) {
        return Err(damaged("user_key is not the key of user_name"));
    }
    let status = row.text("status")?;
    if !matches!(status.as_str(), "active" | "deactivated") {
        return Err(damaged(format!("status `{status}`")));
    }
    Ok(())
}

fn client(row: &Row) -> Result<(), StoreError> {
    let client = clients::read(row)?;
    if client.metadata.client_id != row.text("client_id")? {
        return Err(damaged("the record has another client_id than the row"));
    }
    Ok(())
}

/// What a grant says, its row says too.
fn grant(row: &Row, grant: &Grant) -> Result<(), StoreError> {
    let same = grant.realm == row.text("realm")?
        && grant.client_id == row.text("client_id")?
        && grant.user_id == row.id("user_id")?;
    if same {
        Ok(())
    } else {
        Err(damaged("the grant is another one than the row says"))
    }
}

fn audited(row: &Row) -> Result<(), StoreError> {
    let (id, kind) = (row.text("id")?, row.text("kind")?);
    let doc: Map<String, Value> = row.doc("doc")?;
    let says = |name: &str, wanted: &str| doc.get(name).is_some_and(|value| value == wanted);
    if says("id", &id) && says("event", &kind) {
        Ok(())
    } else {
        Err(damaged("the record is another one than the row says"))
    }
}
