//! `doorward store …`: the whole store as a file, and whether it is sound.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::{Args, Subcommand};

use super::identity::audit_events::operator;
use super::output::{Output, has_no_reader};
use super::progress::Progress;
use super::{USAGE, complain, with_causes};
use crate::config::Config;
use doorward_audit::{Audit, AuditConfig};
use doorward_core::clock::Clock;
use doorward_core::model::audit::{Event, Kind, Trace};
use doorward_net::telemetry::{Metrics, process_log};
use doorward_store::{self as store, Finding, Rows, Store};

/// Most findings that are printed.
const PRINTED: usize = 1000;

const EXAMPLES: &str = "\
Examples:
  doorward store export backup.jsonl
  doorward store export - --store sqlite:data/doorward.db | zstd > backup.zst
  doorward store import backup.jsonl --store postgres://doorward@db/doorward
  doorward store check

An export is of one moment, beside a running server or without one. It holds
hashes of passwords and private keys (sealed, if there is a master key): keep it
as you keep the store.";

/// `doorward store …`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Command {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    action: Action,
}

/// Which store.
#[derive(Debug, Args)]
pub(super) struct Place {
    /// The store itself (sqlite:PATH or postgres://…), without a configuration file
    #[arg(long, value_name = "URL", global = true)]
    store: Option<String>,
}

impl Place {
    /// The address of the store, and the rules of its audit log.
    pub(super) fn find(
        &self,
        file: &Path,
    ) -> Result<(String, AuditConfig), crate::config::ConfigError> {
        match (&self.store, Config::load(file)) {
            (Some(url), config) => Ok((url.clone(), config.unwrap_or_default().audit)),
            (None, config) => config.map(|config| (config.store.0, config.audit)),
        }
    }
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Writes everything that the store holds, as JSON lines; a file is made for its owner only
    Export {
        /// Where to write to; `-` is standard output
        #[arg(default_value = "-")]
        file: PathBuf,
        /// Leaves the audit log out
        #[arg(long)]
        no_audit: bool,
    },
    /// Fills an empty store with an export: all of it, or nothing
    Import {
        /// The export; `-` is standard input
        file: PathBuf,
        /// Removes what the store holds first; no server may work on it
        #[arg(long)]
        force: bool,
    },
    /// Tells what is wrong in the store, if anything; exit status 1 if something is
    Check,
}

/// Does what the command says; exit status 1 when it can't, 2 for a wrong file.
pub(super) fn run(command: &Command, file: &Path) -> ExitCode {
    let (url, log) = match command.place.find(file) {
        Ok(found) => found,
        Err(error) => {
            complain(&error);
            return ExitCode::from(USAGE);
        }
    };
    let done = on_runtime(async {
        match &command.action {
            Action::Export { file, no_audit } => export(&url, log, file, !no_audit).await,
            Action::Import { file, force } => import(&url, log, file, *force).await,
            Action::Check => check(&url).await,
        }
    });
    match done {
        Ok(code) => code,
        // An export without its end is none; whoever left knows why.
        Err(error) if is_broken_pipe(&error) => ExitCode::FAILURE,
        Err(error) => {
            complain(&with_causes(&error));
            ExitCode::FAILURE
        }
    }
}

/// Waits for `work` on a runtime of its own.
pub(super) fn on_runtime<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(work)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<store::TransferError>();
    matches!(error, Some(store::TransferError::File(cause)) if has_no_reader(cause))
}

async fn export(url: &str, log: AuditConfig, file: &Path, audit: bool) -> anyhow::Result<ExitCode> {
    let store = store::open_existing(url).await?;
    let store = store.context("there is no store")?;
    let to_file = file != Path::new("-");
    let mut out: Box<dyn Write + Send> = if to_file {
        let made = private(file);
        let made = made.with_context(|| format!("{} can't be written", file.display()))?;
        Box::new(BufWriter::new(made))
    } else {
        Box::new(BufWriter::new(std::io::stdout()))
    };
    let bar = Progress::of_rows("exported");
    let clock = Clock::system();
    let now_ms = clock.now_ms();
    let mut progress = |rows| bar.add(rows);
    let exported = store.export(&mut out, audit, now_ms, &mut progress);
    let rows = exported.await?;
    drop(bar);
    drop(out);
    if to_file {
        File::open(file)?.sync_all()?;
    }
    let event = Event::new(Kind::StoreExport, operator()).with("rows", count(&rows));
    // The store that was read may not be written by that handle.
    let writable = store::open(url).await?;
    tell(writable, log, event, &clock).await?;
    process_log::say(&summary(&rows, "exported"));
    Ok(ExitCode::SUCCESS)
}

async fn import(url: &str, log: AuditConfig, file: &Path, force: bool) -> anyhow::Result<ExitCode> {
    let mut input: Box<dyn BufRead + Send> = if file == Path::new("-") {
        Box::new(BufReader::new(std::io::stdin()))
    } else {
        let opened = File::open(file);
        let opened = opened.with_context(|| format!("{} can't be read", file.display()))?;
        Box::new(BufReader::with_capacity(1 << 20, opened))
    };
    let store = open_for_import(url, force).await?;
    let bar = Progress::of_rows("imported");
    let imported = store
        .import(&mut input, force, &mut |rows| bar.add(rows))
        .await;
    drop(bar);
    let rows = imported.with_context(|| format!("{}: nothing was imported", file.display()))?;
    let event = Event::new(Kind::StoreImport, operator()).with("rows", count(&rows));
    tell(store, log, event, &Clock::system()).await?;
    process_log::say(&summary(&rows, "imported"));
    Ok(ExitCode::SUCCESS)
}

/// The store that an import fills. A server holds in memory what it has read, and would
/// go on with what was replaced: none may have the file, nor start meanwhile.
async fn open_for_import(url: &str, force: bool) -> anyhow::Result<Arc<Store>> {
    if !force {
        // There is nothing to replace, or it is refused.
        return Ok(store::open(url).await?);
    }
    let opened = store::open_for_server(url).await;
    opened.context("a store is replaced where no server works on it")
}

async fn check(url: &str) -> anyhow::Result<ExitCode> {
    let store = store::open_existing(url).await?;
    let store = store.context("there is no store")?;
    let bar = Progress::of_rows("checked");
    let mut found: Vec<Finding> = Vec::new();
    let mut all = 0_usize;
    let mut tell = |finding| {
        all += 1;
        if found.len() < PRINTED {
            found.push(finding);
        }
    };
    let records = store.check(&mut tell, &mut |rows| bar.add(rows)).await?;
    drop(bar);
    let mut output = Output::new();
    for finding in &found {
        writeln!(output, "{finding}")?;
    }
    if all > found.len() {
        writeln!(output, "… and {} more", all - found.len())?;
    }
    if all > 0 {
        complain(&format!("{records} records, {all} findings"));
        return Ok(ExitCode::FAILURE);
    }
    writeln!(output, "{records} records: ok")?;
    Ok(ExitCode::SUCCESS)
}

/// A file for the owner's eyes only, from the first byte.
pub(super) fn private(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let file = options.open(path)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

async fn tell(
    store: Arc<Store>,
    log: AuditConfig,
    event: Event,
    clock: &Clock,
) -> anyhow::Result<()> {
    let audit = Audit::open(log, store, clock.clone(), &Metrics::default())?;
    audit.keep(event, Trace::default(), clock.now_ms()).await;
    audit.flush().await;
    Ok(())
}

fn count(rows: &Rows) -> i64 {
    i64::try_from(rows.values().sum::<u64>()).unwrap_or(i64::MAX)
}

fn summary(rows: &Rows, done: &str) -> String {
    let tables = rows.iter().filter(|(_, rows)| **rows > 0);
    let tables: Vec<_> = tables
        .map(|(table, rows)| format!("{rows} {table}"))
        .collect();
    format!("{done}: {} rows ({})\n", count(rows), tables.join(", "))
}
