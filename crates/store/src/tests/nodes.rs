//! What several processes do to one store at once.

use super::*;
use doorward_core::model::session::SessionQuery;

/// Two nodes on one store, and a user.
async fn two_nodes() -> (Fixture, Arc<Store>, User) {
    let fixture = Fixture::new().await;
    let other = fixture.another().await;
    let demo = user("demo", json!({}));
    fixture
        .store
        .insert_user(&demo, None)
        .await
        .expect("inserted");
    (fixture, other, demo)
}

const ROUNDS: u32 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn of_two_nodes_that_exchange_a_refresh_token_at_once_one_does() {
    let (fixture, other, demo) = two_nodes().await;
    for round in 0..ROUNDS {
        let family = TokenHash::of(&format!("family {round}"));
        let mut one = refresh("one", demo.id);
        one.family = family;
        one.grant.id = format!("grant {round}");
        let kept = fixture.store.record_tokens(Some(&one), None, None).await;
        kept.expect("recorded");
        let mut to = [exchange("one", "a", 1, 0), exchange("one", "b", 1, 0)];
        to.iter_mut().for_each(|exchange| exchange.family = family);
        let [a, b] = to;
        let (a, b) = tokio::join!(
            fixture.store.exchange_refresh_token(a, None, None),
            other.exchange_refresh_token(b, None, None),
        );
        let outcomes = [a.expect("an outcome"), b.expect("an outcome")];
        assert!(outcomes.contains(&Rotation::Done), "{outcomes:?}");
        assert!(outcomes.contains(&Rotation::Reused), "{outcomes:?}");
        let left = fixture.store.refresh_tokens(family).await;
        assert!(left.expect("a lookup").is_none(), "the grant is revoked");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_nodes_that_redeem_a_code_at_once_one_does() {
    let (fixture, other, demo) = two_nodes().await;
    for round in 0..ROUNDS {
        let mut code = code(&demo);
        code.hash = TokenHash::of(&round.to_string());
        assert!(fixture.store.insert_code(&code, None).await.expect("kept"));
        let (a, b) = tokio::join!(
            fixture
                .store
                .redeem_code(code.hash, None, None, 9_000, None),
            other.redeem_code(code.hash, None, None, 9_000, None),
        );
        let outcomes = [a.expect("an outcome"), b.expect("an outcome")];
        let done = outcomes.iter().filter(|o| **o == Redemption::Done);
        assert_eq!(done.count(), 1, "{outcomes:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_nodes_that_decide_a_device_at_once_one_counts() {
    let (fixture, other, _) = two_nodes().await;
    for round in 0..ROUNDS {
        let device = device(&round.to_string());
        let kept = fixture.store.insert_device(&device, 100, 1, None).await;
        assert!(kept.expect("kept"));
        let (a, b) = tokio::join!(
            fixture
                .store
                .decide_device(device.user_code, &Verdict::Denied, 1, None),
            other.decide_device(device.user_code, &Verdict::Denied, 1, None),
        );
        assert!(a.expect("an outcome") != b.expect("an outcome"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_do_not_exceed_the_sessions_of_a_user_together() {
    let (fixture, other, demo) = two_nodes().await;
    let begin = |store: Arc<Store>, number: u32| {
        let session = sessions::session(&number.to_string(), &demo, i64::from(number));
        tokio::spawn(async move { store.insert_session(&session, 3, None).await })
    };
    let begun: Vec<_> = (0..ROUNDS)
        .flat_map(|n| {
            [
                begin(fixture.store.clone(), 2 * n),
                begin(other.clone(), 2 * n + 1),
            ]
        })
        .collect();
    let mut ended = 0;
    for session in begun {
        ended += session.await.expect("no panic").expect("begun").len();
    }
    let all = SessionQuery::default();
    let left = other.sessions(&all, None, 100).await.expect("sessions");
    assert_eq!(left.sessions.len(), 3);
    assert_eq!(ended, 2 * ROUNDS as usize - 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_do_not_exceed_what_a_client_may_keep_together() {
    let (fixture, other, _) = two_nodes().await;
    let keep = |store: Arc<Store>, number: u32| {
        let request = kept(&number.to_string(), "app");
        tokio::spawn(async move { store.keep_request(&request, 2_000).await })
    };
    let begun: Vec<_> = (0..ROUNDS)
        .flat_map(|n| {
            [
                keep(fixture.store.clone(), 2 * n),
                keep(other.clone(), 2 * n + 1),
            ]
        })
        .collect();
    let mut bytes = 0;
    for (number, outcome) in (0_u32..).zip(begun) {
        if outcome.await.expect("no panic").expect("an outcome") {
            let kept = kept(&number.to_string(), "app");
            bytes += serde_json::to_string(&kept.kept).expect("JSON").len();
        }
    }
    assert!(bytes > 0 && bytes <= 2_000, "{bytes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_do_not_register_more_clients_together_than_a_realm_takes() {
    let (fixture, other, _) = two_nodes().await;
    let register = |store: Arc<Store>, number: u32| {
        let mut client = client(&number.to_string());
        client.owner = Owner::Client;
        tokio::spawn(async move { store.register_client(&client, 7, None, None).await })
    };
    let begun: Vec<_> = (0..ROUNDS)
        .flat_map(|n| {
            [
                register(fixture.store.clone(), 2 * n),
                register(other.clone(), 2 * n + 1),
            ]
        })
        .collect();
    let mut registered = 0;
    for outcome in begun {
        let outcome = outcome.await.expect("no panic").expect("an outcome");
        registered += usize::from(outcome == RegistrationOutcome::Done);
    }
    assert_eq!(registered, 7);
}

#[tokio::test]
async fn nodes_learn_of_each_others_changes_and_not_of_their_own() {
    let (fixture, other, demo) = two_nodes().await;
    let store = &fixture.store;
    let version = async || store.data_version().await.expect("a version");
    let entities = async || store.entities_version().await.expect("a version");
    let before = (version().await, entities().await);
    store
        .revoke_grant("own", 9_000, None)
        .await
        .expect("revoked");
    let own = store.write_entities(vec![entity(random_uuid(), "own")], None);
    own.await.expect("written");
    assert_eq!((version().await, entities().await), before, "own changes");
    let mut seen = before.0;
    let mut changed = async |what: &str| {
        let now = version().await;
        assert_ne!(now, seen, "{what}");
        seen = now;
    };
    other.revoke_grant("g", 9_000, None).await.expect("revoked");
    changed("a revoked grant").await;
    let revoked = other.revoke_access_token(TokenHash::of("t"), "t", 9_000, None);
    revoked.await.expect("revoked");
    changed("a revoked token").await;
    other
        .insert_client(&client("new"), None)
        .await
        .expect("inserted");
    changed("a client").await;
    other
        .delete_client("/", "new", None, None)
        .await
        .expect("deleted");
    changed("a client that went").await;
    let mut renamed = demo.clone();
    (renamed.version, renamed.user_name) = (2, "other".to_owned());
    other.update_user(&renamed, None).await.expect("updated");
    changed("a user").await;
    let written = other.write_entities(vec![entity(random_uuid(), "foreign")], None);
    written.await.expect("written");
    assert_ne!(entities().await, before.1, "an entity");
}

#[tokio::test]
async fn no_text_holds_u_0000() {
    let (fixture, _, mut demo) = two_nodes().await;
    let store = &fixture.store;
    let refused = store.insert_user(&user("de\0mo", json!({})), None).await;
    assert!(matches!(refused, Err(StoreError::Unfit)), "{refused:?}");
    demo.version = 2;
    demo.profile = json!({"displayName": "a\0b"})
        .as_object()
        .cloned()
        .expect("an object");
    let refused = store.update_user(&demo, None).await;
    assert!(matches!(refused, Err(StoreError::Unfit)), "{refused:?}");
    let refused = store.insert_client(&client("a\0"), None).await;
    assert!(matches!(refused, Err(StoreError::Unfit)), "{refused:?}");
    // Characters that only look like it once they are written as JSON.
    demo.profile = json!({"displayName": "a\\u0000b"})
        .as_object()
        .cloned()
        .expect("an object");
    store.update_user(&demo, None).await.expect("updated");
    // To ask for one finds nothing.
    let found = store.user_by_name("/", "demo\0").await.expect("a lookup");
    assert!(found.is_none());
    let found = store.client("/\0", "app").await.expect("a lookup");
    assert!(found.is_none());
    let found = names(store, compare("displayName", Op::Contains, "\0")).await;
    assert!(found.is_empty(), "{found:?}");
}
