//! The `config` of `statsd`, and what it has in common with that of `datadog`.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::line::TagStyle;
use crate::delivery::{OlderQueueConfig, QueueConfig, queue_type};
use crate::settings::wrong;
use doorward_core::model::schema::{Schema, Type, Violations, failed_condition};
use doorward_plugin_api::config::{FieldValue, read_for_check};
use doorward_plugin_api::{ConfigError, config, words};

/// The metrics by default, with the kind of each; those of counters and gauges have
/// the rate 1.
const DEFAULTS: &[(&str, &str)] = &[
    ("request_count", "counter"),
    ("latency", "timer"),
    ("request_size", "counter"),
    ("status_count", "counter"),
    ("response_size", "counter"),
    ("unique_users", "set"),
    ("request_per_user", "counter"),
    ("upstream_latency", "timer"),
    ("kong_latency", "timer"),
    ("status_count_per_user", "counter"),
    ("status_count_per_workspace", "counter"),
    ("status_count_per_user_per_route", "counter"),
    ("shdict_usage", "gauge"),
];

words! {
    /// What a metric tells.
    pub(super) enum MetricName {
        /// The time until the upstream was asked.
        KongLatency = "kong_latency",
        /// The time of the request in all.
        Latency = "latency",
        /// That there was a request.
        RequestCount = "request_count",
        /// That there was one of this consumer.
        RequestPerUser = "request_per_user",
        /// Bytes of the request.
        RequestSize = "request_size",
        /// Bytes of the answer.
        ResponseSize = "response_size",
        /// That there was an answer of this status.
        StatusCount = "status_count",
        /// That there was one for this consumer.
        StatusCountPerUser = "status_count_per_user",
        /// The consumer.
        UniqueUsers = "unique_users",
        /// The time until the head of the upstream's answer.
        UpstreamLatency = "upstream_latency",
        /// That there was an answer of this status in this workspace.
        StatusCountPerWorkspace = "status_count_per_workspace",
        /// That there was one for this consumer on this route.
        StatusCountPerUserPerRoute = "status_count_per_user_per_route",
        /// Nothing: there are no dictionaries of that kind here.
        ShdictUsage = "shdict_usage",
    }
}

words! {
    /// How the receiver takes numbers together.
    pub(super) enum StatType {
        /// It adds them.
        Counter = "counter",
        /// The last one counts.
        Gauge = "gauge",
        /// It counts how many are in each range.
        Histogram = "histogram",
        /// It reckons a rate.
        Meter = "meter",
        /// It counts different ones.
        Set = "set",
        /// It reckons with milliseconds.
        Timer = "timer",
        /// As a histogram, of all senders together. `statsd` does not have it.
        Distribution = "distribution",
    }
}

impl StatType {
    /// Those of `statsd`.
    const OF_STATSD: &[&str] = &["counter", "gauge", "histogram", "meter", "set", "timer"];

    /// As lines write it.
    pub(super) fn mark(self) -> &'static str {
        match self {
            Self::Counter => "c",
            Self::Gauge => "g",
            Self::Histogram => "h",
            Self::Meter => "m",
            Self::Set => "s",
            Self::Timer => "ms",
            Self::Distribution => "d",
        }
    }
}

words! {
    /// What a consumer is called.
    pub(super) enum ConsumerName {
        /// By its id.
        Id = "consumer_id",
        /// By the id that another system has given it.
        CustomId = "custom_id",
        /// By its name.
        Username = "username",
    }
}

words! {
    /// What a service is called.
    pub(super) enum ServiceName {
        /// By its id.
        Id = "service_id",
        /// By its name.
        Name = "service_name",
        /// By its host.
        Host = "service_host",
        /// By its name, or else by its host.
        NameOrHost = "service_name_or_host",
    }
}

words! {
    /// What the workspace is called.
    pub(super) enum WorkspaceName {
        /// By its id.
        Id = "workspace_id",
        /// By its name.
        Name = "workspace_name",
    }
}

config! {
    /// A metric that is sent.
    #[derive(Debug, PartialEq)]
    pub(super) struct Metric {
        /// What the metric tells.
        #[field(required)]
        pub(super) name: MetricName,
        /// How the receiver takes its numbers together.
        #[field(kind(Type::word(StatType::OF_STATSD)), required)]
        pub(super) stat_type: StatType,
        /// The rate that the receiver is told. Counters and gauges need one.
        pub(super) sample_rate: Option<f64>,
        /// What consumers are called. Null: consumer_identifier_default.
        pub(super) consumer_identifier: Option<ConsumerName>,
        /// What services are called. Null: service_identifier_default.
        pub(super) service_identifier: Option<ServiceName>,
        /// What the workspace is called. Null: workspace_identifier_default.
        pub(super) workspace_identifier: Option<WorkspaceName>,
    }
}

config! {
    /// The fields of `config`.
    pub(super) struct Config {
        /// The host that lines are sent to. Null: localhost.
        #[field(default("localhost"))]
        pub(super) host: Option<Box<str>>,
        /// Its port.
        #[field(default(8125))]
        pub(super) port: Option<u16>,
        /// What the names of metrics begin with.
        #[field(default("kong"))]
        pub(super) prefix: Option<Box<str>>,
        /// The metrics that are sent.
        #[field(kind(Type::array(metric_type())), default(default_metrics()))]
        pub(super) metrics: Vec<Metric>,
        /// Ranges of statuses that are told of, such as 200-299. Null: all.
        allow_status_codes: Option<Vec<StatusRange>>,
        /// Bytes of lines that share a datagram. 0: each line has its own.
        #[field(kind(Type::Between(0, 65_507)), default(0))]
        pub(super) udp_packet_size: Option<f64>,
        /// Whether lines are sent over a connection of TCP in the place of datagrams.
        #[field(default(false))]
        pub(super) use_tcp: bool,
        /// Whether the name of this machine follows the prefix.
        #[field(default(false))]
        pub(super) hostname_in_prefix: bool,
        /// What consumers are called, where a metric does not say.
        #[field(default("custom_id"), required)]
        pub(super) consumer_identifier_default: ConsumerName,
        /// What services are called, where a metric does not say.
        #[field(default("service_name_or_host"), required)]
        pub(super) service_identifier_default: ServiceName,
        /// What the workspace is called, where a metric does not say.
        #[field(default("workspace_id"), required)]
        pub(super) workspace_identifier_default: WorkspaceName,
        pub(super) older as ..: OlderQueueConfig,
        /// How tags are written, which then say whom a number is of. Null: names say it.
        pub(super) tag_style: Option<TagStyle>,
        /// What waits, for how long, and how often it is sent again.
        #[field(kind(queue_type(1)), required)]
        pub(super) queue: QueueConfig,
    }
}

pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(Config::fields()));
    &SCHEMA
}

fn metric_type() -> Type {
    Type::Record(Schema::new(Metric::fields()).check(check_metric))
}

fn default_metrics() -> Value {
    let metrics = DEFAULTS.iter().map(|(name, kind)| {
        let sampled = matches!(*kind, "counter" | "gauge");
        json!({
            "name": name,
            "stat_type": kind,
            "sample_rate": sampled.then_some(1),
            "consumer_identifier": null,
            "service_identifier": null,
            "workspace_identifier": null,
        })
    });
    metrics.collect()
}

/// Fields of a metric that need others.
fn check_metric(metric: &Map<String, Value>, violations: &mut Violations) {
    let Some(metric) = read_for_check::<Metric>(metric) else {
        return;
    };
    let wanted = match metric.name {
        MetricName::UniqueUsers => Some((StatType::Set, "value must be set")),
        MetricName::StatusCount | MetricName::StatusCountPerUser | MetricName::RequestPerUser => {
            Some((StatType::Counter, "value must be counter"))
        }
        _ => None,
    };
    if let Some((kind, message)) = wanted
        && metric.stat_type != kind
    {
        violations.put("stat_type", message);
        violations.put_entity(failed_condition("name"));
    }
    check_rate(metric.stat_type, metric.sample_rate, violations);
}

/// Counters and gauges need a rate, which is above zero.
pub(super) fn check_rate(kind: StatType, rate: Option<f64>, violations: &mut Violations) {
    if rate.is_some_and(|rate| rate <= 0.0) {
        violations.put("sample_rate", "value must be greater than 0");
    }
    if rate.is_none() && matches!(kind, StatType::Counter | StatType::Gauge) {
        violations.put("sample_rate", "required field missing");
        violations.put_entity(failed_condition("stat_type"));
    }
}

/// The first and the last of some statuses.
#[derive(Clone, Copy, Debug)]
struct StatusRange(u16, u16);

impl StatusRange {
    fn parse(text: &str) -> Result<Self, String> {
        let range = text.split_once('-').and_then(|(from, to)| {
            let (from, to) = (from.parse().ok()?, to.parse().ok()?);
            Some(Self(from, to))
        });
        range.ok_or_else(|| format!("invalid value: {text}"))
    }
}

impl FieldValue for StatusRange {
    fn kind() -> Type {
        Type::checked(|text| Self::parse(text).map(drop))
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let range = Self::parse(value.as_str().unwrap_or_default());
        range.map_err(|message| wrong("", message))
    }
}

impl Config {
    /// Whether the metrics are others than by default.
    pub(super) fn chooses_metrics(&self) -> bool {
        let usual = <Vec<Metric> as FieldValue>::read(&default_metrics());
        usual.is_ok_and(|usual| usual != self.metrics)
    }

    /// Whether answers with this status are told of.
    pub(super) fn allows(&self, status: u16) -> bool {
        self.allow_status_codes.as_ref().is_none_or(|all| {
            let mut ranges = all.iter();
            ranges.any(|StatusRange(from, to)| (*from..=*to).contains(&status))
        })
    }
}
