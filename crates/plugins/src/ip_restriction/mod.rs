//! The `ip-restriction` plugin: which addresses may come in.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use http::StatusCode;
use pingora::http::RequestHeader;
use serde_json::{Map, Value};

use crate::networks::Networks;
use crate::settings::{UNEXPECTED, error_status};
use doorward_core::model::schema::{Schema, Violations};
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_net::telemetry::metrics::Counter;
use doorward_plugin_api::config::read_for_check;
use doorward_plugin_api::filter::{Code, Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Kind, Parts, config};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "ip-restriction",
    priority: 990,
    of_consumers: true,
    schema,
    codes: || vec![NOT_ALLOWED],
    build,
};

const NOT_ALLOWED: Code = Code::new(
    "address_not_allowed",
    403,
    "the client's address is denied, or not among those allowed (or the status of the plugin)",
);

config! {
    /// The fields of `config`.
    struct Config {
        /// Addresses and networks that may come in. Empty: all that are not denied.
        allow: Networks,
        /// Addresses and networks that may not come in, even if they are allowed, too.
        deny: Networks,
        /// The status of a refusal. Null: 403.
        status: Option<f64>,
        /// What a refused client is told. Null: its address.
        message: Option<Box<str>>,
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> =
        LazyLock::new(|| Schema::new(Config::fields()).check(restricts_something));
    &SCHEMA
}

fn restricts_something(config: &Map<String, Value>, violations: &mut Violations) {
    let is_empty = |config: Config| config.allow.is_empty() && config.deny.is_empty();
    // Of a list that is wrong nobody knows whether it is empty.
    let is_wrong = ["allow", "deny"].iter().any(|list| violations.has(list));
    if !is_wrong && read_for_check::<Config>(config).is_some_and(is_empty) {
        violations.put_holder(
            "at least one of these fields must be non-empty: 'config.allow', 'config.deny'",
        );
    }
}

/// A running filter.
struct IpRestriction {
    allow: Networks,
    deny: Networks,
    status: StatusCode,
    /// What clients are told; `None`: their address.
    message: Option<Box<str>>,
    warnings: Vec<String>,
    passed: Counter,
    refused: Counter,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Config::read(config)?;
    let mut message = config.message;
    let mut warnings = Vec::new();
    let status = match config.status {
        None => StatusCode::FORBIDDEN,
        Some(number) => error_status(number).unwrap_or_else(|| {
            warnings.push(format!(
                "status: {number} is no status of an error: 500 is sent"
            ));
            message = Some(UNEXPECTED.into());
            StatusCode::INTERNAL_SERVER_ERROR
        }),
    };
    let decision = |decision| parts.metrics.decision(KIND.name, decision);
    Ok(Arc::new(IpRestriction {
        allow: config.allow,
        deny: config.deny,
        status,
        message,
        warnings,
        passed: decision("pass"),
        refused: decision("refuse"),
    }))
}

impl IpRestriction {
    /// Who is denied is so even where it is allowed too.
    fn allows(&self, client: IpAddr) -> bool {
        !self.deny.contains(client) && (self.allow.is_empty() || self.allow.contains(client))
    }
}

#[async_trait]
impl Filter for IpRestriction {
    fn on_request(&self, _session: &mut Session, exchange: &mut Exchange) -> Verdict {
        let client = exchange.client.ip();
        if self.allows(client) {
            self.passed.inc();
            return Verdict::Now(Flow::Continue);
        }
        self.refused.inc();
        exchange.refusal = Some(Cow::Borrowed(NOT_ALLOWED.code));
        let message = match &self.message {
            Some(message) => message.to_string(),
            None => format!("IP address not allowed: {}", client.to_canonical()),
        };
        Verdict::Now(Flow::Respond(Reply::message(self.status, message)))
    }

    fn reads_heads(&self) -> bool {
        false
    }

    async fn explain(
        &self,
        _: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Option<FilterExplanation> {
        let status = self.status.as_u16();
        Some(if self.allows(exchange.client.ip()) {
            FilterExplanation::passes("the client's address is allowed")
        } else {
            FilterExplanation::answers(&Code {
                status,
                ..NOT_ALLOWED
            })
        })
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}
