//! A verified access token.

use serde_json::{Map, Value};

/// What is known of an access token once it has been verified.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessToken {
    /// The token as the client sent it.
    pub token: String,
    /// Its claims (or the introspection response).
    pub claims: Map<String, Value>,
    /// Names of the granted scopes.
    pub scopes: Vec<String>,
    /// Expiry in seconds since the epoch; `None`: the token carries none.
    pub expires_at: Option<i64>,
}

impl AccessToken {
    /// The `sub` claim.
    pub fn subject(&self) -> Option<&str> {
        self.claims.get("sub").and_then(Value::as_str)
    }
}
