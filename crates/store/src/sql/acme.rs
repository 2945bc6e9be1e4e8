//! Accounts, certificates and challenges of ACME, and the lease of the node that orders.

use aws_lc_rs::digest::{SHA256, digest};

use super::{Row, sql, write_doc};
use crate::{Store, StoreError};
use doorward_core::model::acme::{
    AcmeIssued, StoredAcmeAccount, StoredAcmeCertificate, StoredAcmeChallenge,
};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::secret::Secret;

impl Store {
    /// The account at the authority with this directory.
    pub async fn acme_account(
        &self,
        directory: &str,
    ) -> Result<Option<StoredAcmeAccount>, StoreError> {
        let row = sql("SELECT * FROM acme_accounts WHERE directory = $1")
            .bind(directory)
            .one(&self.database)
            .await?;
        row.as_ref().map(account).transpose()
    }

    /// Keeps the account of its directory, in the place of an earlier one.
    pub async fn put_acme_account(&self, account: &StoredAcmeAccount) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        sql(
            "INSERT INTO acme_accounts (directory, credentials, contacts, created_ms)
             VALUES ($1, $2, $3, $4)
             ON CONFLICT (directory) DO UPDATE SET
                credentials = excluded.credentials, contacts = excluded.contacts,
                created_ms = excluded.created_ms",
        )
        .bind(&account.directory)
        .bind(account.credentials.expose())
        .bind(account.contacts.join(" "))
        .bind(account.created_ms)
        .run(&mut tx)
        .await?;
        tx.commit().await
    }

    /// Forgets the account of this directory.
    pub async fn delete_acme_account(&self, directory: &str) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        sql("DELETE FROM acme_accounts WHERE directory = $1")
            .bind(directory)
            .run(&mut tx)
            .await?;
        tx.commit().await
    }

    /// All certificates, in the order of their names.
    pub async fn acme_certificates(&self) -> Result<Vec<StoredAcmeCertificate>, StoreError> {
        let rows = sql("SELECT * FROM acme_certificates ORDER BY names")
            .all(&self.database)
            .await?;
        rows.iter().map(certificate).collect()
    }

    /// The certificate for exactly these names.
    pub async fn acme_certificate(
        &self,
        names: &str,
    ) -> Result<Option<StoredAcmeCertificate>, StoreError> {
        let row = sql("SELECT * FROM acme_certificates WHERE hash = $1")
            .bind(hash(names))
            .one(&self.database)
            .await?;
        row.as_ref().map(certificate).transpose()
    }

    /// A number that changes when another process has changed a certificate, or perhaps
    /// something else.
    pub async fn acme_version(&self) -> Result<i64, StoreError> {
        self.database.version("acme").await
    }

    /// Keeps a certificate, in the place of the earlier one of its names.
    pub async fn put_acme_certificate(
        &self,
        certificate: &StoredAcmeCertificate,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        let issued = certificate.issued.as_ref();
        let mut tx = self.begin_audited(audit).await?;
        sql("INSERT INTO acme_certificates
                (hash, names, directory, chain, private, updated_ms, doc)
             VALUES ($1, $2, $3, $4, $5, $6, $7)
             ON CONFLICT (hash) DO UPDATE SET
                directory = excluded.directory, chain = excluded.chain,
                private = excluded.private, updated_ms = excluded.updated_ms,
                doc = excluded.doc")
        .bind(hash(&certificate.names))
        .bind(&certificate.names)
        .bind(&certificate.directory)
        .bind(issued.map(|issued| issued.chain.as_str()))
        .bind(issued.map(|issued| issued.key.expose()))
        .bind(certificate.updated_ms)
        .bind(write_doc(&certificate.state)?)
        .run(&mut tx)
        .await?;
        tx.commit().await
    }

    /// Forgets the certificate for exactly these names.
    pub async fn delete_acme_certificate(&self, names: &str) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        sql("DELETE FROM acme_certificates WHERE hash = $1")
            .bind(hash(names))
            .run(&mut tx)
            .await?;
        tx.commit().await
    }

    /// Keeps answers to challenges, for every node to give.
    pub async fn put_acme_challenges(
        &self,
        challenges: &[StoredAcmeChallenge],
    ) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        for challenge in challenges {
            sql(
                "INSERT INTO acme_challenges (key, answer, expires_ms) VALUES ($1, $2, $3)
                 ON CONFLICT (key) DO UPDATE SET
                    answer = excluded.answer, expires_ms = excluded.expires_ms",
            )
            .bind(&challenge.key)
            .bind(&challenge.answer)
            .bind(challenge.expires_ms)
            .run(&mut tx)
            .await?;
        }
        tx.commit().await
    }

    /// The answers to challenges that are not over.
    pub async fn acme_challenges(
        &self,
        now_ms: i64,
    ) -> Result<Vec<StoredAcmeChallenge>, StoreError> {
        let rows = sql("SELECT * FROM acme_challenges WHERE expires_ms > $1")
            .bind(now_ms)
            .all(&self.database)
            .await?;
        let read = |row: &Row| {
            Ok(StoredAcmeChallenge {
                key: row.text("key")?,
                answer: row.text("answer")?,
                expires_ms: row.int("expires_ms")?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// Forgets the answer to this challenge.
    pub async fn delete_acme_challenge(&self, key: &str) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        sql("DELETE FROM acme_challenges WHERE key = $1")
            .bind(key)
            .run(&mut tx)
            .await?;
        tx.commit().await
    }

    /// Takes the lease of this name until `until_ms`, or prolongs it. Of two holders,
    /// one is told yes, until the time of its lease is over.
    pub async fn take_acme_lease(
        &self,
        name: &str,
        holder: &str,
        now_ms: i64,
        until_ms: i64,
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin().await?;
        let taken = sql(
            "INSERT INTO acme_leases (name, holder, until_ms) VALUES ($1, $2, $3)
             ON CONFLICT (name) DO UPDATE SET
                holder = excluded.holder, until_ms = excluded.until_ms
              WHERE acme_leases.until_ms <= $4 OR acme_leases.holder = excluded.holder",
        )
        .bind(name)
        .bind(holder)
        .bind(until_ms)
        .bind(now_ms)
        .run(&mut tx)
        .await?;
        tx.commit().await?;
        Ok(taken == 1)
    }

    /// Gives the lease of this name back, if `holder` has it.
    pub async fn release_acme_lease(&self, name: &str, holder: &str) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        sql("DELETE FROM acme_leases WHERE name = $1 AND holder = $2")
            .bind(name)
            .bind(holder)
            .run(&mut tx)
            .await?;
        tx.commit().await
    }
}

/// By what the certificate for these names is found.
fn hash(names: &str) -> Vec<u8> {
    digest(&SHA256, names.as_bytes()).as_ref().to_vec()
}

fn account(row: &Row) -> Result<StoredAcmeAccount, StoreError> {
    let contacts = row.text("contacts")?;
    Ok(StoredAcmeAccount {
        directory: row.text("directory")?,
        credentials: Secret::new(row.text("credentials")?),
        contacts: contacts.split_whitespace().map(str::to_owned).collect(),
        created_ms: row.int("created_ms")?,
    })
}

/// Reads a row.
pub(super) fn certificate(row: &Row) -> Result<StoredAcmeCertificate, StoreError> {
    let issued = row.opt_text("chain")?.zip(row.opt_text("private")?);
    Ok(StoredAcmeCertificate {
        names: row.text("names")?,
        directory: row.text("directory")?,
        issued: issued.map(|(chain, key)| AcmeIssued {
            chain,
            key: Secret::new(key),
        }),
        state: row.doc("doc")?,
        updated_ms: row.int("updated_ms")?,
    })
}
