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

use crate::delivery::{LEGACY, Limits, Queue};
use crate::logging::{OBSERVES, workspace};
use crate::settings::Settings;
use doorward_core::model::consumer::Consumer;
use doorward_core::model::service::Service;
use doorward_net::host;
use doorward_net::http::session::Session;
use doorward_plugin_api::filter::{Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::record::RequestRecord;
use doorward_plugin_api::{ConfigError, Kind, Parts};

use config::{Config, ConsumerName, Metric, ServiceName, WorkspaceName};
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
    let settings = Settings(config);
    let config = Config::read(settings);
    let node = node();
    let mut prefix = config.prefix.to_string();
    if config.hostname_in_prefix && config.tags.is_none() {
        prefix = format!("{prefix}.node.{node}");
    }
    let limits = Limits::read(settings, &LEGACY);
    let queue = Queue::new(KIND.name, parts, limits, PacketSender::of(settings));
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
fn plain(name: &str, record: &RequestRecord<'_>) -> Option<(&'static str, u64)> {
    let millis = crate::logging::millis;
    match name {
        "request_count" => Some(("request.count", 1)),
        "request_size" => Some(("request.size", record.request.size())),
        "response_size" => Some(("response.size", record.response.size())),
        "latency" => Some(("latency", millis(record.latencies.request))),
        "upstream_latency" => Some(("upstream_latency", millis(record.latencies.upstream?))),
        "kong_latency" => Some(("kong_latency", millis(record.latencies.gateway))),
        _ => None,
    }
}

impl Statsd {
    /// The lines of a request.
    fn lines(&self, record: &RequestRecord<'_>) -> Vec<String> {
        let metrics = self.config.metrics.iter();
        metrics
            .filter_map(|metric| match self.config.tags {
                Some(style) => {
                    let (name, value) = plain(&metric.name, record)?;
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
            kind: metric.kind,
            rate: metric.rate,
        }
    }

    /// The line of a metric whose name says what it is about.
    fn named(&self, metric: &Metric, record: &RequestRecord<'_>) -> Option<String> {
        let by = metric.service.unwrap_or(self.config.service);
        let scope = match record.service {
            None => "global.unmatched".to_owned(),
            Some(service) => {
                let name = service_name(by, service).unwrap_or(Cow::Borrowed("unnamed"));
                format!("service.{}", clean(&name.replace('.', "_")))
            }
        };
        if let Some((name, value)) = plain(&metric.name, record) {
            let name = format!("{scope}.{name}");
            return Some(self.line(&name, &value.to_string(), metric).text());
        }
        let status = record.response.status;
        let by = metric.consumer.unwrap_or(self.config.consumer);
        let user = || {
            let name = consumer_name(by, record.consumer()?)?;
            Some(clean(&name).into_owned())
        };
        let (name, value) = match &*metric.name {
            "status_count" => (format!("{scope}.status.{status}"), "1".to_owned()),
            "unique_users" => (format!("{scope}.user.uniques"), user()?),
            "request_per_user" => (
                format!("{scope}.user.{}.request.count", user()?),
                "1".to_owned(),
            ),
            "status_count_per_user" => (
                format!("{scope}.user.{}.status.{status}", user()?),
                "1".to_owned(),
            ),
            "status_count_per_workspace" => {
                let by = metric.workspace.unwrap_or(self.config.workspace);
                let workspace = workspace_name(by);
                (
                    format!("{scope}.workspace.{workspace}.status.{status}"),
                    "1".to_owned(),
                )
            }
            "status_count_per_user_per_route" => {
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
        let by = metric.service.unwrap_or(self.config.service);
        let mut tags = Tags::default();
        tags.put("service", &service_name(by, record.service?)?);
        if let Some(route) = record.route {
            match &route.name {
                Some(name) => tags.put("route", name),
                None => tags.put("route", &route.id.to_string()),
            }
        }
        let by = metric.workspace.unwrap_or(self.config.workspace);
        tags.put("workspace", &workspace_name(by));
        let by = metric.consumer.unwrap_or(self.config.consumer);
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
            .any(|one| &*one.name == "shdict_usage");
        let warning = "metrics: shdict_usage has no effect, since there are no such dictionaries";
        (idle && self.config.chosen)
            .then(|| warning.to_owned())
            .into_iter()
            .collect()
    }
}
