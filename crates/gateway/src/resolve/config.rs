//! The section `proxy.dns` of the configuration file.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Deserializer};

/// How the names of upstreams become addresses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DnsConfig {
    /// Name servers, as `ADDRESS` or `ADDRESS:PORT`; empty: those of
    /// `resolv_conf`.
    #[serde(deserialize_with = "servers")]
    pub nameservers: Vec<SocketAddr>,
    /// Names servers, search list and options of the system. Read again when it
    /// changes.
    pub resolv_conf: PathBuf,
    /// Addresses that need no server. Read again when it changes.
    pub hosts_file: PathBuf,
    /// The records that are asked for. Where `SRV` comes before the others, a
    /// name that has such records is used with their ports and weights; where
    /// it comes last, only a name without addresses is.
    pub order: Vec<RecordKind>,
    /// Seconds for which every answer is used, whatever its records say.
    pub valid_ttl: Option<u32>,
    /// Seconds for which an expired answer is used while no server answers.
    pub stale_ttl: u32,
    /// Most seconds for which a name stays unknown before it is asked for again.
    pub not_found_ttl: u32,
    /// Seconds after a failure before a name is asked for again.
    pub error_ttl: u32,
}

impl Default for DnsConfig {
    fn default() -> Self {
        Self {
            nameservers: Vec::new(),
            resolv_conf: "/etc/resolv.conf".into(),
            hosts_file: "/etc/hosts".into(),
            order: vec![RecordKind::Srv, RecordKind::A, RecordKind::Aaaa],
            valid_ttl: None,
            stale_ttl: 3600,
            not_found_ttl: 30,
            error_ttl: 1,
        }
    }
}

/// A kind of record that leads to addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum RecordKind {
    /// An IPv4 address.
    A,
    /// An IPv6 address.
    Aaaa,
    /// Hosts with ports, priorities and weights (RFC 2782).
    Srv,
}

fn servers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SocketAddr>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts
        .iter()
        .map(|text| {
            text.parse()
                .or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 53)))
                .map_err(|_| {
                    serde::de::Error::custom(format!("'{text}' is not ADDRESS or ADDRESS:PORT"))
                })
        })
        .collect()
}
