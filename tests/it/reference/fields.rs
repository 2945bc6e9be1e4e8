//! Fields of entities and plugins, as `/schemas` tells them, in tables.

use std::fmt::Write as _;

use serde_json::Value;

/// The table of the fields of a schema; nothing if it has none.
pub(super) fn table(fields: &Value) -> String {
    let mut rows = Vec::new();
    add(&mut rows, "", fields);
    if rows.is_empty() {
        return "\nIt has no fields.\n".to_owned();
    }
    let has_meanings = rows.iter().any(|row| !row[4].is_empty());
    let columns = if has_meanings { 5 } else { 4 };
    let head = ["field", "type", "default", "more", "meaning"];
    let mut table = String::from("\n");
    add_row(&mut table, &head[..columns]);
    add_row(&mut table, &["---"; 5][..columns]);
    for row in &rows {
        add_row(&mut table, &row[..columns]);
    }
    table
}

fn add_row(table: &mut String, cells: &[impl AsRef<str>]) {
    for cell in cells {
        let cell = cell.as_ref();
        let _ = match cell {
            "---" => write!(table, "|---"),
            cell => write!(table, "| {cell} "),
        };
    }
    table.push_str("|\n");
}

/// Adds a row for each field, and for those that are inside of it.
fn add(rows: &mut Vec<[String; 5]>, prefix: &str, fields: &Value) {
    for field in fields.as_array().into_iter().flatten() {
        for (name, schema) in field.as_object().into_iter().flatten() {
            let name = format!("{prefix}{name}");
            let meaning = schema["description"].as_str().unwrap_or_default();
            rows.push([
                format!("`{name}`"),
                kind(schema),
                default(schema),
                more(schema),
                meaning.replace('|', "\\|"),
            ]);
            add(rows, &format!("{name}."), &schema["fields"]);
            add(rows, &format!("{name}[]."), &schema["elements"]["fields"]);
        }
    }
}

/// What the values of a field are.
fn kind(schema: &Value) -> String {
    let name = schema["type"].as_str().unwrap_or("any");
    match name {
        "array" | "set" if schema["elements"].is_object() => {
            let what = if name == "set" { "set of " } else { "list of " };
            format!("{what}{}", kind(&schema["elements"]))
        }
        "map" if schema["values"].is_object() => {
            format!("map of {}", kind(&schema["values"]))
        }
        "foreign" => format!(
            "one of `{}`",
            schema["reference"].as_str().unwrap_or_default()
        ),
        name => name.to_owned(),
    }
}

/// What a field is that is left out.
fn default(schema: &Value) -> String {
    let value = &schema["default"];
    match value {
        Value::Null => String::new(),
        Value::String(text) if text.is_empty() => "empty".to_owned(),
        Value::String(text) => code(text),
        value => code(&value.to_string()),
    }
}

/// A value, as a cell of a table bears it.
fn code(text: &str) -> String {
    let text = text.replace('|', "\\|");
    let fence = if text.contains('`') { "``" } else { "`" };
    format!("{fence}{text}{fence}")
}

/// What else is said of a field.
fn more(schema: &Value) -> String {
    let mut words = Vec::new();
    let flag = |name: &str| schema[name] == true;
    match (flag("required"), schema["default"].is_null()) {
        (true, true) => words.push("required".to_owned()),
        (true, false) => words.push("not null".to_owned()),
        _ => {}
    }
    if flag("auto") {
        words.push("made if absent".to_owned());
    }
    if flag("unique") {
        words.push("unique".to_owned());
    }
    if flag("referenceable") {
        words.push("may be a reference to a vault".to_owned());
    }
    for (place, what) in [(schema, ""), (&schema["elements"], "each ")] {
        if let Some(between) = place["between"].as_array() {
            words.push(format!("{what}{} to {}", between[0], between[1]));
        }
        if let Some(choices) = place["one_of"].as_array() {
            let choices = choices.iter().map(|value| match value {
                Value::String(text) => code(text),
                value => code(&value.to_string()),
            });
            let choices: Vec<_> = choices.collect();
            words.push(format!("{what}one of {}", choices.join(", ")));
        }
        if let Some(least) = place["len_min"].as_u64() {
            words.push(match (place["type"].as_str(), least) {
                (Some("string"), least) => format!("{what}at least {least} characters"),
                (_, 1) => "not empty".to_owned(),
                (_, least) => format!("at least {least} items"),
            });
        }
    }
    words.join("; ")
}

#[test]
fn a_field_is_shown_with_all_that_its_schema_says() {
    let fields = serde_json::json!([
        {"a": {"type": "set", "required": true, "default": ["x|y"], "len_min": 1,
               "elements": {"type": "string", "one_of": ["x|y", "z"]}}},
        {"b": {"type": "record", "fields": [{"c": {"type": "integer", "between": [1, 9], "required": true}}]}},
    ]);
    let head = "\n| field | type | default | more |\n|---|---|---|---|\n";
    let wanted = "| `a` | set of string | `[\"x\\|y\"]` | not null; not empty; each one of \
                  `x\\|y`, `z` |\n| `b` | record |  |  |\n| `b.c` | integer |  | required; 1 to 9 |\n";
    assert_eq!(table(&fields), format!("{head}{wanted}"));
    let described = serde_json::json!([{"a": {"type": "any", "description": "Some | any."}}]);
    let wanted = "\n| field | type | default | more | meaning |\n|---|---|---|---|---|\n\
                  | `a` | any |  |  | Some \\| any. |\n";
    assert_eq!(table(&described), wanted);
}
