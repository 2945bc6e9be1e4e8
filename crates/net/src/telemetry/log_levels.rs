//! Which lines the log of the process has. It can change while the process serves.

use std::sync::OnceLock;

use parking_lot::Mutex;
use tracing_log::AsLog;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::reload::Handle;

/// Levels by the names that the imitated gateway has for them. Nothing here is logged
/// above `error`.
const LEVELS: &[(&str, LevelFilter)] = &[
    ("debug", LevelFilter::DEBUG),
    ("info", LevelFilter::INFO),
    ("notice", LevelFilter::INFO),
    ("warn", LevelFilter::WARN),
    ("error", LevelFilter::ERROR),
    ("crit", LevelFilter::OFF),
    ("alert", LevelFilter::OFF),
    ("emerg", LevelFilter::OFF),
];
/// Libraries whose lines are of no use to operators, whatever the level.
const QUIET: &[&str] = &["pingora_core", "pingora_proxy", "sqlx"];

static LOG_LEVELS: OnceLock<LogLevels> = OnceLock::new();

/// The levels of the log that the process writes.
pub struct LogLevels {
    /// Those that it has begun with.
    configured: String,
    reload: Reload,
    chosen: Mutex<Chosen>,
}

/// What operators have chosen while the process serves.
#[derive(Default)]
struct Chosen {
    name: Option<&'static str>,
    changes: u64,
}

/// A change of the level, which may be taken back later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelChange(u64);

/// The levels of a process that serves; others can't change theirs.
pub fn log_levels() -> Option<&'static LogLevels> {
    LOG_LEVELS.get()
}

/// What `level` says in the directives of a filter.
pub(super) fn directives(level: &str) -> String {
    let quiet = QUIET.iter().map(|library| match level {
        // These have nothing below.
        "error" | "off" => format!(",{library}={level}"),
        _ => format!(",{library}=warn"),
    });
    format!("{level}{}", quiet.collect::<String>())
}

/// What puts a filter of such directives in force, if it can be.
type Reload = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// Puts filters in force by this handle.
pub(super) fn reload<S: 'static>(handle: Handle<EnvFilter, S>) -> Reload {
    Box::new(move |directives| {
        let filter = EnvFilter::try_new(directives).ok();
        filter.is_some_and(|filter| handle.reload(filter).is_ok())
    })
}

/// Has levels change by `reload`. The first call counts.
pub(super) fn begin(configured: String, reload: Reload) {
    LOG_LEVELS.get_or_init(|| LogLevels {
        configured,
        reload,
        chosen: Mutex::default(),
    });
}

/// Has lines of libraries that use `log` follow the levels in force.
pub(super) fn follow() {
    log::set_max_level(LevelFilter::current().as_log());
}

/// The level of this name.
pub fn level_named(name: &str) -> Option<&'static str> {
    let named = LEVELS.iter().find(|(known, _)| *known == name);
    named.map(|(name, _)| *name)
}

/// The name of the least severe level that is logged, of whatever part of the program.
pub fn level_in_force() -> &'static str {
    let chosen = log_levels().and_then(|levels| levels.chosen.lock().name);
    let current = LevelFilter::current().min(LevelFilter::DEBUG);
    let named = || LEVELS.iter().find(|(_, level)| *level == current);
    chosen
        .or_else(|| named().map(|(name, _)| *name))
        .unwrap_or("emerg")
}

/// What became of a wish for a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelOutcome {
    /// It was in force already, for every part of the program.
    Same,
    /// It is in force from now on.
    Changed(LevelChange),
    /// The filter could not be changed.
    Failed,
}

impl LogLevels {
    /// Logs lines of this level and above from now on, whatever part of the program
    /// they are of.
    pub fn choose(&self, name: &'static str) -> LevelOutcome {
        let Some((_, level)) = LEVELS.iter().find(|(known, _)| *known == name) else {
            return LevelOutcome::Failed;
        };
        let wanted = directives(&level.to_string());
        let mut chosen = self.chosen.lock();
        let same = match chosen.name {
            Some(chosen) => chosen == name,
            // Levels of single parts are other ones.
            None => self.configured == wanted,
        };
        if same {
            return LevelOutcome::Same;
        }
        if !(self.reload)(&wanted) {
            return LevelOutcome::Failed;
        }
        follow();
        chosen.name = Some(name);
        chosen.changes += 1;
        LevelOutcome::Changed(LevelChange(chosen.changes))
    }

    /// Logs as the process has begun to, unless the level has changed again since.
    pub fn take_back(&self, change: LevelChange) {
        let mut chosen = self.chosen.lock();
        if chosen.changes == change.0 && (self.reload)(&self.configured) {
            follow();
            chosen.name = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn levels() -> (LogLevels, Arc<Mutex<Vec<String>>>) {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = Arc::clone(&seen);
        let levels = LogLevels {
            configured: "warn,doorward_net=debug".to_owned(),
            reload: Box::new(move |text| {
                told.lock().push(text.to_owned());
                EnvFilter::try_new(text).is_ok()
            }),
            chosen: Mutex::default(),
        };
        (levels, seen)
    }

    fn changed(levels: &LogLevels, name: &'static str) -> LevelChange {
        match levels.choose(name) {
            LevelOutcome::Changed(change) => change,
            outcome => panic!("{name}: {outcome:?}"),
        }
    }

    #[test]
    fn a_level_of_one_part_is_not_that_of_all() {
        let (mut levels, seen) = levels();
        // `debug` is in force, of one part alone.
        changed(&levels, "debug");
        assert!(seen.lock()[0].starts_with("debug,"));
        levels.configured = directives("info");
        levels.chosen = Mutex::default();
        assert_eq!(levels.choose("info"), LevelOutcome::Same);
    }

    #[test]
    fn a_level_holds_until_it_is_taken_back() {
        let (levels, seen) = levels();
        let change = changed(&levels, "debug");
        assert_eq!(levels.choose("debug"), LevelOutcome::Same);
        assert_eq!(levels.chosen.lock().name, Some("debug"));
        levels.take_back(change);
        assert_eq!(levels.chosen.lock().name, None);
        let quiet = ",pingora_core=warn,pingora_proxy=warn,sqlx=warn";
        let expected = [
            format!("debug{quiet}"),
            "warn,doorward_net=debug".to_owned(),
        ];
        assert_eq!(*seen.lock(), expected);
    }

    #[test]
    fn an_older_change_takes_back_no_newer_one() {
        let (levels, seen) = levels();
        let first = changed(&levels, "debug");
        changed(&levels, "emerg");
        levels.take_back(first);
        assert_eq!(levels.chosen.lock().name, Some("emerg"));
        assert_eq!(seen.lock().len(), 2);
        assert_eq!(
            seen.lock()[1],
            "off,pingora_core=off,pingora_proxy=off,sqlx=off"
        );
    }

    #[test]
    fn names_of_levels_are_those_of_the_imitated_gateway() {
        assert_eq!(level_named("notice"), Some("notice"));
        for unknown in ["trace", "off", "DEBUG", "", "debug,x=trace"] {
            assert_eq!(level_named(unknown), None, "{unknown}");
        }
    }
}
