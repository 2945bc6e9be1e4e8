//! Tests of what the identity provider depends on: other providers, directories, mail.

use askama::Template;
use axum::response::Response;
use http::Method;
use serde_json::{Value, json};

use super::accounts::has_identity;
use super::error::PageError;
use super::frame::{self, Frame};
use super::path;
use super::record;
use super::session::Role;
use super::table::{Cell, Mark, Row, Table};
use super::visit::Visit;

/// Where the tests are.
const PAGE: &str = "/console/identity/probes";
/// Who may test.
pub(crate) const TESTED_BY: Role = Role::Operator;

/// A test that can be made.
struct Probe {
    title: String,
    /// The form that begins it.
    kind: &'static str,
    /// The provider that it is about; "": none.
    subject: String,
    /// What is asked beforehand; "": nothing.
    label: &'static str,
    input: &'static str,
    is_required: bool,
    text: &'static str,
}

#[derive(Template)]
#[template(path = "probes.html")]
struct ProbesPage {
    frame: Frame,
    back: String,
    realm: String,
    probes: Vec<Probe>,
    outcome: Option<Table>,
    may_test: bool,
}

/// `GET /identity/probes`.
pub(crate) async fn show(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let realm = visit.query("realm").to_owned();
    page(&visit, realm, None).await
}

/// The Admin API's path of a realm: the root has a name there.
fn target(realm: &str) -> String {
    let parts: Vec<_> = realm.split('/').filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        "/identity/realms/root".to_owned()
    } else {
        path::join("/identity/realms", parts)
    }
}

async fn page(visit: &Visit, realm: String, outcome: Option<Table>) -> Result<Response, PageError> {
    let t = visit.texts;
    let shown = visit.api().get(&target(&realm)).await?;
    let effective = &shown["effective_settings"];
    let mut probes = Vec::new();
    for provider in effective["federation"].as_array().into_iter().flatten() {
        let name = record::text(&provider["name"]);
        probes.push(Probe {
            title: format!("{name}: {}", record::text(&provider["issuer"])),
            kind: "federation",
            subject: name,
            label: "",
            input: "",
            is_required: false,
            text: t.probe_provider,
        });
    }
    if effective["ldap"].is_object() {
        probes.push(Probe {
            title: format!("LDAP: {}", record::text(&effective["ldap"]["urls"])),
            kind: "ldap",
            subject: String::new(),
            label: t.probe_name,
            input: "name",
            is_required: false,
            text: t.probe_directory,
        });
    }
    probes.push(Probe {
        title: t.mail.to_owned(),
        kind: "mail",
        subject: String::new(),
        label: t.probe_to,
        input: "to",
        is_required: true,
        text: t.probe_mail,
    });
    let back = target(&realm).replacen("/identity", "/console/identity", 1);
    frame::show(&ProbesPage {
        frame: Frame::of(visit, t.probes, "/console/identity/realms"),
        back,
        realm,
        probes,
        outcome,
        may_test: visit.may(TESTED_BY),
    })
}

/// `POST /identity/probes`: makes one test, and shows what was found.
pub(crate) async fn test(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let t = visit.texts;
    let realm = visit.field("realm").to_owned();
    let (kind, body) = match visit.field("kind") {
        "federation" => ("federation", json!({"name": visit.field("subject")})),
        "ldap" => ("ldap", json!({"name": visit.field("name")})),
        "mail" => ("mail", json!({"to": visit.field("to")})),
        _ => return Err(PageError::Form),
    };
    let target = path::with_query(
        &path::join("/identity/probes", [kind]),
        [("realm", realm.as_str())],
    );
    let answer = visit.api().send(Method::POST, &target, Some(&body)).await?;
    let rows = if answer.status.is_success() {
        let findings = answer.body["findings"].as_array().into_iter().flatten();
        findings.map(|one| row(&visit, one)).collect()
    } else {
        let mut why = answer.violations();
        if why.is_empty() {
            let is_absent = answer.status == http::StatusCode::NOT_FOUND;
            let text = if is_absent {
                t.probe_absent
            } else {
                answer.message()
            };
            why.push((kind.to_owned(), text.to_owned()));
        }
        let wrong = |(name, text)| {
            let verdict = Cell::new(t.failure).marked(Mark::Bad);
            Row::new(vec![Cell::code(name), verdict, Cell::new(text)])
        };
        why.into_iter().map(wrong).collect()
    };
    let outcome = Table {
        caption: t.verdict.to_owned(),
        columns: [t.name, t.outcome, t.meaning].map(str::to_owned).to_vec(),
        rows,
        empty: t.nothing,
        ..Table::default()
    };
    page(&visit, realm, Some(outcome)).await
}

fn row(visit: &Visit, finding: &Value) -> Row {
    let t = visit.texts;
    let verdict = if finding["ok"] == true {
        Cell::new(t.success).marked(Mark::Good)
    } else {
        Cell::new(t.failure).marked(Mark::Bad)
    };
    Row::new(vec![
        Cell::code(record::text(&finding["key"])),
        verdict,
        Cell::new(record::text(&finding["message"])),
    ])
}

/// The page with the tests of a realm.
pub(crate) fn address(realm: &str) -> String {
    path::with_query(PAGE, [("realm", realm)])
}
