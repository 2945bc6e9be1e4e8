//! `doorward realms …`

use anyhow::Context;
use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::CommandContext;
use super::members::Members;
use doorward_core::model::registration::{RealmRemoval, StoredRealm};
use doorward_identity::Identity;
use doorward_store::StoreError;

/// What `doorward realms --help` ends with.
pub(super) const EXAMPLES: &str = "\
Examples:
  doorward realms add /staff --set access_token_lifetime=600
  doorward realms update /staff --set registration.mode=token
  doorward realms update /staff --unset access_token_lifetime
  doorward realms show /staff --json
  doorward realms delete /staff

A realm has the settings of the realm above it for whatever it does not set
itself. The settings are those of identity.realms.PATH.settings in the
configuration file.";

/// What to do with realms.
#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Adds a realm
    #[command(visible_alias = "create")]
    Add {
        /// Its path, such as /staff
        path: String,
        #[command(flatten)]
        settings: Members,
    },
    /// Lists realms
    List,
    /// Shows a realm: what it sets, and what is in force there
    Show {
        /// Its path
        path: String,
    },
    /// Changes settings of a realm: what is named, and nothing else
    Update {
        /// Its path
        path: String,
        #[command(flatten)]
        settings: Members,
    },
    /// Deletes a realm when nothing is left in it
    Delete {
        /// Its path
        path: String,
    },
}

pub(super) async fn act(action: Action, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    match action {
        Action::Add { path, settings } => {
            let realm = changed(with_slash(&path), Map::new(), &settings, context)?;
            check(&realm, context).await?;
            match context.store.insert_realm(&realm, context.audit()).await {
                Err(StoreError::Taken(path)) => {
                    anyhow::bail!("there is a realm {path} already")
                }
                outcome => outcome?,
            }
            show(&realm.path, Some("added"), context).await
        }
        Action::List => list(context).await,
        Action::Show { path } => show(&with_slash(&path), None, context).await,
        Action::Update { path, settings } => {
            let old = find(&with_slash(&path), context).await?;
            let realm = changed(old.path, old.settings.clone(), &settings, context)?;
            check(&realm, context).await?;
            match context
                .store
                .update_realm(&realm, Some(&old.settings), context.audit())
                .await
            {
                Err(StoreError::Conflict(_)) => {
                    anyhow::bail!("the realm was changed by others at the same time; try again")
                }
                outcome => outcome?,
            }
            show(&realm.path, Some("changed"), context).await
        }
        Action::Delete { path } => delete(&with_slash(&path), context).await,
    }
}

fn with_slash(path: &str) -> String {
    format!("/{}", path.trim_matches('/'))
}

/// The realm with its settings changed; what is removed is not set any more.
fn changed(
    path: String,
    mut settings: Map<String, Value>,
    change: &Members,
    context: &mut CommandContext<'_>,
) -> anyhow::Result<StoredRealm> {
    change.write_over(&mut settings, context.input)?;
    settings.retain(|_, value| !value.is_null());
    Ok(StoredRealm {
        path,
        declared: false,
        settings,
    })
}

/// Refuses what the server would not take.
async fn check(realm: &StoredRealm, context: &CommandContext<'_>) -> anyhow::Result<()> {
    let stored = context.store.realms().await?;
    Ok(Identity::check_realm(
        context.identity.clone(),
        stored,
        realm,
    )?)
}

async fn find(path: &str, context: &CommandContext<'_>) -> anyhow::Result<StoredRealm> {
    let mut realms = context.store.realms().await?;
    let known = realms.iter().map(|realm| realm.path.as_str());
    let known = known.collect::<Vec<_>>().join(", ");
    let found = realms.iter().position(|realm| realm.path == path);
    let found = found.with_context(|| format!("there is no realm {path}; there are {known}"))?;
    let realm = realms.swap_remove(found);
    if realm.declared || context.identity.realms.contains_key(path) {
        return Err(StoreError::FileOwned(format!("realm {path}")).into());
    }
    Ok(realm)
}

async fn delete(path: &str, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    find(path, context).await?;
    match context
        .store
        .delete_realm(path, None, context.audit())
        .await?
    {
        RealmRemoval::Done => {}
        RealmRemoval::Absent => anyhow::bail!("there is no realm {path}"),
        RealmRemoval::Inhabited if path == "/" => anyhow::bail!("the realm / always exists"),
        RealmRemoval::Inhabited => {
            anyhow::bail!("realm {path} is not empty: it has users, clients or realms")
        }
    }
    context.print(&json!({"path": path}), &format!("realm {path} deleted"))
}

async fn show(
    path: &str,
    what: Option<&str>,
    context: &mut CommandContext<'_>,
) -> anyhow::Result<()> {
    let records =
        Identity::describe_realms(context.identity.clone(), context.store.realms().await?)?;
    let record = records.into_iter().find(|record| record["path"] == path);
    let record = record.with_context(|| format!("there is no realm {path}"))?;
    let line = match what {
        Some(what) => format!("realm {path} {what}"),
        None => format!("{record:#}"),
    };
    context.print(&record, &line)
}

async fn list(context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    let records =
        Identity::describe_realms(context.identity.clone(), context.store.realms().await?)?;
    context.table(records, &["path", "owner", "issuer"])
}
