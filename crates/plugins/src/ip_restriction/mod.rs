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

use crate::networks::{self, Networks};
use crate::settings::{Settings, UNEXPECTED, error_status, wrong};
use doorward_core::model::schema::{Field, Schema, Type, Violations};
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_net::telemetry::metrics::Counter;
use doorward_plugin_api::filter::{Code, Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Kind, Parts};

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

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let list = || Type::array(Type::checked(networks::check));
        Schema::new(vec![
            Field::new("allow", list()),
            Field::new("deny", list()),
            Field::new("status", Type::Number),
            Field::new("message", Type::some_text()),
        ])
        .check(restricts_something)
    });
    &SCHEMA
}

fn restricts_something(config: &Map<String, Value>, violations: &mut Violations) {
    let config = Settings(config);
    let empty = |field| {
        let list = config.get(field);
        list.is_none_or(|list| list.as_array().is_some_and(Vec::is_empty))
    };
    if empty("allow") && empty("deny") {
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
    let config = Settings(config);
    let read = |field| {
        let networks = Networks::read(config.texts(field));
        networks.map_err(|message| wrong(field, message))
    };
    let mut message = config.some_text("message").map(Box::from);
    let mut warnings = Vec::new();
    let status = match config.number("status") {
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
        allow: read("allow")?,
        deny: read("deny")?,
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
