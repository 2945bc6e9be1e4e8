//! Many users in one transaction, many rows a statement.

use std::collections::{HashMap, HashSet};

use futures_util::future::join;

use super::dialect::Dialect;
use super::statement::Statement;
use super::{Builder, Tx, endings, sql, users};
use crate::{Store, StoreError};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::user::import::{ExistingUserPolicy, Import, ImportOutcome};
use doorward_core::model::user::{Owner, User, name as user_name, schema};

/// Rows in one statement: databases bind at most 32,766 values.
const ROWS: usize = 500;

/// An import of more users than this is one of very many.
const MANY: usize = 1000;

impl Store {
    /// Adds users of one realm, all in one transaction: whoever can't be added
    /// keeps no other from it. Names what became of each. With `dry` it says
    /// what would, and nothing is changed.
    pub async fn import_users(
        &self,
        users: &[Import],
        existing: ExistingUserPolicy,
        dry: bool,
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<Vec<ImportOutcome>, StoreError> {
        let mut tx = if users.len() > MANY {
            self.database.begin_many().await?.with_audit(audit)
        } else {
            self.begin_audited(audit).await?
        };
        let outcomes = import(&mut tx, users, existing, now_ms).await?;
        if dry {
            return Ok(outcomes);
        }
        self.changed(tx.commit().await)?;
        Ok(outcomes)
    }
}

/// Adds these users of one realm.
async fn import(
    tx: &mut Tx,
    imports: &[Import],
    existing: ExistingUserPolicy,
    now_ms: i64,
) -> Result<Vec<ImportOutcome>, StoreError> {
    realm_exists(tx, imports).await?;
    let mut added = HashSet::new();
    let dialect = tx.dialect();
    let mut statements = imports.chunks(ROWS).map(|chunk| insertion(chunk, dialect));
    let mut next = statements.next();
    // While the database is at one statement, the next is put together.
    while let Some(statement) = next {
        let insert = statement?.all(&mut *tx);
        let (rows, following) = join(insert, async { statements.next() }).await;
        for row in rows? {
            added.insert((row.id("id")?, row.text("user_key")?));
        }
        next = following;
    }
    let mut outcomes = Vec::with_capacity(imports.len());
    // A name that comes twice is added once.
    let mut indexed = Vec::new();
    for import in imports {
        if added.remove(&(import.user.id, user_name::key(&import.user.user_name))) {
            indexed.push(&import.user);
            outcomes.push(Some(ImportOutcome::Added));
        } else {
            outcomes.push(None);
        }
    }
    index(tx, &indexed).await?;
    let missing = imports.iter().zip(&outcomes);
    let missing = missing.filter(|(_, outcome)| outcome.is_none());
    let missing: Vec<_> = missing.map(|(import, _)| &import.user).collect();
    let known = users_by_key(tx, &missing).await?;
    let mut all = Vec::with_capacity(imports.len());
    for (import, outcome) in imports.iter().zip(outcomes) {
        all.push(match outcome {
            Some(outcome) => outcome,
            None => settle(tx, import, &known, existing, now_ms).await?,
        });
    }
    Ok(all)
}

/// A transaction for very many rows does not check it.
async fn realm_exists(tx: &mut Tx, imports: &[Import]) -> Result<(), StoreError> {
    let Some(first) = imports.first() else {
        return Ok(());
    };
    let realm = &first.user.realm;
    let known = sql("SELECT path FROM realms WHERE path = $1").bind(realm);
    match known.one(&mut *tx).await? {
        Some(_) => Ok(()),
        None => Err(StoreError::Absent("realm", realm.clone())),
    }
}

/// Inserts the users whose names and identifiers are free, and returns those.
fn insertion(imports: &[Import], dialect: Dialect) -> Result<Statement, StoreError> {
    let mut insert = Builder::with_many_values(dialect.insert(), dialect);
    insert
        .push(" INTO users ")
        .push(users::COLUMNS)
        .push(" VALUES ");
    for (position, Import { user, .. }) in imports.iter().enumerate() {
        insert.push(if position == 0 { "" } else { ", " });
        users::push_row(&mut insert, user)?;
    }
    insert.push(" ON CONFLICT DO NOTHING RETURNING id, user_key");
    Ok(insert.build())
}

/// Adds what filters look for in these new users.
async fn index(tx: &mut Tx, users: &[&User]) -> Result<(), StoreError> {
    let dialect = tx.dialect();
    let mut values = users.iter().flat_map(|user| {
        let values = schema::indexed(&user.profile).into_iter();
        values.map(move |value| (*user, value))
    });
    let mut insertion = || {
        let mut rows = None;
        for (user, value) in values.by_ref().take(ROWS) {
            let rows = rows.get_or_insert_with(|| users::IndexRows::new(dialect));
            rows.push(user.id, &user.realm, &value);
        }
        rows.map(|rows| rows.insert.build())
    };
    let mut next = insertion();
    while let Some(statement) = next {
        let (done, following) = join(statement.run(tx), async { insertion() }).await;
        done?;
        next = following;
    }
    Ok(())
}

/// The users who have these names already, by their keys.
async fn users_by_key(tx: &mut Tx, users: &[&User]) -> Result<HashMap<String, User>, StoreError> {
    let mut all = HashMap::new();
    for chunk in users.chunks(ROWS) {
        let Some(first) = chunk.first() else { break };
        let mut select = Builder::new("SELECT * FROM users WHERE realm = ");
        select.push_bind(&first.realm).push(" AND user_key IN (");
        for (position, user) in chunk.iter().enumerate() {
            select
                .push(if position == 0 { "" } else { ", " })
                .push_bind(user_name::key(&user.user_name));
        }
        select.push(")");
        for row in select.build().all(&mut *tx).await? {
            all.insert(row.text("user_key")?, users::read(&row)?);
        }
    }
    Ok(all)
}

/// What becomes of a user who could not be added.
async fn settle(
    tx: &mut Tx,
    import: &Import,
    known: &HashMap<String, User>,
    existing: ExistingUserPolicy,
    now_ms: i64,
) -> Result<ImportOutcome, StoreError> {
    let Some(old) = known.get(&user_name::key(&import.user.user_name)) else {
        return Ok(ImportOutcome::Taken);
    };
    match existing {
        ExistingUserPolicy::Refuse => return Ok(ImportOutcome::Taken),
        ExistingUserPolicy::Skip => return Ok(ImportOutcome::Skipped),
        ExistingUserPolicy::Update if old.owner == Owner::File => {
            return Ok(ImportOutcome::FileOwned);
        }
        ExistingUserPolicy::Update => {}
    }
    // Read again: the file may name it twice.
    let row = sql("SELECT * FROM users WHERE id = $1").bind(old.id);
    let Some(row) = row.one(&mut *tx).await? else {
        return Ok(ImportOutcome::Taken);
    };
    let old = users::read(&row)?;
    let mut new = old.clone();
    new.profile.extend(import.user.profile.clone());
    if import.says_active {
        new.active = import.user.active;
    }
    (new.version, new.updated_ms) = (old.version + 1, now_ms);
    users::update(tx, &new).await?;
    if let Some(hash) = &import.user.password_hash
        && Some(hash) != old.password_hash.as_ref()
    {
        let id = old.id.to_string();
        sql("UPDATE users SET password = $1 WHERE id = $2")
            .bind(hash.expose())
            .bind(&id)
            .run(tx)
            .await?;
        endings::end_logins(tx, &id, now_ms).await?;
    }
    Ok(ImportOutcome::Updated)
}
