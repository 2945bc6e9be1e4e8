//! What fields of a throttling filter hold as they are written: an expression without a
//! request may stand in the place of a number or a text.

use serde_json::{Map, Value};

use super::{
    RateConfig, check_cleaning_interval, check_expression, check_rate_duration, text_at_load,
};
use crate::throttling::partitions::MAX_RATES;
use crate::throttling::rate::RateError;
use doorward_expr::Constants;
use doorward_plugin_api::config::FieldValue;
use doorward_plugin_api::{ConfigError, config};

use doorward_core::model::schema::{Field, Type};

pub(super) const IS_REQUIRED: &str = "is required";
/// What a rate is, for messages.
const RATE: &str =
    "must be an object with `numberOfRequests` and `duration`, or a text such as `6/10 s`";
/// Longest name of a rate, in bytes.
const MAX_NAME: usize = 64;
/// Types of objects that clean-up may be scheduled on, and the name of the one
/// that needs no declaration.
const EXECUTORS: [&str; 2] = [DEFAULT_EXECUTOR, "ThreadPoolExecutor"];
pub(super) const DEFAULT_EXECUTOR: &str = "ScheduledExecutorService";

/// What is wrong with a value itself.
pub(super) fn wrong(message: impl Into<String>) -> ConfigError {
    super::error("", message)
}

/// The keys of a record that are none of these fields, and so have no effect.
pub(super) fn others(record: &Map<String, Value>, fields: &[Field]) -> Vec<String> {
    let is_field = |key: &str| fields.iter().any(|field| field.name == key);
    let others = record.keys().filter(|key| !is_field(key));
    others.cloned().collect()
}

/// Texts that are read in one way: what they are, and what is said of anything else.
macro_rules! texts {
    ($($(#[$meta:meta])* $name:ident: $kind:expr, $message:expr;)*) => {$(
        $(#[$meta])*
        pub(super) struct $name(pub(super) String);

        impl FieldValue for $name {
            fn kind() -> Type {
                $kind
            }

            fn missing() -> &'static str {
                IS_REQUIRED
            }

            fn read(value: &Value) -> Result<Self, ConfigError> {
                let text = value.as_str().ok_or_else(|| wrong($message))?;
                Ok(Self(text.to_owned()))
            }
        }
    )*};
}

texts! {
    /// An expression for the partition that a request is in.
    Grouping: Type::checked(check_expression), "must be a text";
    /// How often full buckets are forgotten.
    CleaningInterval: Type::checked(check_cleaning_interval),
        "must be a text such as `5 seconds`";
    /// How long the requests of a rate are for.
    RateDuration: Type::checked(check_rate_duration), "must be a text such as `10 s`";
}

/// True or false.
pub(super) struct Flag(pub(super) bool);

impl FieldValue for Flag {
    fn kind() -> Type {
        Type::Boolean
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let flag = value.as_bool();
        flag.map(Self).ok_or_else(|| wrong("must be true or false"))
    }
}

/// A whole number from 1.
pub(super) enum WholeNumber<const MOST: i64> {
    Number(i64),
    Text(String),
}

impl<const MOST: i64> WholeNumber<MOST> {
    pub(super) fn evaluated(&self, constants: &Constants) -> Result<i64, String> {
        let number = match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => text_at_load(text, constants)
                .ok()
                .and_then(|number| number.trim().parse().ok()),
        };
        let number = number.filter(|number| (1..=MOST).contains(number));
        number.ok_or_else(|| format!("must be a whole number between 1 and {MOST}"))
    }
}

impl<const MOST: i64> FieldValue for WholeNumber<MOST> {
    fn kind() -> Type {
        Type::Integer(1, MOST)
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let read = match value {
            Value::String(text) => Self::Text(text.clone()),
            // A number that is none of these is found wrong as zero is.
            value => Self::Number(value.as_i64().unwrap_or_default()),
        };
        Ok(read)
    }
}

/// What clean-up is scheduled on: it has no effect, but has to be there.
pub(super) enum Executor {
    Named(String),
    Declared,
}

impl Executor {
    /// Whether an object can schedule clean-up.
    pub(super) fn is(object: &Value) -> bool {
        let kind = object.get("type").and_then(Value::as_str);
        kind.is_some_and(|kind| EXECUTORS.contains(&kind))
    }
}

impl FieldValue for Executor {
    fn kind() -> Type {
        Type::Any
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        match value {
            Value::String(name) => Ok(Self::Named(name.clone())),
            object if Self::is(object) => Ok(Self::Declared),
            _ => {
                let message = format!("must be a name, or an object of type {DEFAULT_EXECUTOR}");
                Err(wrong(message))
            }
        }
    }
}

/// Rates that hold together.
pub(super) enum LimitValue {
    One(RateValue),
    Several(Vec<RateValue>),
}

impl FieldValue for LimitValue {
    fn kind() -> Type {
        Type::Any
    }

    fn missing() -> &'static str {
        RATE
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let Value::Array(list) = value else {
            return RateValue::read(value).map(Self::One);
        };
        if !(1..=MAX_RATES).contains(&list.len()) {
            let message = format!("must have between 1 and {MAX_RATES} rates");
            return Err(wrong(message));
        }
        let rates = list
            .iter()
            .enumerate()
            .map(|(i, value)| RateValue::read(value).map_err(|error| error.within(&i.to_string())));
        rates.collect::<Result<_, _>>().map(Self::Several)
    }
}

/// `{numberOfRequests, duration}`, or `6/10 s`.
pub(super) enum RateValue {
    Text(String),
    Record {
        rate: NamedRate,
        /// Keys that have no effect.
        others: Vec<String>,
    },
}

config! {
    /// A rate as a record.
    pub(super) struct NamedRate {
        pub(super) rate as ..: RateConfig,
        pub(super) name: Option<RateName>,
    }
}

impl RateValue {
    fn read(value: &Value) -> Result<Self, ConfigError> {
        match value {
            Value::Object(record) => Ok(Self::Record {
                rate: NamedRate::read(record)?,
                others: others(record, &NamedRate::fields()),
            }),
            Value::String(text) => Ok(Self::Text(text.clone())),
            _ => Err(wrong(RATE)),
        }
    }
}

/// How many requests a rate allows.
pub(super) enum Requests {
    Number(u64),
    Text(String),
}

impl Requests {
    pub(super) fn evaluated(&self, constants: &Constants) -> Result<u64, String> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Text(text) => {
                let number = text_at_load(text, constants)?;
                let number = number.trim().parse();
                number.map_err(|_| RateError::Requests.to_string())
            }
        }
    }
}

impl FieldValue for Requests {
    fn kind() -> Type {
        Type::Any
    }

    fn missing() -> &'static str {
        IS_REQUIRED
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        match value {
            Value::String(text) => Ok(Self::Text(text.clone())),
            value => {
                let number = value.as_u64().map(Self::Number);
                number.ok_or_else(|| wrong(RateError::Requests.to_string()))
            }
        }
    }
}

/// The name of a rate in answers to clients: it must fit into a header.
pub(super) struct RateName(pub(super) String);

impl FieldValue for RateName {
    fn kind() -> Type {
        Type::Any
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let fits = |c: u8| (c.is_ascii_graphic() || c == b' ') && c != b'"' && c != b'\\';
        match value {
            Value::String(name)
                if (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(fits) =>
            {
                Ok(Self(name.clone()))
            }
            _ => Err(wrong(format!(
                "must be a text of at most {MAX_NAME} printable characters without quotes and \
                 backslashes"
            ))),
        }
    }
}
