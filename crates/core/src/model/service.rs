//! The Service record (interface 2.5): where requests go.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::route::Reference;

/// An upstream service, as stored and as shown by the Admin API.
///
/// Timeouts are in milliseconds, times in whole seconds since the epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Assigned identifier.
    pub id: Uuid,
    /// Unique name, if any.
    pub name: Option<String>,
    /// How the upstream is spoken to.
    pub protocol: Protocol,
    /// Host name or address of the upstream; the name of an upstream inside
    /// the process when `protocol` is `internal`.
    pub host: String,
    /// TCP port of the upstream.
    pub port: u16,
    /// Path put in front of what the route leaves of the request's path.
    pub path: Option<String>,
    /// Further tries after the first one failed.
    pub retries: u16,
    /// Limit on opening a connection.
    pub connect_timeout: u64,
    /// Limit between two successive writes.
    pub write_timeout: u64,
    /// Limit between two successive reads.
    pub read_timeout: u64,
    /// `false`: its routes are not in the router.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Whether the upstream's certificate is verified; `None`: it is.
    #[serde(default)]
    pub tls_verify: Option<bool>,
    /// The certificate shown to an upstream that asks for one.
    #[serde(default)]
    pub client_certificate: Option<Reference>,
    /// Most intermediate certificates between the upstream's and a trusted
    /// one, 0 to 64.
    #[serde(default)]
    pub tls_verify_depth: Option<u8>,
    /// The CA certificates that vouch for the upstream; `None`: the system's.
    #[serde(default)]
    pub ca_certificates: Option<Vec<Uuid>>,
    /// The header that connections to the upstream begin with; `None`: none, or what
    /// the upstream says that `host` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<ProxyProtocol>,
    /// The Unix socket on which the upstream listens, in the place of host and port;
    /// only files name one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// Labels for filtering lists.
    #[serde(default)]
    pub tags: Option<Vec<String>>,
    /// Creation time.
    pub created_at: i64,
    /// Last change.
    pub updated_at: i64,
}

/// The scheme towards an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS, verified with SNI.
    Https,
    /// gRPC over plain HTTP/2.
    Grpc,
    /// gRPC over HTTP/2 over TLS.
    Grpcs,
    /// A router inside this process, named by `host`.
    Internal,
}

/// A version of the PROXY protocol, which says at the beginning of a connection whose
/// it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyProtocol {
    /// A line of text.
    V1,
    /// The binary form.
    V2,
}

fn yes() -> bool {
    true
}
