//! Sessions of tokens whose signature is not looked at.

use super::browser::{Browser, Provider, complete};
use super::introspection::basic_of;
use super::session_creation::plugin;
use super::*;

/// A plugin of this method, and a provider whose signatures do not hold.
fn world(method: &str, mut config: Value, opaque: bool) -> (World, Provider) {
    config["auth_methods"] = json!(["session", method]);
    let (world, provider) = super::browser::world(config);
    provider.opaque.store(opaque, Ordering::SeqCst);
    world.issuer.publish(&[&TestKey::es256("key-1")]);
    (world, provider)
}

async fn let_in(world: &World, method: &str) -> Browser {
    if method == "authorization_code" {
        return Browser::signed_in(world).await;
    }
    let basic = basic_of("anna", "secret");
    let shown = world
        .ask(&get_with(&format!("Authorization: {basic}")))
        .await;
    assert_eq!(shown.code(), (200, "pass"));
    let mut browser = Browser::default();
    browser.take(&shown);
    browser
}

#[tokio::test]
async fn a_session_whose_id_token_nobody_verified_is_not_taken_where_it_would_have_been() {
    for (method, code) in [
        ("password", (401, "session_unfit")),
        ("authorization_code", (302, "login")),
    ] {
        for lax in [
            json!({"verify_signature": false}),
            json!({"ignore_signature": [method]}),
        ] {
            let (world, _) = world(method, lax.clone(), true);
            let mut browser = let_in(&world, method).await;
            let request = browser.request("/orders");
            let methods = json!(["session", method]);
            for (config, code) in [
                (json!({"auth_methods": methods}), code),
                (
                    json!({"auth_methods": methods, "ignore_signature": ["session"]}),
                    (200, "pass"),
                ),
            ] {
                let other = plugin(&world, complete(config));
                assert_eq!(other.ask(&request).await.code(), code, "{lax}");
            }
            let outcome = browser.get(&world, "/orders").await;
            assert_eq!(outcome.code(), (200, "pass"), "{lax}");
        }
    }
}

#[tokio::test]
async fn what_a_method_is_exempt_from_its_sessions_are() {
    for method in ["password", "authorization_code"] {
        for opaque in [false, true] {
            let config = json!({"ignore_signature": [method]});
            let (world, provider) = world(method, config, opaque);
            let mut browser = let_in(&world, method).await;
            for refreshes in 0..2 {
                let outcome = browser.get(&world, "/orders").await;
                assert_eq!(outcome.code(), (200, "pass"), "{method} {opaque}");
                assert_eq!(provider.asked("refresh_token"), refreshes);
                world.clock.advance(300_000);
            }
        }
    }
}

#[tokio::test]
async fn what_a_method_is_exempt_from_no_other_session_is() {
    let config = json!({"ignore_signature": ["password", "introspection"]});
    let (world, _) = world("authorization_code", config, false);
    let mut browser = Browser::default();
    let back = browser.begin(&world, "/orders").await;
    let outcome = browser.get(&world, &back).await;
    assert_eq!(outcome.code(), (401, "bad_signature"));
}
