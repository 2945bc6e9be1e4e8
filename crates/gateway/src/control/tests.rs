mod commit;

use std::collections::HashMap;
use std::path::Path;

use super::*;
use crate::entities::Origin;
use crate::internal;
use crate::resolve::{DnsConfig, Resolver};
use crate::router::Query;
use doorward_core::clock::Clock;
use doorward_core::model::plugin::Plugin;
use doorward_core::model::route::Route;
use doorward_core::model::service::{Protocol, Service};
use doorward_net::http::outbound::Outbound;
use doorward_plugin_api::Parts;
use serde_json::json;

fn context() -> CompileContext {
    let parts = Parts::new(Clock::system(), Arc::new(Outbound::new()), Arc::default());
    CompileContext {
        parts,
        internals: HashMap::from([("echo", internal::echo())]),
        traffic: Arc::default(),
        resolver: Resolver::new(&DnsConfig::default(), Default::default()),
        upstream_verify: true,
        mount: None,
    }
}

async fn open(dir: &Path, declared: DeclaredEntities) -> Arc<Control> {
    let url = format!("sqlite:{}", dir.join("t.db").display());
    let store = doorward_store::open(&url).await.expect("a store");
    let control = Control::open(context(), store, declared).await;
    control.map_err(|e| e.to_string()).expect("opens")
}

fn record<T: Entity>(value: T) -> Record<T> {
    Record::of(value, Origin::Store)
}

fn service(id: u128, name: &str) -> Record<Service> {
    record(Service {
        id: Uuid::from_u128(id),
        name: Some(name.to_owned()),
        protocol: Protocol::Internal,
        host: "echo".to_owned(),
        port: 80,
        path: None,
        retries: 5,
        connect_timeout: 60_000,
        write_timeout: 60_000,
        read_timeout: 60_000,
        enabled: true,
        tls_verify: None,
        client_certificate: None,
        tls_verify_depth: None,
        ca_certificates: None,
        proxy_protocol: None,
        socket: None,
        tags: None,
        created_at: 1,
        updated_at: 1,
    })
}

fn route(id: u128, service: u128, path: &str) -> Record<Route> {
    let value = json!({
        "id": Uuid::from_u128(id), "protocols": ["http"], "paths": [path], "strip_path": true,
        "preserve_host": false, "service": {"id": Uuid::from_u128(service)},
        "created_at": 1, "updated_at": 1,
    });
    record(serde_json::from_value(value).expect("a route"))
}

fn throttling(id: u128, service: Option<u128>, duration: &str) -> Record<Plugin> {
    let value = json!({
        "id": Uuid::from_u128(id), "name": "throttling", "enabled": true, "created_at": 1,
        "service": service.map(|id| json!({"id": Uuid::from_u128(id)})),
        "config": {"rate": {"numberOfRequests": 6, "duration": duration}},
    });
    record(serde_json::from_value(value).expect("a plugin"))
}

async fn make(control: &Arc<Control>, changes: Vec<Change>) -> Result<(), ChangeError> {
    control.change(|_| Ok((changes, ())), None).await
}

#[tokio::test]
async fn an_acknowledged_change_is_in_force_and_survives_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let control = open(dir.path(), DeclaredEntities::default()).await;
    make(
        &control,
        vec![Change::put(service(1, "a")), Change::put(route(2, 1, "/a"))],
    )
    .await
    .expect("made");
    assert_eq!(control.live().load().routes.len(), 1);
    let again = open(dir.path(), DeclaredEntities::default()).await;
    assert_eq!(again.live().load().routes.len(), 1);
    assert_eq!(
        again
            .entities()
            .services
            .by_key("a")
            .expect("the service")
            .value,
        service(1, "a").value
    );
}

#[tokio::test]
async fn a_change_that_does_not_compile_changes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let control = open(dir.path(), DeclaredEntities::default()).await;
    let changes = vec![
        Change::put(service(1, "a")),
        Change::put(route(2, 1, "~/((")),
    ];
    let error = make(&control, changes).await.expect_err("refused");
    assert!(matches!(error, ChangeError::Invalid { field, .. } if field == "paths.1"));
    let plugin = Change::put(throttling(3, None, "nonsense"));
    let error = make(&control, vec![plugin]).await.expect_err("refused");
    assert!(
        matches!(&error, ChangeError::Invalid { field, .. } if field == "config.rate.duration"),
        "{error}"
    );
    let again = open(dir.path(), DeclaredEntities::default()).await;
    for control in [control, again] {
        assert!(control.entities().services.is_empty());
        assert!(control.entities().plugins.is_empty());
    }
}

#[tokio::test]
async fn names_places_and_references_are_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let control = open(dir.path(), DeclaredEntities::default()).await;
    make(&control, vec![Change::put(service(1, "a"))])
        .await
        .expect("made");
    let error = make(&control, vec![Change::put(service(2, "a"))]).await;
    assert_eq!(
        error.expect_err("taken").to_string(),
        "UNIQUE violation detected on '{name=\"a\"}'"
    );
    let error = make(&control, vec![Change::put(route(3, 9, "/"))]).await;
    assert!(matches!(
        error,
        Err(ChangeError::ForeignKey {
            field: "service",
            ..
        })
    ));
    make(&control, vec![Change::put(route(3, 1, "/"))])
        .await
        .expect("made");
    let error = make(
        &control,
        vec![Change::delete::<Service>(Uuid::from_u128(1))],
    )
    .await;
    assert!(matches!(
        error,
        Err(ChangeError::Referenced { by: "routes", .. })
    ));
    let first = Change::put(throttling(4, Some(1), "1 s"));
    make(&control, vec![first]).await.expect("made");
    let second = Change::put(throttling(5, Some(1), "2 s"));
    assert!(matches!(
        make(&control, vec![second]).await,
        Err(ChangeError::Unique {
            kind: "plugins",
            ..
        })
    ));
}

#[tokio::test]
async fn a_service_takes_its_plugins_along() {
    let dir = tempfile::tempdir().expect("a directory");
    let control = open(dir.path(), DeclaredEntities::default()).await;
    let changes = vec![
        Change::put(service(1, "a")),
        Change::put(throttling(4, Some(1), "1 s")),
    ];
    make(&control, changes).await.expect("made");
    make(
        &control,
        vec![Change::delete::<Service>(Uuid::from_u128(1))],
    )
    .await
    .expect("deleted");
    assert!(control.entities().plugins.is_empty());
    let again = open(dir.path(), DeclaredEntities::default()).await;
    assert!(again.entities().plugins.is_empty());
}

fn declared(service: Record<Service>, routes: Vec<Record<Route>>) -> DeclaredEntities {
    let origin = Origin::File(Path::new("r.yaml").into());
    let mut declared = DeclaredEntities::default();
    declared.push(Record::of(service.value, origin.clone()));
    for route in routes {
        declared.push(Record::of(route.value, origin.clone()));
    }
    declared
}

#[tokio::test]
async fn what_a_file_declares_is_changed_in_the_file_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = declared(service(1, "a"), vec![route(2, 1, "/a")]);
    let control = open(dir.path(), files).await;
    for change in [
        Change::put(service(1, "b")),
        Change::delete::<Route>(Uuid::from_u128(2)),
    ] {
        let error = make(&control, vec![change]).await.expect_err("refused");
        assert!(error.to_string().contains("declared in r.yaml"), "{error}");
    }
    // A stored route may belong to a declared service, which then can't go.
    make(&control, vec![Change::put(route(3, 1, "/b"))])
        .await
        .expect("made");
    let gone = control
        .prepare_declared(DeclaredEntities::default())
        .await
        .map(Prepared::commit);
    assert!(
        gone.expect_err("refused")
            .to_string()
            .contains("does not reference")
    );
    assert_eq!(
        control.live().load().routes.len(),
        2,
        "the old stays in force"
    );
    let fewer = declared(service(1, "a"), Vec::new());
    control
        .prepare_declared(fewer)
        .await
        .expect("replaced")
        .commit();
    assert_eq!(control.live().load().routes.len(), 1);
}

#[tokio::test]
async fn an_unchanged_plugin_keeps_its_filter_through_every_other_change() {
    let dir = tempfile::tempdir().expect("a directory");
    let control = open(dir.path(), DeclaredEntities::default()).await;
    let changes = vec![
        Change::put(service(1, "a")),
        Change::put(route(2, 1, "/a")),
        Change::put(throttling(4, Some(1), "1 s")),
    ];
    make(&control, changes).await.expect("made");
    let filter = |control: &Control| {
        let live = control.live().load_full();
        let routes = live.routes.by_ascending_id();
        routes[0].filters[0].filter.clone()
    };
    let before = filter(&control);
    make(&control, vec![Change::put(service(5, "other"))])
        .await
        .expect("made");
    control
        .prepare_declared(declared(service(6, "file"), Vec::new()))
        .await
        .expect("replaced")
        .commit();
    assert!(Arc::ptr_eq(&before, &filter(&control)));
    let changed = Change::put(throttling(4, Some(1), "2 s"));
    make(&control, vec![changed]).await.expect("made");
    assert!(!Arc::ptr_eq(&before, &filter(&control)));
}

#[tokio::test]
async fn parallel_changes_lose_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let control = open(dir.path(), DeclaredEntities::default()).await;
    let tasks: Vec<_> = (1..=50)
        .map(|i| {
            let control = control.clone();
            let change = Change::put(service(i, &format!("s{i}")));
            tokio::spawn(async move { make(&control, vec![change]).await })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic").expect("made");
    }
    assert_eq!(control.entities().services.len(), 50);
}

#[tokio::test]
async fn a_declared_record_does_not_hide_a_stored_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let control = open(dir.path(), DeclaredEntities::default()).await;
    make(&control, vec![Change::put(service(1, "a"))])
        .await
        .expect("made");
    let mut declared = DeclaredEntities::default();
    declared.push(service(1, "b"));
    let refused = control
        .prepare_declared(declared)
        .await
        .map(Prepared::commit);
    assert!(matches!(
        refused.expect_err("is refused").error,
        ChangeError::Unique { .. }
    ));
    assert!(control.entities().services.by_key("a").is_some());
}

#[tokio::test]
async fn processes_that_change_entities_at_once_leave_no_reference_dangling() {
    let dir = tempfile::tempdir().expect("a directory");
    let one = open(dir.path(), DeclaredEntities::default()).await;
    let other = open(dir.path(), DeclaredEntities::default()).await;
    make(&one, vec![Change::put(service(1, "a"))])
        .await
        .expect("made");
    // Nobody has told it; it refers to what is there all the same.
    make(&other, vec![Change::put(route(2, 1, "/a"))])
        .await
        .expect("made");
    let gone = vec![Change::delete::<Service>(Uuid::from_u128(1))];
    let error = make(&one, gone.clone()).await.expect_err("refused");
    assert!(matches!(error, ChangeError::Referenced { .. }), "{error}");
    let no_route = vec![Change::delete::<Route>(Uuid::from_u128(2))];
    make(&other, no_route).await.expect("made");
    make(&one, gone).await.expect("made");
    let error = make(&other, vec![Change::put(route(3, 1, "/b"))]).await;
    let error = error.expect_err("refused");
    assert!(matches!(error, ChangeError::ForeignKey { .. }), "{error}");
    let again = open(dir.path(), DeclaredEntities::default()).await;
    assert_eq!(again.live().load().routes.len(), 0);
}

#[tokio::test]
async fn a_write_that_looked_at_older_entities_is_refused_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}", dir.path().join("t.db").display());
    let store = doorward_store::open(&url).await.expect("a store");
    let before = store.entities_revision().await.expect("a revision");
    let now = store.write_entities(Vec::new(), Some(before)).await;
    let now = now.expect("written");
    let late = store.write_entities(Vec::new(), Some(before)).await;
    assert!(matches!(late, Err(StoreError::Conflict(_))), "{late:?}");
    let seen = store.entities_revision().await.expect("a revision");
    assert_eq!(seen, now);
}

#[tokio::test]
async fn routes_are_found_before_and_after_the_layers_of_the_router_become_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let control = open(dir.path(), DeclaredEntities::default()).await;
    let steps = [
        Change::put(service(1, "a")),
        Change::put(route(2, 1, "/a")),
        Change::put(route(3, 1, "/b")),
        Change::put(route(2, 1, "/c")),
        Change::delete::<Route>(Uuid::from_u128(3)),
    ];
    for step in steps {
        make(&control, vec![step]).await.expect("made");
    }
    let found = |path: &str| {
        let headers = http::HeaderMap::new();
        let query = Query {
            host: "a.test",
            port: 80,
            path,
            method: &http::Method::GET,
            headers: &headers,
            tls: false,
            sni: None,
        };
        let live = control.live().load_full();
        live.find(&query).map(|(_, route)| route.id().as_u128())
    };
    let all = || ["/a", "/b", "/c"].map(found);
    assert!(control.live().load().router.are_two());
    assert_eq!(all(), [None, None, Some(2)]);
    control.compact().await;
    assert!(!control.live().load().router.are_two());
    assert_eq!(all(), [None, None, Some(2)]);
}
