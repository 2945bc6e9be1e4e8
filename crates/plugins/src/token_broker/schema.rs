//! The `config` of a token broker.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::{Map, Value};
use serde_path_to_error::Segment;
use url::Url;

use super::callout::Provider;
use super::flow::{self, Flow, FlowConfig};
use doorward_core::model::key_path::PathSegment;
use doorward_core::model::schema::{Schema, Source, Type, Violations};
use doorward_core::model::serde_message;
use doorward_net::http::outbound::Options;
use doorward_net::http::path::normalize;
use doorward_plugin_api::config::{AnyText, FieldValue};
use doorward_plugin_api::{ConfigError, Parts, config};

/// Longest wait for the provider, in milliseconds.
const MAX_TIMEOUT: i64 = 60_000;

config! {
    /// The fields of `config`.
    struct Config {
        /// The path below which the endpoints of the broker are.
        #[field(required, aliases(&["basePath"]))]
        base_path: BasePath,
        /// The name of the proxy, by which products grant it. Null: base_path without its
        /// first slash.
        proxy: Option<AnyText>,
        /// The token endpoint of the provider. Null: flows must not ask it.
        #[field(aliases(&["tokenEndpoint"]))]
        token_endpoint: Option<TokenEndpoint>,
        /// Milliseconds to wait for the provider. Null: 10000.
        #[field(kind(Type::Integer(1, MAX_TIMEOUT)), default(10_000))]
        timeout: Option<u64>,
        /// Whether the certificate of the provider is verified. Null: yes.
        #[field(default(true), aliases(&["sslVerify"]))]
        ssl_verify: Option<bool>,
        /// The realm that refused clients are told. Null: the word null.
        #[field(kind(Type::checked(check_realm)), default("null"))]
        realm: Option<AnyText>,
        /// Whether a token that is well formed and unknown is refused with a code of its own.
        #[field(default(false), aliases(&["splitCodes"]))]
        split_codes: bool,
        /// What happens with requests, in order. Empty: the usual flows.
        #[field(default(Value::Array(Vec::new())))]
        flows: Vec<Value>,
    }
}

/// The fields of `config`.
pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(Config::fields()));
    &SCHEMA
}

/// A path in normal form, without a slash at its end unless it is the root.
struct BasePath(String);

impl BasePath {
    fn parse(text: &str) -> Result<Self, String> {
        let normal = normalize(text).map_err(|wrong| wrong.to_string())?;
        Ok(Self(match normal.trim_end_matches('/') {
            "" => "/".to_owned(),
            base => base.to_owned(),
        }))
    }
}

impl FieldValue for BasePath {
    fn kind() -> Type {
        Type::checked(|text| Self::parse(text).map(drop))
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let base = Self::parse(value.as_str().unwrap_or_default());
        base.map_err(|message| error("", message))
    }
}

/// A URL of HTTP without credentials: they would be in every message about it.
struct TokenEndpoint(Url);

impl TokenEndpoint {
    fn parse(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).ok();
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let url = url.ok_or_else(|| "must be an http or https URL".to_owned())?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must not hold credentials".to_owned());
        }
        Ok(Self(url))
    }
}

impl FieldValue for TokenEndpoint {
    fn kind() -> Type {
        Type::checked(|text| Self::parse(text).map(drop))
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let url = Self::parse(value.as_str().unwrap_or_default());
        url.map_err(|message| error("", message))
    }
}

/// What a broker does, as it is configured.
#[derive(Debug)]
pub(super) struct Rules {
    /// Normal, without a slash at its end unless it is the root.
    pub(super) base: String,
    pub(super) proxy: String,
    pub(super) provider: Option<Provider>,
    pub(super) realm: String,
    pub(super) split_codes: bool,
    pub(super) flows: Vec<Flow>,
}

impl Rules {
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
        let config = Config::read(config)?;
        let base = config.base_path.0;
        let proxy = match config.proxy {
            Some(name) => name.0,
            None => base.trim_start_matches('/').to_owned(),
        };
        let provider = config.token_endpoint.map(|endpoint| Provider {
            endpoint: endpoint.0,
            options: Options {
                verify: config.ssl_verify.unwrap_or(true),
                timeout: Duration::from_millis(config.timeout.unwrap_or(10_000)),
                ..Options::default()
            },
            outbound: Arc::clone(&parts.outbound),
        });
        let flows = flows(&config.flows, provider.is_some(), first)?;
        Ok(Self {
            base,
            proxy,
            provider,
            realm: config
                .realm
                .map_or_else(|| "null".to_owned(), |realm| realm.0),
            split_codes: config.split_codes,
            flows,
        })
    }
}

/// The flows of a configuration.
fn flows(written: &[Value], provider: bool, first: usize) -> Result<Vec<Flow>, ConfigError> {
    let mut flows = Vec::new();
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

fn check_realm(text: &str) -> Result<(), String> {
    let legal = |c: char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\');
    if text.chars().all(legal) {
        return Ok(());
    }
    Err("must be visible ASCII without quotes and backslashes".to_owned())
}
