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
use doorward_core::model::schema::{Field, Schema, Type};
use doorward_expr::duration::{self, Length};
use doorward_expr::{self as expr, Constants, Expression};
use doorward_plugin_api::ConfigError;
use limits::Limits;

/// Partitions that a filter holds unless configured otherwise.
const DEFAULT_PARTITIONS: i64 = 1_000_000;
const MOST_PARTITIONS: i64 = 100_000_000;
/// Who has one IPv6 address has the rest of its network too.
const DEFAULT_IPV6_PREFIX: i64 = 64;
const DAY: Duration = Duration::from_secs(86_400);

/// The fields of `config`.
pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let rate = Schema::new(vec![
            // A number, its digits as text, or a text evaluated at load.
            Field::new("numberOfRequests", Type::Any).required(),
            Field::new("duration", Type::checked(check_rate_duration)).required(),
        ]);
        Schema::new(vec![
            Field::new("requestGroupingPolicy", Type::checked(check_expression))
                .default("")
                .required(),
            Field::new("rate", Type::Record(rate)),
            Field::new("rates", Type::array(Type::Any)),
            Field::new("throttlingRatePolicy", Type::Any),
            Field::new("cleaningInterval", Type::checked(check_cleaning_interval))
                .default("5 seconds")
                .required(),
            Field::new("executor", Type::Any),
            Field::new("strategy", Type::Any),
            Field::new("maximumPartitions", Type::Integer(1, MOST_PARTITIONS))
                .default(DEFAULT_PARTITIONS)
                .required(),
            Field::new("ipv6PrefixLength", Type::Integer(1, 128))
                .default(DEFAULT_IPV6_PREFIX)
                .required(),
            Field::new("headers", Type::word(Headers::WORDS))
                .default(Headers::WORDS[0])
                .required(),
            Field::new("shadow", Type::Boolean)
                .default(false)
                .required(),
            Field::new("counters", Type::word(COUNTERS))
                .default(COUNTERS[0])
                .required(),
        ])
    });
    &SCHEMA
}

/// Where requests are counted: with the other nodes if the process has a
/// Redis, or in this process alone.
const COUNTERS: &[&str] = &["shared", "local"];

/// A configuration as it will run.
#[derive(Debug)]
pub(super) struct Config {
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

impl Config {
    /// Reads a `config`; `named` are the objects that it may refer to,
    /// `constants` what its expressions may use.
    pub(super) fn read(
        config: &Map<String, Value>,
        named: ObjectLookup<'_>,
        constants: &Constants,
    ) -> Result<Self, ConfigError> {
        let field = |name| config.get(name).filter(|value| !value.is_null());
        let grouping = match field("requestGroupingPolicy") {
            None => "",
            Some(Value::String(text)) => text,
            Some(_) => return Err(error("requestGroupingPolicy", "must be a text")),
        };
        let mut limits = Limits::new(constants);
        let known: Vec<&str> = schema().fields.iter().map(|field| field.name).collect();
        limits.known("", config, &known);
        check_executor(field("executor"), named)?;
        let sources = ["rate", "rates", "throttlingRatePolicy"];
        let mut given = sources.iter().filter(|name| field(name).is_some());
        let policy = match (given.next(), given.next()) {
            (Some(first), Some(second)) => {
                let message = format!("give either `{first}` or `{second}`, not both");
                return Err(error(*second, message));
            }
            (None, _) => {
                let message = "is required unless `rates` or `throttlingRatePolicy` is given";
                return Err(error("rate", message));
            }
            (Some(&"throttlingRatePolicy"), None) => {
                let value = field("throttlingRatePolicy").unwrap_or(&Value::Null);
                policies::read("throttlingRatePolicy", value, &mut limits, named, 0)?
            }
            (Some(name), None) => {
                let value = field(name).unwrap_or(&Value::Null);
                Policy::Fixed(limits.limit(name, value)?)
            }
        };
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
        Ok(Self {
            grouping,
            rates: Rates::new(limits.rates, policy.is_open()),
            policy,
            names: shown,
            cleaning_interval: cleaning_interval(field("cleaningInterval"), constants)?,
            partitions: usize::try_from(integer(
                config,
                "maximumPartitions",
                DEFAULT_PARTITIONS,
                MOST_PARTITIONS,
                constants,
            )?)
            .unwrap_or(usize::MAX),
            ipv6_prefix: u8::try_from(integer(
                config,
                "ipv6PrefixLength",
                DEFAULT_IPV6_PREFIX,
                128,
                constants,
            )?)
            .unwrap_or(128),
            headers: Headers::of_word(word(config, "headers", Headers::WORDS)?),
            shadow: match field("shadow") {
                None => false,
                Some(Value::Bool(shadow)) => *shadow,
                Some(_) => return Err(error("shadow", "must be true or false")),
            },
            shared: word(config, "counters", COUNTERS)? == COUNTERS[0],
            warnings: limits.warnings,
        })
    }
}

/// Types of objects that clean-up may be scheduled on, and the name of the one
/// that needs no declaration.
const EXECUTORS: [&str; 2] = [DEFAULT_EXECUTOR, "ThreadPoolExecutor"];
const DEFAULT_EXECUTOR: &str = "ScheduledExecutorService";

/// Refuses an executor that there is not: whoever names one expects it to be.
/// Clean-up goes by the gateway's own clock, whichever is named.
fn check_executor(value: Option<&Value>, named: ObjectLookup<'_>) -> Result<(), ConfigError> {
    let is_executor = |object: &Value| {
        let kind = object.get("type").and_then(Value::as_str);
        kind.is_some_and(|kind| EXECUTORS.contains(&kind))
    };
    match value {
        None => Ok(()),
        Some(Value::String(name)) if name == DEFAULT_EXECUTOR => Ok(()),
        Some(Value::String(name)) if named(name).is_some_and(|found| is_executor(&found)) => Ok(()),
        Some(Value::String(name)) => {
            let message = format!(
                "there is no executor `{name}`: declare one of type {DEFAULT_EXECUTOR} in the \
                 heap, or name `{DEFAULT_EXECUTOR}`, which needs no declaration"
            );
            Err(error("executor", message))
        }
        Some(object) if is_executor(object) => Ok(()),
        Some(_) => {
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

fn cleaning_interval(
    value: Option<&Value>,
    constants: &Constants,
) -> Result<Duration, ConfigError> {
    match value {
        None => Ok(Duration::from_secs(5)),
        Some(Value::String(text)) => {
            cleaning_duration(text, constants).map_err(|message| error("cleaningInterval", message))
        }
        Some(_) => Err(error(
            "cleaningInterval",
            "must be a text such as `5 seconds`",
        )),
    }
}

/// A whole number from 1.
fn integer(
    config: &Map<String, Value>,
    name: &str,
    default: i64,
    most: i64,
    constants: &Constants,
) -> Result<i64, ConfigError> {
    let number = match config.get(name) {
        None | Some(Value::Null) => Some(default),
        Some(Value::String(text)) => text_at_load(text, constants)
            .ok()
            .and_then(|n| n.trim().parse().ok()),
        Some(value) => value.as_i64(),
    };
    number.filter(|n| (1..=most).contains(n)).ok_or_else(|| {
        let message = format!("must be a whole number between 1 and {most}");
        error(name, message)
    })
}

/// One of the given words, by default the first.
fn word(
    config: &Map<String, Value>,
    name: &str,
    words: &'static [&'static str],
) -> Result<&'static str, ConfigError> {
    let found = match config.get(name) {
        None | Some(Value::Null) => words.first(),
        Some(value) => words.iter().find(|word| value.as_str() == Some(word)),
    };
    let message = || format!("expected one of: {}", words.join(", "));
    found.copied().ok_or_else(|| error(name, message()))
}
