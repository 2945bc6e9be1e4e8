//! Where a request goes, and as what.

use std::net::IpAddr;

use http::{HeaderValue, Version, header};
use pingora::http::RequestHeader;

use super::Witness;
use super::answer::{Destination, Explanation, Refusal, Target};
use super::origin;
use crate::balance::Balancer;
use crate::entities::Entities;
use crate::forward::{self, ForwardedRequest, ForwardingRules};
use crate::head::{self, HeadFields};
use crate::router::Match;
use crate::snapshot::{LiveRoute, Upstream};
use doorward_core::model::service::Service;
use doorward_net::http::head::UpstreamRequest;

/// What is known of a request when it is forwarded.
pub(super) struct DestinationContext<'a> {
    pub(super) found: Match,
    pub(super) path: &'a str,
    pub(super) peer: IpAddr,
    pub(super) client: IpAddr,
    pub(super) secure: bool,
}

impl Witness<'_> {
    /// Service, peers, and what they see.
    pub(super) fn tell_destination(
        &self,
        mut request: RequestHeader,
        route: &LiveRoute,
        context: &DestinationContext<'_>,
        explanation: &mut Explanation,
        entities: &Entities,
    ) {
        let Some((live, record)) = route
            .service
            .as_ref()
            .zip(route.place.service)
            .and_then(|(live, id)| Some((live, self.snapshot.entities().services.get(id)?)))
        else {
            explanation.refusal.get_or_insert(Refusal {
                status: 503,
                message: "no Service found with those values".to_owned(),
                reason: "the route has no service".to_owned(),
            });
            return;
        };
        let balancer = match &live.upstream {
            Upstream::Balanced(balancer, ..) => Some(balancer),
            _ => None,
        };
        let endpoint_set = balancer.map(|balancer| balancer.endpoint_set());
        let endpoints = endpoint_set
            .as_ref()
            .map(|endpoint_set| endpoint_set.endpoints());
        let first = endpoints.and_then(|all| {
            let healthy = all.iter().find(|endpoint| endpoint.is_healthy());
            healthy.or(all.first())
        });
        let (peer, port) = (forward::address(context.peer), HeaderValue::from(0_u16));
        let origin = ForwardedRequest {
            path: context.path,
            client_path: None,
            matched: context.found.matched,
            peer: &peer,
            direct: context.peer == context.client,
            client: context.client,
            trusted: crate::admit::is_trusted(context.peer, &self.listeners.trusted),
            secure: context.secure,
            version: Version::HTTP_11,
            port: &port,
            request_id: None,
            asked: None,
            host: first.map_or(&live.host, |endpoint| endpoint.authority(live.tls)),
        };
        head::strip_hop_by_hop(&mut request);
        let (fields, rules) = (
            HeadFields::of(&request.headers),
            ForwardingRules::of(route, live),
        );
        let mut prepared = UpstreamRequest::new(&mut request);
        if forward::prepare(prepared.parts_mut(), fields, &rules, &origin).is_err() {
            return;
        }
        drop(prepared);
        let service = &record.value;
        let host = request.headers.get(header::HOST);
        let target = request.uri.path_and_query();
        explanation.upstream = Some(Destination {
            service: service.id,
            name: service.name.clone(),
            origin: origin::of(entities, record),
            protocol: protocol(service),
            address: format!("{}:{}", service.host, service.port),
            balancing: balancer.map(|balancer| balancing(balancer)),
            targets: endpoints
                .into_iter()
                .flatten()
                .map(|endpoint| Target {
                    target: endpoint.target().to_owned(),
                    address: endpoint.address().map(|address| address.to_string()),
                    weight: endpoint.share(),
                    healthy: endpoint.is_healthy(),
                })
                .collect(),
            path: target.map_or("/", |target| target.as_str()).to_owned(),
            host: host
                .map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned())
                .unwrap_or_default(),
            connect_timeout: service.connect_timeout,
            read_timeout: service.read_timeout,
            write_timeout: service.write_timeout,
            retries: live.retries,
        });
    }
}

fn protocol(service: &Service) -> String {
    match serde_json::to_value(service.protocol) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

fn balancing(balancer: &Balancer) -> String {
    let upstream = balancer.upstream();
    let word = |value: serde_json::Result<serde_json::Value>| match value {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    };
    let algorithm = word(serde_json::to_value(upstream.algorithm));
    match word(serde_json::to_value(upstream.hash_on)).as_str() {
        "none" | "" => algorithm,
        on => format!("{algorithm} on {on}"),
    }
}
