//! The `statsd` and `datadog` plugins: numbers of each request as lines of StatsD.
//!
//! `config` has the schemas, `line` writes a line, `packets` sends lines over UDP or
//! TCP; each plugin says here and in `datadog` which lines a request makes.

mod config;
pub(crate) mod datadog;
mod line;
mod packets;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use pingora::http::RequestHeader;
use serde_json::{Map, Value};

use crate::delivery::Queue;
use crate::logging::{OBSERVES, workspace};
use doorward_core::model::consumer::Consumer;
use doorward_core::model::service::Service;
use doorward_net::host;
use doorward_net::http::session::Session;
use doorward_plugin_api::filter::{Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::record::RequestRecord;
use doorward_plugin_api::{ConfigError, Kind, Parts};

use config::{Config, ConsumerName, Metric, MetricName, ServiceName, WorkspaceName};
use line::{Line, Tags, clean};
use packets::PacketSender;

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "statsd",
    priority: 11,
    of_consumers: true,
    schema: config::schema,
    codes: Vec::new,
    build,
};

/// A running filter.
struct Statsd {
    config: Config,
    prefix: String,
    node: String,
    queue: Queue,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Config::read(config)?;
    let node = node();
    let mut prefix = config.prefix.as_deref().unwrap_or_default().to_owned();
    if config.hostname_in_prefix && config.tag_style.is_none() {
        prefix = format!("{prefix}.node.{node}");
    }
    let limits = config.queue.limits(config.older.older());
    let queue = Queue::new(KIND.name, parts, limits, PacketSender::new(&config));
    Ok(Arc::new(Statsd {
        config,
        prefix,
        node,
        queue,
    }))
}

/// The name of this machine, as names of metrics may have it.
fn node() -> String {
    host::name().replace('.', "_")
}

/// The name of a service.
fn service_name(by: ServiceName, service: &Service) -> Option<Cow<'_, str>> {
    let name = service.name.as_deref();
    match by {
        ServiceName::Id => Some(service.id.to_string().into()),
        ServiceName::Name => name.map(Cow::Borrowed),
        ServiceName::Host => Some(Cow::Borrowed(&service.host)),
        ServiceName::NameOrHost => Some(Cow::Borrowed(name.unwrap_or(&service.host))),
    }
}

/// The name of a consumer.
fn consumer_name(by: ConsumerName, consumer: &Consumer) -> Option<Cow<'_, str>> {
    match by {
        ConsumerName::Id => Some(consumer.id.to_string().into()),
        ConsumerName::CustomId => consumer.custom_id.as_deref().map(Cow::Borrowed),
        ConsumerName::Username => consumer.username.as_deref().map(Cow::Borrowed),
    }
}

fn workspace_name(by: WorkspaceName) -> String {
    match by {
        WorkspaceName::Id => workspace().to_string(),
        WorkspaceName::Name => "default".to_owned(),
    }
}

/// A number of a request that needs no further name: where it stands, and what it
/// is. `None`: it is unknown, or another kind of metric.
fn plain(name: MetricName, record: &RequestRecord<'_>) -> Option<(&'static str, u64)> {
    let millis = crate::logging::millis;
    match name {
        MetricName::RequestCount => Some(("request.count", 1)),
        MetricName::RequestSize => Some(("request.size", record.request.size())),
        MetricName::ResponseSize => Some(("response.size", record.response.size())),
        MetricName::Latency => Some(("latency", millis(record.latencies.request))),
        MetricName::UpstreamLatency => {
            Some(("upstream_latency", millis(record.latencies.upstream?)))
        }
        MetricName::KongLatency => Some(("kong_latency", millis(record.latencies.gateway))),
        _ => None,
    }
}

impl Statsd {
    /// What services are called in a metric.
    fn service_name(&self, metric: &Metric) -> ServiceName {
        let usual = self.config.service_identifier_default;
        metric.service_identifier.unwrap_or(usual)
    }

    /// What consumers are called in a metric.
    fn consumer_name(&self, metric: &Metric) -> ConsumerName {
        let usual = self.config.consumer_identifier_default;
        metric.consumer_identifier.unwrap_or(usual)
    }

    /// What the workspace is called in a metric.
    fn workspace_name(&self, metric: &Metric) -> WorkspaceName {
        let usual = self.config.workspace_identifier_default;
        metric.workspace_identifier.unwrap_or(usual)
    }

    /// The lines of a request.
    fn lines(&self, record: &RequestRecord<'_>) -> Vec<String> {
        let metrics = self.config.metrics.iter();
        metrics
            .filter_map(|metric| match self.config.tag_style {
                Some(style) => {
                    let (name, value) = plain(metric.name, record)?;
                    let tags = self.tags(metric, record)?;
                    Some(
                        self.line(name, &value.to_string(), metric)
                            .with(style, &tags),
                    )
                }
                None => self.named(metric, record),
            })
            .collect()
    }

    fn line<'a>(&'a self, name: &'a str, value: &'a str, metric: &'a Metric) -> Line<'a> {
        Line {
            prefix: &self.prefix,
            name,
            value,
            kind: metric.stat_type.mark(),
            rate: metric.sample_rate,
        }
    }

    /// The line of a metric whose name says what it is about.
    fn named(&self, metric: &Metric, record: &RequestRecord<'_>) -> Option<String> {
        let by = self.service_name(metric);
        let scope = match record.service {
            None => "global.unmatched".to_owned(),
            Some(service) => {
                let name = service_name(by, service).unwrap_or(Cow::Borrowed("unnamed"));
                format!("service.{}", clean(&name.replace('.', "_")))
            }
        };
        if let Some((name, value)) = plain(metric.name, record) {
            let name = format!("{scope}.{name}");
            return Some(self.line(&name, &value.to_string(), metric).text());
        }
        let status = record.response.status;
        let by = self.consumer_name(metric);
        let user = || {
            let name = consumer_name(by, record.consumer()?)?;
            Some(clean(&name).into_owned())
        };
        let (name, value) = match metric.name {
            MetricName::StatusCount => (format!("{scope}.status.{status}"), "1".to_owned()),
            MetricName::UniqueUsers => (format!("{scope}.user.uniques"), user()?),
            MetricName::RequestPerUser => (
                format!("{scope}.user.{}.request.count", user()?),
                "1".to_owned(),
            ),
            MetricName::StatusCountPerUser => (
                format!("{scope}.user.{}.status.{status}", user()?),
                "1".to_owned(),
            ),
            MetricName::StatusCountPerWorkspace => {
                let by = self.workspace_name(metric);
                let workspace = workspace_name(by);
                (
                    format!("{scope}.workspace.{workspace}.status.{status}"),
                    "1".to_owned(),
                )
            }
            MetricName::StatusCountPerUserPerRoute => {
                let route = record.route?.id;
                (
                    format!("route.{route}.user.{}.status.{status}", user()?),
                    "1".to_owned(),
                )
            }
            // There are no dictionaries of that kind here.
            _ => return None,
        };
        Some(self.line(&name, &value, metric).text())
    }

    /// What tags say of a request; without a service nothing is told.
    fn tags(&self, metric: &Metric, record: &RequestRecord<'_>) -> Option<Tags> {
        let by = self.service_name(metric);
        let mut tags = Tags::default();
        tags.put("service", &service_name(by, record.service?)?);
        if let Some(route) = record.route {
            match &route.name {
                Some(name) => tags.put("route", name),
                None => tags.put("route", &route.id.to_string()),
            }
        }
        let by = self.workspace_name(metric);
        tags.put("workspace", &workspace_name(by));
        let by = self.consumer_name(metric);
        let consumer = record.consumer().and_then(|one| consumer_name(by, one));
        if let Some(consumer) = consumer {
            tags.put("consumer", &consumer);
        }
        tags.put("node", &self.node);
        tags.put("status", &record.response.status.to_string());
        Some(tags)
    }
}

#[async_trait]
impl Filter for Statsd {
    fn on_request(&self, _: &mut Session, _: &mut Exchange) -> Verdict {
        Verdict::Now(Flow::Continue)
    }

    async fn explain(&self, _: &RequestHeader, _: &mut Exchange) -> Option<FilterExplanation> {
        Some(FilterExplanation::passes(OBSERVES))
    }

    fn observes(&self) -> bool {
        !self.config.metrics.is_empty()
    }

    fn on_end(&self, record: &RequestRecord<'_>) {
        if self.config.allows(record.response.status) {
            let lines = self.lines(record);
            if !lines.is_empty() {
                self.queue.push(lines.join("\n").into_bytes());
            }
        }
    }

    fn warnings(&self) -> Vec<String> {
        let idle = self
            .config
            .metrics
            .iter()
            .any(|one| one.name == MetricName::ShdictUsage);
        let warning = "metrics: shdict_usage has no effect, since there are no such dictionaries";
        (idle && self.config.chooses_metrics())
            .then(|| warning.to_owned())
            .into_iter()
            .collect()
    }
}
