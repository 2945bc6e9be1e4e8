//! What files of the imitated gateway name and nobody runs here.

use serde_json::{Map, Value};

use doorward_core::model::suggestion;
use doorward_plugins::{REGISTRY, kind, leaves_field_out};

/// Plugins of the imitated gateway's editions that are not run here, and why.
const PLUGINS: &[(&str, &str)] = &[
    ("acme", ACME),
    ("aws-lambda", TASK),
    ("azure-functions", TASK),
    ("canary", EDITION),
    ("confluent", EDITION),
    ("confluent-consume", EDITION),
    ("degraphql", EDITION),
    ("exit-transformer", CODE),
    ("grpc-gateway", TASK),
    ("header-cert-auth", EDITION),
    ("injection-protection", EDITION),
    ("jq", EDITION),
    ("json-threat-protection", EDITION),
    ("jwe-decrypt", EDITION),
    ("jwt-signer", EDITION),
    ("key-auth-enc", EDITION),
    ("mocking", EDITION),
    ("mtls-auth", EDITION),
    ("oas-validation", EDITION),
    ("oauth2-introspection", EDITION),
    ("opa", EDITION),
    ("post-function", CODE),
    ("pre-function", CODE),
    ("redirect-https", EDITION),
    ("request-callout", EDITION),
    ("request-validator", EDITION),
    ("route-by-header", EDITION),
    ("saml", EDITION),
    ("service-protection", EDITION),
    ("tls-handshake-modifier", EDITION),
    ("tls-metadata-headers", EDITION),
    ("upstream-oauth", EDITION),
    ("upstream-timeout", EDITION),
    ("vault-auth", EDITION),
    ("xml-threat-protection", EDITION),
];
/// Parts of names that tell a whole family.
const FAMILIES: &[(&str, &str)] = &[("ai-", TASK), ("kafka-", EDITION), ("websocket-", EDITION)];

const ACME: &str = "certificates are ordered by the section acme of the configuration file \
                    (docs/how-to-tls.md)";
const CODE: &str = "it runs code of the configuration";
const EDITION: &str = "it belongs to another edition of the imitated gateway";
const TASK: &str = "nothing takes its place here";

/// The field by which log plugins run code.
const LUA_FIELDS: &str = "custom_fields_by_lua";

/// A plugin that can't be what its record says.
pub(super) struct Unsupported {
    /// The field, inside the record, that says so.
    pub(super) field: &'static [&'static str],
    /// What it is, for operators.
    pub(super) message: String,
}

/// Why nobody runs the plugin of this name; `None`: somebody does, or it is
/// nobody's name.
fn reason(name: &str) -> Option<&'static str> {
    if kind(name).is_some() {
        return None;
    }
    let named = PLUGINS.iter().find(|(known, _)| *known == name);
    let family = || FAMILIES.iter().find(|(start, _)| name.starts_with(start));
    let found = named.or_else(family).map(|(_, reason)| *reason);
    found.or_else(|| name.ends_with("-advanced").then_some(EDITION))
}

/// What a file is told whose plugin is none of ours; `None`: it is one.
pub(super) fn unknown_plugin(name: &str) -> Option<String> {
    if kind(name).is_some() {
        return None;
    }
    if let Some(reason) = reason(name) {
        return Some(format!(
            "'{name}' is a plugin that Doorward does not run: {reason}"
        ));
    }
    let known = REGISTRY.iter().map(|kind| kind.name);
    let advice = match suggestion::nearest(name, known.clone()) {
        Some(near) => format!("; did you mean '{near}'?"),
        None => String::new(),
    };
    let known: Vec<_> = known.collect();
    let known = known.join(", ");
    Some(format!(
        "there is no plugin '{name}': expected one of {known}{advice}"
    ))
}

/// Whether a plugin's record asks for what nobody does here, whatever else may
/// be wrong with it. A name that looks like a slip is not such a one: leaving it
/// out could open what it is to guard.
pub(super) fn plugin(record: &Map<String, Value>) -> Option<Unsupported> {
    let name = record.get("name")?.as_str()?;
    let unsupported = |field, message| Some(Unsupported { field, message });
    if kind(name).is_none() {
        let known = REGISTRY.iter().map(|kind| kind.name);
        let slip = reason(name).is_none() && suggestion::nearest(name, known).is_some();
        let message = unknown_plugin(name).filter(|_| !slip)?;
        let message = match reason(name) {
            Some(_) => message,
            None => format!("'{name}' is a plugin that Doorward does not run: nobody knows it"),
        };
        return unsupported(&["name"], message);
    }
    let lua = record
        .get("config")
        .and_then(|config| config.get(LUA_FIELDS));
    let is_run = |program: &Value| program.as_str().is_some_and(leaves_field_out);
    if lua
        .and_then(Value::as_object)
        .is_some_and(|map| !map.values().all(is_run))
    {
        let message = format!("'{name}' with {LUA_FIELDS} is not run: {CODE}");
        return unsupported(&["config", LUA_FIELDS], message);
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(record: &Value) -> Option<String> {
        plugin(record.as_object().expect("a record")).map(|found| found.message)
    }

    #[test]
    fn a_slip_is_no_foreign_plugin() {
        assert_eq!(message(&json!({"name": "key-auht"})), None);
        assert_eq!(message(&json!({"name": "key-auth"})), None);
        let foreign = message(&json!({"name": "pre-function"})).expect("foreign");
        assert!(foreign.contains("does not run"), "{foreign}");
        for name in ["rate-limiting-advanced", "ai-proxy", "our-own-thing"] {
            assert!(message(&json!({ "name": name })).is_some(), "{name}");
        }
    }

    #[test]
    fn code_is_told_by_its_field() {
        let code = json!({"name": "cors", "config": {"custom_fields_by_lua": {"a": "return 1"}}});
        let found = plugin(code.as_object().expect("a record")).expect("found");
        assert_eq!(found.field, ["config", "custom_fields_by_lua"]);
        let empty = json!({"name": "cors", "config": {"custom_fields_by_lua": {}}});
        assert_eq!(message(&empty), None);
        let left_out = json!({"name": "cors", "config":
            {"custom_fields_by_lua": {"a": "return nil", "b.c": " return nil\n"}}});
        assert_eq!(message(&left_out), None);
        let mixed = json!({"name": "cors", "config":
            {"custom_fields_by_lua": {"a": "return nil", "b": "return 1"}}});
        assert!(message(&mixed).is_some());
        assert_eq!(
            message(&json!({"name": "cors", "consumer_group": "gold"})),
            None
        );
    }
}
