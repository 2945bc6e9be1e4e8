//! The `properties` of a route file, as tokens and expressions see them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::build_context::BuildContext;
use super::evaluated;
use doorward_core::yaml::{PathSegment, Sources};
use doorward_expr::Constants;

/// Deepest chain of properties that refer to one another.
const MAX_CHAIN: usize = 32;

/// What is wrong with a property: where, and what.
pub(super) type Fault = (Vec<PathSegment>, String);

/// Names with their values: those of a file, over those around it.
#[derive(Debug, Clone, Default)]
pub(super) struct Properties {
    values: Map<String, Value>,
}

impl Properties {
    /// What the process says of itself, as far as it is known.
    pub(super) fn of_process(values: Map<String, Value>) -> Self {
        Self { values }
    }

    /// The properties that a file of `directory` declares, over `outer`.
    pub(super) fn read(
        declared: Map<String, Value>,
        outer: &Properties,
        context: &BuildContext<'_>,
        directory: &std::path::Path,
        faults: &mut Vec<Fault>,
    ) -> Self {
        let reading = Reading {
            declared: &declared,
            outer,
            context,
            directory,
            known: RefCell::default(),
            depth: Cell::new(0),
        };
        let mut own = Map::new();
        let path = [PathSegment::from("properties")];
        for (name, value) in &declared {
            let path = [path[0].clone(), name.as_str().into()];
            let mut value = value.clone();
            // What is declared here may mean the same name further out.
            faults.extend(reading.resolve(&mut value, Some(name), &path));
            own.insert(name.clone(), value);
        }
        evaluated::evaluate(&mut own, &outer.values, context, faults);
        let mut values = outer.values.clone();
        values.extend(own);
        Self { values }
    }

    /// The text that `&{name}` stands for.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        text_of(find(&self.values, name)?)
    }

    /// The properties, as constants of expressions.
    pub(super) fn constants(&self, context: &BuildContext<'_>) -> Arc<Constants> {
        let constants = Constants::new(self.values.clone()).with_files().leniently();
        Arc::new(constants.witnessed(context.witness()))
    }

    /// Those of the properties that `text` names, maybe.
    pub(super) fn named_in(&self, text: &str) -> Value {
        let named = self.values.iter();
        let named = named.filter(|(name, _)| text.contains(name.as_str()));
        Value::Object(named.map(|(k, v)| (k.clone(), v.clone())).collect())
    }
}

/// Properties while they refer to one another.
struct Reading<'a> {
    declared: &'a Map<String, Value>,
    outer: &'a Properties,
    context: &'a BuildContext<'a>,
    directory: &'a std::path::Path,
    /// What names have turned out to be; `None` while that is found out.
    known: RefCell<HashMap<String, Option<Result<Option<String>, String>>>>,
    depth: Cell<usize>,
}

impl Reading<'_> {
    /// Resolves the tokens of `value`, in which `own` is not the name itself.
    fn resolve(&self, value: &mut Value, own: Option<&str>, path: &[PathSegment]) -> Vec<Fault> {
        let properties = |name: &str| match own {
            Some(own) if name == own => Ok(self.outer.text(name)),
            _ => self.text(name),
        };
        let environment = |name: &str| (self.context.environment)(name);
        let sources = Sources::new(self.directory, &properties, &environment);
        let faults = sources.resolve(value, path);
        self.context.met(sources);
        faults
    }

    fn text(&self, name: &str) -> Result<Option<String>, String> {
        match self.known.borrow().get(name) {
            Some(Some(known)) => return known.clone(),
            // A property that means itself means what is further out.
            Some(None) => return Ok(self.outer.text(name)),
            None => {}
        }
        let Some(declared) = find(self.declared, name) else {
            return Ok(self.outer.text(name));
        };
        if self.depth.get() == MAX_CHAIN {
            return Err(format!(
                "properties refer to one another more than {MAX_CHAIN} times in a row"
            ));
        }
        self.depth.set(self.depth.get() + 1);
        self.known.borrow_mut().insert(name.to_owned(), None);
        let mut value = declared.clone();
        let faults = self.resolve(&mut value, Some(name), &[]);
        let known = match faults.into_iter().next() {
            Some((_, message)) => Err(format!("property '{name}': {message}")),
            None => Ok(text_of(&value)),
        };
        self.depth.set(self.depth.get() - 1);
        self.known
            .borrow_mut()
            .insert(name.to_owned(), Some(known.clone()));
        known
    }
}

/// The value called `name`: a key, or keys with dots between them.
fn find<'a>(values: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    if let Some(value) = values.get(name) {
        return Some(value);
    }
    name.match_indices('.').find_map(|(at, _)| {
        let inner = values.get(&name[..at])?.as_object()?;
        find(inner, &name[at + 1..])
    })
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// The properties of a file as `name=value` lines.
pub(super) fn of_lines(text: &str) -> Map<String, Value> {
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with(['#', '!']))
        .filter_map(|line| line.split_once(['=', ':']))
        .map(|(name, value)| (name.trim().to_owned(), value.trim().into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::super::build_context::testing;
    use super::*;

    fn read(declared: &Value, outer: &Properties) -> (Properties, Vec<String>) {
        let mut faults = Vec::new();
        let context = testing::context(&|name| (name == "PORT").then(|| "8080".to_owned()));
        let declared = declared.as_object().expect("an object").clone();
        let read = Properties::read(declared, outer, &context, Path::new(""), &mut faults);
        (
            read,
            faults.into_iter().map(|(_, message)| message).collect(),
        )
    }

    #[test]
    fn properties_are_found_by_key_and_by_dots() {
        let (read, faults) = read(
            &json!({"a": {"b": 6, "c.d": true}, "e.f": "x", "l": [1]}),
            &Properties::default(),
        );
        assert!(faults.is_empty(), "{faults:?}");
        for (name, text) in [("a.b", "6"), ("a.c.d", "true"), ("e.f", "x"), ("l", "[1]")] {
            assert_eq!(read.text(name).as_deref(), Some(text));
        }
        assert_eq!(read.text("a.x"), None);
    }

    #[test]
    fn properties_may_refer_to_one_another_and_to_what_is_around_them() {
        let (outer, _) = read(&json!({"base": "out", "n": 1}), &Properties::default());
        let declared = json!({
            "base": "&{base}/in", "port": "&{port|1}", "url": "&{base}:&{port}", "n": {"$int": "&{n}"},
        });
        let (inner, faults) = read(&declared, &outer);
        assert!(faults.is_empty(), "{faults:?}");
        assert_eq!(inner.text("url").as_deref(), Some("out/in:8080"));
        assert_eq!(inner.named_in("n"), json!({"n": 1}));
    }

    #[test]
    fn circles_and_bombs_end() {
        let (_, faults) = read(&json!({"a": "&{b}", "b": "&{a}"}), &Properties::default());
        assert!(!faults.is_empty());
        let mut bomb = Map::new();
        bomb.insert("p0".to_owned(), "x".repeat(100).into());
        for i in 1..60 {
            let before = format!("&{{p{}}}&{{p{}}}", i - 1, i - 1);
            bomb.insert(format!("p{i}"), before.into());
        }
        let (_, faults) = read(&Value::Object(bomb), &Properties::default());
        assert!(
            faults.iter().any(|fault| fault.contains("bytes")),
            "{faults:?}"
        );
    }

    #[test]
    fn lines_are_properties_too() {
        let read = of_lines("# c\n a.b = 1\n\n! c\nx: y\n");
        assert_eq!(Value::Object(read), json!({"a.b": "1", "x": "y"}));
    }
}
