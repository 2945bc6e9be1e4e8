//! The `prometheus` plugin: requests are counted at `/metrics` under the names of the
//! imitated gateway.

#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use pingora::http::RequestHeader;
use serde_json::{Map, Value};

use crate::logging::OBSERVES;
use crate::settings::Settings;
use doorward_core::model::schema::{Field, Schema, Type};
use doorward_net::http::session::Session;
use doorward_net::telemetry::Metrics;
use doorward_net::telemetry::kong_metrics::{LatencySample, Sample};
use doorward_net::telemetry::metrics::InFlight;
use doorward_plugin_api::filter::{Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::record::RequestRecord;
use doorward_plugin_api::{ConfigError, Kind, Parts};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "prometheus",
    priority: 13,
    of_consumers: true,
    schema,
    codes: Vec::new,
    build,
};

const FLAGS: &[&str] = &[
    "per_consumer",
    "status_code_metrics",
    "ai_metrics",
    "latency_metrics",
    "bandwidth_metrics",
    "upstream_health_metrics",
];

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let flag = |name: &&'static str| Field::new(name, Type::Boolean).default(false);
        Schema::new(FLAGS.iter().map(flag).collect())
    });
    &SCHEMA
}

/// A running filter.
struct Prometheus {
    per_consumer: bool,
    status: bool,
    latency: bool,
    bandwidth: bool,
    ai: bool,
    metrics: Arc<Metrics>,
    /// Has the health of targets shown while the filter is there.
    _upstream_health: Option<InFlight>,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Settings(config);
    let health = config.flag("upstream_health_metrics");
    Ok(Arc::new(Prometheus {
        per_consumer: config.flag("per_consumer"),
        status: config.flag("status_code_metrics"),
        latency: config.flag("latency_metrics"),
        bandwidth: config.flag("bandwidth_metrics"),
        ai: config.flag("ai_metrics"),
        _upstream_health: health.then(|| parts.metrics.kong.upstream_health.enter()),
        metrics: parts.metrics.clone(),
    }))
}

#[async_trait]
impl Filter for Prometheus {
    fn on_request(&self, _: &mut Session, _: &mut Exchange) -> Verdict {
        Verdict::Now(Flow::Continue)
    }

    async fn explain(&self, _: &RequestHeader, _: &mut Exchange) -> Option<FilterExplanation> {
        Some(FilterExplanation::passes(OBSERVES))
    }

    fn observes(&self) -> bool {
        self.status || self.latency || self.bandwidth
    }

    /// What no route took is not counted.
    fn on_end(&self, record: &RequestRecord<'_>) {
        let Some(route) = record.route else { return };
        let service = record.service;
        let mut id = [0; 36];
        let consumer = record.consumer().filter(|_| self.per_consumer);
        let sample = Sample {
            service: service.map_or("", |one| one.name.as_deref().unwrap_or(&one.host)),
            route: match &route.name {
                Some(name) => name,
                None => route.id.hyphenated().encode_lower(&mut id),
            },
            consumer: consumer
                .and_then(|one| one.username.as_deref())
                .unwrap_or(""),
            status: record.response.status,
            source: if record.upstream.answered {
                "service"
            } else {
                "kong"
            },
        };
        let kong = &self.metrics.kong;
        if self.status {
            kong.count_status(&sample);
        }
        if self.bandwidth {
            let bytes = [record.request.size(), record.response.size()];
            kong.count_bytes(&sample, bytes);
        }
        if self.latency {
            let latency = LatencySample {
                gateway: record.latencies.gateway,
                upstream: record.latencies.upstream,
                request: record.latencies.request,
            };
            kong.count_latency(&sample, latency);
        }
    }

    fn warnings(&self) -> Vec<String> {
        let warning = "ai_metrics: has no effect, since there are no plugins for models";
        self.ai.then(|| warning.to_owned()).into_iter().collect()
    }
}
