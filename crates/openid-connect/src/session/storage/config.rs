//! The settings that say where sessions are kept, of every age.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::config::fields::{Fields, wrong};
use doorward_core::model::secret::Secret;
use doorward_net::shared::memcached::Address;
use doorward_plugin_api::ConfigError;

/// Longest wait for a storage, whatever is configured.
const WAIT_MAX: i64 = 10_000;

/// Where sessions are kept.
pub(crate) enum Choice {
    Cookie,
    Store,
    Remote(RemoteConfig),
}

/// A server that keeps sessions, as configured.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RemoteConfig {
    pub(crate) server: Server,
    pub(crate) prefix: String,
    pub(crate) connect: Duration,
    /// Longest wait for an answer.
    pub(crate) deadline: Duration,
}

/// Which server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Server {
    Redis {
        address: Address,
        tls: bool,
        database: i64,
        username: Option<String>,
        password: Option<String>,
    },
    Memcached(Address),
}

impl Choice {
    pub(crate) fn of(fields: Fields<'_>) -> Result<Self, ConfigError> {
        match fields.text("session_storage")?.unwrap_or("cookie") {
            "cookie" => Ok(Self::Cookie),
            "store" => Ok(Self::Store),
            "redis" => redis(fields).map(Self::Remote),
            "memcache" | "memcached" => memcached(fields).map(Self::Remote),
            _ => Err(wrong(
                "session_storage",
                "expected cookie, store, redis, memcache or memcached",
            )),
        }
    }
}

/// A field of the nested record, or else the flat one of the same end, or else
/// the default of either.
struct Redis<'a> {
    fields: Fields<'a>,
    nested: Option<&'a Map<String, Value>>,
}

impl<'a> Redis<'a> {
    fn given(&self, end: &str) -> Option<&'a Value> {
        let nested = self.nested.and_then(|nested| nested.get(end))?;
        // The record is completed with its defaults: a flat field that says
        // something else was meant.
        let default = matches!(nested, Value::Bool(false))
            || nested == "127.0.0.1"
            || nested == 6379
            || nested == 2000;
        let flat = default && self.fields.is_changed(&format!("session_redis_{end}"));
        Some(nested).filter(|value| !flat && !value.is_null())
    }

    fn text(&self, end: &str) -> Result<Option<&'a str>, ConfigError> {
        let name = format!("redis.{end}");
        let given = self.given(end).map(|value| {
            let text = value.as_str();
            text.ok_or_else(|| wrong(&name, "expected a string"))
        });
        let text = match given {
            Some(text) => Some(text?),
            None => self.fields.text(&format!("session_redis_{end}"))?,
        };
        Ok(text.filter(|text| !text.is_empty()))
    }

    fn number(&self, end: &str, default: i64) -> Result<i64, ConfigError> {
        if let Some(value) = self.given(end) {
            let name = format!("redis.{end}");
            let number = value.as_i64().filter(|number| *number >= 0);
            return number.ok_or_else(|| wrong(&name, "expected an integer that is not negative"));
        }
        if end == "database" {
            return Ok(default);
        }
        let flat = self.fields.integer(&format!("session_redis_{end}"))?;
        Ok(flat.unwrap_or(default))
    }

    fn flag(&self, end: &str) -> Result<bool, ConfigError> {
        if let Some(value) = self.given(end) {
            let name = format!("redis.{end}");
            return value
                .as_bool()
                .ok_or_else(|| wrong(&name, "expected a boolean"));
        }
        let flat = self.fields.maybe_flag(&format!("session_redis_{end}"))?;
        Ok(flat.unwrap_or(false))
    }
}

fn redis(fields: Fields<'_>) -> Result<RemoteConfig, ConfigError> {
    let redis = Redis {
        fields,
        nested: fields.object("redis")?,
    };
    for name in ["sentinel_nodes", "cluster_nodes"] {
        if redis.given(name).is_some() || fields.is_changed(&format!("session_redis_{name}")) {
            let message = "not supported: name one server that holds all keys, or a proxy";
            return Err(wrong(&format!("redis.{name}"), message));
        }
    }
    let host = redis.text("host")?.unwrap_or("127.0.0.1").to_owned();
    let tls = redis.flag("ssl")?;
    let address = match redis.text("socket")? {
        Some(_) if tls => return Err(wrong("redis.ssl", "a socket has no TLS")),
        Some(path) => Address::Unix(socket(path)),
        None => Address::Tcp(host, port(redis.number("port", 6379)?)?),
    };
    let password = match redis.text("password")? {
        Some(password) => Some(password),
        None => fields.text("session_redis_auth")?,
    };
    let deadline = redis
        .number("read_timeout", 2000)?
        .max(redis.number("send_timeout", 2000)?);
    Ok(RemoteConfig {
        server: Server::Redis {
            address,
            tls,
            database: redis.number("database", 0)?,
            username: redis.text("username")?.map(str::to_owned),
            password: password.map(str::to_owned),
        },
        prefix: prefix(redis.text("prefix")?)?,
        connect: wait(redis.number("connect_timeout", 2000)?),
        deadline: wait(deadline),
    })
}

fn memcached(fields: Fields<'_>) -> Result<RemoteConfig, ConfigError> {
    // The newer name counts where it is there.
    let text = |end: &str| {
        let newer = fields.text(&format!("session_memcached_{end}"))?;
        let either = match newer {
            Some(newer) => Some(newer),
            None => fields.text(&format!("session_memcache_{end}"))?,
        };
        Ok::<_, ConfigError>(either.filter(|text| !text.is_empty()))
    };
    let number = match fields.integer("session_memcached_port")? {
        Some(newer) => Some(newer),
        None => fields.integer("session_memcache_port")?,
    };
    let address = match text("socket")? {
        Some(path) => Address::Unix(socket(path)),
        None => {
            let host = text("host")?.unwrap_or("127.0.0.1").to_owned();
            Address::Tcp(host, port(number.unwrap_or(11_211))?)
        }
    };
    let timeout = wait(2000);
    Ok(RemoteConfig {
        server: Server::Memcached(address),
        prefix: prefix(text("prefix")?)?,
        connect: timeout,
        deadline: timeout,
    })
}

/// `unix:/path` and `unix:///path` are its older spellings.
fn socket(path: &str) -> PathBuf {
    let path = path.strip_prefix("unix:").unwrap_or(path);
    let path = path.strip_prefix("//").unwrap_or(path);
    PathBuf::from(path)
}

fn port(number: i64) -> Result<u16, ConfigError> {
    let port = u16::try_from(number).ok().filter(|port| *port > 0);
    port.ok_or_else(|| wrong("session_storage", "the port of its server is none"))
}

/// No timeout is none that is unbounded.
fn wait(ms: i64) -> Duration {
    let ms = if ms == 0 { 2000 } else { ms.min(WAIT_MAX) };
    Duration::from_millis(ms.unsigned_abs())
}

fn prefix(text: Option<&str>) -> Result<String, ConfigError> {
    let text = text.unwrap_or("sessions");
    let plain = text.len() <= 100 && text.bytes().all(|b| matches!(b, 0x21..=0x7e));
    if plain {
        Ok(text.to_owned())
    } else {
        Err(wrong(
            "session_storage",
            "expected a prefix of at most 100 characters without spaces",
        ))
    }
}

/// What an operator should know of these settings.
pub(crate) fn warnings(fields: Fields<'_>) -> Result<Vec<String>, ConfigError> {
    let mut warnings = Vec::new();
    let storage = fields.text("session_storage")?.unwrap_or("cookie");
    if storage == "redis" {
        let redis = Redis {
            fields,
            nested: fields.object("redis")?,
        };
        if redis.flag("ssl")? && !redis.flag("ssl_verify")? {
            warnings.push(
                "redis.ssl_verify is false: certificates of the session storage are verified all \
                 the same"
                    .to_owned(),
            );
        }
    }
    Ok(warnings)
}

/// A password is never shown.
impl Server {
    pub(crate) fn password(&self) -> Option<Secret> {
        match self {
            Self::Redis { password, .. } => password.as_deref().map(Secret::new),
            Self::Memcached(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
