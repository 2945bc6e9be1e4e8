//! What a device asked for, and what its user said to it (RFC 8628).

use super::authorization::Challenge;
use super::grant::{Grant, TokenHash};
use serde::{Deserialize, Serialize};

/// What a device asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRequest {
    /// The scopes.
    pub scopes: Vec<String>,
    /// What its access tokens shall be for; none: for the client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// The challenge whose verifier must come with the device code, if the
    /// request had one (RFC 7636).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub challenge: Option<Challenge>,
}

/// What a user said to a device's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet.
    Pending,
    /// No.
    Denied,
    /// Yes: this is what it gets.
    Approved(Box<Grant>),
}

/// A device's request as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDevice {
    /// Hash of the device code.
    pub hash: TokenHash,
    /// Hash of the code that its user enters.
    pub user_code: TokenHash,
    /// Path of the realm.
    pub realm: String,
    /// The client that the device runs.
    pub client_id: String,
    /// What it asked for.
    pub request: DeviceRequest,
    /// What its user said.
    pub verdict: Verdict,
    /// When both codes die, in milliseconds since the epoch.
    pub expires_ms: i64,
}

/// How long a device's request is remembered after it expired, in
/// milliseconds, so that the device can be told: ten minutes.
pub const DEVICE_KEPT_MS: i64 = 600 * 1000;
