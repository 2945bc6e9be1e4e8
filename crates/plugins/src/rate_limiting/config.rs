//! The `config` of the plugin.

use std::borrow::Cow;
use std::sync::LazyLock;

use http::{HeaderName, StatusCode};
use serde_json::{Map, Value};

use super::counters::Limit;
use super::period::Period;
use crate::redis_settings;
use crate::settings::{Settings, UNEXPECTED, error_status, header_name, wrong};
use doorward_core::model::schema::{Field, Schema, Type, Violations, failed_condition};
use doorward_net::http::path;
use doorward_plugin_api::ConfigError;

/// The fields of `config`.
pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let mut fields: Vec<_> = Period::fields().collect();
        let flag =
            |name, default: bool| Field::new(name, Type::Boolean).default(default).required();
        let by = &["consumer", "credential", "ip", "service", "header", "path"];
        fields.extend([
            Field::new("limit_by", Type::word(by)).default("consumer"),
            Field::new("header_name", Type::checked(header_name)),
            Field::new("path", Type::checked(check_path)),
            Field::new("policy", Type::word(&["local", "cluster", "redis"])).default("local"),
            flag("fault_tolerant", true),
            flag("hide_client_headers", false),
            Field::new("error_code", Type::Number).default(429),
            Field::new("error_message", Type::some_text()).default("API rate limit exceeded"),
            Field::new("sync_rate", Type::Number).default(-1).required(),
        ]);
        fields.extend(redis_settings::fields());
        Schema::new(fields)
            .shorthand(redis_settings::shorthand)
            .prefill(redis_settings::prefill)
            .check(check_limits)
            .check(check_companions)
            .check(redis_settings::check)
    });
    &SCHEMA
}

fn check_path(path: &str) -> Result<(), String> {
    if !path.starts_with('/') {
        return Err("should start with: /".to_owned());
    }
    if path.contains("//") {
        return Err("must not have empty segments".to_owned());
    }
    Ok(())
}

fn limits(config: Settings<'_>) -> Vec<Limit> {
    let all = Period::ALL.into_iter();
    let set = all.filter_map(|period| {
        let limit = config.number(period.name())?;
        Some(Limit { period, limit })
    });
    set.collect()
}

fn check_limits(config: &Map<String, Value>, violations: &mut Violations) {
    let limits = limits(Settings(config));
    if limits.is_empty() {
        let names = Period::ALL.map(|period| format!("'config.{}'", period.name()));
        let names = names.join(", ");
        violations.put_holder(format!(
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
                "The limit for {}({:.1}) cannot be lower than the limit for {}({:.1})",
                longer.period.name(),
                longer.limit,
                shorter.period.name(),
                shorter.limit,
            ));
        }
    }
}

/// Fields that need others.
fn check_companions(config: &Map<String, Value>, violations: &mut Violations) {
    let config = Settings(config);
    for (by, field) in [("header", "header_name"), ("path", "path")] {
        if config.text("limit_by") == Some(by) && config.get(field).is_none() {
            violations.put(field, "required field missing");
            violations.put_holder(failed_condition("config.limit_by"));
        }
    }
    if config.number("error_code").is_some_and(|code| code <= 0.0) {
        violations.put("error_code", "value must be greater than 0");
    }
    let rate = config.number("sync_rate").unwrap_or(-1.0);
    if (rate + 1.0).abs() < f64::EPSILON {
        return;
    }
    if config.text("policy") != Some("redis") {
        violations.put_holder("sync_rate can only be used with the redis policy");
    } else if rate < 0.02 {
        violations.put_holder("sync_rate must be greater than 0.02, or -1 to disable");
    }
}

/// What tells callers apart.
#[derive(Debug)]
pub(super) enum LimitBy {
    Consumer,
    Credential,
    Ip,
    Service,
    Header(HeaderName),
    /// A path as it is written, and its normal form.
    Path {
        text: Box<str>,
        normal: Box<str>,
    },
}

/// Where requests are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// In this process.
    Local,
    /// In the Redis of the plugin.
    Redis,
    /// In the Redis of the configuration file.
    Cluster,
}

/// A configuration as it runs.
pub(super) struct Config {
    /// The shortest period first.
    pub(super) limits: Box<[Limit]>,
    pub(super) limit_by: LimitBy,
    pub(super) policy: Policy,
    pub(super) fault_tolerant: bool,
    pub(super) silent: bool,
    pub(super) status: StatusCode,
    pub(super) message: Cow<'static, str>,
    pub(super) warnings: Vec<String>,
}

impl Config {
    /// Reads a complete `config`.
    pub(super) fn read(config: &Map<String, Value>) -> Result<Self, ConfigError> {
        let config = Settings(config);
        let missing = |field| wrong(field, "required field missing");
        let mut warnings = Vec::new();
        let mut message = Cow::from(
            config
                .text("error_message")
                .unwrap_or("API rate limit exceeded")
                .to_owned(),
        );
        let code = config.number("error_code").unwrap_or(429.0);
        let status = error_status(code).unwrap_or_else(|| {
            warnings.push(format!(
                "error_code: {code} is no status of an error: 500 is sent"
            ));
            message = Cow::Borrowed(UNEXPECTED);
            StatusCode::INTERNAL_SERVER_ERROR
        });
        if config.number("sync_rate").is_some_and(|rate| rate > 0.0) {
            let warning = "sync_rate: has no effect: every request is counted at the Redis at once";
            warnings.push(warning.to_owned());
        }
        Ok(Self {
            limits: limits(config).into(),
            limit_by: match config.text("limit_by") {
                Some("credential") => LimitBy::Credential,
                Some("ip") => LimitBy::Ip,
                Some("service") => LimitBy::Service,
                Some("header") => {
                    let name = config.header("header_name")?;
                    LimitBy::Header(name.ok_or_else(|| missing("header_name"))?)
                }
                Some("path") => {
                    let text = config.text("path").ok_or_else(|| missing("path"))?;
                    let encoded = path::encoded(text);
                    let normal = path::normalize(&encoded).unwrap_or_else(|_| encoded.clone());
                    LimitBy::Path {
                        text: text.into(),
                        normal: normal.into(),
                    }
                }
                _ => LimitBy::Consumer,
            },
            policy: match config.text("policy") {
                Some("redis") => Policy::Redis,
                Some("cluster") => Policy::Cluster,
                _ => Policy::Local,
            },
            fault_tolerant: config.flag("fault_tolerant"),
            silent: config.flag("hide_client_headers"),
            status,
            message,
            warnings,
        })
    }
}
