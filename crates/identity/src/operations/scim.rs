//! Users and groups (RFC 7644). Paths are also served below `/scim/v2`.

use serde_json::{Value, json};

use super::{object, of_token, refused};
use doorward_core::openapi::{Operation, Parameter, fields, reference, text};

fn record() -> Value {
    fields(
        [
            ("id", text()),
            ("schemas", json!({"type": "array", "items": text()})),
            ("meta", object()),
        ],
        &["id", "schemas"],
    )
}

fn page() -> Value {
    fields(
        [
            ("schemas", json!({"type": "array", "items": text()})),
            ("totalResults", json!({"type": "integer"})),
            ("Resources", json!({"type": "array", "items": object()})),
        ],
        &["schemas", "totalResults", "Resources"],
    )
}

const SCIM: &str = "application/scim+json";

/// Statuses of refusals, and what each says.
type Refusals = &'static [(u16, &'static str)];

/// What every endpoint for the holders of tokens refuses.
const REFUSALS: Refusals = &[
    (400, "The request makes no sense."),
    (401, "The token is absent or not good."),
    (403, "The token's scopes are not enough."),
    (404, "There is no such record."),
    (406, "No type of answer is one that is accepted."),
    (429, "Too many requests."),
];
const OF_BODIES: Refusals = &[
    (413, "The body is too large."),
    (415, "The body is of a type that is not read."),
];
const OF_CHANGES: Refusals = &[
    (409, "Another record stands in the way."),
    (412, "The record is not as it was."),
];

/// With the refusals of an operation that changes nothing.
fn reading(operation: Operation) -> Operation {
    let error = reference("scim-error");
    let has_body = operation.has_body();
    let operation = refused(operation, SCIM, &error, REFUSALS);
    let operation = if has_body {
        refused(operation, SCIM, &error, OF_BODIES)
    } else {
        operation
    };
    of_token(operation)
}

/// With the refusals of an operation that changes something.
fn changing(operation: Operation) -> Operation {
    refused(
        reading(operation),
        SCIM,
        &reference("scim-error"),
        OF_CHANGES,
    )
}

fn list_parameters() -> [Parameter; 5] {
    let number = || json!({"type": "integer", "minimum": 0});
    let query = Parameter::query;
    [
        query("filter", text(), "Which records (RFC 7644 §3.4.2.2)."),
        query("sortBy", text(), "The attribute to sort by."),
        query(
            "startIndex",
            number(),
            "The first record, counted from one.",
        ),
        query("count", number(), "Most records of a page."),
        query("attributes", text(), "The attributes to show."),
    ]
}

/// An answer of either type: the one that is accepted, or `application/json`.
fn answers(operation: Operation, status: u16, says: &str, schema: &Value) -> Operation {
    operation
        .answers(status, says, schema)
        .answers_as(status, says, SCIM, schema)
}

/// With a body of either type.
fn takes_object(operation: Operation) -> Operation {
    operation.body(&object()).body_as(SCIM, &object())
}

/// The version that a change is of, or that the caller has (RFC 7644 §3.14).
fn conditional(name: &str, says: &str) -> Parameter {
    Parameter::header(name, text(), says)
}

fn collection(things: &str, thing: &str, method: &str) -> Operation {
    match method {
        "GET" => {
            let operation = Operation::new(format!("Lists {things}.")).takes(list_parameters());
            reading(answers(operation, 200, "A page of them.", &page()))
        }
        _ => {
            let operation = takes_object(Operation::new(format!("Makes a {thing}.")));
            changing(answers(operation, 201, "What was made.", &record()))
        }
    }
}

fn item(thing: &str, method: &str) -> Operation {
    let operation = match method {
        "GET" => Operation::new(format!("Shows a {thing}.")),
        "PUT" => takes_object(Operation::new(format!("Replaces a {thing}."))),
        "PATCH" => takes_object(Operation::new(format!(
            "Changes a {thing} (RFC 7644 §3.5.2)."
        ))),
        _ => Operation::new(format!("Deletes a {thing}.")),
    };
    let seen = || {
        let says = "The version that is meant; another one is refused with 412.";
        conditional("If-Match", says)
    };
    match method {
        "GET" => {
            let says = "The version that the caller has.";
            let operation = operation.takes([conditional("If-None-Match", says)]);
            let operation = answers(operation, 200, "The record.", &record());
            reading(operation.ends(304, "The caller has this version."))
        }
        "DELETE" => {
            let operation = operation.takes([seen()]);
            changing(operation.ends(204, "There is no such record any more."))
        }
        _ => {
            let operation = operation.takes([seen()]);
            changing(answers(operation, 200, "The record.", &record()))
        }
    }
}

fn search_of(things: &str) -> Operation {
    let operation = Operation::new(format!("Looks for {things} (RFC 7644 §3.4.3)."));
    reading(answers(
        takes_object(operation),
        200,
        "A page of them.",
        &page(),
    ))
}

/// `users`
pub(crate) fn users(method: &str) -> Operation {
    collection("users", "user", method)
}

/// `users/{id}`
pub(crate) fn user(method: &str) -> Operation {
    item("user", method)
}

/// `users/.search`
pub(crate) fn users_search(_: &str) -> Operation {
    search_of("users")
}

/// `groups`
pub(crate) fn groups(method: &str) -> Operation {
    collection("groups", "group", method)
}

/// `groups/{id}`
pub(crate) fn group(method: &str) -> Operation {
    let operation = item("group", method);
    match method {
        "PATCH" => operation.ends(204, "It is changed. Nothing of it was asked for."),
        _ => operation,
    }
}

/// `groups/.search`
pub(crate) fn groups_search(_: &str) -> Operation {
    search_of("groups")
}

/// `.search`
pub(crate) fn search(_: &str) -> Operation {
    search_of("users and groups")
}

/// `Me`
pub(crate) fn me(method: &str) -> Operation {
    match method {
        "DELETE" => reading(Operation::new(
            "Is refused with 403: users can't remove themselves (RFC 7644 §3.11).",
        )),
        _ => item("user's own record", method),
    }
}

/// `Bulk`
pub(crate) fn bulk(_: &str) -> Operation {
    let operation = takes_object(Operation::new("Does many requests in one (RFC 7644 §3.7)."));
    changing(answers(operation, 200, "What came of each.", &object()))
}

/// `Schemas` and `ResourceTypes`
pub(crate) fn definitions(_: &str) -> Operation {
    let operation = defining("Lists what there is (RFC 7644 §4).");
    answers(operation, 200, "All of it.", &page())
}

/// `Schemas/{id}`, `ResourceTypes/{id}` and `ServiceProviderConfig`
pub(crate) fn definition(_: &str) -> Operation {
    let operation = defining("Shows what there is (RFC 7644 §4).");
    answers(operation, 200, "It.", &object())
}

/// A part of the description of SCIM itself, which needs no token.
fn defining(summary: &str) -> Operation {
    let why = [
        (400, "The request makes no sense."),
        (403, "What is described is not filtered."),
        (404, "There is no such thing."),
        (406, "No type of answer is one that is accepted."),
    ];
    refused(
        Operation::new(summary),
        SCIM,
        &reference("scim-error"),
        &why,
    )
}
