//! Operations as whoever traces sees them.

use super::*;

use futures_util::FutureExt as _;

use doorward_core::calls::{self, Call, Callee};

/// The first users.
fn everybody() -> UserQuery {
    UserQuery {
        filter: Filter::Always,
        sort: Vec::new(),
        after: None,
        skip: 0,
        limit: 2,
    }
}

/// Resource, whether it writes, whether it was done.
fn told(call: &Call) -> (&'static str, bool, bool) {
    match call.what {
        Callee::Store {
            resource,
            writes,
            done,
            ..
        } => (resource, writes, done),
        Callee::Server { .. } => panic!("the store asks no server"),
    }
}

#[tokio::test]
async fn operations_are_noted_by_resource_where_somebody_traces() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let demo = user("demo", json!({}));
    let work = async {
        store.insert_user(&demo, None).await.expect("inserted");
        store
            .insert_user(&demo, None)
            .await
            .expect_err("the name is taken");
        // What finds nothing to change has not failed.
        let gone = store.delete_user(Uuid::from_u128(7), None, 0, None).await;
        assert!(!gone.expect("read"));
        let session = sessions::session("token", &demo, 0);
        store
            .insert_session(&session, 9, None)
            .await
            .expect("inserted");
        store.session(session.hash).await.expect("read");
        store.users("/", &everybody()).await.expect("read");
        let other = store.clone();
        let work = async move { other.session(TokenHash::of("none")).await.map(drop) };
        let task = tokio::spawn(calls::carried(work));
        task.await.expect("no panic").expect("read");
        // A task of its own is nobody's.
        let other = store.clone();
        let task = tokio::spawn(async move { other.session(TokenHash::of("none")).await });
        task.await.expect("no panic").expect("read");
    };
    let ((), calls) = calls::noted(work).await;
    let all: Vec<_> = calls.iter().map(told).collect();
    assert_eq!(
        all,
        [
            ("users", true, true),
            ("users", true, false),
            ("users", true, true),
            ("sessions", true, true),
            ("sessions", false, true),
            ("users", false, true),
            ("sessions", false, true),
        ]
    );
    let system = testing::url(fixture.directory.path());
    let system = if system.starts_with("sqlite:") {
        "sqlite"
    } else {
        "postgresql"
    };
    assert!(
        calls
            .iter()
            .all(|call| matches!(call.what, Callee::Store { system: it, .. } if it == system))
    );
}

#[tokio::test]
async fn an_operation_that_nobody_waits_for_any_more_is_noted_as_failed() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    // The answer may be there at the first look.
    for _ in 0..100 {
        let looked = async {
            let mut given_up = Box::pin(store.session(TokenHash::of("none")));
            (&mut given_up).now_or_never().is_none()
        };
        let (is_given_up, calls) = calls::noted(looked).await;
        let all: Vec<_> = calls.iter().map(told).collect();
        assert_eq!(all, [("sessions", false, !is_given_up)]);
        if is_given_up {
            return;
        }
    }
    panic!("no operation was given up");
}
