//! Where records come from, with the line. Records know their file only: the
//! line is looked up in the file when somebody asks.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ahash::RandomState;
use serde_json::{Map, Value};

use super::answer::From;
use crate::entities::{Entities, Entity, Origin, Record};
use doorward_core::yaml::{Document, PathSegment};

/// The line of the file that declares the record; `None`: the store has it, or the file
/// tells no more.
pub fn declared_line<T: Entity>(entities: &Entities, record: &Record<T>) -> Option<usize> {
    match Origins::new(entities).of(record) {
        From::File { line, .. } => line,
        From::Api => None,
    }
}

/// Looks up lines, and reads each file once.
pub(super) struct Origins<'a> {
    entities: &'a Entities,
    files: HashMap<PathBuf, Option<Document>, RandomState>,
}

impl<'a> Origins<'a> {
    pub(super) fn new(entities: &'a Entities) -> Self {
        Self {
            entities,
            files: HashMap::default(),
        }
    }

    pub(super) fn of<T: Entity>(&mut self, record: &Record<T>) -> From {
        match &record.origin {
            Origin::Store => From::Api,
            Origin::File(file) => From::File {
                file: file.display().to_string(),
                line: self.line(file, record),
            },
        }
    }

    fn line<T: Entity>(&mut self, file: &Path, record: &Record<T>) -> Option<usize> {
        let parse = || {
            let text = std::fs::read_to_string(file).ok()?;
            Document::parse_records(&text, file).ok()
        };
        let known = self.files.entry(file.to_owned());
        let document = known.or_insert_with(parse).as_ref()?;
        let search = RecordSearch {
            plural: T::KIND.plural(),
            doc: record.doc(),
            entities: self.entities,
        };
        let path = search.find(document.value(), &mut Vec::new(), &mut Vec::new())?;
        document.line_of(&path)
    }
}

/// The search for a record in a file.
struct RecordSearch<'a> {
    plural: &'static str,
    doc: Map<String, Value>,
    entities: &'a Entities,
}

/// What tells routes without a name apart.
const ATTRIBUTES: &[&str] = &["hosts", "paths", "methods", "headers", "snis"];

impl RecordSearch<'_> {
    /// The path of the record under `value`; `around` are the records that
    /// it is nested in.
    fn find<'v>(
        &self,
        value: &'v Value,
        path: &mut Vec<PathSegment>,
        around: &mut Vec<&'v Value>,
    ) -> Option<Vec<PathSegment>> {
        for (key, list) in value.as_object()? {
            let Value::Array(list) = list else { continue };
            path.push(key.as_str().into());
            for (index, item) in list.iter().enumerate() {
                path.push(index.into());
                if key == self.plural && self.is(item, around) {
                    return Some(path.clone());
                }
                if item.is_object() {
                    around.push(item);
                    let found = self.find(item, path, around);
                    around.pop();
                    if found.is_some() {
                        return found;
                    }
                }
                path.pop();
            }
            path.pop();
        }
        None
    }

    fn is(&self, item: &Value, around: &[&Value]) -> bool {
        let same = |field: &str| item.get(field) == self.doc.get(field);
        if item.get("id").is_some() {
            return same("id");
        }
        match self.plural {
            "plugins" => same("name") && self.is_attached(item, around),
            _ if item.get("name").is_some() => same("name"),
            _ => {
                let parent = ["service", "route"];
                let parent = parent.iter().all(|field| self.refers(field, item, around));
                parent
                    && ATTRIBUTES.iter().all(|field| {
                        let own = item.get(field).unwrap_or(&Value::Null);
                        own == self.doc.get(*field).unwrap_or(&Value::Null)
                    })
            }
        }
    }

    /// Whether a plugin without an id is for what the sought one is for.
    fn is_attached(&self, item: &Value, around: &[&Value]) -> bool {
        let parents = ["service", "route", "consumer"];
        parents.iter().all(|field| self.refers(field, item, around))
    }

    /// Whether `field` of `item` (or what it is nested in) leads to the same
    /// record as that of the sought one.
    fn refers(&self, field: &str, item: &Value, around: &[&Value]) -> bool {
        let wanted = self
            .doc
            .get(field)
            .and_then(|reference| reference.get("id"));
        let Some(wanted) = wanted.and_then(Value::as_str) else {
            return item.get(field).is_none_or(Value::is_null)
                && (self.plural != "plugins" || !self.is_nested(field, around));
        };
        let name = self.name(field, wanted);
        let is = |value: &Value| {
            let text = |field: &str| value.get(field).and_then(Value::as_str);
            let key = match field {
                "consumer" => "username",
                _ => "name",
            };
            let named = [value.as_str(), text("id"), text(key), text("name")];
            let mut named = named.into_iter().flatten();
            named.any(|text| text == wanted || name.as_deref() == Some(text))
        };
        item.get(field).is_some_and(is) || around.last().is_some_and(|parent| is(parent))
    }

    /// Whether the nearest record around is of the kind that `field` names:
    /// a route is what has nested plugins and none of a service's fields.
    fn is_nested(&self, field: &str, around: &[&Value]) -> bool {
        let Some(parent) = around.last() else {
            return false;
        };
        let has = |field: &str| parent.get(field).is_some();
        let kind = match () {
            () if has("username") || has("custom_id") => "consumer",
            () if has("host") || has("url") => "service",
            () => "route",
        };
        kind == field
    }

    fn name(&self, field: &str, id: &str) -> Option<String> {
        let id = id.parse().ok()?;
        match field {
            "service" => self.entities.services.get(id)?.value.name.clone(),
            "route" => self.entities.routes.get(id)?.value.name.clone(),
            "consumer" => self.entities.consumers.get(id)?.value.username.clone(),
            _ => None,
        }
    }
}
