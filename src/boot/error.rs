//! Why nothing could be started.

use crate::config::{Config, ConfigError};
use crate::server::ServerError;
use doorward_acme::AcmeError;
use doorward_audit::AuditError;
use doorward_core::yaml::DocumentError;
use doorward_gateway::control::DeclaredError;
use doorward_identity::IdentityError;
use doorward_net::http::outbound::AuthorityError;
use doorward_net::shared::RedisConfigError;
use doorward_store::StoreError;

/// Why nothing could be started.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The configuration file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Declared entities, one finding a line.
    #[error("{}", lines(.0))]
    Entities(Vec<DocumentError>),
    /// An entity that can't be in force.
    #[error("{0}")]
    Refused(String),
    /// Findings of several parts, one a line.
    #[error("{}", .0.join("\n"))]
    Findings(Vec<String>),
    /// Certificate files.
    #[error(transparent)]
    Tls(#[from] ServerError),
    /// Authorities of upstreams and providers.
    #[error("proxy.upstream_ca: {0}")]
    Authorities(#[from] AuthorityError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store, beside the process that is to be succeeded.
    #[error("{0}; a new version of the store needs a stop: end the process that serves first")]
    Beside(StoreError),
    /// The identity provider.
    #[error("identity: {0}")]
    Identity(#[from] IdentityError),
    /// Certificates of an authority.
    #[error(transparent)]
    Acme(#[from] AcmeError),
    /// The audit log.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The access log.
    #[error("telemetry.access_log: {place}: {source}")]
    AccessLog {
        /// The file or the daemon.
        place: String,
        /// Why it can't be written to.
        source: std::io::Error,
    },
    /// The shared Redis.
    #[error("redis: {0}")]
    Redis(#[from] RedisConfigError),
    /// The base address of the identity provider.
    #[error("identity.base_url: {0}")]
    BaseUrl(#[from] url::ParseError),
}

impl BootError {
    /// The error, with file and line where a key of `config` is at fault.
    pub fn located(&self, config: &Config) -> String {
        let text = self.to_string();
        if let Self::Config(ConfigError::Read { file, .. }) = self
            && let Some(at) = config.entities.iter().position(|named| named == file)
        {
            return config.wrong(&format!("entities.{at}"), text).to_string();
        }
        let begins_with_key = matches!(
            self,
            Self::Authorities(_)
                | Self::Acme(AcmeError::Authorities(_))
                | Self::Audit(_)
                | Self::AccessLog { .. }
                | Self::Redis(_)
                | Self::BaseUrl(_)
        );
        match text.split_once(": ").filter(|_| begins_with_key) {
            Some((key, message)) => config.wrong(key, message.to_owned()).to_string(),
            None => text,
        }
    }
}

impl From<DeclaredError> for BootError {
    fn from(error: DeclaredError) -> Self {
        Self::Refused(error.to_string())
    }
}

fn lines(errors: &[DocumentError]) -> String {
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    lines.join("\n")
}
