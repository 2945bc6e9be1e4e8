//! The configuration file: composes the parts' own sections.
//!
//! Relative paths in it are relative to the working directory.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer};

use crate::identity::config::IdentityConfig;
use crate::identity::{Identity, IdentityError};
use crate::model::secret::Secret;
use crate::yaml::{Document, DocumentError, PathSegment};

/// The configuration file as it is written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where clients connect.
    pub proxy: ProxyConfig,
    /// Where operators connect.
    pub admin: AdminConfig,
    /// The database: `sqlite:PATH`.
    pub store: StoreUrl,
    /// Files and directories with declared entities.
    pub entities: Vec<PathBuf>,
    /// The identity provider; absent: none.
    pub identity: Option<IdentityConfig>,
    /// Metrics and logs.
    pub telemetry: TelemetryConfig,
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
    /// Worker threads; 0: one for each core.
    pub workers: usize,
    /// Whether `X-Kong-Request-Id` is made for every request.
    pub request_ids: bool,
    /// Seconds for which requests may finish after SIGTERM.
    pub drain_seconds: u64,
    /// File of certificate authorities for upstreams; by default the system's.
    pub upstream_ca: Option<PathBuf>,
}

impl Default for ProxyConfig {
    fn default() -> Self {
        Self {
            listen: vec!["0.0.0.0:8000".to_owned()],
            tls: None,
            trusted_ips: Vec::new(),
            workers: 0,
            request_ids: true,
            drain_seconds: 30,
            upstream_ca: None,
        }
    }
}

/// TLS listeners and their certificate.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// Addresses.
    pub listen: Vec<String>,
    /// PEM file with the certificate chain.
    pub certificate: PathBuf,
    /// PEM file with the private key.
    pub key: PathBuf,
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
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8001".to_owned(),
            token: None,
            hosts: Vec::new(),
        }
    }
}

/// The database's address.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub struct StoreUrl(pub String);

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
        let config: Config = document.deserialize()?;
        config.check(&document)?;
        Ok(config)
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
        let Ok(admin) = self.admin.listen.parse::<SocketAddr>() else {
            let message = format!("'{}' is not ADDRESS:PORT", self.admin.listen);
            return at("admin.listen", message);
        };
        if !admin.ip().is_loopback() && self.admin.token.is_none() {
            let message = "an admin listener that is not on loopback needs admin.token";
            return at("admin.listen", message.to_owned());
        }
        if self
            .admin
            .token
            .as_ref()
            .is_some_and(|t| t.expose().len() < 16)
        {
            return at("admin.token", "must have at least 16 characters".to_owned());
        }
        if !self.store.0.starts_with("sqlite:") {
            return at("store", "expected sqlite:PATH".to_owned());
        }
        if let Some(identity) = &self.identity
            && let Err(IdentityError::Config { path, message }) = Identity::check(identity.clone())
        {
            return Err(document.error(&path, message));
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
    fn an_open_admin_listener_without_token_is_refused() {
        let message = refused("admin:\n  listen: 0.0.0.0:8001\n");
        assert!(message.starts_with("d.yaml:2: admin.listen: "), "{message}");
        let message = refused("admin:\n  listen: 0.0.0.0:8001\n  token: short\n");
        assert!(message.starts_with("d.yaml:3: admin.token: "), "{message}");
    }
}
