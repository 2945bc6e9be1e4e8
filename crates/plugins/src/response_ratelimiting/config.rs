//! The `config` of the plugin.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

use crate::rate_limiting::counters::Limit;
use crate::rate_limiting::limits::PeriodLimits;
use crate::rate_limiting::quota;
use crate::redis_settings::{self, Policy, RedisFields};
use crate::settings::wrong;
use doorward_core::model::schema::{Schema, Type, Violations};
use doorward_plugin_api::config::read_for_check;
use doorward_plugin_api::{ConfigError, config, words};

/// Most names of limits.
const MAX_NAMES: usize = 64;

words! {
    /// What tells callers apart.
    pub(super) enum LimitBy {
        /// The consumer, or else the credential.
        Consumer = "consumer",
        /// The credential.
        Credential = "credential",
        /// The address.
        Ip = "ip",
    }
}

config! {
    /// The fields of `config`.
    pub(super) struct Config {
        /// Limits by the names that upstreams know, at most 64. Each has periods.
        #[field(kind(limits_type()), required)]
        limits: BTreeMap<String, PeriodLimits>,
        /// The header in which upstreams tell costs. Clients do not get it.
        #[field(default("x-kong-limit"))]
        pub(super) header_name: Option<HeaderName>,
        /// What tells callers apart. Who has none of it is known by the address.
        #[field(default("consumer"))]
        pub(super) limit_by: Option<LimitBy>,
        /// Where costs are counted: in this process, in the Redis of the configuration
        /// file, or in the one of redis.
        #[field(default("local"))]
        pub(super) policy: Option<Policy>,
        /// Whether requests pass while the Redis gives no answer. Else they get 500.
        #[field(default(true), required)]
        pub(super) fault_tolerant: bool,
        /// Whether requests are refused beforehand as soon as one limit has nothing left.
        #[field(default(false), required)]
        pub(super) block_on_first_violation: bool,
        /// Whether answers tell no limits.
        #[field(default(false), required)]
        pub(super) hide_client_headers: bool,
        pub(super) redis as ..: RedisFields,
    }
}

/// The fields of `config`, and what they need of one another.
pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        Schema::new(Config::fields())
            .shorthand(redis_settings::shorthand)
            .prefill(redis_settings::prefill)
            .check(check)
    });
    &SCHEMA
}

fn limits_type() -> Type {
    let limit = Schema::new(PeriodLimits::fields()).check(check_periods);
    Type::Map(Box::new(Type::Record(limit)))
}

fn check_periods(record: &Map<String, Value>, violations: &mut Violations) {
    let Some(periods) = read_for_check::<PeriodLimits>(record) else {
        return;
    };
    if periods.limits().is_empty() {
        let names = PeriodLimits::names("");
        violations.put_entity(format!(
            "at least one of these fields must be non-empty: {names}"
        ));
    }
    periods.check("the", violations);
}

fn check(config: &Map<String, Value>, violations: &mut Violations) {
    let Some(config) = read_for_check::<Config>(config) else {
        return;
    };
    match config.limits.len() {
        0 => violations.put("limits", "length must be at least 1"),
        count if count > MAX_NAMES => {
            violations.put("limits", format!("length must be at most {MAX_NAMES}"));
        }
        _ => {}
    }
    config.redis.check(config.policy, violations);
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

impl Config {
    /// The limits, with their headers.
    pub(super) fn named_limits(&self) -> Result<Box<[NamedLimits]>, ConfigError> {
        let all = self.limits.iter();
        all.map(|(name, periods)| named(name, periods.limits()))
            .collect()
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
