//! Coercions: `{"$int": "6"}` is the number 6.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// The names of the coercions.
const NAMES: &[&str] = &[
    "$int",
    "$number",
    "$bool",
    "$string",
    "$list",
    "$array",
    "$object",
    "$base64:encode",
    "$base64:decode",
];

/// What an object that is a coercion stands for; `None`: it is none.
pub(super) fn coerced(object: &Map<String, Value>) -> Option<Result<Value, String>> {
    let (name, value) = object.iter().next().filter(|_| object.len() == 1)?;
    let name = NAMES.iter().find(|known| *known == name)?;
    Some(coerce(name, value).ok_or_else(|| format!("{name}: {}", expected(name))))
}

fn expected(name: &str) -> &'static str {
    match name {
        "$int" => "expected a whole number",
        "$number" => "expected a number",
        "$bool" => "expected true or false",
        "$array" => "expected a JSON array as text",
        "$list" => "expected texts with commas between them, or a JSON array as text",
        "$object" => "expected a JSON object as text",
        "$base64:decode" => "expected base64 of a text",
        _ => "expected a text",
    }
}

fn coerce(name: &str, value: &Value) -> Option<Value> {
    let text = value.as_str();
    let json = || serde_json::from_str::<Value>(text?).ok();
    match name {
        "$int" if value.is_i64() || value.is_u64() => Some(value.clone()),
        "$int" => Some(text?.trim().parse::<i64>().ok()?.into()),
        "$number" if value.is_number() => Some(value.clone()),
        "$number" => match text?.trim() {
            whole if whole.parse::<i64>().is_ok() => Some(whole.parse::<i64>().ok()?.into()),
            number => serde_json::Number::from_f64(number.parse().ok()?).map(Value::Number),
        },
        "$bool" if value.is_boolean() => Some(value.clone()),
        "$bool" => match text?.trim() {
            word if word.eq_ignore_ascii_case("true") => Some(true.into()),
            word if word.eq_ignore_ascii_case("false") => Some(false.into()),
            _ => None,
        },
        "$string" => match value {
            Value::String(_) => Some(value.clone()),
            other => Some(other.to_string().into()),
        },
        "$list" | "$array" if value.is_array() => Some(value.clone()),
        "$array" => json().filter(Value::is_array),
        "$list" => Some(json().filter(Value::is_array).unwrap_or(list(text?))),
        "$object" if value.is_object() => Some(value.clone()),
        "$object" => json().filter(Value::is_object),
        "$base64:encode" => Some(STANDARD.encode(text?).into()),
        "$base64:decode" => {
            let bytes = STANDARD.decode(text?.trim()).ok()?;
            Some(String::from_utf8(bytes).ok()?.into())
        }
        _ => None,
    }
}

/// The parts of `a, b`.
fn list(text: &str) -> Value {
    let parts = text.split(',').map(str::trim);
    parts.filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(value: &Value) -> Option<Result<Value, String>> {
        coerced(value.as_object().expect("an object"))
    }

    #[test]
    fn each_coercion_makes_its_type() {
        for (from, to) in [
            (json!({"$int": "6"}), json!(6)),
            (json!({"$int": 6}), json!(6)),
            (json!({"$number": "1.5"}), json!(1.5)),
            (json!({"$number": " 7 "}), json!(7)),
            (json!({"$bool": "TRUE"}), json!(true)),
            (json!({"$string": 5}), json!("5")),
            (json!({"$list": "a, b"}), json!(["a", "b"])),
            (json!({"$list": "[\"a\"]"}), json!(["a"])),
            (json!({"$array": "[1, 2]"}), json!([1, 2])),
            (json!({"$object": "{\"a\": 1}"}), json!({"a": 1})),
            (json!({"$base64:encode": "ab"}), json!("YWI=")),
            (json!({"$base64:decode": "YWI="}), json!("ab")),
        ] {
            assert_eq!(of(&from), Some(Ok(to)), "{from}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_without_being_quoted() {
        for name in [
            "$int",
            "$number",
            "$bool",
            "$array",
            "$object",
            "$base64:decode",
        ] {
            let refused = of(&json!({name: "s3cret!"})).expect("a coercion");
            assert!(!refused.expect_err("refused").contains("s3cret"), "{name}");
        }
    }

    #[test]
    fn other_objects_are_left_alone() {
        for object in [
            json!({}),
            json!({"$location": "x"}),
            json!({"$int": "1", "b": 2}),
        ] {
            assert_eq!(of(&object), None, "{object}");
        }
    }
}
