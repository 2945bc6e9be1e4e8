//! Text to values, and paths to lines.

use std::cell::Cell;
use std::fmt;
use std::path::Path;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IgnoredAny, MapAccess, SeqAccess,
    Visitor,
};
use serde_json::{Map, Number, Value};

use super::PathSegment;

/// Deepest nesting of mappings and sequences.
const MAX_DEPTH: usize = 100;
/// What one value costs besides its text, in bytes, roughly as in memory.
const NODE_COST: usize = 64;
/// Aliases may not expand a document beyond this many times its text…
const MAX_EXPANSION: usize = 32;
/// …unless it is small.
const FREE_EXPANSION: usize = 16 << 20;

/// The language of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    Yaml,
    Json,
}

/// A text that is not a document.
#[derive(Debug)]
pub(super) struct ParseError {
    pub(super) line: Option<usize>,
    pub(super) message: String,
}

impl Syntax {
    pub(super) fn of(file: &Path) -> Self {
        match file.extension() {
            Some(extension) if extension.eq_ignore_ascii_case("json") => Self::Json,
            _ => Self::Yaml,
        }
    }
}

/// The value of a text; an empty one is an empty mapping.
pub(super) fn value(text: &str, syntax: Syntax) -> Result<Value, ParseError> {
    let budget = Cell::new(FREE_EXPANSION + MAX_EXPANSION * text.len());
    let seed = Node {
        budget: &budget,
        depth: 0,
    };
    let value = match syntax {
        Syntax::Yaml if is_blank(text) => Value::Null,
        Syntax::Yaml => seed
            .deserialize(serde_yaml::Deserializer::from_str(text))
            .map_err(|error| yaml_error(text, &error))?,
        Syntax::Json if text.trim().is_empty() => Value::Null,
        Syntax::Json => {
            let mut json = serde_json::Deserializer::from_str(text);
            seed.deserialize(&mut json)
                .and_then(|value| json.end().map(|()| value))
                .map_err(|error| ParseError {
                    line: Some(error.line()),
                    message: error.to_string(),
                })?
        }
    };
    Ok(match value {
        Value::Null => Value::Object(Map::new()),
        value => value,
    })
}

/// Whether a YAML text holds no document at all.
fn is_blank(text: &str) -> bool {
    text.trim_start_matches('\u{feff}')
        .lines()
        .map(str::trim)
        .all(|line| line.is_empty() || line == "---" || line.starts_with('#'))
}

fn yaml_error(text: &str, error: &serde_yaml::Error) -> ParseError {
    let line = error.location().map(|location| location.line());
    let mut message = error.to_string();
    if let Some(at) = message.rfind(" at line ").filter(|_| line.is_some()) {
        // The place is told in front; what follows it (", while parsing …")
        // tells where the surrounding construct began and stays.
        let rest = message[at..]
            .find(',')
            .map(|comma| message[at + comma..].to_owned());
        message.truncate(at);
        message.push_str(&rest.unwrap_or_default());
    }
    let culprit = line.and_then(|line| text.lines().nth(line.saturating_sub(1)));
    if culprit.is_some_and(|line| line.contains(": &{") || line.contains("- &{")) {
        message.push_str(" (a value that begins with a configuration token needs quotes)");
    }
    ParseError { line, message }
}

/// The line of the value at exactly `path`.
pub(super) fn line_of(text: &str, syntax: Syntax, path: &[PathSegment]) -> Option<usize> {
    if path.is_empty() {
        return Some(1);
    }
    let seed = Locate { path };
    match syntax {
        Syntax::Yaml => seed
            .deserialize(serde_yaml::Deserializer::from_str(text))
            .err()
            .filter(|error| error.to_string().contains(FOUND))
            .and_then(|error| Some(error.location()?.line())),
        Syntax::Json => seed
            .deserialize(&mut serde_json::Deserializer::from_str(text))
            .err()
            .filter(|error| error.to_string().contains(FOUND))
            .map(|error| error.line()),
    }
}

/// Builds a value within a budget.
#[derive(Clone, Copy)]
struct Node<'a> {
    budget: &'a Cell<usize>,
    depth: usize,
}

impl Node<'_> {
    fn pay<E: serde::de::Error>(&self, text: usize) -> Result<(), E> {
        let left = self.budget.get().checked_sub(NODE_COST + text);
        self.budget
            .set(left.ok_or_else(|| E::custom("aliases expand to too much"))?);
        Ok(())
    }

    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth >= MAX_DEPTH {
            return Err(E::custom(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        Ok(Self {
            depth: self.depth + 1,
            ..self
        })
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        self.pay(0)?;
        Ok(Value::Null)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        self.pay(0)?;
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.pay(0)?;
        Ok(value.into())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.pay(0)?;
        Ok(value.into())
    }

    // What needs so many bits is no number of ours; whoever reads it says so, and
    // where it stands.
    fn visit_i128<E: serde::de::Error>(self, value: i128) -> Result<Value, E> {
        self.visit_f64(value as f64)
    }

    fn visit_u128<E: serde::de::Error>(self, value: u128) -> Result<Value, E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        self.pay(0)?;
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.pay(value.len())?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.pay(0)?;
        let inner = self.deeper()?;
        let mut list = Vec::new();
        while let Some(value) = access.next_element_seed(inner)? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.pay(0)?;
        let inner = self.deeper()?;
        let mut map = Map::new();
        while let Some(key) = access.next_key_seed(Key { seen: &map })? {
            self.pay(key.len())?;
            let value = access.next_value_seed(inner)?;
            map.insert(key, value);
        }
        merge_anchored(&mut map).map_err(A::Error::custom)?;
        Ok(Value::Object(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, _: A) -> Result<Value, A::Error> {
        Err(A::Error::custom("YAML tags (`!…`) have no meaning here"))
    }
}

/// `<<: *anchor`: the entries of the anchored mappings, where not overridden.
fn merge_anchored(map: &mut Map<String, Value>) -> Result<(), &'static str> {
    let sources = match map.remove("<<") {
        None => return Ok(()),
        Some(Value::Array(list)) => list,
        Some(other) => vec![other],
    };
    for source in sources {
        let Value::Object(source) = source else {
            return Err("only mappings can be merged with `<<`");
        };
        for (key, value) in source {
            map.entry(key).or_insert(value);
        }
    }
    Ok(())
}

/// A mapping's key, as text; refuses one that was there before.
struct Key<'a> {
    seen: &'a Map<String, Value>,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Key<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text as key")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<String, E> {
        if self.seen.contains_key(key) {
            return Err(E::custom(format!("duplicate key '{key}'")));
        }
        Ok(key.to_owned())
    }

    fn visit_bool<E: serde::de::Error>(self, key: bool) -> Result<String, E> {
        self.visit_str(if key { "true" } else { "false" })
    }

    fn visit_i64<E: serde::de::Error>(self, key: i64) -> Result<String, E> {
        self.visit_str(&key.to_string())
    }

    fn visit_u64<E: serde::de::Error>(self, key: u64) -> Result<String, E> {
        self.visit_str(&key.to_string())
    }
}

/// Message of the error by which a look-up says that it has arrived: the
/// library attaches the position to errors, and to nothing else.
const FOUND: &str = "path found";

/// Follows a path and fails where it ends.
#[derive(Clone, Copy)]
struct Locate<'a> {
    path: &'a [PathSegment],
}

impl<'de> DeserializeSeed<'de> for Locate<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Locate<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.path.is_empty() {
            FOUND
        } else {
            "a list or a mapping"
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let Some((segment, rest)) = self.path.split_first() else {
            return Err(A::Error::custom(FOUND));
        };
        let mut at = 0;
        loop {
            let more = if *segment == PathSegment::Index(at) {
                access.next_element_seed(Locate { path: rest })?.is_some()
            } else {
                access.next_element::<IgnoredAny>()?.is_some()
            };
            if !more {
                return Ok(());
            }
            at += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let Some((segment, rest)) = self.path.split_first() else {
            return Err(A::Error::custom(FOUND));
        };
        let key = LocateKey {
            wanted: segment,
            last: rest.is_empty(),
        };
        while let Some(here) = access.next_key_seed(key)? {
            if here {
                access.next_value_seed(Locate { path: rest })?;
            } else {
                access.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// Whether a key is the wanted one; fails on it when it ends the path.
#[derive(Clone, Copy)]
struct LocateKey<'a> {
    wanted: &'a PathSegment,
    last: bool,
}

impl<'de> DeserializeSeed<'de> for LocateKey<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for LocateKey<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text as key")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<bool, E> {
        let here = matches!(self.wanted, PathSegment::Key(wanted) if *wanted == key);
        if here && self.last {
            return Err(E::custom(FOUND));
        }
        Ok(here)
    }

    fn visit_bool<E: serde::de::Error>(self, key: bool) -> Result<bool, E> {
        self.visit_str(if key { "true" } else { "false" })
    }

    fn visit_i64<E: serde::de::Error>(self, key: i64) -> Result<bool, E> {
        self.visit_str(&key.to_string())
    }

    fn visit_u64<E: serde::de::Error>(self, key: u64) -> Result<bool, E> {
        self.visit_str(&key.to_string())
    }
}
