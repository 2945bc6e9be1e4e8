//! What these endpoints take and give, for the description of the Admin API in
//! OpenAPI 3.1: each row of the table names its part of it.

mod client;
mod probes;
mod records;
mod users;

use serde_json::{Map, Value, json};

use super::{ENDPOINTS, PREFIX};
use doorward_core::openapi::{
    Document, Operation, Parameter, fields, list_of, open_parts, reference, text,
};
use users::version;

/// Adds the endpoints to a description. `refusals` gives the statuses of refusals, by
/// method, open parts of the path, and body.
pub(crate) fn describe(
    document: &mut Document,
    refusals: fn(&str, bool, bool) -> Vec<&'static str>,
) {
    for (name, schema) in records::all() {
        document.schema(format!("identity-{name}"), schema);
    }
    document.schema("identity-client", client::answer());
    document.schema("identity-client-input", client::input());
    document.tag("identity", "The identity provider in this process.");
    for endpoint in ENDPOINTS {
        let operation = (endpoint.describe)();
        let has_open_parts = !open_parts(endpoint.path).is_empty();
        let statuses = refusals(endpoint.method, has_open_parts, operation.has_body());
        let path = format!("{PREFIX}{}", endpoint.path);
        // A query may name a realm that is not there.
        let mut operation = operation.tag("identity").refuses(&["404"]);
        if operation.has_body() {
            let says = "The body is of a type that is not read.";
            operation = operation.answers(415, says, &reference("refusal"));
        }
        document.add(endpoint.method, &path, operation.refuses(&statuses));
    }
}

/// The members that a client may have, each with its JSON Schema.
pub fn client_members() -> Map<String, Value> {
    client::members()
}

/// Says that another change may have been there first.
fn versioned(operation: Operation) -> Operation {
    operation.refuses(&["412"])
}

fn realm() -> Parameter {
    let schema = json!({"type": "string", "default": "/"});
    Parameter::query("realm", schema, "The path of the realm.")
}

fn paging() -> [Parameter; 2] {
    let size = json!({"type": "integer", "minimum": 1, "maximum": 1000, "default": 100});
    [
        Parameter::query("size", size, "Most records of a page."),
        Parameter::query(
            "offset",
            text(),
            "Where the page begins: `offset` of the one before.",
        ),
    ]
}

/// Whether the file is told that declares a record.
fn declared() -> Parameter {
    let text = "`true`: with `declared_in` and `declared_line`, the file and the line that declare the record, \
                if there are any.";
    Parameter::query("declared", json!({"type": "boolean"}), text)
}

/// The schema of a record.
fn of(record: &str) -> Value {
    reference(&format!("identity-{record}"))
}

/// A list of records, a page at a time.
fn list(summary: &str, record: &str) -> Operation {
    let page = list_of(&of(record));
    Operation::new(summary)
        .takes(paging())
        .answers(200, "A page of them.", &page)
}

fn client_of(summary: &str) -> Operation {
    Operation::new(summary)
        .takes([realm()])
        .names("id", "The `client_id`.")
}

pub(super) fn list_clients() -> Operation {
    let owners = json!({"type": "string", "enum": ["store", "file", "client"]});
    list("Lists clients.", "client").takes([
        realm(),
        Parameter::query("owner", owners, "Only those of this owner."),
        Parameter::query("q", text(), "A text that identifier or name contain."),
        declared(),
    ])
}

pub(super) fn create_client() -> Operation {
    client_of("Makes a client.")
        .body(&of("client-input"))
        .answers(
            201,
            "The client, with a secret that was made for it.",
            &of("client"),
        )
}

pub(super) fn show_client() -> Operation {
    client_of("Shows a client.")
        .takes([declared()])
        .answers(200, "The client.", &of("client"))
}

pub(super) fn put_client() -> Operation {
    versioned(client_of("Replaces all metadata of a client, or makes it."))
        .body(&client::change())
        .answers(200, "The client as it is now.", &of("client"))
        .answers(
            201,
            "The client, with a secret that was made for it.",
            &of("client"),
        )
}

pub(super) fn patch_client() -> Operation {
    versioned(client_of(
        "Changes some metadata of a client; null removes.",
    ))
    .body(&client::change())
    .answers(200, "The client as it is now.", &of("client"))
}

pub(super) fn delete_client() -> Operation {
    versioned(client_of(
        "Deletes a client, with everything that it was granted.",
    ))
    .takes([version()])
    .ends(204, "There is no such client any more.")
}

pub(super) fn rotate_secret() -> Operation {
    let mut given = fields(
        [
            ("client_secret", json!({"type": ["string", "null"]})),
            ("version", json!({"type": ["integer", "null"]})),
        ],
        &[],
    );
    given["additionalProperties"] = false.into();
    versioned(client_of(
        "Gives a client another secret: one from the body, or a new one.",
    ))
    .optional_body(&given)
    .answers(
        200,
        "The client, with a secret that was made.",
        &of("client"),
    )
}

pub(super) fn list_initial_tokens() -> Operation {
    list(
        "Lists initial access tokens, without their texts.",
        "initial-token",
    )
    .takes([realm()])
}

pub(super) fn create_initial_token() -> Operation {
    let number = || json!({"type": ["integer", "null"], "minimum": 0});
    let mut wish = fields(
        [
            ("uses", number()),
            ("expires_in", number()),
            ("note", text()),
        ],
        &[],
    );
    wish["additionalProperties"] = false.into();
    Operation::new("Makes an initial access token. Its text is shown once, here.")
        .takes([realm()])
        .optional_body(&wish)
        .answers(201, "The token.", &of("initial-token"))
}

pub(super) fn delete_initial_token() -> Operation {
    Operation::new("Deletes an initial access token.")
        .takes([realm()])
        .ends(204, "There is no such token any more.")
}

pub(super) fn list_keys() -> Operation {
    list("Lists signing keys: their public facts.", "key")
}

pub(super) fn rotate_keys() -> Operation {
    let flag = || json!({"type": "boolean", "default": false});
    let mut wish = fields(
        [
            ("alg", records::algorithm()),
            ("now", flag()),
            ("drop_old", flag()),
        ],
        &[],
    );
    wish["additionalProperties"] = false.into();
    let keys = json!({"type": "array", "items": of("key")});
    Operation::new("Makes the successors of signing keys.")
        .optional_body(&wish)
        .answers(
            201,
            "Those that were made.",
            &fields([("data", keys)], &["data"]),
        )
}

pub(super) fn list_lockouts() -> Operation {
    list(
        "Lists names and addresses that are locked after wrong passwords.",
        "lockout",
    )
}

pub(super) fn lift_named_lockout() -> Operation {
    Operation::new("Lifts the lock of a name or an address, if there is one.")
        .description("One of `name` and `address` has to be there.")
        .takes([
            realm(),
            Parameter::query("name", text(), "The name."),
            Parameter::query("address", text(), "The IP address."),
        ])
        .ends(204, "It is not locked.")
}

pub(super) fn lift_lockout() -> Operation {
    Operation::new("Lifts a lock.").ends(204, "It is lifted.")
}

fn realm_of(summary: &str) -> Operation {
    let path = "The path of the realm, which may have several parts; `root` is the top.";
    Operation::new(summary).names("path", path)
}

pub(super) fn list_realms() -> Operation {
    list("Lists realms, without their settings.", "realm-summary").takes([declared()])
}

/// The settings of a realm are checked by the realm: the description leaves them open.
fn realm_input(has_path: bool) -> Value {
    let mut members = fields(
        [
            ("path", text()),
            ("settings", json!({"type": "object"})),
            ("version", json!({"type": ["integer", "null"]})),
        ],
        &[],
    );
    if has_path {
        members["required"] = json!(["path"]);
    }
    members
}

pub(super) fn create_realm() -> Operation {
    Operation::new("Makes a realm.")
        .body(&realm_input(true))
        .answers(201, "The realm.", &of("realm"))
}

pub(super) fn show_realm() -> Operation {
    realm_of("Shows a realm, and what is in force in it.")
        .takes([declared()])
        .answers(200, "The realm.", &of("realm"))
}

pub(super) fn put_realm() -> Operation {
    versioned(realm_of(
        "Replaces all own settings of a realm, or makes it.",
    ))
    .body(&realm_input(false))
    .answers(200, "The realm as it is now.", &of("realm"))
    .answers(201, "The realm.", &of("realm"))
}

pub(super) fn patch_realm() -> Operation {
    versioned(realm_of(
        "Changes some own settings of a realm; null removes.",
    ))
    .body(&realm_input(false))
    .answers(200, "The realm as it is now.", &of("realm"))
}

pub(super) fn delete_realm() -> Operation {
    versioned(realm_of("Deletes a realm in which nothing is left."))
        .takes([version()])
        .ends(204, "There is no such realm any more.")
}

pub(super) fn list_retired_names() -> Operation {
    list(
        "Lists names of users who were deleted or renamed.",
        "retired-name",
    )
    .takes([realm()])
}

pub(super) fn release_name() -> Operation {
    Operation::new("Releases a retired name: tokens may call another user so.")
        .takes([
            realm(),
            Parameter::query("name", text(), "The name.").required(),
        ])
        .ends(204, "It is released.")
}

fn session_filters() -> [Parameter; 3] {
    [
        realm(),
        Parameter::query("user", text(), "Only those of this user, by name."),
        Parameter::query("client_id", text(), "Only those that led to this client."),
    ]
}

pub(super) fn list_sessions() -> Operation {
    list("Lists sessions.", "session").takes(session_filters())
}

pub(super) fn end_sessions() -> Operation {
    let ended = fields([("ended", json!({"type": "integer"}))], &["ended"]);
    Operation::new("Ends the sessions of a user, a client, or both.")
        .description("One of `user` and `client_id` has to be there.")
        .takes(session_filters())
        .answers(200, "How many have ended.", &ended)
}

pub(super) fn show_session() -> Operation {
    Operation::new("Shows a session.")
        .takes([realm()])
        .answers(200, "The session.", &of("session"))
}

pub(super) fn end_session() -> Operation {
    Operation::new("Ends a session.")
        .takes([realm()])
        .ends(204, "It has ended.")
}

fn of_user(operation: Operation) -> Operation {
    operation
        .takes([realm()])
        .names("id", "The identifier of the user, a UUID.")
}

pub(super) use probes::{probe_directory, probe_mail, probe_provider};
pub(super) use users::{
    add_member, create_group, create_user, delete_group, delete_user, list_consents, list_groups,
    list_members, list_users, patch_group, patch_user, remove_member, reset_password, show_group,
    show_user, withdraw_consent,
};

pub(super) fn list_factors() -> Operation {
    let mut page = list_of(&of("factor"));
    let says = "What tells all factors of the user from others.";
    page["properties"]["version"] = json!({"type": "string", "description": says});
    let operation = Operation::new("Lists the second factors of a user.").takes(paging());
    of_user(operation.answers(200, "A page of them.", &page))
}

pub(super) fn reset_factors() -> Operation {
    let summary = "Removes all second factors of a user, and ends the user's sessions.";
    let says = "The version of the list that is meant. Another one is refused with 412.";
    versioned(of_user(Operation::new(summary)))
        .takes([Parameter::query("version", text(), says)])
        .ends(204, "There are none.")
}

pub(super) fn list_identities() -> Operation {
    of_user(list(
        "Lists accounts of other providers that are linked to a user.",
        "link",
    ))
}

pub(super) fn create_identity() -> Operation {
    let or_null = || json!({"type": ["string", "null"], "minLength": 1});
    let mut link = fields(
        [
            ("subject", json!({"type": "string", "minLength": 1})),
            ("provider", or_null()),
            ("issuer", or_null()),
        ],
        &["subject"],
    );
    link["additionalProperties"] = false.into();
    of_user(Operation::new(
        "Links an account of another provider, by `provider` or `issuer`.",
    ))
    .body(&link)
    .answers(201, "The link.", &of("link"))
}

pub(super) fn delete_identity() -> Operation {
    of_user(Operation::new("Removes a link."))
        .names("id2", "The identifier of the link, a UUID.")
        .ends(204, "It is removed.")
}
