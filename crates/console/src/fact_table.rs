//! Tables of the fields of a record.

use serde_json::Value;

use doorward_core::model::audit::instant;

use super::table::{Cell, Row, Table};
use super::texts::Texts;
use super::{difference, record};

/// A value, moments in words: they are seconds since the epoch.
pub(crate) fn cell(column: &str, value: &Value) -> Cell {
    match value.as_i64() {
        Some(seconds)
            if column.ends_with("_at")
                || column.ends_with("_from")
                || column.ends_with("_until") =>
        {
            Cell::code(instant(seconds.saturating_mul(1000)))
        }
        _ => match record::text(value) {
            text if text.is_empty() => Cell::new(record::text(&Value::Null)),
            text => Cell::new(text),
        },
    }
}

/// A column of a record in a list. Of what a file declares, `owner` is the place there.
pub(crate) fn list_cell(column: &str, record: &Value) -> Cell {
    match record::declared_in(record) {
        Some(place) if column == "owner" => Cell::code(place),
        _ => cell(column, &record[column]),
    }
}

/// The fields of a record. Records within it, such as a realm's settings, have dotted
/// names.
pub(crate) fn fields(t: &Texts, caption: &str, shown: &Value) -> Table {
    let rows = difference::lines(&Value::Null, shown)
        .into_iter()
        .map(|line| {
            let value = record::get(shown, &line.name).unwrap_or(&Value::Null);
            let cell = cell(&line.name, value);
            Row::new(vec![Cell::code(line.name), cell])
        });
    Table {
        caption: caption.to_owned(),
        columns: [t.name, t.value].map(str::to_owned).to_vec(),
        rows: rows.collect(),
        empty: t.nothing,
        ..Table::default()
    }
}
