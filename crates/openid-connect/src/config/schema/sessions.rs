//! Sessions: their life, their cookies, and where they are kept.

use crate::config::schema::{
    AUTH_METHODS, SECONDS_MAX, flag, port, seconds, text, texts, timeout, word, words,
};
use doorward_core::model::schema::{Field, Schema, Type};

const SESSION_STORES: &[&str] = &["cookie", "memcache", "memcached", "redis", "store"];
const SAME_SITE: &[&str] = &["Strict", "Lax", "None", "Default", "off"];

/// Interface 2.7 from the session fields on.
pub(crate) fn interface_sessions() -> Vec<Field> {
    vec![
        word("session_storage", SESSION_STORES).default("cookie"),
        text("session_cookie_name").default("session"),
        text("session_cookie_path").default("/"),
        seconds("session_cookie_lifetime").default(3600),
        word("session_cookie_samesite", SAME_SITE).default("Lax"),
        flag("session_cookie_httponly", true),
        text("authorization_cookie_name").default("authorization"),
        text("authorization_cookie_path").default("/"),
        seconds("authorization_cookie_lifetime").default(600),
        word("authorization_cookie_samesite", SAME_SITE).default("off"),
        flag("authorization_cookie_httponly", true),
        text("session_memcache_host").default("127.0.0.1"),
        port("session_memcache_port").default(11_211),
        text("session_memcache_prefix").default("sessions"),
        text("session_redis_host").default("127.0.0.1"),
        port("session_redis_port").default(6379),
        text("session_redis_prefix").default("sessions"),
    ]
}

/// Sessions, under their newer names and with what 2.7 does not have.
pub(crate) fn sessions() -> Vec<Field> {
    vec![
        text("session_secret").referenceable(),
        words("disable_session", AUTH_METHODS),
        text("session_cookie_domain"),
        Field::new("session_cookie_secure", Type::Boolean),
        word("session_cookie_same_site", SAME_SITE),
        Field::new("session_cookie_http_only", Type::Boolean),
        seconds("session_cookie_idletime"),
        Field::new("session_cookie_renew", Type::Integer(0, SECONDS_MAX)),
        Field::new("session_cookie_maxsize", Type::Integer(0, 1_048_576)),
        text("session_strategy"),
        text("session_compressor"),
        seconds("session_rolling_timeout"),
        seconds("session_idling_timeout"),
        seconds("session_absolute_timeout"),
        flag("session_remember", false),
        text("session_remember_cookie_name").default("remember"),
        seconds("session_remember_rolling_timeout").default(604_800),
        seconds("session_remember_absolute_timeout").default(2_592_000),
        text("session_audience").default("default"),
        flag("session_store_metadata", false),
        flag("session_enforce_same_subject", false),
        flag("session_hash_subject", false),
        flag("session_hash_storage_key", false),
        flag("end_with_session", false),
        texts("session_request_headers"),
        texts("session_response_headers"),
        Field::new(
            "session_bind",
            Type::array(Type::word(&["ip", "scheme", "user-agent"])),
        ),
        text("authorization_cookie_domain"),
        Field::new("authorization_cookie_secure", Type::Boolean),
        word("authorization_cookie_same_site", SAME_SITE),
        Field::new("authorization_cookie_http_only", Type::Boolean),
        seconds("authorization_rolling_timeout"),
    ]
}

/// Where sessions are kept, beyond what 2.7 names.
pub(crate) fn stores() -> Vec<Field> {
    vec![
        text("session_memcache_socket"),
        text("session_memcached_host"),
        port("session_memcached_port"),
        text("session_memcached_prefix"),
        text("session_memcached_socket"),
        text("session_redis_socket"),
        text("session_redis_auth"),
        text("session_redis_username"),
        text("session_redis_password").referenceable(),
        Field::new("session_redis_ssl", Type::Boolean),
        Field::new("session_redis_ssl_verify", Type::Boolean),
        text("session_redis_server_name"),
        timeout("session_redis_connect_timeout"),
        timeout("session_redis_read_timeout"),
        timeout("session_redis_send_timeout"),
        Field::new("session_redis_cluster_nodes", Type::array(nodes("ip"))),
        Field::new(
            "session_redis_cluster_max_redirections",
            Type::Integer(0, 100),
        ),
        Field::new("redis", redis()),
    ]
}

pub(crate) fn redis() -> Type {
    Type::Record(Schema::new(vec![
        text("host").default("127.0.0.1"),
        port("port").default(6379),
        Field::new("database", Type::Integer(0, i64::from(i32::MAX))).default(0),
        text("username"),
        text("password").referenceable(),
        text("prefix"),
        text("socket"),
        flag("ssl", false),
        flag("ssl_verify", false),
        text("server_name"),
        timeout("connect_timeout").default(2000),
        timeout("read_timeout").default(2000),
        timeout("send_timeout").default(2000),
        Field::new("keepalive_pool_size", Type::Integer(1, 2_147_483_646)).default(256),
        Field::new("keepalive_backlog", Type::Integer(0, 2_147_483_646)),
        text("sentinel_master"),
        word("sentinel_role", &["master", "slave", "any"]),
        text("sentinel_username"),
        text("sentinel_password").referenceable(),
        Field::new("sentinel_nodes", Type::array(nodes("host"))),
        Field::new("cluster_nodes", Type::array(nodes("ip"))),
        Field::new("cluster_max_redirections", Type::Integer(0, 100)).default(5),
        flag("connection_is_proxied", false),
    ]))
}

fn nodes(address: &'static str) -> Type {
    Type::Record(Schema::new(vec![
        text(address).default("127.0.0.1"),
        port("port").default(6379),
    ]))
}
