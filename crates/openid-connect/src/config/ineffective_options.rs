//! Settings that are taken and change nothing, or nothing of what they are set
//! beside: an operator is told which, and why.

use serde_json::Value;

use crate::config::fields::Fields;
use crate::config::methods::{Method, Methods};
use doorward_plugin_api::ConfigError;

/// Settings that change nothing whatever they say.
const NEVER: [(&str, &str); 7] = [
    (
        "cache_tokens_salt",
        "since what is remembered is of this plugin alone",
    ),
    (
        "token_cache_key_include_scope",
        "since scopes are part of the key where they differ from request to request",
    ),
    (
        "reverify",
        "since the tokens of sessions are verified with every request in any case",
    ),
    (
        "session_hash_storage_key",
        "since storages know sessions by a hash in any case",
    ),
    (
        "session_enforce_same_subject",
        "since a session is of one user in any case",
    ),
    (
        "session_redis_cluster_max_redirections",
        "since Redis Cluster is not supported",
    ),
    (
        "session_redis_server_name",
        "since certificates must name the host",
    ),
];

/// The same in the record `redis`, with the defaults that mean nothing.
const OF_REDIS: [(&str, Option<i64>, &str); 9] = [
    (
        "keepalive_pool_size",
        Some(256),
        "since requests share one connection",
    ),
    (
        "keepalive_backlog",
        None,
        "since requests share one connection",
    ),
    (
        "connection_is_proxied",
        None,
        "since a proxy is spoken to like a server",
    ),
    (
        "cluster_max_redirections",
        Some(5),
        "since Redis Cluster is not supported",
    ),
    ("server_name", None, "since certificates must name the host"),
    (
        "sentinel_master",
        None,
        "since Redis Sentinel is not supported",
    ),
    (
        "sentinel_role",
        None,
        "since Redis Sentinel is not supported",
    ),
    (
        "sentinel_username",
        None,
        "since Redis Sentinel is not supported",
    ),
    (
        "sentinel_password",
        None,
        "since Redis Sentinel is not supported",
    ),
];

/// Exemptions of methods whose tokens are not verified by a signature.
const NOT_SIGNED: [Method; 3] = [Method::KongOauth2, Method::Introspection, Method::Userinfo];

/// What an operator should know of such settings.
pub(crate) fn warnings(fields: Fields<'_>, methods: Methods) -> Result<Vec<String>, ConfigError> {
    let mut warnings = Vec::new();
    let mut warn = |name: &str, why: &str| warnings.push(format!("{name}: without effect {why}"));
    for (name, why) in NEVER {
        if fields.is_changed(name) {
            warn(name, why);
        }
    }
    let redis = fields.object("redis")?;
    for (name, default, why) in OF_REDIS {
        let given = redis.and_then(|redis| redis.get(name));
        let given = given.filter(|value| !matches!(value, Value::Null | Value::Bool(false)));
        if given.is_some_and(|value| default.is_none() || value.as_i64() != default) {
            warn(&format!("redis.{name}"), why);
        }
    }
    let exempt = fields.texts("ignore_signature")?;
    for method in NOT_SIGNED.map(Method::name) {
        if exempt.iter().any(|one| one == method) {
            let name = format!("ignore_signature: {method}");
            warn(
                &name,
                "since the provider itself says what these tokens are good for",
            );
        }
    }
    if (fields.number("http_version")?).is_some_and(|version| (version - 1.0).abs() < 0.001) {
        warn("http_version: 1.0", "since HTTP/1.1 is spoken");
    }
    let least = fields.integer("cache_ttl_min")?.unwrap_or(0);
    if least > 0 && fields.integer("cache_ttl")?.unwrap_or(3600) >= least {
        let why = "since cache_ttl is no shorter, and nothing is believed beyond its own end";
        warn("cache_ttl_min", why);
    }
    if fields.is_changed("scripts_origins") && !fields.flag("scripts_unauthorized")? {
        warn("scripts_origins", "since scripts_unauthorized is off");
    }
    if tells_logins_of_introspection(fields, methods)? {
        let why = "for logins, whose tokens are not introspected, and in redirects";
        warn("login_tokens: introspection", why);
    }
    warn_of_introspection(fields, methods, &mut warn)?;
    Ok(warnings)
}

/// Whether browsers are to be told what was never asked.
fn tells_logins_of_introspection(
    fields: Fields<'_>,
    methods: Methods,
) -> Result<bool, ConfigError> {
    let has = |name: &str, word: &str| {
        let words = fields.texts(name)?;
        Ok::<_, ConfigError>(words.iter().any(|one| one == word))
    };
    let code = Method::AuthorizationCode;
    let of_logins = methods.has(code) && has("login_methods", code.name())?;
    Ok(match fields.text("login_action")? {
        Some("redirect") => true,
        Some("response") => of_logins,
        _ => false,
    } && has("login_tokens", "introspection")?)
}

/// Headers that tell what the provider is rarely asked.
fn warn_of_introspection(
    fields: Fields<'_>,
    methods: Methods,
    warn: &mut impl FnMut(&str, &str),
) -> Result<(), ConfigError> {
    let on = methods.has(Method::Introspection);
    let of_all = fields.flag("introspect_jwt_tokens")? || !methods.has(Method::Bearer);
    let signed = fields.text("introspection_accept")? != Some("application/json");
    let why = match (on, of_all, methods.has(Method::Session)) {
        (false, _, _) => Some("since introspection is off"),
        (_, false, _) => {
            Some("for tokens that are verified here, since introspect_jwt_tokens is off")
        }
        (_, true, true) => Some("for sessions, whose signed tokens are not introspected"),
        (_, true, false) => None,
    };
    for side in ["upstream", "downstream"] {
        for (end, is_jwt) in [("introspection", false), ("introspection_jwt", true)] {
            let name = format!("{side}_{end}_header");
            if fields.text(&name)?.is_none_or(str::is_empty) {
                continue;
            }
            match why {
                _ if is_jwt && on && !signed => {
                    warn(&name, "since introspection_accept asks for no token");
                }
                Some(why) => warn(&name, why),
                None => {}
            }
        }
    }
    Ok(())
}
