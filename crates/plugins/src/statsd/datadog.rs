//! The `datadog` plugin: StatsD with tags, for Datadog's agent.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use pingora::http::RequestHeader;
use serde_json::{Map, Value, json};

use super::config::{CONSUMERS, ConsumerName, Metric, check_rate};
use super::line::{Line, TagStyle, Tags};
use super::packets::PacketSender;
use super::{consumer_name, plain};
use crate::delivery::{LEGACY, Limits, Queue, legacy_fields, queue_field};
use crate::logging::OBSERVES;
use crate::settings::{Settings, wrong};
use doorward_core::model::schema::{Field, Schema, Type, Violations};
use doorward_net::http::session::Session;
use doorward_plugin_api::filter::{Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::record::RequestRecord;
use doorward_plugin_api::{ConfigError, Kind, Parts};

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
const STAT_TYPES: &[&str] = &[
    "counter",
    "gauge",
    "histogram",
    "meter",
    "set",
    "timer",
    "distribution",
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

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let tag = |name, usual: &str| Field::new(name, Type::some_text()).default(usual);
        let mut fields = vec![
            Field::new("host", Type::some_text()).default("localhost"),
            Field::new("port", Type::Integer(0, 65_535)).default(8125),
            tag("prefix", "kong"),
            tag("service_name_tag", "name"),
            tag("status_tag", "status"),
            tag("consumer_tag", "consumer"),
        ];
        fields.extend(legacy_fields());
        fields.push(queue_field(1));
        let metrics = Field::new("metrics", Type::array(Type::Record(metric())));
        fields.push(metrics.default(default_metrics()).required());
        Schema::new(fields)
    });
    &SCHEMA
}

fn metric() -> Schema {
    Schema::new(vec![
        Field::new("name", Type::word(NAMES)).required(),
        Field::new("stat_type", Type::word(STAT_TYPES)).required(),
        Field::new("tags", Type::array(Type::checked(check_tag))),
        Field::new("sample_rate", Type::Between(0, 1)),
        Field::new("consumer_identifier", Type::word(CONSUMERS)),
    ])
    .check(|metric: &Map<String, Value>, violations: &mut Violations| {
        check_rate(Settings(metric), violations);
    })
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
    metrics: Vec<(Metric, Vec<Box<str>>)>,
    queue: Queue,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Settings(config);
    let text = |field| config.text(field).unwrap_or_default().into();
    // Who leaves them out means the agent that the environment names.
    let environment = |name| std::env::var(name).ok();
    let host = config.text("host").map(str::to_owned);
    let host = host.or_else(|| environment("KONG_DATADOG_AGENT_HOST"));
    let port = config.integer("port").map(|port| port.to_string());
    let port = port.or_else(|| environment("KONG_DATADOG_AGENT_PORT"));
    let port = port.as_deref().unwrap_or("8125").parse::<u16>();
    let port = port.map_err(|_| wrong("port", "expected a port"))?;
    let sender = PacketSender::udp(host.as_deref().unwrap_or("localhost"), port);
    let list = config.get("metrics").and_then(Value::as_array);
    let records = list.into_iter().flatten().filter_map(Value::as_object);
    let metrics = records.map(|record| {
        let record = Settings(record);
        let tags = record.texts("tags").map(Box::from).collect();
        (Metric::read(record), tags)
    });
    Ok(Arc::new(Datadog {
        prefix: text("prefix"),
        tags: ["service_name_tag", "status_tag", "consumer_tag"].map(text),
        metrics: metrics.collect(),
        queue: Queue::new(KIND.name, parts, Limits::read(config, &LEGACY), sender),
    }))
}

impl Datadog {
    fn line(
        &self,
        (metric, own): &(Metric, Vec<Box<str>>),
        record: &RequestRecord<'_>,
    ) -> Option<String> {
        let (name, value) = plain(&metric.name, record)?;
        let service = record.service?;
        let service = service.name.as_deref().unwrap_or(&service.host);
        let [of_service, of_status, of_consumer] = &self.tags;
        let mut tags = Tags::default();
        tags.put(of_service, &service.replace('.', "_"));
        tags.put(of_status, &record.response.status.to_string());
        let by = metric.consumer.unwrap_or(ConsumerName::CustomId);
        let consumer = record.consumer().and_then(|one| consumer_name(by, one));
        if let Some(consumer) = consumer {
            let consumer = match by {
                ConsumerName::Id => Cow::Owned(consumer.replace('-', "_")),
                _ => consumer,
            };
            tags.put(of_consumer, &consumer);
        }
        own.iter().for_each(|tag| tags.put_whole(tag));
        let line = Line {
            prefix: &self.prefix,
            name,
            value: &value.to_string(),
            kind: metric.kind,
            rate: metric.rate,
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
