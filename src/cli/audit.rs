//! `doorward audit …`: reading the audit log.

use std::collections::{HashSet, VecDeque};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::output::has_no_reader;
use super::store::{Place, on_runtime, private};
use super::terminal::Terminal;
use super::{USAGE, complain, with_causes};
use doorward_core::clock::Clock;
use doorward_core::model::audit::AuditQuery;
use doorward_store::{self as store, Store};

/// Records in memory at once.
const PIECE: u32 = 1000;

/// How often `--follow` looks for new records.
const LOOK: Duration = Duration::from_secs(1);

/// Records reach the store up to a second after their time, those of other
/// processes with clocks of their own: so far back `--follow` looks again.
const LATE_MS: i64 = 5_000;

const EXAMPLES: &str = "\
Examples:
  doorward audit list --since 24h --outcome failure
  doorward audit list --user demo --kind 'session.*'
  doorward audit export --since 2026-01-01 --until 2026-02-01 -o january.jsonl
  doorward audit export --since 0s --follow | jq .event";

/// `doorward audit …`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Command {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Lists records, the newest first, a line each
    List {
        #[command(flatten)]
        which: Which,
        /// At most so many
        #[arg(long, value_name = "NUMBER", default_value_t = 100)]
        limit: u32,
        /// Prints JSON
        #[arg(long)]
        json: bool,
    },
    /// Writes records as JSON lines, the oldest first
    Export {
        #[command(flatten)]
        which: Which,
        /// Where to write to; by default to standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Goes on with new records, until it is stopped
        #[arg(short, long, conflicts_with = "until")]
        follow: bool,
    },
}

/// Which records.
#[derive(Debug, Args)]
struct Which {
    /// From this time on: 2026-01-31T12:00:00Z, 2026-01-31, or how long ago: 90s, 15m, 24h, 7d
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Until before this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Of these kinds, with commas; token.* is a family
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
    /// Of this realm
    #[arg(long)]
    realm: Option<String>,
    /// About this user: identifier, or name at that time
    #[arg(long)]
    user: Option<String>,
    /// About this client
    #[arg(long)]
    client: Option<String>,
    /// success or failure
    #[arg(long)]
    outcome: Option<String>,
    /// Of requests from this address
    #[arg(long)]
    address: Option<String>,
}

impl Which {
    fn query(&self, now_ms: i64) -> anyhow::Result<AuditQuery> {
        let mut query = AuditQuery::default();
        let options = [
            ("since", &self.since),
            ("until", &self.until),
            ("realm", &self.realm),
            ("user", &self.user),
            ("client", &self.client),
            ("outcome", &self.outcome),
            ("address", &self.address),
        ];
        let given = options
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let kinds = self.kind.iter().map(|kind| ("kind", kind));
        for (name, value) in given.chain(kinds) {
            let set = query.set(name, value, now_ms);
            set.map_err(|message| anyhow::anyhow!("--{name}: {message}"))?;
        }
        Ok(query)
    }
}

/// Does what the command says; exit status 1 when it can't, 2 for a wrong file.
pub(super) fn run(command: &Command, file: &Path) -> ExitCode {
    let url = match command.place.find(file) {
        Ok((url, _)) => url,
        Err(error) => {
            complain(&error);
            return ExitCode::from(USAGE);
        }
    };
    match on_runtime(act(&url, &command.action)) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read it has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&with_causes(&error));
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(has_no_reader)
}

async fn act(url: &str, action: &Action) -> anyhow::Result<()> {
    let clock = Clock::system();
    let store = store::open_existing(url).await?;
    let store = store.context("there is no store")?;
    match action {
        Action::List { which, limit, json } => {
            let query = AuditQuery {
                newest_first: true,
                limit: *limit,
                ..which.query(clock.now_ms())?
            };
            list(store, query, *json, &mut io::stdout().lock()).await
        }
        Action::Export {
            which,
            output,
            follow,
        } => {
            let query = which.query(clock.now_ms())?;
            let mut out = target(output.as_deref())?;
            let mut seen = RecentRecords::default();
            write_all(&store, query.clone(), &mut *out, &mut seen).await?;
            if *follow {
                return go_on(&store, &query, &mut *out, &mut seen).await;
            }
            Ok(out.flush()?)
        }
    }
}

/// Writes new records as they come, until nobody reads them any more.
async fn go_on(
    store: &Store,
    query: &AuditQuery,
    out: &mut dyn Write,
    seen: &mut RecentRecords,
) -> anyhow::Result<()> {
    loop {
        out.flush()?;
        tokio::time::sleep(LOOK).await;
        let since_ms = seen.newest_ms - LATE_MS;
        let query = AuditQuery {
            since_ms: query.since_ms.max(Some(since_ms)),
            ..query.clone()
        };
        write_all(store, query, out, seen).await?;
    }
}

fn target(output: Option<&Path>) -> anyhow::Result<Box<dyn Write>> {
    let Some(path) = output else {
        return Ok(Box::new(Terminal(BufWriter::new(io::stdout()))));
    };
    let file = private(path);
    let file = file.with_context(|| format!("{} can't be written", path.display()))?;
    Ok(Box::new(BufWriter::new(file)))
}

async fn list(
    store: Arc<Store>,
    query: AuditQuery,
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let records = store.audit(&query).await?;
    if json {
        let records: Vec<Value> = records.into_iter().map(Value::Object).collect();
        writeln!(out, "{:#}", Value::from(records))?;
        return Ok(());
    }
    for record in &records {
        writeln!(out, "{}", line(record))?;
    }
    Ok(())
}

/// A record as a line with tabs.
fn line(record: &Map<String, Value>) -> String {
    let text = |value: Option<&Value>| {
        let text = value.and_then(Value::as_str);
        text.unwrap_or("-").to_owned()
    };
    let inner = |name: &str, member: &str| text(record.get(name).and_then(|it| it.get(member)));
    let outcome = match record.get("reason").and_then(Value::as_str) {
        Some(reason) => reason.to_owned(),
        None => text(record.get("outcome")),
    };
    let count = record.get("count").and_then(Value::as_u64).unwrap_or(1);
    let event = text(record.get("event"));
    let cells = [
        text(record.get("time")),
        match count {
            1 => event,
            count => format!("{event} ×{count}"),
        },
        outcome,
        text(record.get("realm")),
        inner("actor", "type"),
        inner("user", "name"),
        text(record.get("client")),
        text(record.get("target")),
        text(record.get("address")),
    ];
    cells.join("\t")
}

/// Records that `--follow` has written lately.
#[derive(Default)]
struct RecentRecords {
    /// In the order in which they were written.
    ids: VecDeque<(i64, String)>,
    known: HashSet<String>,
    newest_ms: i64,
}

impl RecentRecords {
    /// Notes a record; whether it is new.
    fn note(&mut self, id: &str) -> bool {
        let at_ms = time_of(id);
        if !self.known.insert(id.to_owned()) {
            return false;
        }
        self.newest_ms = self.newest_ms.max(at_ms);
        self.ids.push_back((at_ms, id.to_owned()));
        let old_ms = self.newest_ms - LATE_MS;
        while self.ids.front().is_some_and(|(at_ms, _)| *at_ms < old_ms) {
            if let Some((_, id)) = self.ids.pop_front() {
                self.known.remove(&id);
            }
        }
        true
    }
}

/// The time in an identifier, in milliseconds since the epoch.
fn time_of(id: &str) -> i64 {
    let id = Uuid::try_parse(id).unwrap_or_default();
    i64::try_from(id.as_u128() >> 80).unwrap_or(0)
}

async fn write_all(
    store: &Store,
    mut query: AuditQuery,
    out: &mut dyn Write,
    seen: &mut RecentRecords,
) -> anyhow::Result<()> {
    query.limit = PIECE;
    loop {
        let records = store.audit(&query).await?;
        let more = records.len() >= PIECE as usize;
        for record in records {
            let id = record.get("id").and_then(Value::as_str).unwrap_or_default();
            query.after = Uuid::try_parse(id).ok();
            if seen.note(id) {
                serde_json::to_writer(&mut *out, &record).map_err(io::Error::from)?;
                out.write_all(b"\n")?;
            }
        }
        if !more {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorward_core::model::audit::audit_id;

    #[test]
    fn what_was_written_is_not_written_again() {
        let id = |at_ms| audit_id(at_ms, 0, [0; 8]).to_string();
        let mut seen = RecentRecords::default();
        assert!(seen.note(&id(1_000)) && seen.note(&id(2_000)));
        assert!(!seen.note(&id(1_000)));
        // One that was late.
        assert!(seen.note(&id(1_500)));
        assert!(seen.note(&id(100_000)));
        assert_eq!((seen.newest_ms, seen.ids.len()), (100_000, 1));
    }
}
