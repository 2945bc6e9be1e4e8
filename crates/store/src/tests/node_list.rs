//! The list of the processes that serve a store.

use super::*;

fn node(id: &str, seen_ms: i64) -> Node {
    Node {
        id: id.to_owned(),
        hostname: "host".to_owned(),
        version: "1".to_owned(),
        started_ms: 5,
        seen_ms,
        revision: seen_ms * 10,
        is_current: true,
    }
}

#[tokio::test]
async fn nodes_are_listed_until_their_last_heartbeat_is_old_or_they_end() {
    let fixture = Fixture::new().await;
    let other = fixture.another().await;
    let store = &fixture.store;
    store.put_node(node("b", 20), 0).await.expect("kept");
    other.put_node(node("a", 10), 0).await.expect("kept");
    let all = store.nodes(0).await.expect("read");
    assert_eq!(all, [node("a", 10), node("b", 20)], "by start, then by id");
    assert_eq!(other.nodes(10).await.expect("read"), [node("b", 20)]);
    // One that was killed sends none: the next heartbeat of another one removes it.
    let mut later = node("b", 40);
    later.is_current = false;
    store.put_node(later.clone(), 10).await.expect("kept");
    assert_eq!(other.nodes(0).await.expect("read"), [later]);
    other.delete_node("b".to_owned()).await.expect("removed");
    assert_eq!(store.nodes(0).await.expect("read"), []);
}

#[tokio::test]
async fn the_time_of_a_database_server_counts_and_not_that_of_a_node() {
    let fixture = Fixture::new().await;
    let other = fixture.another().await;
    // A node whose clock is decades behind.
    let before = fixture.store.shared_time_ms(5).await.expect("a time");
    let after = other.shared_time_ms(4_000_000_000_000).await;
    let after = after.expect("a time");
    if testing::is_postgres() {
        assert!((1_700_000_000_000..4_000_000_000_000).contains(&before));
        assert!((before..4_000_000_000_000).contains(&after));
    } else {
        assert_eq!((before, after), (5, 4_000_000_000_000));
    }
}
