//! The page on troubleshooting has every code, and no other: it is compared with
//! `doorward explain --refusals` and with the sources of the identity provider.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: &str = include_str!("../../docs/troubleshooting.md");

/// Who refuses, the code, the status.
type Refusal = (String, String, String);

/// What the program says of itself.
fn refusals_of_the_program() -> BTreeSet<Refusal> {
    let output = Command::new(env!("CARGO_BIN_EXE_doorward"))
        .args(["explain", "--refusals"])
        .output()
        .expect("it starts");
    let text = String::from_utf8(output.stdout).expect("it prints UTF-8");
    let lines = text.lines().map(|line| {
        let mut words = line.split_whitespace().map(str::to_owned);
        let mut next = || words.next().expect("plugin, status and code");
        let (plugin, status, code) = (next(), next(), next());
        (plugin, code, status.replace('-', "none"))
    });
    lines.collect()
}

/// The rows below the headings of the page that name a plugin of `plugins`.
fn refusals_of_the_page(plugins: &BTreeSet<String>) -> BTreeSet<Refusal> {
    let mut plugin = None;
    let mut rows = BTreeSet::new();
    for line in PAGE.lines() {
        let heading = line
            .strip_prefix("## ")
            .or_else(|| line.strip_prefix("### "));
        if let Some(heading) = heading {
            plugin = plugins.get(heading);
        }
        let row = line.strip_prefix("| `");
        if let (Some(plugin), Some(row)) = (plugin, row) {
            let mut cells = row.split(" | ");
            let code = cells.next().unwrap_or_default().trim_end_matches('`');
            let status = cells.next().unwrap_or_default();
            rows.insert((plugin.clone(), code.to_owned(), status.to_owned()));
        }
    }
    rows
}

#[test]
fn every_refusal_of_gateway_and_plugins_is_in_the_page() {
    let wanted = refusals_of_the_program();
    assert!(wanted.len() > 100, "{wanted:?}");
    let plugins = wanted.iter().map(|(plugin, ..)| plugin.clone()).collect();
    let listed = refusals_of_the_page(&plugins);
    let missing: Vec<_> = wanted.difference(&listed).collect();
    let superfluous: Vec<_> = listed.difference(&wanted).collect();
    assert!(
        missing.is_empty() && superfluous.is_empty(),
        "docs/troubleshooting.md lacks {missing:?} and has {superfluous:?}"
    );
}

#[test]
fn every_kind_of_failed_tries_is_in_the_page() {
    let source = include_str!("../../crates/net/src/telemetry/upstreams.rs");
    let wanted = literals_after(source, "Failure::", "=> \"");
    assert_eq!(section("## Upstream"), wanted);
}

#[test]
fn every_error_of_the_provider_is_in_the_page() {
    let sources = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/identity/src"));
    let listed = section("## The identity provider");
    let mut wanted = BTreeSet::new();
    for makes in ["OAuthError::bad(", "AuthorizationError::new("] {
        for source in &sources {
            let calls = source.split(makes).skip(1);
            let literals = calls.filter_map(|call| call.trim_start().strip_prefix('"'));
            wanted.extend(literals.filter_map(|rest| rest.split('"').next()));
        }
    }
    // Those of the pages, which stand beside their texts.
    let pages = include_str!("../../crates/identity/src/pages/mod.rs");
    let (_, alerts) = pages.split_once("fn alert(").expect("the function");
    let (alerts, _) = alerts.split_once("fn code(").expect("the next one");
    wanted.extend(alerts.split('"').skip(1).step_by(2));
    let missing: Vec<_> = wanted
        .iter()
        .filter(|code| !listed.contains(**code))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/troubleshooting.md lacks {missing:?}"
    );
    let is_used = |code: &String| {
        let literal = format!("\"{code}\"");
        sources.iter().any(|source| source.contains(&literal))
    };
    let superfluous: Vec<_> = listed.iter().filter(|code| !is_used(code)).collect();
    assert!(
        superfluous.is_empty(),
        "docs/troubleshooting.md has {superfluous:?}"
    );
}

#[test]
fn every_numbered_error_of_the_admin_api_is_in_the_page() {
    let source = include_str!("../../crates/admin/src/error.rs");
    let names = source.split('"').skip(1).step_by(2);
    let wanted: BTreeSet<_> = names
        .filter(|name| {
            let words = [
                " violation",
                "invalid ",
                "not found",
                " unresolved",
                " unsupported",
            ];
            words.iter().any(|word| name.contains(word)) && name.len() < 30
        })
        .map(|name| name.replace("{field}", "…"))
        .filter(|name| !name.contains(['{', '`', ':']))
        .collect();
    let mut listed = section("## Admin API");
    assert!(wanted.len() > 8, "{wanted:?}");
    for name in &wanted {
        assert!(listed.remove(name), "docs/troubleshooting.md lacks {name}");
    }
    assert_eq!(listed, BTreeSet::new(), "of the page alone");
}

/// The codes in the first cells below a heading, up to the next of its level.
fn section(heading: &str) -> BTreeSet<String> {
    let (_, rest) = PAGE
        .split_once(&format!("\n{heading}\n"))
        .expect("the heading");
    let rows = rest
        .lines()
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    let codes = cells.flat_map(|cell| cell.split("`, `"));
    codes
        .map(|code| code.trim_end_matches('`').to_owned())
        .collect()
}

/// The literals behind `arrow` in lines that begin with `start`.
fn literals_after(source: &str, start: &str, arrow: &str) -> BTreeSet<String> {
    let lines = source
        .lines()
        .filter(|line| line.trim_start().starts_with(start));
    let literals = lines.filter_map(|line| line.split_once(arrow)?.1.split('"').next());
    literals.map(str::to_owned).collect()
}

/// The texts of the sources below `directory`, without those of tests.
fn sources(directory: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    let mut left: Vec<PathBuf> = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        if path.is_dir() && !path.ends_with("tests") {
            let entries = std::fs::read_dir(&path).expect("a directory");
            left.extend(entries.map(|entry| entry.expect("an entry").path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            texts.push(std::fs::read_to_string(&path).expect("a source"));
        }
    }
    texts
}
