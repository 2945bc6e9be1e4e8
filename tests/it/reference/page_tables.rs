//! Tables of the pages on accounts, users, the console and the token broker,
//! against what the program knows.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::tables::{compare, rows_below, section};
use super::{names, page, part};
use crate::console::Browser;
use crate::console_sign_in::Office;
use crate::troubleshooting::is_broker_code;

/// The cells of a row.
pub(super) fn cells(row: &str) -> Vec<&str> {
    row.trim_matches([' ', '|']).split(" | ").collect()
}

/// A description that docs/ has, which a test of its own compares with the program.
fn description(name: &str) -> Value {
    let text = page(&format!("openapi/{name}.json"));
    serde_json::from_str(&text).expect("JSON")
}

/// The methods and paths of a description below `prefix`, with `{}` for open parts.
fn operations(description: &Value, prefixes: &[&str]) -> BTreeSet<String> {
    let paths = description["paths"].as_object().expect("paths").iter();
    let paths = paths.filter(|(path, _)| prefixes.iter().any(|prefix| path.starts_with(prefix)));
    let operations = paths.flat_map(|(path, item)| {
        let methods = item.as_object().into_iter().flatten();
        methods.map(|(method, _)| format!("{} {}", method.to_ascii_uppercase(), shape(path)))
    });
    operations.collect()
}

fn shape(path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let parts = path
        .split('/')
        .map(|part| if part.starts_with('{') { "{}" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

#[test]
fn endpoints_of_users_and_groups_in_the_page_are_those_of_the_program() {
    let page = page("users.md");
    let lines: Vec<_> = page.lines().collect();
    let mut listed = BTreeSet::new();
    for row in rows_below(&lines, "`/identity`") {
        let mut methods = Vec::new();
        for name in names(row) {
            match name.split_once(' ') {
                Some((method, path)) if path.starts_with('/') => {
                    methods.push(method);
                    for method in methods.drain(..) {
                        listed.insert(format!("{method} /identity{}", shape(path)));
                    }
                }
                // One of several methods of the path that follows.
                _ if name.bytes().all(|b| b.is_ascii_uppercase()) => methods.push(name),
                _ => {}
            }
        }
    }
    let prefixes = ["/identity/users", "/identity/groups"];
    let mut known = operations(&description("admin"), &prefixes);
    // The page on accounts has these.
    known.retain(|one| !one.contains("/factors") && !one.contains("/identities"));
    let accounts = format!(
        "{}{}",
        super::page("accounts.md"),
        super::page("federation.md")
    );
    let endpoints = super::page("endpoints.md");
    for path in ["/factors", "/identities"] {
        let is_told = accounts.contains(path) || endpoints.contains(path);
        assert!(is_told, "no page tells of {path}");
    }
    compare("users.md", &known, &listed);
    let provider = description("provider");
    let paths = provider["paths"].as_object().expect("paths");
    for row in rows_below(&lines, "prefix") {
        for path in names(row)
            .into_iter()
            .filter(|name| name.starts_with("/v1/"))
        {
            assert!(paths.contains_key(path), "{path}");
        }
    }
}

#[test]
fn scopes_of_users_and_groups_in_the_page_are_settings_with_these_defaults() {
    let page = page("users.md");
    let rows = section(&page, "## Who may do what").join("\n");
    let source = include_str!("../../../crates/identity/src/config.rs");
    for setting in [
        "users_scope",
        "groups_scope",
        "users_write_scope",
        "groups_write_scope",
        "me_write_scope",
    ] {
        assert!(rows.contains(&format!("`{setting}`")), "{setting}");
        assert!(source.contains(&format!("{setting}:")), "{setting}");
    }
    for scope in ["scim:write", "me:write"] {
        assert!(rows.contains(&format!("`{scope}`")), "{scope}");
        assert!(source.contains(&format!("\"{scope}\"")), "{scope}");
    }
}

/// What the page says that a role may do, and the forms that are meant.
const RIGHTS: &[(&str, &str, &[&str])] = &[
    ("operator", "reset throttling", &["/throttling/{}/reset"]),
    (
        "operator",
        "end sessions",
        &[
            "/end/{}/{}",
            "/identity/users/{}/session",
            "/identity/users/{}/end-sessions",
        ],
    ),
    (
        "operator",
        "lift locks",
        &["/end/{}/{}", "/identity/users/{}/unlock"],
    ),
    (
        "operator",
        "withdraw consents",
        &["/identity/users/{}/consent"],
    ),
    (
        "operator",
        "send links for new passwords",
        &["/identity/users/{}/reset"],
    ),
    ("operator", "test connections", &["/identity/probes"]),
    (
        "operator",
        "revoke the tokens of an application",
        &["/broker/applications/{}/revoke"],
    ),
    ("operator", "undo changes", &["/undo/{}"]),
    (
        "owner",
        "certificates, CA certificates",
        &["/apply/certificates", "/apply/ca_certificates"],
    ),
    (
        "owner",
        "the credentials of consumers",
        &["/apply/consumers/{}/key-auth"],
    ),
    (
        "owner",
        "users and groups",
        &[
            "/identity/users/new",
            "/identity/groups/new",
            "/identity/apply",
        ],
    ),
    (
        "owner",
        "clients and realms",
        &[
            "/identity/clients/new",
            "/identity/settings",
            "/identity/new-realm",
            "/identity/change",
        ],
    ),
    (
        "owner",
        "records of the token broker",
        &[
            "/broker-form/{}",
            "/broker-delete/{}/{}",
            "/broker-secret/{}/{}",
            "/broker-apply",
        ],
    ),
    (
        "owner",
        "rotate signing keys",
        &["/identity/keys/rotate", "/identity/keys/apply"],
    ),
];

#[test]
fn rights_of_roles_in_the_page_are_those_of_the_forms() {
    let page = page("console.md");
    let rows = rows_below(&page.lines().collect::<Vec<_>>(), "role");
    let told = |role: &str| {
        let row = rows.iter().find(|row| names(row) == [role]);
        row.unwrap_or_else(|| panic!("there is no row of {role}"))
    };
    let forms: BTreeMap<_, _> = doorward_console::form_paths().into_iter().collect();
    for (role, right, paths) in RIGHTS {
        assert!(
            told(role).contains(right),
            "the row of {role} lacks {right}"
        );
        for path in *paths {
            let needed = forms
                .get(*path)
                .unwrap_or_else(|| panic!("{path} is no form"));
            assert_eq!(*needed, Some(*role), "{path}");
        }
    }
    // Each of the others is of a right that is told.
    let is_told = |path: &str| {
        let start = |path: &str| path.split('/').take(3).collect::<Vec<_>>().join("/");
        let mut paths = RIGHTS.iter().flat_map(|(_, _, paths)| paths.iter());
        paths.any(|known| *known == path || start(known) == start(path))
    };
    for (path, role) in &forms {
        let is_entity = path.starts_with("/preview/") || path.starts_with("/apply/");
        let kinds = ["certificates", "ca_certificates", "consumers/{}/"];
        match role {
            None => assert_eq!(path, "/sign-in"),
            Some("viewer") => assert!(["/sign-out", "/explain"].contains(&&**path), "{path}"),
            // Operators change all entities but these.
            Some(role) if is_entity => {
                let rest = path.splitn(3, '/').nth(2).unwrap_or_default();
                let is_owners = kinds.iter().any(|kind| rest.starts_with(kind));
                assert_eq!(*role == "owner", is_owners, "{path}");
            }
            Some(_) => assert!(is_told(path), "no right of the page is {path}"),
        }
    }
}

#[tokio::test]
async fn pages_of_the_console_that_its_navigation_names_are_in_the_page() {
    let office = Office::open().await;
    let mut owner = office.signed_in("alice").await;
    let shown = owner.get("/console").await.expect(200).body;
    let (_, navigation) = shown.split_once("<nav").expect("a navigation");
    let (navigation, _) = navigation.split_once("</nav>").expect("its end");
    let links = navigation
        .split("</a>")
        .filter_map(|link| link.rsplit('>').next());
    let known: BTreeSet<_> = links
        .map(|label| label.trim().to_lowercase())
        .filter(|label| !label.is_empty())
        .collect();
    let page = page("console.md");
    let rows = rows_below(&page.lines().collect::<Vec<_>>(), "page");
    let listed: BTreeSet<_> = rows
        .into_iter()
        .flat_map(|row| cells(row)[0].split(", "))
        .map(str::to_lowercase)
        // The page of a realm leads there.
        .filter(|name| name != "test connections")
        .collect();
    compare("console.md", &known, &listed);
}

#[tokio::test]
async fn kinds_of_clients_in_the_page_are_those_of_the_wizard() {
    let office = Office::open().await;
    let mut owner = office.signed_in("alice").await;
    let page = page("console.md");
    let rows = rows_below(&page.lines().collect::<Vec<_>>(), "kind");
    let wizard = "/console/identity/clients/new";
    let offer = owner.get(wizard).await.expect(200).body;
    assert_eq!(offer.matches("?kind=").count(), rows.len(), "{offer}");
    for row in rows {
        let cells = cells(row);
        let (before, _) = offer
            .split_once(&format!(">{}<", cells[0]))
            .unwrap_or_else(|| panic!("the wizard has no {}", cells[0]));
        let (_, kind) = before.rsplit_once("?kind=").expect("an address");
        let kind = kind.split(['"', '&']).next().expect("a kind");
        let form = format!("{wizard}?kind={kind}");
        let form = wizard_fields(&mut owner, &form).await;
        let grants = cells[1].split('`').skip(1).step_by(2);
        assert_eq!(form.0, grants.collect::<Vec<_>>(), "{kind}");
        assert_eq!(form.1, cells[2].trim_matches('`'), "{kind}");
        assert_eq!(form.2, cells[4] != "none", "{kind}");
    }
}

/// Grant types and way of authentication that a form of the wizard begins with, and
/// whether it asks for redirect URIs.
async fn wizard_fields(owner: &mut Browser<'_>, address: &str) -> (Vec<String>, String, bool) {
    let form = owner.get(address).await.expect(200).body;
    let field = |name: &str| {
        let (_, rest) = form.split_once(&format!("name=\"f.{name}\""))?;
        rest.split_once('>').map(|(_, rest)| rest)
    };
    let chosen = |rest: &str| {
        let (choices, _) = rest.split_once("</select>").expect("a choice");
        let option = choices
            .split("<option")
            .find(|one| one.contains("selected"));
        let option = option
            .and_then(|one| one.split_once('>'))
            .map(|(_, text)| text);
        let text = option.and_then(|text| text.split('<').next());
        text.expect("a chosen one").trim().to_owned()
    };
    let grants = field("grant_types").and_then(|rest| rest.split('<').next());
    let grants = grants.unwrap_or_default().lines().map(str::trim);
    let grants = grants.filter(|line| !line.is_empty());
    let method = field("token_endpoint_auth_method").map(chosen);
    (
        grants.map(str::to_owned).collect(),
        method.unwrap_or_default(),
        field("redirect_uris").is_some(),
    )
}

#[test]
fn members_and_operations_of_the_brokers_flows_are_those_of_the_program() {
    let page = page("token-broker.md");
    let source = include_str!("../../../crates/plugins/src/token_broker/flow.rs");
    let members = part(source, "struct FlowConfig {", "\n}");
    let members = members
        .lines()
        .filter_map(|line| line.trim().split_once(": "));
    let members = members.map(|(name, _)| name.to_owned());
    // The page tells of these above the table.
    let members = members.filter(|name| !["name", "condition"].contains(&name.as_str()));
    let lines = section(&page, "### Flows");
    let rows = rows_below(&lines, "field");
    let listed = rows.iter().flat_map(|row| names(row)).map(str::to_owned);
    compare(
        "token-broker.md",
        &members.filter(|name| !name.contains('#')).collect(),
        &listed.collect(),
    );
    let operations = part(source, "enum OperationName {", "\n}");
    let operations = operations
        .lines()
        .filter_map(|line| line.trim().strip_suffix(','));
    let row = rows
        .iter()
        .find(|row| names(row) == ["operation"])
        .expect("a row");
    for operation in operations.filter(|name| *name != "None").chain(["none"]) {
        assert!(row.contains(&format!("`{operation}`")), "{operation}");
    }
}

#[test]
fn operators_of_the_brokers_conditions_are_those_of_the_program() {
    let page = page("token-broker.md");
    let source = include_str!("../../../crates/plugins/src/token_broker/condition.rs");
    let comparing = source.lines().filter(|line| {
        let line = line.trim();
        line.starts_with('"') && line.contains("=> Self::")
    });
    let known = comparing.flat_map(|line| {
        let (patterns, _) = line.split_once("=>").unwrap_or_default();
        patterns
            .split('"')
            .skip(1)
            .step_by(2)
            .map(str::to_lowercase)
    });
    let rows = section(&page, "### Conditions");
    let rows = rows.into_iter().filter(|row| row.starts_with("| "));
    let rows = rows.filter(|row| !row.starts_with("| logic"));
    let listed: BTreeSet<_> = rows
        .flat_map(|row| row.split('`').skip(1).step_by(2).map(str::to_lowercase))
        // What patterns are made of.
        .filter(|name| !name.contains('*') && !name.starts_with("/x"))
        .collect();
    compare("token-broker.md", &known.collect(), &listed);
}

#[test]
fn codes_that_the_page_on_the_broker_names_are_answered() {
    let page = page("token-broker.md");
    let source = include_str!("../../../crates/plugins/src/token_broker/fault.rs");
    let rows = section(&page, "## Refusals");
    let spans = rows
        .iter()
        .flat_map(|row| row.split('`').skip(1).step_by(2));
    let codes: BTreeSet<_> = spans.filter(is_broker_code).collect();
    assert!(codes.len() > 14, "{codes:?}");
    for code in codes {
        assert!(
            source.contains(&format!("\"{code}\"")),
            "docs/token-broker.md has {code}"
        );
    }
}

#[test]
fn endpoints_of_the_brokers_records_in_the_page_are_those_of_the_program() {
    let page = page("token-broker.md");
    let rows = section(&page, "## Records");
    let rows = rows_below(&rows, "path");
    let listed: BTreeSet<_> = rows
        .into_iter()
        .flat_map(names)
        .filter(|name| name.starts_with("/broker/"))
        .map(shape)
        .collect();
    let known = operations(&description("admin"), &["/broker/"]);
    let known = known.iter().filter_map(|one| one.split(' ').nth(1));
    compare(
        "token-broker.md",
        &known.map(str::to_owned).collect(),
        &listed,
    );
}
