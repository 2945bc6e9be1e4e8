//! The page on which people see and change what belongs to their account.

use askama::Template;
use axum::response::Response;
use http::StatusCode;

use super::frame::show;
use super::texts::{Moment, Texts};
use super::{Alert, FormError, FormParts, Frame};
use crate::federation::ProviderLink;

/// Sessions that are shown at once; the others unfold.
const SHOWN: usize = 10;

/// A session of the user.
#[derive(Debug)]
pub(crate) struct AccountSession {
    pub(crate) id: String,
    /// Whether it is the one that the page is shown in.
    pub(crate) own: bool,
    pub(crate) agent: String,
    pub(crate) address: String,
    pub(crate) since: Moment,
    pub(crate) used: Moment,
    pub(crate) clients: String,
}

/// What the user lets a client have.
#[derive(Debug)]
pub(crate) struct AccountConsent {
    pub(crate) client_id: String,
    pub(crate) name: String,
    pub(crate) scopes: Vec<String>,
}

/// A factor of the user.
#[derive(Debug)]
pub(crate) struct AccountFactor {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) is_passkey: bool,
    /// Whether it is kept on several devices.
    pub(crate) copied: bool,
    pub(crate) added: Moment,
    pub(crate) used: Option<Moment>,
}

/// An account at another provider that is linked to the user's.
#[derive(Debug)]
pub(crate) struct AccountLink {
    pub(crate) id: String,
    pub(crate) title: String,
    /// The address there; none, if it is empty.
    pub(crate) email: String,
    pub(crate) since: Moment,
    pub(crate) used: Moment,
}

/// All that the page shows.
#[derive(Debug)]
pub(crate) struct AccountPage<'a> {
    pub(crate) user_name: &'a str,
    pub(crate) sessions: Vec<AccountSession>,
    pub(crate) consents: Vec<AccountConsent>,
    pub(crate) factors: Vec<AccountFactor>,
    /// Recovery codes, for who has a factor.
    pub(crate) codes_left: Option<u32>,
    pub(crate) may_add: bool,
    pub(crate) may_change_password: bool,
    /// Accounts at other providers.
    pub(crate) links: Vec<AccountLink>,
    /// The ways to link further ones.
    pub(crate) provider_links: Vec<ProviderLink>,
    /// What is wrong with the new password, if that was refused.
    pub(crate) refused: &'a str,
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
pub(crate) fn account(
    frame: &Frame,
    form: &FormParts,
    page: AccountPage<'_>,
    failed: Option<FormError>,
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
    show(
        frame,
        failed.map_or(StatusCode::OK, FormError::status),
        &page,
    )
}
