//! What browsers show to people, and what pages load.

use super::{FORM, object, refused};
use doorward_core::openapi::{JSON, Operation, Parameter, text};
use serde_json::json;

fn page(summary: &str, method: &str) -> Operation {
    let operation = Operation::new(summary)
        .answers_as(200, "A page.", "text/html", &text())
        .ends(302, "The browser is led on.")
        .ends(303, "The browser is led on.");
    let why = [
        (400, "A page that says what is wrong."),
        (403, "A page that says who may not do this."),
        (404, "A page that says so."),
        (413, "A page that says that the form is too large."),
        (429, "A page that asks to try again later."),
    ];
    let operation = refused(operation, "text/html", &text(), &why);
    match method {
        "POST" => operation.body_as(FORM, &json!({"type": "object"})),
        _ => operation,
    }
}

/// `authorize`
pub(crate) fn authorize(method: &str) -> Operation {
    let operation = page(
        "Signs in, asks for consent, and gives codes and tokens (RFC 6749 §3.1).",
        method,
    );
    if method != "GET" {
        return operation;
    }
    let parameters = [
        ("client_id", "The client."),
        ("response_type", "What it asks for."),
        ("redirect_uri", "Where the answer goes."),
        ("scope", "Scopes, with blanks between."),
        ("state", "What comes back with the answer."),
        ("nonce", "What the ID token repeats."),
        ("response_mode", "How the answer is given."),
        ("prompt", "Which pages are shown."),
        ("max_age", "Seconds since the sign-in."),
        ("code_challenge", "Of the proof key (RFC 7636)."),
        ("code_challenge_method", "How that was made: `S256`."),
        ("request", "A signed request (RFC 9101)."),
        (
            "request_uri",
            "Where it is, or what a pushed one is known by.",
        ),
    ];
    operation.takes(parameters.map(|(name, says)| Parameter::query(name, text(), says)))
}

/// `authorize/login`
pub(crate) fn sign_in(method: &str) -> Operation {
    page("Takes what a sign-in page was filled with.", method)
}

/// `device/user`
pub(crate) fn device(method: &str) -> Operation {
    page(
        "Lets a user enter the code of a device (RFC 8628 §3.3).",
        method,
    )
}

/// `account`
pub(crate) fn account(method: &str) -> Operation {
    page("Lets users look after their account.", method)
}

/// `federation/{id}`
pub(crate) fn federation(method: &str) -> Operation {
    page("Leads to another provider.", method).names("id", "The name of the other provider.")
}

/// `federation/{id}/callback`
pub(crate) fn federation_callback(method: &str) -> Operation {
    page("Takes the answer of another provider.", method)
        .names("id", "The name of the other provider.")
}

/// `connect/endSession`
pub(crate) fn end_session(method: &str) -> Operation {
    page("Signs out (OpenID Connect RP-Initiated Logout §2).", method)
}

/// `password/forgot`
pub(crate) fn forgot(method: &str) -> Operation {
    page("Sends a link to those who forgot their password.", method)
}

/// `password/reset`
pub(crate) fn reset(method: &str) -> Operation {
    page("Takes a new password from who has such a link.", method)
}

/// `theme/{id}`
pub(crate) fn theme(_: &str) -> Operation {
    Operation::new("Gives a file of the operator's theme.")
        .names("id", "The name of the file.")
        .answers_as(200, "The file.", "*/*", &text())
        .ends(304, "The browser has it.")
        .answers_as(404, "There is no such file.", JSON, &object())
}

/// `passkey.js`
pub(crate) fn script(_: &str) -> Operation {
    Operation::new("Gives the script of pages that ask for passkeys.").answers_as(
        200,
        "The script.",
        "text/javascript",
        &text(),
    )
}
