//! Sessions, and what ends with them.

use super::*;
use doorward_core::model::session::LOGOUTS_OWED;

async fn with_user() -> (Fixture, User) {
    let fixture = Fixture::new().await;
    let demo = user("demo", json!({}));
    fixture
        .store
        .insert_user(&demo, None)
        .await
        .expect("inserted");
    (fixture, demo)
}

/// A session that began at `begun_ms` and is called like its token.
pub(super) fn session(token: &str, of: &User, begun_ms: i64) -> StoredSession {
    StoredSession {
        hash: TokenHash::of(token),
        realm: "/".to_owned(),
        user_id: of.id,
        created_ms: begun_ms,
        used_ms: begun_ms,
        ends_ms: 90_000,
        sid: token.to_owned(),
        auth_ms: begun_ms,
        amr: vec!["pwd".to_owned(), "otp".to_owned()],
        agent: "a browser".to_owned(),
        address: "192.0.2.1".to_owned(),
    }
}

fn grant(id: &str, sid: &str, of: &User, scope: &str) -> Grant {
    Grant {
        id: id.to_owned(),
        sid: Some(sid.to_owned()),
        scopes: vec![scope.to_owned()],
        ..refresh("", of.id).grant
    }
}

/// A client that wants to be told.
async fn add_client(store: &Arc<Store>, id: &str) {
    let mut client = client(id);
    client.metadata.backchannel_logout_uri = Some(format!("https://{id}.example/logout"));
    store.insert_client(&client, None).await.expect("inserted");
}

fn named(sid: &str) -> Ending {
    Ending::Named {
        realm: "/".to_owned(),
        sid: sid.to_owned(),
    }
}

async fn is_revoked(store: &Arc<Store>, grant_id: &str) -> bool {
    let known = store.revocations().await.expect("a lookup");
    let wanted = Revocation::Grant(grant_id.to_owned());
    known.iter().any(|(what, _)| *what == wanted)
}

#[tokio::test]
async fn sessions_beyond_the_quota_end_oldest_first_with_their_grants() {
    let (fixture, demo) = with_user().await;
    let store = &fixture.store;
    let insert = |token: &'static str, begun_ms| {
        let session = session(token, &demo, begun_ms);
        async move {
            store
                .insert_session(&session, 2, None)
                .await
                .expect("inserted")
        }
    };
    assert_eq!(insert("1", 1).await, []);
    let given = grant("g", "1", &demo, "openid");
    assert!(store.begin_grant(&given, 1).await.expect("begun"));
    assert_eq!(insert("2", 2).await, []);
    let ended = insert("3", 3).await;
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].sid, "1");
    assert_eq!(ended[0].grants, ["g"]);
    assert!(is_revoked(store, "g").await);
    for (token, there) in [("1", false), ("2", true), ("3", true)] {
        let found = store.session(TokenHash::of(token)).await.expect("a lookup");
        assert_eq!(found.is_some(), there, "{token}");
    }
}

#[tokio::test]
async fn a_sign_in_ends_others_of_its_moment_and_never_its_own_session() {
    let (fixture, demo) = with_user().await;
    let store = &fixture.store;
    for token in ["1", "2", "3", "4", "5"] {
        let held = session(token, &demo, 7);
        let ended = store
            .insert_session(&held, 1, None)
            .await
            .expect("inserted");
        assert_eq!(ended.len(), usize::from(token != "1"), "{token}");
        let found = store.session(held.hash).await.expect("a lookup");
        assert!(found.is_some(), "{token}");
    }
    // A quota that was lowered holds from the next sign-in on.
    for (token, ended) in [("6", 0), ("7", 0), ("8", 2)] {
        let quota = if token == "8" { 2 } else { 9 };
        let held = session(token, &demo, 8);
        let gone = store
            .insert_session(&held, quota, None)
            .await
            .expect("inserted");
        assert_eq!(gone.len(), ended, "{token}");
    }
}

#[tokio::test]
async fn a_session_ends_with_its_grants_but_offline_access_stays() {
    let (fixture, demo) = with_user().await;
    let store = &fixture.store;
    let first = session("a", &demo, 1);
    store
        .insert_session(&first, 5, None)
        .await
        .expect("inserted");
    let next = StoredSession {
        hash: TokenHash::of("b"),
        ..first.clone()
    };
    let replaced = store.replace_session(first.hash, &next, 5, None).await;
    assert_eq!(replaced.expect("replaced"), [], "it goes on");
    let old = store.session(first.hash).await.expect("a lookup");
    assert_eq!(old, None, "the old token is dead");
    for (token, scope) in [("short", "openid"), ("long", "offline_access")] {
        let mut stored = refresh(token, demo.id);
        stored.family = TokenHash::of(token);
        stored.grant = grant(token, "a", &demo, scope);
        assert!(store.begin_grant(&stored.grant, 1).await.expect("begun"));
        let kept = store.record_tokens(Some(&stored), None, None);
        kept.await.expect("recorded");
    }
    let mut unused = code(&demo);
    unused.authorization.grant = grant("unused", "a", &demo, "openid");
    assert!(store.insert_code(&unused, None).await.expect("inserted"));
    let ended = store.end_sessions(&Ending::Token(next.hash), 9, None).await;
    let ended = ended.expect("ended");
    let mut grants = ended[0].grants.clone();
    grants.sort_unstable();
    assert_eq!(grants, ["short", "unused"]);
    assert_eq!(ended[0].clients, ["app"]);
    let code = store.code(unused.hash).await.expect("a lookup");
    assert_eq!(code, None, "nor does an unused code outlive it");
    for (token, there) in [("short", false), ("long", true)] {
        let kept = store.refresh_tokens(TokenHash::of(token)).await;
        assert_eq!(kept.expect("a lookup").is_some(), there, "{token}");
    }
    let again = store.end_sessions(&Ending::Token(next.hash), 9, None).await;
    assert_eq!(again.expect("nothing to end"), []);
}

#[tokio::test]
async fn another_users_sign_in_ends_the_session_that_was_there() {
    let (fixture, demo) = with_user().await;
    let store = &fixture.store;
    let other = user("other", json!({}));
    store.insert_user(&other, None).await.expect("inserted");
    let first = session("a", &demo, 1);
    store
        .insert_session(&first, 5, None)
        .await
        .expect("inserted");
    let given = grant("g", "a", &demo, "openid");
    assert!(store.begin_grant(&given, 1).await.expect("begun"));
    let next = session("b", &other, 2);
    let ended = store.replace_session(first.hash, &next, 5, None).await;
    assert_eq!(ended.expect("replaced")[0].grants, ["g"]);
}

#[tokio::test]
async fn lapsed_sessions_take_their_grants_along() {
    let (fixture, demo) = with_user().await;
    let store = &fixture.store;
    for token in ["idle", "used"] {
        let session = session(token, &demo, 1);
        store
            .insert_session(&session, 5, None)
            .await
            .expect("inserted");
        let given = grant(token, token, &demo, "openid");
        assert!(store.begin_grant(&given, 1).await.expect("begun"));
    }
    let hash = TokenHash::of("used");
    store.touch_session(hash, 50).await.expect("noted");
    let lapsed = |unused_since_ms| Ending::Lapsed {
        unused_since_ms,
        told: true,
    };
    let ended = store
        .end_sessions(&lapsed(10), 60, None)
        .await
        .expect("ended");
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].grants, ["idle"]);
    // However much it is used, its time is over some day.
    let ended = store.end_sessions(&lapsed(10), 90_000, None).await;
    assert_eq!(ended.expect("ended")[0].grants, ["used"]);
}

#[tokio::test]
async fn nothing_is_given_in_a_session_that_is_over() {
    let (fixture, demo) = with_user().await;
    let store = &fixture.store;
    let given = grant("g", "none", &demo, "openid");
    assert!(!store.begin_grant(&given, 1).await.expect("an answer"));
    let mut late = code(&demo);
    late.authorization.grant = given;
    assert!(!store.insert_code(&late, None).await.expect("an answer"));
    assert_eq!(store.code(late.hash).await.expect("a lookup"), None);
}

#[tokio::test]
async fn whoever_may_no_longer_sign_in_is_signed_out_everywhere() {
    for how in ["deactivated", "password", "deleted"] {
        let (fixture, mut demo) = with_user().await;
        let store = &fixture.store;
        add_client(store, "app").await;
        let held = session("s", &demo, 1);
        store
            .insert_session(&held, 5, None)
            .await
            .expect("inserted");
        for (id, scope) in [("short", "openid"), ("long", "offline_access")] {
            let mut stored = refresh(id, demo.id);
            stored.family = TokenHash::of(id);
            stored.grant = grant(id, "s", &demo, scope);
            assert!(store.begin_grant(&stored.grant, 1).await.expect("begun"));
            let kept = store.record_tokens(Some(&stored), None, None);
            kept.await.expect("recorded");
        }
        match how {
            "deactivated" => {
                demo.active = false;
                (demo.version, demo.updated_ms) = (demo.version + 1, 2);
                store.update_user(&demo, None).await.expect("updated");
            }
            "password" => {
                let hash = Secret::new("hash");
                let set = store.set_password(demo.id, &hash, None, 2, None).await;
                set.expect("set");
            }
            _ => assert!(
                store
                    .delete_user(demo.id, None, 2, None)
                    .await
                    .expect("deleted")
            ),
        }
        let found = store.session(held.hash).await.expect("a lookup");
        assert_eq!(found, None, "{how}");
        for id in ["short", "long"] {
            let kept = store.refresh_tokens(TokenHash::of(id)).await;
            assert_eq!(kept.expect("a lookup"), None, "{how}");
            assert!(is_revoked(store, id).await, "{how}");
        }
        let (owed, _) = store.take_logouts(&[], 10, 10).await.expect("taken");
        assert_eq!(owed.len(), 1, "{how}");
        assert_eq!(owed[0].user_name, "demo", "{how}");
    }
}

#[tokio::test]
async fn a_logout_is_due_until_it_is_settled() {
    let (fixture, demo) = with_user().await;
    let store = &fixture.store;
    add_client(store, "app").await;
    store
        .insert_client(&client("quiet"), None)
        .await
        .expect("inserted");
    let held = session("s", &demo, 1);
    store
        .insert_session(&held, 5, None)
        .await
        .expect("inserted");
    for client_id in ["app", "quiet"] {
        let mut given = grant(client_id, "s", &demo, "openid");
        given.client_id = client_id.to_owned();
        assert!(store.begin_grant(&given, 1).await.expect("begun"));
    }
    let ended = store
        .end_sessions(&named("s"), 100, None)
        .await
        .expect("ended");
    assert_eq!(ended[0].told, 1, "the other one does not want to know");
    let ended = store
        .end_sessions(&named("s"), 100, None)
        .await
        .expect("ended");
    assert_eq!(ended[0].told, 0, "once is enough");

    // As another process finds it, after a crash of the first.
    let other = fixture.another().await;
    let busy = [("/".to_owned(), "app".to_owned())];
    let (owed, next_ms) = other.take_logouts(&busy, 100, 10).await.expect("taken");
    assert_eq!((owed.len(), next_ms), (0, Some(100)));
    let (owed, next_ms) = other.take_logouts(&[], 100, 10).await.expect("taken");
    assert_eq!((owed.len(), next_ms), (1, Some(10_100)));
    assert_eq!((owed[0].sid.as_str(), owed[0].tries), ("s", 1));
    let (none, _) = store.take_logouts(&[], 10_099, 10).await.expect("taken");
    assert!(none.is_empty(), "it is another's for now");
    let (owed, next_ms) = store.take_logouts(&[], 10_100, 10).await.expect("taken");
    assert_eq!(owed[0].tries, 2);
    assert_eq!(next_ms, Some(30_100), "the pauses grow");
    store.settle_logout(owed[0].id).await.expect("settled");
    let (owed, next_ms) = store.take_logouts(&[], 99_000, 10).await.expect("taken");
    assert_eq!((owed.len(), next_ms), (0, None));
}

#[tokio::test]
async fn a_client_that_never_answers_leaves_room_for_others() {
    let (fixture, demo) = with_user().await;
    let store = &fixture.store;
    for id in ["dead", "app"] {
        add_client(store, id).await;
    }
    for number in 0..8 {
        let sid = number.to_string();
        let held = session(&sid, &demo, number);
        store
            .insert_session(&held, 100, None)
            .await
            .expect("inserted");
        let mut given = grant(&format!("dead{sid}"), &sid, &demo, "openid");
        given.client_id = "dead".to_owned();
        assert!(store.begin_grant(&given, 1).await.expect("begun"));
        if number == 7 {
            given.id = "app".to_owned();
            given.client_id = "app".to_owned();
            assert!(store.begin_grant(&given, 1).await.expect("begun"));
        }
        store
            .end_sessions(&named(&sid), 100, None)
            .await
            .expect("ended");
    }
    let (owed, _) = store.take_logouts(&[], 100, 6).await.expect("taken");
    let of = |id: &str| owed.iter().filter(|one| one.client_id == id).count();
    assert_eq!((of("dead"), of("app")), (4, 1));
    const { assert!(LOGOUTS_OWED > 8, "the test stays below the bound") };
}

#[tokio::test]
async fn clients_that_never_answer_crowd_nobody_out_by_their_names() {
    let (fixture, demo) = with_user().await;
    let store = &fixture.store;
    for (number, id) in ["a", "b", "c", "z"].into_iter().enumerate() {
        add_client(store, id).await;
        for round in 0..3 {
            let sid = format!("{id}{round}");
            let held = session(&sid, &demo, i64::try_from(number).expect("small"));
            store
                .insert_session(&held, 100, None)
                .await
                .expect("inserted");
            let mut given = grant(&sid, &sid, &demo, "openid");
            given.client_id = id.to_owned();
            assert!(store.begin_grant(&given, 1).await.expect("begun"));
            store
                .end_sessions(&named(&sid), 100, None)
                .await
                .expect("ended");
        }
    }
    let (owed, _) = store.take_logouts(&[], 100, 4).await.expect("taken");
    let mut of: Vec<_> = owed.iter().map(|one| one.client_id.as_str()).collect();
    of.sort_unstable();
    assert_eq!(of, ["a", "b", "c", "z"]);
}

#[tokio::test]
async fn sessions_are_found_by_user_and_client_page_by_page() {
    let (fixture, demo) = with_user().await;
    let store = &fixture.store;
    let other = user("other", json!({}));
    store.insert_user(&other, None).await.expect("inserted");
    for (sid, of) in [("a", &demo), ("b", &demo), ("c", &other)] {
        let held = session(sid, of, 1);
        store
            .insert_session(&held, 5, None)
            .await
            .expect("inserted");
    }
    for (sid, of) in [("b", &demo), ("c", &other)] {
        let given = grant(sid, sid, of, "openid");
        assert!(store.begin_grant(&given, 1).await.expect("begun"));
    }
    let by = |user_id, client_id: Option<&str>| SessionQuery {
        realm: Some("/".to_owned()),
        user_id,
        client_id: client_id.map(str::to_owned),
    };
    let all = store.sessions(&by(None, None), None, 2).await;
    let all = all.expect("a page");
    assert!(all.more);
    assert_eq!(all.sessions[1].session.sid, "b");
    assert_eq!(all.sessions[1].clients, ["app"]);
    let rest = store.sessions(&by(None, None), Some("b"), 2).await;
    let rest = rest.expect("a page");
    assert!(!rest.more);
    assert_eq!(rest.sessions[0].user_name, "other");
    let both = by(Some(demo.id), Some("app"));
    let found = store.sessions(&both, None, 9).await.expect("a page");
    assert_eq!(found.sessions.len(), 1);
    let ended = store.end_sessions(&Ending::Every(both), 5, None).await;
    assert_eq!(ended.expect("ended")[0].sid, "b");
    let named = store.session_named("/", "c").await.expect("a lookup");
    assert_eq!(named.expect("it is there").user_name, "other");
    let elsewhere = store.session_named("/alpha", "c").await.expect("a lookup");
    assert_eq!(elsewhere, None, "in this realm only");
}
