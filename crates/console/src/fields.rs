//! The fields of a record, from its schema.

use serde_json::{Map, Value};

use super::api::Api;
use super::error::PageError;
use super::kinds::Kind;
use super::path;

/// How a field is filled in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Input {
    Text,
    Number {
        whole: bool,
    },
    Switch,
    Choice(Vec<String>),
    /// Texts, one a line.
    Lines,
    /// The id or the name of another record.
    Reference,
    /// Anything else, as JSON.
    Json,
}

/// A field of a record.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// Dotted, as the Admin API's refusals call it.
    pub(crate) name: String,
    pub(crate) input: Input,
    pub(crate) required: bool,
    /// Null: none.
    pub(crate) default: Value,
    /// What its value is bound by: two numbers.
    pub(crate) between: Option<(String, String)>,
}

impl Field {
    /// Whether a value is what the field has without anybody's doing.
    pub(crate) fn is_default(&self, value: &Value) -> bool {
        let is_empty = |value: &Value| match value {
            Value::Null => true,
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        };
        is_same(value, &self.default) || is_empty(value) && is_empty(&self.default)
    }
}

/// Whether two values are one: `5` and `5.0` are.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

/// Whether the Admin API sets a field itself.
pub(crate) fn is_automatic(name: &str) -> bool {
    matches!(
        name,
        "id" | "created_at" | "updated_at" | "cert_digest" | "ttl"
    )
}

/// The fields of a kind; of a plugin those of its configuration as well.
///
/// # Errors
/// If there is no such schema.
pub(crate) async fn of(
    api: &Api,
    kind: &Kind,
    plugin: Option<&str>,
) -> Result<Vec<Field>, PageError> {
    let schema = api.get(&path::join("/schemas", [kind.schema])).await?;
    let mut fields = read(&schema["fields"], "");
    if kind.plural == "plugins"
        && let Some(plugin) = plugin.filter(|plugin| !plugin.is_empty())
    {
        let schema = api.get(&path::join("/schemas/plugins", [plugin])).await?;
        fields.retain(|field| field.name != "config");
        let own = read(&schema["fields"], "");
        fields.extend(
            own.into_iter()
                .filter(|field| field.name.starts_with("config")),
        );
    }
    Ok(fields)
}

/// The fields of a schema, those of its records by dotted names.
pub(crate) fn read(schema: &Value, prefix: &str) -> Vec<Field> {
    let mut fields = Vec::new();
    for entry in schema.as_array().into_iter().flatten() {
        let Some((name, about)) = entry.as_object().and_then(|entry| entry.iter().next()) else {
            continue;
        };
        if prefix.is_empty() && is_automatic(name) {
            continue;
        }
        let name = format!("{prefix}{name}");
        let below = about.get("fields").filter(|_| about["type"] == "record");
        match below {
            Some(below) => fields.extend(read(below, &format!("{name}."))),
            None => fields.push(field(name, about)),
        }
    }
    fields
}

fn field(name: String, about: &Value) -> Field {
    let between = about.get("between").and_then(Value::as_array);
    let between =
        between.and_then(|pair| Some((pair.first()?.to_string(), pair.get(1)?.to_string())));
    Field {
        name,
        input: input(about),
        required: about.get("required") == Some(&Value::Bool(true)),
        default: about.get("default").cloned().unwrap_or_default(),
        between,
    }
}

fn input(about: &Value) -> Input {
    let kind = about["type"].as_str().unwrap_or_default();
    let choices = about.get("one_of").and_then(Value::as_array);
    match (kind, choices) {
        ("string", Some(choices)) => {
            let texts = choices.iter().filter_map(Value::as_str);
            Input::Choice(texts.map(str::to_owned).collect())
        }
        ("string", None) => Input::Text,
        ("integer", Some(choices)) => Input::Choice(choices.iter().map(Value::to_string).collect()),
        ("integer", None) => Input::Number { whole: true },
        ("number", _) => Input::Number { whole: false },
        ("boolean", _) => Input::Switch,
        ("array" | "set", _) if about["elements"]["type"] == "string" => Input::Lines,
        ("foreign", _) => Input::Reference,
        _ => Input::Json,
    }
}

impl Field {
    /// A value as its input shows it.
    pub(crate) fn text(&self, value: &Value) -> String {
        match (&self.input, value) {
            (_, Value::Null) => String::new(),
            (Input::Lines, Value::Array(list)) => {
                let lines: Vec<_> = list.iter().filter_map(Value::as_str).collect();
                lines.join("\n")
            }
            (Input::Reference, value) => value["id"].as_str().unwrap_or_default().to_owned(),
            (Input::Json, value) => serde_json::to_string_pretty(value).unwrap_or_default(),
            (_, Value::String(text)) => text.clone(),
            (_, value) => value.to_string(),
        }
    }

    /// What somebody typed, as a value; empty: nothing, so the default.
    ///
    /// # Errors
    /// With what was expected.
    pub(crate) fn parse(&self, typed: &str) -> Result<Option<Value>, &'static str> {
        let trimmed = typed.trim();
        if trimmed.is_empty() {
            return Ok(None);
        }
        Ok(Some(match &self.input {
            Input::Text => typed.into(),
            Input::Number { whole: true } => {
                let number: i64 = trimmed.parse().map_err(|_| "integer")?;
                number.into()
            }
            Input::Number { whole: false } => {
                let number: f64 = trimmed.parse().map_err(|_| "number")?;
                serde_json::Number::from_f64(number).ok_or("number")?.into()
            }
            Input::Switch => Value::Bool(trimmed == "true"),
            Input::Choice(_) => match (trimmed.parse::<i64>(), &self.default) {
                (Ok(number), default) if !default.is_string() => number.into(),
                _ => trimmed.into(),
            },
            Input::Lines => {
                let lines = trimmed
                    .lines()
                    .map(str::trim)
                    .filter(|line| !line.is_empty());
                lines.collect()
            }
            Input::Reference => {
                let is_id = trimmed.len() == 36 && trimmed.matches('-').count() == 4;
                let by = if is_id { "id" } else { "name" };
                Value::Object(Map::from_iter([(by.to_owned(), trimmed.into())]))
            }
            Input::Json => serde_json::from_str(trimmed).map_err(|_| "JSON")?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Vec<Field> {
        let schema = json!([
            {"id": {"type": "string", "auto": true}},
            {"port": {"type": "integer", "default": 80, "between": [0, 65535]}},
            {"protocol": {"type": "string", "one_of": ["http", "https"], "default": "http"}},
            {"tags": {"type": "set", "elements": {"type": "string"}}},
            {"service": {"type": "foreign", "reference": "services"}},
            {"config": {"type": "record", "fields": [
                {"code": {"type": "integer", "one_of": [301, 302], "default": 301}},
                {"headers": {"type": "map"}},
            ]}},
        ]);
        read(&schema, "")
    }

    #[test]
    fn records_are_read_as_dotted_names_without_what_sets_itself() {
        let names: Vec<_> = schema().into_iter().map(|field| field.name).collect();
        let expected = [
            "port",
            "protocol",
            "tags",
            "service",
            "config.code",
            "config.headers",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn what_is_typed_becomes_a_value_of_the_fields_type() {
        let fields = schema();
        let parse = |name: &str, typed: &str| {
            let field = fields
                .iter()
                .find(|field| field.name == name)
                .expect("a field");
            field.parse(typed)
        };
        assert_eq!(parse("port", " 81 "), Ok(Some(json!(81))));
        assert_eq!(parse("port", "8x"), Err("integer"));
        assert_eq!(parse("port", "  "), Ok(None));
        assert_eq!(parse("tags", "a\n\n b \n"), Ok(Some(json!(["a", "b"]))));
        assert_eq!(parse("service", "web"), Ok(Some(json!({"name": "web"}))));
        let id = "2f1b0b6c-0000-4000-8000-000000000000";
        assert_eq!(parse("service", id), Ok(Some(json!({"id": id}))));
        assert_eq!(parse("config.code", "302"), Ok(Some(json!(302))));
        assert_eq!(
            parse("config.headers", "{\"a\": 1}"),
            Ok(Some(json!({"a": 1})))
        );
        assert_eq!(parse("config.headers", "{"), Err("JSON"));
    }

    #[test]
    fn a_default_is_known_by_its_value() {
        let fields = schema();
        assert!(fields[0].is_default(&json!(80.0)) && !fields[0].is_default(&json!(81)));
        assert!(fields[2].is_default(&Value::Null) && fields[2].is_default(&json!([])));
        assert!(!fields[2].is_default(&json!(["a"])));
    }
}
