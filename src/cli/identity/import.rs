//! `doorward users import`: files of users into the store, batch by batch.
//!
//! One thread reads, checks and hashes while another batch is written. Each
//! batch is durable when it is counted; a running server goes on meanwhile.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ahash::RandomState;
use anyhow::Context;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use tokio::sync::mpsc;

use super::CommandContext;
use doorward_core::model::secret::Secret;
use doorward_core::model::user::import::{ExistingUserPolicy, Import, ImportOutcome};
use doorward_core::model::user::{name as user_name, schema};
use doorward_identity as identity;
use doorward_identity::config::HashingConfig;
use doorward_identity::import::{CsvRecords, ImportError, LdifRecords, Ready, Record, Records};
use doorward_net::telemetry::process_log;

/// Most users in one transaction: others who write wait so long, about half a
/// second. Rows that fall everywhere into the indexes cost the less the more
/// come together.
const TOGETHER: usize = 10_000;

/// Most passwords hashed for one batch.
const HASHED: usize = 256;

/// Longest password, in bytes.
const PASSWORD_MAX: usize = 1024;

/// Refused records that are shown where no report is written.
const SHOWN: u64 = 20;

/// What to import, and how.
#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// The file; -: standard input
    file: PathBuf,
    /// What it is; by default what its name says
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Says what would happen, and changes nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Changes users who are there, where the file says something of them
    #[arg(long)]
    update: bool,
    /// Leaves users who are there as they are, without refusing the record
    #[arg(long, conflicts_with = "update")]
    skip_existing: bool,
    /// Where refused records are listed: CSV of file, line, name and reason
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The attribute of LDIF that has the user name
    #[arg(long, value_name = "NAME", default_value = "uid")]
    name_attribute: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Csv,
    Ldif,
}

/// A record that was read.
struct Item {
    line: u64,
    name: String,
    /// The user, until it is written.
    import: Result<Option<Import>, String>,
}

/// What is written together.
#[derive(Default)]
struct Batch {
    items: Vec<Item>,
    /// Records of something else than people.
    others: u64,
    /// Why the file can't be read on.
    end: Option<ImportError>,
}

#[derive(Default)]
struct Counts {
    added: u64,
    updated: u64,
    skipped: u64,
    refused: u64,
    others: u64,
    /// The last line that is settled.
    line: u64,
}

pub(super) async fn act(args: ImportArgs, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    let (input, progress) = open(&args.file)?;
    let read = Arc::new(AtomicU64::new(0));
    let input = Counted {
        inner: input,
        read: Arc::clone(&read),
    };
    let source = Source {
        format: format(&args)?,
        name_attribute: args.name_attribute.clone(),
        realm: context.realm.clone(),
        now_ms: context.clock.now_ms(),
        hashing: context.hashing.clone(),
    };
    let (sender, mut batches) = mpsc::channel(2);
    std::thread::spawn(move || produce(input, &source, &sender));
    let mut report = Report::new(&args)?;
    let mut seen = args.dry_run.then(HashSet::new);
    let keys = RandomState::new();
    let mut counts = Counts::default();
    let mut end = None;
    loop {
        let batch = tokio::select! {
            batch = batches.recv() => batch,
            _ = tokio::signal::ctrl_c() => {
                let line = counts.line;
                summary(&counts, &args, context)?;
                anyhow::bail!("stopped after line {line}: everything up to it is settled");
            }
        };
        let Some(mut batch) = batch else { break };
        if let Some(seen) = &mut seen {
            refuse_repeated(&mut batch, seen, &keys);
        }
        let settled = settle(&mut batch, &args, context).await;
        let outcomes = settled.with_context(|| {
            let line = counts.line;
            format!("stopped after line {line}: what comes behind it is not imported")
        })?;
        progress.suspend(|| report.note(&batch, outcomes, &mut counts))?;
        progress.set_position(read.load(Ordering::Relaxed));
        progress.set_message(format!("{} refused", counts.refused));
        end = batch.end;
    }
    progress.finish_and_clear();
    report.close(&counts)?;
    summary(&counts, &args, context)?;
    match end {
        Some(error) => anyhow::bail!("{}: {error}", args.file.display()),
        None if counts.refused > 0 => anyhow::bail!("{} records were refused", counts.refused),
        None => Ok(()),
    }
}

fn summary(
    counts: &Counts,
    args: &ImportArgs,
    context: &mut CommandContext<'_>,
) -> anyhow::Result<()> {
    let record = json!({
        "added": counts.added,
        "updated": counts.updated,
        "skipped": counts.skipped,
        "refused": counts.refused,
        "others": counts.others,
        "dryRun": args.dry_run,
    });
    let would = if args.dry_run { "dry run: " } else { "" };
    let mut line = format!(
        "{would}{} added, {} updated, {} skipped, {} refused",
        counts.added, counts.updated, counts.skipped, counts.refused
    );
    if counts.others > 0 {
        line.push_str(&format!(", {} not of people", counts.others));
    }
    context.print(&record, &line)
}

/// What became of the users of a batch: of those that are none, nothing.
async fn settle(
    batch: &mut Batch,
    args: &ImportArgs,
    context: &CommandContext<'_>,
) -> anyhow::Result<Vec<ImportOutcome>> {
    let imports = batch.items.iter_mut();
    let imports = imports.filter_map(|item| item.import.as_mut().ok()?.take());
    let imports: Vec<_> = imports.collect();
    let existing = match (args.update, args.skip_existing) {
        (true, _) => ExistingUserPolicy::Update,
        (_, true) => ExistingUserPolicy::Skip,
        _ => ExistingUserPolicy::Refuse,
    };
    if imports.is_empty() {
        return Ok(Vec::new());
    }
    let (store, now_ms) = (&context.store, context.clock.now_ms());
    let done = store.import_users(&imports, existing, args.dry_run, now_ms, context.audit());
    Ok(done.await?)
}

/// In a dry run the store does not see that a name comes twice.
fn refuse_repeated(batch: &mut Batch, seen: &mut HashSet<u64>, keys: &RandomState) {
    for item in &mut batch.items {
        if let Ok(Some(import)) = &item.import
            && !seen.insert(keys.hash_one(user_name::key(&import.user.user_name)))
        {
            item.import = Err("the name comes twice in the file".to_owned());
        }
    }
}

/// Refused records: into a file, or some of them onto the terminal.
struct Report {
    file: String,
    out: Option<csv::Writer<File>>,
}

impl Report {
    fn new(args: &ImportArgs) -> anyhow::Result<Self> {
        let out = match &args.report {
            None => None,
            Some(path) => {
                let file = File::create(path);
                let file = file.with_context(|| format!("the report {}", path.display()))?;
                let mut out = csv::Writer::from_writer(file);
                out.write_record(["file", "line", "userName", "reason"])?;
                Some(out)
            }
        };
        let file = args.file.display().to_string();
        Ok(Self { file, out })
    }

    fn note(
        &mut self,
        batch: &Batch,
        outcomes: Vec<ImportOutcome>,
        counts: &mut Counts,
    ) -> anyhow::Result<()> {
        counts.others += batch.others;
        let mut outcomes = outcomes.into_iter();
        for item in &batch.items {
            counts.line = item.line;
            let refused = match &item.import {
                Err(reason) => reason.as_str(),
                Ok(_) => match outcomes.next() {
                    Some(ImportOutcome::Added) => {
                        counts.added += 1;
                        continue;
                    }
                    Some(ImportOutcome::Updated) => {
                        counts.updated += 1;
                        continue;
                    }
                    Some(ImportOutcome::Skipped) => {
                        counts.skipped += 1;
                        continue;
                    }
                    Some(ImportOutcome::FileOwned) => {
                        "the user is declared in the configuration file"
                    }
                    Some(ImportOutcome::Taken) | None => "the name, or the id, is another user's",
                },
            };
            counts.refused += 1;
            match &mut self.out {
                Some(out) => {
                    let line = item.line.to_string();
                    out.write_record([&self.file, &line, &item.name, refused])?;
                }
                None if counts.refused <= SHOWN => {
                    let (file, line, name) = (&self.file, item.line, &item.name);
                    process_log::say(&format!("{file}:{line}: {name}: {refused}\n"));
                }
                None => {}
            }
        }
        Ok(())
    }

    fn close(self, counts: &Counts) -> anyhow::Result<()> {
        match self.out {
            Some(mut out) => out.flush()?,
            None if counts.refused > SHOWN => {
                let more = counts.refused - SHOWN;
                process_log::say(&format!("and {more} more: --report FILE lists them all\n"));
            }
            None => {}
        }
        Ok(())
    }
}

/// The file, and a bar that shows how much of it is read.
fn open(path: &Path) -> anyhow::Result<(Box<dyn Read + Send>, ProgressBar)> {
    let (input, length): (Box<dyn Read + Send>, _) = if path == Path::new("-") {
        (Box::new(io::stdin()), None)
    } else {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        let length = file.metadata()?.len();
        (Box::new(file), Some(length))
    };
    let bar = match length {
        Some(length) => ProgressBar::new(length),
        None => ProgressBar::new_spinner(),
    };
    if !io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = "{bar:30} {bytes}/{total_bytes} {elapsed_precise} (left {eta}) {msg}";
    bar.set_style(ProgressStyle::with_template(style)?);
    Ok((input, bar))
}

fn format(args: &ImportArgs) -> anyhow::Result<Format> {
    if let Some(format) = args.format {
        return Ok(format);
    }
    let extension = args.file.extension().and_then(|name| name.to_str());
    match extension.map(str::to_ascii_lowercase).as_deref() {
        Some("csv") => Ok(Format::Csv),
        Some("ldif" | "ldf") => Ok(Format::Ldif),
        _ => anyhow::bail!("say what the file is: --format csv or ldif"),
    }
}

/// Counts what was read.
struct Counted<R> {
    inner: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let bytes = u64::try_from(read).unwrap_or_default();
        self.read.fetch_add(bytes, Ordering::Relaxed);
        Ok(read)
    }
}

/// What the reading thread must know.
struct Source {
    format: Format,
    name_attribute: String,
    realm: String,
    now_ms: i64,
    hashing: HashingConfig,
}

/// Reads all of the file; ends early when nobody takes its batches.
fn produce(input: impl Read, source: &Source, batches: &mpsc::Sender<Batch>) {
    let input = BufReader::with_capacity(256 * 1024, input);
    let records = match source.format {
        Format::Ldif => Ok(Records::Ldif(LdifRecords::new(
            input,
            &source.name_attribute,
        ))),
        Format::Csv => CsvRecords::new(input, |path| schema::find(path).is_some())
            .map(|records| Records::Csv(Box::new(records))),
    };
    let mut records = match records {
        Ok(records) => records,
        Err(error) => {
            let end = Some(error);
            // Nobody left to tell: the command is over.
            let _ = batches.blocking_send(Batch {
                end,
                ..Batch::default()
            });
            return;
        }
    };
    loop {
        let (batch, more) = next_batch(&mut records, source);
        if batches.blocking_send(batch).is_err() || !more {
            return;
        }
    }
}

fn next_batch(
    records: &mut impl Iterator<Item = Result<Record, ImportError>>,
    source: &Source,
) -> (Batch, bool) {
    let mut batch = Batch::default();
    let mut ready = Vec::new();
    let mut passwords = 0;
    while batch.items.len() < TOGETHER && passwords < HASHED {
        let record = match records.next() {
            Some(Ok(record)) => record,
            last => {
                batch.end = last.and_then(Result::err);
                hash(&mut batch, ready, &source.hashing);
                return (batch, false);
            }
        };
        let (line, mut name) = (record.line, String::new());
        let import = match record.found {
            Err(reason) => Err(reason),
            Ok(None) => {
                batch.others += 1;
                continue;
            }
            Ok(Some(found)) => {
                let said = found.record.get("userName").and_then(|name| name.as_str());
                name = said.unwrap_or_default().chars().take(255).collect();
                found.ready(&source.realm, source.now_ms)
            }
        };
        let import = import.and_then(|one: Ready| {
            let long = |password: &Secret| password.expose().len() > PASSWORD_MAX;
            if one.password.as_ref().is_some_and(long) {
                return Err(format!("password: has more than {PASSWORD_MAX} bytes"));
            }
            if let Some(password) = one.password {
                passwords += 1;
                ready.push((batch.items.len(), password));
            }
            Ok(Some(one.import))
        });
        batch.items.push(Item { line, name, import });
    }
    hash(&mut batch, ready, &source.hashing);
    (batch, true)
}

/// Hashes the passwords of a batch, on every core.
fn hash(batch: &mut Batch, passwords: Vec<(usize, Secret)>, hashing: &HashingConfig) {
    if passwords.is_empty() {
        return;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let share = passwords.len().div_ceil(cores);
    let hashed = std::thread::scope(|scope| {
        let workers: Vec<_> = passwords
            .chunks(share)
            .map(|chunk| {
                scope.spawn(move || {
                    let made = chunk.iter().map(|(index, password)| {
                        (*index, identity::hash_new_blocking(password, hashing))
                    });
                    made.collect::<Vec<_>>()
                })
            })
            .collect();
        let done = workers.into_iter().map(|worker| worker.join());
        done.collect::<Vec<_>>()
    });
    for (index, made) in hashed.into_iter().flatten().flatten() {
        let item = &mut batch.items[index];
        match (made, &mut item.import) {
            (Ok(hash), Ok(Some(import))) => import.user.password_hash = Some(hash),
            (Err(error), import) => *import = Err(error.to_string()),
            (Ok(_), Ok(None) | Err(_)) => {}
        }
    }
    // Without its hash a user would be added without a password.
    for (index, _) in passwords {
        let item = &mut batch.items[index];
        if matches!(&item.import, Ok(Some(import)) if import.user.password_hash.is_none()) {
            item.import = Err("the password could not be hashed".to_owned());
        }
    }
}
