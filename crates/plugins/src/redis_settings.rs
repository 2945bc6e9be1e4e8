//! The `redis` record of plugins that count together with other nodes, and the
//! connections that it leads to.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde_json::{Map, Value};

use crate::settings::wrong;
use doorward_core::model::schema::{Field, Type, Violation, Violations, failed_condition};
use doorward_core::model::secret::Secret;
use doorward_net::shared::{Redis, RedisConfig};
use doorward_plugin_api::{ConfigError, Parts, config, words};

/// Longest and shortest wait for an answer, in milliseconds.
const DEADLINE: std::ops::RangeInclusive<i64> = 1..=10_000;

words! {
    /// Where something is counted.
    pub(crate) enum Policy {
        /// In this process.
        Local = "local",
        /// In the Redis of the configuration file.
        Cluster = "cluster",
        /// In the Redis of the plugin.
        Redis = "redis",
    }
}

config! {
    /// The record `redis`.
    #[derive(Debug)]
    pub(crate) struct RedisRecord {
        /// The host of the Redis, for the policy redis.
        host: Option<String>,
        /// Its port.
        #[field(default(6379))]
        port: Option<u16>,
        /// Milliseconds to wait for an answer. It counts as 1 to 10000.
        #[field(kind(Type::Integer(0, 2_147_483_646)), default(2000))]
        timeout: Option<i64>,
        /// The user of the Redis. Null: its default user.
        #[field(referenceable)]
        username: Option<String>,
        /// The password. Null or empty: none.
        #[field(kind(Type::text()), referenceable)]
        password: Option<Secret>,
        /// The number of the database.
        #[field(default(0))]
        database: Option<u16>,
        /// Whether the connection is one of TLS. It needs ssl_verify.
        #[field(default(false))]
        ssl: bool,
        /// Whether the certificate is verified.
        #[field(default(false))]
        ssl_verify: bool,
        /// The name of the certificate. It can't differ from the host.
        server_name: Option<String>,
    }
}

config! {
    /// The record among the fields of a plugin.
    struct Holder {
        /// The Redis that counts, for the policy redis.
        #[field(required)]
        redis: RedisRecord,
    }
}

/// Older names of the record's fields, which stand beside it.
const FLAT: &[(&str, &str, &str)] = &[
    ("redis_host", "host", "Stands for host of redis."),
    ("redis_port", "port", "Stands for port of redis."),
    ("redis_timeout", "timeout", "Stands for timeout of redis."),
    (
        "redis_username",
        "username",
        "Stands for username of redis.",
    ),
    (
        "redis_password",
        "password",
        "Stands for password of redis.",
    ),
    (
        "redis_database",
        "database",
        "Stands for database of redis.",
    ),
    ("redis_ssl", "ssl", "Stands for ssl of redis."),
    (
        "redis_ssl_verify",
        "ssl_verify",
        "Stands for ssl_verify of redis.",
    ),
    (
        "redis_server_name",
        "server_name",
        "Stands for server_name of redis.",
    ),
];

/// The record, and the older fields beside it, which [`prefill`] reads.
#[derive(Debug)]
pub(crate) struct RedisFields(RedisRecord);

impl RedisFields {
    /// The rows of the schema.
    pub(crate) fn fields() -> Vec<Field> {
        let record = RedisRecord::fields();
        let flat = FLAT.iter().filter_map(|(flat, name, description)| {
            let field = record.iter().find(|field| field.name == *name)?;
            let flat = Field::new(flat, field.kind.clone()).described(description);
            Some(if field.referenceable {
                flat.referenceable()
            } else {
                flat
            })
        });
        let mut fields = Holder::fields();
        fields.extend(flat);
        fields
    }

    /// Reads a record that satisfies the schema.
    pub(crate) fn read(config: &Map<String, Value>) -> Result<Self, ConfigError> {
        Ok(Self(Holder::read(config)?.redis))
    }

    /// Demands what the policy `redis` needs.
    pub(crate) fn check(&self, policy: Option<Policy>, violations: &mut Violations) {
        if policy != Some(Policy::Redis) {
            return;
        }
        for (field, is_there) in [
            ("host", self.0.host.is_some()),
            ("port", self.0.port.is_some()),
            ("timeout", self.0.timeout.is_some()),
        ] {
            if !is_there {
                let missing = Violations::of(field, "required field missing");
                violations.put("redis", Violation::Record(missing));
                violations.put_holder(failed_condition("config.policy"));
            }
        }
    }
}

/// As [`prefill`], on an input: a partial update by an older field changes what holds.
pub(crate) fn shorthand(input: &mut Map<String, Value>, _: &mut Violations) {
    prefill(input);
}

/// Writes the older fields into the record, where that does not say itself, and
/// shows in them what holds.
pub(crate) fn prefill(config: &mut Map<String, Value>) {
    let flat: Vec<_> = FLAT
        .iter()
        .filter(|(flat, ..)| config.get(*flat).is_some_and(|value| !value.is_null()))
        .collect();
    if flat.is_empty() {
        return;
    }
    let mut record = match config.remove("redis") {
        Some(Value::Object(record)) => record,
        None | Some(Value::Null) => Map::new(),
        Some(other) => {
            config.insert("redis".to_owned(), other);
            return;
        }
    };
    for (flat, name, _) in flat {
        let old = config.get(*flat).cloned().unwrap_or(Value::Null);
        let value = match record.get(*name) {
            Some(value) if !value.is_null() => value.clone(),
            _ => old,
        };
        record.insert((*name).to_owned(), value.clone());
        config.insert((*flat).to_owned(), value);
    }
    config.insert("redis".to_owned(), Value::Object(record));
}

/// The connections of all plugins, each once; one is let go with the last filter
/// that uses it.
#[derive(Default)]
struct Connections(Mutex<HashMap<String, Weak<Redis>>>);

impl RedisFields {
    /// The connection that the record describes.
    ///
    /// # Errors
    /// [`ConfigError`] where it describes none, or one that can't be had here.
    pub(crate) fn connect(self, parts: &Parts) -> Result<Arc<Redis>, ConfigError> {
        let record = self.0;
        let tls = record.ssl;
        let host = record.host.unwrap_or_default();
        if tls && !record.ssl_verify {
            let message =
                "a certificate that nobody looks at protects nothing: set ssl_verify: true";
            return Err(wrong("redis.ssl_verify", message));
        }
        if tls && record.server_name.is_some_and(|name| name != host) {
            let message =
                "can't differ from the host: name the Redis by the name of its certificate";
            return Err(wrong("redis.server_name", message));
        }
        let scheme = if tls { "rediss" } else { "redis" };
        let authority = if host.contains(':') {
            format!("[{host}]")
        } else {
            host
        };
        let port = record.port.unwrap_or(6379);
        let database = record.database.unwrap_or(0);
        let timeout = record.timeout.unwrap_or(2000);
        let timeout = timeout.clamp(*DEADLINE.start(), *DEADLINE.end());
        let config = RedisConfig {
            url: Secret::new(format!("{scheme}://{authority}:{port}/{database}")),
            username: record.username.filter(|name| !name.is_empty()),
            password: record
                .password
                .filter(|password| !password.expose().is_empty()),
            ca: None,
            deadline: format!("{timeout} ms"),
        };
        shared(&config, parts)
    }
}

/// The connection that all plugins with this configuration have.
fn shared(config: &RedisConfig, parts: &Parts) -> Result<Arc<Redis>, ConfigError> {
    let key = format!(
        "{} {} {:?} {:?}",
        config.url.expose(),
        config.deadline,
        config.username,
        config.password.as_ref().map(Secret::expose),
    );
    let connections = parts.slots.get_or_default::<Connections>();
    let mut all = connections.0.lock();
    if let Some(redis) = all.get(&key).and_then(Weak::upgrade) {
        return Ok(redis);
    }
    let redis = Redis::of_plugins(config);
    let redis = redis.map_err(|error| wrong("redis", error.to_string()))?;
    let redis = Arc::new(redis);
    all.retain(|_, redis| redis.strong_count() > 0);
    all.insert(key, Arc::downgrade(&redis));
    Ok(redis)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;
    use crate::testing::parts;

    fn prefilled(config: Value) -> Value {
        let mut config = config.as_object().unwrap().clone();
        prefill(&mut config);
        Value::Object(config)
    }

    #[test]
    fn older_fields_fill_the_record_and_never_overwrite_it() {
        let config = prefilled(json!({"redis_host": "a", "redis_port": 1}));
        assert_eq!(config["redis"], json!({"host": "a", "port": 1}));
        let config = json!({"redis_host": "a", "redis": {"host": "b", "port": null}});
        let config = prefilled(config);
        assert_eq!(config["redis"], json!({"host": "b", "port": null}));
        assert_eq!(config["redis_host"], "b");
        assert_eq!(prefilled(json!({"redis": null})), json!({"redis": null}));
    }

    #[test]
    fn an_older_field_of_an_input_says_what_its_record_does_not() {
        let expanded = |input: Value| {
            let mut input = input.as_object().unwrap().clone();
            shorthand(&mut input, &mut Violations::default());
            Value::Object(input)
        };
        let input = expanded(json!({"redis_host": "b", "redis": null}));
        assert_eq!(input["redis"], json!({"host": "b"}));
        let input =
            expanded(json!({"redis_host": "b", "redis_port": null, "redis": {"host": "c"}}));
        assert_eq!(input["redis"], json!({"host": "c"}));
        assert_eq!(expanded(json!({"minute": 1})), json!({"minute": 1}));
    }

    #[test]
    fn plugins_with_the_same_redis_share_a_connection() {
        let parts = parts();
        let connect = |record: Value| {
            let config = json!({ "redis": record });
            let fields = RedisFields::read(config.as_object().unwrap());
            fields.unwrap().connect(&parts)
        };
        let one = connect(json!({"host": "127.0.0.1", "port": 1})).unwrap();
        let same = connect(json!({"host": "127.0.0.1", "port": 1})).unwrap();
        assert!(Arc::ptr_eq(&one, &same));
        let other = connect(json!({"host": "127.0.0.1", "port": 1, "database": 2})).unwrap();
        assert!(!Arc::ptr_eq(&one, &other));
        let unverified = connect(json!({"host": "a", "ssl": true, "ssl_verify": false}));
        assert_eq!(unverified.err().unwrap().field, "redis.ssl_verify");
    }
}
