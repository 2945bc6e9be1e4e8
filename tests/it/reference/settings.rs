//! The settings of the main file: the table of the page on configuration has all
//! that the program knows, and no other.
//!
//! The program is asked: it names the keys of a section when it refuses an unknown
//! one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{names, page};
use crate::support::{Door, Setup};

/// How the page calls what is inside of a realm.
const REALM: &str = "….";
/// Sections that the page says to be as others.
const ALIKE: &[&str] = &["admin.tls."];

/// A file in which the section at `path` has a key that nobody knows.
fn probe(path: &[String]) -> Value {
    let inner = json!({"unheard-of": 1});
    path.iter()
        .rev()
        .fold(inner, |value, key| json!({key: value}))
}

/// The keys of the section at `path`; `None`: it is no section.
fn keys(door: &Door, path: &[String]) -> Option<Vec<String>> {
    expected(door, &probe(path))
}

/// The keys that the program names where a file has one that it does not know.
pub(super) fn expected(door: &Door, file: &Value) -> Option<Vec<String>> {
    door.write("probe.yaml", &file.to_string());
    let output = door.run(&["check", "-c", "probe.yaml", "--format", "json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = answer["findings"].as_array()?;
    let mut messages = findings.iter().filter_map(|one| one["message"].as_str());
    let message = messages.find(|text| text.contains("unknown field `unheard-of`"))?;
    let (_, expected) = message.split_once("expected ")?;
    let keys = expected.split('`').skip(1).step_by(2);
    Some(keys.map(str::to_owned).collect())
}

/// Every key of the program: its path, and whether it is a section.
fn known() -> BTreeMap<String, bool> {
    let door = Setup::new().lay_out();
    let mut known = BTreeMap::new();
    let mut left: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(path) = left.pop() {
        let keys = keys(&door, &path);
        if !path.is_empty() {
            let shown = path.join(".").replacen("identity.realms./", REALM, 1);
            let shown = shown.replacen("…..", REALM, 1);
            known.insert(shown, keys.is_some());
        }
        for key in keys.into_iter().flatten() {
            let mut below = path.clone();
            let is_map = key == "realms";
            below.push(key);
            if is_map {
                known.insert(below.join("."), true);
                below.push("/".to_owned());
            }
            left.push(below);
        }
    }
    known.remove(REALM);
    known
}

/// The rows of the page by the whole names of the settings.
fn rows(page: &str) -> BTreeMap<String, String> {
    let (table, _) = page.split_once("\n**Tokens.**").expect("the table's end");
    let mut rows = BTreeMap::new();
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let mut last = String::new();
        for (index, name) in names(row).into_iter().enumerate() {
            let parent = last.rsplit_once('.').map_or("", |(parent, _)| parent);
            let is_whole = index == 0 || name.starts_with(REALM);
            let shares = !is_whole && !name.starts_with(parent.split('.').next().unwrap_or("\n"));
            let whole = match name.strip_prefix('.') {
                Some(name) => format!("{parent}.{name}"),
                None if shares => format!("{parent}.{name}"),
                None => name.to_owned(),
            };
            rows.insert(whole.clone(), row.to_owned());
            last = whole;
        }
    }
    rows
}

/// Whether `word` stands in `text` as a whole.
pub(super) fn names_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !is_part(c)).any(|part| part == word)
}

/// Whether the row of a section above names a setting, or leads to a page that does.
fn is_told_above(name: &str, rows: &BTreeMap<String, String>) -> bool {
    let (mut above, last) = name.rsplit_once('.').unwrap_or(("", name));
    loop {
        if let Some(row) = rows.get(above) {
            let links = row.split("](").skip(1);
            let pages = links.filter_map(|link| link.split([')', '#']).next());
            return names_word(row, last) || pages.map(page).any(|page| names_word(&page, last));
        }
        match above.rsplit_once('.') {
            Some((shorter, _)) => above = shorter,
            None => return false,
        }
    }
}

#[test]
fn every_setting_of_the_main_file_is_in_the_page_and_no_other() {
    let known = known();
    assert!(known.len() > 200, "{}", known.len());
    let rows = rows(&page("configuration.md"));
    let superfluous: Vec<_> = rows
        .keys()
        .filter(|name| !known.contains_key(*name))
        .collect();
    let is_missing = |name: &&String, is_section: bool| {
        let below = format!("{name}.");
        let has_children = is_section && rows.keys().any(|row| row.starts_with(&below));
        let is_alike = ALIKE.iter().any(|section| name.starts_with(section));
        !rows.contains_key(*name) && !has_children && !is_alike && !is_told_above(name, &rows)
    };
    let missing: BTreeSet<_> = known
        .iter()
        .filter(|(name, is_section)| is_missing(name, **is_section))
        .map(|(name, _)| name)
        .collect();
    assert!(
        superfluous.is_empty() && missing.is_empty(),
        "docs/configuration.md lacks {missing:?} and has {superfluous:?}"
    );
}

#[test]
fn names_that_share_a_row_are_told_apart() {
    let page =
        "| `a.b.c`, `.d`, `e` | x |\n| `a.f`, `a.g` | y |\n| `….s.t`, `u` | z |\n\n**Tokens.**";
    let rows = rows(page);
    let names: Vec<_> = rows.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["a.b.c", "a.b.d", "a.b.e", "a.f", "a.g", "….s.t", "….s.u"]
    );
}
