//! From a document to its records, nested ones taken out of their parents.

use serde_json::{Map, Value};

use super::Place;
use crate::yaml::{Document, PathSegment};

/// Keys that tools put into files and that declare nothing.
const TOLERATED: &[&str] = &["_comment", "_ignore", "_transform", "_info", "_workspace"];

/// Entities of the format that can't be served yet.
const LATER: &[&str] = &[
    "consumers",
    "consumer_groups",
    "upstreams",
    "targets",
    "certificates",
    "ca_certificates",
    "snis",
    "vaults",
    "keys",
    "key_sets",
    "partials",
    "acls",
    "basicauth_credentials",
    "hmacauth_secrets",
    "jwt_secrets",
    "keyauth_credentials",
    "oauth2_credentials",
    "filter_chains",
    "licenses",
    "rbac_roles",
];

/// A record that was found, before its references are resolved.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) kind: Kind,
    pub(super) place: Place,
    pub(super) record: Map<String, Value>,
    /// The records around it, as positions in the list of all: they give its
    /// references.
    pub(super) parent: Option<usize>,
}

/// The kinds that can be declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Service,
    Route,
    Plugin,
}

/// Something wrong in a file.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) place: Place,
    pub(super) message: String,
}

impl Kind {
    /// The key under which lists of this kind stand.
    pub(super) fn plural(self) -> &'static str {
        match self {
            Kind::Service => "services",
            Kind::Route => "routes",
            Kind::Plugin => "plugins",
        }
    }

    /// The field by which a nested record refers to its parent.
    pub(super) fn field(self) -> &'static str {
        match self {
            Kind::Service => "service",
            Kind::Route => "route",
            Kind::Plugin => "plugin",
        }
    }

    /// What may be nested in a record of this kind.
    fn children(self) -> &'static [Kind] {
        match self {
            Kind::Service => &[Kind::Route, Kind::Plugin],
            Kind::Route => &[Kind::Plugin],
            Kind::Plugin => &[],
        }
    }
}

/// Appends the records of `document`, parents before their children.
pub(super) fn records(
    index: usize,
    document: &Document,
    pending: &mut Vec<Pending>,
    findings: &mut Vec<Finding>,
) {
    let mut collector = Collector {
        document: index,
        pathsigns: false,
        pending,
        findings,
    };
    match document.value() {
        Value::Object(root) => collector.root(root),
        _ => collector.wrong(&[], "expected a mapping"),
    }
}

struct Collector<'a> {
    document: usize,
    /// Whether expressions among paths have no `~` yet (before format 3.0).
    pathsigns: bool,
    pending: &'a mut Vec<Pending>,
    findings: &'a mut Vec<Finding>,
}

impl Collector<'_> {
    fn wrong(&mut self, path: &[PathSegment], message: impl Into<String>) {
        self.findings.push(Finding {
            place: Place {
                document: self.document,
                path: path.to_vec(),
            },
            message: message.into(),
        });
    }

    fn root(&mut self, root: &Map<String, Value>) {
        match root.get("_format_version") {
            Some(Value::String(version)) if version == "3.0" => {}
            Some(Value::String(version)) if version == "1.1" || version == "2.1" => {
                self.pathsigns = true;
            }
            Some(_) => self.wrong(
                &["_format_version".into()],
                "expected one of: \"1.1\", \"2.1\", \"3.0\" (a text, in quotes)",
            ),
            None if root.contains_key("handler") || root.contains_key("baseURI") => {
                let message = "route files (name, baseURI, condition, handler) can't be read yet";
                return self.wrong(&[], message);
            }
            None => {
                let message = "required field missing: _format_version: \"3.0\"";
                return self.wrong(&[], message);
            }
        }
        for (key, value) in root {
            let path = vec![key.as_str().into()];
            let declared = [Kind::Service, Kind::Route, Kind::Plugin]
                .into_iter()
                .find(|kind| kind.plural() == key);
            if let Some(kind) = declared {
                self.list(kind, value, path, None);
            } else if LATER.contains(&key.as_str()) {
                let empty = value.as_array().is_some_and(Vec::is_empty) || value.is_null();
                if !empty {
                    self.wrong(&path, format!("'{key}' can't be declared yet"));
                }
            } else if key != "_format_version" && !TOLERATED.contains(&key.as_str()) {
                self.wrong(&path, "unknown field");
            }
        }
    }

    fn list(&mut self, kind: Kind, value: &Value, path: Vec<PathSegment>, parent: Option<usize>) {
        let list = match value {
            Value::Array(list) => list,
            Value::Null => return,
            _ => return self.wrong(&path, "expected an array"),
        };
        for (index, item) in list.iter().enumerate() {
            let mut path = path.clone();
            path.push(index.into());
            match item {
                Value::Object(record) => self.record(kind, record, path, parent),
                _ => self.wrong(&path, "expected a record"),
            }
        }
    }

    fn record(
        &mut self,
        kind: Kind,
        record: &Map<String, Value>,
        path: Vec<PathSegment>,
        parent: Option<usize>,
    ) {
        let is_child = |key: &str| kind.children().iter().any(|child| child.plural() == key);
        let mut own: Map<String, Value> = record
            .iter()
            .filter(|(key, _)| !is_child(key) && !TOLERATED.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if self.pathsigns && kind == Kind::Route {
            mark_expressions(&mut own);
        }
        let position = self.pending.len();
        self.pending.push(Pending {
            kind,
            place: Place {
                document: self.document,
                path: path.clone(),
            },
            record: own,
            parent,
        });
        for child in kind.children() {
            if let Some(value) = record.get(child.plural()) {
                let mut path = path.clone();
                path.push(child.plural().into());
                self.list(*child, value, path, Some(position));
            }
        }
    }
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
