//! What the forms of users and groups have in common.

use askama::Template;
use axum::response::Response;
use http::StatusCode;

use super::api::ApiAnswer;
use super::error::PageError;
use super::frame::{self, Frame};
use super::visit::Visit;

/// A field of a form.
pub(crate) struct AccountInput {
    /// The member of the record.
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) hint: &'static str,
    pub(crate) is_required: bool,
}

impl AccountInput {
    pub(crate) fn new(name: &'static str, value: String, hint: &'static str) -> Self {
        Self {
            name,
            value,
            hint,
            is_required: false,
        }
    }

    pub(crate) fn required(self) -> Self {
        Self {
            is_required: true,
            ..self
        }
    }

    fn is_secret(&self) -> bool {
        self.name == "password"
    }

    fn has_lines(&self) -> bool {
        self.name == "emails"
    }
}

/// The form of a user or a group.
pub(crate) struct AccountForm {
    pub(crate) title: String,
    /// The entry of the navigation.
    pub(crate) section: &'static str,
    /// Where it is sent to.
    pub(crate) address: String,
    pub(crate) back: String,
    /// Of the record that it changes; "" of a new one.
    pub(crate) version: String,
    pub(crate) realm: String,
    pub(crate) inputs: Vec<AccountInput>,
    pub(crate) errors: Vec<(String, String)>,
}

#[derive(Template)]
#[template(path = "account_form.html")]
struct AccountFormPage {
    frame: Frame,
    form: AccountForm,
}

impl AccountForm {
    pub(crate) fn show(self, visit: &Visit) -> Result<Response, PageError> {
        let is_refused = !self.errors.is_empty();
        let mut response = frame::show(&AccountFormPage {
            frame: Frame::of(visit, self.title.clone(), self.section),
            form: self,
        })?;
        if is_refused {
            *response.status_mut() = StatusCode::BAD_REQUEST;
        }
        Ok(response)
    }
}

/// What the Admin API did not like, by field; `name` is the field of the name.
pub(crate) fn complaints(visit: &Visit, name: &str, answer: &ApiAnswer) -> Vec<(String, String)> {
    let errors = answer.violations();
    if errors.is_empty() {
        return vec![(String::new(), answer.message().to_owned())];
    }
    let is_taken = answer.status == StatusCode::CONFLICT && errors.iter().any(|one| one.0 == name);
    if is_taken {
        return vec![(name.to_owned(), visit.texts.name_taken.to_owned())];
    }
    errors
}
