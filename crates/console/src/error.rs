//! Why a page is not shown.

use askama::Template;
use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};

use super::api::ApiAnswer;
use super::frame::{self, Frame};
use super::provider::way;
use super::texts::Texts;
use super::trail::Trail;
use super::visit::Visit;
use doorward_core::model::audit::Person;

/// Why a page is not shown.
#[derive(Debug)]
pub(crate) enum PageError {
    /// There is no such page.
    NotFound,
    /// The page does not know the method.
    Method,
    /// The request came under a foreign name or from a page of another origin.
    Foreign(String),
    /// There is no user of the name that was typed.
    NoUser,
    /// Nobody is signed in.
    NoSession,
    /// The session's role does not suffice.
    Role,
    /// The person signed in too long ago for a change.
    StepUp,
    /// None of the person's groups has a role.
    NoGroup(Person),
    /// The way through the provider led nowhere.
    SignIn(SignInError),
    /// Nobody can say now who the visitor is.
    Unavailable,
    /// The body is no form.
    Form,
    /// The form is not one of this session, or is too old.
    Stale,
    /// The record has changed since the form was made.
    Changed(Box<Trail>),
    /// A file owns the record.
    FileOwned(String),
    /// The configuration file declares the user.
    FileUser,
    /// It would take the visitor's own account away.
    OwnAccount,
    /// Without it the visitor would be no owner any more.
    LastOwnerGroup,
    /// The change is too old to be undone, or was undone before.
    NotUndoable,
    /// The Admin API said no.
    Api(ApiAnswer),
    /// The Admin API's answer makes no page.
    Unreadable,
}

/// Why the way through the provider led nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SignInError {
    /// It did not begin in this browser, or lasted too long.
    State,
    /// It was ended before; where it led to.
    Spent(String),
    /// The provider refused, with this error code.
    Refused(String),
    /// What the provider said does not belong to this sign-in.
    Answer,
    /// The provider sends nobody back to the address that the visitor came by.
    Address,
}

#[derive(Template)]
#[template(path = "message.html")]
struct MessagePage {
    frame: Frame,
    text: String,
    details: Vec<(String, String)>,
    back: bool,
    /// Where the person signs in anew. A link leads there, for browsers hold the
    /// redirects that follow a form to the page's `form-action`.
    again: String,
    /// Where the person signs out at the provider.
    leave: String,
}

impl PageError {
    /// The record that `trail` is of has changed.
    pub(crate) fn changed(trail: Trail) -> Self {
        Self::Changed(Box::new(trail))
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::NotFound | Self::NoUser => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Foreign(_) | Self::Role | Self::StepUp | Self::NoGroup(_) | Self::Stale => {
                StatusCode::FORBIDDEN
            }
            Self::NoSession => StatusCode::UNAUTHORIZED,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::SignIn(_) | Self::Form => StatusCode::BAD_REQUEST,
            Self::Changed(_) | Self::FileOwned(_) | Self::FileUser => StatusCode::CONFLICT,
            Self::OwnAccount | Self::LastOwnerGroup | Self::NotUndoable => StatusCode::CONFLICT,
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
            Self::NoUser => (texts.no_user.to_owned(), Vec::new()),
            Self::Method | Self::Form => (texts.bad_form.to_owned(), Vec::new()),
            Self::Foreign(message) => (message.clone(), Vec::new()),
            Self::NoSession => (texts.no_session.to_owned(), Vec::new()),
            Self::Role => (texts.no_role.to_owned(), Vec::new()),
            Self::StepUp => (texts.step_up.to_owned(), Vec::new()),
            Self::NoGroup(person) => (
                texts.no_group.to_owned(),
                vec![
                    (texts.user.to_owned(), person.name.clone()),
                    (texts.realm.to_owned(), person.realm.clone()),
                ],
            ),
            Self::SignIn(error) => error.text(texts),
            Self::Unavailable => (texts.unavailable.to_owned(), Vec::new()),
            Self::Stale => (texts.stale.to_owned(), Vec::new()),
            Self::Changed(trail) => (texts.changed.to_owned(), trail.found.clone()),
            Self::FileOwned(file) => (format!("{} {file}", texts.file_owned), Vec::new()),
            Self::FileUser => (texts.user_of_file.to_owned(), Vec::new()),
            Self::OwnAccount => (texts.own_account.to_owned(), Vec::new()),
            Self::LastOwnerGroup => (texts.last_owner_group.to_owned(), Vec::new()),
            Self::NotUndoable => (texts.not_undoable.to_owned(), Vec::new()),
            Self::Api(answer) => (answer.message().to_owned(), answer.violations()),
            Self::Unreadable => (texts.unreadable.to_owned(), Vec::new()),
        };
        let leave = match (self, &visit.parts().provider) {
            (Self::NoGroup(_), Some(provider)) => provider.sign_out_address(visit),
            _ => None,
        };
        let page = MessagePage {
            leave: leave.unwrap_or_default(),
            frame: Frame::of(visit, texts.error, ""),
            text,
            details,
            back: visit.session().is_some(),
            again: match self {
                Self::StepUp => way(&visit.form_page(), true),
                _ => String::new(),
            },
        };
        frame::show(&page).unwrap_or_else(|error| plain(&error))
    }
}

impl SignInError {
    fn text(&self, texts: &Texts) -> (String, Vec<(String, String)>) {
        let (text, detail) = match self {
            Self::State | Self::Spent(_) => (texts.sign_in_state, None),
            Self::Refused(code) => (texts.sign_in_refused, Some(code)),
            Self::Answer => (texts.sign_in_answer, None),
            Self::Address => (texts.sign_in_address, None),
        };
        let detail = detail.map(|code| ("error".to_owned(), code.clone()));
        (text.to_owned(), detail.into_iter().collect())
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
