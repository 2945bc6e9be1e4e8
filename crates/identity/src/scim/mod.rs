//! Users and groups over HTTP: SCIM 2.0 (RFC 7643, RFC 7644), below `/v1` in the
//! manner of the interface and below `/scim/v2` as the standard has it.
//!
//! A request goes through [`answer`]; `access` decides what its token may do,
//! `list_query` reads what it wants to see, `change` and `patch` make new records of
//! old ones.

mod access;
mod body;
pub(super) mod bulk;
mod change;
pub(super) mod discovery;
mod filter;
pub(super) mod groups;
mod list_query;
pub(super) mod me;
mod members;
mod patch;
mod projection;
mod record;
mod reply;
pub(super) mod search;
pub(super) mod users;

#[cfg(test)]
mod plans;
#[cfg(test)]
mod tests;

use std::future::Future;

use axum::response::Response;
use serde_json::Value;

use super::Call;
use super::error::ScimError;
use doorward_core::model::query::Filter;
use doorward_core::model::user::User;
use doorward_core::model::user::schema::USER;

pub(super) use access::tell_who_reads;
pub(super) use change::{changed, merged};
pub(super) use groups::group_names;
pub(super) use record::STANDARD;

/// Longest body of a request, in bytes.
pub(super) const BODY_MAX: usize = 1024 * 1024;

/// Answers a request with what `endpoint` gives, if the client takes that form.
pub(super) async fn answer(
    call: &Call,
    endpoint: impl Future<Output = Result<Response, ScimError>>,
) -> Response {
    let answered = match body::accepts(call.headers()) {
        Ok(_) => endpoint.await,
        Err(error) => Err(error),
    };
    answered.unwrap_or_else(ScimError::response)
}

/// Reads a filter on users (RFC 7644 §3.4.2.2).
///
/// # Errors
/// What is wrong with it, and where.
pub fn parse_filter(text: &str) -> Result<Filter, String> {
    filter::parse(&USER, text).map_err(|error| error.to_string())
}

/// A user as the interface shows it (interface 2.1), without groups; links begin
/// with `base_url`.
pub fn user_record(user: &User, base_url: &str) -> Value {
    Value::Object(record::user(
        user,
        &[],
        &record::RecordBase::first(base_url),
    ))
}
