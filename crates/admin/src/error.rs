//! Every refusal of the Admin API, and what the client sees of it.

use std::borrow::Cow;

use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::reply;
use doorward_core::model::schema::Violations;
use doorward_gateway::control::ChangeError;
use doorward_store::StoreError;

/// Why a request was not done (gateway-admin-api §4).
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    /// No such path, or no such record.
    #[error("Not found")]
    NotFound,
    /// A workspace other than the one there is.
    #[error("Workspace '{0}' not found")]
    Workspace(String),
    /// Something of this description does not exist.
    #[error("{0}")]
    Missing(String),
    /// The path does not know the method.
    #[error("Method not allowed")]
    Method,
    /// A body that is no JSON object.
    #[error("Cannot parse JSON body")]
    Json,
    /// A body that is no form.
    #[error("Cannot parse form body: {0}")]
    Form(String),
    /// A query that is none.
    #[error("Cannot parse query: {0}")]
    Query(String),
    /// More arguments than are read.
    #[error("Too many arguments")]
    Arguments,
    /// Two `Content-Type` headers, or one that is no text.
    #[error("Invalid Content-Type header")]
    ContentTypes,
    /// A body of a type that is not read.
    #[error("unsupported media type")]
    MediaType,
    /// A body beyond the limit.
    #[error("Request body is too large")]
    TooLarge,
    /// The request came from a web page or under a foreign host name.
    #[error("{0}")]
    Forbidden(&'static str),
    /// No token, or a wrong one.
    #[error("Invalid credentials. Token or User credentials required")]
    Token,
    /// The record breaks its schema.
    #[error("{}", .0.message())]
    Schema(Violations),
    /// The id of a new record is taken.
    #[error("primary key violation on key '{{id=\"{0}\"}}'")]
    PrimaryKey(Uuid),
    /// A PATCH of nothing; the argument describes what was looked for.
    #[error("could not find the entity with {0}")]
    Absent(String),
    /// A look-up by a unique field with what can't be its value.
    #[error("{message}")]
    Unique {
        /// The field.
        field: &'static str,
        /// What is wrong.
        message: Cow<'static, str>,
    },
    /// A path that names by what is no id a record that has only an id.
    #[error("invalid primary key: '{{id=\"{0}\"}}'")]
    Key(String),
    /// A reference by a name that nobody has.
    #[error(
        "foreign key unresolved ({field}.name: the foreign key cannot be resolved with \
         '{{name=\"{name}\"}}' for an existing '{kind}' entity)"
    )]
    Unresolved {
        /// The referring field.
        field: &'static str,
        /// Plural of the referenced kind.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// `size` of a list.
    #[error("{0}")]
    Size(&'static str),
    /// `offset` of a list.
    #[error("'{0}' is not a valid offset: bad base64 encoding")]
    Offset(String),
    /// Another option of a list.
    #[error("invalid option ({option}: {message})")]
    Option {
        /// The query parameter.
        option: Cow<'static, str>,
        /// What is wrong with it.
        message: Cow<'static, str>,
    },
    /// A value in the path or the query that is none of those allowed.
    #[error("{0}")]
    Argument(String),
    /// The filter of the log could not be replaced.
    #[error("failed setting log level")]
    LogLevel,
    /// The storage of login sessions gives no answer, or takes no more.
    #[error("The storage of sessions does not answer")]
    Sessions,
    /// It is not as it was when it was read.
    #[error("the record was changed meanwhile; read it again")]
    Changed,
    /// The change was refused.
    #[error(transparent)]
    Change(#[from] ChangeError),
}

impl From<Violations> for ApiError {
    fn from(violations: Violations) -> Self {
        Self::Schema(violations)
    }
}

/// A body with `code`, `name` and, for most, `fields`.
struct Coded {
    status: StatusCode,
    code: u8,
    name: Cow<'static, str>,
    fields: (&'static str, Value),
}

impl ApiError {
    /// The answer that tells the client.
    pub(super) fn into_response(self) -> Response {
        match self {
            ApiError::MediaType => reply::empty(StatusCode::UNSUPPORTED_MEDIA_TYPE),
            ApiError::Workspace(_) | ApiError::Missing(_) | ApiError::NotFound => {
                self.plain(StatusCode::NOT_FOUND)
            }
            ApiError::LogLevel => self.plain(StatusCode::INTERNAL_SERVER_ERROR),
            ApiError::Sessions => reply::unavailable(&self.to_string()),
            ApiError::Method => self.plain(StatusCode::METHOD_NOT_ALLOWED),
            ApiError::Json
            | ApiError::Form(_)
            | ApiError::Query(_)
            | ApiError::Arguments
            | ApiError::Argument(_)
            | ApiError::ContentTypes => self.plain(StatusCode::BAD_REQUEST),
            ApiError::TooLarge => self.plain(StatusCode::PAYLOAD_TOO_LARGE),
            ApiError::Forbidden(_) => self.plain(StatusCode::FORBIDDEN),
            ApiError::Token => self.plain(StatusCode::UNAUTHORIZED),
            ApiError::Changed => self.plain(StatusCode::PRECONDITION_FAILED),
            ApiError::Change(ChangeError::Invalid { field, message }) => {
                ApiError::Schema(Violations::of(&field, message)).into_response()
            }
            ApiError::Change(ChangeError::Store(StoreError::Unfit)) => {
                self.plain(StatusCode::BAD_REQUEST)
            }
            ApiError::Change(ChangeError::Store(error)) if error.passes() => {
                tracing::error!(%error, "a change could not be stored");
                reply::unavailable("The store does not answer")
            }
            ApiError::Change(ChangeError::Store(StoreError::Conflict(_))) => {
                let message = "Another process changes entities at the same time; try again";
                reply::message(StatusCode::CONFLICT, message)
            }
            ApiError::Change(ChangeError::Store(error)) => {
                tracing::error!(%error, "a change could not be stored");
                unexpected()
            }
            ApiError::Schema(_)
            | ApiError::PrimaryKey(_)
            | ApiError::Key(_)
            | ApiError::Unique { .. }
            | ApiError::Absent(_)
            | ApiError::Unresolved { .. }
            | ApiError::Size(_)
            | ApiError::Offset(_)
            | ApiError::Option { .. }
            | ApiError::Change(_) => match self.coded() {
                Some(coded) => coded.into_response(self.to_string()),
                None => unexpected(),
            },
        }
    }

    fn plain(&self, status: StatusCode) -> Response {
        reply::message(status, self.to_string())
    }

    fn coded(&self) -> Option<Coded> {
        let bad = StatusCode::BAD_REQUEST;
        let coded = |status, code, name: &'static str, fields: Value| Coded {
            status,
            code,
            name: name.into(),
            fields: ("fields", fields),
        };
        Some(match self {
            ApiError::Schema(violations) => {
                coded(bad, 2, "schema violation", violations.to_json().into())
            }
            ApiError::Unique { field, .. } => Coded {
                name: format!("invalid unique {field}").into(),
                ..coded(bad, 10, "", Value::Null)
            },
            ApiError::Key(_) => {
                let fields = json!({"id": "expected a valid UUID"});
                coded(bad, 1, "invalid primary key", fields)
            }
            ApiError::PrimaryKey(id) => coded(bad, 3, "primary key violation", json!({"id": id})),
            ApiError::Absent(_) => coded(StatusCode::NOT_FOUND, 6, "not found", json!({})),
            ApiError::Offset(_) => coded(bad, 7, "invalid offset", Value::Null),
            ApiError::Size(_) => coded(bad, 9, "invalid size", Value::Null),
            ApiError::Option { option, message } => Coded {
                status: bad,
                code: 11,
                name: "invalid options".into(),
                fields: ("options", json!({option.as_ref(): message})),
            },
            ApiError::Unresolved { field, kind, name } => {
                let message = format!(
                    "the foreign key cannot be resolved with '{{name=\"{name}\"}}' for an \
                     existing '{kind}' entity"
                );
                let fields = json!({*field: {"name": message}});
                coded(bad, 13, "foreign keys unresolved", fields)
            }
            ApiError::Change(error) => return change(error),
            _ => return None,
        })
    }
}

fn change(error: &ChangeError) -> Option<Coded> {
    let coded = |status, code, name: &'static str, fields: Value| Coded {
        status,
        code,
        name: name.into(),
        fields: ("fields", fields),
    };
    Some(match error {
        ChangeError::Unique { detail, .. } => coded(
            StatusCode::CONFLICT,
            5,
            "unique constraint violation",
            detail.clone().into(),
        ),
        ChangeError::ForeignKey { field, id, .. } => coded(
            StatusCode::BAD_REQUEST,
            4,
            "foreign key violation",
            json!({*field: {"id": id}}),
        ),
        ChangeError::Referenced { by, .. } => coded(
            StatusCode::BAD_REQUEST,
            4,
            "foreign key violation",
            json!({"@referenced_by": by}),
        ),
        ChangeError::FileOwned { file } => coded(
            StatusCode::CONFLICT,
            12,
            "operation unsupported",
            json!({"@declared_in": file.display().to_string()}),
        ),
        ChangeError::Invalid { .. } | ChangeError::Store(_) => return None,
    })
}

impl Coded {
    fn into_response(self, message: String) -> Response {
        let mut body = Map::from_iter([
            ("message".to_owned(), message.into()),
            ("name".to_owned(), self.name.into_owned().into()),
            ("code".to_owned(), self.code.into()),
        ]);
        if !self.fields.1.is_null() {
            body.insert(self.fields.0.to_owned(), self.fields.1);
        }
        reply::json(self.status, &Value::Object(body))
    }
}

/// What a client learns of a failure inside.
fn unexpected() -> Response {
    let message: Cow<'static, str> = "An unexpected error occurred".into();
    reply::message(StatusCode::INTERNAL_SERVER_ERROR, message)
}
