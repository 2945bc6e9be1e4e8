//! What of a record is shown (RFC 7644 §3.9).

use serde_json::{Map, Value};

use doorward_core::model::user::schema::{
    Attribute, ENTERPRISE, ENTERPRISE_URN, Schema, strip_urn,
};

/// Which attributes are shown; identifier and schemas always are.
#[derive(Debug, Default)]
pub(super) struct Projection {
    /// These only, if there is a list.
    only: Option<Vec<&'static Attribute>>,
    except: Vec<&'static Attribute>,
}

const ALWAYS: [&str; 2] = ["id", "schemas"];

/// What is shown on request only where records are the standard's own: made of
/// what stands beside it, and nothing that a client has written.
pub(super) const ON_REQUEST: [&str; 2] = ["addresses.formatted", "members.display"];

/// Most names that are looked at.
const NAMES_MAX: usize = 200;

impl Projection {
    /// Reads lists of names, separated by commas. Unknown ones name nothing.
    pub(super) fn read(schema: &'static Schema, only: Option<&str>, except: Option<&str>) -> Self {
        let read = |names: &str| -> Vec<&'static Attribute> {
            let names = names.split(',').take(NAMES_MAX).map(str::trim);
            names.filter_map(|name| resolve(schema, name)).collect()
        };
        let only = only.filter(|names| !names.split(',').any(|name| name.trim() == "*"));
        Self {
            only: only.map(read),
            except: except.map(read).unwrap_or_default(),
        }
    }

    /// Whether anything of this attribute is shown.
    pub(super) fn wants(&self, path: &str) -> bool {
        let below = |attribute: &&&Attribute| attribute.path.split('.').next() == Some(path);
        let only = self.only.as_ref();
        let asked = only.is_none_or(|only| only.iter().any(|one| below(&one)));
        asked && !self.except.iter().any(|one| one.path == path)
    }

    /// Whether the client asked for attributes by name.
    pub(super) fn is_asked(&self) -> bool {
        self.only.is_some()
    }

    /// Removes from `record` what is not shown; `standard`: it is the standard's
    /// own.
    pub(super) fn apply(&self, schema: &Schema, record: &mut Map<String, Value>, standard: bool) {
        if standard {
            self.hide(record);
        }
        if self.only.is_none() && self.except.is_empty() {
            return;
        }
        let names: Vec<String> = record.keys().cloned().collect();
        for name in names {
            if ALWAYS.contains(&name.as_str()) {
                continue;
            }
            let Some(attribute) = schema.member(&name) else {
                continue;
            };
            let keep = match record.get_mut(&name) {
                Some(value) => self.keep(schema, attribute, value),
                None => true,
            };
            if !keep {
                record.remove(&name);
            }
        }
    }

    /// Removes what nobody requested.
    fn hide(&self, record: &mut Map<String, Value>) {
        for path in ON_REQUEST {
            let mut only = self.only.iter().flatten();
            let Some((name, part)) = path.split_once('.') else {
                continue;
            };
            if only.any(|one| one.path == path) {
                continue;
            }
            let values = record.get_mut(name).and_then(Value::as_array_mut);
            for value in values.into_iter().flatten() {
                if let Some(members) = value.as_object_mut() {
                    members.remove(part);
                }
            }
        }
    }

    /// Whether the value is shown; removes parts that are not.
    fn keep(&self, schema: &Schema, attribute: &'static Attribute, value: &mut Value) -> bool {
        if self.except.iter().any(|one| one.path == attribute.path) {
            return false;
        }
        let whole = self.only.as_ref().is_none_or(|only| {
            let covers = |one: &&Attribute| {
                let rest = attribute.path.strip_prefix(one.path);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            only.iter().any(covers)
        });
        let below = |one: &&Attribute| {
            let rest = one.path.strip_prefix(attribute.path);
            rest.is_some_and(|rest| rest.starts_with('.'))
        };
        let only = self.only.iter().flatten();
        let parts = only.chain(&self.except).copied().any(|one| below(&one));
        if parts {
            self.keep_parts(schema, attribute, value);
        }
        let empty = match value {
            Value::Object(members) => members.is_empty(),
            Value::Array(values) => values.is_empty(),
            _ => false,
        };
        whole || (parts && !empty)
    }

    fn keep_parts(&self, schema: &Schema, attribute: &'static Attribute, value: &mut Value) {
        match value {
            Value::Object(members) => members.retain(|name, value| {
                let part = schema.part(attribute, name);
                part.is_none_or(|part| self.keep(schema, part, value))
            }),
            Value::Array(values) => {
                for value in values.iter_mut() {
                    self.keep_parts(schema, attribute, value);
                }
                values.retain(|value| value != &Value::Object(Map::new()));
            }
            _ => {}
        }
    }
}

/// The attribute that a client calls so: with dots or as a JSON pointer, with
/// its URN or without.
fn resolve(schema: &'static Schema, name: &str) -> Option<&'static Attribute> {
    if name.eq_ignore_ascii_case(ENTERPRISE_URN) {
        return schema.find(ENTERPRISE);
    }
    if let Some(rest) = strip_urn(name, ENTERPRISE_URN) {
        return schema.find(&format!("{ENTERPRISE}.{rest}"));
    }
    let bare = strip_urn(name, schema.urn).unwrap_or(name);
    schema.find(&bare.trim_start_matches('/').replace('/', "."))
}
