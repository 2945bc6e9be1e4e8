//! The `config` of a token broker.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::{Map, Value};
use serde_path_to_error::Segment;
use url::Url;

use super::callout::Provider;
use super::flow::{self, Flow, FlowConfig};
use doorward_core::model::key_path::PathSegment;
use doorward_core::model::schema::{Field, Schema, Source, Type, Violations};
use doorward_core::model::serde_message;
use doorward_net::http::outbound::Options;
use doorward_net::http::path::normalize;
use doorward_plugin_api::{ConfigError, Parts};

/// Longest wait for the provider, in milliseconds.
const MAX_TIMEOUT: i64 = 60_000;

/// The fields of `config`.
pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        Schema::new(vec![
            Field::new("base_path", Type::checked(check_base))
                .required()
                .aliases(&["basePath"]),
            Field::new("proxy", Type::text()),
            Field::new("token_endpoint", Type::checked(check_url)).aliases(&["tokenEndpoint"]),
            Field::new("timeout", Type::Integer(1, MAX_TIMEOUT)).default(10_000),
            Field::new("ssl_verify", Type::Boolean)
                .default(true)
                .aliases(&["sslVerify"]),
            Field::new("realm", Type::checked(check_realm)).default("null"),
            Field::new("split_codes", Type::Boolean)
                .default(false)
                .aliases(&["splitCodes"]),
            Field::new("flows", Type::array(Type::Any)).default(Value::Array(Vec::new())),
        ])
    });
    &SCHEMA
}

/// A configuration as it will run.
#[derive(Debug)]
pub(super) struct Config {
    /// Normal, without a slash at its end unless it is the root.
    pub(super) base: String,
    pub(super) proxy: String,
    pub(super) provider: Option<Provider>,
    pub(super) realm: String,
    pub(super) split_codes: bool,
    pub(super) flows: Vec<Flow>,
}

impl Config {
    /// Reads what a route file declares.
    ///
    /// # Errors
    /// [`ConfigError`] with the field at fault.
    pub(super) fn written(config: &Map<String, Value>, parts: &Parts) -> Result<Self, ConfigError> {
        let complete = schema()
            .read(config.clone(), Source::File)
            .and_then(|read| schema().complete(read));
        let complete = complete.map_err(|violations| of_schema(&violations))?;
        Self::counting(&complete, parts, 0)
    }

    /// Reads a complete `config`.
    ///
    /// # Errors
    /// [`ConfigError`] with the field at fault.
    pub(super) fn read(config: &Map<String, Value>, parts: &Parts) -> Result<Self, ConfigError> {
        Self::counting(config, parts, 1)
    }

    /// As [`Self::read`]; the fields of errors count the elements of lists from
    /// `first` on.
    fn counting(
        config: &Map<String, Value>,
        parts: &Parts,
        first: usize,
    ) -> Result<Self, ConfigError> {
        let text = |name: &str| config.get(name).and_then(Value::as_str);
        let flag = |name: &str| config.get(name).and_then(Value::as_bool);
        let base = base(text("base_path").unwrap_or_default());
        let base = base.map_err(|message| error("base_path", message))?;
        let proxy = match text("proxy") {
            Some(name) => name.to_owned(),
            None => base.trim_start_matches('/').to_owned(),
        };
        let endpoint = text("token_endpoint").map(url).transpose();
        let endpoint = endpoint.map_err(|message| error("token_endpoint", message))?;
        let timeout = config.get("timeout").and_then(Value::as_u64);
        let provider = endpoint.map(|endpoint| Provider {
            endpoint,
            options: Options {
                verify: flag("ssl_verify").unwrap_or(true),
                timeout: Duration::from_millis(timeout.unwrap_or(10_000)),
                ..Options::default()
            },
            outbound: Arc::clone(&parts.outbound),
        });
        let flows = flows(config, provider.is_some(), first)?;
        Ok(Self {
            base,
            proxy,
            provider,
            realm: text("realm").unwrap_or("null").to_owned(),
            split_codes: flag("split_codes").unwrap_or(false),
            flows,
        })
    }
}

/// The flows of a configuration.
fn flows(
    config: &Map<String, Value>,
    provider: bool,
    first: usize,
) -> Result<Vec<Flow>, ConfigError> {
    let mut flows = Vec::new();
    if let Some(Value::Array(written)) = config.get("flows") {
        for (index, flow) in written.iter().enumerate() {
            let flow: Result<FlowConfig, _> = serde_path_to_error::deserialize(flow);
            flows.push(flow.map_err(|wrong| {
                let mut place = format!("flows.{}", index + first);
                for step in wrong.path() {
                    match step {
                        Segment::Seq { index } => place.push_str(&format!(".{}", index + first)),
                        Segment::Map { key } => place.push_str(&format!(".{key}")),
                        Segment::Enum { .. } | Segment::Unknown => {}
                    }
                }
                let message = wrong.inner().to_string();
                if message.starts_with("unknown field") {
                    // The list of all that are known would be longer than a screen.
                    error(&place, "unknown field")
                } else {
                    error(&place, serde_message::plain(&message))
                }
            })?);
        }
    }
    flow::compile(flows, provider).map_err(|wrong| {
        let place = match wrong.flow {
            Some(index) => format!("flows.{}.{}", index + first, wrong.field),
            None => "flows".to_owned(),
        };
        error(&place, wrong.message)
    })
}

fn error(field: &str, message: impl Into<String>) -> ConfigError {
    ConfigError {
        field: field.to_owned(),
        message: message.into(),
    }
}

fn of_schema(violations: &Violations) -> ConfigError {
    let first = violations.flat().into_iter().next();
    let (path, message) = first.unwrap_or_else(|| (Vec::new(), violations.message()));
    let steps = path.iter().map(|step| match step {
        PathSegment::Key(key) => key.clone(),
        PathSegment::Index(index) => index.to_string(),
    });
    error(&steps.collect::<Vec<_>>().join("."), message)
}

fn base(text: &str) -> Result<String, String> {
    let normal = normalize(text).map_err(|wrong| wrong.to_string())?;
    Ok(match normal.trim_end_matches('/') {
        "" => "/".to_owned(),
        base => base.to_owned(),
    })
}

fn check_base(text: &str) -> Result<(), String> {
    base(text).map(drop)
}

fn url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url = url.ok_or_else(|| "must be an http or https URL".to_owned())?;
    // They would be in every message about it.
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold credentials".to_owned());
    }
    Ok(url)
}

fn check_url(text: &str) -> Result<(), String> {
    url(text).map(drop)
}

fn check_realm(text: &str) -> Result<(), String> {
    let legal = |c: char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\');
    if text.chars().all(legal) {
        return Ok(());
    }
    Err("must be visible ASCII without quotes and backslashes".to_owned())
}
