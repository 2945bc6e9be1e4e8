//! The `config` of `statsd`.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::line::TagStyle;
use crate::delivery::{legacy_fields, queue_field};
use crate::settings::Settings;
use doorward_core::model::schema::{Field, Schema, Type, Violations, failed_condition};

const NAMES: &[&str] = &[
    "kong_latency",
    "latency",
    "request_count",
    "request_per_user",
    "request_size",
    "response_size",
    "status_count",
    "status_count_per_user",
    "unique_users",
    "upstream_latency",
    "status_count_per_workspace",
    "status_count_per_user_per_route",
    "shdict_usage",
];
const STAT_TYPES: &[&str] = &["counter", "gauge", "histogram", "meter", "set", "timer"];
pub(super) const CONSUMERS: &[&str] = &["consumer_id", "custom_id", "username"];
const SERVICES: &[&str] = &[
    "service_id",
    "service_name",
    "service_host",
    "service_name_or_host",
];
const WORKSPACES: &[&str] = &["workspace_id", "workspace_name"];
const STYLES: &[&str] = &["dogstatsd", "influxdb", "librato", "signalfx"];

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

pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let flag = |name| Field::new(name, Type::Boolean).default(false);
        let by = |name, all, usual: &str| {
            let field = Field::new(name, Type::word(all));
            field.default(usual).required()
        };
        let mut fields = vec![
            Field::new("host", Type::some_text()).default("localhost"),
            Field::new("port", Type::Integer(0, 65_535)).default(8125),
            Field::new("prefix", Type::some_text()).default("kong"),
            Field::new("metrics", Type::array(Type::Record(metric()))).default(default_metrics()),
            Field::new(
                "allow_status_codes",
                Type::array(Type::checked(check_range)),
            ),
            Field::new("udp_packet_size", Type::Between(0, 65_507)).default(0),
            flag("use_tcp"),
            flag("hostname_in_prefix"),
            by("consumer_identifier_default", CONSUMERS, "custom_id"),
            by(
                "service_identifier_default",
                SERVICES,
                "service_name_or_host",
            ),
            by("workspace_identifier_default", WORKSPACES, "workspace_id"),
        ];
        fields.extend(legacy_fields());
        fields.push(Field::new("tag_style", Type::word(STYLES)));
        fields.push(queue_field(1));
        Schema::new(fields)
    });
    &SCHEMA
}

fn metric() -> Schema {
    Schema::new(vec![
        Field::new("name", Type::word(NAMES)).required(),
        Field::new("stat_type", Type::word(STAT_TYPES)).required(),
        Field::new("sample_rate", Type::Number),
        Field::new("consumer_identifier", Type::word(CONSUMERS)),
        Field::new("service_identifier", Type::word(SERVICES)),
        Field::new("workspace_identifier", Type::word(WORKSPACES)),
    ])
    .check(check_metric)
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
    let metric = Settings(metric);
    let (name, kind) = (metric.text("name"), metric.text("stat_type"));
    let mut fail = |given: &str, field: &str, message: &str| {
        violations.put(field, message);
        violations.put_entity(failed_condition(given));
    };
    match name {
        Some("unique_users") if kind != Some("set") => {
            fail("name", "stat_type", "value must be set");
        }
        Some("status_count" | "status_count_per_user" | "request_per_user")
            if kind != Some("counter") =>
        {
            fail("name", "stat_type", "value must be counter");
        }
        _ => {}
    }
    check_rate(metric, violations);
}

/// Counters and gauges need a rate, which is above zero.
pub(super) fn check_rate(metric: Settings<'_>, violations: &mut Violations) {
    let rate = metric.number("sample_rate");
    if rate.is_some_and(|rate| rate <= 0.0) {
        violations.put("sample_rate", "value must be greater than 0");
    }
    if rate.is_none() && matches!(metric.text("stat_type"), Some("counter" | "gauge")) {
        violations.put("sample_rate", "required field missing");
        violations.put_entity(failed_condition("stat_type"));
    }
}

fn check_range(text: &str) -> Result<(), String> {
    let message = || format!("invalid value: {text}");
    range(text).map(drop).ok_or_else(message)
}

fn range(text: &str) -> Option<(u16, u16)> {
    let (from, to) = text.split_once('-')?;
    Some((from.parse().ok()?, to.parse().ok()?))
}

/// What a consumer is called.
#[derive(Clone, Copy, Debug)]
pub(super) enum ConsumerName {
    Id,
    CustomId,
    Username,
}

impl ConsumerName {
    pub(super) fn of(text: &str) -> Self {
        match text {
            "consumer_id" => Self::Id,
            "username" => Self::Username,
            _ => Self::CustomId,
        }
    }
}

/// What a service is called.
#[derive(Clone, Copy, Debug)]
pub(super) enum ServiceName {
    Id,
    Name,
    Host,
    NameOrHost,
}

impl ServiceName {
    fn of(text: &str) -> Self {
        match text {
            "service_id" => Self::Id,
            "service_name" => Self::Name,
            "service_host" => Self::Host,
            _ => Self::NameOrHost,
        }
    }
}

/// What the workspace is called.
#[derive(Clone, Copy, Debug)]
pub(super) enum WorkspaceName {
    Id,
    Name,
}

impl WorkspaceName {
    fn of(text: &str) -> Self {
        match text {
            "workspace_name" => Self::Name,
            _ => Self::Id,
        }
    }
}

/// A metric that is sent.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) name: Box<str>,
    /// As lines write it.
    pub(super) kind: &'static str,
    pub(super) rate: Option<f64>,
    pub(super) consumer: Option<ConsumerName>,
    pub(super) service: Option<ServiceName>,
    pub(super) workspace: Option<WorkspaceName>,
}

impl Metric {
    /// A complete record.
    pub(super) fn read(metric: Settings<'_>) -> Self {
        Self {
            name: metric.text("name").unwrap_or_default().into(),
            kind: match metric.text("stat_type") {
                Some("gauge") => "g",
                Some("histogram") => "h",
                Some("meter") => "m",
                Some("set") => "s",
                Some("timer") => "ms",
                Some("distribution") => "d",
                _ => "c",
            },
            rate: metric.number("sample_rate"),
            consumer: metric.text("consumer_identifier").map(ConsumerName::of),
            service: metric.text("service_identifier").map(ServiceName::of),
            workspace: metric.text("workspace_identifier").map(WorkspaceName::of),
        }
    }
}

/// A configuration as it runs.
pub(super) struct Config {
    pub(super) prefix: Box<str>,
    pub(super) metrics: Vec<Metric>,
    /// Whether the metrics are others than by default.
    pub(super) chosen: bool,
    ranges: Option<Vec<(u16, u16)>>,
    pub(super) hostname_in_prefix: bool,
    pub(super) consumer: ConsumerName,
    pub(super) service: ServiceName,
    pub(super) workspace: WorkspaceName,
    pub(super) tags: Option<TagStyle>,
}

impl Config {
    /// Reads a complete `config`.
    pub(super) fn read(config: Settings<'_>) -> Self {
        let text = |field| config.text(field).unwrap_or_default();
        let list = config.get("metrics").and_then(Value::as_array);
        let records = list.into_iter().flatten().filter_map(Value::as_object);
        Self {
            prefix: text("prefix").into(),
            metrics: records.map(|one| Metric::read(Settings(one))).collect(),
            chosen: config.get("metrics") != Some(&default_metrics()),
            ranges: config.get("allow_status_codes").map(|_| {
                config
                    .texts("allow_status_codes")
                    .filter_map(range)
                    .collect()
            }),
            hostname_in_prefix: config.flag("hostname_in_prefix"),
            consumer: ConsumerName::of(text("consumer_identifier_default")),
            service: ServiceName::of(text("service_identifier_default")),
            workspace: WorkspaceName::of(text("workspace_identifier_default")),
            tags: config.text("tag_style").map(TagStyle::of),
        }
    }

    /// Whether answers with this status are told of.
    pub(super) fn allows(&self, status: u16) -> bool {
        self.ranges
            .as_ref()
            .is_none_or(|all| all.iter().any(|(from, to)| (*from..=*to).contains(&status)))
    }
}
