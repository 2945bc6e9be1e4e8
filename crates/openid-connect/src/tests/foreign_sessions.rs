//! Sessions that another plugin has begun.

use super::introspection::{basic_of, world};
use super::session_creation::{authorization, enter, plugin};
use super::*;

#[tokio::test]
async fn a_session_of_a_token_that_the_provider_told_of_is_taken_where_the_provider_is_asked() {
    let config = json!({"session_secret": "s", "auth_methods": ["introspection", "session"],
        "introspect_jwt_tokens": true});
    let (told, endpoints) = world(config);
    let forged = TestKey::es256("key-1").token(&claims(json!({"aud": "other"})));
    let void = told.token(json!({"exp": NOW}));
    for token in [forged.as_str(), &void, "good-1"] {
        let (mut browser, outcome) = enter(&told, &authorization(&format!("Bearer {token}"))).await;
        assert_eq!(outcome.code(), (200, "pass"), "the provider says so");
        for methods in [json!(["bearer", "session"]), json!(["session"])] {
            let config = json!({"session_secret": "s", "client_id": ["gateway"],
                "client_secret": ["g"], "audience": ["api"], "auth_methods": methods});
            let other = plugin(&told, config);
            let outcome = other.ask(&browser.request("/orders")).await;
            assert_eq!(outcome.code(), (401, "session_unfit"), "{methods} {token}");
        }
        let asks = json!({"session_secret": "s", "client_id": ["gateway"],
            "client_secret": ["g-secret"], "auth_methods": ["bearer", "introspection", "session"],
            "introspection_endpoint": "http://id.test/oauth2/introspect",
            "cache_introspection": false});
        let asks = plugin(&told, asks);
        let outcome = browser.get(&asks, "/orders").await;
        assert_eq!(outcome.code(), (200, "pass"), "{token}");
    }
    let (browser, _) = enter(&told, &authorization("Bearer good-2")).await;
    endpoints.ended.store(true, Ordering::SeqCst);
    let asks = json!({"session_secret": "s", "client_id": ["gateway"],
        "client_secret": ["g-secret"], "auth_methods": ["bearer", "introspection", "session"],
        "introspection_endpoint": "http://id.test/oauth2/introspect"});
    let outcome = plugin(&told, asks).ask(&browser.request("/orders")).await;
    assert_eq!(outcome.code(), (401, "inactive_token"));
}

#[tokio::test]
async fn a_session_that_another_plugin_asked_about_is_judged_by_its_token_where_nobody_asks() {
    let config = json!({"session_secret": "s", "auth_methods": ["introspection", "password", "session"],
        "introspect_jwt_tokens": true});
    let (asks, _) = world(config);
    let shown = authorization(&basic_of("anna", "secret"));
    for (audience, code) in [("orders", (200, "pass")), ("api", (403, "wrong_audience"))] {
        let (mut browser, _) = enter(&asks, &shown).await;
        let config = json!({"session_secret": "s", "client_id": ["gateway"],
            "client_secret": ["g"], "audience_required": [audience],
            "auth_methods": ["password", "session"]});
        let outcome = browser.get(&plugin(&asks, config), "/orders").await;
        assert_eq!(outcome.code(), code, "{audience}");
    }
}

#[tokio::test]
async fn a_session_of_a_credential_is_taken_only_where_the_credential_is() {
    let (world, _) = world(json!({"session_secret": "s"}));
    for (shown, method) in [
        (basic_of("anna", "secret"), "password"),
        (basic_of("batch", "b-secret"), "client_credentials"),
    ] {
        for (methods, code) in [
            (json!(["session", method]), (200, "pass")),
            (json!(["session"]), (200, "pass")),
            (json!(["session", "bearer"]), (401, "session_unfit")),
            (json!(["session", "authorization_code"]), (302, "login")),
        ] {
            let (mut browser, _) = enter(&world, &authorization(&shown)).await;
            let config = json!({"session_secret": "s", "client_id": ["gateway"],
                "client_secret": ["g"], "auth_methods": methods,
                "authorization_endpoint": "http://id.test/oauth2/authorize"});
            let outcome = browser.get(&plugin(&world, config), "/orders").await;
            assert_eq!(outcome.code(), code, "{methods} {method}");
        }
    }
}
