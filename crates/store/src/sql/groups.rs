//! Groups and their members.

use uuid::Uuid;

use super::filter::Records;
use super::page::Total;
use super::{Builder, Row, Tx, page, sql, write_doc};
use crate::{GroupChange, GroupOutcome, GroupPage, Store, StoreError};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::group::{Group, MemberChange, Membership};
use doorward_core::model::query::UserQuery;
use doorward_core::model::user::fold;

/// Members that one statement adds or removes.
const AT_ONCE: usize = 1000;

/// Most memberships of one look-up.
const MEMBERSHIPS_MAX: i64 = 20_000;

impl Store {
    /// The group of this id.
    pub async fn group(&self, realm: &str, id: Uuid) -> Result<Option<Group>, StoreError> {
        let row = sql("SELECT * FROM user_groups WHERE id = $1 AND realm = $2")
            .bind(id)
            .bind(realm)
            .one(&self.database)
            .await?;
        row.as_ref().map(read).transpose()
    }

    /// The groups that satisfy a query.
    ///
    /// # Errors
    /// As [`Store::users`].
    pub async fn groups(&self, realm: &str, query: &UserQuery) -> Result<GroupPage, StoreError> {
        let records = (Records::Groups, Total::Counted);
        let page = page::read(&self.database, records, realm, query).await?;
        Ok(GroupPage {
            groups: page.rows.iter().map(read).collect::<Result<_, _>>()?,
            total: page.total,
            more: page.more,
        })
    }

    /// The groups of one page of a query, without counting those of all pages.
    ///
    /// # Errors
    /// As [`Store::users`].
    pub async fn groups_uncounted(
        &self,
        realm: &str,
        query: &UserQuery,
    ) -> Result<Vec<Group>, StoreError> {
        let records = (Records::Groups, Total::Omitted);
        let page = page::read(&self.database, records, realm, query).await?;
        page.rows.iter().map(read).collect()
    }

    /// Members of a group by ascending identifier: those after `after`, at most
    /// `limit`.
    pub async fn members(
        &self,
        group: Uuid,
        after: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<Membership>, StoreError> {
        let rows = sql("SELECT m.user_id AS id, u.user_name AS name
              FROM group_members m JOIN users u ON u.id = m.user_id
             WHERE m.group_id = $1 AND m.user_id > $2 ORDER BY m.user_id LIMIT $3")
        .bind(group)
        .bind(after.map_or_else(String::new, |after| after.to_string()))
        .bind(limit)
        .all(&self.database)
        .await?;
        rows.iter().map(membership).collect()
    }

    /// The groups of these users, by user and ascending name: at most 20,000.
    pub async fn memberships(&self, users: &[Uuid]) -> Result<Vec<(Uuid, Membership)>, StoreError> {
        let mut select = Builder::new(
            "SELECT m.user_id, g.id, g.name FROM group_members m
               JOIN user_groups g ON g.id = m.group_id WHERE m.user_id IN (",
        );
        self.database
            .dialect()
            .push_each_text(&mut select, write_doc(&users)?);
        select.push(") ORDER BY m.user_id, g.name_key LIMIT ");
        select.push_bind(MEMBERSHIPS_MAX);
        let rows = select.build().all(&self.database).await?;
        let read = |row: &Row| Ok((row.id("user_id")?, membership(row)?));
        rows.iter().map(read).collect()
    }

    /// Adds a group with its members.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when the name is another group's.
    pub async fn insert_group(
        &self,
        group: &Group,
        members: &MemberChange,
        audit: Option<&PendingAudit>,
    ) -> Result<GroupOutcome, StoreError> {
        insert(self.begin_audited(audit).await?, group, members).await
    }

    /// Changes a group. Its version grows, unless everything was so already.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when the new name is another group's.
    pub async fn change_group(
        &self,
        change: &GroupChange,
        audit: Option<&PendingAudit>,
    ) -> Result<GroupOutcome, StoreError> {
        apply(self.begin_audited(audit).await?, change).await
    }

    /// Removes a group, of this version if one is named.
    pub async fn delete_group(
        &self,
        realm: &str,
        id: Uuid,
        seen: Option<i64>,
        audit: Option<&PendingAudit>,
    ) -> Result<GroupOutcome, StoreError> {
        delete(self.begin_audited(audit).await?, realm, id, seen).await
    }
}

fn read(row: &Row) -> Result<Group, StoreError> {
    Ok(Group {
        id: row.id("id")?,
        realm: row.text("realm")?,
        name: row.text("name")?,
        external_id: row.opt_text("external_id")?,
        version: row.int("version")?,
        created_ms: row.int("created_ms")?,
        updated_ms: row.int("updated_ms")?,
    })
}

fn membership(row: &Row) -> Result<Membership, StoreError> {
    Ok(Membership {
        id: row.id("id")?,
        name: row.text("name")?,
    })
}

async fn insert(
    mut tx: Tx,
    group: &Group,
    members: &MemberChange,
) -> Result<GroupOutcome, StoreError> {
    sql(
        "INSERT INTO user_groups (id, realm, name, name_key, external_id, version, created_ms,
                                  updated_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(group.id)
    .bind(&group.realm)
    .bind(&group.name)
    .bind(fold(&group.name))
    .bind(group.external_id.as_deref())
    .bind(group.version)
    .bind(group.created_ms)
    .bind(group.updated_ms)
    .run_unless_taken(&mut tx, &group.name)
    .await?;
    if let Err(unknown) = change_members(&mut tx, (&group.realm, group.id), members).await? {
        return Ok(GroupOutcome::NoUser(unknown));
    }
    tx.commit().await?;
    Ok(GroupOutcome::Done(group.clone()))
}

async fn apply(mut tx: Tx, change: &GroupChange) -> Result<GroupOutcome, StoreError> {
    let row = sql("SELECT * FROM user_groups WHERE id = $1 AND realm = $2")
        .bind(change.id)
        .bind(&change.realm)
        .one(&mut tx)
        .await?;
    let Some(old) = row.as_ref().map(read).transpose()? else {
        return Ok(GroupOutcome::Missing);
    };
    if change.seen.is_some_and(|seen| seen != old.version) {
        return Ok(GroupOutcome::Stale(old.version));
    }
    let new = Group {
        name: change.name.clone().unwrap_or_else(|| old.name.clone()),
        external_id: match &change.external_id {
            Some(id) => id.clone(),
            None => old.external_id.clone(),
        },
        version: old.version + 1,
        updated_ms: change.now_ms.max(old.updated_ms),
        ..old.clone()
    };
    let moved = change_members(&mut tx, (&old.realm, old.id), &change.members).await?;
    let moved = match moved {
        Ok(moved) => moved,
        Err(unknown) => return Ok(GroupOutcome::NoUser(unknown)),
    };
    if !moved && new.name == old.name && new.external_id == old.external_id {
        return Ok(GroupOutcome::Done(old));
    }
    sql(
        "UPDATE user_groups SET name = $1, name_key = $2, external_id = $3, version = $4,
                                updated_ms = $5 WHERE id = $6",
    )
    .bind(&new.name)
    .bind(fold(&new.name))
    .bind(new.external_id.as_deref())
    .bind(new.version)
    .bind(new.updated_ms)
    .bind(new.id)
    .run_unless_taken(&mut tx, &new.name)
    .await?;
    tx.commit().await?;
    Ok(GroupOutcome::Done(new))
}

/// Whether any membership changed; or who is no user of the realm.
async fn change_members(
    tx: &mut Tx,
    (realm, group): (&str, Uuid),
    change: &MemberChange,
) -> Result<Result<bool, Uuid>, StoreError> {
    let mut moved = false;
    if change.clear {
        // Who stays is not taken out and put in again.
        let coming = change.steps.iter().filter(|(comes, _)| *comes);
        let coming: Vec<Uuid> = coming.map(|(_, id)| *id).collect();
        let mut delete = Builder::new("DELETE FROM group_members WHERE group_id = ");
        delete.push_bind(group).push(" AND user_id NOT IN (");
        tx.dialect()
            .push_each_text(&mut delete, write_doc(&coming)?);
        delete.push(")");
        moved |= delete.build().run(tx).await? > 0;
    }
    for alike in change.steps.chunk_by(|one, next| one.0 == next.0) {
        for step in alike.chunks(AT_ONCE) {
            let ids: Vec<Uuid> = step.iter().map(|(_, id)| *id).collect();
            let done = if step[0].0 {
                add(tx, (realm, group), &ids).await?
            } else {
                Ok(remove(tx, group, &ids).await?)
            };
            match done {
                Ok(changed) => moved |= changed > 0,
                Err(unknown) => return Ok(Err(unknown)),
            }
        }
    }
    Ok(Ok(moved))
}

async fn add(
    tx: &mut Tx,
    (realm, group): (&str, Uuid),
    ids: &[Uuid],
) -> Result<Result<u64, Uuid>, StoreError> {
    let dialect = tx.dialect();
    let list = write_doc(&ids)?;
    let mut known = Builder::new("SELECT u.id FROM users u WHERE u.id IN (");
    dialect.push_each_text(&mut known, list.clone());
    known
        .push(") AND ")
        .push(dialect.unindexed_realm_is())
        .push_bind(realm);
    let known = known.build().all(&mut *tx).await?;
    let known: Result<std::collections::HashSet<Uuid>, _> =
        known.iter().map(|row| row.id("id")).collect();
    let known = known?;
    if let Some(unknown) = ids.iter().find(|id| !known.contains(id)) {
        return Ok(Err(*unknown));
    }
    let mut insert = Builder::new("INSERT INTO group_members (group_id, user_id) SELECT ");
    insert
        .push_bind(group)
        .push(", u.id FROM users u WHERE u.id IN (");
    dialect.push_each_text(&mut insert, list);
    insert.push(") ON CONFLICT DO NOTHING");
    Ok(Ok(insert.build().run(tx).await?))
}

async fn remove(tx: &mut Tx, group: Uuid, ids: &[Uuid]) -> Result<u64, StoreError> {
    let dialect = tx.dialect();
    let mut delete = Builder::new("DELETE FROM group_members WHERE group_id = ");
    delete.push_bind(group).push(" AND user_id IN (");
    dialect.push_each_text(&mut delete, write_doc(&ids)?);
    delete.push(")");
    delete.build().run(tx).await
}

/// Has a user leave the groups of these names; gives those that the user was in.
pub(super) async fn leave(
    tx: &mut Tx,
    (realm, user): (&str, Uuid),
    names: &[String],
    now_ms: i64,
) -> Result<Vec<String>, StoreError> {
    let mut left = Vec::new();
    for name in names {
        let row = sql("SELECT * FROM user_groups WHERE realm = $1 AND name_key = $2")
            .bind(realm)
            .bind(fold(name))
            .one(&mut *tx)
            .await?;
        let Some(group) = row.as_ref().map(read).transpose()? else {
            continue;
        };
        if remove(tx, group.id, &[user]).await? == 0 {
            continue;
        }
        sql("UPDATE user_groups SET version = version + 1, updated_ms = $1 WHERE id = $2")
            .bind(now_ms.max(group.updated_ms))
            .bind(group.id)
            .run(&mut *tx)
            .await?;
        left.push(group.name);
    }
    Ok(left)
}

async fn delete(
    mut tx: Tx,
    realm: &str,
    id: Uuid,
    seen: Option<i64>,
) -> Result<GroupOutcome, StoreError> {
    let row = sql("DELETE FROM user_groups WHERE id = $1 AND realm = $2 RETURNING *")
        .bind(id)
        .bind(realm)
        .one(&mut tx)
        .await?;
    let Some(old) = row.as_ref().map(read).transpose()? else {
        return Ok(GroupOutcome::Missing);
    };
    if seen.is_some_and(|seen| seen != old.version) {
        return Ok(GroupOutcome::Stale(old.version));
    }
    tx.commit().await?;
    Ok(GroupOutcome::Done(old))
}
