//! What this service is and has (RFC 7644 §4): the same for everybody, so no
//! token is asked for.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::bulk;
use super::list_query::PAGE_MAX;
use super::projection::ON_REQUEST;
use super::record::RecordBase;
use super::reply;
use crate::Call;
use crate::error::ScimError;
use crate::form::{self, Form};
use doorward_core::model::user::schema::{
    Attribute, ENTERPRISE, ENTERPRISE_URN, GROUP, GROUP_URN, Schema, Type, USER, USER_URN,
};

/// Answers with the features of the service.
pub(crate) fn provider_config(call: &Call) -> Result<Response, ScimError> {
    refuse_filter(call)?;
    let config = provider(&RecordBase::of(call));
    Ok(reply::record(call, StatusCode::OK, &config))
}

/// Answers with every schema.
pub(crate) fn schemas(call: &Call) -> Result<Response, ScimError> {
    refuse_filter(call)?;
    Ok(reply::whole_list(call, all_schemas(&RecordBase::of(call))))
}

/// Answers with the schema that the path names.
pub(crate) fn schema(call: &Call) -> Result<Response, ScimError> {
    one_of(call, &all_schemas(&RecordBase::of(call)))
}

/// Answers with every type of resource.
pub(crate) fn resource_types(call: &Call) -> Result<Response, ScimError> {
    refuse_filter(call)?;
    let types = all_resource_types(&RecordBase::of(call));
    Ok(reply::whole_list(call, types))
}

/// Answers with the type of resource that the path names.
pub(crate) fn resource_type(call: &Call) -> Result<Response, ScimError> {
    one_of(call, &all_resource_types(&RecordBase::of(call)))
}

/// What a client would act on must not depend on a filter (§4).
fn refuse_filter(call: &Call) -> Result<(), ScimError> {
    let query = call.parts.uri.query().unwrap_or_default();
    let query = Form::parse(query.as_bytes()).unwrap_or_default();
    if query.get("filter").is_none() {
        return Ok(());
    }
    let text = "What describes the service can't be filtered.";
    Err(ScimError::new(StatusCode::FORBIDDEN, text))
}

/// The description whose identifier the path names.
fn one_of(call: &Call, all: &[Value]) -> Result<Response, ScimError> {
    refuse_filter(call)?;
    let id = form::decode(call.last_segment().as_bytes()).unwrap_or_default();
    let named = |one: &&Value| {
        let known = one["id"].as_str().unwrap_or_default();
        known.eq_ignore_ascii_case(&id)
    };
    let missing = || ScimError::new(StatusCode::NOT_FOUND, "There is no such resource.");
    let one = all.iter().find(named).ok_or_else(missing)?;
    Ok(reply::record(call, StatusCode::OK, one))
}

fn meta(base: &RecordBase, kind: &str, name: &str) -> Value {
    json!({"resourceType": kind, "location": base.below(name)})
}

fn provider(base: &RecordBase) -> Value {
    json!({
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig"],
        "patch": {"supported": true},
        "bulk": {
            "supported": true,
            "maxOperations": bulk::OPERATIONS_MAX,
            "maxPayloadSize": super::BODY_MAX,
        },
        "filter": {"supported": true, "maxResults": PAGE_MAX},
        "changePassword": {"supported": true},
        "sort": {"supported": true},
        "etag": {"supported": true},
        "authenticationSchemes": [{
            "type": "oauthbearertoken",
            "name": "OAuth Bearer Token",
            "description": "An access token of this provider, sent as Bearer, or as DPoP with a proof.",
            "specUri": "https://www.rfc-editor.org/rfc/rfc6750",
            "primary": true,
        }],
        "meta": meta(base, "ServiceProviderConfig", "ServiceProviderConfig"),
    })
}

fn all_resource_types(base: &RecordBase) -> Vec<Value> {
    let one = |name: &str, endpoint: &str, urn: &str, extensions: Value, about: &str| {
        json!({
            "schemas": ["urn:ietf:params:scim:schemas:core:2.0:ResourceType"],
            "id": name,
            "name": name,
            "endpoint": endpoint,
            "description": about,
            "schema": urn,
            "schemaExtensions": extensions,
            "meta": meta(base, "ResourceType", &format!("ResourceTypes/{name}")),
        })
    };
    let (users, groups) = if base.standard {
        ("/Users", "/Groups")
    } else {
        ("/users", "/groups")
    };
    let enterprise = json!([{"schema": ENTERPRISE_URN, "required": false}]);
    vec![
        one("User", users, USER_URN, enterprise, "People who sign in."),
        one("Group", groups, GROUP_URN, json!([]), "Groups of users."),
    ]
}

fn all_schemas(base: &RecordBase) -> Vec<Value> {
    let one = |urn: &str, name: &str, about: &str, attributes: Vec<Value>| {
        json!({
            "schemas": ["urn:ietf:params:scim:schemas:core:2.0:Schema"],
            "id": urn,
            "name": name,
            "description": about,
            "attributes": attributes,
            "meta": meta(base, "Schema", &format!("Schemas/{urn}")),
        })
    };
    let top = |schema: &'static Schema| {
        let all = schema.attributes.iter();
        let all = all.filter(|one| !one.path.contains('.') && is_own(one, base));
        all.map(|one| described(base, schema, one))
            .collect::<Vec<_>>()
    };
    let extension = USER.find(ENTERPRISE).map(|extension| {
        let parts = USER.parts(extension);
        parts.map(|part| described(base, &USER, part)).collect()
    });
    let mut users = top(&USER);
    users.push(password());
    vec![
        one(USER_URN, "User", "People who sign in.", users),
        one(GROUP_URN, "Group", "Groups of users.", top(&GROUP)),
        one(
            ENTERPRISE_URN,
            "EnterpriseUser",
            "What companies say of users.",
            extension.unwrap_or_default(),
        ),
    ]
}

/// Whether the schema itself names it: what all records have is in none
/// (RFC 7643 §3.1), and of two names of one thing each prefix shows its own.
fn is_own(attribute: &Attribute, base: &RecordBase) -> bool {
    match attribute.path {
        "id" | "externalId" | "meta" | "schemas" | ENTERPRISE => false,
        "active" => base.standard,
        "accountStatus" | "preferences" => !base.standard,
        _ => true,
    }
}

fn password() -> Value {
    json!({
        "name": "password",
        "type": "string",
        "multiValued": false,
        "description": "The password to sign in with; never shown.",
        "required": false,
        "caseExact": true,
        "mutability": "writeOnly",
        "returned": "never",
        "uniqueness": "none",
    })
}

/// An attribute as RFC 7643 §7 describes it.
fn described(base: &RecordBase, schema: &'static Schema, attribute: &'static Attribute) -> Value {
    let name = attribute.name();
    let unique = matches!(
        (schema.urn, attribute.path),
        (USER_URN, "userName") | (GROUP_URN, "displayName")
    );
    // Every record says it, and nobody can take it away.
    let is_state = ["active", "accountStatus"].contains(&attribute.path);
    let requested = base.standard && ON_REQUEST.contains(&attribute.path);
    let returned = if requested { "request" } else { "default" };
    let mut all = Map::new();
    let members = [
        ("name", json!(name)),
        ("type", json!(type_of(attribute))),
        ("multiValued", json!(attribute.kind == Type::ComplexMany)),
        ("description", json!(attribute.about)),
        ("required", json!(unique || is_state)),
        ("caseExact", json!(attribute.kind == Type::Exact)),
        ("mutability", json!(mutability(attribute))),
        ("returned", json!(returned)),
        ("uniqueness", json!(if unique { "server" } else { "none" })),
    ];
    for (name, value) in members {
        all.insert(name.to_owned(), value);
    }
    if let Some(values) = values_of(attribute) {
        all.insert("canonicalValues".to_owned(), values);
    }
    if let Some(kinds) = references(attribute) {
        all.insert("referenceTypes".to_owned(), kinds);
    }
    if matches!(attribute.kind, Type::Complex | Type::ComplexMany) {
        let parts = schema
            .parts(attribute)
            .map(|part| described(base, schema, part));
        all.insert("subAttributes".to_owned(), parts.collect());
    }
    if attribute.kind == Type::Free {
        all.insert("subAttributes".to_owned(), json!([]));
    }
    Value::Object(all)
}

fn type_of(attribute: &Attribute) -> &'static str {
    match attribute.kind {
        _ if references(attribute).is_some() => "reference",
        _ if attribute.path == "x509Certificates.value" => "binary",
        Type::Text | Type::Exact => "string",
        Type::Boolean => "boolean",
        Type::Instant => "dateTime",
        Type::Complex | Type::ComplexMany | Type::Free => "complex",
    }
}

fn mutability(attribute: &Attribute) -> &'static str {
    match attribute.path {
        // It says the same as the value; that counts.
        "members.value" | "members.type" | "members.$ref" => "immutable",
        _ if attribute.read_only => "readOnly",
        _ => "readWrite",
    }
}

fn references(attribute: &Attribute) -> Option<Value> {
    Some(match attribute.path {
        "profileUrl" | "website" | "photos.value" => json!(["external"]),
        "groups.$ref" => json!(["Group"]),
        "members.$ref" | "enterprise.manager.$ref" => json!(["User"]),
        _ => return None,
    })
}

fn values_of(attribute: &Attribute) -> Option<Value> {
    Some(match attribute.path {
        "accountStatus" => json!(["Active", "Deactivated"]),
        "emails.type" | "addresses.type" => json!(["work", "home", "other"]),
        "phoneNumbers.type" => json!(["work", "home", "mobile", "fax", "pager", "other"]),
        "photos.type" => json!(["photo", "thumbnail"]),
        "groups.type" => json!(["direct"]),
        "members.type" => json!(["User"]),
        _ => return None,
    })
}
