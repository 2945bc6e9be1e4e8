//! The `config` of the plugin.

use std::borrow::Cow;
use std::sync::LazyLock;

use http::{HeaderName, StatusCode};
use serde_json::{Map, Value};

use super::counters::Limit;
use super::limits::PeriodLimits;
use crate::redis_settings::{self, Policy, RedisFields};
use crate::settings::{UNEXPECTED, error_status, wrong};
use doorward_core::model::schema::{Schema, Type, Violations, failed_condition};
use doorward_net::http::path;
use doorward_plugin_api::config::read_for_check;
use doorward_plugin_api::{ConfigError, config, words};

words! {
    /// What tells callers apart.
    enum LimitBy {
        /// The consumer, or else the credential.
        Consumer = "consumer",
        /// The credential.
        Credential = "credential",
        /// The address.
        Ip = "ip",
        /// The service: all callers are one.
        Service = "service",
        /// A header.
        Header = "header",
        /// A path: all its callers are one.
        Path = "path",
    }
}

config! {
    /// The fields of `config`.
    pub(super) struct Config {
        periods as ..: PeriodLimits,
        /// What tells callers apart. Who has none of it is known by the address.
        #[field(default("consumer"))]
        limit_by: Option<LimitBy>,
        /// The header that tells callers apart, for limit_by header.
        header_name: Option<HeaderName>,
        /// The path whose requests are counted together, for limit_by path.
        #[field(kind(Type::checked(check_path)))]
        path: Option<String>,
        /// Where requests are counted: in this process, in the Redis of the configuration
        /// file, or in the one of redis.
        #[field(default("local"))]
        pub(super) policy: Option<Policy>,
        /// Whether requests pass while the Redis gives no answer. Else they get 500.
        #[field(default(true), required)]
        fault_tolerant: bool,
        /// Whether answers tell no limits.
        #[field(default(false), required)]
        hide_client_headers: bool,
        /// The status of refusals. One below 400 is sent as 500.
        #[field(default(429))]
        error_code: Option<f64>,
        /// What a refused client is told.
        #[field(default("API rate limit exceeded"))]
        error_message: Option<String>,
        /// Has no effect: every request is counted at the Redis at once. -1: not set.
        #[field(default(-1), required)]
        sync_rate: f64,
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

fn check_path(path: &str) -> Result<(), String> {
    if !path.starts_with('/') {
        return Err("should start with: /".to_owned());
    }
    if path.contains("//") {
        return Err("must not have empty segments".to_owned());
    }
    Ok(())
}

fn check(config: &Map<String, Value>, violations: &mut Violations) {
    let Some(config) = read_for_check::<Config>(config) else {
        return;
    };
    if config.periods.limits().is_empty() {
        let names = PeriodLimits::names("config.");
        violations.put_holder(format!(
            "at least one of these fields must be non-empty: {names}"
        ));
    }
    config.periods.check("The", violations);
    config.check_companions(violations);
    config.redis.check(config.policy, violations);
}

/// What tells callers apart, as it runs.
#[derive(Debug)]
pub(super) enum Caller {
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

/// What a filter does, as it is configured.
pub(super) struct Rules {
    /// The shortest period first.
    pub(super) limits: Box<[Limit]>,
    pub(super) caller: Caller,
    pub(super) fault_tolerant: bool,
    pub(super) silent: bool,
    pub(super) status: StatusCode,
    pub(super) message: Cow<'static, str>,
    pub(super) warnings: Vec<String>,
}

impl Config {
    /// Fields that need others.
    fn check_companions(&self, violations: &mut Violations) {
        let missing = match self.limit_by {
            Some(LimitBy::Header) if self.header_name.is_none() => Some("header_name"),
            Some(LimitBy::Path) if self.path.is_none() => Some("path"),
            _ => None,
        };
        if let Some(field) = missing {
            violations.put(field, "required field missing");
            violations.put_holder(failed_condition("config.limit_by"));
        }
        if self.error_code.is_some_and(|code| code <= 0.0) {
            violations.put("error_code", "value must be greater than 0");
        }
        if (self.sync_rate + 1.0).abs() < f64::EPSILON {
            return;
        }
        if self.policy != Some(Policy::Redis) {
            violations.put_holder("sync_rate can only be used with the redis policy");
        } else if self.sync_rate < 0.02 {
            violations.put_holder("sync_rate must be greater than 0.02, or -1 to disable");
        }
    }

    fn caller(&self) -> Result<Caller, ConfigError> {
        let missing = |field| wrong(field, "required field missing");
        Ok(match self.limit_by {
            None | Some(LimitBy::Consumer) => Caller::Consumer,
            Some(LimitBy::Credential) => Caller::Credential,
            Some(LimitBy::Ip) => Caller::Ip,
            Some(LimitBy::Service) => Caller::Service,
            Some(LimitBy::Header) => {
                let name = self.header_name.clone();
                Caller::Header(name.ok_or_else(|| missing("header_name"))?)
            }
            Some(LimitBy::Path) => {
                let text = self.path.as_deref().ok_or_else(|| missing("path"))?;
                let encoded = path::encoded(text);
                let normal = path::normalize(&encoded).unwrap_or_else(|_| encoded.clone());
                Caller::Path {
                    text: text.into(),
                    normal: normal.into(),
                }
            }
        })
    }

    /// What the filter does.
    pub(super) fn rules(&self) -> Result<Rules, ConfigError> {
        let mut warnings = Vec::new();
        let message = self.error_message.clone();
        let mut message = message.map_or(Cow::Borrowed("API rate limit exceeded"), Cow::Owned);
        let code = self.error_code.unwrap_or(429.0);
        let status = error_status(code).unwrap_or_else(|| {
            warnings.push(format!(
                "error_code: {code} is no status of an error: 500 is sent"
            ));
            message = Cow::Borrowed(UNEXPECTED);
            StatusCode::INTERNAL_SERVER_ERROR
        });
        if self.sync_rate > 0.0 {
            let warning = "sync_rate: has no effect: every request is counted at the Redis at once";
            warnings.push(warning.to_owned());
        }
        Ok(Rules {
            limits: self.periods.limits(),
            caller: self.caller()?,
            fault_tolerant: self.fault_tolerant,
            silent: self.hide_client_headers,
            status,
            message,
            warnings,
        })
    }
}
