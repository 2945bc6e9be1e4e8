//! `doorward users identities …`

use serde_json::json;
use uuid::Uuid;

use super::{Desk, instant};
use doorward_core::model::user::User;
use doorward_identity as identity;

/// Lists the links of a user.
pub(super) async fn list(user: &User, desk: &mut Desk<'_>) -> anyhow::Result<()> {
    let mut records = Vec::new();
    for link in desk.store.identities(user.id).await? {
        let mut record = identity::identity_record(&link);
        if !desk.json {
            record["used"] = json!(instant(link.used_ms));
        }
        records.push(record);
    }
    desk.table(records, &["id", "provider", "issuer", "subject", "used"])
}

/// Removes a link of a user.
pub(super) async fn unlink(user: &User, id: Uuid, desk: &mut Desk<'_>) -> anyhow::Result<()> {
    let now_ms = desk.clock.now_ms();
    if !desk.store.unlink_identity(user.id, id, now_ms).await? {
        anyhow::bail!("{} has no link {id}", user.user_name);
    }
    let line = format!("link {id} of {} removed", user.user_name);
    desk.print(&json!({"id": id, "user_id": user.id}), &line)
}
