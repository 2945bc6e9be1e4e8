//! Every refusal of these endpoints, in the shapes of the Admin API.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use crate::error::Fault;
use crate::respond;
use doorward_core::model::user::schema::RecordError;
use doorward_store::StoreError;

/// Why a request was not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum ManageError {
    /// No such path, or no such record.
    #[error("Not found")]
    NotFound,
    /// No such realm.
    #[error("Realm '{0}' not found")]
    Realm(String),
    /// The path does not know the method.
    #[error("Method not allowed")]
    Method,
    /// A query that can't be read.
    #[error("{0}")]
    Query(String),
    /// A parameter of the query makes no sense.
    #[error("invalid option ({option}: {message})")]
    Option {
        /// Its name.
        option: &'static str,
        /// What is wrong with it.
        message: String,
    },
    /// `size` of a list.
    #[error("size must be an integer between 1 and 1000")]
    Size,
    /// `offset` of a list.
    #[error("'{0}' is not a valid offset: bad base64 encoding")]
    Offset(String),
    /// A body that is no JSON object, or repeats a member.
    #[error("Cannot parse JSON body: {0}")]
    Json(String),
    /// A body of another type than JSON.
    #[error("unsupported media type: send application/json")]
    MediaType,
    /// A body beyond the limit.
    #[error("Request body is too large")]
    TooLarge,
    /// The record can't be.
    #[error("schema violation ({}: {})", .0.path, .0.message)]
    Schema(#[from] RecordError),
    /// The name belongs to another record.
    #[error("UNIQUE violation detected on '{{{field}=\"{value}\"}}'")]
    Taken {
        /// The member that has to be unique.
        field: &'static str,
        /// What it was to be.
        value: String,
    },
    /// The configuration file declares the record.
    #[error("{what} is declared in {file}; change it there")]
    FileOwned {
        /// The record.
        what: String,
        /// The file.
        file: String,
    },
    /// Something else stands in the way.
    #[error("{0}")]
    Conflict(String),
    /// It is not as it was when it was read.
    #[error("the record was changed meanwhile; read it again")]
    Changed,
    /// A failure inside.
    #[error(transparent)]
    Fault(Fault),
}

impl<F: Into<Fault>> From<F> for ManageError {
    fn from(fault: F) -> Self {
        match fault.into() {
            Fault::Store(StoreError::Conflict(_)) => Self::Changed,
            fault => Self::Fault(fault),
        }
    }
}

impl ManageError {
    /// What the audit log calls it.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::NotFound | Self::Realm(_) => "not_found",
            Self::Method | Self::Query(_) | Self::Option { .. } | Self::Size => "invalid_request",
            Self::Offset(_) | Self::Json(_) | Self::MediaType => "invalid_request",
            Self::TooLarge => "too_large",
            Self::Schema(_) => "schema_violation",
            Self::Taken { .. } => "taken",
            Self::FileOwned { .. } => "file_owned",
            Self::Conflict(_) | Self::Changed => "conflict",
            Self::Fault(_) => "server_error",
        }
    }

    /// The answer that tells the client.
    pub(super) fn response(self) -> Response {
        let bad = StatusCode::BAD_REQUEST;
        let coded = |status, code: u8, name: &str, member: &str, detail: Value| {
            let mut body = json!({"message": self.to_string(), "name": name, "code": code});
            if !detail.is_null() {
                body[member] = detail;
            }
            respond::json(status, &body)
        };
        let plain =
            |status: StatusCode| respond::json(status, &json!({"message": self.to_string()}));
        match &self {
            Self::NotFound | Self::Realm(_) => plain(StatusCode::NOT_FOUND),
            Self::Method => plain(StatusCode::METHOD_NOT_ALLOWED),
            Self::Query(_) | Self::Json(_) => plain(bad),
            Self::MediaType => plain(StatusCode::UNSUPPORTED_MEDIA_TYPE),
            Self::TooLarge => plain(StatusCode::PAYLOAD_TOO_LARGE),
            Self::Changed => plain(StatusCode::PRECONDITION_FAILED),
            Self::Size => coded(bad, 9, "invalid size", "", Value::Null),
            Self::Offset(_) => coded(bad, 7, "invalid offset", "", Value::Null),
            Self::Option { option, message } => {
                let detail = json!({*option: message});
                coded(bad, 11, "invalid options", "options", detail)
            }
            Self::Schema(error) => {
                let detail = nested(&error.path, &error.message);
                coded(bad, 2, "schema violation", "fields", detail)
            }
            Self::Taken { field, value } => {
                let name = "unique constraint violation";
                coded(
                    StatusCode::CONFLICT,
                    5,
                    name,
                    "fields",
                    json!({*field: value}),
                )
            }
            Self::FileOwned { file, .. } => {
                let detail = json!({"@declared_in": file});
                let name = "operation unsupported";
                coded(StatusCode::CONFLICT, 12, name, "fields", detail)
            }
            Self::Conflict(_) => {
                let name = "operation unsupported";
                coded(StatusCode::CONFLICT, 12, name, "fields", Value::Null)
            }
            Self::Fault(fault) => {
                let status = fault.status();
                respond::json(status, &json!({"message": "An unexpected error occurred"}))
            }
        }
    }
}

/// `message` at `a.b[1].c`, as an object of objects.
fn nested(path: &str, message: &str) -> Value {
    let parts = path.split(['.', '[', ']']).filter(|part| !part.is_empty());
    let nested = parts
        .rev()
        .fold(Value::from(message), |inner, part| json!({part: inner}));
    match nested {
        // A member without a name, or of a dot.
        Value::String(message) => json!({path: message}),
        nested => nested,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_as_an_object_of_fields() {
        assert_eq!(nested("a[1].b", "x"), json!({"a": {"1": {"b": "x"}}}));
        assert_eq!(nested("", "x"), json!({"": "x"}));
        assert_eq!(nested(".", "x"), json!({".": "x"}));
    }
}
