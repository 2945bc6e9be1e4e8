//! `doorward config …`: the gateway's entities as one declarative document.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Subcommand;
use serde_json::Value;

use super::identity::audit_events::operator;
use super::progress::Progress;
use super::{USAGE, admin_listener, complain, output, with_causes};
use crate::boot;
use crate::config::Config;
use doorward_audit::Audit;
use doorward_core::clock::Clock;
use doorward_core::model::audit::{Event, Kind, PendingAudit, Trace};
use doorward_core::yaml::{Document, DocumentError};
use doorward_gateway::control::Difference;
use doorward_gateway::declarative;
use doorward_gateway::entities::Entities;
use doorward_net::telemetry::{Metrics, process_log};
use doorward_store as store;

/// Longest wait for an answer of a running instance.
const LIMIT: Duration = Duration::from_secs(60);
/// Longest answer that is read, in bytes.
const MAX_ANSWER: u64 = 256 << 20;

/// What to do with the entities.
#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Writes all entities, those of the files and those of the store, as a
    /// declarative document. It holds every secret in clear text, as it is
    /// stored; a file is made readable for its owner only
    Export {
        /// Where to write to; by default to standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Makes the stored entities those of a declarative document: what it does
    /// not declare is removed, what files own stays. Exit status 0: imported,
    /// also where something was left out as asked; 1: nothing is imported; 2: the
    /// configuration file is wrong
    Import {
        /// The document; `-` is standard input
        document: PathBuf,
        /// Says what would change, and changes nothing
        #[arg(long)]
        check: bool,
        /// Imports the rest of a document with plugins, or lists, that Doorward
        /// does not run. What is left out is listed on standard error by file,
        /// line and name: callers that such a plugin kept out come in
        #[arg(long)]
        skip_unsupported: bool,
    },
}

/// How a document is imported.
#[derive(Clone, Copy)]
struct ImportOptions {
    /// Changes nothing.
    check: bool,
    /// Leaves out what nobody runs here.
    skips: bool,
}

/// Does what the command says; exit status 1 when it can't, 2 for a wrong file.
pub(super) fn run(action: &Action, file: &Path) -> ExitCode {
    let config = match Config::load(file) {
        Ok(config) => config,
        Err(error) => {
            complain(&error);
            return ExitCode::from(USAGE);
        }
    };
    process_log::direct();
    let done = match action {
        Action::Export { output } => export(&config, output.as_deref()),
        Action::Import {
            document,
            check,
            skip_unsupported,
        } => {
            let options = ImportOptions {
                check: *check,
                skips: *skip_unsupported,
            };
            import(&config, document, options)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&with_causes(&error));
            ExitCode::FAILURE
        }
    }
}

fn export(config: &Config, output: Option<&Path>) -> anyhow::Result<()> {
    let progress = Progress::of_wait("exports");
    let text = match ask(config, "GET", "/config", "")? {
        Some((200, body)) => {
            let body: Value = serde_json::from_slice(&body)?;
            let text = body["config"]
                .as_str()
                .context("an answer without config")?;
            text.to_owned()
        }
        Some((status, body)) => bail!("{}", refusal(status, &body)),
        None => offline(config, async |control| {
            Ok(declarative::export(&control.entities()))
        })?,
    };
    drop(progress);
    match output {
        None => Ok(output::try_print(&text)?),
        Some(path) => write_private(path, &text)
            .with_context(|| format!("{} can't be written", path.display())),
    }
}

/// For the owner's eyes only, from the first byte.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn import(config: &Config, path: &Path, options: ImportOptions) -> anyhow::Result<()> {
    let mut text = String::new();
    let unreadable = || format!("{} can't be read", path.display());
    if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text)?;
    } else {
        text = std::fs::read_to_string(path).with_context(unreadable)?;
    }
    let document = Document::parse_foreign(&text, path)?;
    let unsupported = declarative::unsupported(document.clone());
    if options.skips {
        tell_skipped(&unsupported)?;
    }
    let progress = Progress::of_wait("imports");
    let outcome = imported(config, document, &text, options);
    drop(progress);
    let told = match outcome {
        Err(error) if !options.skips && !unsupported.is_empty() => {
            let mut lines = vec![with_causes(&error)];
            lines.extend(unsupported.iter().map(ToString::to_string));
            lines.push(format!(
                "not run by Doorward: {}; --skip-unsupported imports the rest",
                unsupported.len()
            ));
            return Err(anyhow::anyhow!(lines.join("\n")));
        }
        outcome => outcome?,
    };
    Ok(output::try_print(&format!("{told}\n"))?)
}

/// Lists what is left out.
fn tell_skipped(unsupported: &[DocumentError]) -> std::io::Result<()> {
    let mut stderr = std::io::stderr().lock();
    for skipped in unsupported {
        writeln!(stderr, "left out: {skipped}")?;
    }
    match unsupported.len() {
        0 => Ok(()),
        count => writeln!(stderr, "left out: {count}"),
    }
}

/// Imports a document; what came of it.
fn imported(
    config: &Config,
    document: Document,
    text: &str,
    options: ImportOptions,
) -> anyhow::Result<String> {
    let mut target = if options.check {
        "/config?check=1".to_owned()
    } else {
        "/config?check_hash=1".to_owned()
    };
    if options.skips {
        target.push_str("&skip_unsupported=1");
    }
    Ok(match ask(config, "POST", &target, text)? {
        Some((200, body)) => {
            let body: Value = serde_json::from_slice(&body)?;
            summary(|kind| body[kind].as_array().map_or(0, Vec::len))
        }
        Some((201, _)) => "imported".to_owned(),
        Some((304, _)) => "nothing to change".to_owned(),
        Some((status, body)) => bail!("{}", refusal(status, &body)),
        None => summary_of(&import_offline(config, document, options)?),
    })
}

fn import_offline(
    config: &Config,
    document: Document,
    ImportOptions { check, skips }: ImportOptions,
) -> anyhow::Result<Difference> {
    offline(config, async |control| {
        let clock = Clock::system();
        let now_ms = clock.now_ms();
        let mut read = None;
        let read_stored = |current: &Entities| {
            let declared = declarative::load_stored(document, current, now_ms, skips);
            let declared = declared.map_err(boot::BootError::Entities)?;
            Ok(read.insert(declared).entities.clone())
        };
        let replace = async |audit: Option<&PendingAudit>| {
            control.replace_stored(check, read_stored, audit).await
        };
        let outcome: Result<Difference, boot::BootError> = if check {
            replace(None).await
        } else {
            let store = store::open(&config.store.0).await?;
            let audit = Audit::open(config.audit.clone(), store, clock, &Metrics::default())?;
            let event = Event::new(Kind::EntityImport, operator());
            let told = (event.clone(), Trace::default());
            let did = |difference: &Difference| !difference.is_empty();
            let done = audit.with(told, now_ms, replace, did).await;
            if done.is_err() {
                audit.note(event.failed("refused"), Trace::default(), now_ms);
            }
            audit.flush().await;
            done
        };
        outcome.map_err(|error| anyhow::anyhow!("{error}"))
    })
}

fn summary_of(difference: &Difference) -> String {
    summary(|kind| match kind {
        "created" => difference.created.len(),
        "updated" => difference.updated.len(),
        _ => difference.deleted.len(),
    })
}

fn summary(count: impl Fn(&str) -> usize) -> String {
    format!(
        "created: {}, updated: {}, deleted: {}",
        count("created"),
        count("updated"),
        count("deleted")
    )
}

fn refusal(status: u16, body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    match body["message"].as_str() {
        Some(message) => message.to_owned(),
        None => format!("the running instance answered {status}"),
    }
}

/// Does `work` on files and store, with nobody running.
fn offline<T>(
    config: &Config,
    work: impl AsyncFnOnce(std::sync::Arc<doorward_gateway::control::Control>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async { work(boot::entities(config, &Clock::system()).await?).await })
}

/// Whether nobody listens, on a port or a Unix socket.
fn is_nobody(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionRefused | ErrorKind::NotFound)
}

/// Status and body of a request to the running instance; `None`: nobody
/// listens.
fn ask(
    config: &Config,
    method: &str,
    target: &str,
    body: &str,
) -> anyhow::Result<Option<(u16, Vec<u8>)>> {
    let listen = &config.admin.listen;
    let (mut stream, host) = match admin_listener::connect(listen, LIMIT) {
        Ok(connected) => connected,
        Err(error) if is_nobody(error.kind()) => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("no answer from {listen}")),
    };
    let token = config.admin.token.as_ref();
    let token = token.map_or(String::new(), |token| {
        format!("Kong-Admin-Token: {}\r\n", token.expose())
    });
    let head = format!(
        "{method} {target} HTTP/1.0\r\nHost: {host}\r\n{token}Content-Type: application/yaml\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.context("an answer without an end of its head")?;
    let status = std::str::from_utf8(answer.get(9..12).unwrap_or_default())?.parse()?;
    Ok(Some((status, answer.split_off(end + 4))))
}
