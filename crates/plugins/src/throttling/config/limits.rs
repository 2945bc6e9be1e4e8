//! Rates as they are written.

use std::time::Duration;

use super::values::{LimitValue, NamedRate, RateValue};
use super::{error, text_at_load};
use crate::throttling::policy::Limit;
use crate::throttling::rate::{Rate, RateError};
use doorward_expr::Constants;
use doorward_plugin_api::ConfigError;

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
    pub(super) fn limit(
        &mut self,
        field: &str,
        written: &LimitValue,
    ) -> Result<Limit, ConfigError> {
        let list = match written {
            LimitValue::One(rate) => return Ok([self.rate(field, rate)?].into()),
            LimitValue::Several(list) => list,
        };
        let mut limit = Vec::new();
        for (i, rate) in list.iter().enumerate() {
            let field = format!("{field}.{i}");
            let number = self.rate(&field, rate)?;
            if limit.contains(&number) {
                return Err(error(field, "is the same rate as one before it"));
            }
            limit.push(number);
        }
        Ok(limit.into())
    }

    /// The number of the rate.
    fn rate(&mut self, field: &str, written: &RateValue) -> Result<u16, ConfigError> {
        let (rate, name) = match written {
            RateValue::Record { rate, others } => {
                self.warn_of(field, others);
                let name = rate.name.as_ref().map(|name| name.0.clone());
                (self.record(field, rate)?, name)
            }
            RateValue::Text(text) => {
                let text =
                    text_at_load(text, self.constants).map_err(|message| error(field, message))?;
                let rate = text
                    .parse()
                    .map_err(|fault: RateError| error(field, fault.to_string()));
                (rate?, None)
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

    fn record(&self, field: &str, written: &NamedRate) -> Result<Rate, ConfigError> {
        let requests_field = format!("{field}.numberOfRequests");
        let duration_field = format!("{field}.duration");
        let requests = written.rate.requests.evaluated(self.constants);
        let requests = requests.map_err(|message| error(&requests_field, message))?;
        let length = duration(&written.rate.duration.0, self.constants);
        let length = length.map_err(|message| error(&duration_field, message))?;
        Rate::new(requests, length).map_err(|fault| error(requests_field, fault.to_string()))
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

    /// Warns of keys of a record that mean nothing there.
    pub(super) fn warn_of(&mut self, field: &str, keys: &[String]) {
        for key in keys {
            let dot = if field.is_empty() { "" } else { "." };
            let warning = format!("{field}{dot}{key} is not known and has no effect");
            self.warnings.push(warning);
        }
    }
}

/// The duration of a rate, which may be an expression without a request.
pub(super) fn duration(text: &str, constants: &Constants) -> Result<Duration, String> {
    Rate::read_duration(&text_at_load(text, constants)?).map_err(|fault| fault.to_string())
}
