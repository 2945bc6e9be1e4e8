//! Paths: workspace, encoding, trailing slashes (gateway-admin-api §1).

use super::error::ApiError;
use super::{WORKSPACE, endpoints, form};
use doorward_gateway::schemas::checks;

/// The parts of a path, decoded, without the workspace and trailing slashes.
pub(super) fn segments(path: &str) -> Result<Vec<String>, ApiError> {
    let mut segments = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .map(|segment| form::decoded(segment, false))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| undecodable(path))?;
    let first = segments.first().map_or("", String::as_str);
    if first.is_empty() || is_top_level(first) {
        return Ok(segments);
    }
    if first == WORKSPACE {
        segments.remove(0);
        if segments == ["kong"] {
            segments.clear();
        }
        return Ok(segments);
    }
    match segments.get(1) {
        Some(second) if second == "kong" || is_top_level(second) => {
            Err(ApiError::Workspace(first.to_owned()))
        }
        _ => Err(ApiError::NotFound),
    }
}

/// What a path is answered with that is no text when it is decoded. As a tag that is
/// the fault of a value, and else nothing has such a name.
fn undecodable(path: &str) -> ApiError {
    let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
    parts.next_if(|part| *part == WORKSPACE);
    match (parts.next(), parts.next(), parts.next()) {
        (Some("tags"), Some(tag), None) => ApiError::Unique {
            field: "tag",
            message: checks::invalid_tag(tag).into(),
        },
        _ => ApiError::NotFound,
    }
}

/// The path below that of the identity provider, as it was sent, if it is one
/// of its paths.
pub(super) fn of_identity(path: &str) -> Option<String> {
    let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
    parts.next_if(|part| *part == WORKSPACE);
    let rest = |parts: std::iter::Peekable<_>| parts.collect::<Vec<&str>>().join("/");
    (parts.next()? == "identity").then(|| format!("/{}", rest(parts)))
}

fn is_top_level(segment: &str) -> bool {
    endpoints::all().any(|endpoint| endpoint.path.split('/').nth(1) == Some(segment))
}
