//! The tokens that the broker gave out.

use super::{Database, Row, Tx, sql, write_doc};
use crate::{Store, StoreError};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::broker::{
    PresentedRefreshToken, Refresh, RevocationTarget, StoredTokens, TokenInsertion, local_person,
    person,
};
use doorward_core::model::grant::TokenHash;
use doorward_core::model::user::name;

/// A note that someone's tokens are over outlasts the last of them by so long:
/// those that were on their way when it was made may live longer. A day.
const SLACK_MS: i64 = 86_400_000;

impl Store {
    /// Keeps tokens that the broker gives out; those of the same access token
    /// and application give way, unless they are revoked. A refresh token that
    /// came with other ones of the application before leaves those.
    pub async fn keep_broker_tokens(
        &self,
        tokens: &StoredTokens,
        audit: Option<&PendingAudit>,
    ) -> Result<TokenInsertion, StoreError> {
        let write = self.batch.write_audited(
            tokens.clone(),
            |tx, tokens| Box::pin(insert(tx, tokens)),
            (audit, |kept| *kept != TokenInsertion::Neither),
        );
        write.await
    }

    /// Puts other tokens in the place of those of a refresh token, if that is
    /// good; says whether it was. Of two at once, one is told yes, unless the
    /// refresh token stays the same.
    pub async fn refresh_broker_tokens(
        &self,
        refresh: &Refresh,
        audit: Option<&PendingAudit>,
    ) -> Result<bool, StoreError> {
        let write = self.batch.write_audited(
            refresh.clone(),
            |tx, refresh| Box::pin(replace(tx, refresh)),
            (audit, |done| *done),
        );
        write.await
    }

    /// The broker's tokens that the access token of this hash belongs to.
    pub async fn broker_tokens(
        &self,
        access: TokenHash,
    ) -> Result<Option<StoredTokens>, StoreError> {
        by_access(&self.database, access).await
    }

    /// The broker's tokens that a refresh token belongs to, or belonged to: those
    /// that it is in force for, of the family that it names, and of the one that
    /// it began.
    pub async fn broker_refresh(
        &self,
        shown: &PresentedRefreshToken,
    ) -> Result<Vec<StoredTokens>, StoreError> {
        let rows = sql(
            "SELECT t.*, (SELECT before_ms FROM broker_ends e WHERE e.person = t.person)
                    AS ended_ms
               FROM broker_tokens t WHERE t.refresh IN ($1, $2, $3)",
        )
        .bind(shown.token)
        .bind(shown.named.unwrap_or(shown.token))
        .bind(shown.begun)
        .all(&self.database)
        .await?;
        let mut all = Vec::with_capacity(rows.len());
        for row in &rows {
            all.push(with_refresh_tokens(&self.database, row).await?);
        }
        Ok(all)
    }

    /// Revokes tokens of the broker, with `cascade` also the one that belongs to
    /// the one that is named; `None`: there is none of this hash, or the family
    /// was revoked before.
    pub async fn revoke_broker_token(
        &self,
        revoked: &RevocationTarget,
        cascade: bool,
        audit: Option<&PendingAudit>,
    ) -> Result<Option<StoredTokens>, StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        let revoked = revoke(&mut tx, revoked, cascade).await?;
        // Where there is none, there is nothing to tell of either.
        if let Some(tokens) = &revoked {
            tx.complete(|record| record.set_client(&tokens.client_id));
            tx.commit().await?;
        }
        Ok(revoked)
    }

    /// Ends all tokens of the broker that came of sign-ins up to now with this
    /// name: at foreign providers, and as a user of any realm.
    pub async fn end_broker_person(
        &self,
        end_user: &str,
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        end_named(&mut tx, end_user, now_ms).await?;
        self.changed(tx.commit().await)
    }
}

/// What the row is found by, and what else is kept of the refresh token.
fn identifiers(tokens: &StoredTokens) -> (Option<TokenHash>, Option<TokenHash>) {
    match tokens.family {
        Some(family) => (Some(family), tokens.refresh),
        None => (tokens.refresh, None),
    }
}

async fn insert(tx: &mut Tx, tokens: &StoredTokens) -> Result<TokenInsertion, StoreError> {
    let (mut refresh, mut kept) = (tokens.refresh, TokenInsertion::Both);
    if let (Some(given), None) = (refresh, tokens.family) {
        (refresh, kept) = reissue(tx, tokens, given).await?;
        if kept == TokenInsertion::Neither {
            return Ok(kept);
        }
    }
    let (found_by, current) = identifiers(&StoredTokens {
        refresh,
        ..tokens.clone()
    });
    // A provider may give the same token again while it is good; it is never
    // another application's.
    let done = sql("INSERT INTO broker_tokens
           (access, access_approved, expires_ms, refresh, refresh_approved,
            refresh_expires_ms, swept_ms, client_id, doc, current, person)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
         ON CONFLICT (access) DO UPDATE
            SET expires_ms = excluded.expires_ms, refresh = excluded.refresh,
                refresh_expires_ms = excluded.refresh_expires_ms,
                swept_ms = excluded.swept_ms, doc = excluded.doc,
                current = excluded.current, person = excluded.person
          WHERE broker_tokens.client_id = excluded.client_id
            AND broker_tokens.access_approved = 1
         RETURNING refresh_approved")
    .bind(tokens.access)
    .bind(tokens.access_approved)
    .bind(tokens.expires_ms)
    .bind(found_by)
    .bind(tokens.refresh_approved)
    .bind(tokens.refresh_expires_ms)
    .bind(tokens.swept_ms)
    .bind(&tokens.client_id)
    .bind(write_doc(&tokens.facts)?)
    .bind(current)
    .bind(tokens.person.as_deref())
    .one(&mut *tx)
    .await?;
    let Some(row) = done else {
        return Ok(TokenInsertion::Neither);
    };
    if kept == TokenInsertion::Both && !row.flag("refresh_approved")? {
        // The refresh token is another one than that which was revoked.
        sql("UPDATE broker_tokens SET refresh_approved = 1 WHERE access = $1")
            .bind(tokens.access)
            .run(tx)
            .await?;
    }
    Ok(kept)
}

/// Takes a refresh token that the provider gives again from the tokens that it
/// came with before; a revoked one does not rise again by that.
async fn reissue(
    tx: &mut Tx,
    tokens: &StoredTokens,
    refresh: TokenHash,
) -> Result<(Option<TokenHash>, TokenInsertion), StoreError> {
    let row = sql(
        "SELECT access, client_id, refresh_approved FROM broker_tokens
          WHERE refresh = $1",
    )
    .bind(refresh)
    .one(&mut *tx)
    .await?;
    let Some(row) = row else {
        return Ok((Some(refresh), TokenInsertion::Both));
    };
    if row.text("client_id")? != tokens.client_id {
        return Ok((None, TokenInsertion::Neither));
    }
    let access = row.hash("access")?;
    if !row.flag("refresh_approved")? {
        let same = access == tokens.access;
        return Ok((same.then_some(refresh), TokenInsertion::AccessOnly));
    }
    if access != tokens.access {
        sql("UPDATE broker_tokens SET refresh = NULL WHERE access = $1")
            .bind(access)
            .run(tx)
            .await?;
    }
    Ok((Some(refresh), TokenInsertion::Both))
}

/// The conditional update decides: of two refreshes at once, one finds the
/// token in force, unless it stays the same.
async fn replace(tx: &mut Tx, refresh: &Refresh) -> Result<bool, StoreError> {
    let tokens = &refresh.tokens;
    let (found_by, current) = identifiers(tokens);
    let done = sql("UPDATE broker_tokens
            SET access = $1, expires_ms = $2, refresh = $3, refresh_expires_ms = $4,
                swept_ms = $5, doc = $6, current = $7
          WHERE refresh = $8 AND coalesce(current, refresh) = $9
            AND refresh_approved = 1 AND refresh_expires_ms > $10 AND client_id = $11
         RETURNING access_approved")
    .bind(tokens.access)
    .bind(tokens.expires_ms)
    .bind(found_by)
    .bind(tokens.refresh_expires_ms)
    .bind(tokens.swept_ms)
    .bind(write_doc(&tokens.facts)?)
    .bind(current)
    .bind(refresh.found_by)
    .bind(refresh.presented)
    .bind(refresh.now_ms)
    .bind(&tokens.client_id)
    .one(&mut *tx)
    .await?;
    let Some(row) = done else {
        return Ok(false);
    };
    if !row.flag("access_approved")? {
        // Other nodes are told of approvals that change: not of each refresh.
        sql("UPDATE broker_tokens SET access_approved = 1 WHERE access = $1")
            .bind(tokens.access)
            .run(tx)
            .await?;
    }
    Ok(true)
}

async fn by_access(
    readers: &Database,
    hash: TokenHash,
) -> Result<Option<StoredTokens>, StoreError> {
    let row = sql(
        "SELECT t.*, (SELECT before_ms FROM broker_ends e WHERE e.person = t.person)
                AS ended_ms
           FROM broker_tokens t WHERE t.access = $1",
    )
    .bind(hash)
    .one(readers)
    .await?;
    match row {
        Some(row) => with_refresh_tokens(readers, &row).await.map(Some),
        None => Ok(None),
    }
}

async fn with_refresh_tokens(readers: &Database, row: &Row) -> Result<StoredTokens, StoreError> {
    let mut tokens = read(row)?;
    tokens.ended_ms = row.opt_int("ended_ms")?;
    if tokens.person.is_none() && !tokens.facts.end_user.is_empty() {
        // From before it was kept whose they are.
        let ended = sql("SELECT before_ms FROM broker_ends WHERE person = $1");
        let ended = ended.bind(person(&tokens.facts.end_user)).one(readers);
        let ended = ended.await?.map(|row| row.int("before_ms"));
        tokens.ended_ms = ended.transpose()?;
    }
    if let [Some(token), Some(grant)] = tokens.facts.origins() {
        let ended = sql("SELECT max(before_ms) AS ended_ms FROM broker_ends
              WHERE person IN ($1, $2)")
        .bind(token)
        .bind(grant)
        .one(readers)
        .await?;
        let ended = ended.map(|row| row.opt_int("ended_ms")).transpose()?;
        tokens.ended_ms = tokens.ended_ms.max(ended.flatten());
    }
    Ok(tokens)
}

fn read(row: &Row) -> Result<StoredTokens, StoreError> {
    let (found_by, current) = (row.opt_hash("refresh")?, row.opt_hash("current")?);
    Ok(StoredTokens {
        access: row.hash("access")?,
        access_approved: row.flag("access_approved")?,
        expires_ms: row.int("expires_ms")?,
        refresh: current.or(found_by),
        family: current.and(found_by),
        refresh_approved: row.flag("refresh_approved")?,
        refresh_expires_ms: row.int("refresh_expires_ms")?,
        swept_ms: row.int("swept_ms")?,
        client_id: row.text("client_id")?,
        person: row.opt_text("person")?,
        ended_ms: None,
        facts: row.doc("doc")?,
    })
}

/// Revokes what is meant, with `cascade` also the token that belongs to it.
async fn revoke(
    tx: &mut Tx,
    revoked: &RevocationTarget,
    cascade: bool,
) -> Result<Option<StoredTokens>, StoreError> {
    let update = match (revoked, cascade) {
        (RevocationTarget::Access(_), false) => {
            "UPDATE broker_tokens SET access_approved = 0 WHERE access = $1 RETURNING *"
        }
        (RevocationTarget::Access(_), true) => {
            "UPDATE broker_tokens SET access_approved = 0, refresh_approved = 0
              WHERE access = $1 RETURNING *"
        }
        (RevocationTarget::Refresh(_), false) => {
            "UPDATE broker_tokens SET refresh_approved = 0
              WHERE refresh IN ($1, $2) AND coalesce(current, refresh) = $1 RETURNING *"
        }
        (RevocationTarget::Refresh(_), true) => {
            "UPDATE broker_tokens SET access_approved = 0, refresh_approved = 0
              WHERE refresh IN ($1, $2) AND coalesce(current, refresh) = $1 RETURNING *"
        }
        (RevocationTarget::Family(_), _) => {
            "UPDATE broker_tokens SET access_approved = 0, refresh_approved = 0
              WHERE refresh = $1 AND (access_approved = 1 OR refresh_approved = 1)
             RETURNING *"
        }
    };
    let update = sql(update);
    let update = match revoked {
        RevocationTarget::Access(hash) | RevocationTarget::Family(hash) => update.bind(*hash),
        RevocationTarget::Refresh(shown) => {
            let named = shown.named.unwrap_or(shown.token);
            update.bind(shown.token).bind(named)
        }
    };
    let row = update.one(&mut *tx).await?;
    row.as_ref().map(read).transpose()
}

/// Ends what people of this name, here and elsewhere, have begun up to now.
async fn end_named(tx: &mut Tx, end_user: &str, now_ms: i64) -> Result<(), StoreError> {
    // Realms are few: SQLite must not begin with the users.
    let users = sql("SELECT u.id FROM realms r CROSS JOIN users u
          WHERE u.realm = r.path AND u.user_key = $1")
    .bind(name::key(end_user))
    .all(&mut *tx)
    .await?;
    for user in users {
        end(tx, &local_person(user.id("id")?), now_ms).await?;
    }
    end(tx, &person(end_user), now_ms).await
}

/// Ends what came of a token or grant of the provider that is revoked there: for
/// good, while the provider itself forgets what could not live any longer.
pub(super) async fn end_origin(tx: &mut Tx, origin: &str, until_ms: i64) -> Result<(), StoreError> {
    // No token comes of it any more: each one began before.
    end(tx, origin, until_ms).await
}

/// Ends what somebody has begun up to now, for as long as there are tokens of
/// that time.
pub(super) async fn end(tx: &mut Tx, person: &str, now_ms: i64) -> Result<(), StoreError> {
    let last = sql("SELECT max(swept_ms) AS last_ms FROM broker_tokens")
        .one(&mut *tx)
        .await?;
    let last_ms = last.map(|row| row.opt_int("last_ms")).transpose()?;
    let Some(last_ms) = last_ms.flatten() else {
        return Ok(());
    };
    sql(
        "INSERT INTO broker_ends (person, before_ms, until_ms) VALUES ($1, $2, $3)
         ON CONFLICT (person) DO UPDATE
            SET before_ms = excluded.before_ms, until_ms = excluded.until_ms
          WHERE broker_ends.before_ms <= excluded.before_ms",
    )
    .bind(person)
    .bind(now_ms)
    .bind(last_ms.max(now_ms).saturating_add(SLACK_MS))
    .run(tx)
    .await
    .map(drop)
}
