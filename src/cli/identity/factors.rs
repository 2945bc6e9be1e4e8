//! `doorward users factors …`

use serde_json::json;

use super::{CommandContext, instant};
use doorward_core::model::user::User;
use doorward_identity as identity;

/// Lists the second factors of a user.
pub(super) async fn list(user: &User, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    let mut records = Vec::new();
    for factor in context.store.factors(user.id).await? {
        let mut record = identity::factor_record(&factor);
        if !context.json {
            record["used"] = json!(factor.used_ms.map(instant));
            record["created"] = json!(instant(factor.created_ms));
        }
        records.push(record);
    }
    context.table(records, &["id", "kind", "name", "created", "used"])
}

/// Removes them all, with the recovery codes.
pub(super) async fn reset(user: &User, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    let now_ms = context.clock.now_ms();
    let reset = context
        .store
        .reset_factors(user.id, |_| true, now_ms, context.audit());
    let removed = reset.await?.unwrap_or_default();
    let line = format!("{removed} factors of {} removed", user.user_name);
    context.print(&json!({"id": user.id, "removed": removed}), &line)
}
