//! What throttling filters count, and how to start anew.

use axum::response::Response;
use http::Method;
use serde_json::Value;

use super::entities::ListPage;
use super::error::PageError;
use super::frame::{self, Frame};
use super::session::Role;
use super::table::{Button, Cell, Mark, Row, Table};
use super::visit::Visit;
use super::{path, record};

const SECTION: &str = "/console/throttling";

/// `GET /throttling`: the filters that count.
pub(crate) async fn list(visit: Visit) -> Result<Response, PageError> {
    let t = visit.texts;
    let body = visit.api().get("/throttling").await?;
    let rows = body["data"].as_array().into_iter().flatten().map(|one| {
        let plugin = &one["plugin"];
        let id = record::text(&plugin["id"]);
        let name = plugin["instance_name"].as_str().unwrap_or(&id);
        let shadow = if one["shadow"] == true { t.yes } else { t.no };
        Row::new(vec![
            Cell::new(name).to(path::join(SECTION, [id.as_str()])),
            Cell::new(record::text(&plugin["name"])),
            Cell::new(record::text(&one["buckets"])),
            Cell::new(record::text(&one["maximum"])),
            Cell::new(record::text(&one["counters"])),
            Cell::new(shadow),
        ])
    });
    let columns = [t.name, t.plugin, t.buckets, t.maximum, t.counters, t.shadow];
    frame::show(&ListPage {
        frame: Frame::of(&visit, t.throttling, SECTION),
        lead: t.throttling_lead,
        filters: Vec::new(),
        tables: vec![Table {
            caption: t.throttling.to_owned(),
            columns: columns.map(str::to_owned).to_vec(),
            rows: rows.collect(),
            empty: t.no_throttling,
            ..Table::default()
        }],
    })
}

/// `GET /throttling/{filter}`: its hottest partitions. Their texts may be names of
/// people: they are shown only if asked for.
pub(crate) async fn show(visit: Visit) -> Result<Response, PageError> {
    let t = visit.texts;
    let id = visit.param(0);
    let reveal = visit.query("reveal") == "1";
    let target = path::join("/throttling", [id]);
    let query = [("reveal", if reveal { "1" } else { "" })];
    let body = visit.api().get(&path::with_query(&target, query)).await?;
    let rows = body["hottest"].as_array().into_iter().flatten();
    let rows = rows.map(|one| partition(&visit, one));
    let own = path::join(SECTION, [id]);
    let other = if reveal {
        (t.hide_partitions.to_owned(), own)
    } else {
        (
            t.reveal_partitions.to_owned(),
            path::with_query(&own, [("reveal", "1")]),
        )
    };
    let plugin = &body["plugin"];
    let name = plugin["instance_name"]
        .as_str()
        .or(plugin["name"].as_str())
        .unwrap_or(id);
    frame::show(&ListPage {
        frame: Frame::of(&visit, name, SECTION),
        lead: t.partitions_lead,
        filters: Vec::new(),
        tables: vec![Table {
            caption: t.partitions.to_owned(),
            columns: [t.partition, t.passed, t.refused, t.buckets]
                .map(str::to_owned)
                .to_vec(),
            rows: rows.collect(),
            empty: t.nothing,
            links: vec![other],
            ..Table::default()
        }],
    })
}

fn partition(visit: &Visit, one: &Value) -> Row {
    let t = visit.texts;
    let id = record::text(&one["id"]);
    let name = one["partition"].as_str().unwrap_or(&id);
    let buckets = one["buckets"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|bucket| {
            let text = |name: &str| record::text(&bucket[name]);
            format!(
                "{}/{} ({})",
                text("remaining"),
                text("capacity"),
                text("rate")
            )
        });
    let buckets: Vec<_> = buckets.collect();
    let refused = one["refused"].as_u64().unwrap_or_default();
    let mark = if refused > 0 {
        Mark::Warning
    } else {
        Mark::Plain
    };
    let mut row = Row::new(vec![
        Cell::code(name),
        Cell::new(record::text(&one["passed"])),
        Cell::new(refused.to_string()).marked(mark),
        Cell::new(buckets.join(", ")),
    ]);
    if visit.may(Role::Operator) {
        row.buttons.push(Button {
            text: t.reset.to_owned(),
            label: format!("{}: {name}", t.reset),
            address: format!("{}/reset", path::join(SECTION, [visit.param(0)])),
            fields: vec![("partition".to_owned(), id)],
            danger: true,
        });
    }
    row
}

/// `POST /throttling/{filter}/reset`.
pub(crate) async fn reset(visit: Visit) -> Result<Response, PageError> {
    let (id, partition) = (visit.param(0), visit.field("partition"));
    let target = path::join("/throttling", [id, partition]);
    let answer = visit.api().send(Method::DELETE, &target, None).await?;
    if answer.status.is_success() {
        Ok(frame::lead(&path::join(SECTION, [id])))
    } else {
        Err(PageError::Api(answer))
    }
}
