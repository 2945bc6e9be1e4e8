//! A record, as pages show it: without secrets, field by field, and as text.

use serde_json::{Map, Value};

use doorward_core::model::credential::MASK;
use doorward_core::model::secret::names_secret;

/// Fields of entities that hold secrets under names that say nothing of it.
const SECRET_FIELDS: [&str; 4] = ["key", "key_alt", "private_key", "cert_key"];

/// The record without its secrets. The key of a credential is one; that of a
/// header or of a JWT's issuer is none, so `keys` says whether `key` is.
pub(crate) fn masked(value: &Value, keys: bool) -> Value {
    match value {
        Value::Object(map) => {
            let shown = map.iter().map(|(name, value)| {
                let is_secret =
                    names_secret(name) || keys && SECRET_FIELDS.contains(&name.as_str());
                let value = if is_secret {
                    mask(value)
                } else {
                    masked(value, keys)
                };
                (name.clone(), value)
            });
            Value::Object(shown.collect())
        }
        Value::Array(list) => list.iter().map(|value| masked(value, keys)).collect(),
        other => other.clone(),
    }
}

/// Every text of a secret is masked; what is empty or says yes or no stays.
fn mask(value: &Value) -> Value {
    match value {
        Value::String(text) if !text.is_empty() => MASK.into(),
        Value::Array(list) => list.iter().map(mask).collect(),
        Value::Object(map) => {
            let masked = map.iter().map(|(name, value)| (name.clone(), mask(value)));
            Value::Object(masked.collect())
        }
        other => other.clone(),
    }
}

/// The file that declares a record, with the line if it is known; `None`: the store has
/// it.
pub(crate) fn declared_in(record: &Value) -> Option<String> {
    let file = record["declared_in"].as_str()?;
    Some(match record["declared_line"].as_u64() {
        Some(line) => format!("{file}:{line}"),
        None => file.to_owned(),
    })
}

/// The record without what tells its file, and without the version of an entity. Versions
/// of other records are numbers.
pub(crate) fn without_place(record: &Value) -> Value {
    let mut record = record.clone();
    if let Value::Object(members) = &mut record {
        let is_version = |name: &str, value: &Value| name == "version" && value.is_string();
        let is_place = |name: &str| matches!(name, "declared_in" | "declared_line");
        members.retain(|name, value| !is_place(name) && !is_version(name, value));
    }
    record
}

/// The dotted names of masked secrets in a value; elements count from one.
pub(crate) fn masks(value: &Value) -> Vec<String> {
    let mut names = Vec::new();
    collect_masks(value, "", &mut names);
    names
}

fn collect_masks(value: &Value, path: &str, names: &mut Vec<String>) {
    let below = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    match value {
        Value::String(text) if text == MASK => names.push(path.to_owned()),
        Value::Array(list) => list.iter().enumerate().for_each(|(index, value)| {
            collect_masks(value, &below(&(index + 1).to_string()), names)
        }),
        Value::Object(map) => map
            .iter()
            .for_each(|(name, value)| collect_masks(value, &below(name), names)),
        _ => {}
    }
}

/// Whether a value holds a masked secret.
pub(crate) fn has_mask(value: &Value) -> bool {
    !masks(value).is_empty()
}

/// A value on one line, as a person writes it.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => {
            let is_plain = |value: &Value| !value.is_object() && !value.is_array();
            let joint = if list.iter().all(is_plain) {
                ", "
            } else {
                "; "
            };
            let texts: Vec<_> = list.iter().map(text).collect();
            texts.join(joint)
        }
        Value::Object(members) if members.is_empty() => "{}".to_owned(),
        Value::Object(members) => of_members(members),
        other => other.to_string(),
    }
}

/// One of several values of an attribute (RFC 7643 section 2.4) is its value, with what
/// else is known of it; of other records each member is named.
fn of_members(members: &Map<String, Value>) -> String {
    let named = |(name, value): (&String, &Value)| match value {
        Value::Object(_) | Value::Array(_) => format!("{name}: ({})", text(value)),
        value => format!("{name}: {}", text(value)),
    };
    let Some(Value::String(main)) = members.get("value") else {
        let all: Vec<_> = members.iter().map(named).collect();
        return all.join(", ");
    };
    let others = members.iter().filter(|(name, _)| *name != "value");
    let others = others.filter_map(|(name, value)| match (name.as_str(), value) {
        (_, Value::Bool(true)) => Some(name.clone()),
        ("type" | "display", Value::String(text)) => Some(text.clone()),
        (_, Value::Bool(false) | Value::Null) => None,
        _ => Some(named((name, value))),
    });
    let others: Vec<_> = others.collect();
    if others.is_empty() {
        main.clone()
    } else {
        format!("{main} ({})", others.join(", "))
    }
}

/// A value of the record by its dotted name.
pub(crate) fn get<'a>(record: &'a Value, name: &str) -> Option<&'a Value> {
    name.split('.')
        .try_fold(record, |value, part| value.get(part))
}

/// Sets a value by its dotted name.
pub(crate) fn set(record: &mut Value, name: &str, value: Value) {
    let mut at = record;
    for part in name.split('.') {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[part];
    }
    *at = value;
}

/// The request that makes the record, for a shell.
pub(crate) fn curl(path: &str, record: &Value) -> String {
    let text = serde_json::to_string_pretty(record).unwrap_or_default();
    // A shell has no escape within single quotes.
    let text = text.replace('\'', "'\\''");
    format!(
        "curl -X PUT \"$DOORWARD_ADMIN{path}\" \\\n  -H \"Kong-Admin-Token: $DOORWARD_TOKEN\" \\\n  \
         -H 'Content-Type: application/json' \\\n  -d '{text}'"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_masked_wherever_they_lie() {
        let record = json!({"name": "a", "key": "k", "config": {
            "client_secret": ["one", ""], "session": {"secret": "two"}, "token_type": "bearer",
            "password": null,
        }});
        let masked = masked(&record, true);
        let expected = json!({"name": "a", "key": "**", "config": {
            "client_secret": ["**", ""], "session": {"secret": "**"}, "token_type": "bearer",
            "password": null,
        }});
        assert_eq!(masked, expected);
        let names = ["config.client_secret.1", "config.session.secret", "key"];
        let mut found = masks(&masked);
        found.sort();
        assert_eq!(found, names);
        assert!(has_mask(&masked) && !has_mask(&json!({"a": ["b"]})));
    }

    #[test]
    fn records_are_written_as_a_person_does() {
        let emails = json!([
            {"value": "a@b.example", "primary": true, "type": "work"},
            {"value": "c@d.example", "primary": false},
        ]);
        assert_eq!(text(&emails), "a@b.example (primary, work); c@d.example");
        let name = json!({"familyName": "Doe", "givenName": "Jo"});
        assert_eq!(text(&name), "familyName: Doe, givenName: Jo");
        let classes = json!([{"value": "urn:2", "methods": ["pwd", "otp"]}, {"a": {"b": 1}}]);
        assert_eq!(text(&classes), "urn:2 (methods: (pwd, otp)); a: (b: 1)");
        assert_eq!(text(&json!([])), "");
        assert_eq!(text(&json!({})), "{}");
    }

    #[test]
    fn a_shell_gets_the_text_as_it_is() {
        let shown = curl("/services/a", &json!({"name": "it's $(x)"}));
        assert!(shown.contains(r"it'\''s $(x)"), "{shown}");
    }

    #[test]
    fn values_are_found_and_set_by_dotted_names() {
        let mut record = json!({"config": {"minute": 5}});
        assert_eq!(get(&record, "config.minute"), Some(&json!(5)));
        assert_eq!(get(&record, "config.hour"), None);
        set(&mut record, "config.redis.host", json!("r"));
        assert_eq!(
            record,
            json!({"config": {"minute": 5, "redis": {"host": "r"}}})
        );
    }
}
