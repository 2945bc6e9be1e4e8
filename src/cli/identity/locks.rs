//! `doorward users locked` and `unlock`.

use serde_json::json;

use super::{CommandContext, instant};
use doorward_core::model::lockout::{LockKind, StoredLock};
use doorward_core::model::user::name as user_name;
use doorward_identity as identity;

/// The locks of the realm's names that hold now.
async fn held(context: &CommandContext<'_>) -> anyhow::Result<Vec<StoredLock>> {
    let now_ms = context.clock.now_ms();
    let mut locks = context.store.locks(0, now_ms).await?;
    locks.retain(|lock| {
        let name = lock.kind == LockKind::Name && lock.realm == context.realm;
        name && lock.until_ms > now_ms
    });
    Ok(locks)
}

pub(super) async fn list(context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    let mut records = Vec::new();
    for lock in held(context).await? {
        let mut record = identity::lock_record(&lock);
        let id = lock.subject.as_deref().and_then(|id| id.parse().ok());
        let user = match id {
            Some(id) => context.store.user(&context.realm, id).await?,
            None => None,
        };
        record["userName"] = json!(user.map(|user| user.user_name));
        record["until"] = json!(instant(lock.until_ms));
        records.push(record);
    }
    context.table(records, &["until", "userName", "user"])
}

pub(super) async fn lift(name: &str, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    let id = LockKind::Name.id(&context.realm, &user_name::key(name));
    let mut locks = held(context).await?;
    locks.retain(|lock| lock.id == id);
    anyhow::ensure!(
        !locks.is_empty(),
        "{name} is not locked in realm {}",
        context.realm
    );
    let now_ms = context.clock.now_ms();
    for lock in locks {
        let lifted = StoredLock {
            until_ms: 0,
            locks: 0,
            set_ms: now_ms.max(lock.set_ms + 1),
            ..lock
        };
        context.store.put_lock(&lifted, context.audit()).await?;
    }
    context.print(
        &json!({"userName": name}),
        &format!("{name} is no longer locked"),
    )
}
