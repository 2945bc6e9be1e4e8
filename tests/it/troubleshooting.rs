//! The page on troubleshooting has every code, and no other: it is compared with
//! `doorward explain --refusals` and with the sources of the identity provider.

use std::collections::{BTreeMap, BTreeSet};
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

/// What is between the first `from` of a source and the next `to`.
fn part<'a>(source: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = source.split_once(from).expect(from);
    rest.split_once(to).expect(to).0
}

/// The literals of a source that look like codes.
fn codes(source: &str) -> BTreeSet<String> {
    let literals = source.split('"').skip(1).step_by(2);
    let is_code = |text: &&str| {
        let mut bytes = text.bytes();
        !text.is_empty() && bytes.all(|b| b == b'_' || b.is_ascii_lowercase())
    };
    literals.filter(is_code).map(str::to_owned).collect()
}

fn compare(wanted: &BTreeSet<String>, listed: &BTreeSet<String>) {
    let missing: Vec<_> = wanted.difference(listed).collect();
    let superfluous: Vec<_> = listed.difference(wanted).collect();
    assert!(
        missing.is_empty() && superfluous.is_empty(),
        "docs/troubleshooting.md lacks {missing:?} and has {superfluous:?}"
    );
}

/// Whether a text is an error code of the token broker: those begin with its area.
pub(crate) fn is_broker_code(text: &&str) -> bool {
    let areas = [
        "keymanagement.",
        "messaging.",
        "oauth.",
        "policies.",
        "protocol.",
        "steps.",
    ];
    areas.iter().any(|area| text.starts_with(area))
}

#[test]
fn every_error_code_of_the_token_broker_is_in_the_page() {
    let source = include_str!("../../crates/plugins/src/token_broker/fault.rs");
    let (source, _) = source.split_once("mod tests").unwrap_or((source, ""));
    let literals = source.split('"').skip(1).step_by(2);
    let wanted: BTreeSet<_> = literals.filter(is_broker_code).map(str::to_owned).collect();
    assert!(wanted.len() > 20, "{wanted:?}");
    let (_, rows) = PAGE
        .split_once("\n### Error codes of the broker's answers\n")
        .expect("it");
    let (rows, _) = rows.split_once("\n## ").expect("the next one");
    let rows = rows.lines().filter_map(|row| row.strip_prefix("| `"));
    let cells: Vec<_> = rows.filter_map(|row| row.split_once(" | ")).collect();
    let listed = cells.iter().flat_map(|(cell, _)| cell.split("`, `"));
    let listed = listed.map(|code| code.trim_end_matches('`').to_owned());
    compare(&wanted, &listed.collect());
    // Each leads to a code that the program knows.
    let known = refusals_of_the_program().into_iter();
    let known = known.filter(|(plugin, ..)| plugin == "token-broker");
    let known: BTreeSet<_> = known.map(|(_, code, _)| code).collect();
    let led_to = cells
        .iter()
        .map(|(_, code)| code.trim_matches([' ', '|', '`']).to_owned());
    let led_to: BTreeSet<_> = led_to.collect();
    let strays: Vec<_> = led_to.difference(&known).collect();
    assert!(strays.is_empty(), "the program does not know {strays:?}");
    // And what a fault is called in logs is no other code.
    let labels = source.split("Self::new(").skip(1);
    let labels = labels.filter_map(|call| call.split('"').nth(1).map(str::to_owned));
    let labels: BTreeSet<_> = labels.collect();
    let strays: Vec<_> = labels.difference(&known).collect();
    assert!(strays.is_empty(), "the program does not list {strays:?}");
}

#[test]
fn every_code_of_a_failed_federated_sign_in_is_in_the_page() {
    let source = include_str!("../../crates/identity/src/federation/refusal.rs");
    let mut wanted = codes(part(
        source,
        "What logs and metrics call it.",
        "What the user is shown",
    ));
    wanted.extend(codes(part(source, "impl AccountError", "\n}")));
    // What the provider has said, and not what it is called.
    wanted.remove("access_denied");
    assert!(wanted.len() > 20, "{wanted:?}");
    compare(&wanted, &section("## Sign-in through another provider"));
}

#[test]
fn every_reason_of_a_closed_connection_is_in_the_page() {
    let listeners = include_str!("../../crates/net/src/telemetry/listeners.rs");
    let mut wanted = codes(part(listeners, "pub const ALL", "];"));
    let aborts = include_str!("../../crates/net/src/telemetry/client_aborts.rs");
    wanted.extend(codes(part(aborts, "pub const ALL", "];")));
    let exposition = include_str!("../../crates/net/src/telemetry/exposition.rs");
    let refused = part(exposition, "for (reason, n) in [", "]");
    wanted.extend(codes(refused));
    assert_eq!(wanted.len(), 15, "{wanted:?}");
    compare(&wanted, &section("## Connections"));
}

#[test]
fn every_number_of_json_rpc_is_in_the_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wanted = BTreeSet::new();
    for source in sources(&root.join("crates/plugins/src/mcp")) {
        let constants = source.split(": i64 = -").skip(1);
        let numbers = constants.filter_map(|rest| rest.split(';').next());
        wanted.extend(numbers.map(|number| format!("-{number}")));
    }
    compare(&wanted, &section("### Numbers of JSON-RPC"));
}

#[test]
fn every_status_of_the_endpoints_below_json_is_in_the_page() {
    let description = include_str!("../../docs/openapi/provider.json");
    let description: serde_json::Value = serde_json::from_str(description).expect("JSON");
    let paths = description["paths"].as_object().expect("paths").iter();
    let paths = paths.filter(|(path, _)| path.starts_with("/json/"));
    let operations = paths.filter_map(|(_, path)| path.as_object()).flatten();
    let answers = operations.filter_map(|(_, operation)| operation["responses"].as_object());
    let mut wanted: BTreeSet<String> = answers.flat_map(|all| all.keys().cloned()).collect();
    assert!(wanted.remove("5XX"), "{wanted:?}");
    wanted.retain(|status| status.starts_with('4'));
    // A plugin in front answers so, and what is no operation, and faults.
    wanted.remove("429");
    wanted.extend(["405", "500", "503"].map(str::to_owned));
    compare(&wanted, &section("## Endpoints below /json"));
}

#[test]
fn every_type_of_an_error_of_scim_is_in_the_page() {
    let mut wanted = BTreeSet::new();
    for source in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/identity/src")) {
        for made in ["ScimError::bad(", "scim_type: Some(", "conflict(Some("] {
            let calls = source.split(made).skip(1);
            let literals = calls.filter_map(|call| call.trim_start().strip_prefix('"'));
            let literals = literals.filter_map(|rest| rest.split('"').next());
            wanted.extend(literals.map(str::to_owned));
        }
    }
    assert!(wanted.len() > 7, "{wanted:?}");
    compare(&wanted, &section("## SCIM"));
}

#[test]
fn every_reason_of_the_audit_log_is_in_the_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wanted = BTreeSet::new();
    for source in [
        include_str!("../../crates/identity/src/manage/error.rs"),
        include_str!("../../crates/identity/src/login.rs"),
        include_str!("../../crates/admin/src/audit_events.rs"),
    ] {
        wanted.extend(codes(part(source, "fn reason(", "\n    }")));
    }
    let source = include_str!("../../crates/identity/src/audit.rs");
    wanted.extend(codes(part(source, "fn reason_of(", "\n}")));
    for directory in ["crates/identity/src", "crates/plugins/src/token_broker"] {
        for source in sources(&root.join(directory)) {
            for made in ["because(\"", ".failed(\"", "super::refused(call, "] {
                let calls = source.split(made).skip(1);
                let calls = calls.filter_map(|call| call.split(");").next());
                wanted.extend(calls.filter_map(|call| {
                    let literal = call.rsplit('"').nth(1);
                    literal.filter(|text| !text.is_empty()).map(str::to_owned)
                }));
            }
        }
    }
    assert!(wanted.len() > 20, "{wanted:?}");
    compare(&wanted, &section("## Reasons in the audit log"));
}

/// The number of a status by its name in sources, such as `NOT_FOUND`.
fn number(name: &str) -> String {
    let all = (400..600).filter_map(|n| reqwest::StatusCode::from_u16(n).ok());
    let reason = name.replace('_', " ");
    let mut all = all.filter(|status| {
        let known = status.canonical_reason().unwrap_or_default();
        known.eq_ignore_ascii_case(&reason)
    });
    all.next().expect(name).as_u16().to_string()
}

#[test]
fn every_status_of_the_admin_api_without_a_number_is_in_the_page() {
    let source = include_str!("../../crates/admin/src/error.rs");
    let answers = part(source, "pub(super) fn into_response(", "fn plain(");
    let statuses = answers.split("StatusCode::").skip(1);
    let names = statuses.filter_map(|rest| rest.split([')', ',']).next());
    let mut wanted: BTreeSet<_> = names.map(number).collect();
    for (answer, status) in [("reply::unavailable(", "503"), ("unexpected()", "500")] {
        assert!(answers.contains(answer), "{answer}");
        wanted.insert(status.to_owned());
    }
    let (_, rows) = PAGE
        .split_once("\n| status without a code |")
        .expect("the table");
    let rows = rows.lines().skip(2).take_while(|row| row.starts_with('|'));
    let listed = rows.filter_map(|row| row.split(" | ").next());
    let listed = listed.map(|cell| cell.trim_matches(['|', ' ']).to_owned());
    compare(&wanted, &listed.collect());
}

/// What stands behind the first `what` of a source, up to where a name ends.
fn name_after<'a>(source: &'a str, from: &str, what: &str) -> &'a str {
    let (_, rest) = source.split_once(from).expect(from);
    let (_, rest) = rest.split_once(what).expect(what);
    let is_name = |c: char| c == '_' || c.is_alphanumeric();
    rest.split(|c| !is_name(c)).next().unwrap_or_default()
}

/// The kinds that an enumeration of a source has.
fn variants(source: &str, name: &str) -> Vec<String> {
    let lines = part(source, &format!("enum {name} {{\n"), "\n}").lines();
    let lines = lines.filter(|line| !line.trim_start().starts_with("//"));
    let names = lines.filter_map(|line| line.trim().split(['(', ',']).next());
    names.map(|name| format!("Self::{name}")).collect()
}

#[test]
fn every_page_of_an_error_of_the_console_is_in_the_page() {
    let source = include_str!("../../crates/console/src/error.rs");
    let texts = include_str!("../../crates/console/src/texts.rs");
    let (statuses, pages) = (
        part(source, "fn status(", "\n    }\n"),
        part(source, "fn page(", "\n    }\n"),
    );
    let sign_in = part(source, "impl SignInError", "\n    }\n");
    let text = |name: &str| part(texts, &format!("\n    {name}: \""), "\"").to_owned();
    let mut wanted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut want = |text: String, status: String| {
        wanted.entry(text).or_default().insert(status);
    };
    for kind in variants(source, "PageError") {
        let status = || number(name_after(statuses, &kind, "StatusCode::"));
        match &*kind {
            // Those of the Admin API.
            "Self::Api" => {}
            "Self::Foreign" => {
                let access = include_str!("../../crates/admin/src/access.rs");
                let messages = access.split("ApiError::Forbidden(\"").skip(1);
                for message in messages.filter_map(|rest| rest.split('"').next()) {
                    want(message.to_owned(), status());
                }
            }
            "Self::SignIn" => {
                for kind in variants(source, "SignInError") {
                    want(text(name_after(sign_in, &kind, "texts.")), status());
                }
            }
            kind => want(text(name_after(pages, kind, "texts.")), status()),
        }
    }
    assert!(wanted.len() > 20, "{wanted:?}");
    let wanted = wanted.into_iter().map(|(text, statuses)| {
        let statuses: Vec<_> = statuses.into_iter().collect();
        format!("{text} {}", statuses.join(", "))
    });
    let (_, rows) = PAGE.split_once("\n## Console\n").expect("the heading");
    let rows = rows.lines().take_while(|line| !line.starts_with("## "));
    let rows = rows.filter_map(|line| line.strip_prefix("| `"));
    let listed = rows.filter_map(|row| {
        let mut cells = row.split(" | ");
        let text = cells.next()?.trim_end_matches('`');
        Some(format!("{text} {}", cells.next()?))
    });
    compare(&wanted.collect(), &listed.collect());
    let title = text("error");
    assert!(PAGE.contains(&format!("title `{title}`")), "{title}");
}

#[test]
fn every_code_of_the_page_has_its_cause_and_its_remedy() {
    let mut columns = 0;
    let mut rows = 0;
    let mut wanting = Vec::new();
    for line in PAGE.lines() {
        // Bars inside of code are no ends of cells.
        let mut is_code = false;
        let ends = |c: char| {
            is_code ^= c == '`';
            c == '|' && !is_code
        };
        let cells: Vec<_> = line.trim().split(ends).map(str::trim).collect();
        if !line.starts_with("| ") {
            columns = if line.starts_with("|--") { columns } else { 0 };
        } else if columns == 0 {
            let named = |name: &str| cells.contains(&name);
            columns = if named("cause") && named("remedy") {
                cells.len()
            } else {
                usize::MAX
            };
        } else if columns != usize::MAX {
            rows += 1;
            let filled = &cells[1..cells.len() - 1];
            if cells.len() != columns || filled.iter().any(|cell| cell.is_empty()) {
                wanting.push(line);
            }
        }
    }
    assert!(rows > 300, "{rows}");
    assert!(wanting.is_empty(), "{wanting:#?}");
}

/// The codes in the first cells below a heading, up to the next of its level.
fn section(heading: &str) -> BTreeSet<String> {
    let (_, rest) = PAGE
        .split_once(&format!("\n{heading}\n"))
        .expect("the heading");
    let level = &heading[..=heading.find(' ').unwrap_or_default()];
    let rows = rest
        .lines()
        .take_while(|line| !line.starts_with("## ") && !line.starts_with(level))
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
