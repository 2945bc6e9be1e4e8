//! Every error of the identity provider as a response, one shape a surface.

use std::fmt;

use axum::response::Response;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use serde_json::{Value, json};

use super::audit::Reason;
use super::password::Busy;
use super::respond;
use doorward_core::jose::keys::KeyError;
use doorward_core::model::key_path::{PathSegment, render};
use doorward_core::model::user::schema::RecordError;
use doorward_store::{SharedSecretError, StoreError};

/// Seconds that a client is told to wait when passwords queue up.
const BUSY_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// Why the provider can't open or reload.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The configuration is wrong.
    #[error("{}: {message}", render(path))]
    Config {
        /// Path of the key, from `identity` on.
        path: Vec<PathSegment>,
        /// What is wrong.
        message: String,
    },
    /// A declared name belongs to a record that was made otherwise.
    #[error("{0} is declared, but exists in the store already: delete it there or here")]
    Owned(String),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no usable signing key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl IdentityError {
    /// About the key `name` of the section.
    pub(super) fn config(name: &str, message: impl Into<String>) -> Self {
        Self::Config {
            path: vec!["identity".into(), name.into()],
            message: message.into(),
        }
    }

    /// About the key `name` in the part `part` of the section.
    pub(super) fn in_section(part: &str, name: &str, message: String) -> Self {
        let mut path: Vec<PathSegment> = vec!["identity".into(), part.into()];
        path.extend(segments(name));
        Self::Config { path, message }
    }

    /// About something in the realm `realm`.
    pub(super) fn in_realm(realm: &str, error: RecordError) -> Self {
        let mut path: Vec<PathSegment> = vec!["identity".into(), "realms".into(), realm.into()];
        path.extend(segments(&error.path));
        Self::Config {
            path,
            message: error.message,
        }
    }
}

/// `users[0].emails[1].value`, taken apart.
fn segments(path: &str) -> impl Iterator<Item = PathSegment> {
    let parts = path.split(['.', '[']).filter(|part| !part.is_empty());
    parts.map(|part| match part.strip_suffix(']').map(str::parse) {
        Some(Ok(index)) => PathSegment::Index(index),
        _ => part.into(),
    })
}

/// What makes every surface fail alike.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("too many passwords are being checked")]
    Busy(#[from] Busy),
    #[error("the directory gave no answer")]
    Directory,
    #[error("none of the scopes may be granted")]
    ScopesDenied,
}

impl From<SharedSecretError> for Fault {
    fn from(error: SharedSecretError) -> Self {
        match error {
            SharedSecretError::Store(error) => Self::Store(error),
            SharedSecretError::Key(error) => Self::Key(error),
        }
    }
}

impl Fault {
    /// Whether it is worth to try the same again.
    fn passes(&self) -> bool {
        match self {
            Self::Busy(_) | Self::Directory => true,
            Self::Store(error) => error.passes(),
            Self::Key(_) | Self::ScopesDenied => false,
        }
    }

    /// The status; logs what an operator must know.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Busy(_) | Self::Directory => StatusCode::SERVICE_UNAVAILABLE,
            Self::Store(StoreError::Unfit) | Self::ScopesDenied => StatusCode::BAD_REQUEST,
            Self::Store(_) | Self::Key(_) => {
                tracing::error!(error = %self, "identity request failed");
                match self {
                    Self::Store(error) if error.passes() => StatusCode::SERVICE_UNAVAILABLE,
                    _ => StatusCode::INTERNAL_SERVER_ERROR,
                }
            }
        }
    }
}

/// A failed OAuth request (RFC 6749 §5.2, RFC 6750 §3.1).
#[derive(Debug)]
pub(super) struct OAuthError {
    pub(super) status: StatusCode,
    pub(super) error: &'static str,
    pub(super) description: String,
    /// How the client may prove itself, or its token.
    pub(super) challenge: Option<Challenge>,
    /// Headers besides the usual ones.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
}

/// A challenge (RFC 9110 §11.6.1).
#[derive(Debug)]
pub(super) struct Challenge {
    scheme: &'static str,
    parameters: String,
}

impl Challenge {
    /// `parameters` are written as they are.
    pub(super) fn new(scheme: &'static str, parameters: String) -> Self {
        Self { scheme, parameters }
    }

    /// The challenge of the scheme that a token came by (RFC 6750 §3, RFC 9449 §7.1): one
    /// of `DPoP` names `algs`.
    pub(super) fn of_token(self, by_proof: bool, algs: &str) -> Self {
        if !by_proof || self.scheme != "Bearer" {
            return self;
        }
        Self::new("DPoP", format!("{}, algs=\"{algs}\"", self.parameters))
    }
}

impl fmt::Display for Challenge {
    /// As `WWW-Authenticate` has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.scheme, self.parameters)
    }
}

impl OAuthError {
    /// A 400 with this code and text.
    pub(super) fn bad(error: &'static str, description: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            error,
            description: description.into(),
            challenge: None,
            headers: Vec::new(),
        }
    }

    /// The client did not prove who it is.
    pub(super) fn invalid_client(realm: &str, description: &str) -> Self {
        Self {
            status: StatusCode::UNAUTHORIZED,
            challenge: Some(Challenge::new("Basic", format!("realm=\"{realm}\""))),
            ..Self::bad("invalid_client", description)
        }
    }

    /// The grant is not (or no longer) good, and nobody is told why.
    pub(super) fn invalid_grant() -> Self {
        Self::bad(
            "invalid_grant",
            "The provided access grant is invalid, expired, or revoked.",
        )
    }

    /// The access token is not (or no longer) good.
    pub(super) fn invalid_token() -> Self {
        Self {
            status: StatusCode::UNAUTHORIZED,
            challenge: Some(Challenge::new(
                "Bearer",
                "error=\"invalid_token\"".to_owned(),
            )),
            ..Self::bad(
                "invalid_token",
                "The access token provided is expired, revoked, malformed, or invalid for other \
                 reasons.",
            )
        }
    }

    /// There is no access token: that alone is no error of the request, so the
    /// challenge names none (RFC 6750 §3.1).
    pub(super) fn no_token(realm: &str) -> Self {
        Self {
            challenge: Some(Challenge::new("Bearer", format!("realm=\"{realm}\""))),
            ..Self::invalid_token()
        }
    }

    /// The access token is good, but not for this.
    pub(super) fn insufficient_scope(scope: &str) -> Self {
        let parameters = format!("error=\"insufficient_scope\", scope=\"{scope}\"");
        Self {
            status: StatusCode::FORBIDDEN,
            challenge: Some(Challenge::new("Bearer", parameters)),
            ..Self::bad(
                "insufficient_scope",
                format!("The scope {scope} is required."),
            )
        }
    }

    /// The error as a protected resource tells it: with a challenge, of the scheme that
    /// the token came by (RFC 6750 §3, RFC 9449 §7.1). A challenge of `DPoP` names `algs`.
    pub(super) fn of_resource(mut self, by_proof: bool, algs: &str) -> Self {
        if self.challenge.is_none() && self.status == StatusCode::BAD_REQUEST {
            let parameters = format!("error=\"{}\"", self.error);
            self.challenge = Some(Challenge::new("Bearer", parameters));
        }
        let challenge = self.challenge.take();
        self.challenge = challenge.map(|challenge| challenge.of_token(by_proof, algs));
        self
    }

    /// The response.
    pub(super) fn response(self) -> Response {
        self.to_response()
    }

    /// The response, where the error is still needed.
    pub(super) fn to_response(&self) -> Response {
        let mut body = json!({"error": self.error});
        let description = printable(&self.description);
        if !description.is_empty() {
            body["error_description"] = Value::String(description);
        }
        let mut response = respond::json(self.status, &body);
        respond::never_stored(&mut response);
        if let Some(challenge) = &self.challenge
            && let Ok(value) = HeaderValue::try_from(challenge.to_string())
        {
            response.headers_mut().insert(WWW_AUTHENTICATE, value);
        }
        for (name, value) in &self.headers {
            response.headers_mut().insert(name, value.clone());
        }
        response.extensions_mut().insert(Reason(self.error.into()));
        response
    }
}

impl<F: Into<Fault>> From<F> for OAuthError {
    fn from(fault: F) -> Self {
        let fault = fault.into();
        let (error, header) = match fault {
            _ if fault.passes() => ("temporarily_unavailable", Some((RETRY_AFTER, BUSY_SECONDS))),
            Fault::Store(StoreError::Unfit) => ("invalid_request", None),
            Fault::ScopesDenied => ("invalid_scope", None),
            _ => ("server_error", None),
        };
        Self {
            status: fault.status(),
            error,
            description: String::new(),
            challenge: None,
            headers: header.into_iter().collect(),
        }
    }
}

/// `text` as RFC 6749 §5.2 allows it: printable ASCII without `"` and `\`, and
/// not endless.
pub(super) fn printable(text: &str) -> String {
    let legal = |c: char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\');
    text.chars()
        .take(400)
        .map(|c| if legal(c) { c } else { '?' })
        .collect()
}

/// A failed request to `/json`.
#[derive(Debug)]
pub(super) struct JsonError {
    pub(super) status: StatusCode,
    pub(super) message: String,
    pub(super) retry: bool,
    /// Where the client may send the user who could not sign in.
    pub(super) failure_url: Option<String>,
}

impl JsonError {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            retry: false,
            failure_url: None,
        }
    }

    /// The response: `code`, `reason` and `message`.
    pub(super) fn response(self) -> Response {
        let mut body = json!({
            "code": self.status.as_u16(),
            "reason": self.status.canonical_reason().unwrap_or_default(),
            "message": self.message,
        });
        if let Some(url) = &self.failure_url {
            body["detail"] = json!({"failureUrl": url});
        }
        self.with(&body)
    }

    /// The response of `authenticate` in its versions 1.x.
    pub(super) fn response_of_version_1(self) -> Response {
        let mut body = json!({"errorMessage": self.message});
        if let Some(url) = &self.failure_url {
            body["failureUrl"] = url.as_str().into();
        }
        self.with(&body)
    }

    fn with(self, body: &Value) -> Response {
        let mut response = respond::json(self.status, body);
        respond::never_stored(&mut response);
        if self.retry {
            response.headers_mut().insert(RETRY_AFTER, BUSY_SECONDS);
        }
        response
    }
}

impl<F: Into<Fault>> From<F> for JsonError {
    fn from(fault: F) -> Self {
        let fault = fault.into();
        let message = match fault {
            Fault::Busy(_) => "Too many sign-ins at once",
            Fault::Directory => "Nobody can sign in just now",
            Fault::Store(StoreError::Unfit) | Fault::ScopesDenied => "Bad Request",
            _ if fault.passes() => "Service Unavailable",
            Fault::Store(_) | Fault::Key(_) => "Internal Server Error",
        };
        Self {
            status: fault.status(),
            message: message.to_owned(),
            retry: fault.passes(),
            failure_url: None,
        }
    }
}

/// A failed SCIM request (RFC 7644 §3.12).
#[derive(Debug)]
pub(super) struct ScimError {
    pub(super) status: StatusCode,
    pub(super) scim_type: Option<&'static str>,
    pub(super) detail: String,
    /// How the client may prove its token.
    pub(super) challenge: Option<Challenge>,
    /// Headers besides the usual ones.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
}

/// What is wrong with an access token or its proof, in the shape of SCIM.
impl From<OAuthError> for ScimError {
    fn from(error: OAuthError) -> Self {
        Self {
            challenge: error.challenge,
            headers: error.headers,
            ..Self::new(error.status, error.description)
        }
    }
}

impl ScimError {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            scim_type: None,
            detail: detail.into(),
            challenge: None,
            headers: Vec::new(),
        }
    }

    /// A 400 of this kind (RFC 7644 §3.12, table 9).
    pub(super) fn bad(scim_type: &'static str, detail: impl Into<String>) -> Self {
        Self {
            scim_type: Some(scim_type),
            ..Self::new(StatusCode::BAD_REQUEST, detail)
        }
    }

    /// The same about the operation of this number, from 0.
    pub(super) fn at_operation(self, index: usize) -> Self {
        Self {
            detail: format!("Operations[{index}]: {}", self.detail),
            ..self
        }
    }

    /// What the response says.
    pub(super) fn body(&self) -> Value {
        let mut body = json!({
            "schemas": ["urn:ietf:params:scim:api:messages:2.0:Error"],
            "status": self.status.as_u16().to_string(),
            "detail": self.detail,
        });
        if let Some(scim_type) = self.scim_type {
            body["scimType"] = Value::from(scim_type);
        }
        body
    }

    /// The response.
    pub(super) fn response(self) -> Response {
        let mut response = respond::json(self.status, &self.body());
        if let Some(scim_type) = self.scim_type {
            response.extensions_mut().insert(Reason(scim_type.into()));
        }
        respond::never_stored(&mut response);
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, BUSY_SECONDS);
        }
        let scim = HeaderValue::from_static("application/scim+json");
        response.headers_mut().insert(CONTENT_TYPE, scim);
        let challenge = self
            .challenge
            .map(|one| HeaderValue::try_from(one.to_string()));
        if let Some(Ok(value)) = challenge {
            response.headers_mut().insert(WWW_AUTHENTICATE, value);
        }
        response.headers_mut().extend(self.headers);
        response
    }
}

impl<F: Into<Fault>> From<F> for ScimError {
    fn from(fault: F) -> Self {
        Self::new(fault.into().status(), "The service could not answer.")
    }
}

/// 405 in the shape of the OAuth endpoints; `allowed` in the order to print.
pub(super) fn wrong_method(allowed: &[Method], found: &Method) -> OAuthError {
    OAuthError {
        status: StatusCode::METHOD_NOT_ALLOWED,
        headers: allow(allowed)
            .map(|value| (ALLOW, value))
            .into_iter()
            .collect(),
        ..OAuthError::bad(
            "method_not_allowed",
            format!(
                "Required Method: {} found: {found}",
                listed(allowed, " or ")
            ),
        )
    }
}

/// The value of `Allow` (RFC 9110 §10.2.1).
pub(super) fn allow(methods: &[Method]) -> Option<HeaderValue> {
    HeaderValue::from_str(&listed(methods, ", ")).ok()
}

fn listed(methods: &[Method], between: &str) -> String {
    let names: Vec<_> = methods.iter().map(Method::as_str).collect();
    names.join(between)
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn header_injection_in_a_description_is_defused() {
        let hostile = "a\r\nSet-Cookie: x=\"1\"\t\\\u{e4}";
        assert_eq!(printable(hostile), "a??Set-Cookie: x=?1????");
        assert_eq!(printable(&"x".repeat(1000)).len(), 400);
    }
}
