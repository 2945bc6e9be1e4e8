//! Rates as they are written.

use serde_json::{Map, Value};
use std::time::Duration;

use super::{RateConfig, error, text_at_load};
use crate::throttling::partitions::MAX_RATES;
use crate::throttling::policy::Limit;
use crate::throttling::rate::{Rate, RateError};
use doorward_expr::Constants;
use doorward_plugin_api::ConfigError;

/// Longest name of a rate, in bytes.
const MAX_NAME: usize = 64;

/// The distinct rates of a configuration, gathered while it is read.
#[derive(Debug)]
pub(super) struct Limits<'c> {
    pub(super) rates: Vec<Rate>,
    names: Vec<Option<String>>,
    /// What expressions may use.
    pub(super) constants: &'c Constants,
    pub(super) warnings: Vec<String>,
}

impl<'c> Limits<'c> {
    /// None yet.
    pub(super) fn new(constants: &'c Constants) -> Self {
        Self {
            rates: Vec::new(),
            names: Vec::new(),
            constants,
            warnings: Vec::new(),
        }
    }

    /// Rates that hold together: one, or a list of several.
    pub(super) fn limit(&mut self, field: &str, value: &Value) -> Result<Limit, ConfigError> {
        let Value::Array(list) = value else {
            return Ok([self.rate(field, value)?].into());
        };
        if !(1..=MAX_RATES).contains(&list.len()) {
            let message = format!("must have between 1 and {MAX_RATES} rates");
            return Err(error(field, message));
        }
        let mut limit = Vec::new();
        for (i, value) in list.iter().enumerate() {
            let field = format!("{field}.{i}");
            let number = self.rate(&field, value)?;
            if limit.contains(&number) {
                return Err(error(field, "is the same rate as one before it"));
            }
            limit.push(number);
        }
        Ok(limit.into())
    }

    /// `{numberOfRequests, duration}`, or `6/10 s`; the number of the rate.
    fn rate(&mut self, field: &str, value: &Value) -> Result<u16, ConfigError> {
        let (rate, name) = match value {
            Value::Object(object) => (self.object(field, object)?, name(field, object)?),
            Value::String(text) => {
                let text =
                    text_at_load(text, self.constants).map_err(|message| error(field, message))?;
                let rate = text
                    .parse()
                    .map_err(|fault: RateError| error(field, fault.to_string()));
                (rate?, None)
            }
            _ => {
                let message = "must be an object with `numberOfRequests` and `duration`, or a \
                               text such as `6/10 s`";
                return Err(error(field, message));
            }
        };
        let place = self.rates.iter().position(|known| *known == rate);
        let place = place.unwrap_or_else(|| {
            self.rates.push(rate);
            self.names.push(None);
            self.rates.len() - 1
        });
        if name.is_some() {
            self.names[place] = name;
        }
        u16::try_from(place).map_err(|_| error(field, "is one rate too many"))
    }

    fn object(&mut self, field: &str, rate: &Map<String, Value>) -> Result<Rate, ConfigError> {
        self.known(field, rate, &["numberOfRequests", "duration", "name"]);
        let requests_field = format!("{field}.numberOfRequests");
        let rate = RateConfig::read(rate)?;
        let requests = number_of_requests(&rate.requests, self.constants)
            .map_err(|message| error(&requests_field, message))?;
        let duration_field = format!("{field}.duration");
        let duration = match &rate.duration {
            Value::String(text) => {
                duration(text, self.constants).map_err(|message| error(&duration_field, message))?
            }
            Value::Null => return Err(error(duration_field, "is required")),
            _ => return Err(error(duration_field, "must be a text such as `10 s`")),
        };
        Rate::new(requests, duration).map_err(|fault| error(requests_field, fault.to_string()))
    }

    /// What the rates are called, for clients: one alone is the default.
    pub(super) fn names(&self) -> Vec<String> {
        let named = self.rates.iter().zip(&self.names);
        named
            .map(|(rate, name)| match name {
                Some(name) => name.clone(),
                None if self.rates.len() == 1 => "default".to_owned(),
                None => rate.to_string(),
            })
            .collect()
    }

    /// Warns of keys that mean nothing here.
    pub(super) fn known(&mut self, field: &str, object: &Map<String, Value>, known: &[&str]) {
        for key in object.keys().filter(|key| !known.contains(&key.as_str())) {
            let dot = if field.is_empty() { "" } else { "." };
            let warning = format!("{field}{dot}{key} is not known and has no effect");
            self.warnings.push(warning);
        }
    }
}

fn number_of_requests(value: &Value, constants: &Constants) -> Result<u64, String> {
    let number = match value {
        Value::Null => return Err("is required".to_owned()),
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text_at_load(text, constants)?.trim().parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| RateError::Requests.to_string())
}

/// The duration of a rate, which may be an expression without a request.
pub(super) fn duration(text: &str, constants: &Constants) -> Result<Duration, String> {
    Rate::read_duration(&text_at_load(text, constants)?).map_err(|fault| fault.to_string())
}

/// The name of a rate in answers to clients: it must fit into a header.
fn name(field: &str, rate: &Map<String, Value>) -> Result<Option<String>, ConfigError> {
    let fits = |c: u8| (c.is_ascii_graphic() || c == b' ') && c != b'"' && c != b'\\';
    match rate.get("name") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(name))
            if (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(fits) =>
        {
            Ok(Some(name.clone()))
        }
        Some(_) => {
            let message = format!(
                "must be a text of at most {MAX_NAME} printable characters without quotes and \
                 backslashes"
            );
            Err(error(format!("{field}.name"), message))
        }
    }
}
