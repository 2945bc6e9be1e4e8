//! What a change makes of a record, and the page that asks whether to make it.

use askama::Template;
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::api::ApiAnswer;
use super::error::PageError;
use super::frame::{self, Frame};
use super::trail::Trail;
use super::visit::Visit;
use super::{audit_log, record};
use doorward_core::model::credential::MASK;

/// A change that waits for a yes.
pub(crate) struct Confirmation {
    /// The name of what is changed; "": the page does not tell.
    pub(crate) subject: String,
    /// The entry of the navigation.
    pub(crate) section: String,
    pub(crate) lines: Vec<Line>,
    /// Where the change is made.
    pub(crate) address: String,
    /// What the seal of the change is for.
    pub(crate) context: String,
    /// Where it leads who says no.
    pub(crate) back: String,
    pub(crate) is_deletion: bool,
    /// What undoing does not bring back.
    pub(crate) note: &'static str,
    /// What somebody else did to the record meanwhile.
    pub(crate) conflict: Option<Conflict>,
}

/// What somebody else did to a record while a change of it waited.
pub(crate) struct Conflict {
    /// Who did what, and when.
    pub(crate) told: Vec<(String, String)>,
    /// What differs from the record that the change was made for, as far as it is known.
    pub(crate) lines: Vec<Line>,
}

impl Conflict {
    /// Of a record that was `base` and is `now`, both without secrets; `base` is null
    /// where nobody knows it.
    pub(crate) async fn find(visit: &Visit, mut trail: Trail, base: &Value, now: &Value) -> Self {
        audit_log::follow(&mut trail, visit).await;
        let lines = if base.is_null() {
            Vec::new()
        } else {
            let [base, now] = [base, now].map(|one| record::masked(one, false));
            lines(&base, &patch(&base, &now))
        };
        let is_told = |line: &Line| !SILENT.contains(&line.name.as_str());
        Self {
            told: trail.found,
            lines: lines.into_iter().filter(is_told).collect(),
        }
    }

    /// Whether it is about this field as well, or about a part of it.
    fn touches(&self, name: &str) -> bool {
        let is_within = |inner: &str, outer: &str| {
            let rest = inner.strip_prefix(outer);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let mut lines = self.lines.iter();
        lines.any(|line| is_within(&line.name, name) || is_within(name, &line.name))
    }
}

/// Members that every change changes.
const SILENT: [&str; 4] = ["version", "updated_at", "meta.version", "meta.lastModified"];

#[derive(Template)]
#[template(path = "difference.html")]
struct DifferencePage {
    frame: Frame,
    asked: Confirmation,
    change: String,
    error: String,
    violations: Vec<(String, String)>,
}

impl Confirmation {
    /// Whether somebody else has changed this field meanwhile.
    fn is_disputed(&self, line: &Line) -> bool {
        let conflict = self.conflict.as_ref();
        conflict.is_some_and(|conflict| conflict.touches(&line.name))
    }

    /// The page, with the change sealed for the visitor; with what the Admin API said,
    /// if it refused the change.
    pub(crate) fn show(
        mut self,
        visit: &Visit,
        change: &impl Serialize,
        refusal: Option<&ApiAnswer>,
    ) -> Result<Response, PageError> {
        let t = visit.texts;
        if self.conflict.is_some() {
            // What somebody else has changed to the same is no difference any more. Two
            // secrets look alike.
            let differs = |line: &Line| line.before != line.after || line.after.contains(MASK);
            self.lines.retain(differs);
        }
        let change = serde_json::to_vec(change).map_err(|_| PageError::Unreadable)?;
        let session = visit.session().ok_or(PageError::NoSession)?;
        let has_conflict = self.conflict.is_some();
        let sessions = &visit.parts().sessions;
        let sealed = sessions.seal_change(session, &self.context, &change);
        let title = if self.is_deletion {
            t.delete_title
        } else {
            t.difference
        };
        let mut response = frame::show(&DifferencePage {
            frame: Frame::of(visit, title, &self.section),
            asked: self,
            change: sealed.ok_or(PageError::Unreadable)?,
            error: refusal.map_or_else(String::new, |answer| answer.message().to_owned()),
            violations: refusal.map_or_else(Vec::new, ApiAnswer::violations),
        })?;
        if has_conflict {
            *response.status_mut() = StatusCode::CONFLICT;
        }
        if let Some(answer) = refusal {
            *response.status_mut() = answer.status;
        }
        Ok(response)
    }
}

/// The change that the visitor has said yes to: that of [`Confirmation::show`], sealed
/// for the same visitor and `context`.
///
/// # Errors
/// [`PageError::Stale`] when it is not, or can't be read.
pub(crate) fn confirmed<T: DeserializeOwned>(visit: &Visit, context: &str) -> Result<T, PageError> {
    let session = visit.session().ok_or(PageError::NoSession)?;
    let sessions = &visit.parts().sessions;
    let opened = sessions.open_change(session, context, visit.field("change"));
    let opened = opened.ok_or(PageError::Stale)?;
    serde_json::from_slice(&opened).map_err(|_| PageError::Stale)
}

/// The patch that shows a record as gone.
pub(crate) fn removal(record: &Value) -> Value {
    let map = record.as_object().into_iter().flatten();
    let named = map.filter(|(_, value)| !value.is_null());
    Value::Object(named.map(|(name, _)| (name.clone(), Value::Null)).collect())
}

/// A field that a change is about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) before: String,
    pub(crate) after: String,
}

impl Line {
    /// A field that goes.
    pub(crate) fn gone(name: &str, before: &str) -> Self {
        Self {
            name: name.to_owned(),
            before: before.to_owned(),
            after: record::text(&Value::Null),
        }
    }
}

/// The patch that makes `wanted` of `current`: what is gone is null, and records
/// are compared field by field.
pub(crate) fn patch(current: &Value, wanted: &Value) -> Value {
    let (Value::Object(current), Value::Object(wanted)) = (current, wanted) else {
        return wanted.clone();
    };
    let mut patch = Map::new();
    for (name, value) in wanted {
        match current.get(name) {
            Some(old) if old == value => {}
            Some(old @ Value::Object(_)) if value.is_object() => {
                patch.insert(name.clone(), self::patch(old, value));
            }
            None if value.is_null() => {}
            _ => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    for (name, old) in current {
        if !wanted.contains_key(name) && !old.is_null() {
            patch.insert(name.clone(), Value::Null);
        }
    }
    Value::Object(patch)
}

/// The record that [`patch`] makes of `current` (RFC 7396).
pub(crate) fn merged(current: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else {
        return patch.clone();
    };
    let mut all = current.as_object().cloned().unwrap_or_default();
    for (name, value) in patch {
        if value.is_null() {
            all.remove(name);
        } else {
            let old = all.get(name).unwrap_or(&Value::Null);
            let new = merged(old, value);
            all.insert(name.clone(), new);
        }
    }
    Value::Object(all)
}

/// A patch of whole members that was made for a record that was `seen`, for the record
/// as it is `now`: what somebody else has changed within a member stays.
pub(crate) fn onto(seen: &Value, now: &Value, patch: Map<String, Value>) -> Map<String, Value> {
    let member = |(name, value): (String, Value)| {
        let value = match (&seen[&name], &now[&name], value) {
            (old @ Value::Object(_), new @ Value::Object(_), value @ Value::Object(_)) => {
                merged(new, &self::patch(old, &value))
            }
            (_, _, value) => value,
        };
        (name, value)
    };
    patch.into_iter().map(member).collect()
}

/// Whether a patch has members that are more than one value. Nobody can tell what of
/// such a one is new, once the record that it was made of is not known any more.
pub(crate) fn has_whole_members(patch: &Map<String, Value>) -> bool {
    let mut values = patch.values();
    values.any(|value| value.is_object() || value.is_array())
}

/// The lines of a patch; both without secrets.
pub(crate) fn lines(current: &Value, patch: &Value) -> Vec<Line> {
    let mut lines = Vec::new();
    collect(current, patch, "", &mut lines);
    lines
}

fn collect(current: &Value, patch: &Value, path: &str, lines: &mut Vec<Line>) {
    let map = patch
        .as_object()
        .filter(|map| path.is_empty() || !map.is_empty());
    let Some(map) = map else {
        lines.push(Line {
            name: path.to_owned(),
            before: record::text(current),
            after: record::text(patch),
        });
        return;
    };
    for (name, value) in map {
        let below = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        collect(
            current.get(name).unwrap_or(&Value::Null),
            value,
            &below,
            lines,
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_has_what_differs_and_null_for_what_is_gone() {
        let current = json!({"a": 1, "b": {"c": 2, "d": [1]}, "e": null, "f": "x"});
        let wanted = json!({"a": 1, "b": {"c": 3, "d": [1]}, "g": null, "h": true});
        let patch = patch(&current, &wanted);
        let after = json!({"a": 1, "b": {"c": 3, "d": [1]}, "e": null, "h": true});
        assert_eq!(merged(&current, &patch), after);
        assert_eq!(patch, json!({"b": {"c": 3}, "f": null, "h": true}));
        let lines = lines(&current, &patch);
        let shown: Vec<_> = lines
            .iter()
            .map(|line| {
                (
                    line.name.as_str(),
                    line.before.as_str(),
                    line.after.as_str(),
                )
            })
            .collect();
        assert_eq!(
            shown,
            [("b.c", "2", "3"), ("f", "x", "–"), ("h", "–", "true")]
        );
    }

    fn members(value: &Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn what_somebody_else_has_changed_within_a_member_stays() {
        let seen = json!({"registration": {"mode": "open", "scope": "a"}, "list": [1]});
        let now = json!({"registration": {"mode": "disabled", "scope": "a"}, "list": [2]});
        let patch = json!({"registration": {"mode": "open", "scope": "b"}, "list": [1, 3]});
        let made = onto(&seen, &now, members(&patch));
        let expected = json!({"registration": {"mode": "disabled", "scope": "b"}, "list": [1, 3]});
        assert_eq!(Value::Object(made), expected);
        // Of one that is gone, or was none, there is nothing to keep.
        let patch = json!({"registration": {"scope": "b"}, "jwks": null});
        let made = onto(&seen, &json!({}), members(&patch));
        assert_eq!(Value::Object(made), patch);
    }

    #[test]
    fn nothing_differs_from_itself() {
        let record = json!({"a": {"b": [1, {"c": null}]}});
        assert_eq!(patch(&record, &record), json!({}));
        assert!(lines(&record, &json!({})).is_empty());
    }
}
