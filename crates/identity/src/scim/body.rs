//! Bodies of requests, and the header fields that they come with.

use http::header::{ACCEPT, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, StatusCode};
use serde_json::{Map, Value};

use crate::Call;
use crate::error::ScimError;
use doorward_core::jose::json;
use doorward_core::model::user::schema::ENTERPRISE_URN;
use doorward_net::http::form::media_type;

/// SCIM's media type.
pub(super) const SCIM: &str = "application/scim+json";

/// The object in the body of a request.
pub(super) fn object(call: &Call) -> Result<Map<String, Value>, ScimError> {
    let kind = media_type(call.headers());
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let known = [SCIM, "application/json"];
    if !known.iter().any(|known| kind.eq_ignore_ascii_case(known)) {
        let text = "The body must be application/scim+json or application/json.";
        return Err(ScimError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    json::object(&call.body).map_err(|error| {
        let text = format!("the body is no JSON object whose members are there once: {error}");
        ScimError::bad("invalidSyntax", text)
    })
}

/// A member of a message by its name, in whatever case (RFC 7643 §2.1).
pub(super) fn member<'v>(members: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    let same = |known: &&String| known.eq_ignore_ascii_case(name);
    let found = members.keys().find(same)?;
    members.get(found)
}

/// Refuses a message one of whose members is there in two spellings: which one
/// counts would be chance.
pub(super) fn check_members(members: &Map<String, Value>) -> Result<(), ScimError> {
    let mut names: Vec<_> = members
        .keys()
        .map(|name| name.to_ascii_lowercase())
        .collect();
    names.sort_unstable();
    match names.windows(2).find(|two| two[0] == two[1]) {
        Some(two) => {
            let text = format!("{:.100} is given twice", two[0]);
            Err(ScimError::bad("invalidSyntax", text))
        }
        None => Ok(()),
    }
}

/// Refuses a record that says it obeys other schemas only. One that does not say
/// is taken for what is expected here.
pub(super) fn check_schemas(body: &Map<String, Value>, urn: &str) -> Result<(), ScimError> {
    let Some(schemas) = member(body, "schemas") else {
        return Ok(());
    };
    let named = |urn: &str| {
        let schemas = schemas.as_array().into_iter().flatten();
        let mut texts = schemas.filter_map(Value::as_str);
        texts.any(|one| one.eq_ignore_ascii_case(urn))
    };
    if !named(urn) && !named(ENTERPRISE_URN) {
        let text = format!("schemas must hold {urn}");
        return Err(ScimError::bad("invalidSyntax", text));
    }
    Ok(())
}

/// Refuses who takes none of the media types that there are (RFC 9110 §12.5.1);
/// says whether SCIM's is preferred.
pub(super) fn accepts(headers: &HeaderMap) -> Result<bool, ScimError> {
    let mut ranges = Vec::new();
    for value in headers.get_all(ACCEPT) {
        let text = value.to_str().unwrap_or_default();
        ranges.extend(
            text.split(',')
                .map(|range| range.trim().to_ascii_lowercase()),
        );
    }
    ranges.retain(|range| !range.is_empty());
    if ranges.is_empty() {
        return Ok(false);
    }
    let takes = |wanted: &[&str]| {
        ranges.iter().any(|range| {
            let (kind, parameters) = range.split_once(';').unwrap_or((range, ""));
            let zero = parameters.split(';').any(|parameter| {
                let quality = parameter.trim().strip_prefix("q=");
                quality.and_then(|quality| quality.parse::<f32>().ok()) == Some(0.0)
            });
            wanted.contains(&kind.trim()) && !zero
        })
    };
    let scim = takes(&[SCIM]);
    if scim || takes(&["application/json", "application/*", "*/*"]) {
        return Ok(scim);
    }
    let text = "Answers are application/scim+json or application/json.";
    Err(ScimError::new(StatusCode::NOT_ACCEPTABLE, text))
}

/// The entity tags of a condition; `None`: there is no such field.
fn tags(headers: &HeaderMap, name: &HeaderName) -> Option<Vec<String>> {
    let mut tags = Vec::new();
    let mut found = false;
    for value in headers.get_all(name) {
        found = true;
        let text = value.to_str().unwrap_or_default();
        tags.extend(text.split(',').map(|tag| {
            let tag = tag.trim();
            // Ours are weak, and many clients leave the mark out: compared
            // weakly (RFC 9110 §8.8.3.2, RFC 7644 §3.14).
            tag.strip_prefix("W/").unwrap_or(tag).to_owned()
        }));
    }
    found.then_some(tags)
}

fn holds(tags: &[String], version: &str) -> bool {
    let version = version.strip_prefix("W/").unwrap_or(version);
    tags.iter()
        .any(|tag| tag == "*" || tag == version || tag == version.trim_matches('"'))
}

/// Whether the client has this version already (RFC 9110 §13.1.2).
pub(super) fn is_known(headers: &HeaderMap, version: &str) -> bool {
    tags(headers, &IF_NONE_MATCH).is_some_and(|tags| holds(&tags, version))
}

/// Whether the request is for some versions of a record only.
pub(super) fn is_conditional(headers: &HeaderMap) -> bool {
    headers.contains_key(IF_MATCH) || headers.contains_key(IF_NONE_MATCH)
}

/// Refuses a change of another version than the client means.
pub(super) fn check_version(headers: &HeaderMap, version: &str) -> Result<(), ScimError> {
    let other = tags(headers, &IF_MATCH).is_some_and(|tags| !holds(&tags, version));
    if other || is_known(headers, version) {
        let text = format!("The record has changed: it is {version} now.");
        return Err(ScimError::new(StatusCode::PRECONDITION_FAILED, text));
    }
    Ok(())
}
