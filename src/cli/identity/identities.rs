//! `doorward users identities …`

use anyhow::Context;
use serde_json::json;
use uuid::Uuid;

use super::{CommandContext, instant};
use doorward_core::model::user::User;
use doorward_identity::{self as identity, Identity};

/// Lists the links of a user.
pub(super) async fn list(user: &User, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    let mut records = Vec::new();
    for link in context.store.identities(user.id).await? {
        let mut record = identity::identity_record(&link);
        if !context.json {
            record["used"] = json!(instant(link.used_ms));
        }
        records.push(record);
    }
    context.table(records, &["id", "provider", "issuer", "subject", "used"])
}

/// Removes a link of a user.
pub(super) async fn unlink(
    user: &User,
    id: Uuid,
    context: &mut CommandContext<'_>,
) -> anyhow::Result<()> {
    let links = context.store.identities(user.id).await?;
    let link = links.iter().find(|link| link.id == id);
    let link = link.with_context(|| format!("{} has no link {id}", user.user_name))?;
    let (config, now_ms) = (context.identity.clone(), context.clock.now_ms());
    if !Identity::unlink(config, &context.store, link, now_ms, context.audit()).await? {
        anyhow::bail!("{} has no link {id}", user.user_name);
    }
    let line = format!("link {id} of {} removed", user.user_name);
    context.print(&json!({"id": id, "user_id": user.id}), &line)
}
