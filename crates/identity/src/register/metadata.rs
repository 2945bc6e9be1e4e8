//! What a client may say of itself, and what follows from what it left out
//! (RFC 7591 §2, OpenID Connect Registration §2).

use serde_json::{Map, Value, json};
use url::Url;

use super::redirects;
use crate::Call;
use crate::config::RegistrationSettings;
use crate::error::OAuthError;
use crate::records::check_record;
use crate::registry;
use doorward_core::model::client::{AuthMethod, Client, ClientMetadata, is_tagged};
use doorward_core::model::user::schema::RecordError;

/// Members that are a client's own to choose. All others of its record are its
/// operator's; what is in neither list is not known, and ignored.
const REGISTRABLE: &[&str] = &[
    "application_type",
    "backchannel_logout_session_required",
    "backchannel_logout_uri",
    "client_name",
    "client_uri",
    "contacts",
    "default_acr_values",
    "default_max_age",
    "dpop_bound_access_tokens",
    "frontchannel_logout_session_required",
    "frontchannel_logout_uri",
    "grant_types",
    "id_token_signed_response_alg",
    "initiate_login_uri",
    "jwks",
    "jwks_uri",
    "logo_uri",
    "policy_uri",
    "post_logout_redirect_uris",
    "redirect_uris",
    "request_object_signing_alg",
    "request_uris",
    "require_auth_time",
    "require_pushed_authorization_requests",
    "require_signed_request_object",
    "response_types",
    "scope",
    "sector_identifier_uri",
    "software_id",
    "software_version",
    "subject_type",
    "token_endpoint_auth_method",
    "token_endpoint_auth_signing_alg",
    "tos_uri",
    "userinfo_signed_response_alg",
];

/// Members that ask for protection which is not offered: to ignore them would
/// leave the client with less than it believes to have.
const NOT_OFFERED: &[&str] = &[
    "authorization_encrypted_response_alg",
    "authorization_signed_response_alg",
    "id_token_encrypted_response_alg",
    "introspection_encrypted_response_alg",
    "introspection_signed_response_alg",
    "request_object_encryption_alg",
    "tls_client_certificate_bound_access_tokens",
    "userinfo_encrypted_response_alg",
];

/// How clients authenticate that name no way (RFC 7591 §2).
pub(super) const USUAL_METHOD: &str = "client_secret_basic";

/// Most values of a list.
const LIST_MAX: usize = 50;

/// Longest text, in bytes.
const TEXT_MAX: usize = 2048;

/// Why a client is not registered so (RFC 7591 §3.2.2).
#[derive(Debug)]
pub(super) struct Refused {
    code: &'static str,
    text: String,
}

impl Refused {
    /// `invalid_client_metadata`
    pub(super) fn metadata(text: impl Into<String>) -> Self {
        Self {
            code: "invalid_client_metadata",
            text: text.into(),
        }
    }

    fn member(name: &str, text: &str) -> Self {
        Self::metadata(format!("{name}: {text}"))
    }
}

impl From<RecordError> for Refused {
    fn from(error: RecordError) -> Self {
        let text = error.to_string();
        if error.path.starts_with("redirect_uris") {
            Self {
                code: "invalid_redirect_uri",
                text,
            }
        } else {
            Self::metadata(text)
        }
    }
}

impl From<Refused> for OAuthError {
    fn from(refused: Refused) -> Self {
        // Its text has no quotation marks that would have to be masked.
        OAuthError::bad(refused.code, refused.text.replace(['`', '"'], "'"))
    }
}

/// Whether a member is a client's own to choose, and to see.
pub(super) fn is_registrable(name: &str) -> bool {
    REGISTRABLE.binary_search(&name).is_ok() || is_tagged(name)
}

/// The metadata of a new client, or in the place of `old`: complete, without
/// more rights than the realm lets registered clients have or it has already.
pub(super) fn read(
    call: &Call,
    mut members: Map<String, Value>,
    old: Option<&Client>,
) -> Result<ClientMetadata, Refused> {
    let settings = &call.realm.settings.registration;
    members.retain(|_, value| !value.is_null());
    refuse_statement(&members)?;
    refuse_not_offered(&members)?;
    members.retain(|name, _| is_registrable(name));
    check_sizes(&members)?;
    complete(&mut members, settings, old.map(|old| &old.metadata));
    let alg = call.realm.settings.id_token_signed_response_alg;
    members
        .entry("id_token_signed_response_alg")
        .or_insert_with(|| json!(alg));
    let mut all = old.map_or_else(Map::new, |old| of_operator(&old.metadata));
    let id = old.map_or("-", |old| &old.metadata.client_id);
    all.insert("client_id".to_owned(), id.into());
    all.append(&mut members);
    let metadata = registry::metadata(all)?;
    redirects::check(&metadata)?;
    check_record(&metadata)?;
    check_grants(&metadata, settings, old.map(|old| &old.metadata))?;
    check_addresses(call, &metadata)?;
    Ok(metadata)
}

/// What the operator chose for the client: that stays.
fn of_operator(metadata: &ClientMetadata) -> Map<String, Value> {
    let mut members = registry::members(metadata);
    members.retain(|name, _| !is_registrable(name));
    members
}

/// Statements are believed of nobody here (RFC 7591 §2.3).
fn refuse_statement(members: &Map<String, Value>) -> Result<(), Refused> {
    let Some(statement) = members.get("software_statement") else {
        return Ok(());
    };
    let jwt = |text: &str| text.split('.').count() == 3;
    let code = if statement.as_str().is_some_and(jwt) {
        "unapproved_software_statement"
    } else {
        "invalid_software_statement"
    };
    Err(Refused {
        code,
        text: "No issuer of software statements is trusted".to_owned(),
    })
}

fn refuse_not_offered(members: &Map<String, Value>) -> Result<(), Refused> {
    let asked = |name: &&&str| members.get(**name).is_some_and(|value| *value != false);
    if let Some(name) = NOT_OFFERED.iter().find(asked) {
        return Err(Refused::member(name, "is not offered"));
    }
    Ok(())
}

fn check_sizes(members: &Map<String, Value>) -> Result<(), Refused> {
    let long = |value: &Value| match value {
        Value::String(text) => text.len() > TEXT_MAX || text.chars().any(char::is_control),
        _ => false,
    };
    for (name, value) in members.iter().filter(|(name, _)| *name != "jwks") {
        let list = value.as_array().map_or(&[][..], Vec::as_slice);
        if long(value) || list.len() > LIST_MAX || list.iter().any(long) {
            let text = "is too long, or has control characters";
            return Err(RecordError::new(name, text).into());
        }
    }
    Ok(())
}

/// Fills in what was left out, and takes of the scopes what may be had.
fn complete(
    members: &mut Map<String, Value>,
    settings: &RegistrationSettings,
    old: Option<&ClientMetadata>,
) {
    let names = |value: Option<&Value>| -> Option<Vec<String>> {
        let list = value?.as_array()?.iter();
        Some(list.filter_map(Value::as_str).map(str::to_owned).collect())
    };
    let responses = names(members.get("response_types"));
    let grants = names(members.get("grant_types"));
    if !members.contains_key("grant_types") {
        let wanted = grants_of(responses.as_deref().unwrap_or(&["code".to_owned()]));
        members.insert("grant_types".to_owned(), json!(wanted));
    }
    if !members.contains_key("response_types") {
        let has = |name: &str| grants.iter().flatten().any(|grant| grant == name);
        let wanted = match (has("authorization_code"), has("implicit")) {
            (true, _) => json!(["code"]),
            (false, true) => json!(["id_token"]),
            // Without grants, the default of both.
            (false, false) if grants.is_none() => json!(["code"]),
            (false, false) => json!([]),
        };
        members.insert("response_types".to_owned(), wanted);
    }
    if !members.contains_key("application_type") {
        let redirects = names(members.get("redirect_uris")).unwrap_or_default();
        let grants = names(members.get("grant_types")).unwrap_or_default();
        let kind = redirects::kind_of(&redirects, &grants);
        members.insert("application_type".to_owned(), json!(kind));
    }
    // Who names no way to authenticate may use either way with a secret, though
    // it is told of one: libraries differ in what they do then. Sent back, that
    // is no change.
    let named = members.get("token_endpoint_auth_method");
    let any = old.is_some_and(|old| old.token_endpoint_auth_method.is_none());
    if any && named.is_some_and(|named| named == USUAL_METHOD) {
        members.remove("token_endpoint_auth_method");
    }
    let had = old.map_or("", |old| &old.scope);
    let may = |scope: &&str| {
        words(&settings.scope).any(|one| one == *scope) || words(had).any(|one| one == *scope)
    };
    let scope: Option<Vec<&str>> = match members.get("scope") {
        None => Some(words(&settings.scope).collect()),
        Some(Value::String(asked)) => Some(words(asked).filter(may).collect()),
        // Its type is wrong, which is told later.
        Some(_) => None,
    };
    if let Some(scope) = scope.map(|scope| scope.join(" ")) {
        members.insert("scope".to_owned(), scope.into());
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_ascii_whitespace()
}

/// The grants that go with response types (OpenID Connect Registration §2).
fn grants_of(responses: &[String]) -> Vec<&'static str> {
    let words: Vec<&str> = responses.iter().flat_map(|text| text.split(' ')).collect();
    let mut grants = Vec::new();
    if words.contains(&"code") {
        grants.push("authorization_code");
    }
    if words
        .iter()
        .any(|word| matches!(*word, "id_token" | "token"))
    {
        grants.push("implicit");
    }
    grants
}

fn check_grants(
    metadata: &ClientMetadata,
    settings: &RegistrationSettings,
    old: Option<&ClientMetadata>,
) -> Result<(), Refused> {
    let grants = &metadata.grant_types;
    let has = |name: &str| grants.iter().any(|grant| grant == name);
    let may = |grant: &String| {
        let had = old.is_some_and(|old| old.grant_types.contains(grant));
        had || settings.grant_types.contains(grant)
    };
    if let Some(grant) = grants.iter().find(|grant| !may(grant)) {
        let text = format!("{grant} is not for registered clients");
        return Err(Refused::member("grant_types", &text));
    }
    if grants.is_empty() {
        return Err(Refused::member("grant_types", "must name one or more"));
    }
    let needed = grants_of(&metadata.response_types);
    if let Some(missing) = needed.into_iter().find(|grant| !has(grant)) {
        let text = format!("needs the grant type {missing}");
        return Err(Refused::member("response_types", &text));
    }
    let gives_code = |text: &String| text.split(' ').any(|word| word == "code");
    if has("authorization_code") && !metadata.response_types.iter().any(gives_code) {
        let text = "authorization_code needs a response type with code";
        return Err(Refused::member("grant_types", text));
    }
    let public = metadata.token_endpoint_auth_method == Some(AuthMethod::None);
    if public && has("client_credentials") {
        let text = "client_credentials is not for clients without authentication";
        return Err(Refused::member("grant_types", text));
    }
    if metadata.scope.is_empty() && !settings.scope.is_empty() {
        let text = "is none that registered clients may have";
        return Err(Refused::member("scope", text));
    }
    Ok(())
}

/// Addresses that we or browsers fetch.
fn check_addresses(call: &Call, metadata: &ClientMetadata) -> Result<(), Refused> {
    let admitted = |uri: &str| Url::parse(uri).is_ok_and(|url| call.state.outbound.admits(&url));
    let fetched = [
        ("jwks_uri", metadata.jwks_uri.as_slice()),
        (
            "sector_identifier_uri",
            metadata.sector_identifier_uri.as_slice(),
        ),
        (
            "backchannel_logout_uri",
            metadata.backchannel_logout_uri.as_slice(),
        ),
        ("request_uris", &metadata.request_uris),
    ];
    for (name, uris) in fetched {
        if uris.iter().any(|uri| !admitted(uri)) {
            let text = "must be an https URL of a public host";
            return Err(Refused::member(name, text));
        }
    }
    // Links were checked with the record. Pictures of strangers are addresses.
    let logos = metadata.localized.iter();
    let logos = logos.filter(|(name, _)| name.starts_with("logo_uri"));
    let logos = logos.map(|(_, uri)| uri).chain(&metadata.logo_uri);
    if logos.into_iter().any(|uri| uri.starts_with("data:")) {
        return Err(Refused::member("logo_uri", "must be a web address"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorward_core::model::client::member_names;

    /// Members that only operators choose.
    const OF_OPERATORS: &[&str] = &[
        "access_token_format",
        "access_token_lifetime",
        "access_token_signed_response_alg",
        "allowed_origins",
        "audiences",
        "client_id",
        "client_secret",
        "default_scope",
        "grant_lifetime",
        "id_token_lifetime",
        "profile",
        "refresh_token_grace",
        "refresh_token_lifetime",
        "refresh_token_rotation",
        "require_consent",
        "require_pkce",
        "require_second_factor",
        "resources",
    ];

    #[test]
    fn every_member_is_the_clients_or_the_operators_to_choose() {
        let known = member_names();
        for name in known {
            let ways = [is_registrable(name), OF_OPERATORS.contains(name)];
            let text = "belongs into REGISTRABLE, or into OF_OPERATORS";
            assert_eq!(
                ways.into_iter().filter(|way| *way).count(),
                1,
                "{name} {text}"
            );
        }
        for name in REGISTRABLE {
            assert!(known.contains(name), "{name}");
        }
        assert!(REGISTRABLE.is_sorted());
    }

    fn settings() -> RegistrationSettings {
        RegistrationSettings::default()
    }

    fn completed(members: Value) -> Value {
        let Value::Object(mut members) = members else {
            panic!("an object");
        };
        complete(&mut members, &settings(), None);
        Value::Object(members)
    }

    #[test]
    fn grants_and_response_types_follow_from_each_other() {
        for (given, grants, responses) in [
            (json!({}), json!(["authorization_code"]), json!(["code"])),
            (
                json!({"response_types": ["code id_token"]}),
                json!(["authorization_code", "implicit"]),
                json!(["code id_token"]),
            ),
            (
                json!({"grant_types": ["authorization_code", "refresh_token"]}),
                json!(["authorization_code", "refresh_token"]),
                json!(["code"]),
            ),
            (
                json!({"grant_types": ["client_credentials"]}),
                json!(["client_credentials"]),
                json!([]),
            ),
            (
                json!({"grant_types": ["implicit"]}),
                json!(["implicit"]),
                json!(["id_token"]),
            ),
        ] {
            let all = completed(given);
            assert_eq!(
                (&all["grant_types"], &all["response_types"]),
                (&grants, &responses)
            );
            assert_eq!(all["application_type"], "web");
        }
    }

    #[test]
    fn of_the_scopes_only_what_may_be_had_is_taken() {
        let all = completed(json!({"scope": "openid admin email"}));
        assert_eq!(all["scope"], "openid email");
        assert_eq!(completed(json!({}))["scope"], settings().scope);
    }
}
