//! Tables of fields on pages about one plugin or one section of the provider: each
//! name is known to the program, and each that it knows is on the page.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::settings::{expected, names_word};
use super::tables::{fields, is_default, rows_below};
use super::{names, page};
use crate::support::Setup;

/// A name that says what it begins or ends with.
fn is_family(name: &str) -> bool {
    name.starts_with(['.', '*']) || name.contains('…')
}

/// Whether a name is that of a field, or the end of one: tables share beginnings.
fn is_field(name: &str, field: &str) -> bool {
    let before = field.strip_suffix(name);
    before.is_some_and(|before| {
        before.is_empty() || before.ends_with(['.', '_']) || name.starts_with('_')
    })
}

#[tokio::test]
async fn fields_of_the_pages_on_a_plugin_are_those_of_its_schema() {
    let door = Setup::new().start().await;
    let mut wrong = Vec::new();
    let mut compared = 0;
    for (file, plugins, is_whole) in [
        ("mcp.md", &["mcp"][..], true),
        ("openid-connect.md", &["openid-connect"], false),
        (
            "plugins.md",
            &["openid-connect", "throttling", "request-guard"],
            false,
        ),
        ("token-broker.md", &["token-broker"], true),
    ] {
        let page = page(file);
        let mut known = BTreeMap::new();
        for plugin in plugins {
            known.extend(fields(&door, plugin).await);
        }
        let lines: Vec<_> = page.lines().collect();
        let heads = ["field | default", "field | meaning", "setting"];
        for row in heads.map(|head| rows_below(&lines, head)).concat() {
            let cells: Vec<_> = row.split(" | ").collect();
            let listed = names(row).into_iter();
            let listed: Vec<_> = listed.filter(|name| !is_family(name)).collect();
            for name in &listed {
                let mut all = known.iter();
                let exact = known.get_key_value(*name);
                let found = exact.or_else(|| all.find(|(field, _)| is_field(name, field)));
                let Some((_, schema)) = found else {
                    wrong.push(format!("{file}: there is no field {name}"));
                    continue;
                };
                compared += 1;
                let default = &schema["default"];
                if listed.len() == 1 && cells.len() > 2 && !is_default(cells[1], default) {
                    wrong.push(format!("{file}: {name}: {default} is {}", cells[1]));
                }
            }
        }
        // The others leave what is rare to the page of all fields.
        let told = known.keys().filter(|name| is_whole && !name.contains('.'));
        let missing = told.filter(|name| !names_word(&page, name));
        wrong.extend(missing.map(|name| format!("{file} lacks {name}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(compared > 100, "{compared}");
}

/// The keys that the program knows inside of a realm, where `section` has one that
/// it does not.
fn keys_of_realm(section: &Value) -> BTreeSet<String> {
    let door = Setup::new().lay_out();
    let keys = expected(&door, &json!({"identity": {"realms": {"/": section}}}));
    keys.expect("a section").into_iter().collect()
}

#[test]
fn tables_of_the_provider_have_the_keys_that_the_program_knows() {
    let unheard = json!({"unheard-of": 1});
    let linked =
        json!({"name": "a", "issuer": "https://a.example", "client_id": "a", "link": unheard});
    for (file, head, prefix, section) in [
        (
            "federation.md",
            "of a provider",
            "",
            json!({"settings": {"federation": [unheard]}}),
        ),
        (
            "federation.md",
            "of a provider",
            "link.",
            json!({"settings": {"federation": [linked]}}),
        ),
        (
            "federation.md",
            "setting",
            "",
            json!({"settings": {"ldap": unheard}}),
        ),
        ("identity.md", "name", "", json!({"clients": [unheard]})),
    ] {
        let page = page(file);
        let lines: Vec<_> = page.lines().collect();
        let rows = rows_below(&lines, head);
        let listed = rows
            .into_iter()
            .flat_map(names)
            .filter(|name| !is_family(name));
        let listed = listed.filter_map(|name| name.strip_prefix(prefix));
        let listed: BTreeSet<_> = listed
            .filter(|name| !name.contains('.'))
            .map(str::to_owned)
            .collect();
        let known = keys_of_realm(&section);
        let superfluous: Vec<_> = listed.difference(&known).collect();
        let missing: Vec<_> = known
            .iter()
            .filter(|name| !names_word(&page, name))
            .collect();
        assert!(
            superfluous.is_empty() && missing.is_empty(),
            "docs/{file}: {head} {prefix} lacks {missing:?} and has {superfluous:?}"
        );
    }
}
