//! The audit log, with its filters. Changes of the last hour are undone from here.

use std::collections::HashSet;

use axum::response::Response;
use http::{HeaderValue, header};
use serde_json::Value;

use super::error::PageError;
use super::paged_list::PagedList;
use super::table::{Button, Cell, Filter, Mark, Row};
use super::trail::{Trail, who};
use super::visit::Visit;
use super::{path, record};

const SECTION: &str = "/console/audit";
/// What the Admin API narrows its log down by, and the page with it.
const FILTERS: [&str; 6] = ["kind", "user", "client", "outcome", "since", "until"];

/// Where the log is exported.
const EXPORT: &str = "/console/audit/export";

/// What the visitor narrows the log down by.
fn filtered(visit: &Visit) -> [(&'static str, &str); 6] {
    FILTERS.map(|name| (name, visit.query(name)))
}

/// `GET /audit/export`: what fits the filters as a file, a record a line.
pub(crate) async fn export(visit: Visit) -> Result<Response, PageError> {
    let target = path::with_query("/audit/export", filtered(&visit));
    let mut response = Response::new(visit.api().stream(&target).await?);
    let headers = response.headers_mut();
    let lines = HeaderValue::from_static("application/x-ndjson");
    headers.insert(header::CONTENT_TYPE, lines);
    let file = HeaderValue::from_static("attachment; filename=\"audit.jsonl\"");
    headers.insert(header::CONTENT_DISPOSITION, file);
    Ok(response)
}

/// `GET /audit`.
pub(crate) async fn show(visit: Visit) -> Result<Response, PageError> {
    let t = visit.texts;
    let labels = [t.event, t.user, t.client, t.outcome, t.since, t.until];
    let hints = ["entity.update", "", "", "failure", "1h", ""];
    let filters = FILTERS
        .iter()
        .zip(labels)
        .zip(hints)
        .map(|((name, label), hint)| Filter::of(&visit, name, label, hint));
    let columns = [
        t.time,
        t.event,
        t.actor,
        t.target_of,
        t.user,
        t.client,
        t.address,
        t.outcome,
    ];
    let export = path::with_query(EXPORT, filtered(&visit));
    let list = PagedList {
        title: t.audit_log,
        lead: t.audit_lead,
        address: SECTION,
        path: "/audit",
        filters: filters.collect(),
        columns: columns.map(str::to_owned).to_vec(),
        links: vec![(t.export.to_owned(), export)],
    };
    let offered = visit.parts().undo.offered(&visit).await;
    list.show(&visit, |one| row(&visit, &offered, one)).await
}

/// Looks up who changed the record that `trail` is of. What can't be found is not told:
/// the refusal stands without it.
pub(crate) async fn follow(trail: &mut Trail, visit: &Visit) {
    let Some(target) = trail.target() else {
        return;
    };
    if let Ok(body) = visit.api().get(&target).await {
        trail.read(&body);
    }
}

fn row(visit: &Visit, offered: &HashSet<String>, one: &Value) -> Row {
    let t = visit.texts;
    let text = |name: &str| match &one[name] {
        Value::Null => String::new(),
        value => record::text(value),
    };
    let details = &one["details"];
    let outcome = if one["outcome"] == "failure" {
        Cell::new(format!("{}: {}", t.failure, text("reason"))).marked(Mark::Bad)
    } else {
        Cell::new(t.success).marked(Mark::Good)
    };
    let count = one["count"].as_u64().unwrap_or(1);
    let event = if count > 1 {
        format!("{} × {count}", text("event"))
    } else {
        text("event")
    };
    let mut row = Row::new(vec![
        Cell::code(text("time")),
        Cell::new(event),
        Cell::new(who(one)),
        Cell::code(text("target")),
        Cell::new(one["user"]["name"].as_str().unwrap_or_default()),
        Cell::new(text("client")),
        Cell::code(text("address")),
        outcome,
    ]);
    if let Some(change) = details["change"].as_str()
        && one["outcome"] == "success"
        && offered.contains(change)
    {
        row.buttons.push(Button {
            text: t.undo.to_owned(),
            label: format!("{}: {} {}", t.undo, text("event"), text("time")),
            address: path::join("/console/undo", [change]),
            fields: Vec::new(),
            danger: false,
        });
    }
    row
}
