//! One file a grant type.

pub(super) mod client_credentials;
pub(super) mod password;
pub(super) mod refresh_token;
