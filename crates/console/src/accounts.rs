//! What the pages of users and groups have in common.

use askama::Template;

use super::error::PageError;
use super::frame::Frame;
use super::path;
use super::session::Role;
use super::table::{Button, Filter, Table};
use super::visit::Visit;

/// Where the list of users is.
pub(crate) const USERS: &str = "/console/identity/users";
/// Where the list of groups is.
pub(crate) const GROUPS: &str = "/console/identity/groups";

/// Who may take an account out of service, or its factors away: whoever may do
/// this to an owner could have the console alone.
pub(crate) const ACCOUNTS_CHANGED_BY: Role = Role::Owner;

/// A record with what can be done to it, and tables of what belongs to it.
#[derive(Template)]
#[template(path = "user.html")]
pub(crate) struct RecordPage {
    pub(crate) frame: Frame,
    /// The list that the record is of: name and address.
    pub(crate) list: (&'static str, String),
    pub(crate) links: Vec<(String, String)>,
    pub(crate) buttons: Vec<Button>,
    /// What has just been done.
    pub(crate) done: &'static str,
    pub(crate) notes: Vec<String>,
    /// A form that asks for the name of a user.
    pub(crate) ask: Option<Ask>,
    pub(crate) tables: Vec<Table>,
}

/// A form that asks for the name of a user.
pub(crate) struct Ask {
    pub(crate) address: String,
    pub(crate) realm: String,
    pub(crate) label: &'static str,
    pub(crate) text: &'static str,
}

/// The page of a user.
pub(crate) fn address(id: &str, realm: &str) -> String {
    path::with_query(&path::join(USERS, [id]), [("realm", realm)])
}

/// The page of a group.
pub(crate) fn group_address(id: &str, realm: &str) -> String {
    path::with_query(&path::join(GROUPS, [id]), [("realm", realm)])
}

/// The Admin API's path of the user whom the address names, and below it.
pub(crate) fn target(visit: &Visit, below: &[&str], realm: &str) -> String {
    let parts = [visit.param(0)].into_iter().chain(below.iter().copied());
    path::with_query(&path::join("/identity/users", parts), [("realm", realm)])
}

pub(crate) fn has_identity(visit: &Visit) -> Result<(), PageError> {
    if visit.parts().admin.has_identity() {
        Ok(())
    } else {
        Err(PageError::NotFound)
    }
}

/// What lists of users and groups are narrowed down by.
pub(crate) fn search_filters(visit: &Visit) -> Vec<Filter> {
    let t = visit.texts;
    vec![
        Filter::of(visit, "q", t.search, t.begins_hint),
        Filter::of(visit, "realm", t.realm, "/"),
    ]
}

/// The version of the record that a form is of.
pub(crate) fn version(visit: &Visit) -> Result<i64, PageError> {
    let version = visit.field("version").parse::<i64>();
    version.map_err(|_| PageError::Form)
}
