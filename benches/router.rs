//! Route match and snapshot compile, at growing numbers of routes.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use doorward_core::model::route::{Reference, Route};
use doorward_core::model::service::{Protocol, Service};
use doorward_expr::{Expression, Scope};
use doorward_gateway::entities::{Entities, Entity, Origin, Record};
use doorward_gateway::handler::{Declared, FileRoute, Handler, Routes, StaticResponse};
use doorward_gateway::resolve::{DnsConfig, Resolver};
use doorward_gateway::router::{Query, Router};
use doorward_gateway::snapshot::{CompileContext, Snapshot};
use doorward_net::http::outbound::Outbound;
use doorward_net::telemetry::traffic::Traffic;
use doorward_plugin_api::Parts;
use http::{HeaderMap, Method};
use uuid::Uuid;

/// Every other route has a host of its own, the rest share one host and have
/// paths of their own.
fn route(i: usize) -> Route {
    let own_host = i.is_multiple_of(2);
    let host = if own_host {
        format!("svc-{i}.example.com")
    } else {
        "api.example.com".to_owned()
    };
    Route {
        id: Uuid::from_u128(i as u128 + 1),
        name: Some(format!("route-{i}")),
        protocols: vec!["http".into(), "https".into()],
        hosts: Some(vec![host]),
        paths: (!own_host).then(|| vec![format!("/v1/svc-{i}/")]),
        methods: None,
        headers: None,
        snis: None,
        regex_priority: 0,
        strip_path: true,
        preserve_host: false,
        path_handling: Default::default(),
        https_redirect_status_code: 426,
        request_buffering: true,
        response_buffering: true,
        sources: None,
        destinations: None,
        service: Some(Reference {
            id: Uuid::from_u128(u128::MAX),
        }),
        tags: None,
        created_at: 0,
        updated_at: 0,
    }
}

fn service() -> Service {
    Service {
        id: Uuid::from_u128(u128::MAX),
        name: Some("all".into()),
        protocol: Protocol::Http,
        host: "127.0.0.1".into(),
        port: 9000,
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
        created_at: 0,
        updated_at: 0,
    }
}

fn matching(c: &mut Criterion) {
    let mut group = c.benchmark_group("route_match");
    for count in [10, 1_000, 100_000] {
        let routes: Vec<Route> = (0..count).map(route).collect();
        let router = Router::build(&routes, None).expect("routes compile");
        println!(
            "{count} routes: {} bytes of router each",
            router.heap() / count
        );
        // A fixed stride through all routes: the look-ups are cold.
        let asked: Vec<(String, String)> = (0..4096)
            .map(|i| {
                let i = (i * 7919) % count;
                let hosts = routes[i].hosts.as_ref().expect("a host");
                (hosts[0].clone(), format!("/v1/svc-{i}/orders/42"))
            })
            .collect();
        let headers = HeaderMap::new();
        let mut turn = 0;
        group.bench_function(BenchmarkId::from_parameter(count), |b| {
            b.iter(|| {
                turn = (turn + 1) % asked.len();
                let (host, path) = &asked[turn];
                let query = Query {
                    host,
                    port: 8000,
                    path,
                    method: &Method::GET,
                    headers: &headers,
                    tls: false,
                    sni: None,
                };
                router.find(black_box(&query)).expect("a route")
            });
        });
    }
    group.finish();
}

fn record<T: Entity>(value: T) -> Arc<Record<T>> {
    Arc::new(Record::of(value, Origin::Store))
}

fn compiling(c: &mut Criterion) {
    let workshop = CompileContext {
        parts: Parts::new(
            doorward_core::clock::Clock::system(),
            Arc::new(Outbound::default()),
            Arc::default(),
        ),
        internals: Default::default(),
        traffic: Arc::default(),
        resolver: Resolver::new(&DnsConfig::default(), Default::default()),
        upstream_verify: true,
        mount: None,
    };
    let mut entities = Entities::default();
    entities.services.put(record(service()));
    for i in 0..10_000 {
        entities.routes.put(record(route(i)));
    }
    let first = Snapshot::compile(&entities, &workshop, None).expect("compiles");
    let mut group = c.benchmark_group("snapshot_compile");
    group.sample_size(20);
    group.bench_function("10000_routes", |b| {
        b.iter(|| Snapshot::compile(&entities, &workshop, Some(&first)).expect("compiles"));
    });
    group.finish();
}

/// Route files are asked one after the other; this is the last of them, none
/// of them, and the last of those whose conditions say nothing of the path.
fn files(c: &mut Criterion) {
    let traffic = Traffic::default();
    let routes = |condition: &dyn Fn(usize) -> String| {
        let route = |i: usize| {
            let answer = StaticResponse::new(200, None, Vec::new(), None).expect("an answer");
            let declared = Declared {
                id: format!("{i:04}"),
                name: format!("{i:04}"),
                file: "file.json".into(),
                condition: Some(Expression::compile(&condition(i)).expect("an expression")),
                handler: Arc::new(Handler::Static(answer)),
            };
            Arc::new(FileRoute::new(declared, &traffic))
        };
        Routes::new((0..1000).map(route).collect(), None)
    };
    let by_path = routes(&|i| format!("${{matches(request.uri.path, '^/svc-{i:04}/')}}"));
    let by_host = routes(&|i| format!("${{request.headers['Host'][0] == 'svc-{i:04}.test'}}"));
    let mut group = c.benchmark_group("route_files");
    for (name, routes, path, found) in [
        ("1000_last_path", &by_path, "/svc-0999/orders", true),
        ("1000_no_path", &by_path, "/other", false),
        ("1000_last_host", &by_host, "/", true),
    ] {
        let request = http::Request::get(path).header("host", "svc-0999.test");
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        let scope = Scope::new(&parts, ([127, 0, 0, 1], 5).into());
        group.bench_function(name, |b| {
            b.iter(|| {
                assert_eq!(
                    routes
                        .taking(black_box(&scope))
                        .is_ok_and(|route| route.is_some()),
                    found
                )
            });
        });
    }
    group.finish();
}

criterion_group!(benches, matching, compiling, files);
criterion_main!(benches);
