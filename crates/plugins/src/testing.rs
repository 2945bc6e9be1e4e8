//! Filters of route files by themselves, for tests.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use serde_json::Value;

use doorward_plugin_api::filter::Filter;
pub(crate) use doorward_plugin_api::testing::{decide, parts, session};
use doorward_plugin_api::{ConfigError, Parts};

use crate::chain::{Named, chain_kind};

/// The filter of a route file's declaration.
pub(crate) fn chain_filter(
    parts: &Parts,
    type_name: &str,
    config: &Value,
    named: Named<'_>,
) -> Result<Arc<dyn Filter>, ConfigError> {
    let kind = chain_kind(type_name).unwrap();
    (kind.build)(config.as_object().unwrap(), parts, named)
}
