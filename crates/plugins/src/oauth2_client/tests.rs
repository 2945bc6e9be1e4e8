//! What route files declare, in the plugin's words; what is refused; and the
//! service URIs.
#![expect(clippy::unwrap_used, reason = "tests")]

use http::header::LOCATION;
use serde_json::{Value, json};

use super::config::Config;
use super::*;
use crate::testing::{decide, parts, session};

fn issuer() -> Value {
    json!({"type": "Issuer", "config": {
        "wellKnownEndpoint": "http://id.test/oauth2/.well-known/openid-configuration"}})
}

fn registration(more: Value) -> Value {
    let mut config = json!({"clientId": "app", "clientSecret": "s3cret", "issuer": "issuer",
        "scopes": ["openid", "profile"]});
    merge(&mut config, more);
    json!({"type": "ClientRegistration", "config": config})
}

fn declared(more: Value) -> Value {
    let mut config = json!({"clientEndpoint": "/home/openid", "registrations": ["registration"]});
    merge(&mut config, more);
    config
}

fn merge(into: &mut Value, more: Value) {
    let into = into.as_object_mut().unwrap();
    for (name, value) in more.as_object().cloned().unwrap() {
        match value {
            Value::Null => into.remove(&name),
            value => into.insert(name, value),
        };
    }
}

/// What becomes of `config`, where the heap has these objects.
fn read(config: &Value, registration: &Value, issuer: &Value) -> Result<Config, ConfigError> {
    let named = |name: &str| match name {
        "registration" => Some(registration.clone()),
        "issuer" => Some(issuer.clone()),
        _ => None,
    };
    Config::read(config.as_object().unwrap(), &parts(), &named)
}

fn plugin_of(config: Value, registration: &Value, issuer: &Value) -> Value {
    let read = read(&config, registration, issuer);
    Value::Object(
        read.unwrap_or_else(|error| panic!("{config}: {error}"))
            .plugin,
    )
}

/// Whether `all` has these members.
fn assert_has(all: &Value, wanted: &Value) {
    for (name, value) in wanted.as_object().unwrap() {
        assert_eq!(all.get(name), Some(value), "{name} in {all}");
    }
}

#[test]
fn a_registration_and_its_issuer_become_the_plugin_s_configuration() {
    let plugin = plugin_of(declared(json!({})), &registration(json!({})), &issuer());
    assert_has(
        &plugin,
        &json!({
            "issuer": "http://id.test/oauth2/.well-known/openid-configuration",
            "client_id": ["app"], "client_secret": ["s3cret"],
            "client_auth": ["client_secret_basic"],
            "scopes": ["openid", "profile"],
            "auth_methods": ["session", "authorization_code"],
            "upstream_access_token_header": null,
            "logout_uri_suffix": "/home/openid/logout", "logout_revoke": false,
            "session_audience": "/home/openid",
            "search_user_info": true, "cache_ttl_max": 600,
        }),
    );
    assert_eq!(plugin.get("redirect_uri"), None, "it is of whatever host");
}

#[test]
fn each_setting_has_the_effect_of_the_imitated_one() {
    let at = "https://app.example.com:8443/openid/";
    for (config, own, wanted) in [
        (
            json!({"clientEndpoint": at}),
            json!({}),
            json!({"redirect_uri": ["https://app.example.com:8443/openid/callback"],
                "logout_uri_suffix": "/openid/logout"}),
        ),
        (
            json!({"prompt": "login", "revokeOauth2TokenOnLogout": "true"}),
            json!({"pkceMethod": "none"}),
            json!({"authorization_query_args_names": ["prompt"],
                "authorization_query_args_values": ["login"], "logout_revoke": true,
                "require_proof_key_for_code_exchange": false}),
        ),
        (
            json!({"cacheExpiration": "2 minutes"}),
            json!({"scopes": ["openid email", "phone"], "tokenEndpointAuthMethod": "client_secret_post"}),
            json!({"cache_ttl_max": 120, "scopes": ["openid", "email", "phone"],
                "client_auth": ["client_secret_post"]}),
        ),
        (
            json!({"cacheExpiration": "zero"}),
            json!({"tokenEndpointUseBasicAuth": false, "skipSignatureVerification": true}),
            json!({"cache_user_info": false, "client_auth": ["client_secret_post"],
                "ignore_signature": ["authorization_code", "session"]}),
        ),
        (
            json!({}),
            json!({"clientSecret": null, "scopes": ["mail"]}),
            json!({"client_auth": ["none"], "search_user_info": false}),
        ),
        (
            json!({}),
            json!({"clientSecret": null, "authenticatedRegistrationHandler": {
                "type": "Chain", "config": {
                    "filters": [{"type": "ClientSecretPostAuthenticationFilter",
                        "config": {"clientId": "app", "clientSecret": "other"}}],
                    "handler": {"type": "ClientHandler", "config": {
                        "soTimeout": "3 seconds", "trustManager": "TrustAllManager"}}}}}),
            json!({"client_auth": ["client_secret_post"], "client_secret": ["other"],
                "timeout": 3000, "ssl_verify": false}),
        ),
    ] {
        let plugin = plugin_of(declared(config), &registration(own), &issuer());
        assert_has(&plugin, &wanted);
    }
}

#[test]
fn an_issuer_may_tell_its_endpoints_itself() {
    let mut issuer = json!({
        "issuer": "https://id.test", "authorizeEndpoint": "https://id.test/auth",
        "tokenEndpoint": "https://id.test/token", "userInfoEndpoint": "https://id.test/me",
        "endSessionEndpoint": "https://id.test/bye", "revocationEndpoint": "https://id.test/revoke",
        "idTokenSkewAllowance": "5 seconds",
        "secretsProvider": {"type": "JwkSetSecretStore", "config": {"jwkUrl": "https://id.test/keys"}},
    });
    let of = |config: &Value| json!({"type": "Issuer", "config": config});
    let plugin = plugin_of(declared(json!({})), &registration(json!({})), &of(&issuer));
    assert_has(
        &plugin,
        &json!({"issuer": "https://id.test/", "using_pseudo_issuer": true,
            "authorization_endpoint": "https://id.test/auth", "token_endpoint": "https://id.test/token",
            "userinfo_endpoint": "https://id.test/me", "end_session_endpoint": "https://id.test/bye",
            "revocation_endpoint": "https://id.test/revoke", "jwks_endpoint": "https://id.test/keys",
            "leeway": 5}),
    );
    for (missing, field) in [
        ("tokenEndpoint", "tokenEndpoint"),
        ("authorizeEndpoint", "authorizeEndpoint"),
        ("issuer", "issuer"),
        ("secretsProvider", "secretsProvider"),
    ] {
        let had = issuer.as_object_mut().unwrap().remove(missing).unwrap();
        let error = read(&declared(json!({})), &registration(json!({})), &of(&issuer));
        let field = format!("registrations[0].config.issuer.config.{field}");
        assert_eq!(error.err().unwrap().field, field);
        issuer[missing] = had;
    }
}

#[test]
fn what_cannot_be_served_is_refused_with_the_field_and_with_advice() {
    let two = json!({"registrations": ["registration", "registration"]});
    let of_registration = |field: &str| format!("registrations[0].config.{field}");
    for (config, own, field, advice) in [
        (
            json!({"clientEndpoint": null}),
            json!({}),
            "clientEndpoint".into(),
            "is required",
        ),
        (
            json!({"clientEndpoint": "openid"}),
            json!({}),
            "clientEndpoint".into(),
            "a path",
        ),
        (
            json!({"clientEndpoint": "//evil"}),
            json!({}),
            "clientEndpoint".into(),
            "a path",
        ),
        (
            json!({"clientEndpoint": "/a?b"}),
            json!({}),
            "clientEndpoint".into(),
            "a path",
        ),
        (
            json!({"registrations": null}),
            json!({}),
            "registrations".into(),
            "ClientRegistration",
        ),
        (two, json!({}), "registrations[1]".into(), "DispatchHandler"),
        (
            json!({"target": "${session.openid}"}),
            json!({}),
            "target".into(),
            "attributes.name",
        ),
        (
            json!({"requireHttps": "maybe"}),
            json!({}),
            "requireHttps".into(),
            "true or false",
        ),
        (
            json!({"registrations": ["issuer"]}),
            json!({}),
            "registrations[0].type".into(),
            "ClientRegistration",
        ),
        (
            json!({}),
            json!({"clientId": null}),
            of_registration("clientId"),
            "is required",
        ),
        (
            json!({}),
            json!({"issuer": null}),
            of_registration("issuer"),
            "an Issuer",
        ),
        (
            json!({}),
            json!({"pkceMethod": "plain"}),
            of_registration("pkceMethod"),
            "S256 or none",
        ),
        (
            json!({}),
            json!({"tokenEndpointAuthMethod": "private_key_jwt"}),
            of_registration("tokenEndpointAuthMethod"),
            "client_jwk",
        ),
        (
            json!({}),
            json!({"tokenEndpointAuthMethod": "client_secret_post", "clientSecret": null}),
            of_registration("clientSecretId"),
            "secret",
        ),
        (
            json!({}),
            json!({"keystore": "keys"}),
            of_registration("keystore"),
            "client_jwk",
        ),
    ] {
        let outcome = read(&declared(config.clone()), &registration(own), &issuer());
        let error = outcome.err().unwrap_or_else(|| panic!("{config} is taken"));
        assert_eq!(error.field, field);
        assert!(error.message.contains(advice), "{field}: {}", error.message);
    }
}

#[test]
fn what_has_no_effect_is_told() {
    let config = json!({"metadata": {}, "executor": "x", "colour": "red", "loginHandler": "page",
        "requireLogin": false});
    let warnings = read(&declared(config), &registration(json!({})), &issuer());
    let warnings = warnings.map(|config| config.warnings).unwrap().join("\n");
    for name in ["metadata", "executor", "colour", "loginHandler"] {
        assert!(warnings.contains(name), "{warnings}");
    }
}

fn filter(config: Value) -> Arc<dyn Filter> {
    let config = declared(config);
    let (registration, issuer) = (registration(json!({})), issuer());
    let named = |name: &str| match name {
        "registration" => Some(registration.clone()),
        "issuer" => Some(issuer.clone()),
        _ => None,
    };
    build(config.as_object().unwrap(), &parts(), &named).unwrap()
}

async fn ask(filter: &dyn Filter, target: &str, secure: bool) -> (Option<Reply>, Exchange) {
    let request = format!("GET {target} HTTP/1.1\r\nHost: app.test\r\n\r\n");
    let (mut session, _client) = session(&request).await;
    let mut exchange = Exchange {
        secure,
        ..Exchange::default()
    };
    let reply = decide(filter, &mut session, &mut exchange).await;
    (reply, exchange)
}

#[tokio::test]
async fn requests_without_tls_are_refused_unless_the_file_says_otherwise() {
    let (reply, exchange) = ask(&*filter(json!({})), "/home", false).await;
    assert_eq!(reply.unwrap().status, 403);
    assert_eq!(exchange.refusal.as_deref(), Some("https_required"));
    let open = filter(json!({"requireHttps": false, "requireLogin": false}));
    let (reply, exchange) = ask(&*open, "/home", false).await;
    assert!(reply.is_none(), "a login is not required");
    assert!(exchange.attributes.is_empty() && exchange.token.is_none());
}

#[tokio::test]
async fn a_goto_leads_to_no_other_site_and_a_login_to_no_other_registration() {
    let filter = filter(json!({}));
    for query in [
        "goto=https://evil.test/",
        "goto=//evil.test/",
        "goto=/%5Cevil.test/",
        "goto=https://app.test:444/",
        "goto=https://app.test@evil.test/",
        "goto=https://a@app.test/",
        "goto=javascript:alert(1)",
        "goto=home",
        "registration=other",
        "discovery=user@id.test",
    ] {
        let target = format!("/home/openid/login?{query}");
        let (reply, exchange) = ask(&*filter, &target, true).await;
        assert_eq!(reply.unwrap().status, 400, "{query}");
        assert_eq!(exchange.refusal.as_deref(), Some("malformed_request"));
    }
    let target = "/home/openid/logout?goto=https://evil.test/";
    assert_eq!(ask(&*filter, target, true).await.0.unwrap().status, 400);
}

#[tokio::test]
async fn a_logout_leads_to_its_goto_or_to_the_default_or_to_a_blank_page() {
    for (config, query, location) in [
        (json!({}), "", None),
        (json!({}), "?goto=/bye", Some("https://app.test/bye")),
        (
            json!({"defaultLogoutGoto": "https://www.test/out"}),
            "",
            Some("https://www.test/out"),
        ),
        (
            json!({"defaultLogoutGoto": "https://www.test/out"}),
            "?goto=https://app.test/a",
            Some("https://app.test/a"),
        ),
    ] {
        let target = format!("/home/openid/logout{query}");
        let (reply, _) = ask(&*filter(config), &target, true).await;
        let reply = reply.unwrap();
        let led = reply.headers.iter().find(|(name, _)| name == LOCATION);
        let led = led.map(|(_, value)| value.to_str().unwrap().to_owned());
        assert_eq!(led.as_deref(), location);
        assert_eq!(reply.status, if location.is_some() { 302 } else { 200 });
    }
}

#[tokio::test]
async fn what_an_earlier_filter_noted_of_a_login_does_not_count() {
    let filter = filter(json!({"requireLogin": false, "target": "${attributes.user}"}));
    let request = "GET /home HTTP/1.1\r\nHost: app.test\r\n\r\n";
    let (mut session, _client) = session(request).await;
    let mut exchange = Exchange {
        secure: true,
        ..Exchange::default()
    };
    for name in [doorward_expr::LOGIN_ATTRIBUTE, "user", "other"] {
        let value = doorward_expr::Value::of_owned_json(json!({"client_registration": "app"}));
        exchange.attributes.push((name.into(), value));
    }
    let reply = decide(&*filter, &mut session, &mut exchange).await;
    assert!(reply.is_none());
    let left: Vec<_> = exchange
        .attributes
        .iter()
        .map(|(name, _)| &**name)
        .collect();
    assert_eq!(left, ["other"]);
}
