//! Sessions that are renewed while others renew or end them.

use super::*;

#[tokio::test]
async fn late_and_repeated_answers_go_on_with_a_kept_session() {
    let node = Node::new(json!({})).await;
    let mut browser = Browser::default();
    let one = browser.begin(&node.world, "/orders?tab=1").await;
    let two = browser.begin(&node.world, "/orders?tab=2").await;
    assert_eq!(browser.get(&node.world, &two).await.code(), (200, "pass"));
    for (back, tab) in [(&one, 1), (&two, 2), (&one, 1)] {
        let outcome = browser.get(&node.world, back).await;
        let wanted = format!("http://orders.test/orders?tab={tab}");
        assert_eq!(location(&outcome), wanted);
    }
}

#[tokio::test]
async fn a_logout_that_could_not_be_done_is_done_when_the_provider_comes_again() {
    let node = Node::new(json!({"session_storage": "cookie"})).await;
    *node.provider.twist.lock().unwrap() = json!({"sid": "s-1"});
    let browser = Browser::signed_in(&node.world).await;
    let storages = &Storages::of(&node.world.parts);
    let now_ms = node.world.clock.now_ms();
    for n in 0..crate::session::revoked_sessions::MARKS as u64 {
        let mut what = [0; 16];
        what[..8].copy_from_slice(&n.to_be_bytes());
        storages
            .revoked_sessions
            .add(&doorward_core::model::login::SessionTombstone {
                what,
                before_ms: 0,
                until_ms: now_ms + 1,
            });
    }
    let token = logout_token(&node, json!({}));
    let request = posted(&format!("logout_token={token}"));
    let outcome = node.world.ask(&request).await;
    assert_eq!(outcome.code(), (503, "session_store_unavailable"));
    storages.revoked_sessions.prune(now_ms + 1);
    let outcome = node.world.ask(&request).await;
    assert_eq!(outcome.code(), (200, "provider_logout"));
    assert!(is_out(&browser, &node.world).await);
    assert_eq!(
        node.world.ask(&request).await.code(),
        (400, "logout_repeated")
    );
}

#[tokio::test]
async fn a_renewal_that_lags_behind_does_not_write_spent_tokens_over_the_next() {
    let mut node = Node::new(json!({"session_rolling_timeout": 1160})).await;
    let first = node.with(json!({"session_rolling_timeout": 1160, "leeway": 20}));
    let browser = Browser::signed_in(&node.world).await;
    let request = browser.request("/orders");
    let passes = async |world: &World| {
        assert_eq!(world.ask(&request).await.code(), (200, "pass"));
    };
    // This one reads the session now, and goes on with what it has read.
    node.world.clock.advance(280_000);
    passes(&node.world).await;
    node.world.clock.advance(5_000);
    passes(&first).await;
    assert_eq!(node.provider.asked("refresh_token"), 1);
    // Due, and by what it knows still good.
    node.world.clock.advance(7_000);
    passes(&node.world).await;
    node.world.clock.advance(20_000);
    node.restart().await;
    passes(&node.world).await;
    assert_eq!(node.provider.asked("refresh_token"), 1, "nothing is lost");
}

#[tokio::test]
async fn a_renewal_does_not_unlock_the_refresh_of_somebody_else() {
    let node = Node::new(json!({"session_idling_timeout": 400})).await;
    let browser = Browser::signed_in(&node.world).await;
    let key = node.rows().await[0].key;
    node.world.clock.advance(120_000);
    let now_ms = node.world.clock.now_ms();
    let lock = || node.store.lock_login(key, now_ms + 60_000, now_ms);
    assert!(lock().await.expect("an answer"));
    assert!(!is_out(&browser, &node.world).await);
    assert!(!lock().await.expect("an answer"), "it is still locked");
    assert_eq!(node.rows().await[0].used_ms, NOW * 1000);
    node.store
        .unlock_login(key, now_ms + 60_000)
        .await
        .expect("unlocked");
    assert!(!is_out(&browser, &node.world).await);
    assert_eq!(node.rows().await[0].used_ms, now_ms);
    assert!(lock().await.expect("an answer"), "nor left locked");
}

#[tokio::test]
async fn rows_of_sessions_go_although_no_more_marks_can_be_remembered() {
    let node = Node::new(json!({})).await;
    Browser::signed_in(&node.world).await;
    let now_ms = node.world.clock.now_ms();
    for n in 0..crate::session::revoked_sessions::MARKS as u64 {
        let mut what = [0; 16];
        what[..8].copy_from_slice(&n.to_be_bytes());
        Storages::of(&node.world.parts).revoked_sessions.add(
            &doorward_core::model::login::SessionTombstone {
                what,
                before_ms: 0,
                until_ms: now_ms + 1,
            },
        );
    }
    let all = LoginQuery {
        client_id: Some("gateway".to_owned()),
        ..LoginQuery::default()
    };
    let keeper = node.world.filter.session_keeper().expect("it keeps");
    assert!(keeper.end(&all, now_ms, None).await.is_err());
    assert!(node.rows().await.is_empty());
}

#[tokio::test]
async fn a_node_that_has_just_started_lets_nobody_in_who_has_signed_out() {
    let mut node = Node::new(json!({"session_storage": "cookie"})).await;
    let mut browser = Browser::signed_in(&node.world).await;
    let copy = browser.clone();
    browser.get(&node.world, "/orders?logout=1").await;
    node.restart().await;
    let known = Storages::of(&node.world.parts)
        .revoked_sessions
        .generation();
    assert_ne!(known, 0, "before there is a request");
    assert!(is_out(&copy, &node.world).await);
}
