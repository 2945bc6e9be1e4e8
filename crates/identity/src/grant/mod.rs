//! One file a grant type.

pub(super) mod authorization_code;
pub(super) mod client_credentials;
pub(super) mod device_code;
pub(super) mod jwt_bearer;
pub(super) mod password;
pub(super) mod refresh_token;
pub(super) mod token_exchange;
