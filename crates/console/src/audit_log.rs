//! The audit log, with its filters.

use axum::response::Response;
use serde_json::Value;

use super::entities::ListPage;
use super::error::PageError;
use super::frame::{self, Frame};
use super::table::{Cell, Filter, Mark, Row, Table};
use super::visit::Visit;
use super::{path, record};

const SECTION: &str = "/console/audit";
/// What the Admin API narrows its log down by, and the page with it.
const FILTERS: [&str; 6] = ["kind", "user", "client", "outcome", "since", "until"];

/// `GET /audit`.
pub(crate) async fn show(visit: Visit) -> Result<Response, PageError> {
    let t = visit.texts;
    let mut query = vec![("size", "50"), ("offset", visit.query("offset"))];
    query.extend(FILTERS.map(|name| (name, visit.query(name))));
    let answer = visit
        .api()
        .send(http::Method::GET, &path::with_query("/audit", query), None)
        .await?;
    let body = &answer.body;
    let refused = !answer.status.is_success();
    let rows = body["data"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| row(&visit, one));
    let labels = [t.event, t.user, t.client, t.outcome, t.since, t.until];
    let hints = ["entity.update", "", "", "failure", "1h", ""];
    let filters = FILTERS
        .iter()
        .zip(labels)
        .zip(hints)
        .map(|((name, label), hint)| Filter {
            name,
            label,
            value: visit.query(name).to_owned(),
            hint,
        });
    let next = body.get("offset").and_then(Value::as_str).map(|offset| {
        let kept = FILTERS.map(|name| (name, visit.query(name)));
        path::with_query(SECTION, kept.into_iter().chain([("offset", offset)]))
    });
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
    let mut table = Table {
        caption: t.audit_log.to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.collect(),
        empty: t.nothing,
        next,
        ..Table::default()
    };
    if refused {
        let message = Cell::new(answer.message()).marked(Mark::Bad);
        table.columns = vec![t.error.to_owned()];
        table.rows = vec![Row::new(vec![message])];
    }
    let mut response = frame::show(&ListPage {
        frame: Frame::of(&visit, t.audit_log, SECTION),
        lead: t.audit_lead,
        filters: filters.collect(),
        tables: vec![table],
    })?;
    if refused {
        *response.status_mut() = answer.status;
    }
    Ok(response)
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
    Row::new(vec![
        Cell::code(text("time")),
        Cell::new(event),
        Cell::new(who),
        Cell::code(text("target")),
        Cell::new(one["user"]["name"].as_str().unwrap_or_default()),
        Cell::new(text("client")),
        Cell::code(text("address")),
        outcome,
    ])
}
