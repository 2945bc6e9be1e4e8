//! Plugins: what can be configured in front of an upstream.
//!
//! A plugin is the configured record; the
//! [`Filter`](doorward_plugin_api::filter::Filter) is what it becomes at
//! run time. A new plugin is its own file or folder, its `mod` line, and its
//! line in [`REGISTRY`].

mod acl;
pub mod authentication;
pub mod basic_auth;
mod bot_detection;
pub mod chain;
mod correlation_id;
mod cors;
pub mod delivery;
mod field_rules;
mod grpc_web;
pub mod hmac_auth;
mod ip_restriction;
mod json_object;
pub mod jwt;
mod key_auth;
mod ldap_auth;
mod logging;
mod mcp;
mod networks;
pub mod oauth2;
mod oauth2_client;
mod prometheus;
mod proxy_cache;
mod rate_limiting;
mod redirect;
mod redis_settings;
pub mod request_guard;
mod request_size_limiting;
mod request_tables;
mod request_termination;
mod request_transformer;
mod resource_server;
mod response_ratelimiting;
mod response_transformer;
pub mod session;
mod settings;
mod standard_webhooks;
mod statsd;
mod template;
#[cfg(test)]
pub(crate) mod testing;
pub mod throttling;
pub mod token_broker;
pub mod trace;

use doorward_openid_connect as openid_connect;
use doorward_plugin_api::Kind;

pub use logging::leaves_field_out;

/// Every kind of plugin.
pub static REGISTRY: &[Kind] = &[
    acl::KIND,
    basic_auth::KIND,
    bot_detection::KIND,
    correlation_id::KIND,
    cors::KIND,
    statsd::datadog::KIND,
    logging::file_log::KIND,
    grpc_web::KIND,
    hmac_auth::KIND,
    logging::http_log::KIND,
    logging::loggly::KIND,
    ip_restriction::KIND,
    jwt::KIND,
    key_auth::KIND,
    ldap_auth::KIND,
    mcp::KIND,
    oauth2::KIND,
    openid_connect::KIND,
    prometheus::KIND,
    proxy_cache::KIND,
    rate_limiting::KIND,
    redirect::KIND,
    request_guard::KIND,
    request_size_limiting::KIND,
    request_termination::KIND,
    request_transformer::KIND,
    response_ratelimiting::KIND,
    response_transformer::KIND,
    session::KIND,
    statsd::KIND,
    logging::syslog::KIND,
    logging::tcp_log::KIND,
    standard_webhooks::KIND,
    throttling::KIND,
    token_broker::KIND,
    trace::opentelemetry::KIND,
    trace::zipkin::KIND,
    logging::udp_log::KIND,
];

/// The kind called `name`.
pub fn kind(name: &str) -> Option<&'static Kind> {
    REGISTRY.iter().find(|kind| kind.name == name)
}
