//! The `redis` section of the configuration file.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use redis::{Client, IntoConnectionInfo, TlsCertificates};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use url::Url;

use doorward_core::model::secret::Secret;
use doorward_expr::duration::{self, Length};

const DEADLINES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(10);

/// A Redis as configured: its address alone, or with what else it needs.
#[derive(Debug, Clone)]
pub struct RedisConfig {
    /// `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, `rediss://…` for TLS.
    pub url: Secret,
    /// User, if not in the address.
    pub username: Option<String>,
    /// Password, if not in the address.
    pub password: Option<Secret>,
    /// PEM file of the authorities for `rediss://`; by default the system's.
    pub ca: Option<PathBuf>,
    /// Longest wait for an answer, for instance `50 ms`.
    pub deadline: String,
}

/// Why a section is not that of a Redis. The address, which may hold a
/// password, is never part of the message.
#[derive(Debug, thiserror::Error)]
pub enum RedisConfigError {
    /// The address.
    #[error("expected redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], or rediss:// for TLS")]
    Url,
    /// The deadline.
    #[error("expected a time between 1 ms and 10 s, such as `50 ms`")]
    Deadline,
    /// The file of authorities.
    #[error("{}: {source}", file.display())]
    Ca {
        /// The file.
        file: PathBuf,
        /// The system's word on it.
        source: std::io::Error,
    },
    /// Something that the client does not accept.
    #[error("{0}")]
    Refused(&'static str),
    /// The system gives no thread.
    #[error("no thread: {0}")]
    Thread(std::io::Error),
}

impl RedisConfigError {
    /// The key of the section that is at fault, if it is one.
    pub fn key(&self) -> Option<&'static str> {
        match self {
            Self::Deadline => Some("deadline"),
            Self::Ca { .. } => Some("ca"),
            Self::Url | Self::Refused(_) | Self::Thread(_) => None,
        }
    }
}

impl RedisConfig {
    /// Whether everything in it can be used.
    ///
    /// # Errors
    /// [`RedisConfigError`].
    pub fn check(&self) -> Result<(), RedisConfigError> {
        self.deadline()?;
        self.client().map(drop)
    }

    pub(super) fn deadline(&self) -> Result<Duration, RedisConfigError> {
        match duration::parse(&self.deadline) {
            Ok(Length::Finite(deadline)) if DEADLINES.contains(&deadline) => Ok(deadline),
            _ => Err(RedisConfigError::Deadline),
        }
    }

    pub(super) fn client(&self) -> Result<Client, RedisConfigError> {
        let url = Url::parse(self.url.expose()).map_err(|_| RedisConfigError::Url)?;
        let known = matches!(url.scheme(), "redis" | "rediss") && url.host().is_some();
        let plain = url.fragment().is_none() && url.query().is_none();
        if !known || !plain {
            return Err(RedisConfigError::Url);
        }
        let tls = url.scheme() == "rediss";
        let info = url
            .into_connection_info()
            .map_err(|_| RedisConfigError::Url)?;
        let mut settings = info.redis_settings().clone();
        if let Some(username) = &self.username {
            settings = settings.set_username(username);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password.expose());
        }
        let info = info.set_redis_settings(settings);
        let root_cert = match &self.ca {
            None => None,
            Some(_) if !tls => return Err(RedisConfigError::Refused("ca needs rediss://")),
            Some(file) => Some(std::fs::read(file).map_err(|source| RedisConfigError::Ca {
                file: file.clone(),
                source,
            })?),
        };
        if !tls {
            return Client::open(info).map_err(|_| RedisConfigError::Url);
        }
        let certificates = TlsCertificates {
            client_tls: None,
            root_cert,
        };
        Client::build_with_tls(info, certificates)
            .map_err(|_| RedisConfigError::Refused("the authorities in ca can't be read"))
    }
}

impl<'de> Deserialize<'de> for RedisConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Section)
    }
}

/// The longer form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LongForm {
    url: Option<Secret>,
    username: Option<String>,
    password: Option<Secret>,
    ca: Option<PathBuf>,
    #[serde(default = "default_deadline")]
    deadline: String,
}

fn default_deadline() -> String {
    "50 ms".to_owned()
}

struct Section;

impl<'de> Visitor<'de> for Section {
    type Value = RedisConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("redis://HOST:PORT or a map with url")
    }

    fn visit_str<E>(self, url: &str) -> Result<RedisConfig, E> {
        Ok(RedisConfig {
            url: Secret::new(url),
            username: None,
            password: None,
            ca: None,
            deadline: default_deadline(),
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RedisConfig, A::Error> {
        let written = LongForm::deserialize(MapAccessDeserializer::new(map))?;
        Ok(RedisConfig {
            url: written
                .url
                .ok_or_else(|| serde::de::Error::missing_field("url"))?,
            username: written.username,
            password: written.password,
            ca: written.ca,
            deadline: written.deadline,
        })
    }
}
