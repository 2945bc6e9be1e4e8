//! Records as the interface shows them (interface 2.1, RFC 7643 §4).

use chrono::{DateTime, SecondsFormat};
use serde_json::{Map, Value, json};

use super::access::Kind;
use crate::{Call, request_path};
use doorward_core::model::group::{Group, Membership};
use doorward_core::model::user::User;
use doorward_core::model::user::schema::{self, ENTERPRISE_URN, GROUP_URN, USER_URN};

/// The prefix at which clients of other makers find what they expect.
pub(crate) const STANDARD: &str = "/scim/v2";

/// Where records are, as their reader came.
#[derive(Clone, Debug)]
pub(super) struct RecordBase {
    /// The base URL with the prefix.
    base: String,
    /// Whether names and attributes are the standard's own.
    pub(super) standard: bool,
}

impl RecordBase {
    /// Below the prefix by which the request came.
    pub(super) fn of(call: &Call) -> Self {
        let base_url = &call.live.base_url;
        if request_path::path_below_base(call).starts_with(STANDARD) {
            Self::standard(base_url)
        } else {
            Self::first(base_url)
        }
    }

    /// Below [`STANDARD`].
    pub(super) fn standard(base_url: &str) -> Self {
        Self {
            base: format!("{base_url}{STANDARD}"),
            standard: true,
        }
    }

    /// Below `/v1`.
    pub(super) fn first(base_url: &str) -> Self {
        Self {
            base: format!("{base_url}/v1"),
            standard: false,
        }
    }

    /// The address of `name` below the prefix.
    pub(super) fn below(&self, name: &str) -> String {
        format!("{}/{name}", self.base)
    }

    /// The address of a record.
    pub(super) fn location(&self, kind: Kind, id: impl std::fmt::Display) -> String {
        let name = match (kind, self.standard) {
            (Kind::User, false) => "users",
            (Kind::User, true) => "Users",
            (Kind::Group, false) => "groups",
            (Kind::Group, true) => "Groups",
        };
        format!("{}/{name}/{id}", self.base)
    }
}

/// The record of a user, who is a member of `groups`. The password is not part
/// of it; `preferences` always is, but where the record is the standard's own.
pub(super) fn user(user: &User, groups: &[Membership], base: &RecordBase) -> Map<String, Value> {
    let mut record = user.profile.clone();
    if let Some(Value::Array(addresses)) = record.get_mut("addresses") {
        for address in addresses.iter_mut().filter_map(Value::as_object_mut) {
            let formatted = schema::formatted_address(address);
            if !formatted.is_empty() {
                address.insert("formatted".to_owned(), Value::String(formatted));
            }
        }
    }
    let mut schemas = vec![USER_URN];
    if record.contains_key(ENTERPRISE_URN) {
        schemas.push(ENTERPRISE_URN);
    }
    let state = match (base.standard, user.active) {
        (true, active) => ("active", json!(active)),
        (false, true) => ("accountStatus", json!("Active")),
        (false, false) => ("accountStatus", json!("Deactivated")),
    };
    let location = base.location(Kind::User, user.id);
    let members = [
        ("schemas", json!(schemas)),
        ("id", json!(user.id)),
        ("userName", json!(user.user_name)),
        state,
        (
            "meta",
            meta(
                Kind::User,
                user.created_ms,
                user.updated_ms,
                location,
                user.version,
            ),
        ),
    ];
    if base.standard {
        record.values_mut().for_each(spell_out);
    }
    for (name, value) in members {
        record.insert(name.to_owned(), value);
    }
    if !groups.is_empty() {
        let groups = groups.iter().map(|group| {
            json!({
                "value": group.id,
                "$ref": base.location(Kind::Group, group.id),
                "display": group.name,
                "type": "direct",
            })
        });
        record.insert("groups".to_owned(), groups.collect());
    }
    if base.standard {
        // The standard has no attribute that nobody looks into.
        record.remove("preferences");
    } else {
        record.entry("preferences").or_insert_with(|| json!({}));
    }
    record
}

/// Plain values of a list as the standard has them: `{"value": …}` (RFC 7643
/// §2.4).
fn spell_out(attribute: &mut Value) {
    let Value::Array(values) = attribute else {
        return;
    };
    for value in values.iter_mut().filter(|value| value.is_string()) {
        *value = json!({ "value": value.take() });
    }
}

/// The record of a group without its members.
pub(super) fn group(group: &Group, base: &RecordBase) -> Map<String, Value> {
    let location = base.location(Kind::Group, group.id);
    let mut record = Map::new();
    let members = [
        ("schemas", json!([GROUP_URN])),
        ("id", json!(group.id)),
        ("displayName", json!(group.name)),
        (
            "meta",
            meta(
                Kind::Group,
                group.created_ms,
                group.updated_ms,
                location,
                group.version,
            ),
        ),
    ];
    for (name, value) in members {
        record.insert(name.to_owned(), value);
    }
    if let Some(id) = &group.external_id {
        record.insert("externalId".to_owned(), json!(id));
    }
    record
}

/// One value of `members`.
pub(super) fn member(member: &Membership, base: &RecordBase) -> Value {
    json!({
        "value": member.id,
        "$ref": base.location(Kind::User, member.id),
        "display": member.name,
        "type": "User",
    })
}

fn meta(kind: Kind, created_ms: i64, updated_ms: i64, location: String, of: i64) -> Value {
    json!({
        "resourceType": kind.name(),
        "created": instant(created_ms),
        "lastModified": instant(updated_ms),
        "location": location,
        "version": version(of),
    })
}

/// The weak entity tag (RFC 7644 §3.14).
pub(super) fn version(version: i64) -> String {
    format!("W/\"{version}\"")
}

/// ISO 8601 in UTC, with milliseconds.
fn instant(ms: i64) -> String {
    let time = DateTime::from_timestamp_millis(ms).unwrap_or_default();
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}
