//! What of the configuration the data path needs.

use std::sync::Arc;

use http::HeaderValue;

use super::listeners;
use crate::boot::Opened;
use crate::config::{CertificateMode, Config};
use doorward_acme::Acme;
use doorward_core::clock::Clock;
use doorward_gateway::edge::compression::Compression;
use doorward_gateway::edge::error_pages::ErrorPages;
use doorward_gateway::edge::https::Hsts;
use doorward_gateway::edge::probes::Probes;
use doorward_gateway::explain::Listeners;
use doorward_gateway::forward_auth::allowed_hosts::AllowedHosts;
use doorward_gateway::session_bound::SessionBoundConnector;
use doorward_gateway::settings::Settings;
use doorward_net::http::challenges::HttpChallenges;
use doorward_net::telemetry::access_log::AccessLog;
use doorward_net::telemetry::process_log;

/// What the data path does not change while the process runs.
pub(super) fn settings(
    config: &Config,
    clock: &Clock,
    parts: &Opened,
    access_log: Option<Arc<AccessLog>>,
    acme: Option<Arc<Acme>>,
) -> Settings {
    let Listeners {
        port: plain,
        tls_port: tls,
        trusted,
        real_ip_header,
        https_redirect,
        probes,
    } = listeners(config);
    let asked = config
        .proxy
        .tls
        .as_ref()
        .map(|tls| &tls.client_certificates);
    Settings {
        clock: clock.clone(),
        client_certificates: asked.is_some_and(|asked| asked.mode != CertificateMode::Off),
        forward_certificates: asked.is_some_and(|asked| asked.forward),
        trusted,
        real_ip_header,
        forward_auth_hosts: AllowedHosts::new(&config.proxy.forward_auth_hosts),
        https_redirect,
        compression: config.proxy.compression.clone().map(Compression::new),
        error_pages: error_pages(config),
        hsts: config.proxy.hsts.as_ref().map(Hsts::value),
        probes: Probes::new(&probes, parts.store.clone()),
        challenges: acme.map(|acme| acme as Arc<dyn HttpChallenges>),
        port: plain,
        tls_port: tls,
        // Whom a proxy in front calls https came by the only listener there is.
        port_texts: [plain, if tls == 0 { plain } else { tls }].map(HeaderValue::from),
        own_cookies: parts
            .identity
            .as_ref()
            .map_or_else(Vec::new, |identity| identity.cookie_names())
            .into(),
        request_ids: config.proxy.request_ids,
        headers: config.proxy.headers,
        error_default_type: config.proxy.error_default_type,
        allow_debug_header: config.proxy.allow_debug_header,
        access_log,
        session_bound: SessionBoundConnector::new(config.proxy.upstream_ca.as_deref()),
        destinations: parts.control.destinations(),
        unrouted: parts.telemetry.traffic.route("", ""),
        refused_requests: parts.telemetry.refused_requests.clone(),
        connections: parts.telemetry.connections.clone(),
        client_aborts: process_log::client_aborts(),
        upstreams: parts.telemetry.upstreams.clone(),
    }
}

/// The pages for failures. They were found good when the file was read, and live as
/// long as the process: workers share no count of who holds them.
fn error_pages(config: &Config) -> Option<&'static ErrorPages> {
    let files = &config.proxy.error_pages;
    if files.is_empty() {
        return None;
    }
    match ErrorPages::read(files) {
        Ok(pages) => Some(Box::leak(Box::new(pages))),
        Err(error) => {
            tracing::error!("proxy.error_pages.{}: {}", error.key, error.message);
            None
        }
    }
}
