//! How the health of an upstream's targets is told.

use std::collections::BTreeMap;

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::model::number;

/// Active checks (probes) and passive ones (what requests met).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Healthchecks {
    /// Probes.
    pub active: ActiveCheck,
    /// Watching requests.
    pub passive: PassiveCheck,
    /// Percentage of the weight that must be available for the upstream to
    /// count as healthy, 0 to 100.
    #[serde(serialize_with = "number::plain")]
    pub threshold: f64,
}

/// How a probe speaks; of passive checks, what counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckType {
    /// A connection is enough.
    Tcp,
    /// A plain request.
    #[default]
    Http,
    /// A request over TLS.
    Https,
    /// The gRPC health protocol.
    Grpc,
    /// The same over TLS.
    Grpcs,
}

/// Probes of every target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ActiveCheck {
    /// How they speak.
    #[serde(rename = "type")]
    pub kind: CheckType,
    /// Seconds until a probe has failed.
    #[serde(serialize_with = "number::plain")]
    pub timeout: f64,
    /// Most targets probed at once.
    pub concurrency: u32,
    /// Path of the request.
    pub http_path: String,
    /// Server name of the TLS handshake; `None`: the target's.
    pub https_sni: Option<String>,
    /// Whether the target's certificate is verified.
    pub https_verify_certificate: bool,
    /// Further headers of the request.
    pub headers: Option<BTreeMap<String, Vec<String>>>,
    /// When a target is healthy again.
    pub healthy: ActiveHealthy,
    /// When it is not any more.
    pub unhealthy: ActiveUnhealthy,
}

/// Probes of unhealthy targets that turn them healthy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ActiveHealthy {
    /// Seconds between probes of healthy targets; 0: none.
    #[serde(serialize_with = "number::plain")]
    pub interval: f64,
    /// Statuses that are a success.
    pub http_statuses: Vec<u16>,
    /// Successes in a row that make a target healthy; 0: none do.
    pub successes: u8,
}

/// Probes that turn targets unhealthy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ActiveUnhealthy {
    /// Seconds between probes of unhealthy targets; 0: none.
    #[serde(serialize_with = "number::plain")]
    pub interval: f64,
    /// Statuses that are a failure.
    pub http_statuses: Vec<u16>,
    /// Failed connections that make a target unhealthy; 0: none do.
    pub tcp_failures: u8,
    /// Timeouts that do; 0: none.
    pub timeouts: u8,
    /// Failure statuses that do; 0: none.
    pub http_failures: u8,
}

/// What requests tell about the targets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PassiveCheck {
    /// What counts: with `tcp` only connections do.
    #[serde(rename = "type")]
    pub kind: CheckType,
    /// When a target is healthy again.
    pub healthy: PassiveHealthy,
    /// When it is not any more.
    pub unhealthy: PassiveUnhealthy,
}

/// Responses that turn a target healthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PassiveHealthy {
    /// Statuses that are a success.
    pub http_statuses: Vec<u16>,
    /// Successes in a row that make a target healthy; 0: none do.
    pub successes: u8,
}

/// Failures of requests that turn a target unhealthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PassiveUnhealthy {
    /// Statuses that are a failure.
    pub http_statuses: Vec<u16>,
    /// Failed connections that make a target unhealthy; 0: none do.
    pub tcp_failures: u8,
    /// Timeouts that do; 0: none.
    pub timeouts: u8,
    /// Failure statuses that do; 0: none.
    pub http_failures: u8,
}

impl Default for ActiveCheck {
    fn default() -> Self {
        Self {
            kind: CheckType::default(),
            timeout: 1.0,
            concurrency: 10,
            http_path: "/".to_owned(),
            https_sni: None,
            https_verify_certificate: true,
            headers: None,
            healthy: ActiveHealthy::default(),
            unhealthy: ActiveUnhealthy::default(),
        }
    }
}

impl Default for ActiveHealthy {
    fn default() -> Self {
        Self {
            interval: 0.0,
            http_statuses: vec![200, 302],
            successes: 0,
        }
    }
}

impl Default for ActiveUnhealthy {
    fn default() -> Self {
        Self {
            interval: 0.0,
            http_statuses: vec![429, 404, 500, 501, 502, 503, 504, 505],
            tcp_failures: 0,
            timeouts: 0,
            http_failures: 0,
        }
    }
}

impl Default for PassiveHealthy {
    fn default() -> Self {
        Self {
            http_statuses: vec![
                200, 201, 202, 203, 204, 205, 206, 207, 208, 226, 300, 301, 302, 303, 304, 305,
                306, 307, 308,
            ],
            successes: 0,
        }
    }
}

impl Default for PassiveUnhealthy {
    fn default() -> Self {
        Self {
            http_statuses: vec![429, 500, 503],
            tcp_failures: 0,
            timeouts: 0,
            http_failures: 0,
        }
    }
}

/// Fields that were cleared have their defaults, at any depth.
pub(super) fn without_nulls<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + DeserializeOwned,
{
    let mut value = Value::deserialize(deserializer)?;
    if value.is_null() {
        return Ok(T::default());
    }
    drop_nulls(&mut value);
    serde_json::from_value(value).map_err(D::Error::custom)
}

fn drop_nulls(value: &mut Value) {
    if let Value::Object(map) = value {
        map.retain(|_, value| !value.is_null());
        map.values_mut().for_each(drop_nulls);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Upstream;
    use super::*;

    #[test]
    fn cleared_fields_of_an_upstream_have_their_defaults() {
        let upstream: Upstream = serde_json::from_value(json!({
            "id": "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "name": "u", "slots": null,
            "algorithm": null, "circuit_breaker": {"failures": 3, "open_seconds": null},
            "healthchecks": {"active": {"type": "tcp", "timeout": null, "healthy": null}},
            "created_at": 1
        }))
        .expect("is an upstream");
        assert_eq!(upstream.slots, 10_000);
        assert_eq!(upstream.circuit_breaker.failures, 3);
        assert_eq!(upstream.circuit_breaker.open_seconds, 30);
        let active = ActiveCheck {
            kind: CheckType::Tcp,
            ..ActiveCheck::default()
        };
        assert_eq!(upstream.healthchecks.active, active);
        assert_eq!(upstream.healthchecks.passive, PassiveCheck::default());
    }
}
