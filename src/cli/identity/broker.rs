//! `doorward broker …`: products, developers and applications of the token
//! broker.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::members::Members;
use super::{CommandContext, SecretArgs};
use doorward_core::model::broker::{Kind, Record, Removal, RevocationTarget, TokenKind};
use doorward_core::model::user::Owner;
use doorward_plugins::token_broker::records::{self, NewRecord};
use doorward_store::StoreError;

/// What `doorward broker --help` ends with.
pub(super) const EXAMPLES: &str = "\
Examples:
  doorward broker products add weather \\
      --set 'api_resources=[\"/today\", \"/forecast/**\"]'
  doorward broker developers add dev@example.com --set first_name=Dev
  doorward broker applications add orders --developer dev@example.com \\
      --product weather
  doorward broker applications add shop --developer dev@example.com \\
      --product weather --consumer-key shop --secret-stdin
  doorward broker applications update orders --set status=revoked
  doorward broker applications secret orders
  doorward broker revoke --token-stdin
  doorward broker revoke --user alice

Applications are named by identifier or consumer key. All members are described
in docs/token-broker.md; their names are the same here, over REST on the admin
listener and in the section `broker` of the configuration file.";

/// Records read at once.
const PAGE: u32 = 500;

/// How often a change is tried again whose record was changed meanwhile.
const TRIES: usize = 5;

/// What to do with the token broker's records and tokens.
#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Administers API products
    Products {
        #[command(subcommand)]
        action: RecordAction,
    },
    /// Administers developers, who have applications
    Developers {
        #[command(subcommand)]
        action: RecordAction,
    },
    /// Administers applications: who may ask for tokens
    #[command(visible_alias = "apps")]
    Applications {
        #[command(subcommand)]
        action: ApplicationAction,
    },
    /// Revokes a token that the broker gave out, with the one that belongs to it, or all of a user
    Revoke {
        /// The token; others on this machine may see it while the command runs
        #[arg(long, value_name = "TEXT", conflicts_with = "stdin")]
        token: Option<String>,
        /// Reads the token from the first line of standard input
        #[arg(long = "token-stdin")]
        stdin: bool,
        /// Revokes this token alone
        #[arg(long)]
        alone: bool,
        /// Revokes all tokens that came of sign-ins with this name so far, here and elsewhere
        #[arg(long, value_name = "NAME", conflicts_with_all = ["token", "stdin", "alone"])]
        user: Option<String>,
    },
}

/// What to do with a kind of record.
#[derive(Debug, Subcommand)]
pub(super) enum RecordAction {
    /// Adds one
    #[command(visible_alias = "create")]
    Add {
        /// The name of a product, the address of a developer
        id: String,
        #[command(flatten)]
        members: Members,
    },
    /// Lists all
    List,
    /// Shows one
    #[command(visible_alias = "get")]
    Show {
        /// The name or address
        id: String,
    },
    /// Changes one: what is named, and nothing else
    Update {
        /// The name or address
        id: String,
        #[command(flatten)]
        members: Members,
    },
    /// Deletes one
    Delete {
        /// The name or address
        id: String,
    },
}

/// What to do with applications.
#[derive(Debug, Subcommand)]
pub(super) enum ApplicationAction {
    /// Adds an application; without a key of yours, key and secret are made, and shown once
    #[command(visible_alias = "create")]
    Add(Box<Add>),
    /// Lists applications
    List,
    /// Shows an application
    #[command(visible_alias = "get")]
    Show {
        /// Its identifier or consumer key
        id: String,
    },
    /// Changes an application: what is named, and nothing else
    Update {
        /// Its identifier or consumer key
        id: String,
        #[command(flatten)]
        members: Members,
    },
    /// Gives an application another secret, which is shown once unless it is yours; the old one is dead
    Secret {
        /// Its identifier or consumer key
        id: String,
        #[command(flatten)]
        secret: SecretArgs,
    },
    /// Revokes all tokens that an application has got so far
    RevokeTokens {
        /// Its identifier or consumer key
        id: String,
    },
    /// Deletes an application, whose tokens are good no more
    Delete {
        /// Its identifier or consumer key
        id: String,
    },
}

/// A new application.
#[derive(Debug, Args)]
pub(super) struct Add {
    /// What it is called
    name: String,
    /// The address of its developer
    #[arg(long, value_name = "EMAIL")]
    developer: Option<String>,
    /// A product that it may use
    #[arg(long = "product", value_name = "NAME")]
    products: Vec<String>,
    /// Its consumer key, which is its client_id, here and at the provider
    #[arg(long, value_name = "KEY")]
    consumer_key: Option<String>,
    #[command(flatten)]
    members: Members,
    #[command(flatten)]
    secret: SecretArgs,
}

/// What an action changes, for the audit log: the path that it has over REST.
pub(super) fn target(action: &Action) -> Option<(Change, String)> {
    let of = |kind: &str, change: Option<(Change, &str)>| {
        change.map(|(change, id)| (change, format!("broker/{kind}/{id}")))
    };
    match action {
        Action::Products { action } => of("products", action.change()),
        Action::Developers { action } => of("developers", action.change()),
        Action::Applications { action } => of("applications", action.change()),
        Action::Revoke { .. } => Some((Change::Revoke, "broker/tokens/revoke".to_owned())),
    }
}

/// What is done to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Create,
    Update,
    Secret,
    Delete,
    Revoke,
}

impl RecordAction {
    fn change(&self) -> Option<(Change, &str)> {
        match self {
            Self::Add { id, .. } => Some((Change::Create, id)),
            Self::Update { id, .. } => Some((Change::Update, id)),
            Self::Delete { id } => Some((Change::Delete, id)),
            Self::List | Self::Show { .. } => None,
        }
    }
}

impl ApplicationAction {
    fn change(&self) -> Option<(Change, &str)> {
        match self {
            Self::Add(add) => Some((Change::Create, &add.name)),
            Self::Update { id, .. } => Some((Change::Update, id)),
            Self::Secret { id, .. } => Some((Change::Secret, id)),
            Self::RevokeTokens { id } => Some((Change::Revoke, id)),
            Self::Delete { id } => Some((Change::Delete, id)),
            Self::List | Self::Show { .. } => None,
        }
    }
}

pub(super) async fn act(action: Action, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    match action {
        Action::Products { action } => record(Kind::Product, action, context).await,
        Action::Developers { action } => record(Kind::Developer, action, context).await,
        Action::Applications { action } => application(action, context).await,
        Action::Revoke {
            user: Some(user), ..
        } => {
            anyhow::ensure!(!user.trim().is_empty(), "which user?");
            let now_ms = context.clock.now_ms();
            context
                .store
                .end_broker_person(&user, now_ms, context.audit())
                .await?;
            let shown = json!({"end_user": user});
            context.print(&shown, &format!("all tokens of {user} so far are revoked"))
        }
        Action::Revoke {
            token,
            stdin,
            alone,
            user: None,
        } => {
            let wanted = SecretArgs { stdin, text: token };
            let token = wanted.read("token", context.input)?;
            let token = token.ok_or_else(|| anyhow::anyhow!("which token? see --token-stdin"))?;
            for which in [TokenKind::Access, TokenKind::Refresh] {
                let revoked = RevocationTarget::token(which, token.expose());
                let revoked = context
                    .store
                    .revoke_broker_token(&revoked, !alone, context.audit())
                    .await?;
                if let Some(tokens) = revoked {
                    let shown = json!({"client_id": tokens.client_id});
                    return context.print(&shown, "the token is revoked");
                }
            }
            anyhow::bail!("there is no such token")
        }
    }
}

async fn record(
    kind: Kind,
    action: RecordAction,
    context: &mut CommandContext<'_>,
) -> anyhow::Result<()> {
    match action {
        RecordAction::Add { id, members } => {
            let mut record = Map::new();
            record.insert(records::known_by(kind).to_owned(), id.into());
            members.write_over(&mut record, context.input)?;
            added(kind, record, context).await
        }
        RecordAction::List => list(kind, context).await,
        RecordAction::Show { id } => show(kind, &id, context).await,
        RecordAction::Update { id, members } => updated(kind, &id, &members, context).await,
        RecordAction::Delete { id } => deleted(kind, &id, context).await,
    }
}

async fn application(
    action: ApplicationAction,
    context: &mut CommandContext<'_>,
) -> anyhow::Result<()> {
    let kind = Kind::Application;
    match action {
        ApplicationAction::Add(add) => {
            let record = add.record(context)?;
            added(kind, record, context).await
        }
        ApplicationAction::List => list(kind, context).await,
        ApplicationAction::Show { id } => show(kind, &id, context).await,
        ApplicationAction::Update { id, members } => updated(kind, &id, &members, context).await,
        ApplicationAction::Secret { id, secret } => {
            let given = if secret.stdin || secret.text.is_some() {
                secret.read("secret", context.input)?
            } else {
                None
            };
            let now_ms = context.clock.now_ms();
            let rotated = |old: &Record| Ok(records::rotated(old, given.clone(), now_ms)?);
            changed(kind, &id, "has another secret", rotated, context).await
        }
        ApplicationAction::RevokeTokens { id } => {
            let record = found(kind, &id, context).await?;
            let now_ms = context.clock.now_ms();
            let there = context
                .store
                .revoke_broker_client(&record.id, now_ms, context.audit())
                .await?;
            anyhow::ensure!(there, "there is no application {id}");
            let line = format!("application {} has no tokens any more", called(&record));
            context.print(&json!({"id": record.id}), &line)
        }
        ApplicationAction::Delete { id } => deleted(kind, &id, context).await,
    }
}

impl Add {
    fn record(self, context: &mut CommandContext<'_>) -> anyhow::Result<Map<String, Value>> {
        let mut record = Map::new();
        for (name, value) in [
            ("name", Some(Value::from(self.name))),
            ("developer", self.developer.map(Value::from)),
            ("consumer_key", self.consumer_key.map(Value::from)),
            (
                "products",
                (!self.products.is_empty()).then(|| json!(self.products)),
            ),
        ] {
            if let Some(value) = value {
                record.insert(name.to_owned(), value);
            }
        }
        self.members.write_over(&mut record, context.input)?;
        refuse_secret(&record)?;
        if (self.secret.stdin || self.secret.text.is_some())
            && let Some(secret) = self.secret.read("secret", context.input)?
        {
            let name = "consumer_secret".to_owned();
            record.insert(name, secret.expose().into());
        }
        Ok(record)
    }
}

/// Secrets do not stand in files of members by accident.
fn refuse_secret(record: &Map<String, Value>) -> anyhow::Result<()> {
    let written = ["consumer_secret", "consumerSecret"];
    anyhow::ensure!(
        written.iter().all(|name| !record.contains_key(*name)),
        "a secret comes by --secret-stdin or --secret"
    );
    Ok(())
}

/// The record of this name; an application's may be its consumer key.
async fn found(kind: Kind, id: &str, context: &CommandContext<'_>) -> anyhow::Result<Record> {
    let name = match kind {
        Kind::Developer => records::developer_id(id),
        Kind::Product | Kind::Application => id.to_owned(),
    };
    let mut found = context.store.broker_record(kind, &name).await?;
    if found.is_none() && kind == Kind::Application {
        let by_key = context.store.broker_client(id).await?;
        found = by_key.map(|client| client.application);
    }
    found.ok_or_else(|| anyhow::anyhow!("there is no {} {id}", kind.as_str()))
}

async fn added(
    kind: Kind,
    record: Map<String, Value>,
    context: &mut CommandContext<'_>,
) -> anyhow::Result<()> {
    let made = records::made(kind, record, None, context.clock.now_ms())?;
    match context
        .store
        .insert_broker_record(&made.record, context.audit())
        .await
    {
        Err(StoreError::Taken(id)) => {
            anyhow::bail!("{} {id} is there already", kind.as_str())
        }
        outcome => outcome?,
    }
    let line = format!("{} {} added", kind.as_str(), called(&made.record));
    print(&made, line, context)
}

async fn updated(
    kind: Kind,
    id: &str,
    members: &Members,
    context: &mut CommandContext<'_>,
) -> anyhow::Result<()> {
    let mut change = Map::new();
    members.write_over(&mut change, context.input)?;
    refuse_secret(&change)?;
    anyhow::ensure!(
        !change.is_empty(),
        "nothing to change; name it with --set, --unset or --metadata"
    );
    let now_ms = context.clock.now_ms();
    let patch = |old: &Record| {
        let mut all = records::shown(old);
        all.extend(change.clone());
        Ok(records::made(kind, all, Some(old), now_ms)?)
    };
    changed(kind, id, "changed", patch, context).await
}

/// Replaces a record by what `made` makes of it.
async fn changed(
    kind: Kind,
    id: &str,
    what: &str,
    made: impl Fn(&Record) -> anyhow::Result<NewRecord>,
    context: &mut CommandContext<'_>,
) -> anyhow::Result<()> {
    for _ in 0..TRIES {
        let old = found(kind, id, context).await?;
        if old.owner == Owner::File {
            let name = format!("{} {id}", kind.as_str());
            return Err(StoreError::FileOwned(name).into());
        }
        let made = made(&old)?;
        let outcome =
            context
                .store
                .update_broker_record(&made.record, old.updated_ms, context.audit());
        match outcome.await {
            Err(StoreError::Conflict(_)) => {}
            outcome => {
                outcome?;
                let line = format!("{} {} {what}", kind.as_str(), called(&made.record));
                return print(&made, line, context);
            }
        }
    }
    anyhow::bail!("it was changed by others at the same time; try again")
}

async fn deleted(kind: Kind, id: &str, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    let record = found(kind, id, context).await?;
    let removal = context
        .store
        .delete_broker_record((kind, &record.id), None, context.audit());
    match removal.await? {
        Removal::InUse => anyhow::bail!("developer {id} has applications; delete them first"),
        removal => anyhow::ensure!(
            removal == Removal::Done,
            "there is no {} {id}",
            kind.as_str()
        ),
    }
    let line = format!("{} {} deleted", kind.as_str(), called(&record));
    context.print(&json!({"id": record.id}), &line)
}

async fn show(kind: Kind, id: &str, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    let shown = Value::Object(records::shown(&found(kind, id, context).await?));
    context.print(&shown, &format!("{shown:#}"))
}

async fn list(kind: Kind, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    let columns: &[&str] = match kind {
        Kind::Product => &["name", "display_name", "owner"],
        Kind::Developer => &["email", "status", "owner"],
        Kind::Application => &["consumer_key", "name", "developer", "status", "owner"],
    };
    let mut all = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = context.store.broker_records(kind, after.as_deref(), PAGE);
        let page = page.await?;
        let full = page.len() >= PAGE as usize;
        after = page.last().map(|record| record.id.clone());
        all.extend(page.iter().map(|one| Value::Object(records::shown(one))));
        if !full {
            return context.table(all, columns);
        }
    }
}

/// What people call a record.
fn called(record: &Record) -> &str {
    record.key.as_deref().unwrap_or(&record.id)
}

/// Prints the record, with the secret that was made for it.
fn print(
    made: &NewRecord,
    mut line: String,
    context: &mut CommandContext<'_>,
) -> anyhow::Result<()> {
    let mut shown = records::shown(&made.record);
    if let Some(secret) = &made.secret {
        line.push_str(&format!("\nconsumer_secret: {}", secret.expose()));
        shown.insert("consumer_secret".to_owned(), secret.expose().into());
    }
    context.print(&Value::Object(shown), &line)
}
