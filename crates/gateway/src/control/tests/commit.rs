//! Changes that are made while others are on their way to the disk.

use super::*;
use crate::control::commit::Turn;
use crate::snapshot::Snapshot;
use doorward_store::EntityWrite;

async fn serve(dir: &Path) -> Arc<Control> {
    let url = format!("sqlite:{}", dir.join("t.db").display());
    let store = doorward_store::open_for_server(&url)
        .await
        .expect("a store");
    let control = Control::open(context(), store, DeclaredEntities::default()).await;
    control.map_err(|e| e.to_string()).expect("opens")
}

/// Hands in a service that is made of `base`.
fn hand_in(control: &Arc<Control>, base: &Base, id: u128) -> Result<Commit, StoreError> {
    let mut entities = Entities::clone(&base.state.entities);
    let mut writes = Vec::<EntityWrite>::new();
    let change = Change::put(service(id, &format!("s{id}")));
    edit::apply(&mut entities, change, &mut writes).expect("applied");
    let previous = Some(&*base.state.snapshot);
    let snapshot = Snapshot::compile(&entities, &control.context, previous).expect("compiled");
    let change = EntityChange::new(writes, None)?;
    control.hand_in(base, change, entities, snapshot)
}

#[tokio::test]
async fn changes_that_come_together_share_commits_and_are_all_durable() {
    let dir = tempfile::tempdir().expect("a directory");
    let control = serve(dir.path()).await;
    let before = control.revision.load(Ordering::Acquire);
    let tasks: Vec<_> = (1..=50_u128)
        .map(|i| {
            let control = control.clone();
            let mut changes = vec![Change::put(service(i, &format!("s{i}")))];
            if i > 1 {
                // It refers to what another change has made.
                changes.push(Change::put(route(100 + i, i - 1, &format!("/{i}"))));
            }
            tokio::spawn(async move { make(&control, changes).await })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic").expect("made");
    }
    let commits = control.revision.load(Ordering::Acquire) - before;
    assert!(commits < 50, "{commits} commits");
    assert_eq!(control.live().load().routes.len(), 49);
    let again = open(dir.path(), DeclaredEntities::default()).await;
    assert_eq!(again.entities().services.len(), 50);
    assert_eq!(again.live().load().routes.len(), 49);
}

#[tokio::test]
async fn what_is_made_of_a_change_that_was_lost_is_lost_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let control = serve(dir.path()).await;
    let base = control.base().await.expect("a base");
    assert!(base.is_in_force);
    // Somebody writes past the server: what is made of `base` contradicts it.
    let url = format!("sqlite:{}", dir.path().join("t.db").display());
    let other = doorward_store::open(&url).await.expect("a store");
    other
        .write_entities(Vec::new(), None)
        .await
        .expect("written");
    let first = hand_in(&control, &base, 1).expect("handed in");
    let next = control.base().await.expect("a base");
    assert!(!next.is_in_force);
    let second = hand_in(&control, &next, 2).expect("handed in");
    let first = first.done().await.expect_err("refused");
    assert!(matches!(first, StoreError::Conflict(_)), "{first}");
    let second = second.done().await.expect_err("refused");
    assert!(matches!(second, StoreError::Unavailable(..)), "{second}");
    // Also what nobody has handed in yet.
    let late = hand_in(&control, &next, 3).map(drop).expect_err("refused");
    assert!(matches!(late, StoreError::Unavailable(..)), "{late}");
    assert_eq!(control.entities().services.len(), 0);
    let changes = vec![Change::put(service(4, "after"))];
    make(&control, changes).await.expect("made");
    let again = open(dir.path(), DeclaredEntities::default()).await;
    assert_eq!(again.entities().services.len(), 1);
}

#[tokio::test]
async fn a_name_that_no_database_keeps_fails_no_change_beside_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let control = serve(dir.path()).await;
    let fits = vec![Change::put(service(1, "a"))];
    let unfit = vec![Change::put(service(2, "b\0"))];
    let (fits, unfit) = tokio::join!(make(&control, fits), make(&control, unfit));
    fits.expect("made");
    let unfit = unfit.expect_err("refused");
    assert!(
        matches!(unfit, ChangeError::Store(StoreError::Unfit)),
        "{unfit}"
    );
}

#[tokio::test]
async fn who_changes_nothing_waits_for_what_it_was_told_of() {
    let dir = tempfile::tempdir().expect("a directory");
    let control = serve(dir.path()).await;
    let base = control.base().await.expect("a base");
    let first = hand_in(&control, &base, 1).expect("handed in");
    let answer = control.change(
        |entities| {
            let there = entities.services.by_key("s1").is_some();
            Ok::<_, ChangeError>((Vec::new(), there))
        },
        None,
    );
    assert!(answer.await.expect("made"));
    let again = open(dir.path(), DeclaredEntities::default()).await;
    assert!(again.entities().services.by_key("s1").is_some());
    first.done().await.expect("made");
}

#[tokio::test]
async fn one_task_at_a_time_commits_also_after_a_change_was_lost() {
    let dir = tempfile::tempdir().expect("a directory");
    let control = serve(dir.path()).await;
    // The task that has lost a change has not ended yet.
    control.uncommitted.lock().committing = true;
    control.uncommitted.lock().lose();
    let settled = tokio::time::timeout(Duration::ZERO, control.settle());
    assert!(settled.await.is_err(), "its end is waited for");
    let changes = vec![Change::put(service(1, "a"))];
    let change = tokio::spawn({
        let control = control.clone();
        async move { make(&control, changes).await }
    });
    Turn::of(&control).commit_all().await;
    change.await.expect("no panic").expect("made");
    let again = open(dir.path(), DeclaredEntities::default()).await;
    assert_eq!(again.entities().services.len(), 1);
}

#[tokio::test]
async fn a_task_that_breaks_off_leaves_nobody_waiting() {
    let dir = tempfile::tempdir().expect("a directory");
    let control = serve(dir.path()).await;
    let base = control.base().await.expect("a base");
    control.uncommitted.lock().committing = true;
    let lost = hand_in(&control, &base, 1).expect("handed in");
    drop(Turn::of(&control));
    let lost = lost.done().await.expect_err("lost");
    assert!(matches!(lost, StoreError::Unavailable(..)), "{lost}");
    let changes = vec![Change::put(service(2, "after"))];
    make(&control, changes).await.expect("made");
    assert_eq!(control.entities().services.len(), 1);
}
