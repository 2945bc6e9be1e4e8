//! The configuration file: composes the parts' own sections.
//!
//! Relative paths in it are relative to the directory of the file.

mod console;
mod edge;
mod relocation;
mod tls;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use http::HeaderName;
use ipnet::IpNet;
use serde::{Deserialize, Deserializer};

use doorward_acme::AcmeConfig;
use doorward_audit::AuditConfig;
use doorward_console::ConsoleConfig;
use doorward_core::model::secret::Secret;
use doorward_core::yaml::{Document, DocumentError, PathSegment};
use doorward_gateway::edge::compression::CompressionConfig;
use doorward_gateway::edge::error_pages::ErrorPageFiles;
use doorward_gateway::edge::https::{Hsts, HttpsRedirect};
use doorward_gateway::edge::probes::ProbePaths;
use doorward_gateway::own_headers::{DefaultType, OwnHeaders};
use doorward_gateway::resolve::DnsConfig;
use doorward_identity::config::IdentityConfig;
use doorward_identity::{Identity, IdentityError};
use doorward_net::shared::RedisConfig;
use doorward_net::telemetry::access_log::AccessLogConfig;
use doorward_net::telemetry::otlp::OtlpConfig;
use doorward_plugins::token_broker::config::BrokerConfig;
use doorward_store as store;

use relocation::relocate;

pub use tls::{CertificateMode, ClientCertificates, TlsConfig, TlsVersion};

/// The configuration file as it is written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where clients connect.
    pub proxy: ProxyConfig,
    /// Where operators connect.
    pub admin: AdminConfig,
    /// Certificates that an authority issues; absent: none.
    pub acme: Option<AcmeConfig>,
    /// The database: `sqlite:PATH`, or `postgres://USER@HOST/DATABASE`.
    pub store: StoreUrl,
    /// Files and directories with declared entities.
    pub entities: Vec<PathBuf>,
    /// The identity provider; absent: none.
    pub identity: Option<IdentityConfig>,
    /// The token broker's names and declared records.
    pub broker: BrokerConfig,
    /// A Redis that this node shares with others; absent: none.
    pub redis: Option<RedisConfig>,
    /// Metrics and logs.
    pub telemetry: TelemetryConfig,
    /// The audit log.
    pub audit: AuditConfig,
    /// The file that it was read from.
    #[serde(skip)]
    pub file: PathBuf,
    /// What its writer should know, though it works.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// The listeners for clients.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProxyConfig {
    /// Addresses for HTTP/1.1 and HTTP/2 without TLS.
    pub listen: Vec<String>,
    /// Who may connect to Unix sockets.
    pub socket_mode: SocketMode,
    /// Addresses for TLS.
    pub tls: Option<TlsConfig>,
    /// Whether requests without TLS are led to it.
    pub https_redirect: HttpsRedirect,
    /// What browsers are told that come by TLS; absent: nothing.
    pub hsts: Option<Hsts>,
    /// Which answers of upstreams are compressed; absent: none.
    pub compression: Option<CompressionConfig>,
    /// Pages for answers that the gateway makes itself, by status or class.
    pub error_pages: ErrorPageFiles,
    /// Health checks on the proxy's port.
    pub health: ProbePaths,
    /// Proxies in front whose `X-Forwarded-*` are believed.
    #[serde(deserialize_with = "networks")]
    pub trusted_ips: Vec<IpNet>,
    /// Proxies in front that begin each connection with a header of the PROXY
    /// protocol, version 1 or 2.
    #[serde(deserialize_with = "networks")]
    pub proxy_protocol_from: Vec<IpNet>,
    /// The header in which those of `trusted_ips` name the client. Absent: `X-Forwarded-For`, or
    /// `X-Real-IP` where that is missing.
    #[serde(deserialize_with = "header_name")]
    pub real_ip_header: Option<HeaderName>,
    /// Hosts, besides its own, of which a trusted proxy may ask `forward-auth` whether
    /// a request may pass: browsers are led back there. `*.` stands for any labels.
    pub forward_auth_hosts: Vec<String>,
    /// Worker threads; 0: one for each core.
    pub workers: usize,
    /// Whether `X-Kong-Request-Id` is made for every request.
    pub request_ids: bool,
    /// Seconds for which requests may finish after SIGTERM.
    pub drain_seconds: u64,
    /// Which of the gateway's own headers are on answers.
    pub headers: OwnHeaders,
    /// The form of messages about failed upstreams for clients that name none.
    pub error_default_type: DefaultType,
    /// Whether clients that send `Kong-Debug` learn route and service.
    pub allow_debug_header: bool,
    /// The ports that clients know, of those that are listened on.
    pub port_maps: PortMaps,
    /// File of certificate authorities for upstreams; by default the system's.
    pub upstream_ca: Option<PathBuf>,
    /// Whether certificates of https upstreams are verified where a service does
    /// not say (`tls_verify`).
    pub upstream_verify: bool,
    /// Most open client connections; 0: half of the files that the process
    /// may open.
    pub max_connections: usize,
    /// Seconds for a TLS handshake.
    pub handshake_seconds: u64,
    /// Seconds for the whole head of a connection's first request.
    pub head_seconds: u64,
    /// How the names of upstreams become addresses.
    pub dns: DnsConfig,
}

impl Default for ProxyConfig {
    fn default() -> Self {
        Self {
            listen: vec!["0.0.0.0:8000".to_owned()],
            socket_mode: SocketMode(0o660),
            tls: None,
            https_redirect: HttpsRedirect::default(),
            hsts: None,
            compression: None,
            error_pages: ErrorPageFiles::new(),
            health: ProbePaths::default(),
            trusted_ips: Vec::new(),
            proxy_protocol_from: Vec::new(),
            real_ip_header: None,
            forward_auth_hosts: Vec::new(),
            workers: 0,
            request_ids: true,
            drain_seconds: 30,
            headers: OwnHeaders::default(),
            error_default_type: DefaultType::default(),
            allow_debug_header: false,
            port_maps: PortMaps::default(),
            upstream_ca: None,
            upstream_verify: true,
            max_connections: 0,
            handshake_seconds: 15,
            head_seconds: 60,
            dns: DnsConfig::default(),
        }
    }
}

/// The path of a Unix socket, where an address to listen on is one: `unix:/PATH`.
pub fn unix_path(listen: &str) -> Option<&Path> {
    let path = Path::new(listen.strip_prefix("unix:")?);
    // The system's limit is 107 bytes, and the file has another name at first.
    let is_good = path.is_absolute() && path.as_os_str().len() <= 100;
    is_good.then_some(path)
}

/// Whether clients can connect there.
fn is_address(listen: &str) -> bool {
    listen.parse::<SocketAddr>().is_ok() || unix_path(listen).is_some()
}

/// Who may connect to Unix sockets: permissions of files, in octal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketMode(pub u32);

impl<'de> Deserialize<'de> for SocketMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mode = u32::from_str_radix(&text, 8)
            .ok()
            .filter(|mode| *mode <= 0o777);
        let message = format!("'{text}' is no mode, such as \"0660\"");
        mode.map(Self)
            .ok_or_else(|| serde::de::Error::custom(message))
    }
}

/// The ports that clients know, by those that are listened on: something in
/// front forwards the one to the other. Written as `80:8000`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortMaps(Vec<(u16, u16)>);

impl PortMaps {
    /// The port that clients know.
    pub fn known_to_clients(&self, listened: u16) -> u16 {
        let mut maps = self.0.iter();
        let found = maps.find(|(_, inside)| *inside == listened);
        found.map_or(listened, |(outside, _)| *outside)
    }
}

impl<'de> Deserialize<'de> for PortMaps {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        let pair = |text: &String| {
            let (outside, inside) = text.split_once(':')?;
            let port = |text: &str| text.parse().ok().filter(|port| *port != 0);
            Some((port(outside)?, port(inside)?))
        };
        let read = texts.iter().map(|text| {
            pair(text).ok_or_else(|| {
                let message = format!("'{text}' is not PORT:PORT, such as 80:8000");
                serde::de::Error::custom(message)
            })
        });
        read.collect::<Result<_, _>>().map(Self)
    }
}

/// The listener for operators.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdminConfig {
    /// Its address.
    pub listen: String,
    /// Who may connect to its Unix socket.
    pub socket_mode: SocketMode,
    /// What a request must carry in `Kong-Admin-Token`, or as a bearer token;
    /// required on any address but loopback.
    pub token: Option<Secret>,
    /// Host names, besides the listener's own, under which it is reached.
    pub hosts: Vec<String>,
    /// Origins of web pages that may use it, besides its own; `*`: all.
    pub cors_origins: Vec<String>,
    /// Whether keys are stored as text, and the secrets of credentials shown.
    pub show_credentials: bool,
    /// The console: whether `/console` is served, and who signs in there.
    pub console: ConsoleConfig,
    /// Its TLS listener.
    pub tls: Option<TlsConfig>,
    /// Most open connections to it.
    pub max_connections: usize,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8001".to_owned(),
            socket_mode: SocketMode(0o600),
            token: None,
            hosts: Vec::new(),
            cors_origins: Vec::new(),
            show_credentials: false,
            console: ConsoleConfig::default(),
            tls: None,
            max_connections: 256,
        }
    }
}

/// The database's address. It may hold a password: none is shown.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct StoreUrl(pub String);

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.0.split(':').next().unwrap_or_default();
        write!(f, "StoreUrl({scheme}:…)")
    }
}

impl Default for StoreUrl {
    fn default() -> Self {
        Self("sqlite:data/doorward.db".to_owned())
    }
}

/// Metrics and logs.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// Where requests are logged, how, and which.
    pub access_log: AccessLogConfig,
    /// Whether `/metrics` is served on the admin listener.
    pub metrics: bool,
    /// Whether metrics tell the routes of a service apart.
    pub route_series: bool,
    /// Where the same numbers are sent; absent: nowhere.
    pub otlp: Option<OtlpConfig>,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            access_log: AccessLogConfig::default(),
            metrics: true,
            route_series: true,
            otlp: None,
        }
    }
}

/// Why a configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file can't be read.
    #[error("{}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's word on it.
        source: std::io::Error,
    },
    /// A file is wrong.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// A file is wrong, each finding on a line of its own.
    #[error("{}", lines(.0))]
    Findings(Vec<DocumentError>),
}

/// What is wrong, and where.
type Finding = (Vec<PathSegment>, String);

fn lines(errors: &[DocumentError]) -> String {
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

impl Config {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// What can't be read, or file, line and key of what is wrong.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let text = read(file)?;
        let mut document = Document::parse(&text, file)?;
        let warnings = relocate(&mut document);
        let config = Self::of(&document, file).map_err(ConfigError::Findings);
        let mut config = config.inspect_err(|_| {
            for warning in &warnings {
                tracing::warn!("{warning}");
            }
        })?;
        config.warnings = warnings;
        Ok(config)
    }

    /// The configuration of a document that came from `file`, checked.
    fn of(document: &Document, file: &Path) -> Result<Self, Vec<DocumentError>> {
        let mut is_first = true;
        document.deserialize_checked(|config: &mut Self| {
            file.clone_into(&mut config.file);
            config.complete();
            if let Some(identity) = &mut config.identity {
                identity.file = Some(file.to_owned());
            }
            file.clone_into(&mut config.broker.file);
            // These tell all at once, and what is left out changes them.
            let mut findings = if std::mem::take(&mut is_first) {
                config.check()
            } else {
                Vec::new()
            };
            findings.extend(config.check_identity());
            findings
        })
    }

    /// What is wrong with the value of `key`, with file and line.
    pub fn wrong(&self, key: &str, message: String) -> DocumentError {
        let text = read(&self.file).unwrap_or_default();
        match Document::parse_unresolved(&text, &self.file) {
            Ok(document) => document.error(&segments(key), message),
            Err(_) => DocumentError {
                file: self.file.clone(),
                line: None,
                path: segments(key),
                message,
            },
        }
    }

    /// Fills in what depends on where it stands.
    fn complete(&mut self) {
        let sections = [
            (&mut self.proxy.tls, PROXY_TLS),
            (&mut self.admin.tls, ADMIN_TLS),
        ];
        for (section, usual) in sections {
            if let Some(tls) = section
                && tls.listen.is_empty()
            {
                tls.listen.push(usual.to_owned());
            }
        }
        self.complete_console();
    }

    /// The first thing that is wrong with the identity provider's section.
    fn check_identity(&self) -> Option<Finding> {
        match Identity::check(self.identity.clone()?) {
            Err(IdentityError::Config { path, message }) => Some((path, message)),
            _ => None,
        }
    }

    /// What serde can't see in the other sections.
    fn check(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut at = |path: &str, message: String| findings.push((segments(path), message));
        for (i, listen) in self.proxy.listen.iter().enumerate() {
            if !is_address(listen) {
                let path = format!("proxy.listen.{i}");
                at(
                    &path,
                    format!("'{listen}' is not ADDRESS:PORT or unix:/PATH"),
                );
            }
        }
        self.check_edge(&mut at);
        self.check_tls("proxy.tls", self.proxy.tls.as_ref(), &mut at);
        self.check_tls("admin.tls", self.admin.tls.as_ref(), &mut at);
        self.check_acme(&mut at);
        self.check_console(&mut at);
        let admin = self.admin.listen.parse::<SocketAddr>();
        if !is_address(&self.admin.listen) {
            let message = format!("'{}' is not ADDRESS:PORT or unix:/PATH", self.admin.listen);
            at("admin.listen", message);
        }
        self.check_admin_socket(&mut at);
        let tls = self.admin.tls.iter().flat_map(|tls| &tls.listen);
        let open = tls.map(|listen| ("admin.tls.listen", listen.parse::<SocketAddr>().ok()));
        for (path, address) in open.chain([("admin.listen", admin.ok())]) {
            let exposed = address.is_some_and(|address| !address.ip().is_loopback());
            if exposed && self.admin.token.is_none() {
                let message = "an admin listener that is not on loopback needs admin.token";
                at(path, message.to_owned());
            }
        }
        for (i, origin) in self.admin.cors_origins.iter().enumerate() {
            let message = match origin.as_str() {
                "*" if self.admin.token.is_none() => {
                    "pages of every origin need admin.token: without it, any of them could \
                     administer this gateway"
                }
                "*" => continue,
                origin if is_origin(origin) => continue,
                _ => "expected an origin such as https://console.example, or *",
            };
            at(&format!("admin.cors_origins.{i}"), message.to_owned());
        }
        let token = self.admin.token.as_ref();
        if token.is_some_and(|token| token.expose().len() < 16) {
            at("admin.token", "must have at least 16 characters".to_owned());
        }
        match store::check_address(&self.store.0) {
            Ok(()) => {}
            Err(store::StoreError::Address(wrong, _)) => at("store", wrong),
            Err(other) => at("store", other.to_string()),
        }
        if let Some(Err(error)) = self.redis.as_ref().map(RedisConfig::check) {
            let dot = if error.key().is_some() { "." } else { "" };
            let path = format!("redis{dot}{}", error.key().unwrap_or_default());
            at(&path, error.to_string());
        }
        self.check_telemetry(&mut at);
        if let Err(error) = self.broker.records() {
            let path = format!("broker.{}", error.path);
            at(path.trim_end_matches('.'), error.message);
        }
        for (key, seconds) in [
            ("handshake_seconds", self.proxy.handshake_seconds),
            ("head_seconds", self.proxy.head_seconds),
        ] {
            if !(1..=3600).contains(&seconds) {
                let message = "value should be between 1 and 3600".to_owned();
                at(&format!("proxy.{key}"), message);
            }
        }
        if self.admin.max_connections == 0 {
            let message = "value should be 1 or more".to_owned();
            at("admin.max_connections", message);
        }
        if self.proxy.workers > 256 {
            let message = "value should be between 0 and 256".to_owned();
            at("proxy.workers", message);
        }
        findings.extend(self.error_page_finding());
        findings
    }
}

impl Config {
    fn check_telemetry(&self, at: &mut impl FnMut(&str, String)) {
        if let Err((key, message)) = self.telemetry.access_log.check() {
            at(&format!("telemetry.access_log.{key}"), message);
        }
        if let Some(Err((key, message))) = self.telemetry.otlp.as_ref().map(OtlpConfig::check) {
            at(&format!("telemetry.otlp.{key}"), message);
        }
    }

    /// A socket that other users may open is as exposed as an address.
    fn check_admin_socket(&self, at: &mut impl FnMut(&str, String)) {
        let has_socket = unix_path(&self.admin.listen).is_some();
        let is_shared = self.admin.socket_mode.0 & 0o077 != 0;
        if has_socket && is_shared && self.admin.token.is_none() {
            let message = "an admin socket that other users may open needs admin.token";
            at("admin.socket_mode", message.to_owned());
        }
    }
}

/// Whether this is an origin as browsers send it (RFC 6454 §6.2).
fn is_origin(text: &str) -> bool {
    url::Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https") && url.origin().ascii_serialization() == text
    })
}

/// Where TLS is spoken unless the section says.
const PROXY_TLS: &str = "0.0.0.0:8443";
const ADMIN_TLS: &str = "127.0.0.1:8444";

/// `a.0.b` as a path.
fn segments(path: &str) -> Vec<PathSegment> {
    path.split('.')
        .map(|piece| match piece.parse() {
            Ok(index) => PathSegment::Index(index),
            Err(_) => PathSegment::from(piece),
        })
        .collect()
}

/// The text of `file`.
///
/// # Errors
/// [`ConfigError::Read`].
pub fn read(file: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(file).map_err(|source| ConfigError::Read {
        file: file.to_owned(),
        source: match source.kind() {
            io::ErrorKind::InvalidData => io::Error::other("the text is not in UTF-8"),
            _ => source,
        },
    })
}

/// Networks, or single addresses.
fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts
        .iter()
        .map(|text| {
            // Peers of Unix sockets have no address, and are known by this one.
            let text = if text == "unix:" { "0.0.0.0/32" } else { text };
            text.parse::<IpNet>()
                .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
                .map_err(|_| {
                    serde::de::Error::custom(format!("'{text}' is not an address or network"))
                })
        })
        .collect()
}

fn header_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<HeaderName>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| {
        text.parse()
            .map_err(|_| serde::de::Error::custom(format!("'{text}' is not the name of a header")))
    })
    .transpose()
}

#[cfg(test)]
mod tests;
