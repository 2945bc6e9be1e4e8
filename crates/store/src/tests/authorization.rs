//! Codes, consents, devices and requests: what an authorization leaves behind.

use super::*;

#[tokio::test]
async fn a_code_gives_once_and_a_replay_revokes_what_it_gave() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let demo = user("demo", json!({}));
    store.insert_user(&demo, None).await.expect("inserted");
    let code = code(&demo);
    store.insert_code(&code, None).await.expect("inserted");
    assert_eq!(
        store.code(code.hash).await.expect("a lookup"),
        Some(code.clone())
    );
    let token = refresh("one", demo.id);
    let redeem = || store.redeem_code(code.hash, Some(&token), None, 99_000, None);
    let (first, second) = tokio::join!(redeem(), redeem());
    let outcomes = [first.expect("an answer"), second.expect("an answer")];
    let grant = code.authorization.grant.id.clone();
    assert!(outcomes.contains(&Redemption::Done), "{outcomes:?}");
    assert!(outcomes.contains(&Redemption::Replayed(grant)));
    assert_eq!(store.revocations().await.expect("a lookup").len(), 1);
    assert_eq!(
        store
            .redeem_code(TokenHash::of("none"), None, None, 0, None)
            .await
            .expect("an answer"),
        Redemption::Gone
    );
    let kept_until = code.expires_ms + CODE_KEPT_MS;
    store.sweep(kept_until - 1, 100).await.expect("swept");
    assert!(store.code(code.hash).await.expect("a lookup").is_some());
    store.sweep(kept_until, 100).await.expect("swept");
    assert!(store.code(code.hash).await.expect("a lookup").is_none());
}

#[tokio::test]
async fn consent_grows_and_goes_with_the_client() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let demo = user("demo", json!({}));
    store.insert_user(&demo, None).await.expect("inserted");
    store
        .insert_client(&client("app"), None)
        .await
        .expect("inserted");
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for scopes in ["openid email", "openid profile"] {
        let scopes = words(scopes);
        let added = store.add_consent("/", demo.id, "app", &scopes, 1, None);
        added.await.expect("added");
    }
    let known = store.consent(demo.id, "app").await.expect("a lookup");
    assert_eq!(known, words("email openid profile"));
    let gone = store
        .delete_client("/", "app", None, None)
        .await
        .expect("deleted");
    assert!(gone.is_some());
    let known = store.consent(demo.id, "app").await.expect("a lookup");
    assert!(known.is_empty());
}

#[tokio::test]
async fn a_refresh_replay_with_an_earlier_time_is_still_a_reuse() {
    // The request that comes second arrived first.
    let (fixture, _) = with_refresh_token().await;
    let rotate = async |from: &str, to: &str, now_ms, grace_ms| {
        let wanted = exchange(from, to, now_ms, grace_ms);
        let outcome = fixture
            .store
            .exchange_refresh_token(wanted, None, None)
            .await;
        outcome.expect("an answer")
    };
    assert_eq!(rotate("one", "two", 1000, 0).await, Rotation::Done);
    assert_eq!(rotate("one", "evil", 990, 0).await, Rotation::Reused);
    assert_eq!(rotate("two", "three", 1001, 0).await, Rotation::Gone);

    let (fixture, _) = with_refresh_token().await;
    let rotate = async |from: &str, to: &str, now_ms| {
        let wanted = exchange(from, to, now_ms, 100);
        let outcome = fixture
            .store
            .exchange_refresh_token(wanted, None, None)
            .await;
        outcome.expect("an answer")
    };
    assert_eq!(rotate("one", "two", 1000).await, Rotation::Done);
    let again = Rotation::Again(TokenHash::of("two").0);
    assert_eq!(rotate("one", "retry", 990).await, again);
    assert_eq!(rotate("one", "late", 1100).await, Rotation::Reused);
}

#[tokio::test]
async fn a_device_is_decided_once_and_gives_once() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let demo = user("demo", json!({}));
    store.insert_user(&demo, None).await.expect("inserted");
    let one = device("one");
    assert!(
        store
            .insert_device(&one, 2, 0, None)
            .await
            .expect("an answer")
    );
    let same_code = StoredDevice {
        hash: TokenHash::of("x"),
        ..one.clone()
    };
    let taken = store.insert_device(&same_code, 9, 0, None).await;
    assert!(matches!(taken, Err(StoreError::Taken(_))));
    let other = device("other");
    assert!(
        store
            .insert_device(&other, 2, 0, None)
            .await
            .expect("an answer")
    );
    let third = device("third");
    assert!(
        !store
            .insert_device(&third, 2, 59_999, None)
            .await
            .expect("an answer")
    );
    assert!(
        store
            .insert_device(&third, 2, 60_000, None)
            .await
            .expect("an answer")
    );
    assert_eq!(
        store.device(one.hash).await.expect("a lookup"),
        Some(one.clone())
    );

    let grant = refresh("one", demo.id).grant;
    let yes = Verdict::Approved(Box::new(grant));
    let decide = |verdict| store.decide_device(one.user_code, verdict, 1, None);
    let (first, second) = tokio::join!(decide(&yes), decide(&Verdict::Denied));
    assert!(first.expect("an answer") ^ second.expect("an answer"));
    let late = store.decide_device(other.user_code, &yes, 60_000, None);
    assert!(!late.await.expect("an answer"));
    assert!(
        store
            .decide_device(other.user_code, &yes, 59_999, None)
            .await
            .expect("an answer")
    );
    let known = store
        .device_of_user(other.user_code)
        .await
        .expect("a lookup");
    assert_eq!(known.map(|device| device.verdict), Some(yes));

    let token = refresh("one", demo.id);
    let redeem = || store.redeem_device(other.hash, Some(&token), None, None);
    let (first, second) = tokio::join!(redeem(), redeem());
    assert!(first.expect("an answer") ^ second.expect("an answer"));
    assert!(
        !store
            .redeem_device(third.hash, None, None, None)
            .await
            .expect("an answer")
    );
    store
        .sweep(60_000 + DEVICE_KEPT_MS - 1, 9)
        .await
        .expect("swept");
    assert!(store.device(third.hash).await.expect("a lookup").is_some());
    store
        .sweep(60_000 + DEVICE_KEPT_MS, 9)
        .await
        .expect("swept");
    assert!(store.device(third.hash).await.expect("a lookup").is_none());
}

#[tokio::test]
async fn a_kept_request_is_taken_once_even_by_two_at_once() {
    let Fixture { store, .. } = &Fixture::new().await;
    let request = kept("a", "app");
    assert!(store.keep_request(&request, 1000).await.expect("a store"));
    let read = store
        .authorization_request(request.hash)
        .await
        .expect("a store");
    assert_eq!(read, Some(request.clone()));
    store
        .prolong_request(request.hash, 5000)
        .await
        .expect("prolonged");
    store
        .prolong_request(request.hash, 2000)
        .await
        .expect("no shorter");
    let read = store
        .authorization_request(request.hash)
        .await
        .expect("a store");
    assert_eq!(
        read.map(|read| (read.begins_ms, read.ends_ms)),
        Some((1000, 5000))
    );
    let (one, other) = tokio::join!(
        store.take_request(request.hash),
        store.take_request(request.hash)
    );
    assert!(one.expect("a store") ^ other.expect("a store"));
    assert_eq!(
        store
            .authorization_request(request.hash)
            .await
            .expect("a store"),
        None
    );
}

#[tokio::test]
async fn a_flood_of_requests_fills_up_what_its_client_may_keep_and_no_more() {
    let Fixture { store, .. } = &Fixture::new().await;
    let size = serde_json::to_string(&kept("a", "app").kept).expect("JSON");
    let most = u32::try_from(2 * size.len()).expect("small");
    let keep = async |name: &str, client_id: &str| {
        let request = kept(name, client_id);
        let kept = store.keep_request(&request, most).await;
        kept.expect("a store")
    };
    assert!(keep("a", "app").await && keep("b", "app").await);
    assert!(!keep("c", "app").await);
    assert!(keep("d", "other").await);
    assert!(store.take_request(TokenHash::of("a")).await.expect("taken"));
    assert!(keep("c", "app").await && !keep("a", "app").await);
    assert_eq!(store.sweep(1000, 10).await.expect("swept"), 3);
    assert!(keep("a", "app").await);
}
