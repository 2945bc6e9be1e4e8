//! Records of the token broker: their schemas, and what is done with them.

use serde_json::{Value, json};

use super::entities::{declared, paging};
use doorward_core::openapi::{Document, Operation, Parameter, fields, list_of, reference, text};

/// Adds the schemas of records.
pub(super) fn add(document: &mut Document) {
    for (name, members) in [
        ("product", product()),
        ("developer", developer()),
        ("application", application()),
    ] {
        document.schema(format!("broker-{name}-input"), members.clone());
        let mut changed = members.clone();
        changed["properties"]["version"] = version();
        document.schema(format!("broker-{name}-change"), changed);
        let owner = json!({"type": "string", "enum": ["store", "file"]});
        let mut shown = members;
        shown["properties"]["owner"] = owner;
        for number in ["created_at", "updated_at", "version"] {
            shown["properties"][number] = json!({"type": "integer"});
        }
        shown["properties"]["declared_in"] = text();
        shown["properties"]["declared_line"] = json!({"type": "integer"});
        shown["required"] = json!(["owner", "created_at", "updated_at", "version"]);
        document.schema(format!("broker-{name}"), shown);
    }
}

fn texts() -> Value {
    json!({"type": "array", "items": text()})
}

fn attributes() -> Value {
    json!({"type": "object", "additionalProperties": text()})
}

fn product() -> Value {
    let units = ["second", "minute", "hour", "day", "month"];
    fields(
        [
            ("name", text()),
            ("display_name", text()),
            ("description", text()),
            ("proxies", texts()),
            ("environments", texts()),
            ("api_resources", texts()),
            ("scopes", texts()),
            ("quota", json!({"type": ["integer", "null"], "minimum": 0})),
            ("quota_interval", json!({"type": "integer", "minimum": 0})),
            ("quota_time_unit", json!({"type": "string", "enum": units})),
            ("attributes", attributes()),
        ],
        &[],
    )
}

fn developer() -> Value {
    fields(
        [
            ("email", text()),
            ("developer_id", text()),
            ("first_name", text()),
            ("last_name", text()),
            ("user_name", text()),
            (
                "status",
                json!({"type": "string", "enum": ["active", "inactive"]}),
            ),
            ("attributes", attributes()),
        ],
        &[],
    )
}

fn application() -> Value {
    let statuses = ["approved", "pending", "revoked"];
    fields(
        [
            ("id", json!({"type": "string", "format": "uuid"})),
            ("name", text()),
            ("developer", text()),
            ("consumer_key", text()),
            (
                "consumer_secret",
                json!({
                    "type": "string",
                    "description": "In an answer only where it was made for the request.",
                }),
            ),
            ("products", texts()),
            ("status", json!({"type": "string", "enum": statuses})),
            ("callback_url", text()),
            ("attributes", attributes()),
            ("tokens_revoked_ms", json!({"type": "integer"})),
        ],
        &[],
    )
}

/// The version that a change is of.
fn version() -> Value {
    json!({
        "type": ["integer", "null"],
        "description": "The version that is meant. Another one is refused with 412.",
    })
}

fn body(kind: &str, demanded: &[&str]) -> Value {
    let input = reference(&format!("broker-{kind}"));
    if demanded.is_empty() {
        return input;
    }
    json!({"allOf": [input, {"required": demanded}]})
}

fn collection(kind: &str, demanded: &[&str], method: &str) -> Operation {
    let shown = reference(&format!("broker-{kind}"));
    let operation = match method {
        "GET" => Operation::new(format!("Lists the {kind}s of the token broker."))
            .takes(paging())
            .takes([declared()])
            .answers(200, "A page of them.", &list_of(&shown)),
        _ => Operation::new(format!("Makes one of the {kind}s of the token broker."))
            .body(&body(&format!("{kind}-input"), demanded))
            .answers(201, "What was made.", &shown),
    };
    operation.refuses(&["404"])
}

fn item(kind: &str, key: &str, demanded: &[&str], method: &str) -> Operation {
    let shown = reference(&format!("broker-{kind}"));
    let one = format!("one of the {kind}s of the token broker");
    let change = format!("{kind}-change");
    let operation = match method {
        "GET" => Operation::new(format!("Shows {one}."))
            .takes([declared()])
            .answers(200, "The record.", &shown),
        "DELETE" => Operation::new(format!("Deletes {one}."))
            .takes([Parameter::query(
                "version",
                json!({"type": "integer"}),
                "The version that is meant. Another one is refused with 412.",
            )])
            .ends(204, "It is deleted."),
        "PATCH" => Operation::new(format!("Changes {one}."))
            .body(&body(&change, &[]))
            .answers(200, "The record as it is now.", &shown),
        _ => Operation::new(format!("Replaces {one}, or makes it."))
            .body(&body(&change, demanded))
            .answers(200, "The record as it is now.", &shown)
            .answers(201, "What was made.", &shown),
    };
    let operation = operation.names("id", key);
    if method == "GET" {
        return operation;
    }
    operation.refuses(&["412"])
}

/// What the description says of products.
pub(in super::super) fn products(method: &str) -> Operation {
    collection("product", &["name"], method)
}

/// What the description says of a product.
pub(in super::super) fn product_item(method: &str) -> Operation {
    item("product", "Its `name`.", &[], method)
}

/// What the description says of developers.
pub(in super::super) fn developers(method: &str) -> Operation {
    collection("developer", &["email"], method)
}

/// What the description says of a developer.
pub(in super::super) fn developer_item(method: &str) -> Operation {
    item("developer", "Its `email` or `developer_id`.", &[], method)
}

/// What the description says of applications.
pub(in super::super) fn applications(method: &str) -> Operation {
    collection("application", &["name", "developer"], method)
}

/// What the description says of an application.
pub(in super::super) fn application_item(method: &str) -> Operation {
    item("application", APPLICATION, &["name", "developer"], method)
}

const APPLICATION: &str = "Its `id` or `consumer_key`.";

/// What the description says of another secret.
pub(in super::super) fn secret(_: &str) -> Operation {
    let mut given = fields(
        [
            ("consumer_secret", json!({"type": ["string", "null"]})),
            ("version", version()),
        ],
        &[],
    );
    given["additionalProperties"] = false.into();
    Operation::new("Gives an application another secret: one from the body, or a new one.")
        .names("id", APPLICATION)
        .optional_body(&given)
        .answers(
            200,
            "The application, with a secret that was made.",
            &reference("broker-application"),
        )
        .refuses(&["412"])
}

/// What the description says of an application's tokens.
pub(in super::super) fn tokens(_: &str) -> Operation {
    Operation::new("Revokes all tokens that an application has got so far.")
        .names("id", APPLICATION)
        .ends(204, "They are revoked.")
}

/// What the description says of the revocation of tokens.
pub(in super::super) fn revoke(_: &str) -> Operation {
    let mut which = fields(
        [
            ("token", text()),
            ("end_user", text()),
            ("cascade", json!({"type": "boolean", "default": true})),
        ],
        &[],
    );
    which["additionalProperties"] = false.into();
    which["oneOf"] = json!([{"required": ["token"]}, {"required": ["end_user"]}]);
    Operation::new("Revokes a token, or all that came of sign-ins of an end user.")
        .body(&which)
        .ends(204, "It is revoked.")
        .refuses(&["404"])
}
