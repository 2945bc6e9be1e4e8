//! What several plugins read in their `config`, and how they answer.

use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use doorward_core::model::schema::Field;
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_plugin_api::ConfigError;
pub(crate) use doorward_plugin_api::config::{header_name, url_text};

/// The fields of a record, of which `name` has this default.
pub(crate) fn with_default(
    mut fields: Vec<Field>,
    name: &str,
    default: impl Into<Value>,
) -> Vec<Field> {
    if let Some(field) = fields.iter_mut().find(|field| field.name == name) {
        field.default = Some(default.into());
    }
    fields
}

/// What is wrong with `field`.
pub(crate) fn wrong(field: &str, message: impl Into<String>) -> ConfigError {
    ConfigError {
        field: field.to_owned(),
        message: message.into(),
    }
}

/// The status of an error, as the imitated gateway gives it: a number that is no
/// status of an error ends in 500.
pub(crate) fn error_status(number: f64) -> Option<StatusCode> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 400 and 599"
    )]
    let code = (400.0..600.0).contains(&number).then_some(number as u16)?;
    StatusCode::from_u16(code).ok()
}

/// The status of an answer in the field `status_code`.
///
/// # Errors
/// [`ConfigError`] for one that ends no request.
pub(crate) fn final_status(code: u16) -> Result<StatusCode, ConfigError> {
    let status = StatusCode::from_u16(code).ok();
    let status = status.filter(|status| !status.is_informational());
    status.ok_or_else(|| {
        let message = "an informational status ends no request: use one from 200 to 599";
        wrong("status_code", message)
    })
}

/// The text of an answer to a failure inside the gateway.
pub(crate) const UNEXPECTED: &str = "An unexpected error occurred";

/// An answer with the JSON text `{"message": …}`, whatever the client accepts.
pub(crate) fn json_message(status: StatusCode, message: &str) -> Reply {
    let body = json!({ "message": message }).to_string();
    let mut reply = Reply::empty(status).header(
        CONTENT_TYPE,
        HeaderValue::from_static("application/json; charset=utf-8"),
    );
    reply.body = ReplyBody::Own(body.into());
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_number_from_400_to_599_is_the_status_of_an_error() {
        assert_eq!(error_status(429.0), Some(StatusCode::TOO_MANY_REQUESTS));
        assert_eq!(error_status(599.5).map(|status| status.as_u16()), Some(599));
        for number in [-1.0, 0.0, 200.0, 399.9, 600.0, f64::NAN] {
            assert_eq!(error_status(number), None, "{number}");
        }
    }
}
