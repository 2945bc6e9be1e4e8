//! Resources that filters protect, and where clients find out about them.

use bytes::Bytes;

/// A resource that a filter protects (RFC 9728). The gateway serves its metadata at
/// the well-known address of its host.
#[derive(Debug, Clone)]
pub struct ProtectedResource {
    /// The host of its identifier, in lower case.
    pub host: String,
    /// Its port; `None`: that of its scheme.
    pub port: Option<u16>,
    /// Its path; empty: the host as a whole.
    pub path: String,
    /// Its origin: scheme, host and port.
    pub origin: String,
    /// Its metadata, as JSON.
    pub metadata: Bytes,
}

impl ProtectedResource {
    /// Where metadata are on the resource's host, before its path (RFC 9728 section 3.1).
    pub const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

    /// Whether clients that speak to this host and port may mean the resource.
    #[must_use]
    pub fn is_at(&self, host: &str, port: Option<u16>) -> bool {
        self.port == Self::port(port) && self.host.eq_ignore_ascii_case(host)
    }

    /// A port that a client names, as resources have it. A default port may be named or
    /// not: which one is, only the scheme tells, and a proxy in front may have that.
    #[must_use]
    pub fn port(named: Option<u16>) -> Option<u16> {
        named.filter(|port| !matches!(port, 80 | 443))
    }
}
