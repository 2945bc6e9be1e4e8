//! Typing of what came in: form texts, dotted keys, single values for lists.
//!
//! Reading never refuses a value, only shorthands do: what it can't type stays
//! as it is, and [`Schema::complete`] says what is wrong with it.

use serde_json::{Map, Number, Value};

use super::{Field, Schema, Type, Violations};

/// Where an input comes from, and so how loosely it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A JSON body: values have their types.
    Json,
    /// A form: every value is a text; an empty one is null.
    Form,
    /// A declarative file: texts may stand for numbers and booleans, since
    /// configuration tokens always yield texts; references may be names.
    File,
}

/// Types the values of an input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader {
    source: Source,
    /// Inside a plugin's `config`: one text for a list is a list, split on
    /// commas, and booleans may be in any case.
    config: bool,
}

impl Schema {
    /// The input with its values typed and its dotted keys expanded. A field
    /// called `config` is read by the rules of plugin configurations.
    ///
    /// # Errors
    /// Shorthands that stand for nothing.
    pub fn read(
        &self,
        mut input: Map<String, Value>,
        source: Source,
    ) -> Result<Map<String, Value>, Violations> {
        let mut violations = Violations::default();
        if let Some(shorthand) = self.shorthand {
            shorthand(&mut input, &mut violations);
        }
        let reader = Reader {
            source,
            config: false,
        };
        violations.or(reader.record(self, input))
    }

    fn field_or_alias(&self, name: &str) -> Option<&Field> {
        self.field(name)
            .or_else(|| self.fields.iter().find(|f| f.aliases.contains(&name)))
    }
}

impl Reader {
    fn record(self, schema: &Schema, input: Map<String, Value>) -> Map<String, Value> {
        let mut out = Map::new();
        for (key, value) in expanded(schema, input) {
            let Some(field) = schema.field_or_alias(&key) else {
                out.insert(key, value);
                continue;
            };
            let reader = Self {
                config: self.config || field.name == "config",
                ..self
            };
            let value = reader.value(&field.kind, value);
            if key == field.name {
                out.insert(key, value);
            } else {
                // The field's own name wins over an older one.
                out.entry(field.name).or_insert(value);
            }
        }
        out
    }

    fn value(self, kind: &Type, value: Value) -> Value {
        if self.source == Source::Form && value == "" {
            return Value::Null;
        }
        match (kind, value) {
            (Type::Array(of), value) => self.list(of, value),
            (Type::Set(of), value) => without_repetition(self.list(of, value)),
            (Type::Record(schema), Value::Object(mut map)) => {
                if let Some(shorthand) = schema.shorthand {
                    // Those of records inside others refuse nothing.
                    shorthand(&mut map, &mut Violations::default());
                }
                Value::Object(self.record(schema, map))
            }
            (Type::Map(_) | Type::Members(..), Value::Object(map)) => map
                .into_iter()
                .map(|(key, value)| {
                    let value = self.value(kind.of_member(&key), value);
                    (key, value)
                })
                .collect(),
            (Type::Foreign(_), value) => self.reference(value),
            (Type::Integer(..) | Type::Choice(_), value) => self.integer(value),
            (Type::Number | Type::Between(..), Value::String(text))
                if self.source != Source::Json =>
            {
                number(text)
            }
            (Type::Boolean, Value::String(text)) if self.source != Source::Json => {
                self.boolean(text)
            }
            (Type::Any, value) if self.source == Source::Form => any(value),
            (_, value) => value,
        }
    }

    fn list(self, of: &Type, value: Value) -> Value {
        match value {
            Value::Array(list) => list.into_iter().map(|v| self.value(of, v)).collect(),
            Value::String(text) if self.config && splits(of) => elements(of, &text)
                .into_iter()
                .map(|element| self.value(of, Value::String(element)))
                .collect(),
            Value::Null => Value::Null,
            // Encoders that know one kind of table write an empty list as `{}`.
            Value::Object(map) if map.is_empty() => Value::Array(Vec::new()),
            value if self.source == Source::Form => vec![self.value(of, value)].into(),
            value => value,
        }
    }

    /// `{"id": …}` or `{"name": …}`; a reference to nothing is null.
    fn reference(self, value: Value) -> Value {
        match value {
            Value::Object(mut map) => {
                if map.get("id").is_some_and(|id| *id == "" || id.is_null()) {
                    map.remove("id");
                    if map.is_empty() {
                        return Value::Null;
                    }
                }
                if let Some(Value::String(id)) = map.get_mut("id") {
                    id.make_ascii_lowercase();
                    // Clients send a whole record as a reference; its id names it.
                    map.retain(|key, _| key == "id");
                }
                Value::Object(map)
            }
            Value::String(text) if self.source == Source::File => {
                let key = if is_uuid(&text) { "id" } else { "name" };
                Value::Object(Map::from_iter([(key.to_owned(), Value::String(text))]))
            }
            value => value,
        }
    }

    fn integer(self, value: Value) -> Value {
        let value = match value {
            Value::String(text) if self.source != Source::Json => number(text),
            value => value,
        };
        match value.as_f64() {
            // 80.0 is a whole number; 2^53 is where that stops being certain.
            Some(float) if value.is_f64() && float.fract() == 0.0 && float.abs() < 9.0e15 =>
            {
                #[expect(clippy::cast_possible_truncation, reason = "bounded above")]
                Value::from(float as i64)
            }
            _ => value,
        }
    }

    fn boolean(self, text: String) -> Value {
        match text.as_str() {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ if self.config && text.eq_ignore_ascii_case("true") => Value::Bool(true),
            _ if self.config && text.eq_ignore_ascii_case("false") => Value::Bool(false),
            _ => Value::String(text),
        }
    }
}

/// Whether `text` has the shape of a UUID with dashes.
pub(super) fn is_uuid(text: &str) -> bool {
    text.len() == 36 && uuid::Uuid::try_parse(text).is_ok()
}

/// `a.b: v` becomes `a: {b: v}` where `a` is a field with an inside and the
/// key as a whole is none.
fn expanded(schema: &Schema, input: Map<String, Value>) -> Map<String, Value> {
    if !input.keys().any(|key| key.contains('.')) {
        return input;
    }
    let mut out = Map::new();
    let mut dotted = Vec::new();
    for (key, value) in input {
        match key.split_once('.') {
            Some((first, rest)) if !rest.is_empty() && has_inside(schema, first) => {
                dotted.push((first.to_owned(), rest.to_owned(), key, value));
            }
            _ => {
                out.insert(key, value);
            }
        }
    }
    for (first, rest, key, value) in dotted {
        let inside = out
            .entry(first)
            .or_insert_with(|| Value::Object(Map::new()));
        match inside {
            Value::Object(map) => {
                map.insert(rest, value);
            }
            // Contradicts the whole that was sent too: an unknown field.
            _ => {
                out.insert(key, value);
            }
        }
    }
    out
}

fn has_inside(schema: &Schema, name: &str) -> bool {
    schema.field_or_alias(name).is_some_and(|field| {
        matches!(
            field.kind,
            Type::Record(_) | Type::Map(_) | Type::Members(..) | Type::Foreign(_) | Type::Any
        )
    })
}

/// Lists of single values can be written with commas.
fn splits(of: &Type) -> bool {
    matches!(
        of,
        Type::String(_)
            | Type::Integer(..)
            | Type::Choice(_)
            | Type::Number
            | Type::Between(..)
            | Type::Boolean
    )
}

/// The elements that one text stands for: its parts between commas. Expressions and
/// patterns have commas in brackets: these count only where all parts are elements.
fn elements(of: &Type, text: &str) -> Vec<String> {
    let parts = split(text, false);
    if let Type::String(kind) = of {
        let are_elements = |parts: &[String]| {
            let mut parts = parts.iter();
            parts.all(|part| kind.violation(part).is_none())
        };
        let outside = split(text, true);
        if !are_elements(&parts) && are_elements(&outside) {
            return outside;
        }
    }
    parts
}

/// The parts between commas, or those `outside` of brackets alone; trimmed, empty ones
/// dropped. `\,` is a comma.
fn split(text: &str, outside: bool) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0_usize;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let part = parts.last_mut().expect("there is always a part");
        match c {
            '\\' if chars.peek() == Some(&',') => {
                chars.next();
                part.push(',');
            }
            ',' if depth == 0 || !outside => parts.push(String::new()),
            c => {
                match c {
                    '(' | '[' | '{' => depth += 1,
                    ')' | ']' | '}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                part.push(c);
            }
        }
    }
    parts
        .iter()
        .map(|part| part.trim().to_owned())
        .filter(|part| !part.is_empty())
        .collect()
}

fn number(text: String) -> Value {
    let trimmed = text.trim();
    if let Ok(integer) = trimmed.parse::<i64>() {
        return integer.into();
    }
    match trimmed.parse::<f64>().ok().and_then(Number::from_f64) {
        Some(float) => Value::Number(float),
        None => Value::String(text),
    }
}

/// A form's value for a field of any type.
fn any(value: Value) -> Value {
    match value {
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(typed @ (Value::Number(_) | Value::Bool(_))) => typed,
            _ => Value::String(text),
        },
        Value::Array(list) => list.into_iter().map(any).collect(),
        Value::Object(map) => map.into_iter().map(|(k, v)| (k, any(v))).collect(),
        value => value,
    }
}

fn without_repetition(value: Value) -> Value {
    match value {
        Value::Array(list) => {
            let mut seen = std::collections::HashSet::new();
            list.into_iter()
                .filter(|item| seen.insert(item.to_string()))
                .collect()
        }
        value => value,
    }
}
