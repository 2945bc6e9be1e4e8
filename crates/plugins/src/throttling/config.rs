//! The `config` of a throttling filter (interface 4.9), from record to rates.

mod groovy;
mod limits;
mod policies;
mod values;

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
use doorward_plugin_api::{ConfigError, config, words};
use limits::Limits;
use policies::PolicyValue;
use values::{
    CleaningInterval, DEFAULT_EXECUTOR, Executor, Flag, Grouping, LimitValue, RateDuration,
    Requests, WholeNumber,
};

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
        #[field(default(""))]
        grouping as "requestGroupingPolicy": Grouping,
        /// One rate.
        #[field(kind(Type::Record(Schema::new(RateConfig::fields()))))]
        rate: Option<LimitValue>,
        /// Up to 8 rates that hold together, as texts such as 6/10 s or as records.
        #[field(kind(Type::array(Type::Any)))]
        rates: Option<LimitValue>,
        /// A policy that chooses rates by request.
        policy as "throttlingRatePolicy": Option<PolicyValue>,
        /// How often full buckets are forgotten, up to a day.
        #[field(default("5 seconds"), required)]
        cleaning_interval as "cleaningInterval": CleaningInterval,
        /// The name of an executor or one itself. It has no effect: the gateway has a clock
        /// of its own.
        executor: Option<Executor>,
        /// Has no effect.
        _strategy as "strategy": Value,
        /// Most buckets. Beyond them new partitions share some.
        #[field(default(DEFAULT_PARTITIONS), required)]
        partitions as "maximumPartitions": WholeNumber<MOST_PARTITIONS>,
        /// Bits of an IPv6 address that tell clients apart. 128: each address by itself.
        #[field(default(DEFAULT_IPV6_PREFIX), required)]
        ipv6_prefix as "ipv6PrefixLength": WholeNumber<128>,
        /// Whether answers tell quotas. draft: in RateLimit-Policy and RateLimit.
        #[field(default("off"), required)]
        headers: Headers,
        /// Whether requests are counted and logged, and none refused.
        #[field(default(false), required)]
        shadow: Flag,
        /// Where requests are counted: with the other nodes, or in this process alone.
        #[field(default("shared"), required)]
        counters: Counters,
    }
}

config! {
    /// A rate as a record, besides its name.
    struct RateConfig {
        /// Requests of the duration: a number, or a text with one or with an expression.
        #[field(required)]
        requests as "numberOfRequests": Requests,
        /// How long the requests are for, such as 10 s.
        #[field(required)]
        duration: RateDuration,
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
        let mut limits = Limits::new(constants);
        limits.warn_of("", &values::others(record, &schema().fields));
        check_executor(config.executor.as_ref(), named)?;
        let policy = config.policy(&mut limits, named)?;
        let shown = limits.names();
        let grouping = expression("requestGroupingPolicy", &config.grouping.0, constants)?;
        for (field, unknown) in [
            ("requestGroupingPolicy", grouping.unknown()),
            ("throttlingRatePolicy", policy.unknown()),
        ] {
            let told = unknown.iter();
            let told = told.map(|unknown| format!("{field} is null in part: {unknown}"));
            limits.warnings.extend(told);
        }
        let cleaning_interval = cleaning_duration(&config.cleaning_interval.0, constants)
            .map_err(|message| error("cleaningInterval", message))?;
        let partitions = config.partitions.evaluated(constants);
        let partitions = partitions.map_err(|message| error("maximumPartitions", message))?;
        let ipv6_prefix = config.ipv6_prefix.evaluated(constants);
        let ipv6_prefix = ipv6_prefix.map_err(|message| error("ipv6PrefixLength", message))?;
        Ok(Self {
            grouping,
            rates: Rates::new(limits.rates, policy.is_open()),
            policy,
            names: shown,
            cleaning_interval,
            partitions: usize::try_from(partitions).unwrap_or(usize::MAX),
            ipv6_prefix: u8::try_from(ipv6_prefix).unwrap_or(128),
            headers: config.headers,
            shadow: config.shadow.0,
            shared: config.counters == Counters::Shared,
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
        let given = |name, is_given: bool| is_given.then_some(name);
        let mut names = [
            given("rate", self.rate.is_some()),
            given("rates", self.rates.is_some()),
            given(POLICY, self.policy.is_some()),
        ]
        .into_iter()
        .flatten();
        if let (Some(first), Some(second)) = (names.next(), names.next()) {
            let message = format!("give either `{first}` or `{second}`, not both");
            return Err(error(second, message));
        }
        match (&self.rate, &self.rates, &self.policy) {
            (Some(rate), ..) => Ok(Policy::Fixed(limits.limit("rate", rate)?)),
            (_, Some(rates), _) => Ok(Policy::Fixed(limits.limit("rates", rates)?)),
            (.., Some(policy)) => policy.compiled(POLICY, limits, named, 0),
            (None, None, None) => {
                let message = "is required unless `rates` or `throttlingRatePolicy` is given";
                Err(error("rate", message))
            }
        }
    }
}

/// Refuses an executor that there is not: whoever names one expects it to be.
/// Clean-up goes by the gateway's own clock, whichever is named.
fn check_executor(executor: Option<&Executor>, named: ObjectLookup<'_>) -> Result<(), ConfigError> {
    let Some(Executor::Named(name)) = executor else {
        return Ok(());
    };
    if name == DEFAULT_EXECUTOR || named(name).is_some_and(|found| Executor::is(&found)) {
        return Ok(());
    }
    let message = format!(
        "there is no executor `{name}`: declare one of type {DEFAULT_EXECUTOR} in the heap, or \
         name `{DEFAULT_EXECUTOR}`, which needs no declaration"
    );
    Err(error("executor", message))
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
