//! Filters of route files, and of plugins, by themselves, for tests.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use serde_json::Value;

use doorward_core::model::schema::Source;
use doorward_plugin_api::filter::Filter;
pub(crate) use doorward_plugin_api::testing::{decide, parts, session};
use doorward_plugin_api::{ConfigError, Kind, Parts};

use crate::chain::{ObjectLookup, chain_kind};

/// The filter of a route file's declaration.
pub(crate) fn chain_filter(
    parts: &Parts,
    type_name: &str,
    config: &Value,
    named: ObjectLookup<'_>,
) -> Result<Arc<dyn Filter>, ConfigError> {
    let kind = chain_kind(type_name).unwrap();
    (kind.build)(config.as_object().unwrap(), parts, named)
}

/// The filter of a plugin with this `config`, or what is wrong with it: the
/// schema's words, or else the builder's.
pub(crate) fn plugin(kind: &Kind, config: &Value) -> Result<Arc<dyn Filter>, String> {
    plugin_with(kind, config, &parts())
}

/// The same with these parts.
pub(crate) fn plugin_with(
    kind: &Kind,
    config: &Value,
    parts: &Parts,
) -> Result<Arc<dyn Filter>, String> {
    let schema = (kind.schema)();
    let read = schema.read(config.as_object().unwrap().clone(), Source::Json);
    let complete = read.and_then(|read| schema.complete(read));
    let complete = complete.map_err(|violations| violations.message())?;
    (kind.build)(&complete, parts).map_err(|error| error.to_string())
}
