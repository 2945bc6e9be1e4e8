//! What a document says about itself, and about all of its records.

use serde_json::{Map, Value};

use super::collect::DocumentReport;
use crate::entities::{Kind, Scheme};
use doorward_core::yaml::PathSegment;
use doorward_plugins::basic_auth;

/// Keys that tools put into files, and which may hold anything.
const COMMENTS: &[&str] = &["_comment", "_ignore"];

/// What a service's `url` stands for.
const URL_FIELDS: &[&str] = &["protocol", "host", "port", "path"];

/// The parts of a document that apply to its records.
#[derive(Debug, Default)]
pub(super) struct Header {
    /// Whether expressions among paths have no `~` yet (before format 3.0).
    pub(super) pathsigns: bool,
    /// Whether passwords are the hashes of the imitated gateway.
    hashed: bool,
    /// Put among the tags of every record.
    tags: Vec<Value>,
    /// Values for fields that records leave out, by the kind's singular.
    defaults: Map<String, Value>,
    /// Configurations that plugins can name.
    configs: Map<String, Value>,
}

/// Whether a key declares nothing.
pub(super) fn is_comment(key: &str) -> bool {
    COMMENTS.contains(&key)
}

impl Header {
    /// Takes the header out of a document. `None`: what it is can't be told,
    /// and so nothing is to be looked for in it.
    pub(super) fn take(
        root: &mut Map<String, Value>,
        report: &mut DocumentReport<'_>,
    ) -> Option<Self> {
        let mut header = Self::default();
        match root.remove("_format_version") {
            Some(Value::String(version)) if version == "3.0" => {}
            Some(Value::String(version)) if version == "1.1" || version == "2.1" => {
                header.pathsigns = true;
            }
            Some(_) => report.wrong(
                &["_format_version".into()],
                "expected one of: \"1.1\", \"2.1\", \"3.0\" (a text, in quotes)",
            ),
            None => {
                report.wrong(&[], "required field missing: _format_version: \"3.0\"");
                return None;
            }
        }
        match root.remove("_transform") {
            None | Some(Value::Null | Value::Bool(true)) => {}
            Some(Value::Bool(false)) => header.hashed = true,
            Some(_) => report.wrong(&["_transform".into()], "expected a boolean"),
        }
        match root.remove("_workspace") {
            None | Some(Value::Null) => {}
            Some(Value::String(name)) if name == "default" => {}
            Some(_) => report.wrong(&["_workspace".into()], "expected one of: default"),
        }
        if let Some(configs) = root.remove("_plugin_configs") {
            header.configs = mapping(configs, &["_plugin_configs".into()], report);
        }
        if let Some(info) = root.remove("_info") {
            header.info(info, report);
        }
        Some(header)
    }

    fn info(&mut self, info: Value, report: &mut DocumentReport<'_>) {
        for (key, value) in mapping(info, &["_info".into()], report) {
            let path: [PathSegment; 2] = ["_info".into(), key.as_str().into()];
            match key.as_str() {
                "select_tags" => self.tags = tags(value, &path, report),
                "defaults" => self.defaults = defaults(value, &path, report),
                // Says where else the tool looks, not what there is to be.
                "default_lookup_tags" => {}
                _ => report.wrong(
                    &path,
                    "unknown field; expected one of: defaults, select_tags, default_lookup_tags",
                ),
            }
        }
    }

    /// Applies itself to a record of this kind.
    pub(super) fn apply(
        &self,
        kind: Kind,
        record: &mut Map<String, Value>,
    ) -> Result<(), (&'static str, String)> {
        if self.pathsigns && kind == Kind::Route {
            mark_expressions(record);
        }
        if kind == Kind::Plugin {
            self.share_config(record)?;
        }
        if kind == Kind::Credential(Scheme::BasicAuth) && self.hashed {
            mark_hash(record)?;
        }
        if let Some(Value::Object(defaults)) = self.defaults.get(kind.singular()) {
            // An URL says these four, as surely as the fields themselves.
            let by_url = kind == Kind::Service && record.contains_key("url");
            let said = |field: &str| by_url && URL_FIELDS.contains(&field);
            fill(record, defaults, said);
        }
        if !self.tags.is_empty() {
            match record.entry("tags").or_insert(Value::Null) {
                slot @ Value::Null => *slot = Value::Array(self.tags.clone()),
                Value::Array(tags) => {
                    let missing = self.tags.iter().filter(|tag| !tags.contains(tag));
                    let missing: Vec<Value> = missing.cloned().collect();
                    tags.extend(missing);
                }
                // The schema says what is wrong with it.
                _ => {}
            }
        }
        Ok(())
    }

    /// `_config` names what a plugin's own `config` does not say.
    fn share_config(&self, plugin: &mut Map<String, Value>) -> Result<(), (&'static str, String)> {
        let name = match plugin.remove("_config") {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::String(name)) => name,
            Some(_) => return Err(("_config", "expected a string".to_owned())),
        };
        let Some(Value::Object(shared)) = self.configs.get(&name) else {
            return Err(("_config", format!("no '{name}' among _plugin_configs")));
        };
        let slot = plugin.entry("config").or_insert(Value::Null);
        if slot.is_null() {
            *slot = Value::Object(Map::new());
        }
        if let Value::Object(config) = slot {
            for (key, value) in shared {
                config.entry(key.as_str()).or_insert_with(|| value.clone());
            }
        }
        Ok(())
    }
}

fn mapping(
    value: Value,
    path: &[PathSegment],
    report: &mut DocumentReport<'_>,
) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        Value::Null => Map::new(),
        _ => {
            report.wrong(path, "expected a mapping");
            Map::new()
        }
    }
}

fn tags(value: Value, path: &[PathSegment], report: &mut DocumentReport<'_>) -> Vec<Value> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(tags) if tags.iter().all(Value::is_string) => tags,
        _ => {
            report.wrong(path, "expected an array of strings");
            Vec::new()
        }
    }
}

fn defaults(
    value: Value,
    path: &[PathSegment],
    report: &mut DocumentReport<'_>,
) -> Map<String, Value> {
    let defaults = mapping(value, path, report);
    for (key, of_kind) in &defaults {
        let mut path = path.to_vec();
        path.push(key.as_str().into());
        if !Kind::ALL.iter().any(|kind| kind.singular() == key) {
            let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.singular()).collect();
            let message = format!("unknown field; expected one of: {}", known.join(", "));
            report.wrong(&path, message);
        } else if !of_kind.is_object() {
            report.wrong(&path, "expected a mapping");
        }
    }
    defaults
}

/// Puts in what is absent, in nested records too.
fn fill(
    record: &mut Map<String, Value>,
    defaults: &Map<String, Value>,
    said: impl Fn(&str) -> bool,
) {
    for (key, default) in defaults.iter().filter(|(key, _)| !said(key)) {
        match (record.get_mut(key), default) {
            (None, _) => {
                record.insert(key.clone(), default.clone());
            }
            (Some(Value::Object(inside)), Value::Object(defaults)) => {
                fill_inside(inside, defaults);
            }
            (Some(_), _) => {}
        }
    }
}

fn fill_inside(record: &mut Map<String, Value>, defaults: &Map<String, Value>) {
    fill(record, defaults, |_: &str| false);
}

/// A password that is a hash already is marked as one.
fn mark_hash(record: &mut Map<String, Value>) -> Result<(), (&'static str, String)> {
    let Some(Value::String(password)) = record.get_mut("password") else {
        return Ok(());
    };
    if basic_auth::is_legacy_hash(password) {
        password.insert_str(0, basic_auth::LEGACY);
    } else if !basic_auth::is_hash(password) {
        let message = "expected a hash, since _transform is false";
        return Err(("password", message.to_owned()));
    }
    Ok(())
}

/// Before format 3.0 a path was an expression if it looked like one.
fn mark_expressions(route: &mut Map<String, Value>) {
    let Some(Value::Array(paths)) = route.get_mut("paths") else {
        return;
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "._~/%-".contains(c);
    for path in paths {
        if let Value::String(path) = path
            && !path.chars().all(plain)
        {
            path.insert(0, '~');
        }
    }
}
