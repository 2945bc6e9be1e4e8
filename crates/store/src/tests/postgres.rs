//! What only a store on PostgreSQL has to withstand.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::testing::postgres::Cluster;
use super::*;

/// How long to wait for what is bound to come.
const DEADLINE: Duration = Duration::from_secs(60);

fn access(name: &str) -> StoredAccess {
    StoredAccess {
        hash: TokenHash::of(name),
        grant_id: name.to_owned(),
        claims: Map::new(),
        expires_ms: 90_000,
    }
}

/// Writes tokens one after another until it is told to stop; those that were
/// acknowledged, and whether any was refused.
async fn write_on(store: Arc<Store>, who: usize, stop: Arc<AtomicBool>) -> (Vec<String>, bool) {
    let (mut kept, mut refused) = (Vec::new(), false);
    for number in 0.. {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let name = format!("{who}/{number}");
        match store.record_tokens(None, Some(&access(&name)), None).await {
            Ok(()) => kept.push(name),
            Err(StoreError::Unavailable(..)) => {
                refused = true;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    (kept, refused)
}

#[tokio::test]
async fn a_server_that_is_away_is_named_with_the_cause() {
    // A port that was free a moment ago.
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address").port()
    };
    let url = format!("postgres://u:sesame@127.0.0.1:{port}/gate");
    let error = open(&url).await.err().expect("nobody is there").to_string();
    let place = format!("PostgreSQL at 127.0.0.1:{port}, database gate: ");
    assert!(error.contains(&place), "{error}");
    assert!(error.contains("refused"), "{error}");
    assert!(!error.contains("sesame"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL"]
async fn what_was_acknowledged_survives_a_crash_of_the_server_under_load() {
    let cluster = Cluster::start("");
    let url = cluster.database("crash");
    let store = open(&url).await.expect("a store");
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..8)
        .map(|who| tokio::spawn(write_on(store.clone(), who, stop.clone())))
        .collect();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        tokio::task::block_in_place(|| cluster.stop());
        tokio::time::sleep(Duration::from_millis(300)).await;
        tokio::task::block_in_place(|| cluster.go_on());
    }
    let again = async {
        while let Err(error) = store
            .record_tokens(None, Some(&access("again")), None)
            .await
        {
            assert!(matches!(error, StoreError::Unavailable(..)), "{error}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, again)
        .await
        .expect("it writes again");
    stop.store(true, Ordering::Release);
    let (mut kept, mut refused) = (0, false);
    for writer in writers {
        let (names, was_refused) = writer.await.expect("no panic");
        refused |= was_refused;
        for name in names {
            kept += 1;
            let token = store.access_token(TokenHash::of(&name)).await;
            assert!(token.expect("a lookup").is_some(), "{name} is lost");
        }
    }
    assert!(kept > 0 && refused, "{kept}, {refused}");
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_node_is_told_at_once_of_what_another_changes() {
    let url = Cluster::shared().database("told");
    let (a, b) = (open(&url).await.expect("a"), open(&url).await.expect("b"));
    let mut changes = a.changes();
    let seen = a.data_version().await.expect("a version");
    b.revoke_grant("grant", 90_000, None)
        .await
        .expect("revoked");
    let told = async {
        while a.data_version().await.expect("a version") == seen {
            changes.changed().await.expect("the store is there");
        }
    };
    tokio::time::timeout(DEADLINE, told)
        .await
        .expect("it was told");
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn reading_alone_creates_nothing() {
    let url = Cluster::shared().database("nothing");
    assert!(open_existing(&url).await.expect("an answer").is_none());
    open(&url).await.expect("a store");
    let store = open_existing(&url).await.expect("an answer");
    let realms = store.expect("a store").realms().await.expect("realms");
    assert_eq!(realms.len(), 1);
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_transaction_that_hangs_stops_the_others_for_a_while_only() {
    let cluster = Cluster::shared();
    let url = cluster.database("hangs");
    let store = open(&url).await.expect("a store");
    let stuck = sqlx::PgPool::connect(&url).await.expect("a connection");
    let mut tx = stuck.begin().await.expect("begun");
    for text in [
        "SET LOCAL idle_in_transaction_session_timeout = '1s'",
        "SELECT pg_advisory_xact_lock(x'646f6f7277617264'::bigint)",
    ] {
        sqlx::query(text).execute(&mut *tx).await.expect("done");
    }
    let kept = store.record_tokens(None, Some(&access("late")), None).await;
    kept.expect("kept once the other one was ended");
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn who_waited_for_the_lock_in_vain_writes_at_once_when_it_is_free() {
    let url = Cluster::shared().database("waits");
    let store = open(&url).await.expect("a store");
    let other = sqlx::PgPool::connect(&url).await.expect("a connection");
    for round in 0..2 {
        let mut tx = other.begin().await.expect("begun");
        let lock = "SELECT pg_advisory_xact_lock(x'646f6f7277617264'::bigint)";
        sqlx::query(lock).execute(&mut *tx).await.expect("locked");
        let token = access(&format!("late {round}"));
        let late = store.record_tokens(None, Some(&token), None).await;
        assert!(matches!(late, Err(StoreError::Unavailable(..))), "{late:?}");
        let user = user("demo", json!({}));
        let late = store.insert_user(&user, None).await;
        assert!(matches!(late, Err(StoreError::Unavailable(..))), "{late:?}");
        drop(tx);
        let token = access(&format!("early {round}"));
        let early = store.record_tokens(None, Some(&token), None).await;
        early.expect("it is free");
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn errors_do_not_show_the_password() {
    let cluster = Cluster::shared();
    let wrong = cluster.url("absent") + "&password=hush-hush";
    for url in [
        wrong.as_str(),
        "postgres://u:hush-hush@127.0.0.1:1/x?sslmode=hush",
        "postgres://u:hush-hush@127.0.0.1:99999/x",
        "postgres:u:hush-hush@127.0.0.1/x",
    ] {
        let error = open(url).await.map(drop).expect_err("refused").to_string();
        assert!(!error.contains("hush-hush"), "{error}");
    }
}
