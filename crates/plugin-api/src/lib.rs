//! What a plugin is made of: the contract between the gateway and a filter, and
//! what a plugin may use to build its filter. It names no plugin.

pub mod config;
pub mod consumers;
pub mod filter;
pub mod identity;
pub mod record;
mod slots;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::sync::Arc;

use serde_json::{Map, Value};

use doorward_core::clock::Clock;
use doorward_core::model::schema::Schema;
use doorward_expr::Constants;
use doorward_net::http::outbound::Outbound;
use doorward_net::shared::Redis;
use doorward_net::telemetry::Metrics;

use consumers::Consumers;
use filter::{Code, Filter};
pub use slots::Slots;

/// What a plugin may use to build its filter.
#[derive(Clone)]
pub struct Parts {
    /// Wall time.
    pub clock: Clock,
    /// Requests to providers, foreign ones and the one in this process.
    pub outbound: Arc<Outbound>,
    /// Where decisions are counted.
    pub metrics: Arc<Metrics>,
    /// Whom requests can come from.
    pub consumers: Arc<Consumers>,
    /// What nodes share, if they do.
    pub redis: Option<Redis>,
    /// What the filters of one kind share, whatever plugin they belong to.
    pub slots: Slots,
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
            consumers: Arc::default(),
            redis: None,
            slots: Slots::default(),
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

impl ConfigError {
    /// The error where what is wrong lies in the field or element `outer`.
    #[must_use]
    pub fn within(mut self, outer: &str) -> Self {
        let joint = if self.field.is_empty() { "" } else { "." };
        self.field = format!("{outer}{joint}{}", self.field);
        self
    }
}

/// A kind of plugin.
pub struct Kind {
    /// Its name in plugin records.
    pub name: &'static str,
    /// Higher runs first.
    pub priority: i32,
    /// Whether it can belong to a consumer or a group of consumers: only what runs
    /// after authentication can.
    pub of_consumers: bool,
    /// The fields of its `config`, with their defaults and constraints.
    pub schema: fn() -> &'static Schema,
    /// What log and metrics call its refusals.
    pub codes: fn() -> Vec<Code>,
    /// Builds the filter of a complete, schema-valid `config`.
    pub build: fn(&Map<String, Value>, &Parts) -> Result<Arc<dyn Filter>, ConfigError>,
}
