//! What applications are told that get nothing.

use std::fmt::Display;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, PRAGMA, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

use super::{BAD_REQUEST, GUESSING, STORE, UNKNOWN_CLIENT, WRONG_METHOD};
use crate::authentication::{Refusal, status};
use crate::settings::UNEXPECTED;
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_plugin_api::filter::Code;
use doorward_store::StoreError;

/// Why an application gets nothing.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) code: &'static Code,
    pub(super) error: &'static str,
    pub(super) description: String,
    /// Whether the client has named itself in a header, and is told there too.
    in_header: bool,
}

impl Fault {
    /// A request that can't be granted.
    pub(super) fn new(error: &'static str, description: impl Into<String>) -> Self {
        Self {
            code: &BAD_REQUEST,
            error,
            description: description.into(),
            in_header: false,
        }
    }

    /// A client that is unknown, or has the wrong secret.
    pub(super) fn client(in_header: bool) -> Self {
        Self {
            code: &UNKNOWN_CLIENT,
            in_header,
            ..Self::new("invalid_client", "Invalid client authentication")
        }
    }

    /// Another method than `POST`.
    pub(super) fn method(method: &http::Method, endpoint: &str) -> Self {
        let description =
            format!("The HTTP method {method} is invalid for the {endpoint} endpoint");
        Self {
            code: &WRONG_METHOD,
            ..Self::new("invalid_method", description)
        }
    }

    /// An address that has been wrong too often.
    pub(super) fn guessing() -> Self {
        Self {
            code: &GUESSING,
            ..Self::new("access_denied", "Too many attempts")
        }
    }

    /// The provision key is wrong.
    pub(super) fn provision_key() -> Self {
        Self::new("invalid_provision_key", "Invalid provision_key")
    }

    /// Nobody is named who has agreed.
    pub(super) fn user() -> Self {
        let description = "Missing authenticated_userid parameter";
        Self::new("invalid_authenticated_userid", description)
    }

    /// There is no store, as where a file is only checked.
    pub(super) fn no_store() -> Self {
        Self {
            code: &STORE,
            ..Self::new("", UNEXPECTED)
        }
    }

    /// Tokens are for a service, and the route has none.
    pub(super) fn no_service() -> Self {
        let description = "The route has no service, and the plugin no global_credentials";
        Self::new("access_denied", description)
    }

    /// The code is not there, or not this client's.
    pub(super) fn code() -> Self {
        Self::new("invalid_request", "Invalid code")
    }

    /// The members of the answer.
    pub(super) fn members(&self) -> Map<String, Value> {
        if self.code.status >= 500 {
            return Map::from_iter([("message".to_owned(), self.description.clone().into())]);
        }
        Map::from_iter([
            ("error".to_owned(), self.error.into()),
            (
                "error_description".to_owned(),
                self.description.clone().into(),
            ),
        ])
    }

    /// The status of the answer.
    pub(super) fn status(&self) -> StatusCode {
        match self.code {
            code if code.code == UNKNOWN_CLIENT.code && !self.in_header => StatusCode::BAD_REQUEST,
            code => status(code),
        }
    }

    /// The answer of an endpoint.
    pub(super) fn reply(&self, state: Option<&str>) -> Reply {
        let mut members = self.members();
        members.extend(state.map(|state| ("state".to_owned(), state.into())));
        let reply = answer(self.status(), &Value::Object(members));
        if self.in_header {
            let challenge = HeaderValue::from_static("Basic realm=\"OAuth2.0\"");
            return reply.header(WWW_AUTHENTICATE, challenge);
        }
        reply
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        doorward_net::telemetry::warn_limited!(%error, "tokens can't be kept or looked up");
        Self::no_store()
    }
}

/// An answer that nobody may store.
pub(super) fn answer(status: StatusCode, body: &impl Display) -> Reply {
    json(status, body)
        .header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
        .header(PRAGMA, HeaderValue::from_static("no-cache"))
}

/// An answer with this JSON as its body.
fn json(status: StatusCode, body: &impl Display) -> Reply {
    let json = HeaderValue::from_static("application/json; charset=utf-8");
    let mut reply = Reply::empty(status).header(CONTENT_TYPE, json);
    reply.body = ReplyBody::Own(body.to_string().into());
    reply
}

/// The refusal of a request for what the tokens protect.
pub(super) fn refusal(code: &'static Code, error: &str, description: &str) -> Refusal {
    let body = json!({"error": error, "error_description": description});
    Refusal {
        code,
        reply: json(status(code), &body),
    }
}
