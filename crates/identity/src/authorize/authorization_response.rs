//! The way back to the client, with what it asked for or with an error.

use axum::body::Body;
use axum::response::Response;
use http::header::{LOCATION, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY};
use http::{HeaderValue, Method, StatusCode};
use url::form_urlencoded;

use crate::audit::Reason;
use crate::error::{OAuthError, printable};
use crate::form::Form;
use crate::pages::{self, Frame};
use crate::{Call, respond};

/// How the answer travels (OAuth 2.0 Multiple Response Types §2.1, Form Post
/// Response Mode).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Query,
    Fragment,
    FormPost,
}

impl Mode {
    /// The mode of this name.
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "query" => Some(Self::Query),
            "fragment" => Some(Self::Fragment),
            "form_post" => Some(Self::FormPost),
            _ => None,
        }
    }
}

/// Where the answer goes: an address that was found to be the client's.
#[derive(Clone, Debug)]
pub(super) struct ResponseTarget {
    pub(super) redirect_uri: String,
    pub(super) mode: Mode,
    pub(super) state: Option<String>,
    pub(super) frame: Frame,
}

/// An error that the client is told.
#[derive(Debug)]
pub(super) struct AuthorizationError {
    pub(super) error: &'static str,
    pub(super) description: &'static str,
}

impl AuthorizationError {
    pub(super) const fn new(error: &'static str, description: &'static str) -> Self {
        Self { error, description }
    }
}

/// Why a request is not granted.
#[derive(Debug)]
pub(super) enum RequestError {
    /// Nobody but the user can be told: where the client is, is not known.
    Local(OAuthError),
    /// The client is told.
    Redirect(Box<ResponseTarget>, AuthorizationError),
}

impl RequestError {
    pub(super) fn response(self, call: &Call) -> Response {
        match self {
            Self::Local(error) => page(call, &error),
            Self::Redirect(target, error) => target.error(call, &error),
        }
    }
}

impl<F: Into<crate::error::Fault>> From<F> for RequestError {
    fn from(fault: F) -> Self {
        Self::Local(OAuthError::from(fault))
    }
}

/// The error as a page, or as JSON for whoever reads nothing else.
pub(crate) fn page(call: &Call, error: &OAuthError) -> Response {
    let accept = call.headers().get(http::header::ACCEPT);
    let accept = accept.and_then(|value| value.to_str().ok());
    let accept = accept.unwrap_or_default();
    if accept.contains("application/json") && !accept.contains("text/html") {
        return error.to_response();
    }
    let query = call.parts.uri.query().unwrap_or_default();
    let query = Form::parse(query.as_bytes()).unwrap_or_default();
    let frame = call.frame(query.get("ui_locales"));
    let text = printable(&error.description);
    let mut response = pages::error(&frame, error.status, error.error, &text);
    response.extensions_mut().insert(Reason(error.error.into()));
    response
}

impl ResponseTarget {
    /// Sends the client this error (RFC 6749 §4.1.2.1, RFC 9207).
    pub(super) fn error(&self, call: &Call, error: &AuthorizationError) -> Response {
        let fields = vec![
            ("error", error.error.to_owned()),
            ("error_description", error.description.to_owned()),
        ];
        let mut response = self.answer(call, fields);
        response.extensions_mut().insert(Reason(error.error.into()));
        response
    }

    /// Sends the client these fields, the state and who answers.
    pub(super) fn answer(&self, call: &Call, mut fields: Vec<(&'static str, String)>) -> Response {
        if let Some(state) = &self.state {
            fields.push(("state", state.clone()));
        }
        fields.push(("iss", call.realm.issuer.clone()));
        if self.mode == Mode::FormPost {
            return pages::form_post(self.frame.clone(), &self.redirect_uri, &fields);
        }
        let mut answer = form_urlencoded::Serializer::new(String::new());
        answer.extend_pairs(&fields);
        let answer = answer.finish();
        let joint = match self.mode {
            Mode::Fragment => "#",
            _ if self.redirect_uri.ends_with(['?', '&']) => "",
            _ if self.redirect_uri.contains('?') => "&",
            _ => "?",
        };
        redirect(call, &format!("{}{joint}{answer}", self.redirect_uri))
    }
}

/// Whether a browser shows the answer to a form. It holds all that this answer
/// redirects to, and what that redirects to, to the policy of the form's page.
fn is_form_of_browser(call: &Call) -> bool {
    let mode = call.headers().get("sec-fetch-mode");
    call.parts.method == Method::POST && mode.is_some_and(|mode| mode == "navigate")
}

/// Whether an address is a path of ours or of the web: programs of a device are
/// called by redirects alone.
fn is_of_web(to: &str) -> bool {
    to.starts_with('/') || to.starts_with("https:") || to.starts_with("http:")
}

/// A redirect that turns a POST into a GET: what was posted stays here. Browsers
/// get a page that leads on: a client, or a provider on the way to one, may
/// redirect to origins that `form-action` of our page can't name.
pub(crate) fn redirect(call: &Call, to: &str) -> Response {
    if is_form_of_browser(call) && is_of_web(to) {
        return pages::going_on(&call.frame(None), to);
    }
    let mut response = Response::new(Body::empty());
    let Ok(to) = HeaderValue::from_str(to) else {
        return page(call, &OAuthError::bad("invalid_request", ""));
    };
    *response.status_mut() = if call.parts.method == Method::POST {
        StatusCode::SEE_OTHER
    } else {
        StatusCode::FOUND
    };
    respond::never_stored(&mut response);
    let headers = response.headers_mut();
    headers.insert(LOCATION, to);
    if let Some(transport) = &call.live.appearance.transport {
        headers.insert(STRICT_TRANSPORT_SECURITY, transport.clone());
    }
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}
