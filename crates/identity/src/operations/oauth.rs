//! OAuth 2.0 and OpenID Connect.

use serde_json::{Value, json};

use super::{FORM, object, of_client, of_token, refused};
use doorward_core::openapi::{JSON, Operation, Parameter, fields, reference, text};

/// The grants of the token endpoint.
const GRANTS: [&str; 8] = [
    "authorization_code",
    "client_credentials",
    "password",
    "refresh_token",
    "urn:ietf:params:oauth:grant-type:device_code",
    "http://oauth.net/grant_type/device/1.0",
    "urn:ietf:params:oauth:grant-type:jwt-bearer",
    "urn:ietf:params:oauth:grant-type:token-exchange",
];

/// A form of the client's: what proves the client may stand in it.
fn form<const N: usize>(members: [&str; N], required: &[&str]) -> Value {
    let mut schema = fields(members.map(|name| (name, text())), required);
    for name in [
        "client_id",
        "client_secret",
        "client_assertion",
        "client_assertion_type",
    ] {
        schema["properties"][name] = text();
    }
    schema
}

/// With the refusals of OAuth 2.0.
fn refusing(operation: Operation) -> Operation {
    let why = [
        (400, "The request makes no sense."),
        (401, "The client or the token is not proved."),
        (403, "The token's scopes are not enough."),
        (413, "The body is too large."),
        (429, "Too many wrong secrets, or too many requests."),
    ];
    refused(operation, JSON, &reference("oauth-error"), &why)
}

/// `access_token`
pub(crate) fn token(_: &str) -> Operation {
    let mut body = form(
        [
            "code",
            "redirect_uri",
            "code_verifier",
            "username",
            "password",
            "refresh_token",
            "device_code",
            "assertion",
            "subject_token",
            "subject_token_type",
            "actor_token",
            "actor_token_type",
            "requested_token_type",
            "scope",
            "resource",
            "audience",
        ],
        &["grant_type"],
    );
    body["properties"]["grant_type"] = json!({"type": "string", "enum": GRANTS});
    let tokens = fields(
        [
            ("access_token", text()),
            ("token_type", text()),
            ("expires_in", json!({"type": "integer"})),
            ("scope", text()),
            ("refresh_token", text()),
            ("id_token", text()),
            ("issued_token_type", text()),
        ],
        &["access_token", "token_type"],
    );
    let operation = Operation::new("Issues tokens (RFC 6749 §3.2).")
        .body_as(FORM, &body)
        .body_required()
        .takes([Parameter::header(
            "DPoP",
            text(),
            "A proof of possession (RFC 9449).",
        )])
        .answers(200, "The tokens.", &tokens);
    of_client(refusing(operation))
}

/// `tokeninfo`
pub(crate) fn tokeninfo(_: &str) -> Operation {
    let operation = Operation::new("Tells the claims of an access token.")
        .takes([Parameter::query(
            "access_token",
            text(),
            "The token, if no header has it.",
        )])
        .answers(200, "The claims.", &object());
    refusing(operation).security(json!([{"token": []}, {}]))
}

/// `idtokeninfo`
pub(crate) fn id_token_info(_: &str) -> Operation {
    let operation = Operation::new("Tells the claims of an ID token to its client.")
        .body_as(FORM, &form(["id_token", "claims"], &["id_token"]))
        .body_required()
        .answers(200, "The claims.", &object());
    of_client(refusing(operation))
}

/// `introspect`
pub(crate) fn introspect(_: &str) -> Operation {
    let answer = fields([("active", json!({"type": "boolean"}))], &["active"]);
    let operation = Operation::new("Tells what a token means (RFC 7662).")
        .body_as(FORM, &form(["token", "token_type_hint"], &["token"]))
        .body_required()
        .answers(200, "Whether it is good, and if so its claims.", &answer);
    of_client(refusing(operation))
}

/// `token/revoke`
pub(crate) fn revoke(_: &str) -> Operation {
    let operation = Operation::new("Takes a token back (RFC 7009).")
        .body_as(FORM, &form(["token", "token_type_hint"], &["token"]))
        .body_required()
        .answers(200, "It is good for nothing any more.", &object());
    of_client(refusing(operation))
}

/// `userinfo`
pub(crate) fn userinfo(method: &str) -> Operation {
    let claims = fields([("sub", text())], &["sub"]);
    let operation = Operation::new("Tells the claims of the user (OpenID Connect Core §5.3).")
        .answers(
            200,
            "The claims, signed where the client registers that.",
            &claims,
        )
        .answers_as(200, "", "application/jwt", &text());
    let operation = match method {
        "POST" => operation.body_as(FORM, &fields([("access_token", text())], &[])),
        _ => operation,
    };
    of_token(refusing(operation))
}

/// `device/code`
pub(crate) fn device_code(_: &str) -> Operation {
    let codes = fields(
        [
            ("device_code", text()),
            ("user_code", text()),
            ("verification_uri", text()),
            ("verification_uri_complete", text()),
            ("expires_in", json!({"type": "integer"})),
            ("interval", json!({"type": "integer"})),
        ],
        &["device_code", "user_code", "verification_uri", "expires_in"],
    );
    let operation = Operation::new("Gives a device its codes (RFC 8628 §3.1).")
        .body_as(FORM, &form(["scope"], &[]))
        .body_required()
        .answers(200, "The codes.", &codes);
    of_client(refusing(operation))
}

/// `par`
pub(crate) fn pushed_request(_: &str) -> Operation {
    let answer = fields(
        [
            ("request_uri", text()),
            ("expires_in", json!({"type": "integer"})),
        ],
        &["request_uri", "expires_in"],
    );
    let members = [
        "response_type",
        "redirect_uri",
        "scope",
        "state",
        "nonce",
        "code_challenge",
        "code_challenge_method",
        "request",
    ];
    let operation = Operation::new("Takes an authorization request in advance (RFC 9126).")
        .body_as(FORM, &form(members, &[]))
        .body_required()
        .answers(201, "What the request is known by.", &answer);
    of_client(refusing(operation))
}

/// `connect/register`
pub(crate) fn register(method: &str) -> Operation {
    let operation = match method {
        "GET" => Operation::new("Shows a client its record (RFC 7592 §2.1)."),
        "DELETE" => Operation::new("Removes a client (RFC 7592 §2.3)."),
        "PUT" => Operation::new("Replaces a client's record (RFC 7592 §2.2).").body(&object()),
        _ => Operation::new("Registers a client (RFC 7591 §3).").body(&object()),
    };
    let record = fields([("client_id", text())], &["client_id"]);
    let operation = match method {
        "DELETE" => operation.ends(204, "There is no such client any more."),
        "POST" => operation.answers(201, "The record.", &record),
        _ => operation.answers(200, "The record.", &record),
    };
    let client = Parameter::query("client_id", text(), "Whose record.");
    let operation = match method {
        "POST" => operation,
        _ => operation.takes([client]),
    };
    let error = reference("oauth-error");
    let operation = operation.answers(404, "The realm registers nobody.", &error);
    refusing(operation).security(json!([{"token": []}, {}]))
}

/// `.well-known/openid-configuration`
pub(crate) fn metadata(_: &str) -> Operation {
    let answer = fields(
        [
            ("issuer", text()),
            ("authorization_endpoint", text()),
            ("token_endpoint", text()),
        ],
        &["issuer", "authorization_endpoint", "token_endpoint"],
    );
    Operation::new("Tells what the provider can do (OpenID Connect Discovery §4).").answers(
        200,
        "The metadata.",
        &answer,
    )
}

/// `connect/jwk_uri`
pub(crate) fn keys(_: &str) -> Operation {
    let keys = json!({"type": "array", "items": object()});
    Operation::new("Shows the keys that tokens are signed with (RFC 7517).").answers(
        200,
        "The key set.",
        &fields([("keys", keys)], &["keys"]),
    )
}
