use serde_json::{Value, json};

use crate::session::storage::config::*;

fn remote(config: &Value) -> Result<RemoteConfig, String> {
    match Choice::of(&Fields::of(config).map_err(|error| error.field)?) {
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
fn a_redis_whose_certificate_is_not_to_be_verified_is_warned_of() {
    let warned = |config: Value| warning(&Fields::of(&config).expect("valid"));
    let unverified = json!({"session_storage": "redis", "session_redis_ssl": true,
        "session_redis_ssl_verify": false});
    let warned_of = warned(unverified).expect("a warning");
    assert!(warned_of.starts_with("redis.ssl_verify is false"));
    let plain = json!({"session_storage": "redis", "redis": {"host": "r", "ssl": false}});
    assert!(warned(plain).is_none());
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
