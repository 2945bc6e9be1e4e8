//! Names as the system resolves them.

use std::time::Duration;

use async_trait::async_trait;

use super::member::{Found, NameError, Names, Resolution};

/// How long the system's answers are used: it does not tell.
const TTL: Duration = Duration::from_secs(30);

/// The system's resolver, which knows addresses only.
#[derive(Debug, Default)]
pub struct SystemNames;

#[async_trait]
impl Names for SystemNames {
    async fn find(&self, host: &str, port: u16, _: bool) -> Result<Resolution, NameError> {
        let found = tokio::net::lookup_host((host, port)).await;
        let found = found.map_err(|error| NameError(error.to_string().into()))?;
        let mut records: Vec<Found> = found
            .map(|address| Found {
                address,
                weight: 1,
                name: None,
            })
            .collect();
        let has_v4 = records.iter().any(|found| found.address.is_ipv4());
        if has_v4 {
            // Hosts with both are commonly reachable over these only.
            records.retain(|found| found.address.is_ipv4());
        }
        Ok(Resolution {
            records,
            kind: if has_v4 { "A" } else { "AAAA" },
            ttl: TTL,
        })
    }
}
