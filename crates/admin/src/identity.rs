//! Requests for the identity provider, which answers below `/identity`.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::request::Parts;
use tower::ServiceExt;

use super::error::ApiError;
use doorward_core::model::audit::Operator;

/// What pages of other origins may send below `/identity`.
pub(super) const METHODS: &str = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT";

/// The identity provider answers; `below` is the path that it knows. Its audit
/// records name the operator.
pub(super) async fn forward(
    identity: &Router,
    operator: Option<Operator>,
    below: String,
    (mut head, body): (Parts, Body),
) -> Result<Response, ApiError> {
    let target = match head.uri.query() {
        Some(query) => format!("{below}?{query}"),
        None => below,
    };
    head.uri = target.parse().map_err(|_| ApiError::NotFound)?;
    if let Some(operator) = operator {
        head.extensions.insert(operator);
    }
    let request = Request::from_parts(head, body);
    match identity.clone().oneshot(request).await {
        Ok(response) => Ok(response),
        Err(never) => match never {},
    }
}
