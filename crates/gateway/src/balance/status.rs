//! How an upstream fares, as the Admin API tells it.

use serde_json::{Value, json};
use uuid::Uuid;

use super::balancer::Balancer;
use super::endpoint::Endpoint;
use super::member::{Answer, Member};
use doorward_net::telemetry::targets::TargetNumbers;

/// The health of a target, as the imitated gateway names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Nothing checks it.
    Off,
    /// At least one of its addresses is healthy.
    Healthy,
    /// None is.
    Unhealthy,
    /// It has no address.
    DnsError,
}

impl Health {
    /// As it is shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Health::Off => "HEALTHCHECKS_OFF",
            Health::Healthy => "HEALTHY",
            Health::Unhealthy => "UNHEALTHY",
            Health::DnsError => "DNS_ERROR",
        }
    }

    fn metric(self) -> &'static str {
        match self {
            Health::Off => "healthchecks_off",
            Health::Healthy => "healthy",
            Health::Unhealthy => "unhealthy",
            Health::DnsError => "dns_error",
        }
    }
}

impl Balancer {
    /// The health of the target with this id, and what is known of it: its
    /// addresses, each with its own health.
    pub fn target_status(&self, id: Uuid) -> Option<(Health, Value)> {
        let member = self.members.iter().find(|member| member.id == id)?;
        let endpoint_set = self.endpoint_set();
        let own: Vec<&Endpoint> = endpoint_set
            .endpoints()
            .iter()
            .map(|endpoint| &**endpoint)
            .filter(|endpoint| *endpoint.target == *member.text)
            .collect();
        let shown = |health: &Endpoint| self.health(health);
        let health = if own.is_empty() || matches!(&*member.answer(), Answer::Failed(_)) {
            Health::DnsError
        } else if own
            .iter()
            .any(|endpoint| shown(endpoint) == Health::Healthy)
        {
            Health::Healthy
        } else if own
            .iter()
            .any(|endpoint| shown(endpoint) == Health::Unhealthy)
        {
            Health::Unhealthy
        } else {
            Health::Off
        };
        Some((health, self.about_member(member, &own)))
    }

    /// The health of the whole upstream, which is off without health checks;
    /// that of its balancer, and the weights that it follows from.
    pub fn status(&self) -> Value {
        let endpoint_set = self.endpoint_set();
        let [total, healthy] = shares(endpoint_set.endpoints().iter().map(|e| &**e));
        let enough =
            healthy > 0.0 && healthy * 100.0 >= self.upstream.healthchecks.threshold * total;
        let hosts: Vec<Value> = self
            .members
            .iter()
            .map(|member| {
                let endpoints = endpoint_set.endpoints().iter().map(|e| &**e);
                let own: Vec<_> = endpoints.filter(|e| *e.target == *member.text).collect();
                self.about_member(member, &own)
            })
            .collect();
        let balancer = if enough {
            Health::Healthy
        } else {
            Health::Unhealthy
        };
        let health = if self.group.checked {
            balancer
        } else {
            Health::Off
        };
        json!({
            "id": self.upstream.id,
            "health": health.as_str(),
            "balancer_health": balancer.as_str(),
            "details": {
                "healthy": enough,
                "weight": weights(total, healthy),
                "hosts": hosts,
            },
        })
    }

    /// What metrics tell of every endpoint, and of targets without address.
    pub fn numbers(&self, now_ns: u64) -> Vec<TargetNumbers> {
        let endpoint_set = self.endpoint_set();
        let has_breaker = self.upstream.circuit_breaker.failures > 0;
        let mut all: Vec<_> = endpoint_set
            .endpoints()
            .iter()
            .map(|endpoint| TargetNumbers {
                upstream: self.group.name.clone(),
                target: (*endpoint.target).into(),
                address: endpoint.address.map(|a| a.to_string()).unwrap_or_default(),
                health: self.health(endpoint).metric(),
                breaker: has_breaker.then(|| endpoint.stand(now_ns).as_str()),
                in_flight: endpoint.in_flight(),
                picks: endpoint.picks(),
                failures: endpoint.failures(),
            })
            .collect();
        for member in &self.members {
            if matches!(&*member.answer(), Answer::Failed(_)) {
                all.push(TargetNumbers {
                    upstream: self.group.name.clone(),
                    target: (*member.text).into(),
                    address: String::new(),
                    health: Health::DnsError.metric(),
                    breaker: None,
                    in_flight: 0,
                    picks: 0,
                    failures: [0; 3],
                });
            }
        }
        all
    }

    fn about_member(&self, member: &Member, own: &[&Endpoint]) -> Value {
        let [total, healthy] = shares(own.iter().copied());
        let dns = match &*member.answer() {
            // What is an address needs no look-up; the type that it would have.
            Answer::Fixed(address) if address.is_ipv4() => "A".to_owned(),
            Answer::Fixed(_) => "AAAA".to_owned(),
            Answer::Waiting => "unknown".to_owned(),
            Answer::Found { kind, .. } => (*kind).to_owned(),
            Answer::Failed(why) => why.to_string(),
        };
        let addresses: Vec<Value> = own.iter().map(|e| self.about_address(e)).collect();
        json!({
            "host": &*member.host,
            "port": member.port,
            "dns": dns,
            "nodeWeight": member.weight,
            "weight": weights(total, healthy),
            "addresses": addresses,
        })
    }

    fn about_address(&self, endpoint: &Endpoint) -> Value {
        let ip = match endpoint.address {
            Some(address) => address.ip().to_string(),
            None => endpoint.host.to_string(),
        };
        let mut about = json!({
            "ip": ip,
            "port": endpoint.port,
            "weight": number(endpoint.share),
            "health": self.health(endpoint).as_str(),
            "in_flight": endpoint.in_flight(),
        });
        if self.upstream.circuit_breaker.failures > 0 {
            let stand = endpoint.stand(doorward_core::clock::monotonic_ns());
            about["breaker"] = json!(stand.as_str());
        }
        about
    }

    fn health(&self, endpoint: &Endpoint) -> Health {
        match (endpoint.is_healthy(), self.group.checked) {
            // An operator took it out, with checks or without.
            (false, _) => Health::Unhealthy,
            (true, true) if endpoint.weight > 0 => Health::Healthy,
            (true, _) => Health::Off,
        }
    }

    /// Sets the health of a target's addresses, or of one of them (`ip:port`
    /// or `ip`), as an operator wants it; whether there was any.
    pub fn set_health(&self, id: Uuid, address: Option<&str>, healthy: bool, now_ns: u64) -> bool {
        let Some(member) = self.members.iter().find(|member| member.id == id) else {
            return false;
        };
        let endpoint_set = self.endpoint_set();
        let named = |endpoint: &Endpoint| {
            address.is_none_or(|wanted| {
                endpoint.address.is_some_and(|own| {
                    own.to_string() == wanted
                        || own.ip().to_string() == wanted.trim_matches(['[', ']'])
                })
            })
        };
        let mut found = false;
        for endpoint in endpoint_set.endpoints() {
            if *endpoint.target == *member.text && named(endpoint) {
                endpoint.force_health(healthy, now_ns);
                found = true;
            }
        }
        found
    }
}

/// All weight and the healthy part of it, in the units of targets.
fn shares<'a>(endpoints: impl Iterator<Item = &'a Endpoint>) -> [f64; 2] {
    endpoints.fold([0.0, 0.0], |[total, healthy], e| {
        let part = if e.is_healthy() { e.share } else { 0.0 };
        [total + e.share, healthy + part]
    })
}

fn weights(total: f64, healthy: f64) -> Value {
    json!({
        "total": number(total),
        "available": number(healthy),
        "unavailable": number(total - healthy),
    })
}

/// A whole number as such.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 {
        json!(value as u64)
    } else {
        json!(value)
    }
}
