//! OAuth clients.

use super::{Builder, Row, Tx, damaged, sql, tokens, write_searched_doc};
use crate::{Store, StoreError};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::client::{Client, ClientSecret};
use doorward_core::model::grant::MAX_TOKEN_LIFE_MS;
use doorward_core::model::registration::ClientQuery;
use doorward_core::model::secret::Secret;
use doorward_core::model::user::Owner;

impl Store {
    /// The client of this identifier (exact).
    pub async fn client(&self, realm: &str, client_id: &str) -> Result<Option<Client>, StoreError> {
        let row = sql("SELECT * FROM clients WHERE realm = $1 AND client_id = $2")
            .bind(realm)
            .bind(client_id)
            .one(&self.database)
            .await?;
        row.as_ref().map(read).transpose()
    }

    /// All clients of a realm, by ascending identifier.
    pub async fn clients(&self, realm: &str) -> Result<Vec<Client>, StoreError> {
        let rows = sql("SELECT * FROM clients WHERE realm = $1 ORDER BY client_id")
            .bind(realm)
            .all(&self.database)
            .await?;
        rows.iter().map(read).collect()
    }

    /// The clients of a realm that fit a query.
    pub async fn find_clients(
        &self,
        realm: &str,
        query: &ClientQuery,
    ) -> Result<Vec<Client>, StoreError> {
        let dialect = self.database.dialect();
        let mut select = Builder::new("SELECT * FROM clients WHERE realm = ");
        select.push_bind(realm).push(" AND client_id > ");
        select.push_bind(query.after.as_deref().unwrap_or_default());
        if let Some(owner) = query.owner {
            select.push(" AND owner = ").push_bind(owner.as_str());
        }
        if let Some(text) = &query.text {
            let text = text.to_ascii_lowercase();
            select.push(" AND (");
            dialect.push_contains(&mut select, "lower(client_id)", &text);
            select.push(" OR ");
            dialect.push_contains(&mut select, dialect.client_name(), &text);
            select.push(")");
        }
        select
            .push(" ORDER BY client_id LIMIT ")
            .push_bind(query.limit);
        let rows = select.build().all(&self.database).await?;
        rows.iter().map(read).collect()
    }

    /// Replaces metadata and secret of a client that was last changed at
    /// `seen_ms`; `client.updated_ms` must be greater.
    ///
    /// # Errors
    /// [`StoreError::FileOwned`] for a client that the file declares;
    /// [`StoreError::Conflict`] when it was changed meanwhile, or is gone.
    pub async fn update_client(
        &self,
        client: &Client,
        seen_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        self.changed(update(self.begin_audited(audit).await?, client, seen_ms).await)
    }

    /// The addresses at which clients of a realm live: where people may be sent
    /// back to, and what is allowed besides (`allowed_origins`).
    pub async fn client_addresses(&self, realm: &str) -> Result<Vec<String>, StoreError> {
        let addresses = sql(self.database.dialect().client_addresses()).bind(realm);
        let rows = addresses.all(&self.database).await?;
        rows.iter().map(|row| row.text("value")).collect()
    }

    /// Adds a client.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when the identifier is another client's.
    pub async fn insert_client(
        &self,
        client: &Client,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        insert(&mut tx, client).await?;
        self.changed(tx.commit().await)
    }

    /// Removes a client and revokes what was granted to it, also where others
    /// got tokens for its tokens. Names the grants that it revoked; `None`: there
    /// is no such client. `seen_ms`: it has to be as it was changed then.
    ///
    /// # Errors
    /// [`StoreError::FileOwned`] for a client that the file declares;
    /// [`StoreError::Conflict`] when it is not as it was seen.
    pub async fn delete_client(
        &self,
        realm: &str,
        client_id: &str,
        seen_ms: Option<i64>,
        audit: Option<&PendingAudit>,
    ) -> Result<Option<Vec<String>>, StoreError> {
        self.changed(
            delete(
                self.begin_audited(audit).await?,
                (realm, client_id),
                seen_ms,
            )
            .await,
        )
    }
}

pub(super) fn read(row: &Row) -> Result<Client, StoreError> {
    let owner = row.text("owner")?;
    let plain = row.opt_text("secret")?;
    let salt = row.opt_bytes("salt")?;
    let digest = row.opt_bytes("digest")?;
    Ok(Client {
        realm: row.text("realm")?,
        metadata: row.doc("doc")?,
        secret: match (plain, salt, digest) {
            (Some(plain), _, _) => ClientSecret::Plain(Secret::new(plain)),
            (None, Some(salt), Some(digest)) => ClientSecret::Digest { salt, digest },
            _ => ClientSecret::None,
        },
        owner: Owner::parse(&owner).ok_or_else(|| damaged(format!("owner `{owner}`")))?,
        registration: row.opt_hash("registration")?,
        created_ms: row.int("created_ms")?,
        updated_ms: row.int("updated_ms")?,
    })
}

/// The columns of a secret: salt, digest, itself.
type SecretColumns<'a> = (Option<&'a [u8]>, Option<&'a [u8]>, Option<&'a str>);

fn secret_columns(secret: &ClientSecret) -> SecretColumns<'_> {
    match secret {
        ClientSecret::None => (None, None, None),
        ClientSecret::Digest { salt, digest } => (Some(salt), Some(digest), None),
        ClientSecret::Plain(secret) => (None, None, Some(secret.expose())),
    }
}

async fn update(mut tx: Tx, client: &Client, seen_ms: i64) -> Result<(), StoreError> {
    let id = &client.metadata.client_id;
    refuse_file_owned(&mut tx, &client.realm, id).await?;
    let (salt, digest, plain) = secret_columns(&client.secret);
    let done = sql(
        "UPDATE clients SET salt = $1, digest = $2, secret = $3, updated_ms = $4, doc = $5
         WHERE realm = $6 AND client_id = $7 AND updated_ms = $8",
    )
    .bind(salt)
    .bind(digest)
    .bind(plain)
    .bind(client.updated_ms)
    .bind(write_searched_doc(&client.metadata)?)
    .bind(&client.realm)
    .bind(id)
    .bind(seen_ms)
    .run(&mut tx)
    .await?;
    if done == 0 {
        return Err(StoreError::Conflict(id.clone()));
    }
    tx.commit().await
}

pub(super) async fn insert(tx: &mut Tx, client: &Client) -> Result<(), StoreError> {
    let (salt, digest, plain) = secret_columns(&client.secret);
    sql("INSERT INTO clients
           (realm, client_id, owner, salt, digest, secret, created_ms, updated_ms, doc,
            registration, used_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)")
    .bind(&client.realm)
    .bind(&client.metadata.client_id)
    .bind(client.owner.as_str())
    .bind(salt)
    .bind(digest)
    .bind(plain)
    .bind(client.created_ms)
    .bind(client.updated_ms)
    .bind(write_searched_doc(&client.metadata)?)
    .bind(client.registration)
    .bind(client.created_ms)
    .run_unless_taken(tx, &client.metadata.client_id)
    .await
    .map(drop)
}

/// Removes the client and all that hangs on it, whoever owns it; the grants that
/// were revoked, and whether there was one.
pub(super) async fn remove(
    tx: &mut Tx,
    realm: &str,
    client_id: &str,
) -> Result<(bool, Vec<String>), StoreError> {
    let grants = revoke_grants(tx, realm, client_id).await?;
    for statement in [
        "DELETE FROM refresh_tokens WHERE realm = $1 AND client_id = $2",
        "DELETE FROM codes WHERE realm = $1 AND client_id = $2",
        "DELETE FROM devices WHERE realm = $1 AND client_id = $2",
        "DELETE FROM requests WHERE realm = $1 AND client_id = $2",
        "DELETE FROM consents WHERE realm = $1 AND client_id = $2",
        "DELETE FROM session_grants WHERE realm = $1 AND client_id = $2",
        "DELETE FROM session_clients WHERE realm = $1 AND client_id = $2",
        "DELETE FROM logouts WHERE realm = $1 AND client_id = $2",
    ] {
        sql(statement).bind(realm).bind(client_id).run(tx).await?;
    }
    let gone = sql("DELETE FROM clients WHERE realm = $1 AND client_id = $2")
        .bind(realm)
        .bind(client_id)
        .run(tx)
        .await?;
    Ok((gone > 0, grants))
}

/// Others may have exchanged the client's tokens for their own: those are of the
/// same grants.
async fn revoke_grants(
    tx: &mut Tx,
    realm: &str,
    client_id: &str,
) -> Result<Vec<String>, StoreError> {
    let grants = sql("SELECT grant_id, max(until_ms) AS until_ms FROM (
           SELECT grant_id, ends_ms + $3 AS until_ms FROM refresh_tokens
            WHERE realm = $1 AND client_id = $2
            UNION ALL
           SELECT grant_id, expires_ms FROM session_grants
            WHERE realm = $1 AND client_id = $2) AS granted
          GROUP BY grant_id")
    .bind(realm)
    .bind(client_id)
    .bind(MAX_TOKEN_LIFE_MS)
    .all(&mut *tx)
    .await?;
    let mut revoked = Vec::with_capacity(grants.len());
    for grant in grants {
        let grant_id = grant.text("grant_id")?;
        tokens::revoke(tx, &grant_id, grant.int("until_ms")?).await?;
        revoked.push(grant_id);
    }
    Ok(revoked)
}

async fn refuse_file_owned(tx: &mut Tx, realm: &str, client_id: &str) -> Result<(), StoreError> {
    let row = sql("SELECT owner FROM clients WHERE realm = $1 AND client_id = $2")
        .bind(realm)
        .bind(client_id)
        .one(&mut *tx)
        .await?;
    match row {
        Some(row) if row.text("owner")? == Owner::File.as_str() => {
            Err(StoreError::FileOwned(client_id.to_owned()))
        }
        _ => Ok(()),
    }
}

/// Refuses a client that is not as it was changed then.
async fn refuse_unseen(
    tx: &mut Tx,
    (realm, client_id): (&str, &str),
    seen_ms: i64,
) -> Result<(), StoreError> {
    // The row is written, so that nobody else changes it before it goes.
    sql("UPDATE clients SET updated_ms = updated_ms WHERE realm = $1 AND client_id = $2")
        .bind(realm)
        .bind(client_id)
        .run(&mut *tx)
        .await?;
    let row = sql("SELECT updated_ms FROM clients WHERE realm = $1 AND client_id = $2")
        .bind(realm)
        .bind(client_id)
        .one(&mut *tx)
        .await?;
    match row.map(|row| row.int("updated_ms")).transpose()? {
        Some(now_ms) if now_ms != seen_ms => Err(StoreError::Conflict(client_id.to_owned())),
        _ => Ok(()),
    }
}

async fn delete(
    mut tx: Tx,
    (realm, client_id): (&str, &str),
    seen_ms: Option<i64>,
) -> Result<Option<Vec<String>>, StoreError> {
    refuse_file_owned(&mut tx, realm, client_id).await?;
    if let Some(seen_ms) = seen_ms {
        refuse_unseen(&mut tx, (realm, client_id), seen_ms).await?;
    }
    let (gone, grants) = remove(&mut tx, realm, client_id).await?;
    tx.void_unless(gone);
    tx.commit().await?;
    Ok(gone.then_some(grants))
}
