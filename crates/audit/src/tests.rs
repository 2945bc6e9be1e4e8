use super::*;
use doorward_core::clock::random_uuid;
use doorward_core::model::audit::{Actor, AuditQuery, Kind, PendingAudit};
use doorward_core::model::group::{Group, MemberChange};
use doorward_store::{self as store, StoreError};

const NOW_MS: i64 = 1_700_000_000_000;

struct Fixture {
    audit: Audit,
    store: Arc<Store>,
    metrics: Metrics,
    directory: tempfile::TempDir,
}

impl Fixture {
    async fn with(config: AuditConfig) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let url = format!("sqlite:{}", directory.path().join("db").display());
        let store = store::open(&url).await.expect("a store");
        let metrics = Metrics::default();
        let clock = Clock::manual(NOW_MS);
        let audit = Audit::open(config, Arc::clone(&store), clock, &metrics);
        Self {
            audit: audit.expect("an audit log"),
            store,
            metrics,
            directory,
        }
    }

    /// Kind, outcome and count of every record.
    async fn told(&self) -> Vec<(String, String, u64)> {
        let query = AuditQuery {
            limit: 1000,
            ..AuditQuery::default()
        };
        let records = self.store.audit(&query).await.expect("records");
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        records
            .iter()
            .map(|one| {
                let count = one["count"].as_u64().unwrap_or_default();
                (text(&one["event"]), text(&one["outcome"]), count)
            })
            .collect()
    }
}

fn event(kind: Kind) -> Event {
    Event::new(kind, Actor::Admin)
}

fn told(kind: Kind) -> (Event, Trace) {
    (event(kind), Trace::default())
}

fn record(kind: &str, outcome: &str, count: u64) -> (String, String, u64) {
    (kind.to_owned(), outcome.to_owned(), count)
}

#[tokio::test]
async fn what_nobody_waits_for_is_written_with_the_next_flush() {
    let fixture = Fixture::with(AuditConfig::default()).await;
    for at in 0..3 {
        let refused = event(Kind::TokenIssue).failed("invalid_client");
        fixture.audit.note(refused, Trace::default(), NOW_MS + at);
    }
    assert_eq!(fixture.told().await, []);
    fixture.audit.flush().await;
    assert_eq!(fixture.told().await, [record("token.issue", "failure", 3)]);
    assert_eq!(fixture.metrics.audit_records().get(), 1);
}

#[tokio::test]
async fn a_record_is_there_with_its_act_or_not_at_all() {
    let fixture = Fixture::with(AuditConfig::default()).await;
    let client = |id: &str| {
        let metadata = serde_json::from_value(serde_json::json!({"client_id": id}));
        doorward_core::model::client::Client {
            realm: "/".to_owned(),
            metadata: metadata.expect("metadata"),
            secret: doorward_core::model::client::ClientSecret::None,
            owner: doorward_core::model::user::Owner::Store,
            registration: None,
            created_ms: 1,
            updated_ms: 1,
        }
    };
    let insert = async |pending: Option<&PendingAudit>| {
        let client = client("a");
        let pending = pending.expect("a record");
        pending.complete(|record| record.set_client(&client.metadata.client_id));
        fixture.store.insert_client(&client, Some(pending)).await
    };
    let audit = &fixture.audit;
    let done = audit.with(told(Kind::ClientCreate), NOW_MS, insert, |()| true);
    done.await.expect("stored");
    let again = audit.with(told(Kind::ClientCreate), NOW_MS, insert, |()| true);
    assert!(matches!(again.await, Err(StoreError::Taken(_))));
    assert_eq!(
        fixture.told().await,
        [record("client.create", "success", 1)]
    );
    let query = AuditQuery {
        client_id: Some("a".to_owned()),
        limit: 9,
        ..AuditQuery::default()
    };
    assert_eq!(fixture.store.audit(&query).await.expect("read").len(), 1);
    let gone = async |pending: Option<&PendingAudit>| {
        let store = &fixture.store;
        store.delete_initial_token("/", "none", pending).await
    };
    let gone = audit.with(told(Kind::InitialTokenDelete), NOW_MS, gone, |gone| *gone);
    assert!(!gone.await.expect("a store"));
    assert_eq!(fixture.told().await.len(), 1, "nothing was deleted");
}

#[tokio::test]
async fn a_transaction_takes_the_record_of_its_act_once() {
    let fixture = Fixture::with(AuditConfig::default()).await;
    let group = |name: &str| Group {
        id: random_uuid(),
        realm: "/".to_owned(),
        name: name.to_owned(),
        external_id: None,
        version: 1,
        created_ms: NOW_MS,
        updated_ms: NOW_MS,
    };
    let span = Span::once(NOW_MS, Trace::default());
    let pending = fixture.audit.0.record(event(Kind::GroupCreate), span);
    let members = MemberChange::default();
    let pending = PendingAudit::new(pending);
    for name in ["Staff", "Others"] {
        let group = group(name);
        let insert = fixture.store.insert_group(&group, &members, Some(&pending));
        insert.await.expect("stored");
        assert!(pending.is_committed(), "another write would be in vain");
    }
    let expected = [record("group.create", "success", 1)];
    assert_eq!(fixture.told().await, expected);
}

#[tokio::test]
async fn only_what_is_wanted_is_recorded() {
    let config = AuditConfig {
        except: vec![Kind::TokenIssue],
        ..AuditConfig::default()
    };
    let fixture = Fixture::with(config).await;
    let audit = &fixture.audit;
    audit.note(event(Kind::TokenIssue), Trace::default(), NOW_MS);
    audit
        .keep(event(Kind::KeyRotate), Trace::default(), NOW_MS)
        .await;
    audit.reload(&AuditConfig {
        events: Some(vec![Kind::TokenIssue]),
        ..AuditConfig::default()
    });
    audit.note(event(Kind::TokenIssue), Trace::default(), NOW_MS);
    audit
        .keep(event(Kind::KeyRotate), Trace::default(), NOW_MS)
        .await;
    audit.flush().await;
    let expected = [
        record("key.rotate", "success", 1),
        record("token.issue", "success", 1),
    ];
    let mut found = fixture.told().await;
    found.sort();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_flood_is_bounded_and_what_is_lost_is_counted() {
    let config = AuditConfig {
        queue: 10,
        ..AuditConfig::default()
    };
    let fixture = Fixture::with(config).await;
    for n in 0..100 {
        let one = event(Kind::TokenIssue).client(&n.to_string());
        fixture.audit.note(one, Trace::default(), NOW_MS);
    }
    fixture.audit.flush().await;
    assert_eq!(fixture.told().await.len(), 10);
    assert_eq!(fixture.metrics.audit_dropped().get(), 90);
}

#[tokio::test]
async fn the_file_has_every_record_as_a_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("audit.jsonl");
    let config = AuditConfig {
        file: Some(path.clone()),
        ..AuditConfig::default()
    };
    let fixture = Fixture::with(config).await;
    let audit = &fixture.audit;
    audit.note(event(Kind::TokenIssue), Trace::default(), NOW_MS);
    audit
        .keep(event(Kind::KeyRotate), Trace::default(), NOW_MS)
        .await;
    let token = doorward_core::model::registration::InitialToken {
        id: "t".to_owned(),
        realm: "/".to_owned(),
        hash: doorward_core::model::grant::TokenHash::of("t"),
        note: String::new(),
        uses_left: None,
        created_ms: 1,
        expires_ms: None,
    };
    let act = async |pending: Option<&PendingAudit>| {
        fixture.store.insert_initial_token(&token, pending).await
    };
    let act = audit.with(told(Kind::InitialTokenCreate), NOW_MS, act, |()| true);
    act.await.expect("stored");
    audit.flush().await;
    let text = std::fs::read_to_string(&path).expect("a file");
    let mut ids: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
        .map(|record| record["event"].as_str().expect("a kind").to_owned())
        .collect();
    ids.sort();
    assert_eq!(ids, ["initial_token.create", "key.rotate", "token.issue"]);
    assert_eq!(fixture.told().await.len(), 3);
}

#[tokio::test]
async fn records_go_when_they_are_too_old_and_not_before() {
    let fixture = Fixture::with(AuditConfig::default()).await;
    for days in [100, 91, 89, 0] {
        let at_ms = NOW_MS - days * DAY_MS;
        fixture
            .audit
            .keep(event(Kind::KeyRotate), Trace::default(), at_ms)
            .await;
    }
    assert!(!fixture.audit.0.sweep().await);
    assert_eq!(fixture.told().await.len(), 2);
    fixture.audit.reload(&AuditConfig {
        retention_days: 0,
        ..AuditConfig::default()
    });
    assert!(!fixture.audit.0.sweep().await);
    assert_eq!(fixture.told().await.len(), 2);
}

#[tokio::test]
async fn records_wait_for_a_store_that_does_not_answer() {
    let fixture = Fixture::with(AuditConfig::default()).await;
    let path = fixture.directory.path().join("db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
    let pool = sqlx::SqlitePool::connect_with(options)
        .await
        .expect("a database");
    let run = async |text: &'static str| {
        sqlx::query(text).execute(&pool).await.expect("done");
    };
    run("ALTER TABLE audit RENAME TO elsewhere").await;
    fixture
        .audit
        .note(event(Kind::TokenIssue), Trace::default(), NOW_MS);
    fixture
        .audit
        .keep(event(Kind::KeyRotate), Trace::default(), NOW_MS)
        .await;
    fixture.audit.flush().await;
    assert!(fixture.metrics.audit_failures().get() > 0);
    run("ALTER TABLE elsewhere RENAME TO audit").await;
    fixture.audit.flush().await;
    assert_eq!(fixture.told().await.len(), 2);
    assert_eq!(fixture.metrics.audit_dropped().get(), 0);
}

#[tokio::test]
async fn a_record_that_no_write_took_is_appended_behind_the_act() {
    let fixture = Fixture::with(AuditConfig::default()).await;
    let act = async |_: Option<&PendingAudit>| Ok::<_, StoreError>(());
    let audit = &fixture.audit;
    let done = audit.with(told(Kind::KeyRotate), NOW_MS, act, |()| true);
    done.await.expect("done");
    assert_eq!(fixture.told().await, [record("key.rotate", "success", 1)]);
    let vain = audit.with(told(Kind::KeyRotate), NOW_MS, act, |()| false);
    vain.await.expect("done");
    assert_eq!(fixture.told().await.len(), 1, "nothing was done");
}
