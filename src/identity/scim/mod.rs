//! Users over HTTP, in the manner of SCIM (RFC 7643, RFC 7644).

mod filter;
mod record;
pub(super) mod users;
