//! The `datadog` plugin: StatsD with tags, for Datadog's agent.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use pingora::http::RequestHeader;
use serde_json::{Map, Value, json};

use super::config::{ConsumerName, MetricName, StatType, check_rate};
use super::line::{Line, TagStyle, Tags};
use super::packets::PacketSender;
use super::{consumer_name, plain};
use crate::delivery::{OlderQueueConfig, Queue, QueueConfig, queue_type};
use crate::logging::OBSERVES;
use crate::settings::wrong;
use doorward_core::model::schema::{Schema, Type, Violations};
use doorward_net::http::session::Session;
use doorward_plugin_api::config::read_for_check;
use doorward_plugin_api::filter::{Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::record::RequestRecord;
use doorward_plugin_api::{ConfigError, Kind, Parts, config};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "datadog",
    priority: 10,
    of_consumers: true,
    schema,
    codes: Vec::new,
    build,
};

const NAMES: &[&str] = &[
    "kong_latency",
    "latency",
    "request_count",
    "request_size",
    "response_size",
    "upstream_latency",
];
/// The metrics by default, of which the first is a counter.
const DEFAULTS: &[&str] = &[
    "request_count",
    "latency",
    "request_size",
    "response_size",
    "upstream_latency",
    "kong_latency",
];

config! {
    /// A metric that is sent.
    struct TagMetric {
        /// What the metric tells.
        #[field(kind(Type::word(NAMES)), required)]
        name: MetricName,
        /// How the receiver takes its numbers together.
        #[field(required)]
        stat_type: StatType,
        /// Further tags, such as app:kong.
        #[field(kind(Type::array(Type::checked(check_tag))))]
        tags: Vec<Box<str>>,
        /// The rate that the receiver is told. Counters and gauges need one.
        #[field(kind(Type::Between(0, 1)))]
        sample_rate: Option<f64>,
        /// What consumers are called. Null: custom_id.
        consumer_identifier: Option<ConsumerName>,
    }
}

config! {
    /// The fields of `config`.
    struct Config {
        /// The host of the agent. Null: that of the environment's KONG_DATADOG_AGENT_HOST.
        #[field(default("localhost"))]
        host: Option<String>,
        /// Its port. Null: that of the environment's KONG_DATADOG_AGENT_PORT.
        #[field(default(8125))]
        port: Option<u16>,
        /// What the names of metrics begin with.
        #[field(default("kong"))]
        prefix: Option<Box<str>>,
        /// The name of the tag that tells the service.
        #[field(default("name"))]
        service_name_tag: Option<Box<str>>,
        /// The name of the tag that tells the status.
        #[field(default("status"))]
        status_tag: Option<Box<str>>,
        /// The name of the tag that tells the consumer.
        #[field(default("consumer"))]
        consumer_tag: Option<Box<str>>,
        older as ..: OlderQueueConfig,
        /// What waits, for how long, and how often it is sent again.
        #[field(kind(queue_type(1)), required)]
        queue: QueueConfig,
        /// The metrics that are sent.
        #[field(kind(Type::array(metric_type())), default(default_metrics()), required)]
        metrics: Vec<TagMetric>,
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(Config::fields()));
    &SCHEMA
}

fn metric_type() -> Type {
    Type::Record(Schema::new(TagMetric::fields()).check(check_metric))
}

fn check_metric(metric: &Map<String, Value>, violations: &mut Violations) {
    if let Some(metric) = read_for_check::<TagMetric>(metric) {
        check_rate(metric.stat_type, metric.sample_rate, violations);
    }
}

fn check_tag(text: &str) -> Result<(), String> {
    if text.is_empty() || text.ends_with(':') {
        return Err(format!("invalid value: {text}"));
    }
    Ok(())
}

fn default_metrics() -> Value {
    let metrics = DEFAULTS.iter().map(|name| {
        let counts = *name == "request_count";
        json!({
            "name": name,
            "stat_type": if counts { "counter" } else { "timer" },
            "tags": ["app:kong"],
            "sample_rate": counts.then_some(1),
            "consumer_identifier": "custom_id",
        })
    });
    metrics.collect()
}

/// A running filter.
struct Datadog {
    prefix: Box<str>,
    /// Of service, status and consumer.
    tags: [Box<str>; 3],
    metrics: Vec<TagMetric>,
    queue: Queue,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Config::read(config)?;
    // Who leaves them out means the agent that the environment names.
    let environment = |name| std::env::var(name).ok();
    let host = config.host;
    let host = host.or_else(|| environment("KONG_DATADOG_AGENT_HOST"));
    let port = match config.port {
        Some(port) => port,
        None => match environment("KONG_DATADOG_AGENT_PORT") {
            Some(port) => port.parse().map_err(|_| wrong("port", "expected a port"))?,
            None => 8125,
        },
    };
    let sender = PacketSender::udp(host.as_deref().unwrap_or("localhost"), port);
    let limits = config.queue.limits(config.older.older());
    let tags = [
        config.service_name_tag,
        config.status_tag,
        config.consumer_tag,
    ];
    Ok(Arc::new(Datadog {
        prefix: config.prefix.unwrap_or_default(),
        tags: tags.map(Option::unwrap_or_default),
        metrics: config.metrics,
        queue: Queue::new(KIND.name, parts, limits, sender),
    }))
}

impl Datadog {
    fn line(&self, metric: &TagMetric, record: &RequestRecord<'_>) -> Option<String> {
        let (name, value) = plain(metric.name, record)?;
        let service = record.service?;
        let service = service.name.as_deref().unwrap_or(&service.host);
        let [of_service, of_status, of_consumer] = &self.tags;
        let mut tags = Tags::default();
        tags.put(of_service, &service.replace('.', "_"));
        tags.put(of_status, &record.response.status.to_string());
        let by = metric.consumer_identifier.unwrap_or(ConsumerName::CustomId);
        let consumer = record.consumer().and_then(|one| consumer_name(by, one));
        if let Some(consumer) = consumer {
            let consumer = match by {
                ConsumerName::Id => Cow::Owned(consumer.replace('-', "_")),
                _ => consumer,
            };
            tags.put(of_consumer, &consumer);
        }
        metric.tags.iter().for_each(|tag| tags.put_whole(tag));
        let line = Line {
            prefix: &self.prefix,
            name,
            value: &value.to_string(),
            kind: metric.stat_type.mark(),
            rate: metric.sample_rate,
        };
        Some(line.with(TagStyle::Dogstatsd, &tags))
    }
}

#[async_trait]
impl Filter for Datadog {
    fn on_request(&self, _: &mut Session, _: &mut Exchange) -> Verdict {
        Verdict::Now(Flow::Continue)
    }

    async fn explain(&self, _: &RequestHeader, _: &mut Exchange) -> Option<FilterExplanation> {
        Some(FilterExplanation::passes(OBSERVES))
    }

    fn observes(&self) -> bool {
        !self.metrics.is_empty()
    }

    /// Requests without a service are not told of.
    fn on_end(&self, record: &RequestRecord<'_>) {
        let lines = self.metrics.iter().filter_map(|one| self.line(one, record));
        let lines: Vec<_> = lines.collect();
        if !lines.is_empty() {
            self.queue.push(lines.join("\n").into_bytes());
        }
    }
}
