//! What the forms of users and groups have in common.

use askama::Template;
use axum::response::Response;
use http::StatusCode;
use serde_json::Value;

use super::accounts::has_identity;
use super::api::ApiAnswer;
use super::error::PageError;
use super::frame::{self, Frame};
use super::texts::Texts;
use super::visit::Visit;
use super::{form_base, path, record};

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

/// A kind of record that has a form: users, or groups.
pub(crate) struct AccountKind {
    /// Where its list is.
    pub(crate) list: &'static str,
    /// Where it is in the Admin API.
    pub(crate) resource: &'static str,
    /// The member with its name.
    pub(crate) key: &'static str,
    pub(crate) new_title: fn(&Texts) -> &'static str,
    /// What the form shows of a record, which is null for none, and whether the record
    /// is new.
    pub(crate) inputs: fn(&Visit, &Value, bool) -> Vec<AccountInput>,
}

/// The form of a user or a group.
struct AccountForm {
    title: String,
    /// The entry of the navigation.
    section: &'static str,
    /// Where it is sent to.
    address: String,
    back: String,
    /// Of the record that it changes; "" of a new one.
    version: String,
    /// The record that it was made of ([`form_base`]); "" of a new one.
    base: String,
    realm: String,
    inputs: Vec<AccountInput>,
    errors: Vec<(String, String)>,
}

#[derive(Template)]
#[template(path = "account_form.html")]
struct AccountFormPage {
    frame: Frame,
    form: AccountForm,
}

impl AccountForm {
    fn show(self, visit: &Visit) -> Result<Response, PageError> {
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

impl AccountKind {
    /// The record that the address names, as it is now.
    pub(crate) async fn current(&self, visit: &Visit, realm: &str) -> Result<Value, PageError> {
        let target = path::join(self.resource, [visit.param(0)]);
        let target = path::with_query(&target, [("realm", realm)]);
        visit.api().get(&target).await
    }

    /// The form of `record`, null for a new one, with what is in `typed`.
    pub(crate) fn form(
        &self,
        visit: &Visit,
        realm: &str,
        (record, typed): (&Value, &Value),
        errors: Vec<(String, String)>,
    ) -> Result<Response, PageError> {
        let is_new = record.is_null();
        let page = |parts: &[&str]| path::join(self.list, parts.iter().copied());
        let of_realm = |page: &str| path::with_query(page, [("realm", realm)]);
        let (title, address, back, version) = if is_new {
            let title = (self.new_title)(visit.texts).to_owned();
            (title, page(&["new"]), of_realm(self.list), String::new())
        } else {
            let id = text(&record["id"]);
            (
                record::text(&record[self.key]),
                page(&[&id, "edit"]),
                of_realm(&page(&[&id])),
                record::text(&record["version"]),
            )
        };
        let form = AccountForm {
            title,
            section: self.list,
            address,
            back,
            version,
            base: if is_new {
                String::new()
            } else {
                form_base::text(record)
            },
            realm: realm.to_owned(),
            inputs: (self.inputs)(visit, typed, is_new),
            errors,
        };
        form.show(visit)
    }

    /// The empty form.
    pub(crate) fn empty(&self, visit: &Visit) -> Result<Response, PageError> {
        has_identity(visit)?;
        let none = (&Value::Null, &Value::Null);
        self.form(visit, visit.query("realm"), none, Vec::new())
    }

    /// The form of the record that the address names.
    pub(crate) async fn edit(&self, visit: &Visit) -> Result<Response, PageError> {
        has_identity(visit)?;
        let realm = visit.query("realm");
        let record = self.current(visit, realm).await?;
        self.form(visit, realm, (&record, &record), Vec::new())
    }

    /// The form again, with what was typed but a password, and what is wrong.
    pub(crate) fn again(
        &self,
        visit: &Visit,
        realm: &str,
        values: (&Value, &Value),
        answer: &ApiAnswer,
    ) -> Result<Response, PageError> {
        let errors = complaints(visit, self.key, answer);
        self.form(visit, realm, values, errors)
    }

    /// The form of a new record again, whose name is missing.
    pub(crate) fn unnamed(
        &self,
        visit: &Visit,
        realm: &str,
        typed: &Value,
    ) -> Result<Response, PageError> {
        let error = (self.key.to_owned(), visit.texts.required.to_owned());
        self.form(visit, realm, (&Value::Null, typed), vec![error])
    }
}

/// What a text field shows of a member.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What the Admin API did not like, by field; `name` is the field of the name.
fn complaints(visit: &Visit, name: &str, answer: &ApiAnswer) -> Vec<(String, String)> {
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
