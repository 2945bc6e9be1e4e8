//! The setting `telemetry.otlp`.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_lc_rs::digest;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;

use crate::http::outbound::Outbound;
use crate::telemetry::collector::{Collector, Endpoint, EndpointError, OWN_HEADERS, Signal};
use doorward_core::model::secret::Secret;
use doorward_expr::duration::{self, Length};

const INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(3600);
const TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(60);
/// Most headers, and most attributes.
const MOST: usize = 64;

/// Where metrics are sent.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OtlpConfig {
    /// The collector's whole address, with its path, or one of gRPC.
    pub metrics_endpoint: String,
    /// Headers of requests to it, such as one that proves who sends.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
    /// How often they are sent.
    #[serde(default = "usual_interval")]
    pub interval: String,
    /// Longest wait for the collector's answer.
    #[serde(default = "usual_timeout")]
    pub timeout: String,
    /// What is said of this process, besides its name and version.
    #[serde(default)]
    pub resource_attributes: BTreeMap<String, String>,
}

fn usual_interval() -> String {
    "60 s".to_owned()
}

fn usual_timeout() -> String {
    "10 s".to_owned()
}

/// What is wrong with a key of the setting.
pub type Finding = (&'static str, String);

/// The setting, ready for use.
pub(super) struct Target {
    pub(super) collector: Collector,
    pub(super) interval: Duration,
    pub(super) attributes: Vec<(String, String)>,
}

impl OtlpConfig {
    /// Whether it can be used.
    ///
    /// # Errors
    /// The key and what is wrong with it.
    pub fn check(&self) -> Result<(), Finding> {
        self.compile().map(drop)
    }

    /// Asks the collector to take a message without numbers.
    ///
    /// # Errors
    /// Why it does not, for operators.
    pub async fn probe(&self, outbound: &Outbound) -> Result<(), String> {
        let target = self.compile().map_err(|(_, message)| message)?;
        let taken = target.collector.export(outbound, Vec::new()).await;
        taken.map_err(|error| error.to_string())
    }

    /// What tells one text of secrets from another, and nothing else.
    pub fn fingerprint(&self) -> [u8; 32] {
        let mut context = digest::Context::new(&digest::SHA256);
        for (name, value) in &self.headers {
            for text in [name.as_str(), value.expose()] {
                context.update(&text.len().to_be_bytes());
                context.update(text.as_bytes());
            }
        }
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(context.finish().as_ref());
        fingerprint
    }

    pub(super) fn compile(&self) -> Result<Target, Finding> {
        let collector = Collector {
            endpoint: self.endpoint()?,
            headers: self.header_map()?,
            timeout: time("timeout", &self.timeout, TIMEOUTS, "100 ms and 60 s")?,
        };
        let target = Target {
            collector,
            interval: time("interval", &self.interval, INTERVALS, "1 s and 1 hour")?,
            attributes: self.attributes()?,
        };
        if target.collector.timeout > target.interval {
            let message = "must not be longer than the interval".to_owned();
            return Err(("timeout", message));
        }
        Ok(target)
    }

    fn endpoint(&self) -> Result<Endpoint, Finding> {
        let wrong = |message: &str| ("metrics_endpoint", message.to_owned());
        let expected = "expected an http or https address with its path, such as \
                        http://127.0.0.1:4318/v1/metrics, or one of gRPC, such as \
                        grpc://127.0.0.1:4317";
        let text = &self.metrics_endpoint;
        let endpoint = Endpoint::parse(text, Signal::Metrics).map_err(|error| match error {
            EndpointError::Scheme => wrong(expected),
            EndpointError::Path => wrong(&error.to_string()),
        })?;
        // The usual path is not guessed: a collector behind a proxy has another one.
        if text.contains('#') || !endpoint.has_path() {
            return Err(wrong(expected));
        }
        if endpoint.has_credentials() {
            return Err(wrong("a name and a password belong into headers"));
        }
        Ok(endpoint)
    }

    fn header_map(&self) -> Result<HeaderMap, Finding> {
        let mut headers = HeaderMap::new();
        if self.headers.len() > MOST {
            return Err(("headers", format!("there may be {MOST}")));
        }
        for (name, value) in &self.headers {
            let invalid = |_| {
                let message = format!("'{name}' is no header that can be sent");
                ("headers", message)
            };
            let key = name
                .parse::<HeaderName>()
                .map_err(|e| invalid(e.to_string()))?;
            if OWN_HEADERS.contains(&key) {
                let message = format!("'{name}' is written by the gateway itself");
                return Err(("headers", message));
            }
            let value = HeaderValue::from_str(value.expose());
            let mut value = value.map_err(|e| invalid(e.to_string()))?;
            value.set_sensitive(true);
            headers.insert(key, value);
        }
        Ok(headers)
    }

    fn attributes(&self) -> Result<Vec<(String, String)>, Finding> {
        let all = &self.resource_attributes;
        if all.len() > MOST {
            return Err(("resource_attributes", format!("there may be {MOST}")));
        }
        for (name, value) in all {
            if name.is_empty() || value.is_empty() || name.len() + value.len() > 4096 {
                let message = format!("'{name}' needs a name and a value of 4 KiB at most");
                return Err(("resource_attributes", message));
            }
        }
        Ok(all.clone().into_iter().collect())
    }
}

fn time(
    key: &'static str,
    text: &str,
    bounds: std::ops::RangeInclusive<Duration>,
    between: &str,
) -> Result<Duration, Finding> {
    match duration::parse(text) {
        Ok(Length::Finite(time)) if bounds.contains(&time) => Ok(time),
        _ => Err((
            key,
            format!("expected a time between {between}, such as `10 s`"),
        )),
    }
}
