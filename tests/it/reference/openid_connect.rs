//! What the page on `openid-connect` says of each value and field, against the schema of
//! the plugin and the codes of the program.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use super::tables::{compare, fields, is_default, rows_below, section};
use super::{names, page, part};
use crate::support::Setup;

/// The values that a field may have.
fn choices(schema: &Value) -> BTreeSet<String> {
    let place = if schema["elements"].is_object() {
        &schema["elements"]
    } else {
        schema
    };
    let choices = place["one_of"].as_array().expect("choices").iter();
    choices
        .map(|choice| choice.as_str().expect("a text").to_owned())
        .collect()
}

/// Whether a name has the form of a field, and is none that begins or ends with more.
fn is_field(name: &str) -> bool {
    let mut bytes = name.bytes();
    let is_word = bytes.all(|b| b == b'_' || b.is_ascii_lowercase() || b.is_ascii_digit());
    is_word && !name.starts_with('_')
}

/// The value and its field of a row such as "`field`: `value` | …".
fn value_told_by(row: &str) -> Option<(&str, &str)> {
    let (field, values) = row.strip_prefix("| `")?.split_once("`: `")?;
    is_field(field).then(|| (field, values.split('`').next().unwrap_or_default()))
}

/// The fields that the first cell of a row names: alone, with their families ("`a_…` with
/// `b`, `c`"), or in front of a value.
fn told_by(row: &str) -> Vec<String> {
    if let Some((field, value)) = value_told_by(row) {
        let fields = if field == "redis" { value } else { field };
        return vec![fields.to_owned()];
    }
    let mut told = Vec::new();
    let cell = row.split(" | ").next().unwrap_or_default();
    for part in cell.split(';') {
        let (families, rest) = part.split_once(" with ").unwrap_or(("", part));
        let spans = |text: &str| -> Vec<String> {
            let spans = text.split('`').skip(1).step_by(2);
            spans.map(str::to_owned).collect()
        };
        let endings = spans(rest).into_iter().filter(|name| is_field(name));
        let families = spans(families);
        for ending in endings {
            match &families[..] {
                [] => told.push(ending),
                [family] => told.push(family.replace('…', &ending)),
                // Not each of several families has each ending.
                _ => {}
            }
        }
    }
    told
}

#[tokio::test]
async fn values_that_the_page_on_openid_connect_explains_are_those_of_the_schema() {
    let door = Setup::new().start().await;
    let known = fields(&door, "openid-connect").await;
    let page = page("openid-connect.md");
    let lines: Vec<_> = page.lines().collect();
    for (head, field) in [
        ("method", "auth_methods"),
        ("`response_mode`", "response_mode"),
        ("`login_action`", "login_action"),
        ("`session_storage`", "session_storage"),
        (
            "`proof_of_possession_dpop`, `proof_of_possession_mtls`",
            "proof_of_possession_dpop",
        ),
    ] {
        let rows = rows_below(&lines, head);
        let listed = rows.iter().flat_map(|row| names(row));
        let listed: BTreeSet<_> = listed.map(str::to_owned).collect();
        compare(
            &format!("openid-connect.md, {head}"),
            &choices(&known[field]),
            &listed,
        );
    }
    let both = ["proof_of_possession_dpop", "proof_of_possession_mtls"];
    assert_eq!(choices(&known[both[0]]), choices(&known[both[1]]));
}

#[test]
fn methods_of_the_page_stand_in_the_order_in_which_they_are_tried() {
    let source = include_str!("../../../crates/openid-connect/src/config/methods.rs");
    let words: BTreeMap<_, _> = part(source, "enum Method {", "\n    }")
        .lines()
        .filter_map(|line| line.trim().trim_end_matches(',').split_once(" = "))
        .map(|(name, word)| (name, word.trim_matches('"')))
        .collect();
    let order = part(source, "ALL: [Self; ", "];").split("Self::").skip(1);
    let order: Vec<_> = order
        .map(|name| words[name.trim().trim_end_matches(',')])
        .collect();
    let page = page("openid-connect.md");
    let lines: Vec<_> = page.lines().collect();
    let listed = rows_below(&lines, "method").into_iter().flat_map(names);
    assert_eq!(listed.collect::<Vec<_>>(), order);
}

#[tokio::test]
async fn fields_of_the_page_on_openid_connect_are_those_of_the_schema() {
    let door = Setup::new().start().await;
    let known = fields(&door, "openid-connect").await;
    let page = page("openid-connect.md");
    let lines: Vec<_> = page.lines().collect();
    let mut wrong = Vec::new();
    let mut compared = 0;
    let exists =
        |name: &str| known.contains_key(name) || known.contains_key(&format!("redis.{name}"));
    for head in ["setting", "field", "field or value"] {
        for row in rows_below(&lines, head) {
            let listed = names(row);
            for field in told_by(row).iter().filter(|name| !exists(name)) {
                wrong.push(format!("there is no field {field}: {row}"));
            }
            if let Some((field, value)) = value_told_by(row).filter(|(field, _)| *field != "redis")
            {
                // A list without choices of its own has those of `auth_methods`.
                let has_own = known[field]["elements"]["one_of"].is_array();
                let schema = if has_own {
                    &known[field]
                } else {
                    &known["auth_methods"]
                };
                if !choices(schema).contains(value) {
                    wrong.push(format!("{field} is never {value}"));
                }
            }
            let cells: Vec<_> = row.split(" | ").collect();
            if let (&[field], 3) = (&listed[..], cells.len()) {
                let default = known.get(field).map(|schema| &schema["default"]);
                compared += usize::from(default.is_some());
                if default.is_some_and(|default| !is_default(cells[1], default)) {
                    wrong.push(format!("{field}: {default:?} is {}", cells[1]));
                }
            }
        }
    }
    for row in rows_below(&lines, "`token_exchange.…`") {
        for name in names(row) {
            let name = name.trim_start_matches("….");
            let is_field = |known: &str| {
                known.starts_with("token_exchange.") && known.ends_with(&format!(".{name}"))
            };
            let is_known = known.keys().any(|known| is_field(known)) || known.contains_key(name);
            if !is_known {
                wrong.push(format!("there is no token_exchange.{name}"));
            }
        }
    }
    for row in rows_below(&lines, "`upstream_…`, `downstream_…`") {
        for name in names(row) {
            let forms = [
                name.to_owned(),
                format!("upstream_{name}"),
                format!("downstream_{name}"),
            ];
            if !forms.iter().any(|name| known.contains_key(name)) {
                wrong.push(format!("there is no upstream_{name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "docs/openid-connect.md: {wrong:#?}");
    assert!(compared > 10, "{compared}");
}

#[tokio::test]
async fn each_field_of_openid_connect_is_told_of_in_its_page() {
    let door = Setup::new().start().await;
    let known = fields(&door, "openid-connect").await;
    let page = page("openid-connect.md");
    let spans: BTreeSet<_> = page.split('`').skip(1).step_by(2).collect();
    // A family is told of by what its fields begin or end with.
    let families = [
        "session_",
        "authorization_cookie_",
        "logout_",
        "redis.",
        "upstream_",
        "downstream_",
        "token_exchange.",
        "_query_args_",
        "_post_args_",
        "_headers_",
        "bearer_token_",
        "cluster_cache_redis.",
    ];
    let is_told = |name: &str| {
        let last = name.rsplit('.').next().unwrap_or(name);
        let in_family = families.iter().any(|family| name.contains(family));
        let mut spans = spans.iter();
        spans.any(|span| *span == name || *span == last || span.ends_with(&format!(".{last}")))
            || in_family
    };
    let missing: Vec<_> = known.keys().filter(|name| !is_told(name)).collect();
    assert!(
        missing.is_empty(),
        "docs/openid-connect.md lacks {missing:?}"
    );
}

#[test]
fn codes_that_the_page_on_openid_connect_names_are_those_of_the_program() {
    let output = Command::new(env!("CARGO_BIN_EXE_doorward"))
        .args(["explain", "--refusals"])
        .output();
    let output = String::from_utf8(output.expect("it starts").stdout).expect("UTF-8");
    let codes: BTreeMap<_, _> = output
        .lines()
        .filter_map(|line| line.strip_prefix("openid-connect"))
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let status = words.next()?;
            Some((words.next()?, status))
        })
        .collect();
    let page = page("openid-connect.md");
    // `401 (`code`)`, `code` (401 …: a code with its status.
    let spans: Vec<_> = page.split('`').collect();
    let mut told = 0;
    let mut wrong = Vec::new();
    for around in spans.windows(3).step_by(2) {
        let [_, span, behind] = around else { continue };
        let before = around[0];
        let status = before
            .strip_suffix(" (")
            .and_then(|text| text.rsplit([' ', ':', '\n']).next())
            .or_else(|| {
                let (status, end) = behind.strip_prefix(" (")?.split_at_checked(3)?;
                end.starts_with([')', ':', ',']).then_some(status)
            })
            .filter(|status| status.len() == 3 && status.bytes().all(|b| b.is_ascii_digit()));
        let Some(status) = status else { continue };
        if !span.bytes().all(|b| b == b'_' || b.is_ascii_lowercase()) {
            continue;
        }
        told += 1;
        match codes.get(span) {
            Some(known) if known.contains(status) => {}
            // Where somebody signs out, whoever asked may come again.
            Some(_) if (*span, status) == ("session_store_unavailable", "503") => {}
            known => wrong.push(format!("`{span}` with {status}; the program: {known:?}")),
        }
    }
    let refusals = section(&page, "## Signing out").join("\n");
    let (_, logouts) = refusals
        .split_once("Refusals are 400 with a code: ")
        .expect("codes");
    let (logouts, _) = logouts.split_once(';').expect("an end");
    for code in logouts.split('`').skip(1).step_by(2) {
        told += 1;
        if codes.get(code).is_none_or(|known| !known.contains("400")) {
            wrong.push(format!("`{code}`; the program: {:?}", codes.get(code)));
        }
    }
    assert!(wrong.is_empty(), "docs/openid-connect.md: {wrong:#?}");
    assert!(told > 20, "{told}");
}
