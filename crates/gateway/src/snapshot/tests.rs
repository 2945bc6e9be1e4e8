use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::chain::Link;
use crate::entities::{Origin, Record};
use crate::internal;
use doorward_core::clock::Clock;
use doorward_core::model::plugin::Plugin;
use doorward_core::model::service::Service;
use doorward_net::http::outbound::Outbound;

fn context() -> CompileContext {
    CompileContext {
        parts: Parts::new(Clock::system(), Arc::new(Outbound::new()), Arc::default()),
        internals: HashMap::from([("echo", internal::echo())]),
        traffic: Arc::default(),
        resolver: crate::resolve::Resolver::new(&Default::default(), Default::default()),
        upstream_verify: true,
        mount: None,
    }
}

fn id(number: u8) -> Uuid {
    Uuid::from_u128(u128::from(number) << 120)
}

fn record<T: Entity + serde::de::DeserializeOwned>(value: Value) -> Arc<Record<T>> {
    let value = serde_json::from_value(value).expect("a record");
    Arc::new(Record::of(value, Origin::Store))
}

fn service(number: u8, retries: u8, enabled: bool) -> Arc<Record<Service>> {
    record(json!({
        "id": id(number), "name": format!("s{number}"), "protocol": "internal", "host": "echo",
        "port": 80, "path": null, "retries": retries, "connect_timeout": 1, "write_timeout": 1,
        "read_timeout": 1, "enabled": enabled, "created_at": 1, "updated_at": 1,
    }))
}

fn route(number: u8, service: Option<u8>, path: u8) -> Arc<Record<Route>> {
    record(json!({
        "id": id(number), "protocols": ["http"], "paths": [format!("/{path}")],
        "strip_path": true, "preserve_host": false, "created_at": 1, "updated_at": 1,
        "service": service.map(|s| json!({"id": id(s)})),
    }))
}

/// A plugin, where the third consumer is a group.
fn plugin(
    number: u8,
    [service, route, consumer]: [Option<u8>; 3],
    rate: u8,
) -> Arc<Record<Plugin>> {
    record(json!({
        "id": id(number), "name": "throttling", "enabled": rate > 1, "created_at": 1,
        "service": service.map(|s| json!({"id": id(s)})),
        "route": route.map(|r| json!({"id": id(r)})),
        "consumer": consumer.filter(|c| *c < 3).map(|c| json!({"id": id(c)})),
        "consumer_group": consumer.filter(|c| *c == 3).map(|c| json!({"id": id(c)})),
        "config": {"rate": {"numberOfRequests": rate, "duration": "1 s"}},
    }))
}

#[derive(Clone, Debug)]
enum Step {
    PutService(u8, u8, bool),
    PutRoute(u8, Option<u8>, u8),
    PutPlugin(u8, [Option<u8>; 3], u8),
    DropService(u8),
    DropRoute(u8),
    DropPlugin(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let one = || 1..4_u8;
    let maybe = || proptest::option::of(1..4_u8);
    prop_oneof![
        (one(), one(), any::<bool>()).prop_map(|(n, r, e)| Step::PutService(n, r, e)),
        (one(), maybe(), one()).prop_map(|(n, s, p)| Step::PutRoute(n, s, p)),
        (one(), [maybe(), maybe(), maybe()], one())
            .prop_map(|(n, at, x)| Step::PutPlugin(n, at, x)),
        one().prop_map(Step::DropService),
        one().prop_map(Step::DropRoute),
        one().prop_map(Step::DropPlugin),
    ]
}

fn apply(entities: &mut Entities, step: &Step) {
    match *step {
        Step::PutService(n, r, e) => entities.services.put(service(n, r, e)),
        Step::PutRoute(n, s, p) => entities.routes.put(route(n, s, p)),
        Step::PutPlugin(n, at, x) => entities.plugins.put(plugin(n, at, x)),
        Step::DropService(n) => drop(entities.services.remove(id(n))),
        Step::DropRoute(n) => drop(entities.routes.remove(id(n))),
        Step::DropPlugin(n) => drop(entities.plugins.remove(id(n))),
    }
}

type Plugins = Vec<(Uuid, Value)>;

/// What requests meet: of each route its service as configured, its filters
/// and those of consumers and groups.
fn seen(snapshot: &Snapshot) -> Vec<(Uuid, Option<(Uuid, usize)>, Plugins, Plugins)> {
    let plugin_of = |link: &Link| {
        let plugin = &link.record.value;
        let built = snapshot.filters.get(plugin.id).expect("built");
        assert!(Arc::ptr_eq(&link.filter, &built.filter));
        (plugin.id, Value::Object(plugin.config.clone()))
    };
    let of_route = |route: &Arc<LiveRoute>| {
        let scoped = route.scoped.iter().flat_map(|scoped| scoped.links());
        let mut scoped: Plugins = scoped.map(plugin_of).collect();
        scoped.sort_by_key(|(id, _)| *id);
        let id = route.place.service.unwrap_or_default();
        let service = route.service.as_ref();
        let service = service.map(|service| (id, service.retries));
        let filters = route.filters.iter().map(plugin_of).collect();
        (route.id(), service, filters, scoped)
    };
    snapshot
        .routes
        .by_ascending_id()
        .into_iter()
        .map(of_route)
        .collect()
}

proptest! {
    #[test]
    fn step_by_step_a_snapshot_becomes_what_it_is_from_scratch(
        steps in proptest::collection::vec(step(), 1..40)
    ) {
        let context = context();
        let mut entities = Entities::default();
        let mut live = Snapshot::default();
        for step in steps {
            apply(&mut entities, &step);
            let next = Snapshot::compile(&entities, &context, Some(&live)).expect("compiles");
            let scratch = Snapshot::compile(&entities, &context, None).expect("compiles");
            prop_assert_eq!(seen(&next), seen(&scratch), "after {:?}", step);
            for gone in live.routes_gone_in(&next) {
                prop_assert!(!next.routes.iter().any(|(_, route)| Arc::ptr_eq(route, &gone)));
            }
            let kept = live.routes.len() - live.routes_gone_in(&next).len();
            let shared = next.routes.iter().filter(|(_, r)| live.routes.iter().any(|(_, o)| Arc::ptr_eq(o, r)));
            prop_assert_eq!(shared.count(), kept);
            live = next;
        }
    }
}

#[test]
fn a_change_keeps_what_it_does_not_touch() {
    let context = context();
    let mut entities = Entities::default();
    for n in 1..=3 {
        entities.services.put(service(n, 5, true));
        entities.routes.put(route(n, Some(n), n));
    }
    let before = Snapshot::compile(&entities, &context, None).expect("compiles");
    let kept = |next: &Snapshot| -> Vec<bool> {
        let (old, new) = (
            before.routes.by_ascending_id(),
            next.routes.by_ascending_id(),
        );
        let pairs = old.into_iter().zip(new);
        pairs.map(|(old, new)| Arc::ptr_eq(old, new)).collect()
    };
    let after = |change: &dyn Fn(&mut Entities)| {
        let mut entities = entities.clone();
        change(&mut entities);
        Snapshot::compile(&entities, &context, Some(&before)).expect("compiles")
    };
    let next = after(&|entities| entities.routes.put(route(2, Some(2), 9)));
    assert_eq!(kept(&next), [true, false, true]);
    let next = after(&|entities| entities.services.put(service(3, 1, true)));
    assert_eq!(kept(&next), [true, true, false]);
    let next = after(&|entities| entities.plugins.put(plugin(7, [Some(1), None, None], 2)));
    assert_eq!(kept(&next), [false, true, true]);
    let next = after(&|entities| entities.plugins.put(plugin(7, [None; 3], 2)));
    assert_eq!(kept(&next), [false, false, false], "a plugin for all");
}

/// A service whose host is this.
fn hosted(number: u8, host: &str) -> Arc<Record<Service>> {
    record(json!({
        "id": id(number), "name": format!("s{number}"), "protocol": "http", "host": host,
        "port": 80, "path": null, "retries": 5, "connect_timeout": 1, "write_timeout": 1,
        "read_timeout": 1, "enabled": true, "created_at": 1, "updated_at": 1,
    }))
}

fn named_upstream(number: u8, name: &str) -> Arc<Record<doorward_core::model::upstream::Upstream>> {
    record(json!({"id": id(number), "name": name, "created_at": 1, "updated_at": 1}))
}

#[test]
fn a_change_of_an_upstream_touches_the_services_that_name_it() {
    let context = context();
    let mut entities = Entities::default();
    for (number, host) in [(1, "one"), (2, "two"), (3, "three")] {
        entities.services.put(hosted(number, host));
        entities.routes.put(route(number, Some(number), number));
    }
    entities.upstreams.put(named_upstream(1, "one"));
    entities.upstreams.put(named_upstream(2, "two"));
    let mut live = Snapshot::compile(&entities, &context, None).expect("compiles");
    // Which routes are new ones, and which services are balanced.
    let mut step = |change: &dyn Fn(&mut Entities)| {
        change(&mut entities);
        let next = Snapshot::compile(&entities, &context, Some(&live)).expect("compiles");
        let new: Vec<bool> = (live.routes.by_ascending_id().into_iter())
            .zip(next.routes.by_ascending_id())
            .map(|(old, new)| !Arc::ptr_eq(old, new))
            .collect();
        let is_balanced = |route: &Arc<LiveRoute>| {
            let service = route.service.as_ref().expect("a service");
            matches!(service.upstream, Upstream::Balanced(..))
        };
        let routes = next.routes.by_ascending_id();
        let balanced: Vec<bool> = routes.into_iter().map(is_balanced).collect();
        live = next;
        (new, balanced)
    };
    let target = |upstream: u8| -> Arc<Record<doorward_core::model::target::Target>> {
        record(
            json!({"id": id(9), "target": "10.0.0.1:80", "weight": 100, "created_at": 1.0,
            "updated_at": 1.0, "upstream": {"id": id(upstream)}}),
        )
    };
    let come = step(&|entities| entities.targets.put(target(1)));
    assert_eq!(come, (vec![true, false, false], vec![true, true, false]));
    let moved = step(&|entities| entities.targets.put(target(2)));
    assert_eq!(moved, (vec![true, true, false], vec![true, true, false]));
    let named = step(&|entities| entities.upstreams.put(named_upstream(1, "three")));
    assert_eq!(named, (vec![true, false, true], vec![false, true, true]));
    let gone = step(&|entities| drop(entities.upstreams.remove(id(1))));
    assert_eq!(gone, (vec![false, false, true], vec![false, true, false]));
    let hosted_anew = step(&|entities| entities.services.put(hosted(1, "two")));
    assert_eq!(
        hosted_anew,
        (vec![true, false, false], vec![true, true, false])
    );
}
