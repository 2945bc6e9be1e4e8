//! The `config` table of the plugin: interface 2.7 first, in its order, then
//! the fields that files written for newer gateways contain.
//!
//! A flat table on purpose: one line a field. Defaults of interface 2.7 win
//! over newer ones; of fields that were renamed later both names are taken,
//! and the older one, which the interface names, carries the default.

mod provider;
mod sessions;

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::provider::signing_algs;
use doorward_core::model::schema::{Field, Schema, Type};

/// The fields of `config`.
pub(crate) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let groups = [
            interface(),
            sessions::interface_sessions(),
            provider::clients(),
            provider::endpoints(),
            provider::arguments(),
            claims(),
            headers(),
            answers(),
            caches(),
            sessions::sessions(),
            sessions::stores(),
            provider::connection(),
            provider::proofs(),
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

const SECONDS_MAX: i64 = 315_360_000; // ten years

/// Interface 2.7 up to the session fields.
fn interface() -> Vec<Field> {
    vec![
        texts("client_id"),
        texts("client_secret").referenceable(),
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
        word("id_token_signed_response_alg", signing_algs::ALL),
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
        Field::new("preserve_request_body", Type::Integer(0, 65_536)).default(0),
        flag("scripts_unauthorized", false),
        texts("scripts_origins"),
        text("logout_query_arg"),
        text("logout_post_arg"),
        text("logout_uri_suffix"),
        text("backchannel_logout_uri_suffix"),
        text("frontchannel_logout_uri_suffix"),
        flag("frontchannel_logout_session_required", false),
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
        Field::new("cluster_cache_redis", sessions::redis()),
        texts("cluster_cache_items").default(json!(["introspection"])),
    ]
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

fn is_uuid(text: &str) -> Result<(), String> {
    match uuid::Uuid::parse_str(text) {
        Ok(_) => Ok(()),
        Err(_) => Err("expected a valid UUID".into()),
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
