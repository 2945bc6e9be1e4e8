//! The configuration file: composes the parts' own sections.
//!
//! Relative paths in it are relative to the working directory.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use http::HeaderName;
use ipnet::IpNet;
use serde::{Deserialize, Deserializer};

use crate::audit::AuditConfig;
use crate::gateway::resolve::DnsConfig;
use crate::http::cipher_suites;
use crate::identity::config::IdentityConfig;
use crate::identity::{Identity, IdentityError};
use crate::model::client::Profile;
use crate::model::secret::Secret;
use crate::plugins::token_broker::config::BrokerConfig;
use crate::shared::RedisConfig;
use crate::store;
use crate::yaml::{Document, DocumentError, PathSegment};

/// The configuration file as it is written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where clients connect.
    pub proxy: ProxyConfig,
    /// Where operators connect.
    pub admin: AdminConfig,
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
}

/// The listeners for clients.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProxyConfig {
    /// Addresses for HTTP/1.1 and HTTP/2 without TLS.
    pub listen: Vec<String>,
    /// Addresses for TLS.
    pub tls: Option<TlsConfig>,
    /// Proxies in front whose `X-Forwarded-*` are believed.
    #[serde(deserialize_with = "networks")]
    pub trusted_ips: Vec<IpNet>,
    /// The header in which they name the client. Absent: `X-Forwarded-For`, or
    /// `X-Real-IP` where that is missing.
    #[serde(deserialize_with = "header_name")]
    pub real_ip_header: Option<HeaderName>,
    /// Worker threads; 0: one for each core.
    pub workers: usize,
    /// Whether `X-Kong-Request-Id` is made for every request.
    pub request_ids: bool,
    /// Seconds for which requests may finish after SIGTERM.
    pub drain_seconds: u64,
    /// File of certificate authorities for upstreams; by default the system's.
    pub upstream_ca: Option<PathBuf>,
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
            tls: None,
            trusted_ips: Vec::new(),
            real_ip_header: None,
            workers: 0,
            request_ids: true,
            drain_seconds: 30,
            upstream_ca: None,
            max_connections: 0,
            handshake_seconds: 15,
            head_seconds: 60,
            dns: DnsConfig::default(),
        }
    }
}

/// TLS listeners and their default certificate.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// Addresses; by default the usual port of the section.
    pub listen: Vec<String>,
    /// PEM file with the certificate chain for clients whose server name no
    /// certificate of the entities has; without one, it is generated.
    pub certificate: Option<PathBuf>,
    /// PEM file with the private key.
    pub key: Option<PathBuf>,
    /// The oldest version that is spoken.
    pub min_version: TlsVersion,
    /// Names of the cipher suites that are offered, the preferred one first; none:
    /// all of TLS 1.3, and those of TLS 1.2 with AES-GCM.
    pub cipher_suites: Vec<String>,
    /// Whether clients show certificates.
    pub client_certificates: ClientCertificates,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    #[serde(rename = "TLSv1.2")]
    V12,
    /// TLS 1.3.
    #[serde(rename = "TLSv1.3")]
    V13,
}

/// Certificates of clients.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientCertificates {
    /// Whether they are asked for.
    pub mode: CertificateMode,
    /// PEM file of the authorities that clients' certificates are verified by.
    pub ca: Option<PathBuf>,
    /// Whether upstreams are told, in `Client-Cert` and `X-Client-Cert-*`.
    pub forward: bool,
}

/// Whether clients are asked for certificates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CertificateMode {
    /// They are not.
    #[default]
    Off,
    /// They are; one that is shown must be good.
    Optional,
    /// Nobody gets in without one.
    Required,
}

/// The listener for operators.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdminConfig {
    /// Its address.
    pub listen: String,
    /// What a request must carry in `Kong-Admin-Token`; required on any
    /// address but loopback.
    pub token: Option<Secret>,
    /// Host names, besides the listener's own, under which it is reached.
    pub hosts: Vec<String>,
    /// Its TLS listener.
    pub tls: Option<TlsConfig>,
    /// Most open connections to it.
    pub max_connections: usize,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8001".to_owned(),
            token: None,
            hosts: Vec::new(),
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
    /// `stdout`, `off`, or a file to append to.
    pub access_log: String,
    /// Whether `/metrics` is served on the admin listener.
    pub metrics: bool,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            access_log: "stdout".to_owned(),
            metrics: true,
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
}

impl Config {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// What can't be read, or file, line and key of what is wrong.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let text = read(file)?;
        let document = Document::parse(&text, file)?;
        let mut config: Config = document.deserialize()?;
        config.complete();
        if let Some(identity) = &mut config.identity {
            identity.file = Some(file.to_owned());
        }
        file.clone_into(&mut config.broker.file);
        config.check(&document)?;
        Ok(config)
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
    }

    /// What serde can't see.
    fn check(&self, document: &Document) -> Result<(), DocumentError> {
        let at = |path: &str, message: String| Err(document.error(&segments(path), message));
        for (i, listen) in self.proxy.listen.iter().enumerate() {
            if listen.parse::<SocketAddr>().is_err() {
                let path = format!("proxy.listen.{i}");
                return at(&path, format!("'{listen}' is not ADDRESS:PORT"));
            }
        }
        self.check_tls("proxy.tls", self.proxy.tls.as_ref(), document)?;
        self.check_tls("admin.tls", self.admin.tls.as_ref(), document)?;
        let Ok(admin) = self.admin.listen.parse::<SocketAddr>() else {
            let message = format!("'{}' is not ADDRESS:PORT", self.admin.listen);
            return at("admin.listen", message);
        };
        let tls = self.admin.tls.iter().flat_map(|tls| &tls.listen);
        let open = tls.map(|listen| ("admin.tls.listen", listen.parse::<SocketAddr>().ok()));
        for (path, address) in open.chain([("admin.listen", Some(admin))]) {
            let exposed = address.is_some_and(|address| !address.ip().is_loopback());
            if exposed && self.admin.token.is_none() {
                let message = "an admin listener that is not on loopback needs admin.token";
                return at(path, message.to_owned());
            }
        }
        if self
            .admin
            .token
            .as_ref()
            .is_some_and(|t| t.expose().len() < 16)
        {
            return at("admin.token", "must have at least 16 characters".to_owned());
        }
        if store::check_address(&self.store.0).is_err() {
            let expected = "expected sqlite:PATH or postgres://USER@HOST/DATABASE";
            return at("store", expected.to_owned());
        }
        if let Some(Err(error)) = self.redis.as_ref().map(RedisConfig::check) {
            let dot = if error.key().is_some() { "." } else { "" };
            let path = format!("redis{dot}{}", error.key().unwrap_or_default());
            return at(&path, error.to_string());
        }
        if let Some(identity) = &self.identity
            && let Err(IdentityError::Config { path, message }) = Identity::check(identity.clone())
        {
            return Err(document.error(&path, message));
        }
        if let Err(error) = self.broker.records() {
            let path = format!("broker.{}", error.path);
            return at(path.trim_end_matches('.'), error.message);
        }
        for (key, seconds) in [
            ("handshake_seconds", self.proxy.handshake_seconds),
            ("head_seconds", self.proxy.head_seconds),
        ] {
            if !(1..=3600).contains(&seconds) {
                let message = "value should be between 1 and 3600".to_owned();
                return at(&format!("proxy.{key}"), message);
            }
        }
        if self.admin.max_connections == 0 {
            let message = "value should be 1 or more".to_owned();
            return at("admin.max_connections", message);
        }
        if self.proxy.workers > 256 {
            return at(
                "proxy.workers",
                "value should be between 0 and 256".to_owned(),
            );
        }
        Ok(())
    }
}

impl Config {
    /// A declared client of the FAPI 2.0 Security Profile.
    fn fapi2_client(&self) -> Option<&str> {
        let realms = self
            .identity
            .iter()
            .flat_map(|identity| identity.realms.values());
        let mut clients = realms.flat_map(|realm| &realm.clients);
        let found = clients.find(|client| client.profile == Some(Profile::Fapi2))?;
        Some(&found.client_id)
    }

    fn check_tls(
        &self,
        path: &str,
        section: Option<&TlsConfig>,
        document: &Document,
    ) -> Result<(), DocumentError> {
        let Some(tls) = section else {
            return Ok(());
        };
        let at = |key: &str, message: &str| {
            let path = format!("{path}{key}");
            Err(document.error(&segments(&path), message.to_owned()))
        };
        for (i, listen) in tls.listen.iter().enumerate() {
            if listen.parse::<SocketAddr>().is_err() {
                let message = format!("'{listen}' is not ADDRESS:PORT");
                return at(&format!(".listen.{i}"), &message);
            }
        }
        match (&tls.certificate, &tls.key) {
            (Some(_), None) => return at(".certificate", "needs its key"),
            (None, Some(_)) => return at(".key", "needs its certificate"),
            _ => {}
        }
        let named = |place: Option<usize>| match place {
            Some(place) => format!(".cipher_suites.{place}"),
            None => ".cipher_suites".to_owned(),
        };
        let with_12 = tls.min_version == TlsVersion::V12;
        if let Err((place, message)) = cipher_suites::check(&tls.cipher_suites, with_12) {
            return at(&named(place), &message);
        }
        if let Some(client_id) = self.fapi2_client()
            && let Some(place) = cipher_suites::unfit_for_fapi2(&tls.cipher_suites)
        {
            let message = format!("the client '{client_id}' with profile fapi2 rules this one out");
            return at(&named(Some(place)), &message);
        }
        let asked = &tls.client_certificates;
        if asked.mode != CertificateMode::Off && asked.ca.is_none() {
            return at(
                ".client_certificates.mode",
                "needs ca, a file of authorities",
            );
        }
        if asked.mode == CertificateMode::Off && asked.forward {
            return at(".client_certificates.forward", "has no effect without mode");
        }
        Ok(())
    }
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
        source,
    })
}

/// Networks, or single addresses.
fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts
        .iter()
        .map(|text| {
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
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let file = Path::new("d.yaml");
        let document = Document::parse(text, file).expect("YAML");
        let config = match document.deserialize::<Config>() {
            Ok(config) => config,
            Err(error) => return error.to_string(),
        };
        let mut config = config;
        config.complete();
        config.check(&document).expect_err("refused").to_string()
    }

    #[test]
    fn an_error_names_file_line_and_key() {
        assert_eq!(
            refused("proxy:\n  listen: [\"nowhere\"]\n"),
            "d.yaml:2: proxy.listen[0]: 'nowhere' is not ADDRESS:PORT"
        );
        assert!(
            refused("proxy:\n  lisen: []\n").starts_with("d.yaml:2: proxy.lisen: unknown field")
        );
        assert!(refused("proxy:\n  trusted_ips: [x]\n").contains("'x' is not an address"));
        let header = refused("proxy:\n  real_ip_header: a b\n");
        assert!(
            header.contains("'a b' is not the name of a header"),
            "{header}"
        );
    }

    #[test]
    fn a_wrong_user_is_named_with_its_line() {
        let text = "identity:\n  realms:\n    /:\n      users:\n        - userName: demo\n          emails: [{value: 5}]\n";
        assert_eq!(
            refused(text),
            "d.yaml:6: identity.realms./.users[0].emails[0].value: expected a string"
        );
    }

    #[test]
    fn half_a_tls_section_is_refused_with_its_line() {
        let message = refused("proxy:\n  tls:\n    certificate: a.pem\n");
        assert_eq!(message, "d.yaml:3: proxy.tls.certificate: needs its key");
        let message = refused("proxy:\n  tls:\n    client_certificates: {mode: required}\n");
        assert!(message.contains("mode: needs ca"), "{message}");
        let message = refused("admin:\n  tls: {listen: [\"0.0.0.0:8444\"]}\n");
        assert!(message.contains("needs admin.token"), "{message}");
        let message = refused("proxy:\n  tls: {min_version: SSLv3}\n");
        assert!(message.contains("min_version"), "{message}");
    }

    #[test]
    fn a_redis_is_an_address_or_a_map_and_what_is_wrong_is_named() {
        let accepted = |text: &str| {
            let document = Document::parse(text, Path::new("d.yaml")).expect("YAML");
            let config: Config = document.deserialize().expect("a configuration");
            config.check(&document).expect("fine");
            config.redis.expect("a Redis")
        };
        let short = accepted("redis: redis://user:sesame@127.0.0.1:6379/2\n");
        assert_eq!(short.deadline, "50 ms");
        let long = accepted("redis:\n  url: redis://h\n  password: sesame\n  deadline: 20 ms\n");
        assert!(!format!("{short:?} {long:?}").contains("sesame"));
        for (text, message) in [
            (
                "redis: http://h\n",
                "d.yaml:1: redis: expected redis://[USER",
            ),
            ("redis: sesame\n", "d.yaml:1: redis: expected redis://[USER"),
            ("redis: {}\n", "d.yaml:1: redis: missing field `url`"),
            (
                "redis:\n  url: redis://h\n  deadline: 1 h\n",
                "d.yaml:3: redis.deadline: expected",
            ),
            (
                "redis:\n  url: redis://h\n  pasword: x\n",
                "d.yaml:3: redis.pasword: unknown field",
            ),
            (
                "redis:\n  url: rediss://h\n  ca: /no/such\n",
                "d.yaml:3: redis.ca: /no/such",
            ),
        ] {
            let refused = refused(text);
            assert!(refused.starts_with(message), "{refused}");
            assert!(!refused.contains("sesame"), "{refused}");
        }
    }

    #[test]
    fn an_open_admin_listener_without_token_is_refused() {
        let message = refused("admin:\n  listen: 0.0.0.0:8001\n");
        assert!(message.starts_with("d.yaml:2: admin.listen: "), "{message}");
        let message = refused("admin:\n  listen: 0.0.0.0:8001\n  token: short\n");
        assert!(message.starts_with("d.yaml:3: admin.token: "), "{message}");
    }
}
