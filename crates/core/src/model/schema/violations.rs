//! Everything that is wrong with a record, by field.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::model::key_path::PathSegment;

/// What is wrong with a record: by field, nested as the record is, and about
/// the record as a whole. The shape of `fields` in error bodies
/// (gateway-admin-api §4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations {
    entity: Vec<String>,
    /// About the record that this one is a field of.
    holder: Vec<String>,
    /// About the record as one value.
    whole: Option<String>,
    fields: BTreeMap<String, Violation>,
}

/// What is wrong with one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The value itself.
    Message(String),
    /// Fields of the record that it is.
    Record(Violations),
    /// Elements of the list that it is, counted from zero.
    List(BTreeMap<usize, Violation>),
}

impl From<&str> for Violation {
    fn from(message: &str) -> Self {
        Self::Message(message.to_owned())
    }
}

impl From<String> for Violation {
    fn from(message: String) -> Self {
        Self::Message(message)
    }
}

impl Violations {
    /// One field at a dotted path (`config.rate.duration`), list elements by
    /// their position from one.
    pub fn of(path: &str, message: impl Into<String>) -> Self {
        let mut violations = Self::default();
        let (first, rest) = match path.split_once('.') {
            Some((first, rest)) => (first, Some(rest)),
            None => (path, None),
        };
        let inner = match rest {
            None => Violation::Message(message.into()),
            Some(rest) => match rest.split_once('.').unwrap_or((rest, "")) {
                (position, after) if as_position(position).is_some() => {
                    let position = as_position(position).unwrap_or(1);
                    let element = if after.is_empty() {
                        Violation::Message(message.into())
                    } else {
                        Violation::Record(Self::of(after, message))
                    };
                    Violation::List(BTreeMap::from([(position - 1, element)]))
                }
                _ => Violation::Record(Self::of(rest, message)),
            },
        };
        violations.put(first, inner);
        violations
    }

    /// Notes what is wrong with a field; the first finding stays. What a record in it
    /// says of its holder is noted of this one.
    pub fn put(&mut self, field: &str, violation: impl Into<Violation>) {
        let violation = match violation.into() {
            Violation::Record(mut inside) => {
                self.entity.append(&mut inside.holder);
                match inside.whole.take() {
                    Some(message) if inside.fields.is_empty() => Violation::Message(message),
                    _ if inside.is_empty() => return,
                    _ => Violation::Record(inside),
                }
            }
            violation => violation,
        };
        self.fields.entry(field.to_owned()).or_insert(violation);
    }

    /// Notes what is wrong with a field by the value of another one, in the place of what
    /// is wrong with it by itself.
    pub fn put_conditional(&mut self, given: &str, field: &str, message: String) {
        self.put_entity(failed_condition(given));
        self.fields.insert(field.to_owned(), message.into());
    }

    /// Notes what is wrong with the record as a whole.
    pub fn put_entity(&mut self, message: impl Into<String>) {
        self.entity.push(message.into());
    }

    /// Notes what is wrong with the record that this one is a field of: a rule on a
    /// plugin's `config` is most often one of the plugin.
    pub fn put_holder(&mut self, message: impl Into<String>) {
        self.holder.push(message.into());
    }

    /// Notes what is wrong with the record as one value. It is said if its fields are
    /// right, and the first finding stays.
    pub fn put_whole(&mut self, message: impl Into<String>) {
        self.whole.get_or_insert_with(|| message.into());
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.about_all().next().is_none() && self.fields.is_empty()
    }

    /// The findings that are of no single field. A record that stands alone has no
    /// holder and is no value: whatever was said so is of it.
    fn about_all(&self) -> impl Iterator<Item = &String> {
        self.entity.iter().chain(&self.holder).chain(&self.whole)
    }

    /// Whether something is wrong with this field.
    pub fn has(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    /// `value`, if nothing is wrong.
    ///
    /// # Errors
    /// The violations, if there are any.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() {
            Ok(value)
        } else {
            Err(self)
        }
    }

    /// One line: `schema violation (host: required field missing)`, or
    /// `2 schema violations (…; …)`.
    pub fn message(&self) -> String {
        let lines: Vec<String> = self
            .flat()
            .into_iter()
            .map(|(path, message)| match dotted(&path) {
                path if path.is_empty() => message,
                path => format!("{path}: {message}"),
            })
            .collect();
        match lines.as_slice() {
            [one] => format!("schema violation ({one})"),
            many => format!("{} schema violations ({})", many.len(), many.join("; ")),
        }
    }

    /// The findings one by one, those on a record as a whole first, with the
    /// path to each.
    pub fn flat(&self) -> Vec<(Vec<PathSegment>, String)> {
        let mut out = Vec::new();
        self.flatten(&mut Vec::new(), &mut out);
        out
    }

    fn flatten(&self, path: &mut Vec<PathSegment>, out: &mut Vec<(Vec<PathSegment>, String)>) {
        for message in self.about_all() {
            out.push((path.clone(), message.clone()));
        }
        for (field, violation) in &self.fields {
            path.push(field.as_str().into());
            violation.flatten(path, out);
            path.pop();
        }
    }

    /// The `fields` of an error body: nested like the record, findings on a
    /// record as a whole under `@entity`.
    pub fn to_json(&self) -> Map<String, Value> {
        let mut map = Map::new();
        let of_all: Vec<Value> = self.about_all().cloned().map(Value::from).collect();
        if !of_all.is_empty() {
            map.insert("@entity".to_owned(), of_all.into());
        }
        for (field, violation) in &self.fields {
            map.insert(field.clone(), violation.to_json());
        }
        map
    }
}

impl Violation {
    fn flatten(&self, path: &mut Vec<PathSegment>, out: &mut Vec<(Vec<PathSegment>, String)>) {
        match self {
            Self::Message(message) => out.push((path.clone(), message.clone())),
            Self::Record(violations) => violations.flatten(path, out),
            Self::List(elements) => {
                for (index, violation) in elements {
                    path.push((*index).into());
                    violation.flatten(path, out);
                    path.pop();
                }
            }
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Self::Message(message) => Value::from(message.as_str()),
            Self::Record(violations) => Value::Object(violations.to_json()),
            // Elements before the wrong one are null: positions are kept.
            Self::List(elements) => {
                let len = elements.keys().next_back().map_or(0, |last| last + 1);
                (0..len)
                    .map(|index| elements.get(&index).map_or(Value::Null, Self::to_json))
                    .collect()
            }
        }
    }
}

/// The finding on a record where a field's value makes another one wrong, which is
/// noted of that other field.
pub fn failed_condition(field: &str) -> String {
    format!("failed conditional validation given value of field '{field}'")
}

/// Longest list of which an element is told by its position: a key of the
/// user's own may look like one, and the answer must not be as long as it says.
const POSITIONS: usize = 1000;

/// A part of a dotted path that is a position in a list, counted from one.
pub fn as_position(part: &str) -> Option<usize> {
    let position = part.parse().ok()?;
    (1..=POSITIONS).contains(&position).then_some(position)
}

/// `config.rates.1.duration`: positions count from one, as clients know it.
fn dotted(path: &[PathSegment]) -> String {
    let parts: Vec<String> = path
        .iter()
        .map(|segment| match segment {
            PathSegment::Key(key) => key.clone(),
            PathSegment::Index(index) => (index + 1).to_string(),
        })
        .collect();
    parts.join(".")
}
