//! `doorward users retired` and `release`.

use serde_json::json;

use super::{CommandContext, instant};
use doorward_identity as identity;

/// Names that are read at once.
const AT_ONCE: u32 = 500;

pub(super) async fn list(context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    let mut records = Vec::new();
    let mut after = String::new();
    loop {
        let names = context.store.retired_names(&context.realm, &after, AT_ONCE);
        let names = names.await?;
        for name in &names {
            let mut record = identity::retired_name_record(name);
            record["since"] = json!(instant(name.retired_ms));
            records.push(record);
        }
        match names.last() {
            Some(last) => after.clone_from(&last.key),
            None => break,
        }
    }
    context.table(records, &["since", "name", "user"])
}

pub(super) async fn release(name: &str, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    let released = context
        .store
        .release_name(&context.realm, name, context.audit())
        .await?;
    anyhow::ensure!(
        released,
        "{name} is not the name of a former user of realm {}",
        context.realm
    );
    context.print(
        &json!({"userName": name}),
        &format!("{name} is free: tokens call the user of that name so"),
    )
}
