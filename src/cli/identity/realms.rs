//! `doorward realms …`

use anyhow::Context;
use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::Desk;
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

pub(super) async fn act(action: Action, desk: &mut Desk<'_>) -> anyhow::Result<()> {
    match action {
        Action::Add { path, settings } => {
            let realm = changed(with_slash(&path), Map::new(), &settings, desk)?;
            check(&realm, desk).await?;
            match desk.store.insert_realm(&realm).await {
                Err(StoreError::Taken(path)) => {
                    anyhow::bail!("there is a realm {path} already")
                }
                outcome => outcome?,
            }
            show(&realm.path, Some("added"), desk).await
        }
        Action::List => list(desk).await,
        Action::Show { path } => show(&with_slash(&path), None, desk).await,
        Action::Update { path, settings } => {
            let old = find(&with_slash(&path), desk).await?;
            let realm = changed(old.path, old.settings.clone(), &settings, desk)?;
            check(&realm, desk).await?;
            match desk.store.update_realm(&realm, Some(&old.settings)).await {
                Err(StoreError::Conflict(_)) => {
                    anyhow::bail!("the realm was changed by others at the same time; try again")
                }
                outcome => outcome?,
            }
            show(&realm.path, Some("changed"), desk).await
        }
        Action::Delete { path } => delete(&with_slash(&path), desk).await,
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
    desk: &mut Desk<'_>,
) -> anyhow::Result<StoredRealm> {
    change.write_over(&mut settings, desk.input)?;
    settings.retain(|_, value| !value.is_null());
    Ok(StoredRealm {
        path,
        declared: false,
        settings,
    })
}

/// Refuses what the server would not take.
async fn check(realm: &StoredRealm, desk: &Desk<'_>) -> anyhow::Result<()> {
    let stored = desk.store.realms().await?;
    Ok(Identity::check_realm(desk.identity.clone(), stored, realm)?)
}

async fn find(path: &str, desk: &Desk<'_>) -> anyhow::Result<StoredRealm> {
    let mut realms = desk.store.realms().await?;
    let known = realms.iter().map(|realm| realm.path.as_str());
    let known = known.collect::<Vec<_>>().join(", ");
    let found = realms.iter().position(|realm| realm.path == path);
    let found = found.with_context(|| format!("there is no realm {path}; there are {known}"))?;
    let realm = realms.swap_remove(found);
    if realm.declared || desk.identity.realms.contains_key(path) {
        return Err(StoreError::FileOwned(format!("realm {path}")).into());
    }
    Ok(realm)
}

async fn delete(path: &str, desk: &mut Desk<'_>) -> anyhow::Result<()> {
    find(path, desk).await?;
    match desk.store.delete_realm(path).await? {
        RealmRemoval::Done => {}
        RealmRemoval::Absent => anyhow::bail!("there is no realm {path}"),
        RealmRemoval::Inhabited if path == "/" => anyhow::bail!("the realm / always exists"),
        RealmRemoval::Inhabited => {
            anyhow::bail!("realm {path} is not empty: it has users, clients or realms")
        }
    }
    desk.print(&json!({"path": path}), &format!("realm {path} deleted"))
}

async fn show(path: &str, what: Option<&str>, desk: &mut Desk<'_>) -> anyhow::Result<()> {
    let records = Identity::describe_realms(desk.identity.clone(), desk.store.realms().await?)?;
    let record = records.into_iter().find(|record| record["path"] == path);
    let record = record.with_context(|| format!("there is no realm {path}"))?;
    let line = match what {
        Some(what) => format!("realm {path} {what}"),
        None => format!("{record:#}"),
    };
    desk.print(&record, &line)
}

async fn list(desk: &mut Desk<'_>) -> anyhow::Result<()> {
    let records = Identity::describe_realms(desk.identity.clone(), desk.store.realms().await?)?;
    desk.table(records, &["path", "owner", "issuer"])
}
