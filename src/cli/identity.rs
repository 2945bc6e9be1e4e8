//! `doorward users`, `clients`, `realms`, `tokens`, `sessions`, `keys` and
//! `broker`: administering the store.
//!
//! They work on the store itself, beside a running process or without one; a
//! running process notices within a second.

pub(super) mod audit_events;
mod broker;
mod clients;
mod factors;
mod identities;
mod import;
mod keys;
mod locks;
mod members;
mod realms;
mod retired_names;
mod secret;
mod sessions;
#[cfg(test)]
mod tests;
mod tokens;
mod users;

use std::io::{BufRead, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use chrono::{DateTime, SecondsFormat};
use clap::{Args, Subcommand};

use super::output::Output;
use super::terminal::Terminal;
use super::{USAGE, complain};
use crate::config::Config;
use doorward_audit::Audit;
use doorward_core::clock::Clock;
use doorward_core::jose::vault::Vault;
use doorward_core::model::audit::{AuditRecord, PendingAudit};
use doorward_identity::config::{HashingConfig, IdentityConfig};
use doorward_net::telemetry::Metrics;
use doorward_store::{self as store, Store};
use secret::SecretArgs;

/// `doorward users …`
#[derive(Debug, Args)]
pub struct Users {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    action: users::Action,
}

/// `doorward clients …`
#[derive(Debug, Args)]
#[command(after_help = clients::EXAMPLES)]
pub struct Clients {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    action: clients::Action,
}

/// `doorward realms …`
#[derive(Debug, Args)]
#[command(after_help = realms::EXAMPLES)]
pub struct Realms {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    action: realms::Action,
}

/// `doorward tokens …`
#[derive(Debug, Args)]
#[command(after_help = tokens::EXAMPLES)]
pub struct Tokens {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    action: tokens::Action,
}

/// `doorward keys …`
#[derive(Debug, Args)]
#[command(after_help = keys::EXAMPLES)]
pub struct Keys {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    action: keys::Action,
}

/// `doorward sessions …`
#[derive(Debug, Args)]
#[command(after_help = sessions::EXAMPLES)]
pub struct Sessions {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    action: sessions::Action,
}

/// `doorward broker …`
#[derive(Debug, Args)]
#[command(after_help = broker::EXAMPLES)]
pub struct Broker {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    action: broker::Action,
}

/// The commands of this module.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Administers users in the store
    Users(Users),
    /// Administers OAuth clients in the store
    Clients(Clients),
    /// Administers realms in the store
    Realms(Realms),
    /// Administers the tokens that let clients register themselves
    Tokens(Tokens),
    /// Lists and ends sessions of users
    Sessions(Sessions),
    /// Lists and rotates signing keys
    Keys(Keys),
    /// Administers the token broker's products, developers and applications
    Broker(Broker),
}

/// Which store, which realm, which form of output.
#[derive(Debug, Args)]
struct Target {
    /// The store itself (sqlite:PATH), without a configuration file
    #[arg(long, value_name = "URL", global = true)]
    store: Option<String>,
    /// The realm
    #[arg(long, default_value = "/", global = true)]
    realm: String,
    /// Prints JSON
    #[arg(long, global = true)]
    json: bool,
}

/// What every action works with.
struct CommandContext<'a> {
    store: Arc<Store>,
    /// Path of the realm; it exists.
    realm: String,
    json: bool,
    clock: Clock,
    /// The cost of password hashes.
    hashing: HashingConfig,
    /// The file's section.
    identity: IdentityConfig,
    /// What private keys are sealed with.
    vault: Vault,
    input: &'a mut dyn BufRead,
    out: &'a mut dyn Write,
    /// The record of what the command changes: for the write that changes it.
    pending: Option<PendingAudit>,
}

impl CommandContext<'_> {
    /// The record that the write of the command takes with it.
    fn audit(&self) -> Option<&PendingAudit> {
        self.pending.as_ref()
    }

    /// Completes the record of the command by what turns out only now: before its
    /// write.
    fn complete(&self, change: impl FnOnce(&mut AuditRecord)) {
        if let Some(pending) = self.audit() {
            pending.complete(change);
        }
    }

    /// Prints `record` as JSON, or else the line.
    fn print(&mut self, record: &serde_json::Value, line: &str) -> anyhow::Result<()> {
        if self.json {
            writeln!(self.out, "{record:#}")?;
        } else {
            writeln!(self.out, "{line}")?;
        }
        Ok(())
    }

    /// Prints `records` as JSON, or else a line each of these members.
    fn table(&mut self, records: Vec<serde_json::Value>, columns: &[&str]) -> anyhow::Result<()> {
        if self.json {
            writeln!(self.out, "{:#}", serde_json::Value::from(records))?;
            return Ok(());
        }
        for record in records {
            let cells = columns.iter().map(|name| record[*name].as_str());
            let cells: Vec<_> = cells.map(|cell| cell.unwrap_or("-")).collect();
            writeln!(self.out, "{}", cells.join("\t"))?;
        }
        Ok(())
    }
}

/// Does what the command says; exit status 1 when it can't, 2 for a wrong file.
pub fn run(command: Command, file: &Path) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&error);
            return ExitCode::FAILURE;
        }
    };
    let target = match &command {
        Command::Users(users) => &users.target,
        Command::Clients(clients) => &clients.target,
        Command::Realms(realms) => &realms.target,
        Command::Tokens(tokens) => &tokens.target,
        Command::Sessions(sessions) => &sessions.target,
        Command::Keys(keys) => &keys.target,
        Command::Broker(broker) => &broker.target,
    };
    let (url, config) = match (&target.store, Config::load(file)) {
        (Some(url), config) => (url.clone(), config.unwrap_or_default()),
        (None, Ok(config)) => (config.store.0.clone(), config),
        (None, Err(error)) => {
            complain(&error);
            return ExitCode::from(USAGE);
        }
    };
    let (log, section) = (config.audit.clone(), section(config));
    let (realm, json) = (target.realm.clone(), target.json);
    let done = runtime.block_on(async {
        let store = store::open(&url).await?;
        let (clock, metrics) = (Clock::system(), Metrics::default());
        let audit = Audit::open(log, Arc::clone(&store), clock, &metrics)?;
        let mut context = CommandContext {
            store,
            realm: format!("/{}", realm.trim_matches('/')),
            json,
            clock: Clock::system(),
            vault: section.keys.vault()?,
            hashing: section.hashing.clone(),
            identity: section,
            input: &mut std::io::stdin().lock(),
            out: &mut Terminal(Output::new()),
            pending: None,
        };
        check_realm(&context).await?;
        Box::pin(audit_events::act(command, &mut context, &audit)).await
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// The file's section: checking a password must take the server as long as
/// checking that of nobody, and it must be able to open the keys made here.
fn section(config: Config) -> IdentityConfig {
    config.identity.unwrap_or_default()
}

async fn act(command: Command, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    match command {
        Command::Users(users) => users::act(users.action, context).await,
        Command::Clients(clients) => clients::act(clients.action, context).await,
        Command::Realms(realms) => realms::act(realms.action, context).await,
        Command::Tokens(tokens) => tokens::act(tokens.action, context).await,
        Command::Sessions(sessions) => sessions::act(sessions.action, context).await,
        Command::Keys(keys) => keys::act(keys.action, context).await,
        Command::Broker(broker) => broker::act(broker.action, context).await,
    }
}

async fn check_realm(context: &CommandContext<'_>) -> anyhow::Result<()> {
    let realms = context.store.realms().await?;
    let realms: Vec<_> = realms.into_iter().map(|realm| realm.path).collect();
    anyhow::ensure!(
        realms.contains(&context.realm),
        "the store has no realm {}; it has {}",
        context.realm,
        realms.join(", ")
    );
    Ok(())
}

/// A time as people read it.
fn instant(ms: i64) -> String {
    let time = DateTime::from_timestamp_millis(ms).unwrap_or_default();
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}
