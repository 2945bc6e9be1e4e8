//! What no page may do, whoever names what it shows.

use askama::Template;

use super::*;
use table::{Button, Cell, Row, Table};

#[test]
fn every_unsafe_page_wants_a_role() {
    for page in PAGES {
        let is_sign_in = page.path == "/sign-in";
        assert!(
            page.access != Access::Everybody || page.method == "GET" || is_sign_in,
            "{}",
            page.path
        );
        let changes = page.method == "POST";
        let looks = ["/sign-out", "/explain", "/sign-in"].contains(&page.path);
        let access = page.access;
        let is_guarded = matches!(access, Access::Role(role) if role >= Role::Operator);
        assert!(
            !changes || looks || is_guarded || access == Access::Change,
            "{}",
            page.path
        );
    }
}

#[test]
fn keys_and_secrets_are_changed_by_owners_alone() {
    for (path, role) in [
        ("/console/apply/services/a", Role::Operator),
        ("/console/new/routes", Role::Operator),
        ("/console/apply/consumers/c", Role::Operator),
        ("/console/preview/certificates/c", Role::Owner),
        ("/console/new/ca_certificates", Role::Owner),
        ("/console/edit/certificates/c", Role::Owner),
        ("/console/apply/consumers/c/key-auth", Role::Owner),
        ("/console/apply/consumers/c/jwt/j", Role::Owner),
    ] {
        let segments = path::segments(path);
        let found = PAGES
            .iter()
            .find_map(|page| Some(page.role(&page.matches(&segments)?)));
        assert_eq!(found, Some(Some(role)), "{path}");
    }
}

#[test]
fn pages_are_found_by_their_paths() {
    let find = |path: &str| {
        let segments = path::segments(path);
        let found = PAGES.iter().find(|page| page.matches(&segments).is_some());
        found.map(|page| page.path)
    };
    assert_eq!(find("/console"), Some("/"));
    assert_eq!(find("/console/gateway/services/a"), Some("/gateway/{*}"));
    assert_eq!(find("/console/throttling/x%2Fy"), Some("/throttling/{}"));
    assert_eq!(find("/console/gateway"), None);
    assert_eq!(find("/console/nowhere"), None);
}

/// Marks up one table alone.
#[derive(Template)]
#[template(
    source = "{% for table in tables %}{% include \"table.html\" %}{% endfor %}",
    ext = "html"
)]
struct Tables {
    frame: Texted,
    tables: Vec<Table>,
    titled: bool,
}

struct Texted {
    t: &'static texts::Texts,
    form_token: String,
}

#[test]
fn names_are_text_wherever_they_stand() {
    let evil = "\"><script>alert(1)</script>";
    let button = Button {
        text: evil.to_owned(),
        label: evil.to_owned(),
        address: path::join("/console", [evil]),
        fields: vec![(evil.to_owned(), evil.to_owned())],
        danger: true,
    };
    let page = Tables {
        frame: Texted {
            t: texts::choose(&http::HeaderMap::new()),
            form_token: evil.to_owned(),
        },
        tables: vec![Table {
            caption: evil.to_owned(),
            columns: vec![evil.to_owned()],
            rows: vec![Row {
                cells: vec![
                    Cell::new(evil).to(path::join("/console", [evil])),
                    Cell::code(evil),
                ],
                buttons: vec![button],
            }],
            next: Some(path::with_query("/console", [("q", evil)])),
            links: vec![(evil.to_owned(), "/console".to_owned())],
            ..Table::default()
        }],
        titled: true,
    };
    let html = page.render().expect("a page");
    assert!(!html.contains("<script"), "{html}");
    assert!(!html.contains(evil), "{html}");
}
