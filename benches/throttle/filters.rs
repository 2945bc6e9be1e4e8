//! The whole filter on a request, as the gateway calls it.

use std::sync::Arc;

use doorward_core::clock::Clock;
use doorward_net::http::outbound::Outbound;
use doorward_net::telemetry::Metrics;
use doorward_plugin_api::Parts;
use doorward_plugin_api::filter::{Exchange, Filter};
use doorward_plugins::throttling::KIND;
use pingora::protocols::http::ServerSession;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::rounds::{Case, measure};

fn filter(config: &Value) -> Arc<dyn Filter> {
    let parts = Parts::new(
        Clock::system(),
        Arc::new(Outbound::new()),
        Arc::new(Metrics::default()),
    );
    let config = config.as_object().expect("an object");
    (KIND.build)(config, &parts).expect("a valid configuration")
}

async fn session() -> ServerSession {
    let (mut client, server) = tokio::io::duplex(4096);
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\nAccept: */*\r\nX-User: ada\r\n\r\n")
        .await
        .expect("a duplex stream takes a request");
    let mut session = ServerSession::new_http1(Box::new(server));
    session.read_request().await.expect("a valid request");
    session
}

pub(crate) fn filters(rounds: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let plenty = json!({"numberOfRequests": 1_000_000_000_000_u64, "duration": "1 s"});
    let grouped = |policy: &str| json!({"requestGroupingPolicy": policy, "rate": plenty});
    let client = "${contexts.client.remoteAddress}";
    let daily = json!({"numberOfRequests": 1_000_000_000_000_u64, "duration": "1 day"});
    let told = |rates: &[&Value]| json!({"requestGroupingPolicy": client, "rates": rates, "headers": "draft"});
    let cases = [
        ("one partition", grouped("")),
        ("by client", grouped(client)),
        ("by header", grouped("${request.headers['X-User'][0]}")),
        (
            "by mixed text",
            grouped("user-${request.headers['X-User'][0]}"),
        ),
        (
            "by client, two rates",
            json!({"requestGroupingPolicy": client, "rates": [plenty, daily]}),
        ),
        ("by client, headers", told(&[&plenty])),
        ("by client, two rates, headers", told(&[&plenty, &daily])),
        (
            "by client, refused",
            json!({"requestGroupingPolicy": client, "rate": {"numberOfRequests": 1, "duration": "1 day"}}),
        ),
    ];
    let cases = cases.iter().map(|(name, config)| {
        let filter = filter(config);
        let mut session = runtime.block_on(session());
        let mut exchange = Exchange::default();
        Case::one(name, move || {
            exchange.response_headers.clear();
            filter.on_request(&mut session, &mut exchange)
        })
    });
    measure(
        "the filter on a request, one thread",
        rounds,
        cases.collect(),
    );
}
