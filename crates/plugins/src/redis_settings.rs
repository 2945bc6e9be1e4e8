//! The `redis` record of plugins that count together with other nodes, and the
//! connections that it leads to.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde_json::{Map, Value};

use crate::settings::{Settings, wrong};
use doorward_core::model::schema::{Field, Schema, Type, Violation, Violations, failed_condition};
use doorward_core::model::secret::Secret;
use doorward_net::shared::{Redis, RedisConfig};
use doorward_plugin_api::{ConfigError, Parts};

/// Longest and shortest wait for an answer, in milliseconds.
const DEADLINE: std::ops::RangeInclusive<i64> = 1..=10_000;

/// The fields of the record.
fn record() -> Schema {
    let flag = |name| Field::new(name, Type::Boolean).default(false);
    Schema::new(vec![
        Field::new("host", Type::some_text()),
        Field::new("port", Type::Integer(0, 65_535)).default(6379),
        Field::new("timeout", Type::Integer(0, 2_147_483_646)).default(2000),
        Field::new("username", Type::some_text()).referenceable(),
        Field::new("password", Type::text()).referenceable(),
        Field::new("database", Type::Integer(0, i64::from(u16::MAX))).default(0),
        flag("ssl"),
        flag("ssl_verify"),
        Field::new("server_name", Type::some_text()),
    ])
}

/// Older names of the record's fields, which stand beside it.
const FLAT: &[(&str, &str)] = &[
    ("redis_host", "host"),
    ("redis_port", "port"),
    ("redis_timeout", "timeout"),
    ("redis_username", "username"),
    ("redis_password", "password"),
    ("redis_database", "database"),
    ("redis_ssl", "ssl"),
    ("redis_ssl_verify", "ssl_verify"),
    ("redis_server_name", "server_name"),
];

/// The record, and the older fields beside it.
pub(crate) fn fields() -> Vec<Field> {
    let inner = record();
    let kind = |name: &str| {
        inner
            .field(name)
            .map_or(Type::Any, |field| field.kind.clone())
    };
    let flat: Vec<_> = FLAT
        .iter()
        .map(|(flat, name)| {
            let field = Field::new(flat, kind(name));
            let secret = ["username", "password"].contains(name);
            if secret { field.referenceable() } else { field }
        })
        .collect();
    let mut fields = vec![Field::new("redis", Type::Record(inner)).required()];
    fields.extend(flat);
    fields
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
        .filter(|(flat, _)| config.get(*flat).is_some_and(|value| !value.is_null()))
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
    for (flat, name) in flat {
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

/// Demands what `policy: redis` needs.
pub(crate) fn check(config: &Map<String, Value>, violations: &mut Violations) {
    let config = Settings(config);
    if config.text("policy") != Some("redis") {
        return;
    }
    let record = config.record("redis");
    for field in ["host", "port", "timeout"] {
        if record.get(field).is_none() {
            let missing = Violations::of(field, "required field missing");
            violations.put("redis", Violation::Record(missing));
            violations.put_holder(failed_condition("config.policy"));
        }
    }
}

/// The connections of all plugins, each once; one is let go with the last filter
/// that uses it.
#[derive(Default)]
struct Connections(Mutex<HashMap<String, Weak<Redis>>>);

/// The connection that `config` describes.
///
/// # Errors
/// [`ConfigError`] where it describes none, or one that can't be had here.
pub(crate) fn connect(config: Settings<'_>, parts: &Parts) -> Result<Arc<Redis>, ConfigError> {
    let record = config.record("redis");
    let tls = record.flag("ssl");
    let host = record.text("host").unwrap_or_default();
    if tls && !record.flag("ssl_verify") {
        let message = "a certificate that nobody looks at protects nothing: set ssl_verify: true";
        return Err(wrong("redis.ssl_verify", message));
    }
    if tls && record.text("server_name").is_some_and(|name| name != host) {
        let message = "can't differ from the host: name the Redis by the name of its certificate";
        return Err(wrong("redis.server_name", message));
    }
    let scheme = if tls { "rediss" } else { "redis" };
    let authority = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    let port = record.integer("port").unwrap_or(6379);
    let database = record.integer("database").unwrap_or(0);
    let timeout = record.integer("timeout").unwrap_or(2000);
    let timeout = timeout.clamp(*DEADLINE.start(), *DEADLINE.end());
    let url = format!("{scheme}://{authority}:{port}/{database}");
    let username = record.some_text("username");
    let password = record.some_text("password");
    let key = format!("{url} {timeout} {username:?} {password:?}");
    let connections = parts.slots.get_or_default::<Connections>();
    let mut all = connections.0.lock();
    if let Some(redis) = all.get(&key).and_then(Weak::upgrade) {
        return Ok(redis);
    }
    let redis = Redis::of_plugins(&RedisConfig {
        url: Secret::new(url),
        username: username.map(str::to_owned),
        password: password.map(|password| Secret::new(password.to_owned())),
        ca: None,
        deadline: format!("{timeout} ms"),
    });
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
            connect(Settings(config.as_object().unwrap()), &parts)
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
