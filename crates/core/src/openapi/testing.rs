//! A small validator of JSON Schema, for tests that hold answers to a description.

use serde_json::Value;

/// What is wrong with `value` by `schema`, whose references lead into `document`.
/// Objects may have no member that the schema does not name, so that a description
/// falls behind nowhere.
///
/// # Panics
/// If a reference leads nowhere.
pub fn violations(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(document, schema, value, "", &mut found);
    found
}

/// The schema that a reference leads to, or the schema itself.
///
/// # Panics
/// If it leads nowhere.
pub fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema.get("$ref").and_then(Value::as_str) {
        None => schema,
        Some(target) => {
            let pointer = target
                .strip_prefix('#')
                .expect("a reference into the document");
            let found = document.pointer(pointer);
            resolved(
                document,
                found.unwrap_or_else(|| panic!("{target} leads nowhere")),
            )
        }
    }
}

fn check(document: &Value, schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    let schema = resolved(document, schema);
    let mut wrong = |message: String| found.push(format!("{path}: {message}"));
    if let Some(kinds) = schema.get("type") {
        let fits = match kinds {
            Value::Array(kinds) => kinds.iter().any(|kind| is_of(kind, value)),
            kind => is_of(kind, value),
        };
        if !fits {
            return wrong(format!("{value} is no {kinds}"));
        }
    }
    if let Some(one_of) = schema.get("enum").and_then(Value::as_array)
        && !one_of.contains(value)
    {
        wrong(format!("{value} is none of {one_of:?}"));
    }
    if let Some(only) = schema.get("const")
        && only != value
    {
        wrong(format!("{value} is not {only}"));
    }
    if let Some(number) = value.as_f64() {
        let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
        let low = bound("minimum").is_some_and(|least| number < least);
        if low || bound("maximum").is_some_and(|most| number > most) {
            wrong(format!("{value} is out of bounds"));
        }
    }
    check_choices(document, schema, value, path, found);
    match value {
        Value::Array(list) => {
            for (at, item) in list.iter().enumerate() {
                if let Some(items) = schema.get("items") {
                    check(document, items, item, &format!("{path}/{at}"), found);
                }
            }
        }
        Value::Object(_) => check_members(document, schema, value, path, found),
        _ => {}
    }
}

fn check_choices(
    document: &Value,
    schema: &Value,
    value: &Value,
    path: &str,
    found: &mut Vec<String>,
) {
    let list = |name: &str| schema.get(name).and_then(Value::as_array);
    for part in list("allOf").into_iter().flatten() {
        let part = open(document, part);
        check(document, &part, value, path, found);
    }
    for keyword in ["anyOf", "oneOf"] {
        let Some(choices) = list(keyword) else {
            continue;
        };
        let tried = choices
            .iter()
            .map(|choice| violations(document, choice, value));
        let tried: Vec<_> = tried.collect();
        let fitting = tried.iter().filter(|wrong| wrong.is_empty()).count();
        if fitting == 0 || (keyword == "oneOf" && fitting > 1) {
            let least = tried.iter().min_by_key(|wrong| wrong.len());
            found.push(format!("{path}: {fitting} of {keyword} fit: {least:?}"));
        }
    }
}

/// A part of `allOf` says nothing of members that it does not name.
fn open(document: &Value, part: &Value) -> Value {
    let mut part = resolved(document, part).clone();
    if part.get("additionalProperties").is_none() {
        part["additionalProperties"] = true.into();
    }
    part
}

fn check_members(
    document: &Value,
    schema: &Value,
    value: &Value,
    path: &str,
    found: &mut Vec<String>,
) {
    let required = schema.get("required").and_then(Value::as_array);
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        if value.get(name).is_none() {
            found.push(format!("{path}: {name} is missing"));
        }
    }
    let properties = schema.get("properties");
    for (name, member) in value.as_object().into_iter().flatten() {
        let path = format!("{path}/{name}");
        match properties.and_then(|properties| properties.get(name)) {
            Some(of) => check(document, of, member, &path, found),
            None => match schema.get("additionalProperties") {
                Some(Value::Bool(true)) => {}
                Some(of @ Value::Object(_)) => check(document, of, member, &path, found),
                // An object of which nothing is said may hold anything.
                None if properties.is_none() => {}
                _ => found.push(format!("{path}: is not described")),
            },
        }
    }
}

fn is_of(kind: &Value, value: &Value) -> bool {
    match kind.as_str().expect("a type") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is no type"),
    }
}
