//! Certificates from an authority by ACME (RFC 8555), as the store keeps them.

use serde::{Deserialize, Serialize};

use super::secret::Secret;

/// The account at one authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAcmeAccount {
    /// The address of the authority's directory.
    pub directory: String,
    /// Address and private key of the account, sealed where there is a master key.
    pub credentials: Secret,
    /// The contacts that the authority was told, as URIs.
    pub contacts: Vec<String>,
    /// When it was made, in milliseconds since the epoch.
    pub created_ms: i64,
}

/// A certificate, and what became of the orders for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAcmeCertificate {
    /// Its names in order, with a blank in between.
    pub names: String,
    /// The directory of the authority that was asked last.
    pub directory: String,
    /// The last good certificate; absent before the first one.
    pub issued: Option<AcmeIssued>,
    /// What the next order waits for.
    pub state: AcmeState,
    /// The last change, in milliseconds since the epoch.
    pub updated_ms: i64,
}

/// An issued certificate with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeIssued {
    /// The chain in PEM form, the leaf first.
    pub chain: String,
    /// The private key: PKCS#8 in base64, sealed where there is a master key.
    pub key: Secret,
}

/// What the next order for a certificate waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AcmeState {
    /// The directory of the authority that issued the certificate.
    pub issuer: Option<String>,
    /// When it is to be renewed, in milliseconds since the epoch.
    pub renew_ms: Option<i64>,
    /// When the authority is to be asked again for its renewal window.
    pub window_ms: Option<i64>,
    /// Orders that failed since the last good one.
    pub failures: u32,
    /// No order before this time, after a failure.
    pub retry_ms: i64,
    /// Fingerprint of the configuration that failed.
    pub section: Option<String>,
    /// Why the last order failed.
    pub problem: Option<AcmeProblem>,
}

/// Why an order failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcmeProblem {
    /// The type of RFC 8555 §6.7, such as `rateLimited`; absent: not the authority's word.
    pub kind: Option<String>,
    /// What was being done.
    pub step: String,
    /// What is wrong.
    pub detail: String,
    /// When, in milliseconds since the epoch.
    pub at_ms: i64,
}

/// The answer to a challenge that waits for the authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAcmeChallenge {
    /// The token of HTTP-01, or the name of TLS-ALPN-01.
    pub key: String,
    /// The key authorization.
    pub answer: String,
    /// When nobody asks for it any more, in milliseconds since the epoch.
    pub expires_ms: i64,
}
