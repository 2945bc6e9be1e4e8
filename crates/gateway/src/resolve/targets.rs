//! Names of an upstream's targets: whoever keeps the targets decides when to
//! look again, and keeps what was found as long as nothing newer is.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::lookup::Failure;
use super::{Endpoint, Resolver};
use crate::balance::member::{AddressRecord, NameError, Names, Question, Resolution};

/// Resolves the names of targets.
#[derive(Debug, Clone)]
pub struct TargetNames(pub Arc<Resolver>);

#[async_trait]
impl Names for TargetNames {
    async fn find(&self, question: &Question) -> Result<Resolution, NameError> {
        let resolver = &self.0;
        let metrics = &resolver.metrics;
        let (port, named) = (question.port, question.srv_name);
        let host = question.host.to_ascii_lowercase();
        let found = resolver.engine.lookup(&host, question.had_ports).await;
        let failure = match found {
            Ok(found) => {
                metrics.found.inc();
                let ttl = resolver.limits.valid.unwrap_or(found.ttl);
                // The worse priorities are for when nothing else is left.
                let best = found.endpoints.first().map_or(0, |e| e.priority);
                let endpoints = found.endpoints.iter().filter(|e| e.priority == best);
                return Ok(Resolution {
                    kind: kind(&found.endpoints),
                    records: endpoints.map(|e| record(e, port, named)).collect(),
                    ttl: ttl.max(Duration::from_secs(1)),
                });
            }
            Err(failure) => failure,
        };
        Err(NameError(match failure {
            Failure::NotFound(_) => {
                metrics.not_found.inc();
                "no such name, or no address".into()
            }
            Failure::Failed(reason) => {
                metrics.failed.inc();
                reason.into()
            }
        }))
    }
}

fn kind(endpoints: &[Endpoint]) -> &'static str {
    match endpoints.first() {
        Some(endpoint) if endpoint.port.is_some() => "SRV",
        Some(endpoint) if endpoint.ip.is_ipv6() => "AAAA",
        _ => "A",
    }
}

fn record(endpoint: &Endpoint, port: u16, named: bool) -> AddressRecord {
    AddressRecord {
        address: endpoint.address(port),
        weight: endpoint.weight,
        name: endpoint.name.as_deref().filter(|_| named).map(Box::from),
    }
}
