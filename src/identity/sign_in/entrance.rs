//! A page of ours on which people sign in.

use std::collections::BTreeMap;

use axum::response::Response;

use super::{SignIn, by_password};
use crate::identity::authenticate::forbidden_page;
use crate::identity::authorize::{Browser, redirect};
use crate::identity::error::Fault;
use crate::identity::federation::Offer;
use crate::identity::pages::{self, Applicant, Failed, FormParts, Frame};
use crate::identity::{Call, sessions};

/// The fields of the forms.
#[derive(Debug, Default)]
pub(in crate::identity) struct Fields<'f>(BTreeMap<&'static str, &'f str>);

impl<'f> Fields<'f> {
    /// What the forms of sign-in hold. None of it is a parameter of a client's.
    pub(in crate::identity) const NAMES: [&'static str; 3] = ["csrf", "username", "password"];

    /// Those of a form that has `get`.
    pub(in crate::identity) fn read(get: impl Fn(&str) -> Option<&'f str>) -> Self {
        let value = |name: &'static str| Some((name, get(name)?));
        Self(Self::NAMES.into_iter().filter_map(value).collect())
    }

    /// The field, unless it is absent or empty.
    pub(in crate::identity) fn get(&self, name: &str) -> Option<&'f str> {
        self.0.get(name).copied().filter(|value| !value.is_empty())
    }

    fn text(&self, name: &str) -> &'f str {
        self.get(name).unwrap_or_default()
    }
}

/// Where people sign in, and where that leads.
pub(in crate::identity) struct Entrance<'a> {
    pub(in crate::identity) call: &'a Call,
    pub(in crate::identity) browser: &'a Browser,
    pub(in crate::identity) frame: &'a Frame,
    /// For whom they sign in.
    pub(in crate::identity) applicant: Applicant<'a>,
    /// What leads back here from other providers.
    pub(in crate::identity) offer: &'a Offer,
    /// What tells the forms from those of other pages and requests.
    pub(in crate::identity) purpose: Vec<&'a str>,
    /// Where the forms go.
    pub(in crate::identity) action: String,
    /// When this browser was first shown the request, as a mark.
    pub(in crate::identity) since: String,
    /// Where a user goes who is signed in.
    pub(in crate::identity) next: String,
}

impl Entrance<'_> {
    /// The form that asks for name and password.
    pub(in crate::identity) fn show(&self, name: &str, failed: Option<Failed>) -> Response {
        let form = self.form();
        let mut response = pages::sign_in(self.frame, self.applicant, &form, name, failed);
        self.browser.remember(self.call, &mut response);
        response
    }

    fn form(&self) -> FormParts {
        FormParts {
            action: self.action.clone(),
            csrf: self.browser.token(&self.purpose),
            since: self.since.clone(),
            ways: self.offer.ways(self.call, self.browser),
        }
    }

    /// Answers one of the forms.
    pub(in crate::identity) async fn submitted(
        &self,
        fields: &Fields<'_>,
    ) -> Result<Response, Fault> {
        let name = fields.text("username");
        let csrf = fields.get("csrf");
        if !self.browser.sent(self.call, &self.purpose, csrf) {
            return Ok(self.show(name, Some(Failed::Stale)));
        }
        let came = by_password(self.call, name, fields.text("password")).await?;
        Ok(self.lead(name, came))
    }

    /// Shows what came of a step.
    pub(in crate::identity) fn lead(&self, name: &str, came: SignIn) -> Response {
        match came {
            SignIn::Forbidden => forbidden_page(),
            SignIn::Again(failed) => self.show(name, Some(failed)),
            SignIn::Done(token) => {
                let mut response = redirect(self.call, &self.next);
                sessions::hand_over(self.call, &mut response, &token);
                response
            }
        }
    }
}
