//! The `prometheus` plugin: requests are counted at `/metrics` under the names of the
//! imitated gateway.

#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use pingora::http::RequestHeader;
use serde_json::{Map, Value};

use crate::logging::OBSERVES;
use doorward_core::model::schema::Schema;
use doorward_net::http::session::Session;
use doorward_net::telemetry::Metrics;
use doorward_net::telemetry::kong_metrics::{LatencySample, Sample};
use doorward_net::telemetry::metrics::InFlight;
use doorward_plugin_api::filter::{Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::record::RequestRecord;
use doorward_plugin_api::{ConfigError, Kind, Parts, config};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "prometheus",
    priority: 13,
    of_consumers: true,
    schema,
    codes: Vec::new,
    build,
};

config! {
    /// The fields of `config`.
    struct Config {
        /// Whether the consumer is told with requests and bytes.
        #[field(default(false))]
        per_consumer: bool,
        /// Whether requests are counted by their status.
        #[field(default(false))]
        status_code_metrics: bool,
        /// Has no effect: there are no plugins for models.
        #[field(default(false))]
        ai_metrics: bool,
        /// Whether it is counted how long requests took.
        #[field(default(false))]
        latency_metrics: bool,
        /// Whether bytes of requests and answers are counted.
        #[field(default(false))]
        bandwidth_metrics: bool,
        /// Whether the health of upstreams' targets is shown.
        #[field(default(false))]
        upstream_health_metrics: bool,
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(Config::fields()));
    &SCHEMA
}

/// A running filter.
struct Prometheus {
    config: Config,
    metrics: Arc<Metrics>,
    /// Has the health of targets shown while the filter is there.
    _upstream_health: Option<InFlight>,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Config::read(config)?;
    let health = config.upstream_health_metrics;
    Ok(Arc::new(Prometheus {
        config,
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
        let config = &self.config;
        config.status_code_metrics || config.latency_metrics || config.bandwidth_metrics
    }

    /// What no route took is not counted.
    fn on_end(&self, record: &RequestRecord<'_>) {
        let Some(route) = record.route else { return };
        let service = record.service;
        let mut id = [0; 36];
        let consumer = record.consumer().filter(|_| self.config.per_consumer);
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
        if self.config.status_code_metrics {
            kong.count_status(&sample);
        }
        if self.config.bandwidth_metrics {
            let bytes = [record.request.size(), record.response.size()];
            kong.count_bytes(&sample, bytes);
        }
        if self.config.latency_metrics {
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
        self.config
            .ai_metrics
            .then(|| warning.to_owned())
            .into_iter()
            .collect()
    }
}
