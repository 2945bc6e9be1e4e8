//! Settings and counters of the data path.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use ipnet::IpNet;

use super::edge::compression::Compression;
use super::edge::error_pages::ErrorPages;
use super::edge::https::HttpsRedirect;
use super::edge::probes::Probes;
use super::forward_auth::allowed_hosts::AllowedHosts;
use super::handler::Destinations;
use super::own_cookies::OwnCookies;
use super::own_headers::{DefaultType, OwnHeaders};
use super::session_bound::SessionBoundConnector;
use doorward_core::clock::Clock;
use doorward_net::http::challenges::HttpChallenges;
use doorward_net::telemetry::access_log::AccessLog;
use doorward_net::telemetry::client_aborts::ClientAborts;
use doorward_net::telemetry::connections::Connections;
use doorward_net::telemetry::refused_requests::RefusedRequests;
use doorward_net::telemetry::traffic::RouteTraffic;
use doorward_net::telemetry::upstreams::UpstreamMetrics;

/// Settings and counters of the data path.
pub struct Settings {
    /// Wall time.
    pub clock: Clock,
    /// Proxies whose `X-Forwarded-*` are believed.
    pub trusted: Box<[IpNet]>,
    /// The header in which they name the client, if the file says which.
    pub real_ip_header: Option<HeaderName>,
    /// Hosts that sub-requests of proxies may speak of.
    pub forward_auth_hosts: AllowedHosts,
    /// Whether requests without TLS are led to it.
    pub https_redirect: HttpsRedirect,
    /// What browsers are told that came by TLS.
    pub hsts: Option<HeaderValue>,
    /// Compresses answers of upstreams, if anything does.
    pub compression: Option<Compression>,
    /// Pages for answers that the gateway makes itself.
    pub error_pages: Option<&'static ErrorPages>,
    /// Health checks on the proxy's port.
    pub probes: Option<Probes>,
    /// Answers to certificate authorities, where this process orders certificates.
    pub challenges: Option<Arc<dyn HttpChallenges>>,
    /// Port of the plain listener.
    pub port: u16,
    /// Port of the TLS listener.
    pub tls_port: u16,
    /// Both ports, plain and TLS, as text.
    pub port_texts: [HeaderValue; 2],
    /// Whether clients are asked for certificates.
    pub client_certificates: bool,
    /// Whether upstreams are told of clients' certificates.
    pub forward_certificates: bool,
    /// Cookies that no upstream gets.
    pub own_cookies: OwnCookies,
    /// Whether `X-Kong-*` headers and `Via` are added for clients and upstreams.
    pub request_ids: bool,
    /// The gateway's own headers that answers have.
    pub headers: OwnHeaders,
    /// The form of messages about failed upstreams for clients that name none.
    pub error_default_type: DefaultType,
    /// Whether clients that send `Kong-Debug` learn route and service.
    pub allow_debug_header: bool,
    /// Where requests are logged, if they are.
    pub access_log: Option<Arc<AccessLog>>,
    /// Makes the connections of answers that end with sessions.
    pub session_bound: SessionBoundConnector,
    /// Where requests of route files go.
    pub destinations: Destinations,
    /// Counters of requests that no route matched.
    pub unrouted: Arc<RouteTraffic>,
    /// Requests that were refused last.
    pub refused_requests: RefusedRequests,
    /// Open client connections.
    pub connections: Connections,
    /// Clients that left.
    pub client_aborts: ClientAborts,
    /// Failed tries at upstreams.
    pub upstreams: UpstreamMetrics,
}
