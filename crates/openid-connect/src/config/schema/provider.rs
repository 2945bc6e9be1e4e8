//! How the provider is asked: clients, endpoints, what is sent besides, and
//! what proves possession.

use serde_json::json;

use crate::config::schema::{PLACES, flag, is_uuid, seconds, text, texts, url, urls, word, words};
use crate::provider::signing_algs;
use doorward_core::model::schema::{Field, Schema, Type};

const CLIENT_AUTH: &[&str] = &[
    "client_secret_basic",
    "client_secret_post",
    "client_secret_jwt",
    "private_key_jwt",
    "tls_client_auth",
    "self_signed_tls_client_auth",
    "none",
];
const ASSERTION_AUDIENCES: &[&str] = &["issuer", "token_endpoint"];
const PROOF: &[&str] = &["off", "optional", "strict"];
const ACCEPT: &[&str] = &[
    "application/json",
    "application/token-introspection+jwt",
    "application/jwt",
];

pub(crate) fn clients() -> Vec<Field> {
    vec![
        flag("using_pseudo_issuer", false),
        Field::new("client_auth", Type::array(Type::word(CLIENT_AUTH))),
        Field::new("client_alg", Type::array(Type::word(signing_algs::ALL))),
        Field::new("client_jwk", Type::array(jwk())),
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
        word("client_assertion_audience", ASSERTION_AUDIENCES),
    ]
}

/// A key (RFC 7517 §4, RFC 7518 §6.3.2.7); `ext` is what browsers write. Most of
/// its members are texts.
fn jwk() -> Type {
    let prime = Type::Map(Box::new(Type::text()));
    let known = Schema::new(vec![
        texts("key_ops"),
        texts("x5c"),
        Field::new("oth", Type::array(prime)),
        Field::new("ext", Type::Boolean),
    ]);
    Type::Members(known, Box::new(Type::text()))
}

pub(crate) fn endpoints() -> Vec<Field> {
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
    fields.push(Field::new("token_exchange", token_exchange()));
    fields
}

/// Which tokens are exchanged for others, and what is asked for.
pub(crate) fn token_exchange() -> Type {
    let record = |fields| Type::Record(Schema::new(fields));
    let conditions = [
        "has_scopes",
        "missing_scopes",
        "has_audience",
        "missing_audience",
    ];
    let subject = vec![
        Field::new("issuer", url()).required(),
        Field::new("conditions", record(conditions.map(texts).into())),
        flag("verify_signature", false),
        Field::new("jwks_uri", url()),
    ];
    let request = vec![
        texts("scopes"),
        flag("empty_scopes", false),
        texts("audience"),
        flag("empty_audience", false),
    ];
    let cache = vec![flag("enabled", true), seconds("ttl")];
    record(vec![
        Field::new("subject_token_issuers", Type::array(record(subject))),
        Field::new("request", record(request)),
        Field::new("cache", record(cache)),
    ])
}

/// Fixed and copied arguments of requests to the provider.
pub(crate) fn arguments() -> Vec<Field> {
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

pub(crate) fn connection() -> Vec<Field> {
    vec![
        text("http_proxy"),
        text("http_proxy_authorization"),
        text("https_proxy"),
        text("https_proxy_authorization"),
        text("no_proxy"),
        Field::new("ca_certificates", Type::array(Type::checked(is_uuid))),
    ]
}

/// Proofs of possession and what the provider may require of requests.
pub(crate) fn proofs() -> Vec<Field> {
    vec![
        word("proof_of_possession_mtls", PROOF).default("off"),
        text("proof_of_possession_mtls_from_header"),
        word("proof_of_possession_dpop", PROOF).default("off"),
        flag("proof_of_possession_auth_methods_validation", true),
        flag("dpop_use_nonce", false),
        seconds("dpop_proof_lifetime").default(300),
        words("dpop_signing_algs", signing_algs::OF_PROOFS),
        word("security_profile", &["fapi2"]),
        Field::new("tls_client_auth_cert_id", Type::checked(is_uuid)),
        flag("tls_client_auth_ssl_verify", true),
        Field::new("require_proof_key_for_code_exchange", Type::Boolean),
        Field::new("require_pushed_authorization_requests", Type::Boolean),
        Field::new("require_signed_request_object", Type::Boolean),
    ]
}
