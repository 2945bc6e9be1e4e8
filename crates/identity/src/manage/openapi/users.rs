//! What the endpoints of users and groups take and give.

use serde_json::{Value, json};

use super::{declared, list, of, of_user, realm, versioned};
use doorward_core::openapi::{Operation, Parameter, fields, text};

/// The attributes are those of the schema of users, which checks them: the
/// description leaves them open.
fn input(members: Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": members,
        "required": required,
        "additionalProperties": true,
    })
}

pub(in crate::manage) fn list_users() -> Operation {
    let begins = "What the user name or an e-mail address begins with.";
    list("Lists users by name, without their groups.", "user").takes([
        realm(),
        Parameter::query("q", text(), begins),
        Parameter::query("name", text(), "The name of the only user to list."),
        declared(),
    ])
}

pub(in crate::manage) fn create_user() -> Operation {
    let members = json!({"userName": text(), "password": text()});
    Operation::new("Makes a user, of attributes of SCIM (RFC 7643 section 4).")
        .takes([realm()])
        .body(&input(members, &["userName"]))
        .answers(201, "The user.", &of("user"))
}

pub(in crate::manage) fn show_user() -> Operation {
    of_user(Operation::new("Shows a user."))
        .takes([declared()])
        .answers(200, "The user.", &of("user"))
}

pub(in crate::manage) fn patch_user() -> Operation {
    let members = json!({
        "active": {"type": "boolean"},
        "password": text(),
        "version": {
            "type": ["integer", "null"],
            "description": "The version that the change is of. Another one is refused with 412.",
        },
    });
    let summary = "Replaces some attributes of a user; null removes one.";
    versioned(of_user(Operation::new(summary)))
        .body(&input(members, &[]))
        .answers(200, "The user as it is now.", &of("user"))
}

pub(super) fn version() -> Parameter {
    let says = "The version that is meant. Another one is refused with 412.";
    Parameter::query("version", json!({"type": "integer"}), says)
}

pub(in crate::manage) fn delete_user() -> Operation {
    let summary = "Deletes a user with sessions, tokens and all else that belongs to the user.";
    versioned(of_user(Operation::new(summary)))
        .takes([version()])
        .ends(204, "There is no such user any more.")
}

pub(in crate::manage) fn reset_password() -> Operation {
    of_user(Operation::new("Sends a user a link for a new password."))
        .ends(204, "The letter is on its way.")
}

pub(in crate::manage) fn list_consents() -> Operation {
    of_user(list("Lists what a user lets clients have.", "consent"))
}

pub(in crate::manage) fn withdraw_consent() -> Operation {
    let summary = "Withdraws a consent. Tokens that the user gave the client end.";
    of_user(Operation::new(summary))
        .names("id2", "The `client_id`.")
        .ends(204, "It is withdrawn.")
}

fn of_group(operation: Operation) -> Operation {
    operation
        .takes([realm()])
        .names("id", "The identifier of the group, a UUID.")
}

pub(in crate::manage) fn list_groups() -> Operation {
    list("Lists groups by name.", "group").takes([
        realm(),
        Parameter::query("q", text(), "What the name begins with."),
    ])
}

fn group_input(more: &str, schema: Value, required: &[&str]) -> Value {
    let external_id = json!({"type": ["string", "null"]});
    let members = [
        ("displayName", text()),
        ("externalId", external_id),
        (more, schema),
    ];
    fields(members, required)
}

pub(in crate::manage) fn create_group() -> Operation {
    let members = json!({
        "type": ["array", "null"],
        "items": {"type": "string", "format": "uuid"},
        "maxItems": 1000,
        "description": "The identifiers of the users in it.",
    });
    Operation::new("Makes a group.")
        .takes([realm()])
        .body(&group_input("members", members, &["displayName"]))
        .answers(201, "The group.", &of("group"))
}

pub(in crate::manage) fn patch_group() -> Operation {
    let version = json!({
        "type": ["integer", "null"],
        "description": "The version that the change is of. Another one is refused with 412.",
    });
    versioned(of_group(Operation::new("Renames a group.")))
        .body(&group_input("version", version, &[]))
        .answers(200, "The group as it is now.", &of("group"))
}

pub(in crate::manage) fn delete_group() -> Operation {
    versioned(of_group(Operation::new(
        "Deletes a group. Its members stay.",
    )))
    .takes([version()])
    .ends(204, "There is no such group any more.")
}

pub(in crate::manage) fn show_group() -> Operation {
    of_group(Operation::new("Shows a group.")).answers(200, "The group.", &of("group"))
}

pub(in crate::manage) fn list_members() -> Operation {
    of_group(list(
        "Lists the members of a group by identifier.",
        "member",
    ))
}

pub(in crate::manage) fn add_member() -> Operation {
    versioned(of_group(Operation::new(
        "Makes a user a member of a group.",
    )))
    .names("id2", "The identifier of the user, a UUID.")
    .ends(204, "The user is a member.")
}

pub(in crate::manage) fn remove_member() -> Operation {
    versioned(of_group(Operation::new("Removes a user from a group.")))
        .names("id2", "The identifier of the user, a UUID.")
        .ends(204, "The user is no member.")
}
