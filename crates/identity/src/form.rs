//! Forms that are posted to the provider.

use super::Call;
use super::error::OAuthError;
pub(super) use doorward_net::http::form::{Form, FormError, decode, is_form};

/// What may stand in the body of a request and nowhere else: addresses end up
/// in logs and histories.
const NEVER_IN_A_QUERY: [&str; 12] = [
    "client_secret",
    "client_assertion",
    "password",
    "otp",
    "token",
    "refresh_token",
    "code",
    "device_code",
    "id_token",
    "assertion",
    "subject_token",
    "actor_token",
];

/// The form that a request to an endpoint of OAuth posts.
///
/// # Errors
/// `invalid_request` for another media type, a form that is none, and for
/// secrets in the address.
pub(super) fn read_body(call: &Call) -> Result<Form<'_>, OAuthError> {
    let wrong = |text: String| OAuthError::bad("invalid_request", text);
    if !is_form(call.headers()) {
        return Err(wrong("Invalid Content Type".to_owned()));
    }
    if let Some(query) = call.parts.uri.query() {
        let query = Form::parse(query.as_bytes()).map_err(|error| wrong(error.to_string()))?;
        if let Some(name) = NEVER_IN_A_QUERY
            .iter()
            .find(|name| query.get(name).is_some())
        {
            return Err(wrong(format!("Parameter {name} belongs into the body")));
        }
    }
    Form::parse(&call.body).map_err(|error| wrong(error.to_string()))
}
