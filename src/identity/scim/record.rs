//! A user as the interface shows it (interface 2.1).

use chrono::{DateTime, SecondsFormat};
use serde_json::{Map, Value, json};

use crate::model::user::{User, schema};

/// The record. The password is not part of it; `preferences` always is.
pub(super) fn of(user: &User, base_url: &str) -> Value {
    let mut record = user.profile.clone();
    if let Some(Value::Array(addresses)) = record.get_mut("addresses") {
        for address in addresses.iter_mut().filter_map(Value::as_object_mut) {
            let formatted = schema::formatted_address(address);
            if !formatted.is_empty() {
                address.insert("formatted".to_owned(), Value::String(formatted));
            }
        }
    }
    let status = if user.active { "Active" } else { "Deactivated" };
    let members = [
        ("schemas", json!([schema::USER_URN])),
        ("id", json!(user.id)),
        ("userName", json!(user.user_name)),
        ("accountStatus", json!(status)),
        (
            "meta",
            json!({
                "resourceType": "User",
                "created": instant(user.created_ms),
                "lastModified": instant(user.updated_ms),
                "location": format!("{base_url}/v1/users/{}", user.id),
                "version": version(user),
            }),
        ),
    ];
    for (name, value) in members {
        record.insert(name.to_owned(), value);
    }
    record
        .entry("preferences")
        .or_insert_with(|| Value::Object(Map::new()));
    Value::Object(record)
}

/// The weak entity tag (RFC 7644 §3.14).
pub(super) fn version(user: &User) -> String {
    format!("W/\"{}\"", user.version)
}

/// ISO 8601 in UTC, with milliseconds.
fn instant(ms: i64) -> String {
    let time = DateTime::from_timestamp_millis(ms).unwrap_or_default();
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}
