//! Refusals as the description tells them (gateway-admin-api §4).

use serde_json::{Value, json};

use doorward_core::openapi::{Document, reference};

/// The statuses that requests are refused with, and why.
const STATUSES: [(&str, &str); 9] = [
    ("400", "The path, the query or the body makes no sense."),
    ("401", "The token is absent or wrong."),
    (
        "403",
        "The request came from a foreign web page or under a foreign host.",
    ),
    (
        "404",
        "There is no such record, or no such part of the program.",
    ),
    ("409", "Another record or a file stands in the way."),
    (
        "412",
        "The record is not as it was when it was read; read it again.",
    ),
    ("413", "The body is too large."),
    ("503", "The store does not answer. It may in a moment."),
    ("5XX", "The program failed. The log says why."),
];

/// Adds the refusals and their schema.
pub(super) fn add(document: &mut Document) {
    document.schema("refusal", schema());
    let schema = reference("refusal");
    for (status, description) in STATUSES {
        document.refusal(status, description, &schema);
    }
    document.refusal(
        "415",
        "The body is of a type that is not read.",
        &Value::Null,
    );
}

/// The statuses that a method of a path may be refused with.
pub(super) fn of(method: &str, has_open_parts: bool, has_body: bool) -> Vec<&'static str> {
    let mut statuses = vec!["400", "401", "403"];
    if has_open_parts {
        statuses.push("404");
    }
    if has_body {
        statuses.extend(["413", "415"]);
    }
    if method != "GET" {
        statuses.extend(["409", "503"]);
    }
    statuses.push("5XX");
    statuses
}

fn schema() -> Value {
    let codes = "1: invalid primary key; 2: schema violation; 3: primary key violation; \
        4: foreign key violation; 5: unique constraint violation; 6: not found; 7: invalid \
        offset; 9: invalid size; 10: invalid unique field; 11: invalid options; 12: operation \
        unsupported; 13: foreign keys unresolved; 14: invalid declarative configuration.";
    json!({
        "type": "object",
        "required": ["message"],
        "properties": {
            "message": {"type": "string", "description": "What is wrong, for people."},
            "name": {"type": "string", "description": "What kind of refusal it is."},
            "code": {"type": "integer", "minimum": 1, "maximum": 14, "description": codes},
            "fields": {
                "type": ["object", "null"],
                "description": "What is wrong, by field, nested as the record is. `@entity` \
                    lists what is wrong with the record as a whole.",
            },
            "options": {
                "type": "object",
                "description": "What is wrong, by parameter of the query.",
            },
            "flattened_errors": {
                "type": "array",
                "items": {"type": "object"},
                "description": "Of a document: what is wrong, by entity.",
            },
        },
    })
}
