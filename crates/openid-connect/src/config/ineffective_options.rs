//! Settings that are taken and change nothing, or nothing of what they are set
//! beside: an operator is told which, and why.

use crate::config::fields::Fields;
use crate::config::fields::client::IntrospectionAccept;
use crate::config::fields::login::{Action, LoginToken};
use crate::config::fields::sessions::{REDIS_POOL_SIZE, REDIS_REDIRECTIONS, RedisFields};
use crate::config::methods::{Method, Methods};

/// Settings that change nothing whatever they say: whether each is set, and why.
fn never(fields: &Fields) -> [(&'static str, bool, &'static str); 7] {
    [
        (
            "cache_tokens_salt",
            fields.lifetimes.cache_tokens_salt.is_some(),
            "since what is remembered is of this plugin alone",
        ),
        (
            "token_cache_key_include_scope",
            fields.lifetimes.token_cache_key_include_scope,
            "since scopes are part of the key where they differ from request to request",
        ),
        (
            "reverify",
            fields.checks.reverify,
            "since the tokens of sessions are verified with every request in any case",
        ),
        (
            "session_hash_storage_key",
            fields.sessions.session_hash_storage_key,
            "since storages know sessions by a hash in any case",
        ),
        (
            "session_enforce_same_subject",
            fields.sessions.session_enforce_same_subject,
            "since a session is of one user in any case",
        ),
        (
            "session_redis_cluster_max_redirections",
            fields
                .stores
                .session_redis_cluster_max_redirections
                .is_some(),
            NO_CLUSTER,
        ),
        (
            "session_redis_server_name",
            fields.stores.session_redis_server_name.is_some(),
            SERVER_NAME,
        ),
    ]
}

const NO_CLUSTER: &str = "since Redis Cluster is not supported";
const NO_SENTINEL: &str = "since Redis Sentinel is not supported";
const ONE_CONNECTION: &str = "since requests share one connection";
const SERVER_NAME: &str = "since certificates must name the host";

/// The same in the record `redis`.
fn of_redis(redis: &RedisFields) -> [(&'static str, bool, &'static str); 9] {
    let pool_size = redis.keepalive_pool_size;
    let redirections = redis.cluster_max_redirections;
    [
        (
            "redis.keepalive_pool_size",
            pool_size.is_some_and(|size| size.0 != REDIS_POOL_SIZE),
            ONE_CONNECTION,
        ),
        (
            "redis.keepalive_backlog",
            redis.keepalive_backlog.is_some(),
            ONE_CONNECTION,
        ),
        (
            "redis.connection_is_proxied",
            redis.connection_is_proxied,
            "since a proxy is spoken to like a server",
        ),
        (
            "redis.cluster_max_redirections",
            redirections.is_some_and(|most| most.0 != REDIS_REDIRECTIONS),
            NO_CLUSTER,
        ),
        (
            "redis.server_name",
            redis.server_name.is_some(),
            SERVER_NAME,
        ),
        (
            "redis.sentinel_master",
            redis.sentinel_master.is_some(),
            NO_SENTINEL,
        ),
        (
            "redis.sentinel_role",
            redis.sentinel_role.is_some(),
            NO_SENTINEL,
        ),
        (
            "redis.sentinel_username",
            redis.sentinel_username.is_some(),
            NO_SENTINEL,
        ),
        (
            "redis.sentinel_password",
            redis.sentinel_password.is_some(),
            NO_SENTINEL,
        ),
    ]
}

/// Exemptions of methods whose tokens are not verified by a signature.
const NOT_SIGNED: [Method; 3] = [Method::KongOauth2, Method::Introspection, Method::Userinfo];

/// What an operator should know of such settings.
pub(crate) fn warnings(fields: &Fields, methods: Methods) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |name: &str, why: &str| warnings.push(format!("{name}: without effect {why}"));
    let of_redis = fields.stores.redis.iter().flat_map(of_redis);
    for (name, is_set, why) in never(fields).into_iter().chain(of_redis) {
        if is_set {
            warn(name, why);
        }
    }
    let exempt = &fields.claims.ignore_signature;
    for method in NOT_SIGNED.map(Method::name) {
        if exempt.iter().any(|one| one == method) {
            let name = format!("ignore_signature: {method}");
            warn(
                &name,
                "since the provider itself says what these tokens are good for",
            );
        }
    }
    if (fields.connection.http_version - 1.0).abs() < 0.001 {
        warn("http_version: 1.0", "since HTTP/1.1 is spoken");
    }
    let least = fields.lifetimes.cache_ttl_min.map_or(0, |least| least.0);
    if least > 0 && fields.cache.cache_ttl.0 >= least {
        let why = "since cache_ttl is no shorter, and nothing is believed beyond its own end";
        warn("cache_ttl_min", why);
    }
    if !fields.responses.scripts_origins.is_empty() && !fields.responses.scripts_unauthorized {
        warn("scripts_origins", "since scripts_unauthorized is off");
    }
    if tells_logins_of_introspection(fields, methods) {
        let why = "for logins, whose tokens are not introspected, and in redirects";
        warn("login_tokens: introspection", why);
    }
    warn_of_introspection(fields, methods, &mut warn);
    warnings
}

/// Whether browsers are to be told what was never asked.
fn tells_logins_of_introspection(fields: &Fields, methods: Methods) -> bool {
    let code = Method::AuthorizationCode;
    let tells = match fields.login.login_action {
        Action::Redirect => true,
        Action::Response => methods.has(code) && fields.login.login_methods.contains(&code),
        Action::Upstream => false,
    };
    tells
        && fields
            .login
            .login_tokens
            .contains(&LoginToken::Introspection)
}

/// Headers that tell what the provider is rarely asked.
fn warn_of_introspection(fields: &Fields, methods: Methods, warn: &mut impl FnMut(&str, &str)) {
    let on = methods.has(Method::Introspection);
    let of_all = fields.tokens.introspect_jwt_tokens || !methods.has(Method::Bearer);
    let signed = fields.client.introspection_accept != Some(IntrospectionAccept::Json);
    let why = match (on, of_all, methods.has(Method::Session)) {
        (false, _, _) => Some("since introspection is off"),
        (_, false, _) => {
            Some("for tokens that are verified here, since introspect_jwt_tokens is off")
        }
        (_, true, true) => Some("for sessions, whose signed tokens are not introspected"),
        (_, true, false) => None,
    };
    let of = &fields.headers;
    for (name, header, is_jwt) in [
        (
            "upstream_introspection_header",
            &of.upstream_introspection_header,
            false,
        ),
        (
            "upstream_introspection_jwt_header",
            &of.upstream_introspection_jwt_header,
            true,
        ),
        (
            "downstream_introspection_header",
            &of.downstream_introspection_header,
            false,
        ),
        (
            "downstream_introspection_jwt_header",
            &of.downstream_introspection_jwt_header,
            true,
        ),
    ] {
        if header.as_deref().is_none_or(str::is_empty) {
            continue;
        }
        match why {
            _ if is_jwt && on && !signed => {
                warn(name, "since introspection_accept asks for no token");
            }
            Some(why) => warn(name, why),
            None => {}
        }
    }
}
