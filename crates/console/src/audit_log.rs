//! The audit log, with its filters. Changes of the last hour are undone from here.

use axum::response::Response;
use serde_json::Value;

use super::error::PageError;
use super::paged_list::PagedList;
use super::table::{Button, Cell, Filter, Mark, Row};
use super::visit::Visit;
use super::{path, record};

const SECTION: &str = "/console/audit";
/// What the Admin API narrows its log down by, and the page with it.
const FILTERS: [&str; 6] = ["kind", "user", "client", "outcome", "since", "until"];

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
    let list = PagedList {
        title: t.audit_log,
        lead: t.audit_lead,
        address: SECTION,
        path: "/audit",
        filters: filters.collect(),
        columns: columns.map(str::to_owned).to_vec(),
        links: Vec::new(),
    };
    list.show(&visit, |one| row(&visit, one)).await
}

fn row(visit: &Visit, one: &Value) -> Row {
    let t = visit.texts;
    let text = |name: &str| match &one[name] {
        Value::Null => String::new(),
        value => record::text(value),
    };
    let (actor, details) = (&one["actor"], &one["details"]);
    let mut who = record::text(&actor["type"]);
    // Of a person the name says more than the identifier.
    let whom = match &actor["name"] {
        Value::Null => [&actor["id"], &Value::Null],
        name => [name, &actor["realm"]],
    };
    for more in whom.into_iter().chain([&details["via"]]) {
        if let Some(more) = more.as_str() {
            who = format!("{who} {more}");
        }
    }
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
        Cell::new(who),
        Cell::code(text("target")),
        Cell::new(one["user"]["name"].as_str().unwrap_or_default()),
        Cell::new(text("client")),
        Cell::code(text("address")),
        outcome,
    ]);
    if let Some(change) = details["change"].as_str()
        && one["outcome"] == "success"
        && visit.parts().undo.offers(visit, change)
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
