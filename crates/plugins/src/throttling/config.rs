//! The `config` of a throttling filter (interface 4.9), from record to rates.

mod groovy;
mod limits;
mod policies;

use std::sync::LazyLock;
use std::time::Duration;

use serde_json::{Map, Value};

use super::headers::Headers;
use super::policy::Policy;
use super::rates::Rates;
use crate::chain::ObjectLookup;
use doorward_core::model::schema::{Schema, Type};
use doorward_expr::duration::{self, Length};
use doorward_expr::{self as expr, Constants, Expression};
use doorward_plugin_api::config::FieldValue;
use doorward_plugin_api::{ConfigError, config, words};
use limits::Limits;

/// Partitions that a filter holds unless configured otherwise.
const DEFAULT_PARTITIONS: i64 = 1_000_000;
const MOST_PARTITIONS: i64 = 100_000_000;
/// Who has one IPv6 address has the rest of its network too.
const DEFAULT_IPV6_PREFIX: i64 = 64;
const DAY: Duration = Duration::from_secs(86_400);

words! {
    /// Where requests are counted.
    enum Counters {
        /// With the other nodes, if the process has a Redis.
        Shared = "shared",
        /// In this process alone.
        Local = "local",
    }
}

config! {
    /// The fields of `config`. A route file writes them, too: its texts may be expressions
    /// without a request, and nobody has completed them.
    struct Config {
        /// An expression for the partition that a request is in. Empty: one for all.
        #[field(kind(Type::checked(check_expression)), default(""), required)]
        grouping as "requestGroupingPolicy": Value,
        /// One rate.
        #[field(kind(Type::Record(Schema::new(RateConfig::fields()))))]
        rate: Value,
        /// Up to 8 rates that hold together, as texts such as 6/10 s or as records.
        #[field(kind(Type::array(Type::Any)))]
        rates: Value,
        /// A policy that chooses rates by request.
        policy as "throttlingRatePolicy": Value,
        /// How often full buckets are forgotten, up to a day.
        #[field(kind(Type::checked(check_cleaning_interval)), default("5 seconds"), required)]
        cleaning_interval as "cleaningInterval": Value,
        /// The name of an executor or one itself. It has no effect: the gateway has a clock
        /// of its own.
        executor: Value,
        /// Has no effect.
        _strategy as "strategy": Value,
        /// Most buckets. Beyond them new partitions share some.
        #[field(
            kind(Type::Integer(1, MOST_PARTITIONS)),
            default(DEFAULT_PARTITIONS),
            required
        )]
        partitions as "maximumPartitions": Value,
        /// Bits of an IPv6 address that tell clients apart. 128: each address by itself.
        #[field(kind(Type::Integer(1, 128)), default(DEFAULT_IPV6_PREFIX), required)]
        ipv6_prefix as "ipv6PrefixLength": Value,
        /// Whether answers tell quotas. draft: in RateLimit-Policy and RateLimit.
        #[field(kind(<Headers as FieldValue>::kind()), default("off"), required)]
        headers: Value,
        /// Whether requests are counted and logged, and none refused.
        #[field(kind(Type::Boolean), default(false), required)]
        shadow: Value,
        /// Where requests are counted: with the other nodes, or in this process alone.
        #[field(kind(<Counters as FieldValue>::kind()), default("shared"), required)]
        counters: Value,
    }
}

config! {
    /// A rate as a record, besides its name.
    struct RateConfig {
        /// Requests of the duration: a number, or a text with one or with an expression.
        #[field(required)]
        requests as "numberOfRequests": Value,
        /// How long the requests are for, such as 10 s.
        #[field(kind(Type::checked(check_rate_duration)), required)]
        duration: Value,
    }
}

pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(Config::fields()));
    &SCHEMA
}

/// What a filter does, as it is configured.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) grouping: Expression,
    pub(super) policy: Policy,
    /// The distinct rates that `policy` chooses from.
    pub(super) rates: Rates,
    /// What the configured rates are called, in their order.
    pub(super) names: Vec<String>,
    pub(super) cleaning_interval: Duration,
    /// Most buckets.
    pub(super) partitions: usize,
    /// Bits of an IPv6 address that tell clients apart.
    pub(super) ipv6_prefix: u8,
    pub(super) headers: Headers,
    pub(super) shadow: bool,
    /// Whether counters may be shared with other nodes.
    pub(super) shared: bool,
    /// What an operator should know.
    pub(super) warnings: Vec<String>,
}

impl Rules {
    /// Reads a `config`; `named` are the objects that it may refer to,
    /// `constants` what its expressions may use.
    pub(super) fn read(
        record: &Map<String, Value>,
        named: ObjectLookup<'_>,
        constants: &Constants,
    ) -> Result<Self, ConfigError> {
        let config = Config::read(record)?;
        let grouping = match &config.grouping {
            Value::Null => "",
            Value::String(text) => text,
            _ => return Err(error("requestGroupingPolicy", "must be a text")),
        };
        let mut limits = Limits::new(constants);
        let known: Vec<&str> = schema().fields.iter().map(|field| field.name).collect();
        limits.known("", record, &known);
        check_executor(&config.executor, named)?;
        let policy = config.policy(&mut limits, named)?;
        let shown = limits.names();
        let grouping = expression("requestGroupingPolicy", grouping, constants)?;
        for (field, unknown) in [
            ("requestGroupingPolicy", grouping.unknown()),
            ("throttlingRatePolicy", policy.unknown()),
        ] {
            let told = unknown.iter();
            let told = told.map(|unknown| format!("{field} is null in part: {unknown}"));
            limits.warnings.extend(told);
        }
        let whole = |field, value, default, most| integer(field, value, (default, most), constants);
        let partitions = whole(
            "maximumPartitions",
            &config.partitions,
            DEFAULT_PARTITIONS,
            MOST_PARTITIONS,
        );
        let ipv6_prefix = whole(
            "ipv6PrefixLength",
            &config.ipv6_prefix,
            DEFAULT_IPV6_PREFIX,
            128,
        );
        Ok(Self {
            grouping,
            rates: Rates::new(limits.rates, policy.is_open()),
            policy,
            names: shown,
            cleaning_interval: cleaning_interval(&config.cleaning_interval, constants)?,
            partitions: usize::try_from(partitions?).unwrap_or(usize::MAX),
            ipv6_prefix: u8::try_from(ipv6_prefix?).unwrap_or(128),
            headers: word("headers", &config.headers, Headers::Off)?,
            shadow: match config.shadow {
                Value::Null => false,
                Value::Bool(shadow) => shadow,
                _ => return Err(error("shadow", "must be true or false")),
            },
            shared: word("counters", &config.counters, Counters::Shared)? == Counters::Shared,
            warnings: limits.warnings,
        })
    }
}

impl Config {
    /// What chooses rates: one field says it.
    fn policy(
        &self,
        limits: &mut Limits<'_>,
        named: ObjectLookup<'_>,
    ) -> Result<Policy, ConfigError> {
        const POLICY: &str = "throttlingRatePolicy";
        let sources = [
            ("rate", &self.rate),
            ("rates", &self.rates),
            (POLICY, &self.policy),
        ];
        let mut given = sources.into_iter().filter(|(_, value)| !value.is_null());
        match (given.next(), given.next()) {
            (Some((first, _)), Some((second, _))) => {
                let message = format!("give either `{first}` or `{second}`, not both");
                Err(error(second, message))
            }
            (None, _) => {
                let message = "is required unless `rates` or `throttlingRatePolicy` is given";
                Err(error("rate", message))
            }
            (Some((POLICY, value)), None) => policies::read(POLICY, value, limits, named, 0),
            (Some((name, value)), None) => Ok(Policy::Fixed(limits.limit(name, value)?)),
        }
    }
}

/// Types of objects that clean-up may be scheduled on, and the name of the one
/// that needs no declaration.
const EXECUTORS: [&str; 2] = [DEFAULT_EXECUTOR, "ThreadPoolExecutor"];
const DEFAULT_EXECUTOR: &str = "ScheduledExecutorService";

/// Refuses an executor that there is not: whoever names one expects it to be.
/// Clean-up goes by the gateway's own clock, whichever is named.
fn check_executor(value: &Value, named: ObjectLookup<'_>) -> Result<(), ConfigError> {
    let is_executor = |object: &Value| {
        let kind = object.get("type").and_then(Value::as_str);
        kind.is_some_and(|kind| EXECUTORS.contains(&kind))
    };
    match value {
        Value::Null => Ok(()),
        Value::String(name) if name == DEFAULT_EXECUTOR => Ok(()),
        Value::String(name) if named(name).is_some_and(|found| is_executor(&found)) => Ok(()),
        Value::String(name) => {
            let message = format!(
                "there is no executor `{name}`: declare one of type {DEFAULT_EXECUTOR} in the \
                 heap, or name `{DEFAULT_EXECUTOR}`, which needs no declaration"
            );
            Err(error("executor", message))
        }
        object if is_executor(object) => Ok(()),
        _ => {
            let message = format!("must be a name, or an object of type {DEFAULT_EXECUTOR}");
            Err(error("executor", message))
        }
    }
}

fn error(field: impl Into<String>, message: impl Into<String>) -> ConfigError {
    ConfigError {
        field: field.into(),
        message: message.into(),
    }
}

fn expression(field: &str, text: &str, constants: &Constants) -> Result<Expression, ConfigError> {
    let expression = Expression::compile_with(text, constants)
        .map_err(|fault| error(field, fault.to_string()))?;
    if expression.needs_response() {
        let message = "looks at the response, and there is none yet";
        return Err(error(field, message));
    }
    Ok(expression)
}

fn check_expression(text: &str) -> Result<(), String> {
    match Expression::compile(text) {
        Ok(expression) if expression.needs_response() => {
            Err("looks at the response, and there is none yet".to_owned())
        }
        Ok(_) => Ok(()),
        Err(fault) => Err(fault.to_string()),
    }
}

/// A text of the configuration, which may be an expression without a request.
fn text_at_load(text: &str, constants: &Constants) -> Result<String, String> {
    if !text.contains("${") && !text.contains("#{") {
        return Ok(text.to_owned());
    }
    match expr::at_load_with(text, constants) {
        Ok(expr::Value::Text(text)) => Ok(text.into_owned()),
        Ok(expr::Value::Integer(n)) => Ok(n.to_string()),
        Ok(_) => Err("the expression gives neither a text nor a whole number".to_owned()),
        Err(fault) => Err(fault.to_string()),
    }
}

fn check_rate_duration(text: &str) -> Result<(), String> {
    limits::duration(text, &Constants::default()).map(drop)
}

fn cleaning_duration(text: &str, constants: &Constants) -> Result<Duration, String> {
    let range = "must be in the range ]0, 1 day]";
    match duration::parse(&text_at_load(text, constants)?) {
        Ok(Length::Unlimited) => Err(format!("must not be unlimited: {range}")),
        Ok(Length::Finite(length)) if length.is_zero() || length > DAY => Err(range.to_owned()),
        Ok(Length::Finite(length)) => Ok(length),
        Err(fault) => Err(fault.to_string()),
    }
}

fn check_cleaning_interval(text: &str) -> Result<(), String> {
    cleaning_duration(text, &Constants::default()).map(drop)
}

fn cleaning_interval(value: &Value, constants: &Constants) -> Result<Duration, ConfigError> {
    let wrong = |message: &str| error("cleaningInterval", message);
    match value {
        Value::Null => Ok(Duration::from_secs(5)),
        Value::String(text) => {
            cleaning_duration(text, constants).map_err(|message| wrong(&message))
        }
        _ => Err(wrong("must be a text such as `5 seconds`")),
    }
}

/// A whole number from 1.
fn integer(
    field: &str,
    value: &Value,
    (default, most): (i64, i64),
    constants: &Constants,
) -> Result<i64, ConfigError> {
    let number = match value {
        Value::Null => Some(default),
        Value::String(text) => text_at_load(text, constants)
            .ok()
            .and_then(|n| n.trim().parse().ok()),
        value => value.as_i64(),
    };
    number.filter(|n| (1..=most).contains(n)).ok_or_else(|| {
        let message = format!("must be a whole number between 1 and {most}");
        error(field, message)
    })
}

/// One of the words of a type.
fn word<T: FieldValue>(field: &str, value: &Value, default: T) -> Result<T, ConfigError> {
    if value.is_null() {
        return Ok(default);
    }
    T::read(value).map_err(|_| {
        let words = match T::kind() {
            Type::String(text) => text.one_of,
            _ => &[],
        };
        error(field, format!("expected one of: {}", words.join(", ")))
    })
}
