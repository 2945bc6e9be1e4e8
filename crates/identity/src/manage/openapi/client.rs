//! The metadata of clients (RFC 7591 §2, OpenID Connect Registration §2, and
//! Doorward's own), as the description knows them.

use serde_json::{Map, Value, json};

use doorward_core::model::client::SignAlg;
use doorward_core::model::schema::nullable;
use doorward_core::openapi::text;

/// What a member holds.
#[derive(Clone, Copy)]
enum Holds {
    Text,
    Texts,
    Flag,
    Number,
    /// An algorithm of signatures.
    Algorithm,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A JSON object.
    Object,
}

use Holds::{Algorithm, Flag, Number, Object, Text, Texts, Word};

/// Every member, in the order of their names.
const MEMBERS: &[(&str, Holds)] = &[
    ("access_token_format", Word(&["jwt", "at+jwt", "opaque"])),
    ("access_token_lifetime", Number),
    ("access_token_signed_response_alg", Algorithm),
    ("allowed_origins", Texts),
    ("application_type", Word(&["web", "native"])),
    ("audiences", Texts),
    ("backchannel_logout_session_required", Flag),
    ("backchannel_logout_uri", Text),
    ("client_id", Text),
    ("client_name", Text),
    ("client_secret", Text),
    ("client_uri", Text),
    ("contacts", Texts),
    ("default_acr_values", Texts),
    ("default_max_age", Number),
    ("default_scope", Text),
    ("dpop_bound_access_tokens", Flag),
    ("frontchannel_logout_session_required", Flag),
    ("frontchannel_logout_uri", Text),
    ("grant_lifetime", Number),
    ("grant_types", Texts),
    ("id_token_lifetime", Number),
    ("id_token_signed_response_alg", Algorithm),
    ("initiate_login_uri", Text),
    ("jwks", Object),
    ("jwks_uri", Text),
    ("logo_uri", Text),
    ("policy_uri", Text),
    ("post_logout_redirect_uris", Texts),
    ("profile", Word(&["fapi2"])),
    ("redirect_uris", Texts),
    ("refresh_token_grace", Number),
    ("refresh_token_lifetime", Number),
    ("refresh_token_rotation", Flag),
    ("request_object_signing_alg", Text),
    ("request_uris", Texts),
    ("require_auth_time", Flag),
    ("require_consent", Flag),
    ("require_pkce", Flag),
    ("require_pushed_authorization_requests", Flag),
    ("require_second_factor", Flag),
    ("require_signed_request_object", Flag),
    ("resources", Texts),
    ("response_types", Texts),
    ("scope", Text),
    ("sector_identifier_uri", Text),
    ("software_id", Text),
    ("software_version", Text),
    ("subject_type", Word(&["public", "pairwise"])),
    (
        "token_endpoint_auth_method",
        Word(&[
            "client_secret_basic",
            "client_secret_post",
            "client_secret_jwt",
            "private_key_jwt",
            "none",
        ]),
    ),
    ("token_endpoint_auth_signing_alg", Algorithm),
    ("tos_uri", Text),
    ("userinfo_signed_response_alg", Algorithm),
];

impl Holds {
    fn schema(self) -> Value {
        match self {
            Text => text(),
            Texts => json!({"type": "array", "items": text()}),
            Flag => json!({"type": "boolean"}),
            Number => json!({"type": "integer", "minimum": 0}),
            Algorithm => {
                let all = SignAlg::OWN.iter().chain(&SignAlg::SHARED);
                let all: Vec<&str> = all.map(|alg| alg.as_str()).collect();
                json!({"type": "string", "enum": all})
            }
            Word(one_of) => json!({"type": "string", "enum": one_of}),
            Object => json!({"type": "object"}),
        }
    }
}

pub(super) fn members() -> Map<String, Value> {
    let members = MEMBERS.iter();
    members
        .map(|(name, holds)| ((*name).to_owned(), holds.schema()))
        .collect()
}

/// Members in other languages are texts, by their whole name.
fn object(properties: Map<String, Value>) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "patternProperties": {"#": {"type": "string"}},
    })
}

/// A client in an answer: members that are not set are left out.
pub(super) fn answer() -> Value {
    let mut properties = members();
    properties["client_secret"]["description"] = "Only where it was made for the request.".into();
    properties.insert("realm".to_owned(), text());
    let owner = json!({"type": "string", "enum": ["store", "file", "client"]});
    properties.insert("owner".to_owned(), owner);
    properties.insert("declared_in".to_owned(), text());
    for number in ["declared_line", "version"] {
        properties.insert(number.to_owned(), json!({"type": "integer"}));
    }
    for time in ["created_at", "updated_at"] {
        let seconds = json!({"type": "integer", "description": "Seconds since the epoch."});
        properties.insert(time.to_owned(), seconds);
    }
    let mut shown = object(properties);
    let always = [
        "client_id",
        "grant_types",
        "realm",
        "owner",
        "created_at",
        "updated_at",
        "version",
    ];
    shown["required"] = json!(always);
    shown
}

/// A client in a request. Null is as absent.
pub(super) fn input() -> Value {
    let members = members().into_iter();
    object(
        members
            .map(|(name, schema)| (name, nullable(schema)))
            .collect(),
    )
}

/// A change of a client.
pub(super) fn change() -> Value {
    let mut change = input();
    change["properties"]["version"] = json!({
        "type": ["integer", "null"],
        "description": "The version that is meant; another one is refused with 412.",
    });
    change
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorward_core::model::client::member_names;

    #[test]
    fn every_member_of_a_client_is_described() {
        let names: Vec<&str> = MEMBERS.iter().map(|(name, _)| *name).collect();
        assert!(names.is_sorted());
        let mut known = member_names().to_vec();
        known.sort_unstable();
        assert_eq!(names, known);
    }
}
