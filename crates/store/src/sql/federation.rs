//! Links between users and others at other providers.

use uuid::Uuid;

use super::{Row, Tx, endings, groups, sql, users};
use crate::{Store, StoreError};
use doorward_core::model::audit::{Detail, PendingAudit};
use doorward_core::model::federation::FederatedIdentity;
use doorward_core::model::user::User;

impl Store {
    /// Who at another provider is a user here: the link and the user.
    pub async fn federated_user(
        &self,
        realm: &str,
        issuer: &str,
        subject: &str,
    ) -> Result<Option<(FederatedIdentity, User)>, StoreError> {
        let found = sql(
            "SELECT * FROM federated_identities WHERE realm = $1 AND issuer = $2 AND subject = $3",
        )
        .bind(realm)
        .bind(issuer)
        .bind(subject)
        .one(&self.database)
        .await?;
        let Some(found) = found else {
            return Ok(None);
        };
        let identity = read(&found)?;
        let user = users::by_id(&self.database, realm, identity.user_id).await?;
        Ok(user.map(|user| (identity, user)))
    }

    /// Links a user to somebody at another provider; with `seen`, only if that
    /// is the user's version still.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when that one is linked already;
    /// [`StoreError::Conflict`] when the user is gone, or has changed.
    pub async fn link_identity(
        &self,
        identity: &FederatedIdentity,
        seen: Option<i64>,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        link(&mut tx, identity, seen).await?;
        tx.commit().await
    }

    /// Adds a user who is linked to somebody at another provider.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when the name is another user's, or that one is
    /// linked already.
    pub async fn insert_federated_user(
        &self,
        user: &User,
        identity: &FederatedIdentity,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        users::insert(&mut tx, user).await?;
        insert(&mut tx, identity).await?;
        self.changed(tx.commit().await)
    }

    /// Notes that a link was used, and what its provider says now.
    pub async fn touch_identity(&self, identity: &FederatedIdentity) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        touch(&mut tx, identity).await?;
        tx.commit().await
    }

    /// The links of a user, in the order in which they were made.
    pub async fn identities(&self, user_id: Uuid) -> Result<Vec<FederatedIdentity>, StoreError> {
        let rows =
            sql("SELECT * FROM federated_identities WHERE user_id = $1 ORDER BY created_ms, id")
                .bind(user_id)
                .all(&self.database)
                .await?;
        rows.iter().map(read).collect()
    }

    /// Removes a link of a user, whose refresh tokens and sessions end: one of
    /// them may have begun with it. The user leaves the groups of these names, which
    /// came with the link. Says whether it was there.
    pub async fn unlink_identity(
        &self,
        link: &FederatedIdentity,
        groups: &[String],
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        let gone = unlink(&mut tx, link, groups, now_ms).await?;
        tx.void_unless(gone);
        self.changed(tx.commit().await)?;
        Ok(gone)
    }
}

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

async fn link(
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

async fn insert(tx: &mut Tx, identity: &FederatedIdentity) -> Result<(), StoreError> {
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

async fn touch(tx: &mut Tx, identity: &FederatedIdentity) -> Result<(), StoreError> {
    sql("UPDATE federated_identities SET provider = $1, email = $2, used_ms = $3 WHERE id = $4")
        .bind(identity.provider.as_str())
        .bind(identity.email.as_deref())
        .bind(identity.used_ms)
        .bind(identity.id)
        .run(tx)
        .await
        .map(drop)
}

async fn unlink(
    tx: &mut Tx,
    link: &FederatedIdentity,
    groups: &[String],
    now_ms: i64,
) -> Result<bool, StoreError> {
    let user_id = link.user_id;
    let gone = sql("DELETE FROM federated_identities WHERE id = $1 AND user_id = $2")
        .bind(link.id)
        .bind(user_id)
        .run(&mut *tx)
        .await?;
    if gone == 0 {
        return Ok(false);
    }
    endings::end_logins(&mut *tx, &user_id.to_string(), now_ms).await?;
    let left = groups::leave(tx, (&link.realm, user_id), groups, now_ms).await?;
    if !left.is_empty() {
        tx.complete(|record| record.set_detail("groups", Detail::Names(left)));
    }
    Ok(true)
}
