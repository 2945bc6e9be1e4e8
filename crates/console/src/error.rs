//! Why a page is not shown.

use askama::Template;
use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};

use super::api::ApiAnswer;
use super::frame::{self, Frame};
use super::visit::Visit;

/// Why a page is not shown.
#[derive(Debug)]
pub(crate) enum PageError {
    /// There is no such page.
    NotFound,
    /// The page does not know the method.
    Method,
    /// The request came under a foreign name or from a page of another origin.
    Foreign(String),
    /// Nobody is signed in.
    NoSession,
    /// The session's role does not suffice.
    Role,
    /// The body is no form.
    Form,
    /// The form is not one of this session, or is too old.
    Stale,
    /// The record has changed since the form was made.
    Changed,
    /// A file owns the record.
    FileOwned(String),
    /// The Admin API said no.
    Api(ApiAnswer),
    /// The Admin API's answer makes no page.
    Unreadable,
}

#[derive(Template)]
#[template(path = "message.html")]
struct MessagePage {
    frame: Frame,
    text: String,
    details: Vec<(String, String)>,
    back: bool,
}

impl PageError {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Foreign(_) | Self::Role | Self::Stale => StatusCode::FORBIDDEN,
            Self::NoSession => StatusCode::UNAUTHORIZED,
            Self::Form => StatusCode::BAD_REQUEST,
            Self::Changed | Self::FileOwned(_) => StatusCode::CONFLICT,
            Self::Api(answer) => answer.status,
            Self::Unreadable => StatusCode::BAD_GATEWAY,
        }
    }

    /// The page that says so to the visitor; plain text to somebody who is none.
    pub(crate) fn response(self, visit: Option<&Visit>) -> Response {
        let status = self.status();
        let mut response = match visit {
            Some(visit) => self.page(visit),
            None => plain(&self),
        };
        *response.status_mut() = status;
        response
    }

    fn page(&self, visit: &Visit) -> Response {
        let texts = visit.texts;
        let (text, details) = match self {
            Self::NotFound => (texts.not_found.to_owned(), Vec::new()),
            Self::Method | Self::Form => (texts.bad_form.to_owned(), Vec::new()),
            Self::Foreign(message) => (message.clone(), Vec::new()),
            Self::NoSession => (texts.no_session.to_owned(), Vec::new()),
            Self::Role => (texts.no_role.to_owned(), Vec::new()),
            Self::Stale => (texts.stale.to_owned(), Vec::new()),
            Self::Changed => (texts.changed.to_owned(), Vec::new()),
            Self::FileOwned(file) => (format!("{} {file}", texts.file_owned), Vec::new()),
            Self::Api(answer) => (answer.message().to_owned(), answer.violations()),
            Self::Unreadable => (texts.unreadable.to_owned(), Vec::new()),
        };
        let page = MessagePage {
            frame: Frame::of(visit, texts.error, ""),
            text,
            details,
            back: visit.session().is_some(),
        };
        frame::show(&page).unwrap_or_else(|error| plain(&error))
    }
}

fn plain(error: &PageError) -> Response {
    let text = match error {
        PageError::Foreign(message) => message.clone(),
        other => other.status().to_string(),
    };
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
