//! `doorward check`: all that is wrong with the files, and where.

mod online;

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::progress::Progress;
use super::{complain, output};
use crate::boot;
use crate::config::Config;
use crate::server::tls;
use doorward_core::clock::Clock;
use doorward_net::telemetry::process_log;

/// How findings are told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// A line each, with the line of the file below it
    #[default]
    Text,
    /// One JSON object
    Json,
}

/// Something that is wrong.
#[derive(Debug, PartialEq, Eq)]
struct Finding<'a> {
    /// Where, if it is about a line of a file.
    place: Option<(&'a str, usize)>,
    /// The key, if that is told, and what is wrong.
    text: &'a str,
}

pub(super) fn run(file: &Path, format: Format, online: bool) -> ExitCode {
    process_log::direct();
    let checked = try_check(file).map_err(|error| error.to_string());
    let (probes, outcome) = match checked {
        Ok(config) if online => ask(&config),
        Ok(_) => (Vec::new(), Ok(())),
        Err(lines) => (Vec::new(), Err(lines)),
    };
    let answers: Vec<String> = probes
        .iter()
        .filter_map(|probe| Some(format!("{}: {}\n", probe.key, probe.outcome.as_ref().ok()?)))
        .collect();
    if format == Format::Text && !answers.is_empty() {
        output::print(&answers.concat());
    }
    match (format, outcome) {
        (Format::Text, Ok(())) => output::print(&format!("{}: ok\n", file.display())),
        (Format::Text, Err(lines)) => {
            let mut sources = Sources::default();
            for line in lines.lines() {
                complain(&line);
                if let Some(shown) = sources.shown(line) {
                    process_log::say(&shown);
                }
            }
            ExitCode::FAILURE
        }
        (Format::Json, outcome) => {
            let lines = outcome.err().unwrap_or_default();
            let findings: Vec<Value> = lines.lines().map(|line| Finding::of(line).json()).collect();
            let is_ok = findings.is_empty();
            let mut report = json!({"ok": is_ok, "file": file, "findings": findings});
            if !probes.is_empty() {
                report["online"] = probes.iter().map(online::Probe::json).collect();
            }
            let printed = output::print(&format!("{report:#}\n"));
            if is_ok { printed } else { ExitCode::FAILURE }
        }
    }
}

/// Asks what the configuration names; what does not answer is a finding each.
fn ask(config: &Config) -> (Vec<online::Probe>, Result<(), String>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return (Vec::new(), Err(error.to_string())),
    };
    let progress = Progress::of_wait("asks what the file names");
    let probes = runtime.block_on(online::probes(config, &Clock::system(), &progress));
    drop(progress);
    let wrong = probes.iter().filter_map(|probe| {
        let message = probe.outcome.as_ref().err()?;
        // What is no key of the file is told as it is.
        Some(if probe.key.contains(' ') {
            format!("{} fails: {message}", probe.key)
        } else {
            config.wrong(&probe.key, message.clone()).to_string()
        })
    });
    let lines: Vec<String> = wrong.collect();
    let outcome = if lines.is_empty() {
        Ok(())
    } else {
        Err(lines.join("\n"))
    };
    (probes, outcome)
}

fn try_check(file: &Path) -> anyhow::Result<Config> {
    let config = Config::load(file)?;
    let clock = Clock::system();
    let tls = tls::check(&config, &clock).into_iter();
    let mut findings: Vec<String> = tls.map(|error| error.located(&config)).collect();
    if let Err(error) = boot::check(&config, &clock) {
        findings.push(error.located(&config));
    }
    if findings.is_empty() {
        Ok(config)
    } else {
        anyhow::bail!(findings.join("\n"))
    }
}

impl<'a> Finding<'a> {
    /// Reads a line as errors of files are written: `FILE:LINE: KEY: MESSAGE`.
    fn of(line: &'a str) -> Self {
        let whole = Self {
            place: None,
            text: line,
        };
        let place = line.match_indices(':').find_map(|(at, _)| {
            let (number, text) = line[at + 1..].split_once(": ")?;
            let number: usize = number.parse().ok()?;
            Some((&line[..at], number, text))
        });
        place.map_or(whole, |(file, number, text)| Self {
            place: Some((file, number)),
            text,
        })
    }

    fn json(&self) -> Value {
        let mut json = json!({"message": self.text});
        if let Some((file, line)) = self.place {
            json["file"] = file.into();
            json["line"] = line.into();
        }
        json
    }

    /// The columns of `source` that it is about: those of its key, if the line
    /// has that, otherwise all that is written.
    fn columns(&self, source: &str) -> (usize, usize) {
        let key = self.text.split_once(": ").map_or("", |(path, _)| path);
        let key = key.rsplit(['.', '[']).next().unwrap_or_default();
        let key = key.trim_matches(['"', '\'', ']']);
        if let Some(at) = word(source, key) {
            return (source[..at].chars().count(), key.chars().count());
        }
        let indent = source.chars().take_while(|c| c.is_whitespace()).count();
        let written = source.trim().chars().count();
        (indent, written.max(1))
    }
}

/// Where `word` stands in a line by itself, as keys do: not within a longer one.
fn word(line: &str, word: &str) -> Option<usize> {
    let is_inner = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let mut found = line.match_indices(word).map(|(at, _)| at);
    found.find(|at| {
        let (before, behind) = (line[..*at].chars().next_back(), &line[at + word.len()..]);
        !word.is_empty()
            && !before.is_some_and(is_inner)
            && !behind.chars().next().is_some_and(is_inner)
    })
}

/// Lines of the files that findings are about, read once.
#[derive(Default)]
struct Sources(HashMap<String, Vec<String>>);

impl Sources {
    /// The line of the file that a finding is about, with carets below what is
    /// wrong.
    fn shown(&mut self, line: &str) -> Option<String> {
        let finding = Finding::of(line);
        let (file, number) = finding.place?;
        let source = self.line(file, number)?;
        let (indent, length) = finding.columns(source);
        let (margin, source) = (number.to_string(), source.trim_end());
        let gutter = " ".repeat(margin.len());
        let (before, carets) = (" ".repeat(indent), "^".repeat(length));
        let lines = [
            format!("  {gutter} |\n"),
            format!("  {margin} | {source}\n"),
            format!("  {gutter} | {before}{carets}\n"),
        ];
        Some(lines.concat())
    }

    fn line(&mut self, file: &str, number: usize) -> Option<&str> {
        let lines = self.0.entry(file.to_owned()).or_insert_with(|| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            text.lines().map(str::to_owned).collect()
        });
        let line = lines.get(number.checked_sub(1)?)?;
        // A secret may stand on it: what is told of it is its key alone.
        let is_shown = !may_hold_secret(line) && line.chars().count() <= 160;
        is_shown.then_some(line)
    }
}

/// Whether a line may hold a secret: one of its keys is called like one, or an address
/// has a part in front of its `@`.
fn may_hold_secret(line: &str) -> bool {
    let names = [
        "password",
        "secret",
        "token",
        "key",
        "authorization",
        "credential",
    ];
    let line = line.to_lowercase();
    let is_inner = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let mut keys = line.match_indices(':').map(|(at, _)| {
        let before = line[..at].trim_end_matches(['"', '\'', ' ']);
        before.rsplit(|c| !is_inner(c)).next().unwrap_or_default()
    });
    let address = line.split_once("://").map(|(_, address)| address);
    keys.any(|key| names.iter().any(|name| key.contains(name)))
        || address.is_some_and(|address| address.contains('@'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_has_the_place_that_its_line_names() {
        let finding = Finding::of("a/b.yaml:12: proxy.listen: expected a list");
        assert_eq!(finding.place, Some(("a/b.yaml", 12)));
        assert_eq!(finding.text, "proxy.listen: expected a list");
        let finding = Finding::of("redis: can't connect to 127.0.0.1:6379");
        assert_eq!(finding.place, None);
    }

    #[test]
    fn carets_are_below_the_key_of_the_finding() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("a.yaml");
        std::fs::write(&file, "proxy:\n  listen: 5\n  admin_password: x\n").expect("written");
        let file = file.display();
        let mut sources = Sources::default();
        let line = format!("{file}:2: proxy.listen: expected a list, not 5");
        let shown = sources.shown(&line);
        let lines = "    |\n  2 |   listen: 5\n    |   ^^^^^^\n";
        assert_eq!(shown.as_deref(), Some(lines));
        let line = format!("{file}:3: proxy.admin_password: unknown key");
        assert_eq!(sources.shown(&line), None, "a secret is not shown");
        for secret in [
            "store: postgres://u:sesame@db/x?sslmode=full",
            "- {name: a, client_secret: sesame}",
            "\"client_secret\" : sesame",
            "  - 'Authorization: Bearer sesame'",
        ] {
            assert!(may_hold_secret(secret), "{secret}");
        }
        for shown in ["store: sqlite:a.db", "url: http://h/a", "name: a key"] {
            assert!(!may_hold_secret(shown), "{shown}");
        }
        let line = format!("{file}:9: gone");
        assert_eq!(sources.shown(&line), None);
    }
}
