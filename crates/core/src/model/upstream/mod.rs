//! The Upstream record (gateway-admin-api §5): how requests are balanced over
//! targets. A service whose `host` is the name of an upstream uses it.

mod health;

use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

use super::route::Reference;
use super::service::ProxyProtocol;

pub use health::{
    ActiveCheck, ActiveHealthy, ActiveUnhealthy, CheckType, Healthchecks, PassiveCheck,
    PassiveHealthy, PassiveUnhealthy,
};

/// A group of targets and how requests are spread over them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Upstream {
    /// Assigned identifier.
    pub id: Uuid,
    /// Unique host name by which services name it.
    pub name: String,
    /// How a target is picked.
    #[serde(default, deserialize_with = "or_default")]
    pub algorithm: Algorithm,
    /// What consistent hashing hashes.
    #[serde(default, deserialize_with = "or_default")]
    pub hash_on: HashOn,
    /// What it hashes when a request lacks that.
    #[serde(default, deserialize_with = "or_default")]
    pub hash_fallback: HashOn,
    /// The header for `hash_on: header`.
    #[serde(default)]
    pub hash_on_header: Option<String>,
    /// The header for `hash_fallback: header`.
    #[serde(default)]
    pub hash_fallback_header: Option<String>,
    /// The cookie for `cookie`; set on responses to requests without it.
    #[serde(default)]
    pub hash_on_cookie: Option<String>,
    /// The path of that cookie; `None`: `/`.
    #[serde(default)]
    pub hash_on_cookie_path: Option<String>,
    /// The query argument for `hash_on: query_arg`.
    #[serde(default)]
    pub hash_on_query_arg: Option<String>,
    /// The query argument for `hash_fallback: query_arg`.
    #[serde(default)]
    pub hash_fallback_query_arg: Option<String>,
    /// The named group of the route's path for `hash_on: uri_capture`.
    #[serde(default)]
    pub hash_on_uri_capture: Option<String>,
    /// The named group of the route's path for `hash_fallback: uri_capture`.
    #[serde(default)]
    pub hash_fallback_uri_capture: Option<String>,
    /// Size of the hash ring, 10 to 65536.
    #[serde(default = "slots", deserialize_with = "slots_or_default")]
    pub slots: u32,
    /// How the targets' health is told.
    #[serde(default, deserialize_with = "health::without_nulls")]
    pub healthchecks: Healthchecks,
    /// Host header for the targets; `None`: the target's name.
    #[serde(default)]
    pub host_header: Option<String>,
    /// Whether the name in a target's SRV record goes into the Host header.
    #[serde(default, deserialize_with = "or_default")]
    pub use_srv_name: bool,
    /// The certificate shown to targets that ask for one, unless the service
    /// has one.
    #[serde(default)]
    pub client_certificate: Option<Reference>,
    /// Seconds over which a target that is new or healthy again grows to its
    /// full weight; 0: at once.
    #[serde(default, deserialize_with = "or_default")]
    pub slow_start: u32,
    /// When a target gets no more requests for a while.
    #[serde(default, deserialize_with = "health::without_nulls")]
    pub circuit_breaker: CircuitBreaker,
    /// The header that connections to the targets begin with, those of health checks
    /// too; `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Labels for filtering lists.
    #[serde(default)]
    pub tags: Option<Vec<String>>,
    /// Creation time, in seconds since the epoch.
    pub created_at: i64,
    /// Last change, in seconds since the epoch.
    #[serde(default)]
    pub updated_at: i64,
}

/// How a target is picked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// In turn, by weight.
    #[default]
    RoundRobin,
    /// The same target for the same hash.
    ConsistentHashing,
    /// The one with the fewest requests in flight for its weight.
    LeastConnections,
    /// The one that answers fastest.
    Latency,
}

/// What of a request is hashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HashOn {
    /// Nothing.
    #[default]
    None,
    /// The consumer's id.
    Consumer,
    /// The client's address.
    Ip,
    /// A header's value.
    Header,
    /// A cookie's value.
    Cookie,
    /// The path.
    Path,
    /// A query argument's value.
    QueryArg,
    /// What a named group of the route's path matched.
    UriCapture,
}

/// When a target gets no more requests for a while. Doorward's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CircuitBreaker {
    /// Failures in a row that open it; 0: never.
    pub failures: u32,
    /// Seconds until it lets requests try again.
    pub open_seconds: u32,
    /// Requests that may try at once before it closes.
    pub half_open_requests: u32,
    /// Most requests in flight at one target; 0: no limit.
    pub max_requests: u32,
}

impl Default for CircuitBreaker {
    fn default() -> Self {
        Self {
            failures: 0,
            open_seconds: 30,
            half_open_requests: 1,
            max_requests: 0,
        }
    }
}

fn slots() -> u32 {
    10_000
}

fn slots_or_default<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_else(slots))
}

/// A field that was cleared has its default.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
