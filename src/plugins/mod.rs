//! Plugins: what can be configured in front of an upstream.
//!
//! A plugin is the configured record; the [`Filter`] is what it becomes at
//! run time. A new plugin is its own file or folder, its `mod` line, and its
//! line in [`REGISTRY`].

pub mod chain;
pub mod consumers;
mod oauth2_client;
pub mod openid_connect;
pub mod request_guard;
mod resource_server;
#[cfg(test)]
pub(crate) mod testing;
pub mod throttling;
pub mod token_broker;

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::clock::Clock;
use crate::expr::Constants;
use crate::filter::{Code, Filter};
use crate::http::outbound::Outbound;
use crate::model::schema::Schema;
use crate::shared::Redis;
use crate::telemetry::Metrics;

use consumers::Consumers;
use openid_connect::{Providers, Storages};
use token_broker::Broker;

/// What a plugin may use to build its filter.
#[derive(Clone)]
pub struct Parts {
    /// Wall time.
    pub clock: Clock,
    /// Requests to providers, foreign ones and the one in this process.
    pub outbound: Arc<Outbound>,
    /// Where decisions are counted.
    pub metrics: Arc<Metrics>,
    /// The OpenID providers in use: plugins that name one issuer share its keys.
    pub providers: Arc<Providers>,
    /// Where login sessions are kept, and which of them are over.
    pub storages: Arc<Storages>,
    /// Whom requests can come from.
    pub consumers: Arc<Consumers>,
    /// What nodes share, if they do.
    pub redis: Option<Redis>,
    /// Applications and tokens of the token broker; `None` where nothing is
    /// served.
    pub broker: Option<Arc<Broker>>,
    /// What tells the filter to be built from every other: the plugin's id,
    /// the same on all nodes.
    pub scope: Arc<str>,
    /// What expressions of the plugin may use by name: the properties of the
    /// route file that it stands in.
    pub constants: Arc<Constants>,
}

impl Parts {
    /// The parts of a process.
    pub fn new(clock: Clock, outbound: Arc<Outbound>, metrics: Arc<Metrics>) -> Self {
        Self {
            clock,
            outbound,
            metrics,
            providers: Arc::default(),
            storages: Arc::default(),
            consumers: Arc::default(),
            redis: None,
            broker: None,
            scope: Arc::default(),
            constants: Arc::default(),
        }
    }

    /// The parts for one plugin.
    #[must_use]
    pub fn scoped(&self, scope: &str) -> Self {
        Self {
            scope: scope.into(),
            ..self.clone()
        }
    }
}

/// Why a plugin's configuration can't become a filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct ConfigError {
    /// Dotted path of the field inside `config`, for instance `rate.duration`.
    pub field: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

/// A kind of plugin.
pub struct Kind {
    /// Its name in plugin records.
    pub name: &'static str,
    /// Higher runs first.
    pub priority: i32,
    /// Whether it can belong to a consumer: only what runs after
    /// authentication can.
    pub of_consumers: bool,
    /// The fields of its `config`, with their defaults and constraints.
    pub schema: fn() -> &'static Schema,
    /// What log and metrics call its refusals.
    pub codes: fn() -> Vec<Code>,
    /// Builds the filter of a complete, schema-valid `config`.
    pub build: fn(&Map<String, Value>, &Parts) -> Result<Arc<dyn Filter>, ConfigError>,
}

/// Every kind of plugin.
pub static REGISTRY: &[Kind] = &[
    openid_connect::KIND,
    request_guard::KIND,
    throttling::KIND,
    token_broker::KIND,
];

/// The kind called `name`.
pub fn kind(name: &str) -> Option<&'static Kind> {
    REGISTRY.iter().find(|kind| kind.name == name)
}
