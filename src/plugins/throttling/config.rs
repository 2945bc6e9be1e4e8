//! The `config` of a throttling filter (interface 4.9), from record to rates.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::{Map, Value};

use super::policy::Policy;
use super::rate::{Rate, RateError};
use crate::expr::duration::{self, Length};
use crate::expr::{self, Expression};
use crate::model::schema::{Field, Schema, Type};
use crate::plugins::ConfigError;

/// Partitions that a filter holds unless configured otherwise.
const DEFAULT_PARTITIONS: i64 = 1_000_000;
const MOST_PARTITIONS: i64 = 100_000_000;
const DAY: Duration = Duration::from_secs(86_400);
/// Rate policies that may delegate to one another.
const MAX_DELEGATES: usize = 8;
/// Entries of a rate mapping.
const MAX_MAPPING: usize = 10_000;

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
            Field::new("throttlingRatePolicy", Type::Any),
            Field::new("cleaningInterval", Type::checked(check_cleaning_interval))
                .default("5 seconds")
                .required(),
            Field::new("executor", Type::Any),
            Field::new("strategy", Type::Any),
            Field::new("maximumPartitions", Type::Integer(1, MOST_PARTITIONS))
                .default(DEFAULT_PARTITIONS)
                .required(),
        ])
    });
    &SCHEMA
}

/// A configuration as it will run.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) grouping: Expression,
    pub(super) policy: Policy,
    /// The distinct rates that `policy` chooses from.
    pub(super) rates: Vec<Rate>,
    pub(super) cleaning_interval: Duration,
    /// Most partitions of each rate.
    pub(super) partitions: usize,
}

impl Config {
    /// Reads a complete `config`.
    pub(super) fn read(config: &Map<String, Value>) -> Result<Self, ConfigError> {
        let field = |name| config.get(name).filter(|value| !value.is_null());
        let grouping = match field("requestGroupingPolicy") {
            None => "",
            Some(Value::String(text)) => text,
            Some(_) => return Err(error("requestGroupingPolicy", "must be a text")),
        };
        let mut rates = Vec::new();
        let policy = match (field("rate"), field("throttlingRatePolicy")) {
            (Some(_), Some(_)) => {
                let message = "give either `rate` or `throttlingRatePolicy`, not both";
                return Err(error("throttlingRatePolicy", message));
            }
            (None, None) => {
                let message = "is required unless `throttlingRatePolicy` is given";
                return Err(error("rate", message));
            }
            (Some(value), None) => Policy::Fixed(add(&mut rates, rate("rate", value)?)),
            (None, Some(value)) => rate_policy("throttlingRatePolicy", value, &mut rates, 0)?,
        };
        Ok(Self {
            grouping: expression("requestGroupingPolicy", grouping)?,
            policy,
            rates,
            cleaning_interval: cleaning_interval(field("cleaningInterval"))?,
            partitions: partitions(field("maximumPartitions"))?,
        })
    }
}

fn error(field: impl Into<String>, message: impl Into<String>) -> ConfigError {
    ConfigError {
        field: field.into(),
        message: message.into(),
    }
}

fn expression(field: &str, text: &str) -> Result<Expression, ConfigError> {
    Expression::compile(text).map_err(|fault| error(field, fault.to_string()))
}

fn check_expression(text: &str) -> Result<(), String> {
    match Expression::compile(text) {
        Ok(_) => Ok(()),
        Err(fault) => Err(fault.to_string()),
    }
}

/// A text of the configuration, which may be an expression without a request.
fn text_at_load(text: &str) -> Result<String, String> {
    if !text.contains("${") {
        return Ok(text.to_owned());
    }
    match expr::at_load(text) {
        Ok(expr::Value::Text(text)) => Ok(text.into_owned()),
        Ok(expr::Value::Integer(n)) => Ok(n.to_string()),
        Ok(_) => Err("the expression gives neither a text nor a whole number".to_owned()),
        Err(fault) => Err(fault.to_string()),
    }
}

fn finite(text: &str) -> Result<Duration, String> {
    match duration::parse(&text_at_load(text)?) {
        Ok(Length::Finite(duration)) => Ok(duration),
        Ok(Length::Unlimited) => Err("must not be unlimited".to_owned()),
        Err(fault) => Err(fault.to_string()),
    }
}

fn rate_duration(text: &str) -> Result<Duration, String> {
    let duration = finite(text)?;
    match Rate::new(1, duration) {
        Ok(_) => Ok(duration),
        Err(fault) => Err(fault.to_string()),
    }
}

fn check_rate_duration(text: &str) -> Result<(), String> {
    rate_duration(text).map(drop)
}

fn cleaning_duration(text: &str) -> Result<Duration, String> {
    let range = "must be in the range ]0, 1 day]";
    match finite(text)? {
        duration if duration.is_zero() || duration > DAY => Err(range.to_owned()),
        duration => Ok(duration),
    }
}

fn check_cleaning_interval(text: &str) -> Result<(), String> {
    cleaning_duration(text).map(drop)
}

fn cleaning_interval(value: Option<&Value>) -> Result<Duration, ConfigError> {
    match value {
        None => Ok(Duration::from_secs(5)),
        Some(Value::String(text)) => {
            cleaning_duration(text).map_err(|message| error("cleaningInterval", message))
        }
        Some(_) => Err(error(
            "cleaningInterval",
            "must be a text such as `5 seconds`",
        )),
    }
}

fn partitions(value: Option<&Value>) -> Result<usize, ConfigError> {
    let number = value.map_or(Some(DEFAULT_PARTITIONS), Value::as_i64);
    number
        .filter(|n| (1..=MOST_PARTITIONS).contains(n))
        .and_then(|n| usize::try_from(n).ok())
        .ok_or_else(|| {
            let message = format!("must be a whole number between 1 and {MOST_PARTITIONS}");
            error("maximumPartitions", message)
        })
}

/// `{numberOfRequests, duration}`.
fn rate(field: &str, value: &Value) -> Result<Rate, ConfigError> {
    let Value::Object(rate) = value else {
        let message = "must be an object with `numberOfRequests` and `duration`";
        return Err(error(field, message));
    };
    let requests_field = format!("{field}.numberOfRequests");
    let requests = number_of_requests(rate.get("numberOfRequests"))
        .map_err(|message| error(&requests_field, message))?;
    let duration_field = format!("{field}.duration");
    let duration = match rate.get("duration") {
        Some(Value::String(text)) => {
            rate_duration(text).map_err(|message| error(&duration_field, message))?
        }
        None | Some(Value::Null) => return Err(error(duration_field, "is required")),
        Some(_) => return Err(error(duration_field, "must be a text such as `10 s`")),
    };
    Rate::new(requests, duration).map_err(|fault| match fault {
        RateError::Requests => error(requests_field, fault.to_string()),
        RateError::Duration => error(duration_field, fault.to_string()),
    })
}

fn number_of_requests(value: Option<&Value>) -> Result<u64, String> {
    let number = match value {
        None | Some(Value::Null) => return Err("is required".to_owned()),
        Some(Value::Number(number)) => number.as_u64(),
        Some(Value::String(text)) => text_at_load(text)?.trim().parse().ok(),
        Some(_) => None,
    };
    number.ok_or_else(|| RateError::Requests.to_string())
}

/// The place of `rate` among the distinct rates.
fn add(rates: &mut Vec<Rate>, rate: Rate) -> usize {
    rates
        .iter()
        .position(|known| *known == rate)
        .unwrap_or_else(|| {
            rates.push(rate);
            rates.len() - 1
        })
}

/// An inline rate policy: `{"type": …, "config": {…}}`.
fn rate_policy(
    field: &str,
    value: &Value,
    rates: &mut Vec<Rate>,
    depth: usize,
) -> Result<Policy, ConfigError> {
    if depth == MAX_DELEGATES {
        return Err(error(field, "delegates too often"));
    }
    let Value::Object(object) = value else {
        let message = "must be an inline object with `type` and `config`: names of other objects \
                       are not known here";
        return Err(error(field, message));
    };
    let empty = Map::new();
    let config = match object.get("config") {
        Some(Value::Object(config)) => config,
        None | Some(Value::Null) => &empty,
        Some(_) => return Err(error(format!("{field}.config"), "must be an object")),
    };
    match object.get("type").and_then(Value::as_str) {
        Some("MappedThrottlingPolicy") => mapped(&format!("{field}.config"), config, rates),
        Some("DefaultRateThrottlingPolicy") => {
            let field = format!("{field}.config");
            let delegate = config
                .get("delegateThrottlingRatePolicy")
                .unwrap_or(&Value::Null);
            let delegate_field = format!("{field}.delegateThrottlingRatePolicy");
            let delegate = rate_policy(&delegate_field, delegate, rates, depth + 1)?;
            let default = config.get("defaultRate").unwrap_or(&Value::Null);
            let default = rate(&format!("{field}.defaultRate"), default)?;
            Ok(Policy::WithDefault(Box::new(delegate), add(rates, default)))
        }
        _ => Err(error(
            format!("{field}.type"),
            "must be `MappedThrottlingPolicy` or `DefaultRateThrottlingPolicy`; scripts are not \
             supported",
        )),
    }
}

fn mapped(
    field: &str,
    config: &Map<String, Value>,
    rates: &mut Vec<Rate>,
) -> Result<Policy, ConfigError> {
    let mapper_field = format!("{field}.throttlingRateMapper");
    let Some(Value::String(mapper)) = config.get("throttlingRateMapper") else {
        return Err(error(mapper_field, "is required and must be a text"));
    };
    let mapping_field = format!("{field}.throttlingRatesMapping");
    let empty = Map::new();
    let mapping = match config.get("throttlingRatesMapping") {
        Some(Value::Object(mapping)) if mapping.len() <= MAX_MAPPING => mapping,
        Some(Value::Object(_)) => {
            return Err(error(
                mapping_field,
                format!("has more than {MAX_MAPPING} entries"),
            ));
        }
        None | Some(Value::Null) => &empty,
        Some(_) => return Err(error(mapping_field, "must be an object")),
    };
    let mut mapped = HashMap::new();
    for (key, value) in mapping {
        let entry = format!("{mapping_field}.{key}");
        let key = text_at_load(key).map_err(|message| error(&entry, message))?;
        mapped.insert(key.into(), add(rates, rate(&entry, value)?));
    }
    let default = match config.get("defaultRate") {
        None | Some(Value::Null) => None,
        Some(value) => Some(add(rates, rate(&format!("{field}.defaultRate"), value)?)),
    };
    Ok(Policy::Mapped {
        mapper: expression(&mapper_field, mapper)?,
        rates: mapped,
        default,
    })
}
