//! What is refused when files load, and what operators are told.

use super::*;

fn resolver(kind: &str, config: Value) -> Value {
    json!({"scopes": [], "accessTokenResolver": {"type": kind, "config": config}})
}

fn error(config: Value) -> ConfigError {
    let (_, _, _, parts) = process();
    filter(&parts, config.clone(), &json!({}))
        .err()
        .unwrap_or_else(|| panic!("{config} is taken"))
}

#[test]
fn what_cannot_be_is_refused_with_the_field_at_fault() {
    let endpoint = json!({"endpoint": "http://id.test/x"});
    let stateless = "StatelessAccessTokenResolver";
    let introspection = "TokenIntrospectionAccessTokenResolver";
    let good = || resolver(introspection, endpoint.clone());
    for (config, field) in [
        (json!({"scopes": []}), "accessTokenResolver"),
        (json!({"accessTokenResolver": "x"}), "scopes"),
        (
            json!({"scopes": [], "accessTokenResolver": "nobody"}),
            "accessTokenResolver",
        ),
        (
            json!({"scopes": [], "accessTokenResolver": {}}),
            "accessTokenResolver.type",
        ),
        (
            with(
                good(),
                json!({"scopes": {"type": "ScriptableResourceAccess"}}),
            ),
            "scopes",
        ),
        (with(good(), json!({"scopes": [1]})), "scopes"),
        (with(good(), json!({"realm": "a\nb"})), "realm"),
        (
            with(good(), json!({"requireHttps": "maybe"})),
            "requireHttps",
        ),
        (
            with(
                good(),
                json!({"cache": {"enabled": true, "maxTimeout": "zero"}}),
            ),
            "cache.maxTimeout",
        ),
        (
            with(good(), json!({"cache": {"defaultTimeout": "10"}})),
            "cache.defaultTimeout",
        ),
        (with(good(), json!({"cache": true})), "cache"),
        (
            resolver(introspection, json!({})),
            "accessTokenResolver.config.endpoint",
        ),
        (
            resolver(introspection, json!({"endpoint": "/x"})),
            "accessTokenResolver.config.endpoint",
        ),
        (
            resolver(
                introspection,
                with(endpoint.clone(), json!({"clientId": "a"})),
            ),
            "accessTokenResolver.config.clientSecretId",
        ),
        (
            resolver(
                introspection,
                with(
                    endpoint.clone(),
                    json!({"clientId": "a", "clientSecretId": "no.such.secret"}),
                ),
            ),
            "accessTokenResolver.config.clientSecretId",
        ),
        (
            resolver(
                introspection,
                with(
                    endpoint.clone(),
                    json!({"providerHandler": {"type": "Router"}}),
                ),
            ),
            "accessTokenResolver.config.providerHandler.type",
        ),
        (
            resolver(stateless, json!({})),
            "accessTokenResolver.config.issuer",
        ),
        (
            resolver(stateless, json!({"issuer": "me"})),
            "accessTokenResolver.config.issuer",
        ),
        (
            resolver(
                stateless,
                json!({"issuer": ISSUER, "decryptionSecretId": "x"}),
            ),
            "accessTokenResolver.config.decryptionSecretId",
        ),
        (
            resolver(
                stateless,
                json!({"issuer": ISSUER, "secretsProvider": {"type": "KeyStoreSecretStore"}}),
            ),
            "accessTokenResolver.config.secretsProvider.type",
        ),
        (
            resolver(
                stateless,
                json!({"issuer": ISSUER, "secretsProvider": {"type": "JwkSetSecretStore"}}),
            ),
            "accessTokenResolver.config.secretsProvider.config.jwkUrl",
        ),
        (
            resolver("ScriptableAccessTokenResolver", json!({})),
            "accessTokenResolver.type",
        ),
        (
            resolver("HeaderFilter", json!({})),
            "accessTokenResolver.type",
        ),
        (
            resolver("CacheAccessTokenResolver", json!({})),
            "accessTokenResolver.config.delegate",
        ),
    ] {
        let error = error(config.clone());
        assert_eq!(error.field, field, "{config}: {error}");
    }
}

#[test]
fn a_type_that_is_not_served_is_refused_with_what_to_use_instead() {
    let error = error(resolver("ScriptableAccessTokenResolver", json!({})));
    assert!(error.message.contains("scripts are not run"), "{error}");
}

#[test]
fn a_resolver_that_wraps_itself_is_refused() {
    let (_, _, _, parts) = process();
    let own = json!({"type": "CacheAccessTokenResolver", "config": {"delegate": "own"}});
    let config = json!({"scopes": [], "accessTokenResolver": "own"});
    let error = filter(&parts, config, &json!({"own": own})).err().unwrap();
    assert!(error.message.contains("too deeply"), "{error}");
}

#[test]
fn an_error_never_tells_a_secret() {
    let store =
        json!({"type": "Base64EncodedSecretStore", "config": {"secrets": {"s": "hush hush"}}});
    let config = json!({"endpoint": "http://id.test/x", "clientId": "a", "clientSecretId": "s",
        "secretsProvider": store});
    let error = error(resolver("TokenIntrospectionAccessTokenResolver", config));
    assert!(error.message.contains("base64"), "{error}");
    assert!(!error.to_string().contains("hush"), "{error}");
}

#[test]
fn settings_without_effect_are_told() {
    let config = json!({"endpoint": "http://id.test/x"});
    let config = with(
        resolver("TokenIntrospectionAccessTokenResolver", config),
        json!({
        "executor": "x", "nonsense": 1,
        "cache": {"enabled": true, "amService": "am"}}),
    );
    let (_, _, _, parts) = process();
    let warnings = filter(&parts, config, &json!({})).unwrap().warnings();
    let told = |start: &str| warnings.iter().any(|warning| warning.starts_with(start));
    assert!(told("nonsense has no meaning"), "{warnings:?}");
    assert!(told("cache.amService has no effect"), "{warnings:?}");
    assert!(
        told("accessTokenResolver.config.providerHandler has no credentials"),
        "{warnings:?}"
    );
    assert_eq!(warnings.len(), 3, "{warnings:?}");
}

#[test]
fn the_older_name_of_the_type_is_the_same() {
    let (_, _, _, parts) = process();
    let config = resolver("StatelessAccessTokenResolver", json!({"issuer": ISSUER}));
    let build = |name| crate::chain::chain_kind(name).unwrap().build;
    assert!(build("OAuth2RSFilter")(object(&config), &parts, &|_| None).is_ok());
}
