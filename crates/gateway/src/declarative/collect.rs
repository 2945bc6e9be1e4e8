//! From a document to its records, nested ones taken out of their parents.

use serde_json::{Map, Value, json};

use super::Place;
use super::header::{self, Header};
use super::unsupported;
use crate::entities::Kind;
use doorward_core::yaml::PathSegment;

/// Lists of the format that can't be served here, at the top of a document or
/// in a record.
const NOT_SERVED: &[&str] = &[
    "consumer_group_plugins",
    "partials",
    "groups",
    "hmacauth_secrets",
    "mtls_auth_credentials",
    "oauth2_tokens",
    "filter_chains",
    "custom_plugins",
    "cloned_plugins",
    "custom_entities",
    "degraphql_routes",
    "graphql_ratelimiting_cost_decorations",
    "service_packages",
    "licenses",
    "rbac_roles",
    "rbac_users",
    "admins",
    "parameters",
    "clustering_data_planes",
    "_konnect",
];

/// A record that was found, before its references are resolved.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) kind: Kind,
    pub(super) place: Place,
    pub(super) record: Map<String, Value>,
    /// The record around it, as its position in the list of all.
    pub(super) parent: Option<usize>,
}

/// Something wrong in a file.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) place: Place,
    pub(super) message: String,
}

/// The records and errors of one document.
pub(super) struct DocumentReport<'a> {
    document: usize,
    pending: &'a mut Vec<Pending>,
    findings: &'a mut Vec<Finding>,
    /// What is left out, if what nobody runs here may be.
    skipped: Option<&'a mut Vec<Finding>>,
}

impl DocumentReport<'_> {
    fn finding(&self, path: &[PathSegment], message: impl Into<String>) -> Finding {
        Finding {
            place: Place {
                document: self.document,
                path: path.to_vec(),
            },
            message: message.into(),
        }
    }

    pub(super) fn wrong(&mut self, path: &[PathSegment], message: impl Into<String>) {
        let finding = self.finding(path, message);
        self.findings.push(finding);
    }

    /// Whether something is left out; else nothing is said.
    fn skips(&mut self, path: &[PathSegment], message: &str) -> bool {
        let finding = self.finding(path, message);
        match &mut self.skipped {
            Some(skipped) => {
                skipped.push(finding);
                true
            }
            None => false,
        }
    }
}

/// Appends the records of a document, parents before their children.
pub(super) fn records(
    document: usize,
    value: Value,
    pending: &mut Vec<Pending>,
    findings: &mut Vec<Finding>,
    skipped: Option<&mut Vec<Finding>>,
) {
    let mut report = DocumentReport {
        document,
        pending,
        findings,
        skipped,
    };
    let Value::Object(mut root) = value else {
        return report.wrong(&[], "expected a mapping");
    };
    let Some(header) = Header::take(&mut root, &mut report) else {
        return;
    };
    let mut collector = Collector { header, report };
    for (key, value) in root {
        let path = vec![key.as_str().into()];
        if let Some(kind) = Kind::of_plural(&key) {
            collector.list(kind, value, &path, None);
        } else if is_not_served(&key) {
            collector.refuse(&key, &value, &path, &Kind::ALL);
        } else if !header::is_comment(&key) {
            collector.report.wrong(&path, "unknown field");
        }
    }
}

fn is_not_served(key: &str) -> bool {
    NOT_SERVED.contains(&key)
}

/// What the list of this name in a record of this kind is: consumers that belong to a
/// group, or groups that a consumer belongs to. The field of a membership that each of
/// its items stands for, and what names one.
fn memberships(kind: Kind, list: &str) -> Option<(&'static str, &'static str)> {
    match (kind, list) {
        (Kind::Consumer, "groups") => Some(("consumer_group", "name")),
        (Kind::ConsumerGroup, "consumers") => Some(("consumer", "username")),
        _ => None,
    }
}

/// What an item of such a list may tell besides what names it.
const OF_MEMBERS: &[&str] = &["id", "custom_id", "tags", "created_at", "updated_at"];

/// What may be nested in a record of this kind: what refers to it by its name.
fn children(kind: Kind) -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(move |child| {
        let mut links = child.links().iter();
        links.any(|link| link.to == kind && link.field == kind.singular())
    })
}

struct Collector<'a> {
    header: Header,
    report: DocumentReport<'a>,
}

impl Collector<'_> {
    /// An empty list of what is not served says nothing.
    fn refuse(&mut self, key: &str, value: &Value, path: &[PathSegment], allowed: &[Kind]) {
        let empty = match value {
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            value => value.is_null(),
        };
        if !empty
            && !self
                .report
                .skips(path, &format!("'{key}' can't be served here"))
        {
            let allowed: Vec<&str> = allowed.iter().map(|kind| kind.plural()).collect();
            let allowed = match allowed.as_slice() {
                [] => String::new(),
                some => format!("; expected one of: {}", some.join(", ")),
            };
            let message = format!("'{key}' can't be served here{allowed}");
            self.report.wrong(path, message);
        }
    }

    /// The items of a list; none if it is null or no list, which is told.
    fn items(&mut self, value: Value, path: &[PathSegment]) -> Vec<Value> {
        match value {
            Value::Array(items) => return items,
            Value::Null => {}
            _ => self.report.wrong(path, "expected an array"),
        }
        Vec::new()
    }

    fn list(&mut self, kind: Kind, value: Value, path: &[PathSegment], parent: Option<usize>) {
        for (index, item) in self.items(value, path).into_iter().enumerate() {
            let mut path = path.to_vec();
            path.push(index.into());
            match item {
                Value::Object(record) => self.record(kind, record, path, parent),
                // The names of a certificate, as the Admin API shows them.
                Value::String(name) if kind == Kind::Sni && parent.is_some() => {
                    let record = Map::from_iter([("name".to_owned(), json!(name))]);
                    self.record(kind, record, path, parent);
                }
                _ => self.report.wrong(&path, "expected a record"),
            }
        }
    }

    fn record(
        &mut self,
        kind: Kind,
        record: Map<String, Value>,
        mut path: Vec<PathSegment>,
        parent: Option<usize>,
    ) {
        let mut own = Map::new();
        let mut nested = Vec::new();
        let mut members = None;
        let nestable: Vec<Kind> = children(kind).collect();
        for (key, value) in record {
            if let Some(child) = nestable.iter().find(|child| child.plural() == key) {
                nested.push((*child, value));
            } else if let Some(field) = memberships(kind, &key) {
                members = Some((key, field, value));
            } else if is_not_served(&key) {
                let mut path = path.clone();
                path.push(key.as_str().into());
                self.refuse(&key, &value, &path, &nestable);
            } else if !header::is_comment(&key) {
                own.insert(key, value);
            }
        }
        if let Err((field, message)) = self.header.apply(kind, &mut own) {
            let mut path = path.clone();
            path.push(field.into());
            self.report.wrong(&path, message);
        }
        if kind == Kind::Plugin
            && let Some(found) = unsupported::plugin(&own)
        {
            let mut path = path.clone();
            path.extend(found.field.iter().map(|part| (*part).into()));
            if self.report.skips(&path, &found.message) {
                return;
            }
        }
        let position = self.report.pending.len();
        self.report.pending.push(Pending {
            kind,
            place: Place {
                document: self.report.document,
                path: path.clone(),
            },
            record: own,
            parent,
        });
        nested.sort_by_key(|(child, _)| *child);
        for (child, value) in nested {
            let mut path = path.clone();
            path.push(child.plural().into());
            self.list(child, value, &path, Some(position));
        }
        if let Some((key, field, value)) = members {
            path.push(key.as_str().into());
            self.members(field, value, &path, position);
        }
    }

    /// The memberships that a list in a record stands for.
    fn members(
        &mut self,
        (field, key): (&'static str, &'static str),
        value: Value,
        path: &[PathSegment],
        parent: usize,
    ) {
        for (index, item) in self.items(value, path).into_iter().enumerate() {
            let mut path = path.to_vec();
            path.push(index.into());
            let reference = match item {
                Value::Object(mut item) => {
                    let is_right = |name: &str| name == key || OF_MEMBERS.contains(&name);
                    let wrong = item.keys().find(|name| !is_right(name));
                    if let Some(name) = wrong.filter(|name| !header::is_comment(name)) {
                        path.push(name.as_str().into());
                        self.report.wrong(&path, "unknown field");
                        continue;
                    }
                    let mut named = |field| item.remove(field).filter(|name| !name.is_null());
                    let by_name = named(key).map(|name| json!({"name": name}));
                    by_name.or_else(|| Some(json!({"id": named("id")?})))
                }
                Value::String(_) => Some(item),
                _ => None,
            };
            let Some(reference) = reference else {
                let message = format!("expected a name, or a record with {key} or id");
                self.report.wrong(&path, message);
                continue;
            };
            let record = Map::from_iter([(field.to_owned(), reference)]);
            self.record(Kind::GroupMembership, record, path, Some(parent));
        }
    }
}
