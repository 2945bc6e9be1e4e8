//! The `config` of the plugin.

use std::sync::LazyLock;

use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

use crate::rate_limiting::counters::Limit;
use crate::rate_limiting::period::Period;
use crate::rate_limiting::quota;
use crate::redis_settings;
use crate::settings::{Settings, header_name, wrong};
use doorward_core::model::schema::{Field, Schema, Type, Violations};
use doorward_plugin_api::ConfigError;

/// Most names of limits.
const MAX_NAMES: usize = 64;

/// The fields of `config`.
pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let flag =
            |name, default: bool| Field::new(name, Type::Boolean).default(default).required();
        let limit = Schema::new(Period::fields().collect()).check(check_periods);
        let limits = Type::Map(Box::new(Type::Record(limit)));
        let mut fields = vec![
            Field::new("limits", limits).required(),
            Field::new("header_name", Type::checked(header_name)).default("x-kong-limit"),
            Field::new("limit_by", Type::word(&["consumer", "credential", "ip"]))
                .default("consumer"),
            Field::new("policy", Type::word(&["local", "cluster", "redis"])).default("local"),
            flag("fault_tolerant", true),
            flag("block_on_first_violation", false),
            flag("hide_client_headers", false),
        ];
        fields.extend(redis_settings::fields());
        Schema::new(fields)
            .shorthand(redis_settings::shorthand)
            .prefill(redis_settings::prefill)
            .check(check_names)
            .check(redis_settings::check)
    });
    &SCHEMA
}

/// The limits of a record.
fn periods(record: &Map<String, Value>) -> Box<[Limit]> {
    let all = Period::ALL.into_iter();
    let set = all.filter_map(|period| {
        let limit = record.get(period.name())?.as_f64()?;
        Some(Limit { period, limit })
    });
    set.collect()
}

fn check_periods(record: &Map<String, Value>, violations: &mut Violations) {
    let limits = periods(record);
    if limits.is_empty() {
        let names = Period::ALL.map(|period| format!("'{}'", period.name()));
        let names = names.join(", ");
        violations.put_entity(format!(
            "at least one of these fields must be non-empty: {names}"
        ));
    }
    for (i, longer) in limits.iter().enumerate() {
        if longer.limit <= 0.0 {
            violations.put(longer.period.name(), "value must be greater than 0");
        }
        let mut before = limits.iter().take(i);
        if let Some(shorter) = before.find(|one| one.limit > longer.limit) {
            violations.put_whole(format!(
                "the limit for {}({:.1}) cannot be lower than the limit for {}({:.1})",
                longer.period.name(),
                longer.limit,
                shorter.period.name(),
                shorter.limit,
            ));
        }
    }
}

fn check_names(config: &Map<String, Value>, violations: &mut Violations) {
    let names = config.get("limits").and_then(Value::as_object);
    match names.map_or(0, Map::len) {
        0 if names.is_some() => violations.put("limits", "length must be at least 1"),
        count if count > MAX_NAMES => {
            violations.put("limits", format!("length must be at most {MAX_NAMES}"));
        }
        _ => {}
    }
}

/// What tells callers apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitBy {
    Consumer,
    Credential,
    Ip,
}

/// Where costs are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// In this process.
    Local,
    /// In the Redis of the plugin.
    Redis,
    /// In the Redis of the configuration file.
    Cluster,
}

/// Headers of one limit, and the limit as a value.
pub(super) struct Names {
    pub(super) limit: HeaderName,
    pub(super) remaining: HeaderName,
    pub(super) value: HeaderValue,
}

/// Limits under one name.
pub(super) struct NamedLimits {
    pub(super) name: Box<str>,
    /// The shortest period first.
    pub(super) limits: Box<[Limit]>,
    /// In the order of the limits.
    pub(super) headers: Box<[Names]>,
    /// What upstreams are told.
    pub(super) upstream: HeaderName,
}

/// A configuration as it runs.
pub(super) struct Config {
    pub(super) all: Box<[NamedLimits]>,
    pub(super) header: HeaderName,
    pub(super) limit_by: LimitBy,
    pub(super) policy: Policy,
    pub(super) fault_tolerant: bool,
    pub(super) blocks: bool,
    pub(super) silent: bool,
}

impl Config {
    /// Reads a complete `config`.
    pub(super) fn read(config: &Map<String, Value>) -> Result<Self, ConfigError> {
        let config = Settings(config);
        let header = config.header("header_name")?;
        let records = config.record("limits").0.iter();
        let all = records.map(|(name, record)| {
            let record = record.as_object().cloned().unwrap_or_default();
            named(name, periods(&record))
        });
        Ok(Self {
            all: all.collect::<Result<_, _>>()?,
            header: header.unwrap_or(HeaderName::from_static("x-kong-limit")),
            limit_by: match config.text("limit_by") {
                Some("credential") => LimitBy::Credential,
                Some("ip") => LimitBy::Ip,
                _ => LimitBy::Consumer,
            },
            policy: match config.text("policy") {
                Some("redis") => Policy::Redis,
                Some("cluster") => Policy::Cluster,
                _ => Policy::Local,
            },
            fault_tolerant: config.flag("fault_tolerant"),
            blocks: config.flag("block_on_first_violation"),
            silent: config.flag("hide_client_headers"),
        })
    }
}

fn named(name: &str, limits: Box<[Limit]>) -> Result<NamedLimits, ConfigError> {
    let header = |what: &str, behind: &str| {
        let text = format!("x-ratelimit-{what}-{name}{behind}");
        let header = HeaderName::try_from(text.to_ascii_lowercase());
        header.map_err(|_| {
            wrong(
                "limits",
                format!("'{name}' can't be part of a header's name"),
            )
        })
    };
    let headers = limits.iter().map(|limit| {
        let behind = format!("-{}", limit.period.name());
        Ok(Names {
            limit: header("limit", &behind)?,
            remaining: header("remaining", &behind)?,
            value: quota::value(limit.limit),
        })
    });
    Ok(NamedLimits {
        headers: headers.collect::<Result<_, ConfigError>>()?,
        upstream: header("remaining", "")?,
        name: name.into(),
        limits,
    })
}
