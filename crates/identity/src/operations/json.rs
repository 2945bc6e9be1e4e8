//! `/json`: sessions for programs.

use serde_json::json;

use super::{object, refused};
use doorward_core::openapi::{JSON, Operation, Parameter, fields, reference, text};

/// What every endpoint refuses.
const REFUSALS: [(u16, &str); 7] = [
    (400, "The request makes no sense."),
    (401, "There is no session, or the sign-in failed."),
    (404, "There is no such resource, or no such version of it."),
    (408, "The callbacks came too late."),
    (413, "The body is too large."),
    (415, "The body is of a type that is not read."),
    (429, "Too many requests."),
];

/// With the refusals of endpoints for those who have signed in.
fn refusing(operation: Operation) -> Operation {
    let error = reference("json-error");
    let operation = refused(operation, JSON, &error, &REFUSALS);
    operation.answers(403, "The session is not for this.", &error)
}

fn action(one_of: &[&str]) -> Parameter {
    let schema = json!({"type": "string", "enum": one_of});
    Parameter::query("_action", schema, "What to do.")
}

/// `authenticate`
pub(crate) fn authenticate(_: &str) -> Operation {
    let answer = fields(
        [
            ("tokenId", text()),
            ("successUrl", text()),
            ("realm", text()),
            ("authId", text()),
            ("callbacks", json!({"type": "array", "items": object()})),
        ],
        &[],
    );
    let header = |name, says| Parameter::header(name, text(), says);
    let operation = Operation::new("Signs in: by headers, or by callbacks that are filled in.")
        .takes([
            header("X-Service-Username", "The name."),
            header("X-Service-Password", "The password."),
            header(
                "Accept-API-Version",
                "Such as `resource=2.0, protocol=1.0`.",
            ),
        ])
        .optional_body(&object())
        .answers(200, "A session, or callbacks.", &answer);
    let says = "A page: from this address nobody signs in as the administrator.";
    refused(operation, JSON, &reference("json-error"), &REFUSALS).answers_as(
        403,
        says,
        "text/html",
        &text(),
    )
}

/// `sessions`
pub(crate) fn sessions(_: &str) -> Operation {
    let says = "Which one; there are others in other versions, such as `logout`.";
    let operation = Operation::new("Looks at, refreshes or ends the session of the caller.")
        .takes([Parameter::query("_action", text(), says)])
        .optional_body(&object())
        .answers(200, "What came of it.", &object());
    refusing(operation)
}

/// `sessions/{id}`
pub(crate) fn session(method: &str) -> Operation {
    sessions(method).names("id", "The token of the session.")
}

/// `users`
pub(crate) fn users(_: &str) -> Operation {
    let operation =
        Operation::new("Tells whose the session is, or checks where a browser may be led.")
            .takes([action(&["idFromSession", "validateGoto"])])
            .optional_body(&object())
            .answers(200, "What came of it.", &object());
    refusing(operation)
}

/// `users/{id}`
pub(crate) fn user(method: &str) -> Operation {
    let operation = match method {
        "POST" => Operation::new("Changes the password of the session's own user.")
            .takes([action(&["changePassword"])])
            .body(&object()),
        _ => Operation::new("Shows the record of the session's own user."),
    };
    let operation =
        operation
            .names("id", "The name of the user.")
            .answers(200, "The record.", &object());
    refusing(operation)
}

/// `serverinfo/{id}`
pub(crate) fn server_info(_: &str) -> Operation {
    let answer = fields([("cookieName", text()), ("realm", text())], &[]);
    let operation = Operation::new("Tells clients what they need to know.")
        .names("id", "`*` or `version`.")
        .answers(200, "The facts.", &answer);
    refusing(operation)
}
