//! Sessions that are kept in the process's own store, sessions that end from
//! elsewhere, and what attackers do to either.

mod renewal;

use super::browser::{Browser, Provider, complete, location, world};
use super::*;
use crate::Storages;
use doorward_core::model::login::LoginQuery;
use doorward_store::Store;

/// A node whose sessions are kept, in a store that others may share.
pub(super) struct Node {
    pub(super) world: World,
    pub(super) provider: Provider,
    pub(super) store: Arc<Store>,
    directory: Arc<tempfile::TempDir>,
    pub(super) config: Value,
}

fn settings(mut config: Value) -> Value {
    for (name, value) in [
        ("session_storage", json!("store")),
        (
            "auth_methods",
            json!(["session", "bearer", "authorization_code"]),
        ),
        ("logout_query_arg", json!("logout")),
        ("logout_methods", json!(["GET"])),
        ("backchannel_logout_uri_suffix", json!("/backchannel")),
        ("frontchannel_logout_uri_suffix", json!("/frontchannel")),
    ] {
        if config.get(name).is_none() {
            config[name] = value;
        }
    }
    complete(config)
}

impl Node {
    pub(super) async fn new(config: Value) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open_sqlite(&directory.path().join("db")).await;
        let store = Arc::new(store.expect("a store"));
        let (world, provider) = world(json!({}));
        let config = settings(config);
        let mut node = Self {
            world,
            provider,
            store,
            directory: Arc::new(directory),
            config,
        };
        node.restart().await;
        node
    }

    /// The same with nothing in memory.
    pub(super) async fn restart(&mut self) {
        let clock = self.world.clock.clone();
        self.world.parts.slots = self.world.parts.slots.copy();
        self.world
            .parts
            .slots
            .put(Storages::on(self.store.clone(), clock).await);
        self.world.filter = filter(&self.world.parts, self.config.clone()).expect("valid");
    }

    /// Another plugin of the same node.
    pub(super) fn with(&self, config: Value) -> World {
        World {
            issuer: self.world.issuer.clone(),
            key: self.world.key.clone(),
            clock: self.world.clock.clone(),
            parts: self.world.parts.clone(),
            filter: filter(&self.world.parts, settings(config)).expect("valid"),
        }
    }

    /// Another node with the same store and provider.
    pub(super) async fn other(&self) -> World {
        let mut parts = self.world.parts.clone();
        parts.slots = parts.slots.copy();
        parts
            .slots
            .put(Storages::on(self.store.clone(), self.world.clock.clone()).await);
        World {
            issuer: self.world.issuer.clone(),
            key: self.world.key.clone(),
            clock: self.world.clock.clone(),
            filter: filter(&parts, self.config.clone()).expect("valid"),
            parts,
        }
    }

    pub(super) async fn rows(&self) -> Vec<doorward_core::model::login::StoredLogin> {
        let _ = &self.directory;
        let all = LoginQuery::default();
        let page = doorward_store::Store::logins(&self.store, &all, None, 100).await;
        page.expect("a page").logins
    }

    pub(super) async fn ended_by(&self, which: LoginQuery) -> usize {
        let keeper = self.world.filter.session_keeper().expect("it keeps");
        let now_ms = self.world.clock.now_ms();
        keeper.end(&which, now_ms, None).await.expect("ended")
    }
}

/// Whether a request is one of somebody who has to sign in.
pub(super) async fn is_out(browser: &Browser, world: &World) -> bool {
    let outcome = world.ask(&browser.request("/orders")).await;
    match outcome.code() {
        (200, "pass") => false,
        (302, "login") => true,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_kept_session_is_a_handle_and_nobody_reads_its_tokens_in_the_store() {
    let mut node = Node::new(json!({})).await;
    let mut browser = Browser::signed_in(&node.world).await;
    assert_eq!(browser.0["session"].len(), 41);
    let rows = node.rows().await;
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].subject.as_deref(), Some("anna"));
    assert!(!rows[0].sealed.contains(".eyJ"), "a token is in clear");
    assert!(!format!("{rows:?}").contains(&browser.0["session"][1..]));
    node.restart().await;
    let outcome = browser.get(&node.world, "/orders").await;
    assert_eq!(outcome.code(), (200, "pass"), "it is read again");
    assert_eq!(outcome.upstream("cookie"), None);
    assert_eq!(outcome.upstream("x-credential-identifier"), Some("anna"));
}

#[tokio::test]
async fn a_kept_session_is_renewed_by_use_and_over_without() {
    let node = Node::new(json!({"session_idling_timeout": 100})).await;
    let mut browser = Browser::signed_in(&node.world).await;
    let handle = browser.0["session"].clone();
    for _ in 0..4 {
        node.world.clock.advance(60_000);
        let outcome = browser.get(&node.world, "/orders").await;
        assert_eq!(outcome.code(), (200, "pass"));
    }
    assert_eq!(browser.0["session"], handle);
    node.world.clock.advance(105_000);
    assert!(is_out(&browser, &node.world).await);
}

#[tokio::test]
async fn a_copied_cookie_is_of_no_use_after_logout_wherever_sessions_are() {
    for storage in ["cookie", "store"] {
        let mut node = Node::new(json!({"session_storage": storage})).await;
        let mut browser = Browser::signed_in(&node.world).await;
        let copy = browser.clone();
        assert!(!is_out(&copy, &node.world).await);
        browser.get(&node.world, "/orders?logout=1").await;
        assert!(!browser.0.contains_key("session"));
        assert!(is_out(&copy, &node.world).await, "{storage}");
        assert!(node.rows().await.is_empty());
        node.restart().await;
        let learns = async {
            while !is_out(&copy, &node.world).await {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        let learnt = tokio::time::timeout(std::time::Duration::from_secs(60), learns).await;
        assert!(learnt.is_ok(), "{storage}: also after a restart");
    }
}

#[tokio::test]
async fn a_session_that_an_attacker_planted_is_not_the_one_that_a_login_gives() {
    for storage in ["cookie", "store"] {
        let node = Node::new(json!({"session_storage": storage})).await;
        let planted = Browser::signed_in(&node.world).await;
        let mut victim = Browser::default();
        let back = victim.begin(&node.world, "/orders").await;
        let session = planted.0["session"].clone();
        // Planted after the login has begun: the victim goes on as the attacker,
        // if at all, never the attacker as the victim.
        victim.0.insert("session".to_owned(), session.clone());
        victim.get(&node.world, &back).await;
        assert_eq!(victim.0["session"], session, "{storage}");
        victim.get(&node.world, "/orders?logout=1").await;
        let back = victim.begin(&node.world, "/orders").await;
        victim.get(&node.world, &back).await;
        assert_ne!(victim.0["session"], session);
        assert!(is_out(&planted, &node.world).await, "{storage}");
        assert!(!is_out(&victim, &node.world).await);
    }
}

#[tokio::test]
async fn a_handle_that_is_made_up_cut_changed_or_of_another_audience_opens_nothing() {
    let node = Node::new(json!({})).await;
    let browser = Browser::signed_in(&node.world).await;
    let good = browser.0["session"].clone();
    let other = node.with(json!({"session_audience": "other"}));
    assert!(is_out(&browser, &other).await);
    let same = node.with(json!({}));
    assert!(!is_out(&browser, &same).await, "two routes share it");
    for bad in [
        format!("1{}", "A".repeat(40)),
        good[..good.len() - 1].to_owned(),
        format!("{good}A"),
        format!("2{}", &good[1..]),
        good.to_uppercase(),
        "1".to_owned() + &"x".repeat(20_000),
        "1../../etc".to_owned(),
    ] {
        let mut browser = Browser::default();
        browser.0.insert("session".to_owned(), bad.clone());
        assert!(is_out(&browser, &node.world).await, "{bad}");
    }
}

#[tokio::test]
async fn who_writes_to_the_store_can_give_nobody_the_session_of_another() {
    let mut node = Node::new(json!({})).await;
    let anna = Browser::signed_in(&node.world).await;
    let mallory = Browser::signed_in(&node.world).await;
    let rows = node.rows().await;
    let sealed = [rows[0].sealed.clone(), rows[1].sealed.clone()];
    for (row, sealed) in rows.iter().zip([&sealed[1], &sealed[0]]) {
        let mut swapped = row.clone();
        swapped.sealed.clone_from(sealed);
        let done = doorward_store::Store::update_login(&node.store, &swapped, 0).await;
        assert!(done.expect("an answer"));
    }
    node.restart().await;
    assert!(is_out(&anna, &node.world).await);
    assert!(is_out(&mallory, &node.world).await);
}

#[tokio::test]
async fn a_store_that_is_down_refuses_and_never_lets_in_or_loops() {
    let (mut world, _) = world(json!({}));
    world.filter = filter(&world.parts, settings(json!({}))).expect("valid");
    let mut browser = Browser::default();
    let back = browser.begin(&world, "/orders").await;
    let outcome = browser.get(&world, &back).await;
    assert_eq!(outcome.code(), (500, "session_store_unavailable"));
    assert!(!browser.0.contains_key("session"));
    browser
        .0
        .insert("session".to_owned(), format!("1{}", "A".repeat(40)));
    for (target, status) in [("/orders", 500), ("/orders?logout=1", 503)] {
        let outcome = browser.get(&world, target).await;
        assert_eq!(outcome.code(), (status, "session_store_unavailable"));
        assert!(browser.0.contains_key("session"), "it is not forgotten");
    }
}

#[tokio::test]
async fn a_hundred_requests_on_two_nodes_refresh_a_kept_session_once() {
    let node = Node::new(json!({})).await;
    let other = node.other().await;
    let browser = Browser::signed_in(&node.world).await;
    node.world.clock.advance(300_000);
    let request = browser.request("/orders");
    let asks = (0..100).map(|n| match n % 2 {
        0 => node.world.ask(&request),
        _ => other.ask(&request),
    });
    for outcome in futures_util::future::join_all(asks).await {
        assert_eq!(outcome.code(), (200, "pass"));
    }
    assert_eq!(node.provider.asked("refresh_token"), 1);
    for world in [&node.world, &other] {
        assert_eq!(world.ask(&request).await.code(), (200, "pass"));
    }
    assert_eq!(node.provider.asked("refresh_token"), 1);
}

#[tokio::test]
async fn sessions_of_a_user_a_client_a_session_end_wherever_they_are() {
    for storage in ["cookie", "store"] {
        for which in [
            LoginQuery {
                subjects: crate::subjects("anna"),
                ..LoginQuery::default()
            },
            LoginQuery {
                client_id: Some("gateway".to_owned()),
                ..LoginQuery::default()
            },
            LoginQuery {
                sid: Some("s-1".to_owned()),
                issuer: Some(ISSUER.to_owned()),
                ..LoginQuery::default()
            },
        ] {
            let node = Node::new(json!({"session_storage": storage})).await;
            *node.provider.twist.lock().unwrap() = json!({"sid": "s-1"});
            let browser = Browser::signed_in(&node.world).await;
            let nobody = LoginQuery {
                client_id: Some("nobody".to_owned()),
                ..LoginQuery::default()
            };
            assert_eq!(node.ended_by(nobody).await, 0);
            assert!(!is_out(&browser, &node.world).await);
            let known = usize::from(storage == "store");
            assert_eq!(node.ended_by(which.clone()).await, known);
            assert!(is_out(&browser, &node.world).await, "{storage} {which:?}");
            node.world.clock.advance(1);
            let again = Browser::signed_in(&node.world).await;
            assert!(
                !is_out(&again, &node.world).await,
                "a new one is none of them"
            );
        }
    }
}

pub(super) fn logout_token(node: &Node, change: Value) -> String {
    let mut claims = json!({"iss": ISSUER, "aud": "gateway", "iat": NOW, "exp": NOW + 120,
        "jti": "j-1", "sid": "s-1",
        "events": {"http://schemas.openid.net/event/backchannel-logout": {}}});
    for (name, value) in change.as_object().unwrap() {
        claims[name] = value.clone();
    }
    node.provider.key.token(&claims)
}

pub(super) fn posted(form: &str) -> String {
    format!(
        "POST /orders/backchannel HTTP/1.1\r\nHost: orders.test\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
        form.len()
    )
}

#[tokio::test]
async fn the_provider_ends_sessions_by_the_back_channel_wherever_they_are() {
    for storage in ["cookie", "store"] {
        let node = Node::new(json!({"session_storage": storage})).await;
        *node.provider.twist.lock().unwrap() = json!({"sid": "s-1"});
        let browser = Browser::signed_in(&node.world).await;
        *node.provider.twist.lock().unwrap() = json!({"sid": "s-2"});
        let bystander = Browser::signed_in(&node.world).await;
        let token = logout_token(&node, json!({}));
        let request = posted(&format!("logout_token={token}"));
        let outcome = node.world.ask(&request).await;
        assert_eq!(outcome.code(), (200, "provider_logout"));
        assert!(is_out(&browser, &node.world).await, "{storage}");
        assert!(!is_out(&bystander, &node.world).await);
        let again = node.world.ask(&request).await;
        assert_eq!(again.code(), (400, "logout_repeated"));
        let of_user = json!({"jti": "j-2", "sid": null, "sub": "anna"});
        let request = posted(&format!("logout_token={}", logout_token(&node, of_user)));
        assert_eq!(node.world.ask(&request).await.code().0, 200);
        assert!(is_out(&bystander, &node.world).await);
    }
}

#[tokio::test]
async fn a_logout_that_the_provider_did_not_ask_for_is_refused_by_name() {
    let node = Node::new(json!({})).await;
    let good = logout_token(&node, json!({}));
    let stranger = TestKey::es256("key-1");
    let forged = stranger.token(&json!({"iss": ISSUER, "aud": "gateway"}));
    let typed = node.provider.key.sign(
        "{\"alg\":\"ES256\",\"kid\":\"key-1\",\"typ\":\"at+jwt\"}",
        "{}",
    );
    let id_token = json!({"events": null});
    for (form, code) in [
        (String::new(), "malformed_logout"),
        ("logout_token=x.y".to_owned(), "malformed_logout"),
        (
            format!("logout_token={good}&logout_token={good}"),
            "malformed_logout",
        ),
        (format!("logout_token={forged}"), "bad_logout_signature"),
        (format!("logout_token={typed}"), "wrong_logout_type"),
        (
            format!("logout_token={}", logout_token(&node, id_token)),
            "no_logout_event",
        ),
        (
            format!(
                "logout_token={}",
                logout_token(&node, json!({"aud": "other"}))
            ),
            "wrong_logout_audience",
        ),
    ] {
        let outcome = node.world.ask(&posted(&form)).await;
        assert_eq!(outcome.code(), (400, code), "{form}");
    }
}

#[tokio::test]
async fn a_frame_that_names_no_session_ends_that_of_its_browser_alone() {
    for storage in ["cookie", "store"] {
        let node = Node::new(json!({"session_storage": storage})).await;
        let mut browser = Browser::signed_in(&node.world).await;
        let copy = browser.clone();
        let other = Browser::signed_in(&node.world).await;
        // One of both is none.
        for target in [
            "/frontchannel?sid=s-1",
            "/frontchannel?iss=x",
            "/frontchannel?sid=",
        ] {
            let outcome = browser.get(&node.world, target).await;
            let malformed = (400, "malformed_logout");
            let done = (200, "provider_logout");
            let wanted = if target.ends_with('=') {
                done
            } else {
                malformed
            };
            assert_eq!(outcome.code(), wanted, "{target}");
        }
        assert!(!browser.0.contains_key("session"));
        assert!(is_out(&copy, &node.world).await, "{storage}");
        assert!(!is_out(&other, &node.world).await, "{storage}");
        let nobody = Browser::default().get(&node.world, "/frontchannel").await;
        assert_eq!(nobody.code(), (200, "provider_logout"), "it is out already");
    }
}

#[tokio::test]
async fn a_frame_of_the_provider_ends_its_session_and_only_that() {
    for storage in ["cookie", "store"] {
        let config = json!({"session_storage": storage,
            "frontchannel_logout_session_required": true});
        let node = Node::new(config).await;
        *node.provider.twist.lock().unwrap() = json!({"sid": "s-1"});
        let mut browser = Browser::signed_in(&node.world).await;
        let issuer = "http%3A%2F%2Fid.test%2Foauth2";
        for (target, code) in [
            ("/frontchannel".to_owned(), "malformed_logout"),
            (
                "/frontchannel?iss=http%3A%2F%2Fevil&sid=s-1".to_owned(),
                "wrong_logout_issuer",
            ),
            (
                format!("/frontchannel?iss={issuer}&sid=s-2"),
                "logout_of_unknown_session",
            ),
        ] {
            let outcome = browser.get(&node.world, &target).await;
            assert_eq!(outcome.code(), (400, code), "{target}");
            assert!(!is_out(&browser, &node.world).await);
        }
        let copy = browser.clone();
        let target = format!("/frontchannel?iss={issuer}&sid=s-1");
        let outcome = browser.get(&node.world, &target).await;
        assert_eq!(outcome.code(), (200, "provider_logout"));
        let reply = outcome.reply.expect("an answer");
        let policy = reply
            .headers
            .iter()
            .find(|(name, _)| name == "content-security-policy");
        let policy = policy.expect("a policy").1.to_str().expect("text");
        assert!(policy.ends_with("frame-ancestors http://id.test"));
        assert!(!browser.0.contains_key("session"));
        assert!(is_out(&copy, &node.world).await, "{storage}");
    }
}

#[tokio::test]
async fn the_cookies_of_sessions_and_logins_are_known_as_such_on_every_route() {
    for storage in ["cookie", "store"] {
        let node = Node::new(json!({"session_storage": storage})).await;
        let browser = Browser::signed_in(&node.world).await;
        let filter = &node.world.filter;
        assert!(filter.gives_cookies());
        let own = browser
            .0
            .keys()
            .find(|name| name.starts_with("authorization."));
        let own = own.expect("a cookie of its own name");
        for name in ["session", "authorization", own] {
            assert!(filter.owns_cookie(name, &browser.0[name]), "{name}");
            assert!(!filter.owns_cookie("other", &browser.0[name]));
            // Another program may call its own cookie the same.
            for theirs in ["1", "eyJmbGFzayI6MX0.Zm9v", "", &"A".repeat(41)] {
                assert!(!filter.owns_cookie(name, theirs), "{name} {theirs}");
            }
        }
    }
}

#[tokio::test]
async fn an_answer_lasts_no_longer_than_its_session_or_its_token() {
    let node = Node::new(json!({"end_with_session": true})).await;
    let browser = Browser::signed_in(&node.world).await;
    let lasting = async |request: &str| {
        let outcome = node.world.ask(request).await;
        assert_eq!(outcome.code(), (200, "pass"));
        outcome.exchange.lasting.expect("a bound")
    };
    let of_session = lasting(&browser.request("/orders")).await;
    let token = node.world.token(json!({"exp": NOW + 60}));
    let of_token = lasting(&get_with(&format!("Authorization: Bearer {token}"))).await;
    assert!(!of_session.is_over() && !of_token.is_over());
    node.world.clock.advance(60_000);
    assert!(of_token.is_over() && !of_session.is_over());
    node.ended_by(LoginQuery {
        client_id: Some("gateway".to_owned()),
        ..LoginQuery::default()
    })
    .await;
    assert!(of_session.is_over());
}

#[tokio::test]
async fn a_session_that_is_bound_is_of_no_use_to_another_client() {
    for storage in ["cookie", "store"] {
        let bind = json!({"session_storage": storage, "session_bind": ["user-agent"]});
        let node = Node::new(bind).await;
        let browser = Browser::signed_in(&node.world).await;
        assert!(!is_out(&browser, &node.world).await);
        let request = browser.request("/orders");
        let stolen = request.replace("Host:", "User-Agent: thief\r\nHost:");
        let outcome = node.world.ask(&stolen).await;
        assert_eq!(outcome.code(), (302, "login"), "{storage}");
        assert!(!is_out(&browser, &node.world).await);
    }
}

#[tokio::test]
async fn a_login_begins_no_session_where_that_is_disabled() {
    let disabled = json!({"disable_session": ["authorization_code"]});
    let node = Node::new(disabled).await;
    let mut browser = Browser::default();
    let back = browser.begin(&node.world, "/orders").await;
    assert_eq!(browser.get(&node.world, &back).await.code(), (200, "pass"));
    assert!(!browser.0.contains_key("session"));
    assert!(node.rows().await.is_empty());
}

#[tokio::test]
async fn upstream_and_client_are_told_of_a_session_with_the_request_that_begins_it() {
    for storage in ["cookie", "store"] {
        let node = Node::new(json!({"session_storage": storage,
            "session_request_headers": ["id"], "session_response_headers": ["timeout"]}));
        let node = node.await;
        let told = |outcome: &Outcome| {
            let mut fields = outcome.exchange.response_headers.iter();
            let client = fields.find(|(name, _)| name == "session-timeout");
            let upstream = outcome.upstream("session-id").map(str::to_owned);
            (upstream, client.map(|(_, value)| value.clone()))
        };
        let token = node.world.token(json!({}));
        let mut by_login = Browser::default();
        let back = by_login.begin(&node.world, "/orders").await;
        let ended = by_login.get(&node.world, &back).await;
        let shown = node.world.ask_bearer(&token).await;
        let mut by_token = Browser::default();
        by_token.take(&shown);
        for (outcome, mut browser) in [(ended, by_login), (shown, by_token)] {
            assert_eq!(outcome.code(), (200, "pass"), "{storage}");
            let first = told(&outcome);
            assert!(
                first.0.is_some() && first.1.is_some(),
                "{storage} {first:?}"
            );
            let next = told(&browser.get(&node.world, "/orders").await);
            assert_eq!(next, first, "{storage}");
        }
    }
    let none = json!({"disable_session": ["authorization_code"],
        "session_request_headers": ["id"]});
    let node = Node::new(none).await;
    let mut browser = Browser::default();
    let back = browser.begin(&node.world, "/orders").await;
    let outcome = browser.get(&node.world, &back).await;
    assert_eq!(outcome.upstream("session-id"), None);
}

#[tokio::test]
async fn upstream_and_client_are_told_of_the_session_what_they_shall_be() {
    let told = json!({"session_idling_timeout": 100,
        "session_request_headers": ["id", "subject", "idling-timeout"],
        "session_response_headers": ["absolute-timeout"]});
    let node = Node::new(told).await;
    let browser = Browser::signed_in(&node.world).await;
    let request = browser.request("/orders");
    let outcome = node.world.ask(&request).await;
    let rows = node.rows().await;
    assert_eq!(outcome.upstream("session-id"), Some(rows[0].id.as_str()));
    assert_eq!(outcome.upstream("session-subject"), Some("anna"));
    assert_eq!(outcome.upstream("session-idling-timeout"), Some("100"));
    let told = outcome.exchange.response_headers;
    let told = told
        .iter()
        .find(|(name, _)| name == "session-absolute-timeout");
    assert_eq!(told.expect("told").1, "86400");
    let owned = node.world.filter.owned_headers();
    assert!(owned.iter().any(|name| name == "session-subject"));
    let wrong = settings(json!({"session_request_headers": ["cookie"]}));
    assert!(filter(&node.world.parts, wrong).is_err());
}
