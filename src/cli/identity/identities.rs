//! `doorward users identities …`

use serde_json::json;
use uuid::Uuid;

use super::{CommandContext, instant};
use doorward_core::model::user::User;
use doorward_identity as identity;

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
    let now_ms = context.clock.now_ms();
    if !context.store.unlink_identity(user.id, id, now_ms).await? {
        anyhow::bail!("{} has no link {id}", user.user_name);
    }
    let line = format!("link {id} of {} removed", user.user_name);
    context.print(&json!({"id": id, "user_id": user.id}), &line)
}
