//! The types of filters that route files put into their chains.
//!
//! A type is its file, its `mod` line and its line in [`CHAIN`]. Types that are
//! known and not served are in `refused`, each with what to use instead.
//! What decides between handlers (`Chain`, `SwitchFilter` and their like) is
//! part of the tree of handlers and not here.

mod assignment;
mod basic_auth;
mod cookies;
mod field;
mod header;
mod location;
pub(super) mod object;
mod origin;
mod path_rewrite;
mod refused;
pub(super) mod settings;
mod static_request;
pub(super) mod trust;

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::{oauth2_client, resource_server, throttling, token_broker};
use doorward_plugin_api::filter::Filter;
use doorward_plugin_api::{ConfigError, Parts};
use object::{Object, Reference};
pub use refused::refused;
use settings::Reading;
pub use trust::Trust;

/// The declaration, `{type, config}`, of the object that a configuration
/// refers to by this name.
pub type ObjectLookup<'a> = &'a dyn Fn(&str) -> Option<Value>;

/// A type of filter that route files can put into a chain.
pub struct ChainKind {
    /// The `type` of its declarations: the current name, then older ones.
    pub types: &'static [&'static str],
    /// Builds the filter of a `config`.
    ///
    /// # Errors
    /// [`ConfigError`] with the path of the field at fault.
    pub build: Build,
}

/// Makes a filter of a `config`, which may refer to objects by name.
pub type Build =
    fn(&Map<String, Value>, &Parts, ObjectLookup<'_>) -> Result<Arc<dyn Filter>, ConfigError>;

/// Every type of filter.
pub static CHAIN: &[ChainKind] = &[
    ChainKind {
        types: &["AssignmentFilter"],
        build: assignment::build,
    },
    ChainKind {
        types: &["CookieFilter"],
        build: cookies::build,
    },
    ChainKind {
        types: &["HeaderFilter"],
        build: header::build,
    },
    ChainKind {
        types: &["HttpBasicAuthFilter"],
        build: basic_auth::build,
    },
    ChainKind {
        types: &["LocationHeaderFilter"],
        build: location::build,
    },
    oauth2_client::KIND,
    resource_server::KIND,
    ChainKind {
        types: &["StaticRequestFilter"],
        build: static_request::build,
    },
    ChainKind {
        types: &["ThrottlingFilter"],
        build: throttling::filter::build_named,
    },
    token_broker::CHAIN_KIND,
    ChainKind {
        types: &["UriPathRewriteFilter"],
        build: path_rewrite::build,
    },
];

/// The kind whose declarations have this `type`.
pub fn chain_kind(type_name: &str) -> Option<&'static ChainKind> {
    CHAIN.iter().find(|kind| kind.types.contains(&type_name))
}

/// What the client handler of `config` verifies, and what an operator should
/// know of that.
///
/// # Errors
/// [`ConfigError`] with the path of the field at fault.
pub fn trust(
    config: &Map<String, Value>,
    parts: &Parts,
    named: ObjectLookup<'_>,
) -> Result<(Trust, Vec<String>), ConfigError> {
    let reading = Reading::new(parts, named);
    let trust = trust::ClientTrust::read(&reading.config(config))?.read_trust()?;
    Ok((trust, reading.into_warnings()))
}

/// Checks a handler through which the gateway itself asks endpoints, such as a
/// `providerHandler`: a client handler, or a chain in front of one.
///
/// # Errors
/// [`ConfigError`] with the path of the field at fault, below `handler`.
pub fn check_client(
    handler: &Value,
    parts: &Parts,
    named: ObjectLookup<'_>,
) -> Result<(), ConfigError> {
    const FIELD: &str = "handler";
    let config = Map::from_iter([(FIELD.to_owned(), handler.clone())]);
    let reading = Reading::new(parts, named);
    let handler = reading.config(&config).field::<Reference>(&[FIELD])?;
    resource_server::check_client(&handler)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_type_is_served_once_or_refused() {
        let mut seen = HashSet::new();
        for name in CHAIN.iter().flat_map(|kind| kind.types) {
            assert!(seen.insert(name), "{name} is there twice");
            assert_eq!(refused(name), None, "{name} is served");
        }
        assert!(chain_kind("ThrottlingFilter").is_some());
        assert!(chain_kind("throttlingfilter").is_none());
    }
}
