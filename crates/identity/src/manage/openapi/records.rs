//! Schemas of records that operators see.

use serde_json::{Value, json};

use doorward_core::model::client::SignAlg;
use doorward_core::model::schema::nullable;
use doorward_core::openapi::{fields, text};

fn time() -> Value {
    json!({"type": "integer", "description": "Seconds since the epoch."})
}

fn uuid() -> Value {
    json!({"type": "string", "format": "uuid"})
}

/// The algorithm of a signing key.
pub(super) fn algorithm() -> Value {
    json!({"type": "string", "enum": SignAlg::OWN.map(SignAlg::as_str)})
}

/// An object that has all of these members.
fn whole<const N: usize>(members: [(&str, Value); N]) -> Value {
    let names = members.each_ref().map(|(name, _)| *name);
    fields(members.clone(), &names)
}

/// Every record but clients, by name.
pub(super) fn all() -> [(&'static str, Value); 13] {
    [
        ("initial-token", initial_token()),
        ("key", key()),
        ("lockout", lockout()),
        ("realm-summary", realm_summary()),
        ("realm", realm()),
        ("retired-name", retired_name()),
        ("session", session()),
        ("factor", factor()),
        ("link", link()),
        ("user", user()),
        ("consent", consent()),
        ("group", group()),
        ("member", whole([("id", uuid()), ("userName", text())])),
    ]
}

fn initial_token() -> Value {
    let mut shown = whole([
        ("id", text()),
        ("realm", text()),
        ("note", text()),
        ("uses_left", json!({"type": ["integer", "null"]})),
        ("created_at", time()),
        ("expires_at", nullable(time())),
    ]);
    shown["properties"]["initial_access_token"] = json!({
        "type": "string",
        "description": "Only in the answer to the request that makes it.",
    });
    shown
}

fn key() -> Value {
    whole([
        ("kid", text()),
        ("alg", algorithm()),
        (
            "state",
            json!({"type": "string", "enum": ["next", "active", "old"]}),
        ),
        ("created_at", time()),
        ("active_from", time()),
        ("expires_at", nullable(time())),
    ])
}

fn lockout() -> Value {
    whole([
        ("id", text()),
        ("kind", text()),
        ("realm", nullable(text())),
        ("user", nullable(text())),
        ("address", nullable(text())),
        ("client_id", nullable(text())),
        ("locked_at", time()),
        ("locked_until", time()),
        ("locks", json!({"type": "integer"})),
    ])
}

/// Adds where the configuration file declares the record.
fn with_place(mut shown: Value) -> Value {
    shown["properties"]["declared_in"] = text();
    shown["properties"]["declared_line"] = json!({"type": "integer"});
    shown
}

fn realm_summary() -> Value {
    with_place(whole([
        ("path", text()),
        ("issuer", text()),
        (
            "owner",
            json!({"type": "string", "enum": ["file", "store"]}),
        ),
    ]))
}

fn realm() -> Value {
    let mut shown = realm_summary();
    for (name, says) in [
        ("settings", "What the realm sets itself."),
        ("effective_settings", "What is in force in it."),
        (
            "settings_not_in_force",
            "What the store has of a realm that a file declares.",
        ),
    ] {
        shown["properties"][name] = json!({"type": "object", "description": says});
    }
    shown["properties"]["version"] = json!({"type": "integer"});
    shown["required"] = json!([
        "path",
        "issuer",
        "owner",
        "version",
        "settings",
        "effective_settings",
    ]);
    shown
}

fn retired_name() -> Value {
    whole([
        ("name", text()),
        ("realm", text()),
        ("user", uuid()),
        ("retired_at", time()),
    ])
}

fn session() -> Value {
    whole([
        ("id", text()),
        ("realm", text()),
        ("user", nullable(text())),
        ("user_id", uuid()),
        ("clients", json!({"type": "array", "items": text()})),
        ("created_at", time()),
        ("authenticated_at", time()),
        ("used_at", time()),
        ("expires_at", time()),
    ])
}

fn factor() -> Value {
    whole([
        ("id", uuid()),
        ("kind", text()),
        ("name", text()),
        ("backed_up", json!({"type": ["boolean", "null"]})),
        ("created_at", time()),
        ("used_at", nullable(time())),
    ])
}

fn link() -> Value {
    whole([
        ("id", uuid()),
        ("user_id", uuid()),
        ("provider", text()),
        ("issuer", text()),
        ("subject", text()),
        ("email", nullable(text())),
        ("created_at", time()),
        ("used_at", time()),
    ])
}

fn user() -> Value {
    let mut shown = with_place(whole([
        ("id", uuid()),
        ("userName", text()),
        ("accountStatus", text()),
        ("realm", text()),
        (
            "owner",
            json!({"type": "string", "enum": ["file", "store"]}),
        ),
        ("has_password", json!({"type": "boolean"})),
        ("version", json!({"type": "integer"})),
    ]));
    shown["properties"]["groups"] = json!({"type": "array", "items": {"type": "object"}});
    shown["properties"]["locked_until"] = nullable(time());
    // Attributes are those of the schema of users.
    shown["additionalProperties"] = true.into();
    shown
}

fn consent() -> Value {
    whole([
        ("client_id", text()),
        ("scopes", json!({"type": "array", "items": text()})),
        ("given_at", time()),
    ])
}

fn group() -> Value {
    whole([
        ("id", uuid()),
        ("realm", text()),
        ("displayName", text()),
        ("externalId", nullable(text())),
        ("version", json!({"type": "integer"})),
        ("created_at", time()),
        ("updated_at", time()),
    ])
}
