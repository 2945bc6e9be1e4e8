//! Sessions: their life, their cookies, and where they are kept.

use crate::config::fields::types::{Bounded, Millis, Port, Seconds, Set, Texts};
use crate::config::methods::Method;
use doorward_plugin_api::config::{AnyText, FieldWord};
use doorward_plugin_api::{config, words};

words! {
    /// Where sessions are kept.
    pub(crate) enum SessionStorage {
        /// In the cookie itself.
        Cookie = "cookie",
        /// In Memcached.
        Memcache = "memcache",
        /// In Memcached, by its newer name.
        Memcached = "memcached",
        /// In Redis.
        Redis = "redis",
        /// In the gateway's own store.
        Store = "store",
    }
}

words! {
    /// From which sites browsers send a cookie.
    pub(crate) enum CookieSameSite {
        /// From its own.
        Strict = "Strict",
        /// From others, too, by a link.
        Lax = "Lax",
        /// From all.
        None = "None",
        /// As browsers do.
        Default = "Default",
        /// As browsers do.
        Off = "off",
    }
}

words! {
    /// What a session is bound to besides its cookie.
    pub(crate) enum SessionBinding {
        /// The address of the client.
        Ip = "ip",
        /// Whether the request came by TLS.
        Scheme = "scheme",
        /// What the client calls itself.
        UserAgent = "user-agent",
    }
}

words! {
    /// The server of a group that is looked for.
    pub(crate) enum SentinelRole {
        /// The one that is written to.
        Master = "master",
        /// One that follows.
        Slave = "slave",
        /// Any.
        Any = "any",
    }
}

/// Where Redis is if nothing else is said.
pub(crate) const REDIS_HOST: &str = "127.0.0.1";
/// The port of Redis.
pub(crate) const REDIS_PORT: i64 = 6379;
/// How long to wait for Redis, in milliseconds.
pub(crate) const REDIS_WAIT: i64 = 2000;
/// What the names of stored sessions begin with.
pub(crate) const STORE_PREFIX: &str = "sessions";
/// How many connections to Redis would be kept.
pub(crate) const REDIS_POOL_SIZE: i64 = 256;
/// How often a cluster of Redis would be followed elsewhere.
pub(crate) const REDIS_REDIRECTIONS: i64 = 5;

config! {
    /// The session fields of every age.
    pub(crate) struct CookieFields {
        /// Where sessions are kept.
        #[field(default(SessionStorage::Cookie.word()))]
        pub(crate) session_storage: SessionStorage,
        /// The cookie of sessions.
        #[field(default("session"))]
        pub(crate) session_cookie_name: Option<AnyText>,
        /// The path of that cookie.
        #[field(default("/"))]
        pub(crate) session_cookie_path: AnyText,
        /// How long a session lasts after its last renewal, in seconds. 0: without end.
        #[field(default(3600))]
        pub(crate) session_cookie_lifetime: Seconds,
        /// From which sites browsers send the session.
        #[field(default(CookieSameSite::Lax.word()))]
        pub(crate) session_cookie_samesite: Option<CookieSameSite>,
        /// Whether scripts do not see the session.
        #[field(default(true))]
        pub(crate) session_cookie_httponly: bool,
        /// The cookie of logins that are under way.
        #[field(default("authorization"))]
        pub(crate) authorization_cookie_name: Option<AnyText>,
        /// The path of that cookie.
        #[field(default("/"))]
        pub(crate) authorization_cookie_path: AnyText,
        /// How long a login may take, in seconds.
        #[field(default(600))]
        pub(crate) authorization_cookie_lifetime: Seconds,
        /// From which sites browsers send the cookie of a login.
        #[field(default(CookieSameSite::Off.word()))]
        pub(crate) authorization_cookie_samesite: Option<CookieSameSite>,
        /// Whether scripts do not see the cookie of a login.
        #[field(default(true))]
        pub(crate) authorization_cookie_httponly: bool,
        /// The host of Memcached.
        #[field(default("127.0.0.1"))]
        pub(crate) session_memcache_host: Option<AnyText>,
        /// The port of Memcached.
        #[field(default(11_211))]
        pub(crate) session_memcache_port: Option<Port>,
        /// What the names of sessions in Memcached begin with.
        #[field(default(STORE_PREFIX))]
        pub(crate) session_memcache_prefix: Option<AnyText>,
        /// The host of Redis.
        #[field(default(REDIS_HOST))]
        pub(crate) session_redis_host: Option<AnyText>,
        /// The port of Redis.
        #[field(default(REDIS_PORT))]
        pub(crate) session_redis_port: Option<Port>,
        /// What the names of sessions in Redis begin with.
        #[field(default(STORE_PREFIX))]
        pub(crate) session_redis_prefix: Option<AnyText>,
    }
}

config! {
    /// Sessions, under their newer names and with what older files do not have.
    pub(crate) struct SessionFields {
        /// The secrets that sessions are sealed with, one a line; the first seals.
        #[field(referenceable)]
        pub(crate) session_secret: Option<AnyText>,
        /// The methods that begin no session.
        pub(crate) disable_session: Set<Method>,
        /// The domain of the cookie of sessions. Null: the host of the request.
        pub(crate) session_cookie_domain: Option<AnyText>,
        /// Whether browsers send sessions by TLS alone. Null: as the request came.
        pub(crate) session_cookie_secure: Option<bool>,
        /// In the place of `session_cookie_samesite`.
        pub(crate) session_cookie_same_site: Option<CookieSameSite>,
        /// In the place of `session_cookie_httponly`.
        pub(crate) session_cookie_http_only: Option<bool>,
        /// How long a session lasts without a request, in seconds.
        pub(crate) session_cookie_idletime: Option<Seconds>,
        /// Without effect yet.
        pub(crate) session_cookie_renew: Option<Seconds>,
        /// Without effect yet.
        pub(crate) session_cookie_maxsize: Option<Bounded<0, 1_048_576>>,
        /// Without effect yet.
        pub(crate) session_strategy: Option<AnyText>,
        /// Without effect yet.
        pub(crate) session_compressor: Option<AnyText>,
        /// In the place of `session_cookie_lifetime`.
        pub(crate) session_rolling_timeout: Option<Seconds>,
        /// In the place of `session_cookie_idletime`.
        pub(crate) session_idling_timeout: Option<Seconds>,
        /// How long a session lasts at most, in seconds. Null: a day. 0: without end.
        pub(crate) session_absolute_timeout: Option<Seconds>,
        /// Whether browsers are remembered beyond the end of their session.
        #[field(default(false))]
        pub(crate) session_remember: bool,
        /// The cookie of browsers that are remembered.
        #[field(default("remember"))]
        pub(crate) session_remember_cookie_name: AnyText,
        /// How long a browser is remembered after the last renewal, in seconds.
        #[field(default(604_800))]
        pub(crate) session_remember_rolling_timeout: Seconds,
        /// How long a browser is remembered at most, in seconds.
        #[field(default(2_592_000))]
        pub(crate) session_remember_absolute_timeout: Seconds,
        /// What sessions are for: plugins of another audience do not take them.
        #[field(default("default"))]
        pub(crate) session_audience: Option<AnyText>,
        /// Without effect yet.
        #[field(default(false))]
        pub(crate) session_store_metadata: bool,
        /// Without effect: a session is of one user.
        #[field(default(false))]
        pub(crate) session_enforce_same_subject: bool,
        /// Whether stored sessions know their user by a hash.
        #[field(default(false))]
        pub(crate) session_hash_subject: bool,
        /// Without effect: storages know sessions by a hash.
        #[field(default(false))]
        pub(crate) session_hash_storage_key: bool,
        /// Whether answers end with the session or the token of their request.
        #[field(default(false))]
        pub(crate) end_with_session: bool,
        /// What the upstream is told of a session.
        pub(crate) session_request_headers: Texts,
        /// What the client is told of a session.
        pub(crate) session_response_headers: Texts,
        /// What sessions are bound to besides their cookie.
        pub(crate) session_bind: Vec<SessionBinding>,
        /// The domain of the cookie of a login. Null: the host of the request.
        pub(crate) authorization_cookie_domain: Option<AnyText>,
        /// Whether browsers send the cookie of a login by TLS alone. Null: as the request
        /// came.
        pub(crate) authorization_cookie_secure: Option<bool>,
        /// In the place of `authorization_cookie_samesite`.
        pub(crate) authorization_cookie_same_site: Option<CookieSameSite>,
        /// In the place of `authorization_cookie_httponly`.
        pub(crate) authorization_cookie_http_only: Option<bool>,
        /// In the place of `authorization_cookie_lifetime`.
        pub(crate) authorization_rolling_timeout: Option<Seconds>,
    }
}

config! {
    /// Where sessions are kept, under newer names.
    pub(crate) struct StoreFields {
        /// The socket of Memcached.
        pub(crate) session_memcache_socket: Option<AnyText>,
        /// In the place of `session_memcache_host`.
        pub(crate) session_memcached_host: Option<AnyText>,
        /// In the place of `session_memcache_port`.
        pub(crate) session_memcached_port: Option<Port>,
        /// In the place of `session_memcache_prefix`.
        pub(crate) session_memcached_prefix: Option<AnyText>,
        /// In the place of `session_memcache_socket`.
        pub(crate) session_memcached_socket: Option<AnyText>,
        /// The socket of Redis.
        pub(crate) session_redis_socket: Option<AnyText>,
        /// The password of Redis, by its older name.
        pub(crate) session_redis_auth: Option<AnyText>,
        /// The user at Redis.
        pub(crate) session_redis_username: Option<AnyText>,
        /// The password of Redis.
        #[field(referenceable)]
        pub(crate) session_redis_password: Option<AnyText>,
        /// Whether Redis is reached by TLS.
        pub(crate) session_redis_ssl: Option<bool>,
        /// Whether the certificate of Redis is checked. It is in any case.
        pub(crate) session_redis_ssl_verify: Option<bool>,
        /// Without effect: certificates must name the host.
        pub(crate) session_redis_server_name: Option<AnyText>,
        /// How long to wait for a connection to Redis, in milliseconds.
        pub(crate) session_redis_connect_timeout: Option<Millis>,
        /// How long to wait for an answer of Redis, in milliseconds.
        pub(crate) session_redis_read_timeout: Option<Millis>,
        /// How long to wait for Redis to take a question, in milliseconds.
        pub(crate) session_redis_send_timeout: Option<Millis>,
        /// Refused where sessions are in Redis: Redis Cluster is not supported.
        pub(crate) session_redis_cluster_nodes: Vec<ClusterNode>,
        /// Without effect: Redis Cluster is not supported.
        pub(crate) session_redis_cluster_max_redirections: Option<Bounded<0, 100>>,
        /// The Redis of sessions, in the place of `session_redis_…`.
        pub(crate) redis: Option<RedisFields>,
    }
}

config! {
    /// A server or a group of servers of Redis.
    pub(crate) struct RedisFields {
        /// Its host.
        #[field(default(REDIS_HOST))]
        pub(crate) host: Option<AnyText>,
        /// Its port.
        #[field(default(REDIS_PORT))]
        pub(crate) port: Option<Port>,
        /// The number of the database.
        #[field(default(0))]
        pub(crate) database: Option<Bounded<0, 2_147_483_647>>,
        /// The user.
        pub(crate) username: Option<AnyText>,
        /// The password.
        #[field(referenceable)]
        pub(crate) password: Option<AnyText>,
        /// What the names of sessions begin with.
        pub(crate) prefix: Option<AnyText>,
        /// The path of a socket.
        pub(crate) socket: Option<AnyText>,
        /// Whether it is reached by TLS.
        #[field(default(false))]
        pub(crate) ssl: Option<bool>,
        /// Whether its certificate is checked. It is in any case.
        #[field(default(false))]
        pub(crate) ssl_verify: Option<bool>,
        /// Without effect: certificates must name the host.
        pub(crate) server_name: Option<AnyText>,
        /// How long to wait for a connection, in milliseconds.
        #[field(default(REDIS_WAIT))]
        pub(crate) connect_timeout: Option<Millis>,
        /// How long to wait for an answer, in milliseconds.
        #[field(default(REDIS_WAIT))]
        pub(crate) read_timeout: Option<Millis>,
        /// How long to wait for it to take a question, in milliseconds.
        #[field(default(REDIS_WAIT))]
        pub(crate) send_timeout: Option<Millis>,
        /// Without effect: requests share one connection.
        #[field(default(REDIS_POOL_SIZE))]
        pub(crate) keepalive_pool_size: Option<Bounded<1, 2_147_483_646>>,
        /// Without effect: requests share one connection.
        pub(crate) keepalive_backlog: Option<Millis>,
        /// Without effect: Redis Sentinel is not supported.
        pub(crate) sentinel_master: Option<AnyText>,
        /// Without effect: Redis Sentinel is not supported.
        pub(crate) sentinel_role: Option<SentinelRole>,
        /// Without effect: Redis Sentinel is not supported.
        pub(crate) sentinel_username: Option<AnyText>,
        /// Without effect: Redis Sentinel is not supported.
        #[field(referenceable)]
        pub(crate) sentinel_password: Option<AnyText>,
        /// Refused for sessions in Redis, without effect else: Redis Sentinel is not
        /// supported.
        pub(crate) sentinel_nodes: Option<Vec<SentinelNode>>,
        /// Refused for sessions in Redis, without effect else: Redis Cluster is not
        /// supported.
        pub(crate) cluster_nodes: Option<Vec<ClusterNode>>,
        /// Without effect: Redis Cluster is not supported.
        #[field(default(REDIS_REDIRECTIONS))]
        pub(crate) cluster_max_redirections: Option<Bounded<0, 100>>,
        /// Without effect: a proxy is spoken to like a server.
        #[field(default(false))]
        pub(crate) connection_is_proxied: bool,
    }
}

config! {
    /// A server of a cluster.
    pub(crate) struct ClusterNode {
        /// Its address.
        #[field(default(REDIS_HOST))]
        _ip as "ip": Option<AnyText>,
        /// Its port.
        #[field(default(REDIS_PORT))]
        _port as "port": Option<Port>,
    }
}

config! {
    /// A server that knows the others.
    pub(crate) struct SentinelNode {
        /// Its host.
        #[field(default(REDIS_HOST))]
        _host as "host": Option<AnyText>,
        /// Its port.
        #[field(default(REDIS_PORT))]
        _port as "port": Option<Port>,
    }
}
