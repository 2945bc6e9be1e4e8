//! Sessions: kept, renewed, ended, and what must not pass for one.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::browser::{Browser, location, world};
use super::*;

#[tokio::test]
async fn a_session_that_was_changed_cut_moved_or_made_elsewhere_is_none() {
    let (world, _) = world(json!({"auth_methods": ["session", "bearer"]}));
    let (maker, _) = super::browser::world(json!({}));
    world.issuer.publish(&[&maker.key]);
    let browser = Browser::signed_in(&maker).await;
    let good = browser.0["session"].clone();
    let shows = |value: String| Browser(BTreeMap::from([("session".to_owned(), value)]));
    let outcome = shows(good.clone()).get(&world, "/orders").await;
    assert_eq!(outcome.code(), (200, "pass"), "one secret: one session");
    let state = browser.0["authorization"].clone();
    for bad in [
        format!("{}A", good),
        good[..good.len() - 4].to_owned(),
        good[1..].to_owned(),
        format!("2{}", &good[1..]),
        good.replacen(&good[40..44], "AAAA", 1),
        state,
    ] {
        let mut browser = shows(bad.clone());
        let outcome = browser.get(&world, "/orders").await;
        assert_eq!(outcome.code(), (401, "broken_session"), "{bad}");
        assert!(browser.0.is_empty(), "the browser forgets it");
    }
    for config in [
        json!({"session_secret": "another"}),
        json!({"session_audience": "another"}),
        json!({"issuer": "http://id.test/other"}),
    ] {
        let mut config = config;
        config["auth_methods"] = json!(["session"]);
        let (world, _) = super::browser::world(config);
        let outcome = shows(good.clone()).get(&world, "/orders").await;
        assert_eq!(outcome.code(), (401, "broken_session"));
    }
}

#[tokio::test]
async fn a_hundred_requests_on_an_expiring_session_refresh_once() {
    let (world, provider) = world(json!({"auth_methods": ["session", "authorization_code"]}));
    let browser = Browser::signed_in(&world).await;
    world.clock.advance(300_000);
    let request = browser.request("/orders");
    let asks = (0..100).map(|_| world.ask(&request));
    let mut renewed = browser.clone();
    for outcome in futures_util::future::join_all(asks).await {
        assert_eq!(outcome.code(), (200, "pass"));
        renewed.take(&outcome);
    }
    assert_eq!(provider.asked("refresh_token"), 1);
    // One that comes late with the old session gets the same tokens.
    assert_eq!(world.ask(&request).await.code(), (200, "pass"));
    assert_eq!(provider.asked("refresh_token"), 1);
    assert_ne!(renewed.0["session"], browser.0["session"]);
    world.clock.advance(200_000);
    assert_eq!(renewed.get(&world, "/orders").await.code(), (200, "pass"));
    assert_eq!(provider.asked("refresh_token"), 1);
}

#[tokio::test]
async fn a_session_ends_when_the_provider_refuses_and_not_when_it_is_silent() {
    let (world, provider) = world(json!({}));
    let mut browser = Browser::signed_in(&world).await;
    world.clock.advance(300_000);
    provider.refuses.store(503, Ordering::SeqCst);
    let outcome = browser.get(&world, "/orders").await;
    assert_eq!(outcome.code(), (500, "provider_error"));
    provider.refuses.store(0, Ordering::SeqCst);
    assert_eq!(browser.get(&world, "/orders").await.code(), (200, "pass"));
    world.clock.advance(300_000);
    provider.refuses.store(400, Ordering::SeqCst);
    let outcome = browser.get(&world, "/orders").await;
    assert_eq!(outcome.code(), (401, "session_over"));
    assert!(!browser.0.contains_key("session"));
    browser.begin(&world, "/orders").await;
}

#[tokio::test]
async fn a_refreshed_id_token_of_another_user_ends_the_session() {
    let (world, provider) = world(json!({}));
    let mut browser = Browser::signed_in(&world).await;
    world.clock.advance(300_000);
    *provider.twist.lock().unwrap() = json!({"sub": "mallory"});
    let outcome = browser.get(&world, "/orders").await;
    assert_eq!(outcome.code(), (401, "session_over"));
}

#[tokio::test]
async fn an_idle_session_is_over_and_a_used_one_is_renewed() {
    let (world, _) = world(json!({"session_idling_timeout": 100}));
    let mut browser = Browser::signed_in(&world).await;
    for _ in 0..2 {
        let before = browser.0["session"].clone();
        world.clock.advance(60_000);
        assert_eq!(browser.get(&world, "/orders").await.code(), (200, "pass"));
        assert_ne!(browser.0["session"], before);
    }
    world.clock.advance(105_000);
    browser.begin(&world, "/orders").await;
    assert!(!browser.0.contains_key("session"));
}

#[tokio::test]
async fn a_session_is_not_idle_before_its_time_however_soon_it_was_used_last() {
    let (world, _) = world(json!({"session_idling_timeout": 100}));
    for seconds in [1, 4, 5, 24] {
        let mut browser = Browser::signed_in(&world).await;
        world.clock.advance(seconds * 1000);
        assert_eq!(browser.get(&world, "/orders").await.code(), (200, "pass"));
        world.clock.advance(99_000);
        assert_eq!(browser.get(&world, "/orders").await.code(), (200, "pass"));
    }
}

#[tokio::test]
async fn a_logout_revokes_forgets_and_goes_on_to_the_provider() {
    let (world, provider) = world(json!({
        "logout_query_arg": "logout", "logout_methods": ["GET"], "logout_revoke": true,
        "logout_redirect_uri": ["https://app.test/bye"],
        "end_session_endpoint": "http://id.test/oauth2/end",
    }));
    let mut browser = Browser::signed_in(&world).await;
    let outcome = browser.get(&world, "/orders?logout=1").await;
    let address = Url::parse(&location(&outcome)).unwrap();
    assert_eq!(address.path(), "/oauth2/end");
    let query: HashMap<_, _> = address.query_pairs().into_owned().collect();
    assert!(query["id_token_hint"].starts_with("ey"));
    assert_eq!(query["client_id"], "gateway");
    assert_eq!(query["post_logout_redirect_uri"], "https://app.test/bye");
    assert!(!browser.0.contains_key("session"));
    let hints = || {
        let asked = provider.asked.lock().unwrap();
        let hints = asked.iter().filter_map(|form| form.get("token_type_hint"));
        hints.cloned().collect::<Vec<_>>()
    };
    // With the refresh token the provider would end its session before the
    // browser comes to end it, also further up.
    assert_eq!(hints(), ["access_token"]);
    let started = std::time::Instant::now();
    while hints().len() < 2 && started.elapsed() < Duration::from_secs(60) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(hints(), ["access_token", "refresh_token"]);
    browser.begin(&world, "/orders").await;
}

#[tokio::test]
async fn a_logout_takes_a_method_and_a_trigger() {
    let (world, _) = world(json!({"logout_uri_suffix": "/logout"}));
    let mut browser = Browser::signed_in(&world).await;
    assert_eq!(
        browser.get(&world, "/orders/logout").await.code(),
        (200, "pass")
    );
    let post = browser.request("/orders/logout").replace("GET ", "DELETE ");
    let outcome = world.ask(&post).await;
    assert_eq!(outcome.reply.as_ref().unwrap().status, 200);
    browser.take(&outcome);
    assert!(!browser.0.contains_key("session"));
}

/// A provider in this process, some of whose tokens have ended.
#[derive(Debug, Default)]
struct Ending {
    version: std::sync::atomic::AtomicU64,
    over: AtomicBool,
}

#[async_trait]
impl doorward_net::http::outbound::TokenStatus for Ending {
    fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    async fn is_active(
        &self,
        _: &Map<String, Value>,
    ) -> Result<bool, doorward_net::http::outbound::StatusUnavailable> {
        Ok(!self.over.load(Ordering::SeqCst))
    }

    async fn accepts_proofs_by(
        &self,
        _: &Map<String, Value>,
        _: doorward_core::jose::algorithm::Algorithm,
    ) -> Result<bool, doorward_net::http::outbound::StatusUnavailable> {
        Ok(true)
    }

    async fn claims_of(
        &self,
        _: &str,
    ) -> Result<Option<Map<String, Value>>, doorward_net::http::outbound::StatusUnavailable> {
        Ok(None)
    }
}

#[tokio::test]
async fn a_session_goes_on_after_its_opaque_token_was_revoked_in_this_process() {
    for opaque in [true, false] {
        let config = json!({"end_with_session": true,
            "introspection_endpoint": "http://id.test/oauth2/introspect"});
        let (world, provider) = world(config);
        provider.opaque.store(opaque, Ordering::SeqCst);
        let ending = Arc::new(Ending::default());
        let told = Arc::clone(&ending);
        let introspect = move || {
            let active = !told.over.load(Ordering::SeqCst);
            async move { Json(json!({"active": active, "sub": "anna", "iss": ISSUER})) }
        };
        let router = world.issuer.router().merge(provider.router());
        let router = router.route("/oauth2/introspect", axum::routing::post(introspect));
        let base = Url::parse("http://id.test").unwrap();
        let outbound = &world.parts.outbound;
        outbound.register_provider(&base, router, ending.clone());
        let mut browser = Browser::signed_in(&world).await;
        let outcome = browser.get(&world, "/orders").await;
        assert_eq!(outcome.code(), (200, "pass"));
        assert_eq!(outcome.upstream("x-credential-identifier"), Some("anna"));
        let lasting = outcome.exchange.lasting.expect("a bound");
        ending.version.fetch_add(1, Ordering::SeqCst);
        assert_eq!(browser.get(&world, "/orders").await.code(), (200, "pass"));
        assert!(!lasting.is_over());
        ending.over.store(true, Ordering::SeqCst);
        ending.version.fetch_add(1, Ordering::SeqCst);
        let outcome = browser.clone().get(&world, "/orders").await;
        assert_eq!(outcome.code(), (401, "inactive_token"), "{opaque}");
        let ends = async {
            while !lasting.is_over() {
                tokio::task::yield_now().await;
            }
        };
        let ended = tokio::time::timeout(std::time::Duration::from_secs(60), ends).await;
        assert!(ended.is_ok(), "{opaque}: what it had opened ends, too");
    }
}

#[tokio::test]
async fn the_id_token_says_when_and_of_which_domain_a_user_signed_in() {
    for methods in [
        json!(["session", "authorization_code"]),
        json!(["authorization_code"]),
    ] {
        for opaque in [false, true] {
            for (rule, twist, code) in [
                (
                    json!({"max_age": 100}),
                    json!({"auth_time": NOW}),
                    (200, "pass"),
                ),
                (json!({"max_age": 100}), json!({}), (401, "login_too_old")),
                (
                    json!({"max_age": 100}),
                    json!({"auth_time": NOW - 101}),
                    (401, "login_too_old"),
                ),
                (
                    json!({"domains": ["b.c"]}),
                    json!({"hd": "B.c"}),
                    (200, "pass"),
                ),
                (
                    json!({"domains": ["b.c"]}),
                    json!({}),
                    (403, "wrong_domain"),
                ),
                (
                    json!({"domains": ["b.c"]}),
                    json!({"hd": "evil.example"}),
                    (403, "wrong_domain"),
                ),
            ] {
                let mut config = rule;
                config["auth_methods"] = methods.clone();
                let (world, provider) = world(config.clone());
                provider.opaque.store(opaque, Ordering::SeqCst);
                *provider.twist.lock().unwrap() = twist.clone();
                let mut browser = Browser::default();
                let back = browser.begin(&world, "/orders").await;
                let outcome = browser.get(&world, &back).await;
                assert_eq!(outcome.code(), code, "{config} {twist} {opaque}");
                if code.0 == 200 && methods[0] == "session" {
                    let outcome = browser.get(&world, "/orders").await;
                    assert_eq!(outcome.code(), (200, "pass"), "and so its session");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_session_is_over_when_its_login_is_too_long_ago() {
    let (world, provider) = world(json!({"max_age": 100}));
    *provider.twist.lock().unwrap() = json!({"auth_time": NOW});
    let mut browser = Browser::signed_in(&world).await;
    world.clock.advance(100_000);
    assert_eq!(browser.get(&world, "/orders").await.code(), (200, "pass"));
    world.clock.advance(1_000);
    let outcome = browser.get(&world, "/orders").await;
    assert_eq!(outcome.code(), (401, "login_too_old"));
    browser.begin(&world, "/orders").await;
}

#[tokio::test]
async fn a_login_without_an_id_token_is_vouched_for_by_its_access_token_or_by_nobody() {
    for (claims, code) in [
        (json!({"hd": "b.c", "auth_time": NOW}), (200, "pass")),
        (json!({"auth_time": NOW}), (403, "wrong_domain")),
        (json!({"hd": "b.c"}), (401, "login_too_old")),
    ] {
        let config = json!({"scopes": ["profile"], "max_age": 100, "domains": ["b.c"]});
        let (world, _) = world(config);
        let token = world.token(claims.clone());
        let give = move || {
            let answer = json!({"access_token": token, "token_type": "Bearer"});
            async move { Json(answer) }
        };
        let router = world.issuer.router();
        let router = router.route("/oauth2/token", axum::routing::post(give));
        let base = Url::parse("http://id.test").unwrap();
        world.parts.outbound.register_local(&base, router);
        let mut browser = Browser::default();
        let back = browser.begin(&world, "/orders").await;
        assert_eq!(browser.get(&world, &back).await.code(), code, "{claims}");
    }
}
