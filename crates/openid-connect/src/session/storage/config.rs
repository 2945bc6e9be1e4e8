//! The settings that say where sessions are kept, of every age.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::fields::sessions::{
    CookieFields, REDIS_HOST, REDIS_PORT, REDIS_WAIT, RedisFields, STORE_PREFIX, SessionStorage,
    StoreFields,
};
use crate::config::fields::types::{Bounded, Millis};
use crate::config::fields::{Fields, wrong};
use doorward_core::model::secret::Secret;
use doorward_net::shared::memcached::Address;
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::config::AnyText;

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
    pub(crate) fn of(fields: &Fields) -> Result<Self, ConfigError> {
        match fields.cookies.session_storage {
            SessionStorage::Cookie => Ok(Self::Cookie),
            SessionStorage::Store => Ok(Self::Store),
            SessionStorage::Redis => redis(fields).map(Self::Remote),
            SessionStorage::Memcache | SessionStorage::Memcached => {
                memcached(fields).map(Self::Remote)
            }
        }
    }
}

/// A field of the record, or else the flat one of the same meaning. The record is
/// completed with its defaults: where it says one of the `usual` things, a flat field
/// that says something else than its `default` was meant.
fn either<T: PartialEq>(
    nested: Option<T>,
    usual: &[T],
    flat: Option<T>,
    default: Option<T>,
) -> Option<T> {
    let is_meant = flat.is_some() && flat != default;
    nested
        .filter(|value| !(is_meant && usual.contains(value)))
        .or(flat)
}

/// The fields of a Redis, of every age.
struct Redis<'a> {
    nested: Option<&'a RedisFields>,
    older: &'a CookieFields,
    newer: &'a StoreFields,
}

impl<'a> Redis<'a> {
    fn new(fields: &'a Fields) -> Self {
        Self {
            nested: fields.stores.redis.as_ref(),
            older: &fields.cookies,
            newer: &fields.stores,
        }
    }

    fn text(
        &self,
        nested: impl Fn(&RedisFields) -> &Option<AnyText>,
        flat: &'a Option<AnyText>,
        default: Option<&'a str>,
    ) -> Option<&'a str> {
        let nested = self.nested.and_then(|redis| nested(redis).as_deref());
        let text = either(nested, &[REDIS_HOST], flat.as_deref(), default);
        text.filter(|text| !text.is_empty())
    }

    fn number<const MIN: i64, const MAX: i64>(
        &self,
        nested: impl Fn(&RedisFields) -> Option<Bounded<MIN, MAX>>,
        flat: Option<Bounded<MIN, MAX>>,
        default: Option<i64>,
    ) -> Option<i64> {
        let nested = self.nested.and_then(nested).map(|number| number.0);
        either(
            nested,
            &[REDIS_PORT, REDIS_WAIT],
            flat.map(|number| number.0),
            default,
        )
    }

    fn wait(&self, nested: impl Fn(&RedisFields) -> Option<Millis>, flat: Option<Millis>) -> i64 {
        self.number(nested, flat, None).unwrap_or(REDIS_WAIT)
    }

    fn flag(&self, nested: impl Fn(&RedisFields) -> Option<bool>, flat: Option<bool>) -> bool {
        let nested = self.nested.and_then(nested);
        either(nested, &[false], flat, None).unwrap_or(false)
    }

    fn is_tls(&self) -> bool {
        self.flag(|redis| redis.ssl, self.newer.session_redis_ssl)
    }

    fn is_verified(&self) -> bool {
        self.flag(
            |redis| redis.ssl_verify,
            self.newer.session_redis_ssl_verify,
        )
    }

    /// That there is one server.
    fn check_single(&self) -> Result<(), ConfigError> {
        let sentinels = self.nested.and_then(|redis| redis.sentinel_nodes.as_ref());
        let cluster = self.nested.and_then(|redis| redis.cluster_nodes.as_ref());
        let is_cluster = cluster.is_some() || !self.newer.session_redis_cluster_nodes.is_empty();
        for (field, is_set) in [
            ("redis.sentinel_nodes", sentinels.is_some()),
            ("redis.cluster_nodes", is_cluster),
        ] {
            if is_set {
                let message = "not supported: name one server that holds all keys, or a proxy";
                return Err(wrong(field, message));
            }
        }
        Ok(())
    }
}

fn redis(fields: &Fields) -> Result<RemoteConfig, ConfigError> {
    let redis = Redis::new(fields);
    redis.check_single()?;
    let (older, newer) = (redis.older, redis.newer);
    let host = redis.text(
        |redis| &redis.host,
        &older.session_redis_host,
        Some(REDIS_HOST),
    );
    let number = redis.number(
        |redis| redis.port,
        older.session_redis_port,
        Some(REDIS_PORT),
    );
    let tls = redis.is_tls();
    let address = match redis.text(|redis| &redis.socket, &newer.session_redis_socket, None) {
        Some(_) if tls => return Err(wrong("redis.ssl", "a socket has no TLS")),
        Some(path) => Address::Unix(socket(path)),
        None => Address::Tcp(
            host.unwrap_or(REDIS_HOST).to_owned(),
            port(number.unwrap_or(REDIS_PORT))?,
        ),
    };
    let username = redis.text(|redis| &redis.username, &newer.session_redis_username, None);
    let password = redis
        .text(|redis| &redis.password, &newer.session_redis_password, None)
        .or(newer.session_redis_auth.as_deref());
    let prefix_text = redis.text(
        |redis| &redis.prefix,
        &older.session_redis_prefix,
        Some(STORE_PREFIX),
    );
    let database = redis.number(|redis| redis.database, None, None);
    let reads = redis.wait(|redis| redis.read_timeout, newer.session_redis_read_timeout);
    let sends = redis.wait(|redis| redis.send_timeout, newer.session_redis_send_timeout);
    let connects = redis.wait(
        |redis| redis.connect_timeout,
        newer.session_redis_connect_timeout,
    );
    Ok(RemoteConfig {
        server: Server::Redis {
            address,
            tls,
            database: database.unwrap_or(0),
            username: username.map(str::to_owned),
            password: password.map(str::to_owned),
        },
        prefix: prefix(prefix_text)?,
        connect: wait(connects),
        deadline: wait(reads.max(sends)),
    })
}

fn memcached(fields: &Fields) -> Result<RemoteConfig, ConfigError> {
    let (older, stores) = (&fields.cookies, &fields.stores);
    // The newer name counts where it is there.
    let text = |newer: &Option<AnyText>, older: &Option<AnyText>| {
        let either = newer.as_ref().or(older.as_ref());
        let text = either.filter(|text| !text.is_empty());
        text.map(|text| text.0.clone())
    };
    let number = (stores.session_memcached_port).or(older.session_memcache_port);
    let path = text(
        &stores.session_memcached_socket,
        &stores.session_memcache_socket,
    );
    let address = match path {
        Some(path) => Address::Unix(socket(&path)),
        None => {
            let host = text(&stores.session_memcached_host, &older.session_memcache_host);
            let host = host.unwrap_or_else(|| "127.0.0.1".to_owned());
            Address::Tcp(host, port(number.map_or(11_211, |number| number.0))?)
        }
    };
    let begins_with = text(
        &stores.session_memcached_prefix,
        &older.session_memcache_prefix,
    );
    let timeout = wait(2000);
    Ok(RemoteConfig {
        server: Server::Memcached(address),
        prefix: prefix(begins_with.as_deref())?,
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
    let text = text.unwrap_or(STORE_PREFIX);
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
pub(crate) fn warning(fields: &Fields) -> Option<String> {
    let redis = Redis::new(fields);
    let is_redis = fields.cookies.session_storage == SessionStorage::Redis;
    (is_redis && redis.is_tls() && !redis.is_verified()).then(|| {
        "redis.ssl_verify is false: certificates of the session storage are verified all the same"
            .to_owned()
    })
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
