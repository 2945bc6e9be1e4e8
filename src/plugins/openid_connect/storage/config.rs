//! The settings that say where sessions are kept, of every age.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use super::super::fields::{Fields, wrong};
use crate::model::secret::Secret;
use crate::plugins::ConfigError;
use crate::shared::memcached::Address;

/// Longest wait for a storage, whatever is configured.
const WAIT_MAX: i64 = 10_000;

/// What has no effect on a Redis, and the number that the record is completed
/// with.
const IDLE: [(&str, i64); 9] = [
    ("cluster_max_redirections", 5),
    ("connection_is_proxied", 0),
    ("keepalive_backlog", 0),
    ("keepalive_pool_size", 256),
    ("sentinel_master", 0),
    ("sentinel_password", 0),
    ("sentinel_role", 0),
    ("sentinel_username", 0),
    ("server_name", 0),
];

/// Where sessions are kept.
pub(super) enum Choice {
    Cookie,
    Store,
    Remote(RemoteConfig),
}

/// A server that keeps sessions, as configured.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RemoteConfig {
    pub(super) server: Server,
    pub(super) prefix: String,
    pub(super) connect: Duration,
    /// Longest wait for an answer.
    pub(super) deadline: Duration,
}

/// Which server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Server {
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
    pub(super) fn of(fields: Fields<'_>) -> Result<Self, ConfigError> {
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

    /// Whether something is said that is not there without it.
    fn says(&self, end: &str, default: i64) -> bool {
        let nested = self.nested.and_then(|nested| nested.get(end));
        let nested = nested.is_some_and(|value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::String(text) => !text.is_empty(),
            value => *value != default,
        });
        nested || self.fields.is_changed(&format!("session_redis_{end}"))
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
    match plain {
        true => Ok(text.to_owned()),
        false => Err(wrong(
            "session_storage",
            "expected a prefix of at most 100 characters without spaces",
        )),
    }
}

/// What an operator should know of these settings.
pub(in super::super) fn warnings(fields: Fields<'_>) -> Result<Vec<String>, ConfigError> {
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
        let idle = IDLE
            .iter()
            .filter(|(name, default)| redis.says(name, *default));
        warnings.extend(idle.map(|(name, _)| format!("redis.{name}: without effect")));
    }
    Ok(warnings)
}

/// A password is never shown.
impl Server {
    pub(super) fn password(&self) -> Option<Secret> {
        match self {
            Self::Redis { password, .. } => password.as_deref().map(Secret::new),
            Self::Memcached(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn remote(config: &Value) -> Result<RemoteConfig, String> {
        let config = config.as_object().expect("an object");
        match Choice::of(Fields(config)) {
            Ok(Choice::Remote(remote)) => Ok(remote),
            Ok(_) => Err("not remote".to_owned()),
            Err(error) => Err(error.field),
        }
    }

    #[test]
    fn a_redis_is_named_by_the_record_the_flat_fields_or_the_older_ones() {
        let defaults = remote(&json!({"session_storage": "redis"})).expect("valid");
        let address = Address::Tcp("127.0.0.1".to_owned(), 6379);
        let plain = Server::Redis {
            address: address.clone(),
            tls: false,
            database: 0,
            username: None,
            password: None,
        };
        assert_eq!(defaults.server, plain);
        assert_eq!(defaults.prefix, "sessions");
        let nested = json!({"session_storage": "redis", "session_redis_host": "other",
            "redis": {"host": "r", "port": 1, "database": 3, "username": "u", "password": "p",
                "prefix": "x", "read_timeout": 50, "send_timeout": 70, "connect_timeout": 60_000}});
        let nested = remote(&nested).expect("valid");
        let wanted = Server::Redis {
            address: Address::Tcp("r".to_owned(), 1),
            tls: false,
            database: 3,
            username: Some("u".to_owned()),
            password: Some("p".to_owned()),
        };
        assert_eq!(nested.server, wanted);
        assert_eq!(nested.deadline, Duration::from_millis(70));
        assert_eq!(nested.connect, Duration::from_secs(10));
        let flat = json!({"session_storage": "redis", "session_redis_socket": "unix:/run/r",
            "session_redis_auth": "old", "session_redis_prefix": "p"});
        let flat = remote(&flat).expect("valid");
        let Server::Redis {
            address, password, ..
        } = flat.server
        else {
            panic!("another server");
        };
        assert_eq!(address, Address::Unix("/run/r".into()));
        assert_eq!(password.as_deref(), Some("old"));
        assert_eq!(flat.prefix, "p");
    }

    #[test]
    fn a_memcached_is_named_by_the_newer_fields_or_the_older_ones() {
        for (config, host, port, prefix) in [
            (
                json!({"session_storage": "memcache"}),
                "127.0.0.1",
                11_211,
                "sessions",
            ),
            (
                json!({"session_storage": "memcached", "session_memcache_host": "old",
                    "session_memcached_host": "new", "session_memcache_port": 2,
                    "session_memcached_prefix": "p"}),
                "new",
                2,
                "p",
            ),
        ] {
            let remote = remote(&config).expect("valid");
            let address = Address::Tcp(host.to_owned(), port);
            assert_eq!(remote.server, Server::Memcached(address), "{config}");
            assert_eq!(remote.prefix, prefix);
        }
    }

    #[test]
    fn waits_users_and_sockets_are_those_of_the_flat_fields() {
        let config = json!({"session_storage": "redis", "session_redis_connect_timeout": 300,
            "session_redis_read_timeout": 400, "session_redis_send_timeout": 500,
            "session_redis_username": "gate", "session_redis_ssl": true,
            "session_redis_host": "r", "session_redis_port": 7});
        let redis = remote(&config).expect("valid");
        assert_eq!(redis.connect, Duration::from_millis(300));
        assert_eq!(redis.deadline, Duration::from_millis(500));
        let wanted = Server::Redis {
            address: Address::Tcp("r".to_owned(), 7),
            tls: true,
            database: 0,
            username: Some("gate".to_owned()),
            password: None,
        };
        assert_eq!(redis.server, wanted);
        for name in ["session_memcached_socket", "session_memcache_socket"] {
            let mut config = json!({"session_storage": "memcached"});
            config[name] = json!("unix:///run/m");
            let memcached = remote(&config).expect("valid");
            let wanted = Server::Memcached(Address::Unix("/run/m".into()));
            assert_eq!(memcached.server, wanted, "{name}");
        }
    }

    #[test]
    fn what_has_no_effect_on_a_redis_is_said_by_name() {
        let warned = |config: &Value| {
            let config = config.as_object().expect("an object");
            warnings(Fields(config)).expect("valid")
        };
        let completed = json!({"session_storage": "redis", "redis": {"host": "r",
            "keepalive_pool_size": 256, "cluster_max_redirections": 5, "sentinel_role": null,
            "connection_is_proxied": false, "ssl": false, "ssl_verify": false}});
        assert!(warned(&completed).is_empty(), "{:?}", warned(&completed));
        for (name, value) in [
            ("cluster_max_redirections", json!(6)),
            ("connection_is_proxied", json!(true)),
            ("keepalive_backlog", json!(10)),
            ("keepalive_pool_size", json!(10)),
            ("sentinel_master", json!("m")),
            ("sentinel_password", json!("p")),
            ("sentinel_role", json!("any")),
            ("sentinel_username", json!("u")),
            ("server_name", json!("s")),
        ] {
            let mut config = json!({"session_storage": "redis", "redis": {}});
            config["redis"][name] = value;
            assert_eq!(warned(&config), [format!("redis.{name}: without effect")]);
        }
        for (name, value) in [
            ("cluster_max_redirections", json!(6)),
            ("server_name", json!("s")),
        ] {
            let mut config = json!({"session_storage": "redis"});
            config[format!("session_redis_{name}")] = value;
            assert_eq!(warned(&config), [format!("redis.{name}: without effect")]);
        }
        let unverified = json!({"session_storage": "redis", "session_redis_ssl": true,
            "session_redis_ssl_verify": false});
        assert!(warned(&unverified)[0].starts_with("redis.ssl_verify is false"));
    }

    #[test]
    fn what_would_lead_elsewhere_is_refused() {
        for (config, field) in [
            (
                json!({"redis": {"cluster_nodes": [{"ip": "a"}]}}),
                "redis.cluster_nodes",
            ),
            (
                json!({"redis": {"sentinel_nodes": [{"host": "a"}]}}),
                "redis.sentinel_nodes",
            ),
            (
                json!({"redis": {"socket": "/run/r", "ssl": true}}),
                "redis.ssl",
            ),
            (json!({"redis": {"port": 0}}), "session_storage"),
            (json!({"redis": {"prefix": "a b"}}), "session_storage"),
        ] {
            let mut config = config;
            config["session_storage"] = json!("redis");
            assert_eq!(remote(&config), Err(field.to_owned()), "{config}");
        }
    }
}
