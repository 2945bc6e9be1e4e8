//! Login sessions of the gateway, and which of them are over.

use super::*;
use doorward_core::model::login::{LoginQuery, SessionTombstone, StoredLogin};

fn login(n: u8, subject: &str) -> StoredLogin {
    StoredLogin {
        key: TokenHash([n; 32]),
        id: format!("id-{n}"),
        issuer: "https://id".to_owned(),
        client_id: "app".to_owned(),
        subject: Some(subject.to_owned()),
        sid: Some(format!("sid-{n}")),
        started_ms: i64::from(n),
        used_ms: 10,
        ends_ms: 100,
        sealed: "sealed".to_owned(),
    }
}

#[tokio::test]
async fn of_several_login_sessions_all_are_kept_or_none() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let (one, other) = (login(1, "mia"), login(2, "mia"));
    let twice = [one.clone(), one.clone()];
    store
        .insert_logins(&twice)
        .await
        .expect_err("one key twice");
    assert_eq!(store.login(one.key).await.expect("read"), None);
    let both = [one.clone(), other.clone()];
    store.insert_logins(&both).await.expect("kept");
    for kept in both {
        assert_eq!(store.login(kept.key).await.expect("read"), Some(kept));
    }
}

#[tokio::test]
async fn a_login_session_that_has_ended_is_not_brought_back_by_a_renewal() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let mut mine = login(1, "anna");
    store.insert_login(&mine).await.expect("kept");
    let found = store.login(mine.key).await.expect("an answer");
    assert_eq!(found.as_ref(), Some(&mine));
    (mine.used_ms, mine.ends_ms) = (20, 200);
    assert!(store.update_login(&mine, 0).await.expect("an answer"));
    let query = LoginQuery {
        id: Some(mine.id.clone()),
        ..LoginQuery::default()
    };
    let ended = store
        .end_logins(&query, &[], 30, None)
        .await
        .expect("ended");
    assert_eq!(ended, ["id-1"]);
    assert!(!store.update_login(&mine, 0).await.expect("an answer"));
    assert_eq!(store.login(mine.key).await.expect("an answer"), None);
    let marks = store.session_tombstones(0, 10).await.expect("marks");
    assert_eq!(marks.len(), 1);
    assert_eq!(marks[0].1.what, SessionTombstone::of_key(&mine.key));
}

#[tokio::test]
async fn a_login_session_ends_as_its_last_use_says() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let mut mine = login(1, "anna");
    store.insert_login(&mine).await.expect("kept");
    for (used, ends, end) in [(20, 200, 200), (15, 150, 200), (30, 60, 60)] {
        (mine.used_ms, mine.ends_ms) = (used, ends);
        assert!(store.update_login(&mine, 0).await.expect("an answer"));
        let found = store.login(mine.key).await.expect("an answer");
        assert_eq!(found.expect("a session").ends_ms, end, "{used}");
    }
}

#[tokio::test]
async fn one_of_two_locks_a_login_session_until_it_is_updated_unlocked_or_late() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let mine = login(1, "anna");
    store.insert_login(&mine).await.expect("kept");
    let lock = async |until_ms, now_ms| {
        let locked = store.lock_login(mine.key, until_ms, now_ms).await;
        locked.expect("an answer")
    };
    assert!(lock(50, 10).await);
    assert!(!lock(50, 49).await);
    assert!(lock(90, 50).await, "it is late");
    // Who held it before frees nobody's but its own.
    store.unlock_login(mine.key, 50).await.expect("an answer");
    assert!(store.update_login(&mine, 50).await.expect("an answer"));
    assert!(!lock(91, 51).await);
    store.unlock_login(mine.key, 90).await.expect("unlocked");
    assert!(lock(90, 51).await);
    assert!(store.update_login(&mine, 90).await.expect("an answer"));
    assert!(lock(90, 52).await);
    let nobody = store.lock_login(TokenHash([9; 32]), 90, 1).await;
    assert!(!nobody.expect("an answer"));
}

#[tokio::test]
async fn login_sessions_are_found_and_ended_by_all_that_is_named() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    for (n, subject) in [(1, "anna"), (2, "bob"), (3, "anna")] {
        let kept = store.insert_login(&login(n, subject)).await;
        kept.expect("kept");
    }
    let everybody = LoginQuery::default();
    let page = store.logins(&everybody, None, 2).await.expect("a page");
    assert!(page.more);
    let ids: Vec<_> = page.logins.iter().map(|login| login.id.as_str()).collect();
    assert_eq!(ids, ["id-1", "id-2"]);
    let page = store.logins(&everybody, Some("id-2"), 2).await;
    let page = page.expect("a page");
    assert!(!page.more && page.logins.len() == 1);
    let anna = LoginQuery {
        issuer: Some("https://id".to_owned()),
        subjects: vec!["nobody".to_owned(), "anna".to_owned()],
        started_ms: Some(2),
        ..LoginQuery::default()
    };
    let mark = SessionTombstone {
        what: [7; 16],
        before_ms: 2,
        until_ms: 1000,
    };
    let ended = store
        .end_logins(&anna, &[mark], 5, None)
        .await
        .expect("ended");
    assert_eq!(ended, ["id-1"], "the other one began later");
    let marks = store.session_tombstones(0, 10).await.expect("marks");
    assert_eq!(marks[0].1, mark);
    let later = store
        .session_tombstones(marks[0].0, 10)
        .await
        .expect("marks");
    assert_eq!(later.len(), 1);
    store.add_session_tombstones(&[mark]).await.expect("marked");
    let later = store
        .session_tombstones(marks[1].0, 10)
        .await
        .expect("marks");
    assert_eq!(later.len(), 1);
}

#[tokio::test]
async fn login_sessions_and_marks_that_are_over_are_swept_but_for_the_last_number() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let mine = login(1, "anna");
    store.insert_login(&mine).await.expect("kept");
    let mark = |until_ms| SessionTombstone {
        what: [7; 16],
        before_ms: 2,
        until_ms,
    };
    let marks = [mark(50), mark(60)];
    store.add_session_tombstones(&marks).await.expect("marked");
    store.sweep(99, 100).await.expect("swept");
    assert!(store.login(mine.key).await.expect("an answer").is_some());
    let left = store.session_tombstones(0, 10).await.expect("marks");
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].1, marks[1]);
    store.sweep(100, 100).await.expect("swept");
    assert_eq!(store.login(mine.key).await.expect("an answer"), None);
}
