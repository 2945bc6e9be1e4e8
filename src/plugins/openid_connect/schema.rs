//! The `config` table of the plugin: interface 2.7 first, in its order, then
//! the fields that files written for newer gateways contain.
//!
//! A flat table on purpose: one line a field. Defaults of interface 2.7 win
//! over newer ones; of fields that were renamed later both names are taken,
//! and the older one, which the interface names, carries the default.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::model::schema::{Field, Schema, Type};

/// The fields of `config`.
pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let groups = [
            interface(),
            interface_sessions(),
            clients(),
            endpoints(),
            arguments(),
            claims(),
            headers(),
            answers(),
            caches(),
            sessions(),
            stores(),
            connection(),
            proofs(),
        ];
        Schema::new(groups.into_iter().flatten().collect())
    });
    &SCHEMA
}

const AUTH_METHODS: &[&str] = &[
    "password",
    "client_credentials",
    "authorization_code",
    "bearer",
    "introspection",
    "userinfo",
    "kong_oauth2",
    "refresh_token",
    "session",
];
const LOGIN_TOKENS: &[&str] = &[
    "id_token",
    "access_token",
    "refresh_token",
    "tokens",
    "introspection",
];
const RESPONSE_MODES: &[&str] = &[
    "query",
    "form_post",
    "fragment",
    "query.jwt",
    "form_post.jwt",
    "fragment.jwt",
    "jwt",
];
const PLACES: &[&str] = &["header", "query", "body"];
const BEARER_PLACES: &[&str] = &["header", "query", "body", "cookie"];
const CONSUMER_FIELDS: &[&str] = &["id", "username", "custom_id"];
const SESSION_STORES: &[&str] = &["cookie", "memcache", "memcached", "redis"];
const SAME_SITE: &[&str] = &["Strict", "Lax", "None", "Default", "off"];
const CLIENT_AUTH: &[&str] = &[
    "client_secret_basic",
    "client_secret_post",
    "client_secret_jwt",
    "private_key_jwt",
    "tls_client_auth",
    "self_signed_tls_client_auth",
    "none",
];
const CLIENT_ALGS: &[&str] = &[
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256",
    "ES384", "ES512", "EdDSA",
];
const PROOF: &[&str] = &["off", "optional", "strict"];
const ACCEPT: &[&str] = &[
    "application/json",
    "application/token-introspection+jwt",
    "application/jwt",
];

const SECONDS_MAX: i64 = 315_360_000; // ten years

/// Interface 2.7 up to the session fields.
fn interface() -> Vec<Field> {
    vec![
        texts("client_id"),
        texts("client_secret"),
        Field::new("issuer", url()).required(),
        texts("scopes").default(json!(["openid"])),
        flag("ssl_verify", true),
        words("auth_methods", AUTH_METHODS).default(json!([
            "password",
            "client_credentials",
            "authorization_code",
            "bearer",
            "introspection",
            "kong_oauth2",
            "refresh_token",
            "session"
        ])),
        words("login_methods", AUTH_METHODS).default(json!(["authorization_code"])),
        words("login_tokens", LOGIN_TOKENS).default(json!(["id_token"])),
        word("login_action", &["upstream", "response", "redirect"]).default("upstream"),
        word("login_redirect_mode", &["fragment", "query"]).default("fragment"),
        words("logout_methods", &["GET", "POST", "DELETE"]).default(json!(["POST", "DELETE"])),
        flag("logout_revoke", false),
        word("response_mode", RESPONSE_MODES).default("query"),
        words("bearer_token_param_type", BEARER_PLACES).default(json!(PLACES)),
        words("client_credentials_param_type", PLACES).default(json!(PLACES)),
        words("id_token_param_type", PLACES).default(json!(PLACES)),
        words("password_param_type", PLACES).default(json!(PLACES)),
        text("client_arg").default("client_id"),
        texts("scopes_claim").default(json!(["scope"])),
        texts("credential_claim").default(json!(["sub"])),
        texts("audience_claim").default(json!(["aud"])),
        words("consumer_by", CONSUMER_FIELDS).default(json!(["username", "custom_id"])),
        flag("consumer_optional", false),
        text("jwt_session_claim").default("sid"),
        text("introspection_hint").default("access_token"),
        flag("introspect_jwt_tokens", false),
        text("upstream_access_token_header").default("authorization:bearer"),
        flag("hide_credentials", false),
        flag("verify_parameters", true),
        flag("verify_nonce", true),
        flag("verify_signature", true),
        flag("verify_claims", true),
        flag("reverify", false),
        Field::new("leeway", Type::Integer(0, 86_400)).default(0),
        flag("run_on_preflight", true),
        flag("cache_tokens", true),
        flag("cache_token_exchange", true),
        flag("cache_user_info", true),
        flag("cache_introspection", true),
        seconds("cache_ttl").default(3600),
        seconds("rediscovery_lifetime").default(300),
        Field::new("timeout", Type::Integer(1, 2_147_483_646)).default(10_000),
        flag("keepalive", true),
        Field::new("http_version", Type::Number).default(json!(1.1)),
        text("forbidden_error_message").default("Forbidden"),
        text("unauthorized_error_message").default("Unauthorized"),
        flag("forbidden_destroy_session", true),
    ]
}

/// Interface 2.7 from the session fields on.
fn interface_sessions() -> Vec<Field> {
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

fn clients() -> Vec<Field> {
    vec![
        flag("using_pseudo_issuer", false),
        Field::new("client_auth", Type::array(Type::word(CLIENT_AUTH))),
        Field::new("client_alg", Type::array(Type::word(CLIENT_ALGS))),
        Field::new("client_jwk", Type::array(Type::Map(Box::new(Type::text())))),
        urls("redirect_uri"),
        texts("audience"),
        texts("response_type").default(json!(["code"])),
        words("refresh_token_param_type", PLACES).default(json!(PLACES)),
        text("bearer_token_cookie_name"),
        text("bearer_token_header_name"),
        flag("bearer_id_tokens", false),
        text("id_token_param_name"),
        text("refresh_token_param_name"),
        flag("refresh_tokens", true),
        flag("introspection_check_active", true),
        word("introspection_accept", ACCEPT).default("application/json"),
        text("introspection_token_param_name").default("token"),
        text("revocation_token_param_name").default("token"),
    ]
}

fn endpoints() -> Vec<Field> {
    let mut fields: Vec<Field> = [
        "authorization_endpoint",
        "token_endpoint",
        "introspection_endpoint",
        "revocation_endpoint",
        "userinfo_endpoint",
        "end_session_endpoint",
        "token_exchange_endpoint",
        "pushed_authorization_request_endpoint",
        "jwks_endpoint",
        "mtls_token_endpoint",
        "mtls_introspection_endpoint",
        "mtls_revocation_endpoint",
    ]
    .into_iter()
    .map(|name| Field::new(name, url()))
    .collect();
    fields.extend(
        [
            "token_endpoint_auth_method",
            "introspection_endpoint_auth_method",
            "revocation_endpoint_auth_method",
            "pushed_authorization_request_endpoint_auth_method",
        ]
        .into_iter()
        .map(|name| word(name, CLIENT_AUTH)),
    );
    fields.push(Field::new("extra_jwks_uris", Type::set(url())));
    fields
}

/// Fixed and copied arguments of requests to the provider.
fn arguments() -> Vec<Field> {
    let mut fields: Vec<Field> = [
        "authorization_query_args_names",
        "authorization_query_args_values",
        "authorization_query_args_client",
        "token_post_args_names",
        "token_post_args_values",
        "token_post_args_client",
        "token_headers_names",
        "token_headers_values",
        "token_headers_client",
        "introspection_headers_names",
        "introspection_headers_values",
        "introspection_headers_client",
        "introspection_post_args_names",
        "introspection_post_args_values",
        "introspection_post_args_client",
        "introspection_post_args_client_headers",
        "userinfo_headers_names",
        "userinfo_headers_values",
        "userinfo_headers_client",
        "userinfo_query_args_names",
        "userinfo_query_args_values",
        "userinfo_query_args_client",
        "discovery_headers_names",
        "discovery_headers_values",
        "token_headers_replay",
    ]
    .into_iter()
    .map(texts)
    .collect();
    fields.push(text("token_headers_prefix"));
    fields.push(Field::new(
        "token_headers_grants",
        Type::array(Type::word(&[
            "password",
            "client_credentials",
            "authorization_code",
            "refresh_token",
        ])),
    ));
    fields.push(
        word("userinfo_accept", &["application/json", "application/jwt"])
            .default("application/json"),
    );
    fields
}

fn claims() -> Vec<Field> {
    vec![
        texts("scopes_required"),
        texts("audience_required"),
        texts("groups_claim").default(json!(["groups"])),
        texts("groups_required"),
        texts("roles_claim").default(json!(["roles"])),
        texts("roles_required"),
        texts("claims_forbidden"),
        texts("issuers_allowed"),
        texts("domains"),
        seconds("max_age"),
        texts("authenticated_groups_claim"),
        texts("consumer_claim"),
        Field::new("consumer_claims", Type::array(Type::array(Type::text()))),
        flag("by_username_ignore_case", false),
        texts("consumer_groups_claim"),
        flag("consumer_groups_optional", false),
        text("anonymous"),
        flag("search_user_info", false),
        texts("ignore_signature").default(json!([])),
        flag("enable_hs_signatures", false),
        text("jwt_session_cookie"),
        flag("resolve_distributed_claims", false),
    ]
}

fn headers() -> Vec<Field> {
    let mut fields: Vec<Field> = [
        "upstream_access_token_jwk_header",
        "upstream_id_token_header",
        "upstream_id_token_jwk_header",
        "upstream_refresh_token_header",
        "upstream_user_info_header",
        "upstream_user_info_jwt_header",
        "upstream_introspection_header",
        "upstream_introspection_jwt_header",
        "upstream_session_id_header",
        "downstream_access_token_header",
        "downstream_access_token_jwk_header",
        "downstream_id_token_header",
        "downstream_id_token_jwk_header",
        "downstream_refresh_token_header",
        "downstream_user_info_header",
        "downstream_user_info_jwt_header",
        "downstream_introspection_header",
        "downstream_introspection_jwt_header",
        "downstream_session_id_header",
    ]
    .into_iter()
    .map(text)
    .collect();
    fields.extend(
        [
            "upstream_headers_claims",
            "upstream_headers_names",
            "downstream_headers_claims",
            "downstream_headers_names",
        ]
        .into_iter()
        .map(texts),
    );
    fields.extend(["upstream_headers", "downstream_headers"].map(|name| {
        Field::new(
            name,
            Type::array(Type::Record(Schema::new(vec![
                text("header").required(),
                texts("path").required(),
            ]))),
        )
    }));
    fields
}

/// What clients get to see: redirects, messages, log-out triggers.
fn answers() -> Vec<Field> {
    let mut fields: Vec<Field> = [
        "login_redirect_uri",
        "logout_redirect_uri",
        "unauthorized_redirect_uri",
        "forbidden_redirect_uri",
        "unexpected_redirect_uri",
    ]
    .into_iter()
    .map(urls)
    .collect();
    fields.extend([
        flag("preserve_query_args", false),
        text("logout_query_arg"),
        text("logout_post_arg"),
        text("logout_uri_suffix"),
        flag("logout_revoke_access_token", true),
        flag("logout_revoke_refresh_token", true),
        flag("unauthorized_destroy_session", true),
        flag("display_errors", false),
        flag("expose_error_code", true),
    ]);
    fields
}

fn caches() -> Vec<Field> {
    vec![
        seconds("cache_ttl_max"),
        seconds("cache_ttl_min"),
        seconds("cache_ttl_neg"),
        seconds("cache_ttl_resurrect"),
        text("cache_tokens_salt"),
        flag("token_cache_key_include_scope", false),
        word("cluster_cache_strategy", &["off", "redis"]).default("off"),
        Field::new("cluster_cache_redis", redis()),
        texts("cluster_cache_items").default(json!(["introspection"])),
    ]
}

/// Sessions, under their newer names and with what 2.7 does not have.
fn sessions() -> Vec<Field> {
    vec![
        text("session_secret"),
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
fn stores() -> Vec<Field> {
    vec![
        text("session_memcache_socket"),
        text("session_memcached_host"),
        port("session_memcached_port"),
        text("session_memcached_prefix"),
        text("session_memcached_socket"),
        text("session_redis_socket"),
        text("session_redis_auth"),
        text("session_redis_username"),
        text("session_redis_password"),
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

fn connection() -> Vec<Field> {
    vec![
        text("http_proxy"),
        text("http_proxy_authorization"),
        text("https_proxy"),
        text("https_proxy_authorization"),
        text("no_proxy"),
    ]
}

/// Proofs of possession and what the provider may require of requests.
fn proofs() -> Vec<Field> {
    vec![
        word("proof_of_possession_mtls", PROOF).default("off"),
        text("proof_of_possession_mtls_from_header"),
        word("proof_of_possession_dpop", PROOF).default("off"),
        flag("proof_of_possession_auth_methods_validation", true),
        flag("dpop_use_nonce", false),
        seconds("dpop_proof_lifetime").default(300),
        text("tls_client_auth_cert_id"),
        flag("tls_client_auth_ssl_verify", true),
        Field::new("require_proof_key_for_code_exchange", Type::Boolean),
        Field::new("require_pushed_authorization_requests", Type::Boolean),
        Field::new("require_signed_request_object", Type::Boolean),
    ]
}

fn redis() -> Type {
    Type::Record(Schema::new(vec![
        text("host").default("127.0.0.1"),
        port("port").default(6379),
        Field::new("database", Type::Integer(0, i64::from(i32::MAX))).default(0),
        text("username"),
        text("password"),
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
        text("sentinel_password"),
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

fn text(name: &'static str) -> Field {
    Field::new(name, Type::text())
}

fn texts(name: &'static str) -> Field {
    Field::new(name, Type::array(Type::text()))
}

fn word(name: &'static str, one_of: &'static [&'static str]) -> Field {
    Field::new(name, Type::word(one_of))
}

fn words(name: &'static str, one_of: &'static [&'static str]) -> Field {
    Field::new(name, Type::set(Type::word(one_of)))
}

fn flag(name: &'static str, default: bool) -> Field {
    Field::new(name, Type::Boolean).default(Value::Bool(default))
}

fn seconds(name: &'static str) -> Field {
    Field::new(name, Type::Integer(0, SECONDS_MAX))
}

fn timeout(name: &'static str) -> Field {
    Field::new(name, Type::Integer(0, 2_147_483_646))
}

fn port(name: &'static str) -> Field {
    Field::new(name, Type::Integer(0, 65_535))
}

fn url() -> Type {
    Type::checked(is_url)
}

fn urls(name: &'static str) -> Field {
    Field::new(name, Type::array(url()))
}

fn is_url(text: &str) -> Result<(), String> {
    match url::Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(()),
        Ok(_) => Err("missing host in url".into()),
        Err(error) => Err(format!("invalid url: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_field_has_one_line() {
        let mut seen = HashSet::new();
        for field in &schema().fields {
            assert!(seen.insert(field.name), "{} is described twice", field.name);
        }
    }

    #[test]
    fn the_interface_defaults_come_first_and_exact() {
        let first = &schema().fields[0];
        assert_eq!(first.name, "client_id");
        for (name, default) in [
            ("scopes", json!(["openid"])),
            ("rediscovery_lifetime", json!(300)),
            ("hide_credentials", json!(false)),
            ("verify_parameters", json!(true)),
            ("http_version", json!(1.1)),
            ("authorization_cookie_samesite", json!("off")),
            ("session_memcache_port", json!(11_211)),
        ] {
            let field = schema().field(name).expect("the field is described");
            assert_eq!(field.default, Some(default), "{name}");
        }
    }

    #[test]
    fn an_issuer_that_is_no_url_is_refused() {
        assert!(is_url("https://id.example.com/oauth2").is_ok());
        for bad in [
            "",
            "id.example.com",
            "ftp://id.example.com",
            "file:///etc/passwd",
        ] {
            assert!(is_url(bad).is_err(), "{bad}");
        }
    }
}
