//! The gateway's entities: written all or none, in their order.

use super::*;

#[tokio::test]
async fn entities_are_written_all_or_none() {
    let fixture = Fixture::new().await;
    let (a, b) = (random_uuid(), random_uuid());
    let write = |writes| fixture.store.write_entities(writes, None);
    write(vec![entity(a, "a"), entity(b, "b")])
        .await
        .expect("both written");
    // Two records may trade their names at once.
    write(vec![entity(a, "b"), entity(b, "a")])
        .await
        .expect("names traded");
    let refused = write(vec![
        EntityWrite::Delete("services", b),
        entity(random_uuid(), "b"),
    ])
    .await;
    assert!(matches!(refused, Err(StoreError::Taken(name)) if name == "b"));
    let reopened = fixture.another().await;
    assert_eq!(reopened.entities().await.expect("entities").len(), 2);
}

#[tokio::test]
async fn changes_that_share_a_commit_are_made_in_their_order() {
    let fixture = Fixture::new().await;
    let (a, b) = (random_uuid(), random_uuid());
    let change = |writes| EntityChange::new(writes, None).expect("fits");
    let changes = [
        change(vec![entity(a, "a")]),
        change(vec![EntityWrite::Delete("services", a)]),
        change(vec![entity(b, "a")]),
        change(vec![entity(b, "b")]),
        change(vec![entity(a, "a")]),
    ];
    let written = fixture.store.write_entity_changes(&changes, None).await;
    written.expect("all written");
    let taken = change(vec![entity(random_uuid(), "b")]);
    let fine = change(vec![entity(random_uuid(), "c")]);
    let changes = [fine, taken];
    let refused = fixture.store.write_entity_changes(&changes, None);
    assert!(matches!(refused.await, Err(StoreError::Taken(name)) if name == "b"));
    let reopened = fixture.another().await;
    assert_eq!(reopened.entities().await.expect("entities").len(), 2);
}
