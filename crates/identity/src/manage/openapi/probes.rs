//! What the tests of connections take and give.

use serde_json::{Value, json};

use super::realm;
use doorward_core::openapi::{Operation, fields, text};

fn test(summary: &str, member: &str, required: &[&str]) -> Operation {
    let mut wish = fields([(member, text())], required);
    wish["additionalProperties"] = false.into();
    let operation = Operation::new(summary)
        .description("Nothing is asked that the configuration does not name.");
    let operation = if required.is_empty() {
        operation.optional_body(&wish)
    } else {
        operation.body(&wish)
    };
    operation.answers(200, "What was found.", &findings())
}

fn findings() -> Value {
    let ok = json!({"type": "boolean"});
    let members = [("key", text()), ("ok", ok.clone()), ("message", text())];
    let finding = fields(members, &["key", "ok", "message"]);
    let list = json!({"type": "array", "items": finding});
    fields([("ok", ok), ("findings", list)], &["ok", "findings"])
}

pub(in crate::manage) fn probe_provider() -> Operation {
    let summary = "Fetches what another provider publishes: metadata and keys.";
    test(summary, "name", &["name"]).takes([realm()])
}

pub(in crate::manage) fn probe_directory() -> Operation {
    let summary = "Binds to the directory of a realm, and searches for a name.";
    test(summary, "name", &[]).takes([realm()])
}

pub(in crate::manage) fn probe_mail() -> Operation {
    test("Sends a letter without content.", "to", &["to"])
}
