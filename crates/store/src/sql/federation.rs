//! Links between users and others at other providers.

use uuid::Uuid;

use super::{Database, Row, Tx, endings, sql, users};
use crate::StoreError;
use doorward_core::model::federation::FederatedIdentity;
use doorward_core::model::user::User;

fn read(row: &Row) -> Result<FederatedIdentity, StoreError> {
    Ok(FederatedIdentity {
        id: row.id("id")?,
        realm: row.text("realm")?,
        user_id: row.id("user_id")?,
        issuer: row.text("issuer")?,
        subject: row.text("subject")?,
        provider: row.text("provider")?,
        email: row.opt_text("email")?,
        created_ms: row.int("created_ms")?,
        used_ms: row.int("used_ms")?,
    })
}

pub(super) async fn user(
    readers: &Database,
    realm: &str,
    issuer: &str,
    subject: &str,
) -> Result<Option<(FederatedIdentity, User)>, StoreError> {
    let found =
        sql("SELECT * FROM federated_identities WHERE realm = $1 AND issuer = $2 AND subject = $3")
            .bind(realm)
            .bind(issuer)
            .bind(subject)
            .one(readers)
            .await?;
    let Some(found) = found else {
        return Ok(None);
    };
    let identity = read(&found)?;
    let user = users::by_id(readers, realm, identity.user_id).await?;
    Ok(user.map(|user| (identity, user)))
}

pub(super) async fn link(
    tx: &mut Tx,
    identity: &FederatedIdentity,
    seen: Option<i64>,
) -> Result<(), StoreError> {
    let gone = || StoreError::Conflict(identity.user_id.to_string());
    let user = sql("SELECT version FROM users WHERE id = $1 AND realm = $2")
        .bind(identity.user_id)
        .bind(identity.realm.as_str())
        .one(&mut *tx)
        .await?;
    let version = user.ok_or_else(gone)?.int("version")?;
    if seen.is_some_and(|seen| seen != version) {
        return Err(gone());
    }
    insert(tx, identity).await
}

pub(super) async fn insert(tx: &mut Tx, identity: &FederatedIdentity) -> Result<(), StoreError> {
    let done = sql("INSERT INTO federated_identities
             (id, realm, user_id, issuer, subject, provider, email, created_ms, used_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT (realm, issuer, subject) DO NOTHING")
    .bind(identity.id)
    .bind(identity.realm.as_str())
    .bind(identity.user_id)
    .bind(identity.issuer.as_str())
    .bind(identity.subject.as_str())
    .bind(identity.provider.as_str())
    .bind(identity.email.as_deref())
    .bind(identity.created_ms)
    .bind(identity.used_ms)
    .run(tx)
    .await?;
    match done {
        0 => Err(StoreError::Taken("the subject".to_owned())),
        _ => Ok(()),
    }
}

pub(super) async fn touch(tx: &mut Tx, identity: &FederatedIdentity) -> Result<(), StoreError> {
    sql("UPDATE federated_identities SET provider = $1, email = $2, used_ms = $3 WHERE id = $4")
        .bind(identity.provider.as_str())
        .bind(identity.email.as_deref())
        .bind(identity.used_ms)
        .bind(identity.id)
        .run(tx)
        .await
        .map(drop)
}

pub(super) async fn of_user(
    readers: &Database,
    user_id: Uuid,
) -> Result<Vec<FederatedIdentity>, StoreError> {
    let rows = sql("SELECT * FROM federated_identities WHERE user_id = $1 ORDER BY created_ms, id")
        .bind(user_id)
        .all(readers)
        .await?;
    rows.iter().map(read).collect()
}

pub(super) async fn unlink(
    tx: &mut Tx,
    user_id: Uuid,
    id: Uuid,
    now_ms: i64,
) -> Result<bool, StoreError> {
    let gone = sql("DELETE FROM federated_identities WHERE id = $1 AND user_id = $2")
        .bind(id)
        .bind(user_id)
        .run(tx)
        .await?;
    if gone == 0 {
        return Ok(false);
    }
    endings::end_logins(tx, &user_id.to_string(), now_ms).await?;
    Ok(true)
}
