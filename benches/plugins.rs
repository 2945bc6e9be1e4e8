//! Everyday plugins: what a decision of `rate-limiting` costs in this process (bar:
//! 80 ns), and what `proxy-cache` does for an answer that is stored (bar of the whole
//! request: 14 µs).

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use doorward_core::clock::Clock;
use doorward_core::model::schema::Source;
use doorward_net::http::outbound::Outbound;
use doorward_net::telemetry::metrics::Metrics;
use doorward_plugin_api::Parts;
use doorward_plugin_api::filter::{Exchange, Filter, Flow, ResponseFlow, Verdict};
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::runtime::Runtime;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The filter of a plugin, built as the gateway builds it.
fn filter(name: &str, config: &Value) -> Arc<dyn Filter> {
    let kind = doorward_plugins::kind(name).expect("a plugin");
    let schema = (kind.schema)();
    let config = config.as_object().expect("an object").clone();
    let read = schema.read(config, Source::Json).expect("its fields");
    let config = schema.complete(read).expect("its values");
    let outbound = Arc::new(Outbound::new());
    let parts = Parts::new(Clock::system(), outbound, Arc::new(Metrics::default()));
    (kind.build)(&config, &parts).expect("a filter")
}

async fn session() -> ServerSession {
    let (mut client, server) = tokio::io::duplex(16 * 1024);
    let head = "GET /orders?page=2 HTTP/1.1\r\nHost: orders.localhost\r\nUser-Agent: wrk\r\n\r\n";
    client.write_all(head.as_bytes()).await.expect("room");
    let mut session = ServerSession::new_http1(Box::new(server));
    assert!(session.read_request().await.expect("a request"));
    session
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

fn rate_limiting(c: &mut Criterion) {
    let mut session = runtime().block_on(session());
    for (name, config) in [
        (
            "one period",
            json!({"hour": 1e15, "policy": "local", "hide_client_headers": true}),
        ),
        (
            "six periods",
            json!({"second": 1e15, "minute": 1e15, "hour": 1e15, "day": 1e15, "month": 1e15,
                "year": 1e15, "policy": "local", "hide_client_headers": true}),
        ),
        ("one period, told", json!({"hour": 1e15, "policy": "local"})),
    ] {
        let filter = filter("rate-limiting", &config);
        let mut exchange = Exchange::default();
        c.bench_function(&format!("rate-limiting/{name}"), |b| {
            b.iter(|| {
                exchange.response_headers.clear();
                let verdict = filter.on_request(black_box(&mut session), &mut exchange);
                assert!(matches!(verdict, Verdict::Now(Flow::Continue)));
            });
        });
    }
}

fn proxy_cache(c: &mut Criterion) {
    let runtime = runtime();
    let mut session = runtime.block_on(session());
    let filter = filter("proxy-cache", &json!({"strategy": "memory"}));
    let mut exchange = Exchange::default();
    let verdict = filter.on_request(&mut session, &mut exchange);
    assert!(matches!(verdict, Verdict::Now(Flow::Continue)));
    let mut head = ResponseHeader::build(200, None).expect("a head");
    for (name, value) in [
        ("content-type", "application/json"),
        ("content-length", "1024"),
        ("etag", "\"1\""),
    ] {
        head.insert_header(name, value).expect("a field");
    }
    let flow = filter.on_upstream_response(session.req_header(), &mut exchange, &mut head);
    let ResponseFlow::Filter(mut recording) = runtime.block_on(flow) else {
        panic!("the answer is stored");
    };
    let mut body = Some(Bytes::from(vec![b' '; 1024]));
    recording.piece(&mut body, true);
    drop(recording);
    c.bench_function("proxy-cache/hit", |b| {
        b.iter(|| {
            let mut exchange = Exchange::default();
            let verdict = filter.on_request(black_box(&mut session), &mut exchange);
            assert!(matches!(verdict, Verdict::Now(Flow::Respond(_))));
            verdict
        });
    });
}

criterion_group!(benches, rate_limiting, proxy_cache);
criterion_main!(benches);
