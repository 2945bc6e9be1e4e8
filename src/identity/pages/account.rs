//! The page on which people see and change what belongs to their account.

use askama::Template;
use axum::response::Response;
use http::StatusCode;

use super::frame::show;
use super::texts::{Moment, Texts};
use super::{Alert, Failed, FormParts, Frame};
use crate::identity::federation::Way;

/// Sessions that are shown at once; the others unfold.
const SHOWN: usize = 10;

/// A session of the user.
#[derive(Debug)]
pub(in crate::identity) struct AccountSession {
    pub(in crate::identity) id: String,
    /// Whether it is the one that the page is shown in.
    pub(in crate::identity) own: bool,
    pub(in crate::identity) agent: String,
    pub(in crate::identity) address: String,
    pub(in crate::identity) since: Moment,
    pub(in crate::identity) used: Moment,
    pub(in crate::identity) clients: String,
}

/// What the user lets a client have.
#[derive(Debug)]
pub(in crate::identity) struct AccountConsent {
    pub(in crate::identity) client_id: String,
    pub(in crate::identity) name: String,
    pub(in crate::identity) scopes: Vec<String>,
}

/// A factor of the user.
#[derive(Debug)]
pub(in crate::identity) struct AccountFactor {
    pub(in crate::identity) id: String,
    pub(in crate::identity) name: String,
    pub(in crate::identity) is_passkey: bool,
    /// Whether it is kept on several devices.
    pub(in crate::identity) copied: bool,
    pub(in crate::identity) added: Moment,
    pub(in crate::identity) used: Option<Moment>,
}

/// An account at another provider that is linked to the user's.
#[derive(Debug)]
pub(in crate::identity) struct AccountLink {
    pub(in crate::identity) id: String,
    pub(in crate::identity) title: String,
    /// The address there; none, if it is empty.
    pub(in crate::identity) email: String,
    pub(in crate::identity) since: Moment,
    pub(in crate::identity) used: Moment,
}

/// All that the page shows.
#[derive(Debug)]
pub(in crate::identity) struct AccountPage<'a> {
    pub(in crate::identity) user_name: &'a str,
    pub(in crate::identity) sessions: Vec<AccountSession>,
    pub(in crate::identity) consents: Vec<AccountConsent>,
    pub(in crate::identity) factors: Vec<AccountFactor>,
    /// Recovery codes, for who has a factor.
    pub(in crate::identity) codes_left: Option<u32>,
    pub(in crate::identity) may_add: bool,
    pub(in crate::identity) may_change_password: bool,
    /// Accounts at other providers.
    pub(in crate::identity) links: Vec<AccountLink>,
    /// The ways to link further ones.
    pub(in crate::identity) ways: Vec<Way>,
    /// What is wrong with the new password, if that was refused.
    pub(in crate::identity) refused: &'a str,
}

#[derive(Template)]
#[template(path = "account_page.html")]
struct Account<'a> {
    frame: &'a Frame,
    texts: &'a Texts,
    alert: Option<Alert<'a>>,
    action: &'a str,
    csrf: &'a str,
    page: AccountPage<'a>,
    shown: usize,
}

/// The page.
pub(in crate::identity) fn account(
    frame: &Frame,
    form: &FormParts,
    page: AccountPage<'_>,
    failed: Option<Failed>,
) -> Response {
    let page = Account {
        frame,
        texts: &frame.texts,
        alert: failed.map(|failed| failed.alert(&frame.texts)),
        action: &form.action,
        csrf: &form.csrf,
        page,
        shown: SHOWN,
    };
    show(frame, failed.map_or(StatusCode::OK, Failed::status), &page)
}
