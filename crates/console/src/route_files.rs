//! Route files, as they are in force.

use axum::response::Response;
use serde_json::Value;

use super::entities::ListPage;
use super::error::PageError;
use super::frame::{self, Frame};
use super::table::{Cell, Mark, Row, Table};
use super::visit::Visit;
use super::{path, record};

const SECTION: &str = "/console/route-files";

fn state_cell(one: &Value) -> Cell {
    let state = record::text(&one["state"]);
    let mark = match state.as_str() {
        "loaded" => Mark::Good,
        "stale" => Mark::Warning,
        _ => Mark::Bad,
    };
    Cell::new(state).marked(mark)
}

fn count(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

/// `GET /route-files`.
pub(crate) async fn list(visit: Visit) -> Result<Response, PageError> {
    let t = visit.texts;
    let body = visit.api().get("/route-files").await?;
    let rows = body["data"].as_array().into_iter().flatten().map(|one| {
        let id = record::text(&one["id"]);
        let name = one["name"].as_str().unwrap_or(&id);
        Row::new(vec![
            Cell::new(record::text(&one["order"])),
            Cell::new(name).to(path::join(SECTION, [id.as_str()])),
            Cell::code(record::text(&one["file"])),
            state_cell(one),
            Cell::new(count(&one["errors"]).to_string()),
            Cell::new(count(&one["warnings"]).to_string()),
        ])
    });
    let columns = [t.order, t.name, t.file, t.state, t.errors, t.warnings];
    frame::show(&ListPage {
        frame: Frame::of(&visit, t.route_files, SECTION),
        lead: t.route_files_lead,
        filters: Vec::new(),
        tables: vec![Table {
            caption: t.route_files.to_owned(),
            columns: columns.map(str::to_owned).to_vec(),
            rows: rows.collect(),
            empty: t.no_route_files,
            ..Table::default()
        }],
    })
}

/// `GET /route-files/{id}`.
pub(crate) async fn show(visit: Visit) -> Result<Response, PageError> {
    let t = visit.texts;
    let body = visit
        .api()
        .get(&path::join("/route-files", [visit.param(0)]))
        .await?;
    let lines = |value: &Value, mark| {
        let list = value.as_array().into_iter().flatten();
        let rows =
            list.map(move |line| Row::new(vec![Cell::code(record::text(line)).marked(mark)]));
        rows.collect::<Vec<_>>()
    };
    let table = |caption: &str, rows| Table {
        caption: caption.to_owned(),
        columns: vec![caption.to_owned()],
        rows,
        empty: t.nothing,
        ..Table::default()
    };
    let facts = Row::new(vec![
        Cell::code(record::text(&body["file"])),
        state_cell(&body),
        Cell::new(record::text(&body["order"])),
    ]);
    let id = record::text(&body["id"]);
    let title = body["name"].as_str().unwrap_or(&id);
    frame::show(&ListPage {
        frame: Frame::of(&visit, title, SECTION),
        lead: "",
        filters: Vec::new(),
        tables: vec![
            Table {
                columns: [t.file, t.state, t.order].map(str::to_owned).to_vec(),
                ..table(t.route_file, vec![facts])
            },
            table(t.errors, lines(&body["errors"], Mark::Bad)),
            table(t.warnings, lines(&body["warnings"], Mark::Warning)),
        ],
    })
}
