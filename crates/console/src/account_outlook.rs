//! What a change of a user or a group does to what is there.

use serde_json::{Map, Value, json};

use super::change::Outlook;
use super::difference::{self, removal};
use super::error::PageError;
use super::record;
use super::trail::Trail;

/// Members whose names a difference shows.
const SHOWN_MEMBERS: usize = 20;

/// The record with what was typed.
pub(crate) fn with(record: &Value, patch: &Map<String, Value>) -> Value {
    let mut typed = record.clone();
    for (name, value) in patch {
        typed[name] = value.clone();
    }
    typed
}

/// The refusal of a change of `current`, whose name is the member `key`.
pub(crate) fn changed(current: &Value, key: &str) -> PageError {
    let id = record::text(&current["id"]);
    PageError::changed(match key {
        "userName" => Trail::of_user(&id),
        _ => Trail::of_group(&id),
    })
}

/// A record that is made, and its end by identifier and version.
pub(crate) fn creation<R>(body: &Value, key: &str, end: fn(String, i64) -> R) -> Outlook<R> {
    let shown = record::masked(body, false);
    Outlook {
        name: record::text(&shown[key]),
        lines: difference::lines(&Value::Null, &shown),
        reversal: Some(end(String::new(), 0)),
        note: "",
    }
}

/// A change of the record that is still of this version.
pub(crate) fn update<R>(
    current: &Value,
    key: &str,
    version: i64,
    patch: &Map<String, Value>,
) -> Result<Outlook<R>, PageError> {
    if current["version"] != version {
        return Err(changed(current, key));
    }
    let shown = record::masked(&Value::Object(patch.clone()), false);
    Ok(Outlook {
        name: record::text(&current[key]),
        lines: difference::lines(&record::masked(current, false), &shown),
        reversal: None,
        note: "",
    })
}

/// What sets the members of `patch` to what they are now; a password is not known.
pub(crate) fn reversal(current: &Value, patch: &Map<String, Value>) -> Option<Map<String, Value>> {
    let members = patch.keys().filter(|name| *name != "password");
    let back: Map<_, _> = members
        .map(|name| (name.clone(), current[name].clone()))
        .collect();
    (!back.is_empty()).then_some(back)
}

/// The end of a record that is still of this version.
pub(crate) fn deletion<R>(
    current: &Value,
    key: &str,
    version: i64,
) -> Result<Outlook<R>, PageError> {
    if current["version"] != version {
        return Err(changed(current, key));
    }
    let mut shown = record::masked(current, false);
    if let Value::Object(members) = &mut shown {
        let silent = ["schemas", "meta", "version", "created_at", "updated_at"];
        members.retain(|name, value| !silent.contains(&name.as_str()) && *value != json!([]));
        if let Some(groups) = members.get_mut("groups") {
            let names = groups.as_array().into_iter().flatten();
            *groups = names.map(|group| group["display"].clone()).collect();
        }
    }
    Ok(Outlook {
        name: record::text(&current[key]),
        lines: difference::lines(&shown, &removal(&shown)),
        reversal: None,
        note: "",
    })
}

pub(crate) fn member_names(members: &[Value], has_more: bool) -> String {
    let names = members.iter().take(SHOWN_MEMBERS);
    let names: Vec<_> = names
        .map(|member| record::text(&member["userName"]))
        .collect();
    let more = if has_more || members.len() > SHOWN_MEMBERS {
        " …"
    } else {
        ""
    };
    format!("{}{more}", names.join(", "))
}
