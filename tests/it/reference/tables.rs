//! Tables that are written by hand, against what the program knows.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use doorward_core::model::audit::Kind;
use serde_json::Value;

use super::{file, names, page};
use crate::support::{Door, Setup};

/// The lines below a heading of any level, up to the next one.
pub(super) fn section<'a>(page: &'a str, heading: &str) -> Vec<&'a str> {
    let level = heading.split(' ').next().unwrap_or_default();
    let is_next = |line: &str| {
        let marks = line.len() - line.trim_start_matches('#').len();
        (1..=level.len()).contains(&marks)
    };
    let lines = page.lines().skip_while(|line| *line != heading).skip(1);
    let lines: Vec<_> = lines.take_while(|line| !is_next(line)).collect();
    assert!(!lines.is_empty(), "there is no {heading}");
    lines
}

/// What is in one and not in the other, as a test tells it.
pub(super) fn compare(page: &str, known: &BTreeSet<String>, listed: &BTreeSet<String>) {
    let missing: Vec<_> = known.difference(listed).collect();
    let superfluous: Vec<_> = listed.difference(known).collect();
    assert!(
        missing.is_empty() && superfluous.is_empty(),
        "docs/{page} lacks {missing:?} and has {superfluous:?}"
    );
}

/// The names of fields of a configuration, those inside of others too, with their
/// schemas.
fn flat(fields: &Value, prefix: &str, found: &mut BTreeMap<String, Value>) {
    for field in fields.as_array().into_iter().flatten() {
        for (name, schema) in field.as_object().into_iter().flatten() {
            let name = format!("{prefix}{name}");
            flat(&schema["fields"], &format!("{name}."), found);
            flat(&schema["elements"]["fields"], &format!("{name}."), found);
            flat(&schema["shorthand_fields"], prefix, found);
            found.insert(name, schema.clone());
        }
    }
}

/// The fields of a plugin's configuration.
pub(super) async fn fields(door: &Door, plugin: &str) -> BTreeMap<String, Value> {
    let answer = door.admin_get(&format!("/schemas/plugins/{plugin}")).await;
    let schema = answer.expect(200).json();
    let config = schema["fields"].as_array().expect("fields").iter();
    let config = config.filter_map(|field| field.get("config")).next();
    let mut found = BTreeMap::new();
    flat(&config.expect("a config")["fields"], "", &mut found);
    found
}

/// The rows of tables whose head begins with this cell.
pub(super) fn rows_below<'a>(lines: &[&'a str], head: &str) -> Vec<&'a str> {
    let head = format!("{head} |");
    let mut is_inside = false;
    let mut rows = Vec::new();
    for line in lines {
        match line.strip_prefix("| ") {
            None if line.starts_with("|--") => {}
            None => is_inside = false,
            Some(row) if row.starts_with(&head) => is_inside = true,
            Some(_) if is_inside => rows.push(*line),
            Some(_) => {}
        }
    }
    rows
}

/// Whether the cell of a default says what the schema says, where it is a literal.
pub(super) fn is_default(cell: &str, default: &Value) -> bool {
    let literal = cell
        .strip_prefix('`')
        .and_then(|rest| rest.strip_suffix('`'));
    let literal = literal.unwrap_or(cell);
    if literal.contains('`') {
        return true;
    }
    match default {
        Value::String(text) => literal == text || literal.contains(' ') || literal == "empty",
        Value::Bool(flag) => literal.parse() == Ok(*flag),
        Value::Number(_) => {
            let digits = literal.replace([',', '_'], "");
            digits.parse::<f64>().is_err() || digits.parse().ok() == default.as_f64()
        }
        _ => true,
    }
}

#[tokio::test]
async fn fields_of_the_page_on_everyday_plugins_are_those_of_the_schemas() {
    let door = Setup::new().start().await;
    let page = page("everyday-plugins.md");
    let mut compared = 0;
    let mut wrong = Vec::new();
    for heading in page.lines().filter(|line| line.starts_with('#')) {
        let (_, title) = heading.split_once(' ').expect("a heading");
        let mut known = BTreeMap::new();
        for plugin in title.split(" and ").filter(|name| !name.contains(' ')) {
            let path = format!("/schemas/plugins/{plugin}");
            if door.admin_get(&path).await.status == 200 {
                known.extend(fields(&door, plugin).await);
            }
        }
        if known.is_empty() {
            continue;
        }
        for row in rows_below(&section(&page, heading), "field") {
            let cells: Vec<_> = row.split(" | ").collect();
            // Families of fields are named by what they begin or end with.
            let is_whole = |name: &&str| !name.starts_with(['.', '*']) && !name.contains('…');
            let listed: Vec<_> = names(row).into_iter().filter(is_whole).collect();
            for field in &listed {
                let dotted = format!(".{field}");
                let mut all = known.iter();
                let found = all.find(|(name, _)| name == field || name.ends_with(&dotted));
                let Some((_, schema)) = found else {
                    wrong.push(format!("{heading}: there is no field {field}"));
                    continue;
                };
                compared += 1;
                let default = &schema["default"];
                if listed.len() == 1 && cells.len() > 2 && !is_default(cells[1], default) {
                    wrong.push(format!("{heading}: {field}: {default} is {}", cells[1]));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "docs/everyday-plugins.md: {wrong:#?}");
    assert!(compared > 150, "{compared}");
}

#[tokio::test]
async fn priorities_of_the_page_are_those_of_the_program() {
    let door = Setup::new().start().await;
    let node = door.admin_get("/").await.expect(200).json();
    let known = node["plugins"]["available_on_server"].as_object();
    let known = known.expect("plugins");
    let pages = [page("everyday-plugins.md"), page("plugins.md")];
    let mut listed = BTreeSet::new();
    for line in pages[0].lines().filter(|line| line.starts_with("| [`")) {
        let name = names(line)[0];
        let priority = line.split(" | ").nth(1).expect("a priority").trim();
        assert_eq!(known[name]["priority"].to_string(), priority, "{name}");
        listed.insert(name.to_owned());
    }
    // Of the others the page on plugins tells in sentences.
    for (name, facts) in known.iter().filter(|(name, _)| !listed.contains(*name)) {
        let told = format!("`{name}` (priority {})", facts["priority"]);
        let is_told = pages[1].contains(&told);
        assert!(is_told, "docs/plugins.md lacks {told}");
    }
}

#[test]
fn kinds_of_the_audit_log_are_in_the_page_and_no_other() {
    let page = page("audit.md");
    let listed = section(&page, "## Kinds").into_iter().flat_map(names);
    let known = Kind::ALL.iter().map(|kind| kind.as_str().to_owned());
    compare(
        "audit.md",
        &known.collect(),
        &listed.map(str::to_owned).collect(),
    );
}

#[tokio::test]
async fn endpoints_of_the_provider_are_in_the_page_and_no_other() {
    let door = Setup::new().start().await;
    let description = door.admin_get("/openapi/provider.json").await;
    let description = description.expect(200).json();
    let page = page("endpoints.md");
    let (table, _) = page
        .split_once("\n\nClients authenticate")
        .expect("the table");
    let paths = description["paths"].as_object().expect("paths");
    let shape = |path: &str| {
        let parts = path.split('/').map(|part| {
            let any = part.starts_with('{') || part == "*";
            if any { "{}" } else { part }
        });
        parts.collect::<Vec<_>>().join("/")
    };
    let known: BTreeSet<_> = paths.keys().map(|path| shape(path)).collect();
    let mut listed = BTreeSet::new();
    let mut last = String::new();
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        for name in names(row) {
            let path = name.split([' ', '?']).find(|part| part.contains('/'));
            let Some(path) = path else { continue };
            last = match path.strip_prefix('…') {
                Some(ending) => format!("{last}{ending}"),
                None => path.to_owned(),
            };
            listed.insert(shape(&last));
        }
    }
    // One of a list stands for its items.
    let is_told = |path: &String| {
        let list = path.strip_suffix("/{}").unwrap_or(path);
        listed.contains(path) || listed.contains(list)
    };
    let missing: Vec<_> = known.iter().filter(|path| !is_told(path)).collect();
    let superfluous: Vec<_> = listed.difference(&known).collect();
    assert!(
        missing.is_empty() && superfluous.is_empty(),
        "docs/endpoints.md lacks {missing:?} and has {superfluous:?}"
    );
}

/// What `--help` prints.
pub(super) fn help(command: &[&str]) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_doorward"));
    let output = program.args(command).arg("--help").output();
    String::from_utf8(output.expect("it starts").stdout).expect("it prints UTF-8")
}

#[test]
fn commands_and_flags_of_the_page_are_those_of_the_program() {
    let page = page("command-line.md");
    let lines = page
        .lines()
        .filter_map(|line| line.strip_prefix("doorward "));
    let listed: BTreeSet<_> = lines
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    let help_text = help(&[]);
    let lines = help_text.lines().skip_while(|line| *line != "Commands:");
    let lines = lines.skip(1).take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  "));
    let names = names.filter(|line| !line.starts_with(' '));
    let names = names.filter_map(|line| line.split(' ').next());
    let known = names.filter(|name| *name != "help").map(str::to_owned);
    compare("command-line.md", &known.collect(), &listed);

    let rows = section(&page, "## proxy");
    let rows = rows.into_iter().filter(|row| row.starts_with("| `--"));
    let listed = rows.flat_map(names_of_row).collect();
    let flags = help(&["proxy"]);
    let flags = flags.lines().filter_map(|line| line.split_once("--"));
    let flags = flags.filter(|(before, _)| before.trim_end_matches(", ").len() <= 8);
    let flags = flags.filter_map(|(_, flag)| flag.split([' ', ',']).next());
    let general = ["config", "help", "version"];
    let known = flags.filter(|flag| !general.contains(flag));
    let known = known.map(|flag| format!("--{flag}")).collect();
    compare("command-line.md", &known, &listed);
}

fn names_of_row(row: &str) -> Vec<String> {
    names(row).into_iter().map(str::to_owned).collect()
}

#[test]
fn types_of_route_files_that_are_served_are_in_the_page() {
    let page = page("route-files.md");
    let source = std::fs::read_to_string(file("crates/gateway/src/route_files/objects.rs"));
    let source = source.expect("a source");
    for list in ["const COMPOSITES", "const SWITCH"] {
        let (_, rest) = source.split_once(list).expect("the list");
        let (list, _) = rest
            .split_once(';')
            .filter(|(list, _)| list.contains('"'))
            .unwrap_or_else(|| {
                let (_, rest) = rest.split_once(';').expect("the length");
                rest.split_once(';').expect("the end")
            });
        let types: Vec<_> = list.split('"').skip(1).step_by(2).collect();
        assert!(!types.is_empty(), "{list}");
        for name in types {
            assert!(
                page.contains(&format!("`{name}`")),
                "docs/route-files.md lacks {name}"
            );
        }
    }
}
