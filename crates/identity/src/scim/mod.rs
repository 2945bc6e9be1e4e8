//! Users and groups over HTTP: SCIM 2.0 (RFC 7643, RFC 7644), below `/v1` in the
//! manner of the interface and below `/scim/v2` as the standard has it.
//!
//! A request goes through [`answer`]; `access` decides what its token may do,
//! `list_query` reads what it wants to see, `change` and `patch` make new records of
//! old ones.

mod access;

mod body;
mod bulk;
mod change;
mod discovery;
mod filter;
mod groups;
mod list_query;
mod me;
mod members;
mod patch;
mod projection;
mod record;
mod reply;
mod search;
mod users;

#[cfg(test)]
mod plans;
#[cfg(test)]
mod tests;

use axum::response::Response;
use serde_json::Value;

use super::error::ScimError;
use super::{Call, Endpoint};
use doorward_core::model::query::Filter;
use doorward_core::model::user::User;
use doorward_core::model::user::schema::USER;

pub(super) use access::tell_who_reads;
pub(super) use record::STANDARD;

/// Longest body of a request, in bytes.
pub(super) const BODY_MAX: usize = 1024 * 1024;

/// Answers a request to one of SCIM's endpoints.
pub(super) async fn answer(call: &Call, endpoint: Endpoint) -> Response {
    let answered = match body::accepts(call.headers()) {
        Ok(_) => endpoint_of(call, endpoint).await,
        Err(error) => Err(error),
    };
    answered.unwrap_or_else(ScimError::response)
}

async fn endpoint_of(call: &Call, endpoint: Endpoint) -> Result<Response, ScimError> {
    match endpoint {
        Endpoint::Users => users::collection(call).await,
        Endpoint::UserSearch => users::search(call).await,
        Endpoint::User => users::one(call, call.last_segment()).await,
        Endpoint::Groups => groups::collection(call).await,
        Endpoint::GroupSearch => groups::search(call).await,
        Endpoint::Group => groups::one(call, call.last_segment()).await,
        Endpoint::Search => search::post(call).await,
        Endpoint::Me => me::answer(call).await,
        Endpoint::Bulk => bulk::post(call).await,
        other => discovery::answer(call, other),
    }
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
