//! The log of the process on standard error.
//!
//! While the process serves, nobody waits for whoever reads standard error:
//! lines go through a [`Spool`]. Other commands write them directly.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::time::Duration;

use tracing::subscriber::set_global_default;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use super::client_aborts::ClientAborts;
use super::engine_log::EngineLog;
use super::line_sink::LineSink;
use super::log_levels;
use super::metrics::Counter;
use super::repeats::Repeats;
use super::spool::{Bounds, Spool};
use doorward_core::clock;

/// What waits for a reader of standard error.
const BOUNDS: Bounds = Bounds {
    shards: 1,
    lines: 8_192,
    bytes: 1 << 20,
    prompt: true,
};
/// How long what waits may take to be written when the process ends.
pub const LAST_WORDS: Duration = Duration::from_secs(1);
/// The level that is logged unless the environment says.
const LEVEL: &str = "info";

static LOG: OnceLock<ProcessLog> = OnceLock::new();

/// The log while the process serves.
struct ProcessLog {
    spool: Spool,
    repeats: Repeats,
    aborts: ClientAborts,
}

/// Logs to standard error from now on, without ever waiting for its reader;
/// panics are logged, too. No bound holds for how often `operators` may log:
/// modules whose lines only operators bring about.
///
/// # Errors
/// When there is no thread or descriptor for the writer.
pub fn serve(operators: &'static [&'static str]) -> io::Result<()> {
    let outlet = LineSink::duplicate(&io::stderr())?;
    let log = LOG.get_or_init(|| ProcessLog {
        spool: Spool::new("stderr", BOUNDS, Counter::default()),
        repeats: Repeats::default(),
        aborts: ClientAborts::default(),
    });
    let thread = std::thread::Builder::new().name("log".to_owned());
    thread.spawn(|| log.spool.run(outlet))?;
    let engine = EngineLog::new(log.aborts.clone(), &log.repeats);
    let limit = Limit {
        repeats: &log.repeats,
        operators,
    };
    install(|| SpoolWriter(&log.spool), Some(limit), engine);
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// Logs to standard error from now on, directly: for commands that serve
/// nobody.
pub fn direct() {
    let repeats = Box::leak(Box::default());
    install(
        || Stderr,
        None,
        EngineLog::new(ClientAborts::default(), repeats),
    );
}

/// Says `text` on standard error, as it is.
pub fn say(text: &str) {
    // Nobody is left to be told of a failure.
    let _ = match LOG.get() {
        Some(log) => SpoolWriter(&log.spool).write_all(text.as_bytes()),
        None => io::stderr().write_all(text.as_bytes()),
    };
}

/// Waits a little until what was logged so far is written.
pub fn flush() {
    if let Some(log) = LOG.get() {
        log.spool.flush(LAST_WORDS);
    }
}

/// Clients that left while the process serves.
pub fn client_aborts() -> ClientAborts {
    LOG.get().map(|log| log.aborts.clone()).unwrap_or_default()
}

/// Lines that were not written: those that found no room or could not be
/// written, and those that one place has logged too often.
pub(super) fn lost() -> [u64; 2] {
    LOG.get().map_or([0, 0], |log| {
        [log.spool.dropped(), log.repeats.suppressed()]
    })
}

fn install<W>(writer: W, limit: Option<Limit>, engine: EngineLog)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let levels = std::env::var("DOORWARD_LOG").ok();
    let filter = levels
        .and_then(|levels| EnvFilter::try_new(crate_targets(&levels)).ok())
        .or_else(|| EnvFilter::try_from_default_env().ok())
        .unwrap_or_else(|| EnvFilter::new(log_levels::directives(LEVEL)));
    let configured = filter.to_string();
    let serves = limit.is_some();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .log_internal_errors(false)
        .with_writer(writer);
    // A second log would be a mistake of the program: the first one stays.
    let reload = if std::env::var("DOORWARD_LOG_FORMAT").is_ok_and(|format| format == "json") {
        let log = log.json().with_filter_reloading();
        let reload = log_levels::reload(log.reload_handle());
        set_global_default(log.finish().with(limit)).map(|()| reload)
    } else {
        let log = log.with_target(false).with_filter_reloading();
        let reload = log_levels::reload(log.reload_handle());
        set_global_default(log.finish().with(limit)).map(|()| reload)
    };
    if let Ok(reload) = reload
        && serves
    {
        log_levels::begin(configured, reload);
    }
    if log::set_boxed_logger(Box::new(engine)).is_ok() {
        log_levels::follow();
    }
}

/// Modules of the time when the program was one crate, with the targets that
/// their lines have now. Longer ones come first.
const TARGETS: &[(&str, &str)] = &[
    (
        "doorward::plugins::openid_connect",
        "doorward_openid_connect",
    ),
    ("doorward::plugins", "doorward_plugins"),
    ("doorward::filter", "doorward_plugin_api::filter"),
    ("doorward::gateway", "doorward_gateway"),
    ("doorward::identity", "doorward_identity"),
    ("doorward::admin", "doorward_admin"),
    ("doorward::audit", "doorward_audit"),
    ("doorward::store", "doorward_store"),
    ("doorward::expr", "doorward_expr"),
    ("doorward::http", "doorward_net::http"),
    ("doorward::session", "doorward_net::session"),
    ("doorward::shared", "doorward_net::shared"),
    ("doorward::telemetry", "doorward_net::telemetry"),
];

/// The levels of `DOORWARD_LOG`, with the targets of today in place of modules
/// of the time when the program was one crate.
fn crate_targets(levels: &str) -> String {
    let directives = levels.split(',').map(|directive| {
        let old = TARGETS.iter().find(|(old, _)| {
            let rest = directive.trim_start().strip_prefix(old);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '=', '[']))
        });
        old.map_or_else(
            || directive.to_owned(),
            |(old, new)| directive.replacen(old, new, 1),
        )
    });
    directives.collect::<Vec<_>>().join(",")
}

/// Logs a panic: the usual way waits for whoever reads standard error.
fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("no message");
    let place = panic.location().map(ToString::to_string);
    let thread = std::thread::current();
    let backtrace = std::backtrace::Backtrace::capture();
    tracing::error!(
        thread = thread.name().unwrap_or(""),
        place = place.as_deref().unwrap_or(""),
        "panicked: {message}"
    );
    if backtrace.status() == std::backtrace::BacktraceStatus::Captured {
        say(&format!("{backtrace}\n"));
    }
}

/// Appends each line to a spool.
struct SpoolWriter(&'static Spool);

impl Write for SpoolWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.0.append(&text);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Standard error, whose failures are nobody's concern.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Leaves out what one place logs too often.
struct Limit {
    repeats: &'static Repeats,
    operators: &'static [&'static str],
}

impl<S: Subscriber> Layer<S> for Limit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        let target = metadata.target();
        *metadata.level() > Level::WARN
            // Those of the `log` crate have been looked at.
            || target == "log"
            || self.operators.iter().any(|module| target.starts_with(module))
            || self.repeats.admit(target, metadata.line(), clock::monotonic_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_for_modules_of_the_single_crate_hold_for_their_crates() {
        let levels = "warn,doorward::gateway=debug,doorward::http::outbound=trace";
        let today = "warn,doorward_gateway=debug,doorward_net::http::outbound=trace";
        assert_eq!(crate_targets(levels), today);
        for same in [
            "info",
            "doorward=debug",
            "doorward::boot=debug",
            "doorward::storey=warn",
        ] {
            assert_eq!(crate_targets(same), same);
        }
    }
}
