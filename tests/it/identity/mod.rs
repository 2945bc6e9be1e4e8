//! The embedded identity provider, reached through the proxy.

mod attacks;
mod authorize;
mod client_auth;
mod client_secrets;
mod cors;
mod device;
mod dpop;
mod exchanges;
mod json;
mod management_input;
mod pages;
mod passwords;
mod people;
mod realms;
mod registration;
mod registration_metadata;
mod revocation_at_gateway;
mod session_commands;
mod subjects;
mod theme;
mod token_endpoints;
mod tokens;

use crate::support::Answer;

/// The fields of a client_credentials request of client `orders`.
const FOR_ITSELF: &[(&str, &str)] = &[
    ("grant_type", "client_credentials"),
    ("client_id", "orders"),
    ("client_secret", "orders-secret"),
    ("scope", "read"),
];

/// The fields of a password request for the user `demo`.
const FOR_DEMO: &[(&str, &str)] = &[
    ("grant_type", "password"),
    ("client_id", "orders"),
    ("client_secret", "orders-secret"),
    ("username", "demo"),
    ("password", "Ch4ng31t-demo"),
    ("scope", "openid profile"),
];

/// `pairs` with one of them replaced, or left out for "".
fn with<'a>(
    pairs: &[(&'a str, &'a str)],
    name: &'a str,
    value: &'a str,
) -> Vec<(&'a str, &'a str)> {
    let mut changed: Vec<_> = pairs
        .iter()
        .copied()
        .filter(|(key, _)| *key != name)
        .collect();
    if !value.is_empty() {
        changed.push((name, value));
    }
    changed
}

fn assert_error(answer: Answer, status: u16, error: &str, text: &str) {
    let answer = answer.expect(status);
    let body = answer.json();
    assert_eq!(body["error"], error, "{body}");
    if !text.is_empty() {
        assert_eq!(body["error_description"], text);
    }
}
