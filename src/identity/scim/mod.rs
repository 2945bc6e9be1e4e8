//! Users over HTTP, in the manner of SCIM (RFC 7643, RFC 7644).

mod filter;
mod record;
pub(super) mod users;

use serde_json::Value;

use crate::model::query::Filter;
use crate::model::user::User;

/// Reads a filter (RFC 7644 §3.4.2.2).
///
/// # Errors
/// What is wrong with it, and where.
pub fn parse_filter(text: &str) -> Result<Filter, String> {
    filter::parse(text).map_err(|error| error.to_string())
}

/// A user as the interface shows it (interface 2.1); links begin with
/// `base_url`.
pub fn user_record(user: &User, base_url: &str) -> Value {
    record::of(user, base_url)
}
