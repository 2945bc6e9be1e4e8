//! Headers for the upstream and the client: the token and its claims, the tokens
//! next to it, and headers of the token endpoint that are passed on.

pub(crate) mod replay;
pub(crate) mod token_set;
pub(crate) mod upstream_headers;
